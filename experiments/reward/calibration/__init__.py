"""Confidence, abstention and corrected estimates of recorded judges; see README.md."""

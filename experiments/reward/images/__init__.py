"""Panels of recorded judges; see README.md."""

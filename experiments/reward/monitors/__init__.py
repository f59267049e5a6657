"""Detectors of reward hacking on simulated runs; see README.md."""

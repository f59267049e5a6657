"""Throughput of the reward service, and what an outage does to it; see README.md."""

"""Benchmarks: studies of cost and speed, by the same contract as every other study."""

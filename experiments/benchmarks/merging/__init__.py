"""Merging against mergekit and against the dense SVD of PEFT's route."""

"""Studies of the reward harness."""

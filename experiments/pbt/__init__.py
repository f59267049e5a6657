"""Population-based search over the hyperparameters of GRPO on the tiny base."""

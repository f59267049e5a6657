"""The training loop against TRL's GRPOTrainer: cost, hidden latency, long tails, and what is learned."""

"""Learning curves of every objective on the tiny base, and whether what the base knew survives them."""

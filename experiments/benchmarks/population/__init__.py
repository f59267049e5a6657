"""Population-based search against Ray Tune, and on toy problems with known answers."""

"""What co-evolution loses without each of its parts; see README.md."""

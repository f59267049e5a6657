"""The first run: three small policies and three harnesses on two CPU cores, with the base they start from."""

"""Rules of the code as a whole, each checked by a machine."""

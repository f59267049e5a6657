"""Frozen data that crosses a process border, its Arrow schemas, ids, errors, and the protocols at the seams."""

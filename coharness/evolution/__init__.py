"""How the population changes: fitness, selection, exploration, merging, pairing and gates.

Modules are imported by their full name; this package imports nothing itself, so that reading a genome or a verdict never loads
torch (only `evolution.merging` needs it).
"""

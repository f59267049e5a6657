"""Typed spaces that hyperparameters live in: how they are drawn, perturbed and kept inside their bounds.

`space` has the kinds of space, `training_space` the ones of a trained member. Randomness comes in as a numpy Generator.
"""

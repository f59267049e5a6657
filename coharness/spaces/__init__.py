"""Typed spaces that hyperparameters live in: how they are drawn, perturbed and kept inside their bounds.

`space` has the kinds of space of a trained member, whose values are floats; `training_space` names its hyperparameters.
`domain` is the wider contract of the search mode, whose values are whatever a user's trainable takes: `ranges` (real and whole
ranges), `discrete` (ordered levels, unordered choices, shares of a whole), `tree` (nested and conditional fields). `spelling`
reads them from a config, `foreign` from Ray Tune's and Optuna's own. Randomness comes in as a numpy Generator.
"""

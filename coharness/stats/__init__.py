"""Statistics of every decision and claim: sequential gates, error budget, Beta evidence, intervals and bounds.

Pure functions and frozen values on numpy and scipy; the package imports nothing else of coharness, keeps no state and
draws random numbers only from a generator the caller hands in. Callers import from the module that owns the noun:
`sequential` (gate), `online_fdr` (budget), `beta` (evidence), `bootstrap`, `paired`, `proportions`, `interval`.
"""

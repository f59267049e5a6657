"""The tools: each looks at a candidate beside its source and gives a few named numbers, NaN where it cannot tell."""

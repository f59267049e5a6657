"""Harnesses at work: the space their genes live in, operators that vary them, their prompts, and how they draw tasks."""

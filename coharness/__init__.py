"""coharness: asynchronous co-evolution of LLM policies and the harnesses they work in.

Importing this package is light: it loads neither torch nor ray.
"""

__version__ = "0.1.0"

"""The command line: one module a verb, loaded when the verb is used, so that `coharness --help` stays light.

`main` is the entry point. Only `compose` may import `actors` and `clusters`, and only inside its functions.
"""

from coharness.cli.main import main

__all__ = ["main"]

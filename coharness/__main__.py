"""`python -m coharness`, the same as the console script `coharness`."""

from coharness.cli.main import main

if __name__ == "__main__":
    main()

"""`python -m coharness.cli`, where the console script is not on the path."""

from coharness.cli.main import main

if __name__ == "__main__":
    main()

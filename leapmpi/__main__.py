"""`python -m leapmpi COMMAND ...` is `leapmpi COMMAND ...`."""

import sys

from leapmpi.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

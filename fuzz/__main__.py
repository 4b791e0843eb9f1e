"""Run the fuzzer: `python -m fuzz --help`."""

import sys

from fuzz.session import main

if __name__ == "__main__":
    sys.exit(main())

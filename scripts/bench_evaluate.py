"""`scripts/bench.py evaluate` under the name that it had."""

from __future__ import annotations

import sys

from bench import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))

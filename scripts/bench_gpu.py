"""`scripts/bench.py gpu` under the name by which machines with a GPU call it."""

from __future__ import annotations

import sys

from bench import main

if __name__ == "__main__":
    sys.exit(main(["gpu", *sys.argv[1:]]))

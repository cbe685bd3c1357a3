"""Say that Ctrl-C ended a command, without a library: they may be half loaded."""

import sys

INTERRUPTED = 130  # what shells report for Ctrl-C


def show_interrupted() -> int:
    line = "\nInterrupted. Run the same command again: it does only what is not stored yet."
    print(line, file=sys.stderr, flush=True)
    return INTERRUPTED

"""Start the command. Ctrl-C ends it with a line and an exit code from here on, also while libraries load.

Nothing is imported at the top but what Python has loaded anyway.
"""

import sys

INTERRUPTED = 130  # what shells report for Ctrl-C


def main() -> None:
    try:
        from counterfoil.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(show_interrupted())


def show_interrupted() -> int:
    line = "\nInterrupted. Run the same command again: it does only what is not stored yet."
    print(line, file=sys.stderr, flush=True)
    return INTERRUPTED


if __name__ == "__main__":
    main()

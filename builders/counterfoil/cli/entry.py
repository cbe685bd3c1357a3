"""Start the command. Ctrl-C ends it with a line and an exit code from here on, also while libraries load."""

import sys

from counterfoil.cli.interrupted import show_interrupted


def main() -> None:
    try:
        from counterfoil.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(show_interrupted())


if __name__ == "__main__":
    main()

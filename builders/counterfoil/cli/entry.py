"""Start the command. A signal ends it with a line and an exit code from here on, also while
libraries load."""

import sys

from counterfoil.signals import forget_signals, heed_signals, show_signal


def main() -> None:
    try:
        heed_signals()
        from counterfoil.cli.main import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(show_signal())
    finally:
        forget_signals()


if __name__ == "__main__":
    main()

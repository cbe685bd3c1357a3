"""Ctrl-C and SIGTERM end a command. Some libraries catch what a signal raises and go on, so it is
remembered.

No library is imported here: they may be half loaded when a signal comes.
"""

import signal
import sys
from types import FrameType

_LINES = {signal.SIGINT: "Interrupted", signal.SIGTERM: "Ended by SIGTERM"}
_given: list[int] = []


def heed_signals() -> None:
    """Raise KeyboardInterrupt for both signals, unless this process was started to ignore them."""
    sys.unraisablehook = _keep_quiet
    for number in _LINES:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _remember)


def _remember(number: int, frame: FrameType | None) -> None:
    _given.append(number)
    raise KeyboardInterrupt


def _keep_quiet(ignored: "sys.UnraisableHookArgs") -> None:
    """Print what Python ignores, unless it is a signal: in a callback of a weak reference, Python
    catches it."""
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)


def signalled() -> bool:
    return bool(_given)


def obey_signal() -> None:
    """Raise KeyboardInterrupt if a signal was given, because a library may have caught it."""
    if signalled():
        raise KeyboardInterrupt


def forget_signals() -> None:
    """Let a signal end this process at once: the command has ended, and Python's own end prints
    what interrupts it."""
    for number in _LINES:
        if signal.getsignal(number) is _remember:
            signal.signal(number, signal.SIG_DFL)


def show_signal() -> int:
    """Say which signal ended the command, and return the exit code that shells report for it."""
    number = _given[0] if _given else signal.SIGINT
    line = (
        f"\n{_LINES[signal.Signals(number)]}. Run the same command again: it does only what is"
        " not stored yet."
    )
    print(line, file=sys.stderr, flush=True)
    # else Python, run with -m, remembers an interrupt that left an exec and ends by SIGINT
    exec("")
    return 128 + number

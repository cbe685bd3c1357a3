"""What an error of a library says, in one line that a person can be shown."""

from __future__ import annotations

_LONGEST = 300


def one_line(error: BaseException) -> str:
    """The text of an error without its line breaks, shortened, and its kind."""
    words = " ".join(str(error).split())
    kind = type(error).__name__
    return f"{words[:_LONGEST]} ({kind})" if words else kind

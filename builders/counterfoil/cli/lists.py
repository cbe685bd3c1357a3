"""Options that take several values after one flag: `--models a b c`; an option or `--` ends the list."""

from __future__ import annotations

from collections.abc import Mapping


def spread(args: list[str], flags: Mapping[str, str]) -> list[str]:
    """Arguments with a flag repeated before every value that follows it; flags: as written → as it is repeated."""
    given: list[str] = []
    listing: str | None = None
    for place, word in enumerate(args):
        flag, _, value = word.partition("=")
        if flag in flags and value:
            listing = flags[flag]
            given += [listing, value]
            continue
        if word == "--":
            # After a list, `--` only ends it; elsewhere it keeps its usual meaning.
            return given + (args[place + 1 :] if listing else args[place:])
        if word.startswith("-"):
            listing = flags.get(word)
            if listing is None or place + 1 == len(args) or args[place + 1].startswith("-"):
                given.append(word)
        elif listing:
            given += [listing, word]
        else:
            given.append(word)
    return given

"""Names of shifts, made of the words that people read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_LONGEST_SLUG = 60


def slugs(names: Sequence[str]) -> list[str]:
    """Names in the letters that shifts may have, each once: of equal or empty ones the place says which it is."""
    plain = [re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_LONGEST_SLUG].rstrip("_") for name in names]
    often = Counter(plain)
    taken = {own for own in plain if own and often[own] == 1}
    found = []
    for place, own in enumerate(plain):
        name = own if own in taken else f"{own or 'class'}_{place}"
        while own not in taken and name in {*taken, *found}:
            name += "_"
        found.append(name)
    return found

"""The benches of `scripts/bench.py`, a file each.

A bench has a `TITLE`, its `PARTS` in their order, `add_options` for options of its own, and
`measure`, which gives a `Page` each time that it knows more: a run that is killed leaves what it
had measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """What a bench tells so far. opening: what holds for all of its tables. tables: the lines of
    each part.

    measured_in: of a part, the worlds or classifiers behind it. variant: of a bench with several
    sections in a file.
    """

    opening: Sequence[str]
    tables: Mapping[str, Sequence[str]]
    measured_in: Mapping[str, str] | None = None
    variant: str = ""
    failed: bool = False

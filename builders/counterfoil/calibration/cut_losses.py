"""What a dataset loses when a cut takes its place: what no later cut, and no command, brings back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MOST_SHIFTS = 8


@dataclass(frozen=True, slots=True)
class CutLosses:
    """Images by shift that are no longer kept, candidates whose rows go, columns, and files of results by folder.

    Empty, and false, where everything that is dropped can be had again by another cut.
    """

    images: Mapping[str, int]
    candidates: int
    columns: tuple[str, ...]
    results: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.images or self.candidates or self.columns or self.results)

    def lines(self) -> list[str]:
        """In words, a line for each kind."""
        said = []
        if self.images:
            shown = list(self.images.items())[:_MOST_SHIFTS]
            of = ", ".join(f"{count:,} of {name}" for name, count in shown)
            more = f" and {len(self.images) - _MOST_SHIFTS} more shifts" if len(self.images) > _MOST_SHIFTS else ""
            said.append(
                f"{_count(sum(self.images.values()), 'image')} that fall out are not kept, so no later, looser cut can"
                f" take them back: {of}{more}"
            )
        if self.candidates:
            said.append(
                f"{_count(self.candidates, 'candidate')} behind what fills a quota sooner, with their scores, go"
            )
        if self.columns:
            said.append(f"columns that no rule asks for any more go: {', '.join(self.columns)}")
        said += [
            f"results in {folder}/ are dropped, for they are of the images as they are now: {_count(files, 'file')}"
            for folder, files in self.results.items()
        ]
        return said


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"

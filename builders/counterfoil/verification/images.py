"""Whether images decode, in which format and size: many at a time, for Pillow works without Python's lock."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from counterfoil.store.decoding import UnreadableImage, load_image, open_image


@dataclass(frozen=True, slots=True)
class Look:
    """What an encoded image is; `fault` says why it does not decode, and then the rest is empty."""

    format: str = ""
    size: tuple[int, int] = (0, 0)
    mode: str = ""
    fault: str | None = None


def look_at(encoded: Any, size: tuple[int, int] | None = None) -> Look:
    """Decode an image to its last pixel; one whose header says another `size` is not decoded, for that is told."""
    try:
        with open_image(encoded) as picture:
            look = Look(picture.format or "", picture.size, picture.mode)
            if size is None or picture.size == size:
                load_image(picture)
            return look
    except UnreadableImage as error:
        return Look(fault=str(error))


def look_at_all(encoded: Sequence[Any], pool: Executor, size: tuple[int, int] | None = None) -> list[Look]:
    """`look_at` for each, in order."""
    return list(pool.map(look_at, encoded, repeat(size)))


@dataclass(slots=True)
class _Seen:
    """The images of one size in one file: how many, and the first of them."""

    key: str
    count: int = 0


@dataclass(slots=True)
class Sizes:
    """The sizes of images seen: where a recipe leaves the size to the generator, all are as most of them are."""

    seen: dict[tuple[int, int], dict[str, _Seen]] = field(default_factory=dict)

    def add(self, size: tuple[int, int], path: str, key: str) -> None:
        self.seen.setdefault(size, {}).setdefault(path, _Seen(key)).count += 1

    def odd(self) -> list[tuple[str, str]]:
        """(file, what is wrong) for each file with images of another size than most."""
        if len(self.seen) < 2:
            return []
        totals = {size: sum(seen.count for seen in files.values()) for size, files in self.seen.items()}
        usual = max(totals, key=lambda size: (totals[size], size))
        return [
            (path, f"is wrong in {seen.key}: {size_fault(size, usual)}{_more(seen.count - 1)}")
            for size, files in self.seen.items()
            if size != usual
            for path, seen in files.items()
        ]


def size_fault(size: tuple[int, int], expected: tuple[int, int]) -> str:
    return f"its image is {size[0]}×{size[1]}, expected {expected[0]}×{expected[1]}"


def _more(count: int) -> str:
    return f" (and {count} more like it)" if count else ""

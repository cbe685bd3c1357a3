"""The few images that the card shows, read from the shards that hold them and from no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from counterfoil.errors import RunFailure
from counterfoil.plan import sample_key
from counterfoil.store.decoding import UnreadableImage, rgb_image
from counterfoil.store.reading import read_file
from counterfoil.store.receipts import remake_hint

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.plan import Plan
    from counterfoil.store import Receipt

# The side of the largest picture on a contact sheet; what is larger is reduced when it is read.
LARGEST = 128


class Place(NamedTuple):
    """Which image: shift, label and index."""

    shift: str
    label: int
    index: int


@dataclass(frozen=True)
class Pictures:
    """Reads images by place. `files` are the data files by (shift, label), absent where none was accepted; `receipts`
    those of the files."""

    plan: Plan
    directory: Path
    files: Mapping[tuple[str, int], str]
    receipts: Mapping[str, str]

    def read(self, places: Iterable[Place]) -> dict[Place, Image.Image]:
        """Accepted images as RGB, at most `LARGEST` pixels a side. RunFailure for one that is not there or does not
        open."""
        wanted: dict[str, dict[str, Place]] = {}
        for place in sorted(set(places)):
            wanted.setdefault(self.files[place.shift, place.label], {})[self._key(place)] = place
        found = {}
        for path, keys in wanted.items():
            for key, encoded in encoded_images(self.directory / path, set(keys)):
                found[keys[key]] = reduced(encoded, f"{path}: {key}", LARGEST)
            missing = [key for key, place in keys.items() if place not in found]
            if missing:
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                raise RunFailure(
                    f"{self.directory / path} has no row {missing[0]}{more}, which candidates accept",
                    hint=remake_hint(self.directory, self.receipts[path]),
                )
        return found

    def _key(self, place: Place) -> str:
        return sample_key(place.shift, self.plan.class_of(place.label).id, place.index)


def pictures_of(directory: Path, plan: Plan, receipts: Sequence[Receipt], cells: Iterable[tuple[str, int]]) -> Pictures:
    """A reader for the images of these cells (shift, label)."""
    wanted = set(cells)
    by_shard = {(receipt.group, receipt.shard): receipt for receipt in receipts}
    files: dict[tuple[str, int], str] = {}
    of_files: dict[str, str] = {}
    for shard in plan.shards:
        here = [(cell.shift, cell.label) for cell in shard.cells if (cell.shift, cell.label) in wanted]
        receipt = by_shard.get((shard.group, shard.number)) if here else None
        file = receipt.file("data") if receipt else None
        if receipt is not None and file is not None:
            of_files[file.path] = receipt.path
            files.update(dict.fromkeys(here, file.path))
    return Pictures(plan, directory, files, of_files)


def encoded_images(path: Path, keys: set[str]) -> Iterator[tuple[str, bytes]]:
    """(key, encoded image) of these rows of a shard; stops at the last of them."""
    left = set(keys)
    for rows in read_file(path, "data", ["key", "image"], only=frozenset(keys)):
        for row in rows:
            if row["key"] in left:
                left.remove(row["key"])
                yield row["key"], (row["image"] or {}).get("bytes") or b""
            if not left:
                return


def reduced(encoded: bytes, where: str, side: int) -> Image.Image:
    """An encoded image as RGB, at most `side` pixels a side. RunFailure, with `where`, for one that does not open."""
    try:
        image = rgb_image(encoded)
    except UnreadableImage as error:
        raise RunFailure(
            f"{where} is not an image that opens: {error}",
            hint="Remove the receipt of its shard and build again: only that shard is made anew.",
        ) from error
    image.thumbnail((side, side))
    return image

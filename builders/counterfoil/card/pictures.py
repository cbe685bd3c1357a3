"""The few images that the card shows, read from the shards that hold them and from no other."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from counterfoil.errors import RunFailure

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
    """Reads images by place. `files` are the data files by (shift, label), absent where none was accepted."""

    plan: Plan
    directory: Path
    files: Mapping[tuple[str, int], str]

    def read(self, places: Iterable[Place]) -> dict[Place, Image.Image]:
        """Accepted images as RGB, at most `LARGEST` pixels a side. RunFailure for one that does not open."""
        wanted: dict[str, dict[str, Place]] = {}
        for place in sorted(set(places)):
            wanted.setdefault(self.files[place.shift, place.label], {})[self._key(place)] = place
        found = {}
        for path, keys in wanted.items():
            for key, encoded in encoded_images(self.directory / path, set(keys)):
                found[keys[key]] = reduced(encoded, f"{path}: {key}", LARGEST)
        return found

    def _key(self, place: Place) -> str:
        return f"{place.shift}_{self.plan.class_of(place.label).id}_{place.index:06d}"


def pictures_of(directory: Path, plan: Plan, receipts: Sequence[Receipt], cells: Iterable[tuple[str, int]]) -> Pictures:
    """A reader for the images of these cells (shift, label)."""
    wanted = set(cells)
    by_shard = {(receipt.group, receipt.shard): receipt for receipt in receipts}
    files = {}
    for shard in plan.shards:
        here = [(cell.shift, cell.label) for cell in shard.cells if (cell.shift, cell.label) in wanted]
        receipt = by_shard.get((shard.group, shard.number)) if here else None
        file = receipt.file("data") if receipt else None
        if file is not None:
            files.update(dict.fromkeys(here, file.path))
    return Pictures(plan, directory, files)


def encoded_images(path: Path, keys: set[str]) -> Iterator[tuple[str, bytes]]:
    """(key, encoded image) of these rows of a shard; stops at the last of them."""
    rows = _tar_rows(path) if path.suffix == ".tar" else _parquet_rows(path, keys)
    left = set(keys)
    for key, encoded in rows:
        if key in left:
            left.remove(key)
            yield key, encoded
        if not left:
            return


def _tar_rows(path: Path) -> Iterator[tuple[str, bytes]]:
    from counterfoil.store.tars import read_tar

    for batch in read_tar(path):
        for row in batch:
            yield row["key"], row["image"]["bytes"]


def _parquet_rows(path: Path, keys: set[str]) -> Iterator[tuple[str, bytes]]:
    """The rows of those row groups that hold a wanted key."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            here = file.read_row_group(number, columns=["key"]).column("key").to_pylist()
            if keys.isdisjoint(here):
                continue
            images = file.read_row_group(number, columns=["image"]).column("image")
            for key, image in zip(here, images, strict=True):
                if key in keys:
                    yield key, image["bytes"].as_py()


def reduced(encoded: bytes, where: str, side: int) -> Image.Image:
    """An encoded image as RGB, at most `side` pixels a side. RunFailure, with `where`, for one that does not open."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(io.BytesIO(encoded)).convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise RunFailure(
            f"{where} is not an image that opens: {error}",
            hint="Remove the receipt of its shard and build again: only that shard is made anew.",
        ) from error
    image.thumbnail((side, side))
    return image

"""Which audited images are the same image: the content of each, hashed as the image is read for something else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from counterfoil.progress import track
from counterfoil.sources import LabelledImages
from counterfoil.store.atomic import make_folder, write_atomically
from counterfoil.user_cache import user_cache

_DIGEST = hashlib.sha256().digest_size


def contents_seen(parts: Sequence[LabelledImages]) -> list[ContentsSeen]:
    """Of each of these, kept in the user's cache."""
    return [ContentsSeen(part, user_cache() / "contents") for part in parts]


class ContentsSeen:
    """The content of each of some images; whoever reads `images` to look at them leaves it here.

    What a whole pass told is kept in `folder`, named after the content of all, so that a run which finds predictions
    and features in their caches reads no image for this either.
    """

    def __init__(self, images: LabelledImages, folder: Path):
        self._plain, self._file, self._seen = images, folder / f"{images.content[:64]}.contents", dict[str, bytes]()
        self.images = replace(images, read=self._read)

    def _read(self, wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for key, image in self._plain.read(wanted):
            self._seen[key] = hashlib.sha256(image or b"").digest()
            yield key, image

    def known(self) -> list[str]:
        """The content of each row, in order, as text; what nobody has read yet is read now. RunFailure as the disk."""
        plain = self._plain
        known = self._kept()
        if known is not None:
            return known
        missing = frozenset(plain.keys) - self._seen.keys()
        read = self.images.images(missing) if missing else ()
        for _ in track(read, f"{plain.name}: contents", len(missing), 1000):
            pass
        make_folder(self._file.parent)
        write_atomically(self._file, b"".join(self._seen[key] for key in plain.keys))
        return [self._seen[key].hex() for key in plain.keys]

    def _kept(self) -> list[str] | None:
        """What is there for exactly these rows; None for anything else."""
        try:
            content = self._file.read_bytes()
        except OSError:
            return None
        if len(content) != _DIGEST * len(self._plain):
            return None
        return [row.tobytes().hex() for row in np.frombuffer(content, np.uint8).reshape(-1, _DIGEST)]

"""Compare the splits of an input dataset: which tested images are copies of training images.

Fingerprints are kept in the user's cache by the content of each file, so only new images are
decoded again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL

from counterfoil.data.fingerprints import file_digest, fingerprint
from counterfoil.data.folder_splits import shown_name
from counterfoil.data.labelled_images import NO_LABEL
from counterfoil.data.labels import labels_of
from counterfoil.data.open_source import open_source
from counterfoil.data.pictures import evenly_spread
from counterfoil.data.pool import pool_of
from counterfoil.data.tables import is_here
from counterfoil.documents import csv_text, sha256_json
from counterfoil.errors import CounterfoilError, UserError, some_of
from counterfoil.image_copies import DIGEST, FINGERPRINT, RADIUS, Copies, detailed, find_copies
from counterfoil.models.names import LAB
from counterfoil.progress import track
from counterfoil.recipe.names import is_local
from counterfoil.regular_files import read_regular
from counterfoil.report.words import format_count
from counterfoil.starting.lacking import Lack
from counterfoil.starting.source_rows import open_quickly
from counterfoil.store.atomic import write_atomically
from counterfoil.store.layout import user_cache

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from counterfoil.arrays import Ints
    from counterfoil.data.labelled_sources import NamedDataset
    from counterfoil.data.open_source import OpenSource
    from counterfoil.data.pins import InputDataset
    from counterfoil.data.tables import Rows
    from counterfoil.recipe import Recipe

# Images of a split that are compared by default. `docs/how-to/own-photos.md` says how long it takes.
MOST_COMPARED = 10_000
_MOST_BYTES = 2_000_000_000  # of their files, by default
_SIZED = 50  # images whose files say how large all are
_MOST_SPLITS = 4
_MOST_SHOWN = 5
_MOST_LISTED = 100_000  # lines of the list, for each split
_MOST_PARTNERS = 20  # training images that are listed for an image
_MOST_REMEMBERED = 1 << 30
_FORM = b"fingerprints 2\n"
_DIGEST = 32
_UNLABELLED = frozenset((None, NO_LABEL))
_COLUMNS = ("image", "train_image", "kind", "mirrored", "alike", "label", "train_label")


# What JSON has of a split.
_COUNTS = (
    "train", "tested", "compared", "unreadable", "plain", "radius", "exact", "near", "other_label", "repeated",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SplitCopies:
    """The images of a split that are copies of training images."""

    train: str
    """The training split."""
    tested: str
    """The split whose images were looked for."""
    compared: Mapping[str, int]
    """Split → its images that were compared."""
    images: Mapping[str, int]
    """Split → all its images."""
    unreadable: Mapping[str, int]
    """Split → images that cannot be read; only their files are compared."""
    plain: Mapping[str, int]
    """Split → nearly plain images, which have no near copies."""
    radius: int
    """The distance of hashes up to which near copies were looked for; -1: not at all."""
    exact: int
    """Tested images with the same file or pixels as a training image."""
    near: int
    """Other tested images that are nearly the same as a training image."""
    other_label: int
    """Tested images of which a copy has another label."""
    repeated: int
    """Tested images that are copies of an earlier tested image."""
    pairs: tuple[Mapping[str, Any], ...]
    """Pairs: names of both images, kind, and labels."""
    unlisted: int
    """Pairs that are not in `pairs`, which holds 20 an image and 100,000 in all."""

    def notes(self, listed: Path | None = None) -> list[str]:
        """Return sentences for people. listed: the file of all pairs, if there is one."""
        notes = []
        copied = self.exact + self.near
        images = format_count(self.compared[self.tested], "image")
        if copied:
            are = "is a copy" if copied == 1 else "are copies"
            where = self._shown(self.pairs) if listed is None else f"{listed} lists them"
            notes.append(
                f"{copied:,} of {images} of {self.tested} {are} of images of {self.train}:"
                f" {self.exact:,} exact, {self.near:,} near. A model that was trained on them is"
                f" too accurate here. Remove them from one of the two splits: {where}"
            )
        if self.unlisted and listed is not None:
            every = len(self.pairs) + self.unlisted
            notes.append(
                f"{listed} has {len(self.pairs):,} of {every:,} pairs of {self.tested}: at most"
                f" {_MOST_PARTNERS} of an image and {_MOST_LISTED:,} in all"
            )
        if self.near:
            notes.append(NEAR_IS_NOT_SURE)
        if self.other_label:
            others = list(filter(_disagrees, self.pairs))
            copies = "copy has" if self.other_label == 1 else "copies have"
            shown = f": {self._shown(others, labels=True)}" if others else ""
            notes.append(
                f"{self.other_label:,} {copies} another label in {self.train}, so one of the two"
                f" labels is wrong{shown}"
            )
        if self.repeated:
            repeat = "repeats" if self.repeated == 1 else "repeat"
            notes.append(
                f"{self.repeated:,} of {images} of {self.tested} {repeat} another one of"
                f" {self.tested}, and so counts twice"
            )
        if not copied:
            notes.append(self._none_found())
        if self.radius < RADIUS:
            notes.append(self._not_looked_for())
        for counts, what in (
            (self.unreadable, "that cannot be read, so their files alone were compared"),
            (self.plain, "that are nearly plain, so they were compared for exact copies only"),
        ):
            parts = [f"{count:,} of {split}" for split, count in counts.items() if count]
            if parts:
                notes.append(f"images {what}: {' and '.join(parts)}")
        for split, count in self.compared.items():
            if count < self.images[split]:
                notes.append(
                    f"only {count:,} of {self.images[split]:,} images of {split}, evenly spread,"
                    " were compared to find copies, so there may be more. To compare all, add"
                    f" --copies {max(self.images.values())}"
                )
        return notes

    def _none_found(self) -> str:
        unread = any(self.unreadable.values())
        if self.compared == self.images and self.radius == RADIUS and not unread:
            return f"no image of {self.tested} is a copy of an image of {self.train}"
        parts = []
        for split in (self.tested, self.train):
            parts.append(f"{self.compared[split]:,} of {self.images[split]:,} images of {split}")
        return f"no copy was found among the {parts[0]} and the {parts[1]} that were compared"

    def _not_looked_for(self) -> str:
        """Say which near copies were not looked for."""
        if self.radius < 0:
            what = "near copies were not looked for, only exact ones"
        else:
            what = (
                f"not all near copies were looked for (hashes that differ in at most {self.radius}"
                f" of 64 bits, instead of {RADIUS})"
            )
        return (
            f"{what}, because so many pairs of images of {self.tested} and {self.train} look alike."
            " The images may be of few scenes, for example frames of one video. Then make the"
            " splits by scene"
        )

    def _shown(
        self,
        pairs: Sequence[Mapping[str, Any]],
        *,
        labels: bool = False,
    ) -> str:
        texts = []
        for pair in pairs:
            image = pair["image"]
            train = pair["train_image"]
            if labels:
                image += f" ({pair['label']})"
                train += f" ({pair['train_label']})"
            texts.append(f"{image} = {train}")
        return some_of(texts, _MOST_SHOWN)

    def document(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        return {name: getattr(self, name) for name in _COUNTS}


def _disagrees(pair: Mapping[str, Any]) -> bool:
    """Return whether both images of a pair have a label, and not the same."""
    labels = {pair["label"], pair["train_label"]}
    return len(labels - _UNLABELLED) == 2


# `scripts/copies_proof/RESULTS.md`. The five pairs of photographs that were called copies were looked
# at, and show the same photograph.
NEAR_IS_NOT_SURE = (
    "look at near copies before you remove them: some are not copies. Of 3 million pairs of 2,500 small"
    " photographs (CIFAR-10, 32 pixels) none was called a copy by mistake, but of things that look"
    " alike, such as clothes on black, 5 to 17 in a million. Other images were not measured"
)


def copies_in_splits(
    origin: NamedDataset,
    splits: Sequence[str],
    train: str,
    most: int | None,
) -> tuple[list[SplitCopies], list[str]]:
    """Compare each other split of a dataset with its training split. Return what was found, and
    notes on what could not be compared.

    most: images of a split; None is `MOST_COMPARED`, or as many as have 2 GB.
    """
    others = [split for split in splits if split != train]
    if most == 0 or not others or origin.dataset.startswith(LAB):
        return [], []
    compared: list[SplitCopies] = []
    notes = []
    left_out = others[_MOST_SPLITS:]
    if left_out:
        notes.append(
            f"copies were not looked for in {some_of(left_out)}: only the first {_MOST_SPLITS}"
            f" splits beside {train} are compared"
        )
    split = train
    try:
        opened = open_source(origin)
        if not is_local(origin.dataset) and not is_here(origin, opened.pin):
            return [], ["images are not fetched, so copies between splits were not looked for"]
        training = _Split.of(opened, train, most)
        for split in others[:_MOST_SPLITS]:
            tested = _Split.of(opened, split, most)
            compared.append(_compared(training, tested))
    except CounterfoilError as error:
        failed = some_of(others[len(compared) : _MOST_SPLITS])
        notes.append(
            f"copies were not looked for in {failed}, because of {split}: {error.problems[0]}"
        )
    return compared, notes


def copies_for_recipe(recipe: Recipe, most: int | None) -> list[Lack]:
    """Compare the images that a recipe tests with its training split, if both are on this machine
    and quickly opened. Return what people should know."""
    source = recipe.source
    train = source.train_split
    tested_source: InputDataset = source
    split: str | None = source.validation_split
    key = "source.validation_split"
    if recipe.kind.takes_rows:
        tested_source = pool_of(recipe)
        split = recipe.generator.get("split")
        key = "generator.split"
    same = tested_source.dataset == source.dataset and split == train
    if most == 0 or recipe.kind.drawn_elsewhere or same or split is None:
        return []
    with contextlib.suppress(CounterfoilError, OSError):  # a build says what is wrong with a folder
        training = _opened(source)
        tested = _opened(tested_source)
        if training is None or tested is None or train not in training.splits:
            return []
        copies = _compared(
            _Split.of(training, train, most),
            _Split.of(tested, split, most),
        )
        if copies.exact or copies.near or copies.repeated or copies.radius < RADIUS:
            return [Lack(key, note, "optional") for note in copies.notes()]
    return []


def _opened(source: InputDataset) -> OpenSource | None:
    """Open a dataset quickly; not one of the lab, which has no copies."""
    return None if source.dataset.startswith(LAB) else open_quickly(source)


def copies_csv(compared: Sequence[SplitCopies]) -> str:
    """Return the pairs of all splits as CSV."""
    rows = [pair for split in compared for pair in split.pairs]
    return csv_text(rows, _COLUMNS)


@dataclass(frozen=True, slots=True)
class _Split:
    """Compared rows of a split: their fingerprints, names and labels."""

    name: str
    count: int
    fingerprints: NDArray[Any]
    names: tuple[str, ...]
    labels: tuple[str | None, ...]

    @classmethod
    def of(
        cls,
        opened: OpenSource,
        split: str,
        most: int | None,
    ) -> _Split:
        rows = opened.rows(split, labelled=False)
        if most is None:
            most = _affordable(rows)
        chosen = evenly_spread(range(rows.count), most)
        paths = rows.paths()
        names = []
        for row in chosen:
            name = f"{split} row {row}"
            if paths is not None:
                name = shown_name(paths[row])
            names.append(name)
        labels: list[str | None] = [None] * len(chosen)
        source = opened.source
        one_label = source.conditions is None and source.objects is None
        if one_label and source.label_column in rows.columns:
            with contextlib.suppress(UserError):  # another column than one of labels
                of_rows = labels_of(rows, source.label_column)
                labels = [of_rows.shown(row) for row in chosen]
        return cls(
            name=split,
            count=rows.count,
            fingerprints=_fingerprints(rows, chosen),
            names=tuple(names),
            labels=tuple(labels),
        )


def _affordable(rows: Rows) -> int:
    """Return how many images of a split are compared by default."""
    looked = evenly_spread(range(rows.count), _SIZED)
    sizes = [len(image or b"") for image in rows.images(looked)]
    fitting = _MOST_BYTES * len(sizes) // max(1, sum(sizes))
    return max(1, min(MOST_COMPARED, fitting))


def _fingerprints(rows: Rows, chosen: Sequence[int]) -> NDArray[Any]:
    file = user_cache() / "fingerprints" / sha256_json([rows.dataset, rows.split])
    known = _remembered(file)
    row_of = {}
    for row, digest in enumerate(known["file"].tolist()):
        row_of[digest] = row
    made = np.zeros(len(chosen), FINGERPRINT)
    complete = True
    images = track(
        rows.images(chosen),
        f"hashing images of {rows.split}",
        len(chosen),
        every=50,
    )
    for number, encoded in enumerate(images):
        if not encoded:
            continue
        known_row = row_of.get(file_digest(encoded))
        if known_row is not None:
            made[number] = known[known_row]
        else:
            made[number] = fingerprint(encoded)[0]
            complete = False
    if not complete:
        body = _form() + made.tobytes()
        with contextlib.suppress(CounterfoilError, OSError):  # the cache is optional
            write_atomically(file, hashlib.sha256(body).digest() + body)
    return made


def _form() -> bytes:
    return _FORM + f"{PIL.__version__}\n".encode()


def _remembered(file: Path) -> NDArray[Any]:
    """Read fingerprints from the cache; none if it is missing, damaged or of other decoders."""
    nothing = np.zeros(0, FINGERPRINT)
    try:
        stored = read_regular(file, _MOST_REMEMBERED)
    except OSError:
        return nothing
    body = stored[_DIGEST:]
    form = _form()
    sound = hashlib.sha256(body).digest() == stored[:_DIGEST] and body.startswith(form)
    if not sound or (len(body) - len(form)) % FINGERPRINT.itemsize:
        return nothing
    return np.frombuffer(body, FINGERPRINT, offset=len(form))


def _compared(train: _Split, tested: _Split) -> SplitCopies:
    copies = find_copies(tested.fingerprints, train.fingerprints)
    pairs = copies.pairs
    firsts = copies.tested_firsts
    copied = np.isin(firsts, pairs["tested"])
    exact = np.isin(firsts, pairs["tested"][pairs["exact"]])
    within = find_copies(tested.fingerprints).pairs
    unreadable = {}
    plain = {}
    for each in (tested, train):
        read = each.fingerprints["pixels"] != np.void(bytes(DIGEST))
        unreadable[each.name] = int((~read).sum())
        plain[each.name] = int((read & ~detailed(each.fingerprints)).sum())
    rows_of = _rows_of(copies.train_firsts, pairs["train"])
    listed = tuple(islice(_pairs(copies, rows_of, train, tested), _MOST_LISTED))
    images_of = np.bincount(firsts, minlength=1)
    every = 0
    for pair in pairs:
        every += int(images_of[pair["tested"]]) * len(rows_of[int(pair["train"])])
    of_firsts: dict[int, set[str | None]] = {}
    for first, rows in rows_of.items():
        of_firsts[first] = {train.labels[row] for row in rows} - _UNLABELLED
    of_copies: dict[int, set[str | None]] = {}
    for pair in pairs:
        labels = of_copies.setdefault(int(pair["tested"]), set())
        labels |= of_firsts[int(pair["train"])]
    other_label = 0
    for label, first in zip(tested.labels, firsts.tolist(), strict=True):
        if label not in _UNLABELLED:
            # A copy of it has another label.
            other_label += bool(of_copies.get(first, set()) - {label})
    return SplitCopies(
        train=train.name,
        tested=tested.name,
        compared={split.name: len(split.names) for split in (tested, train)},
        images={split.name: split.count for split in (tested, train)},
        unreadable=unreadable,
        plain=plain,
        radius=copies.radius,
        exact=int(exact.sum()),
        near=int((copied & ~exact).sum()),
        other_label=other_label,
        repeated=len(np.unique(within["train"])),
        pairs=listed,
        unlisted=every - len(listed),
    )


def _rows_of(firsts: Ints, wanted: Ints) -> dict[int, list[int]]:
    """Return the rows of images that are the same as each wanted first one."""
    rows_of: dict[int, list[int]] = {first: [] for first in wanted.tolist()}
    for row, first in enumerate(firsts.tolist()):
        if first in rows_of:
            rows_of[first].append(row)
    return rows_of


def _pairs(
    copies: Copies,
    rows_of: Mapping[int, Sequence[int]],
    train: _Split,
    tested: _Split,
) -> Iterator[Mapping[str, Any]]:
    """Yield the pairs of each image with at most `_MOST_PARTNERS` others, exact ones first."""
    tested_rows_of = _rows_of(copies.tested_firsts, copies.pairs["tested"])
    counts: Counter[int] = Counter()
    for pair in copies.pairs:
        partners = _partners(rows_of[int(pair["train"])], train)
        for row in tested_rows_of[int(pair["tested"])]:
            for partner in partners[: _MOST_PARTNERS - counts[row]]:
                counts[row] += 1
                yield {
                    "image": tested.names[row],
                    "train_image": train.names[partner],
                    "kind": "exact" if pair["exact"] else "near",
                    "mirrored": bool(pair["mirrored"]),
                    "alike": round(float(pair["alike"]), 4),
                    "label": tested.labels[row],
                    "train_label": train.labels[partner],
                }


def _partners(rows: Sequence[int], train: _Split) -> list[int]:
    """Return the training images to list of those that are the same: one of each label first, so
    that an image with another label sees it."""
    row_of: dict[str | None, int] = {}
    for row in rows:
        row_of.setdefault(train.labels[row], row)
    firsts = [row for label, row in row_of.items() if label not in _UNLABELLED]
    others = [row for row in rows[: 2 * _MOST_PARTNERS] if row not in firsts[:_MOST_PARTNERS]]
    return [*firsts, *others][:_MOST_PARTNERS]

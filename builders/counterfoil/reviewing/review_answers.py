"""`review --answers`: what people selected becomes part of the dataset and of its card.

The folder `review/` is written first, then card, croissant.json and, last of all, the manifest anew, under the
directory's lock. Answers that were stored before are replaced: all files are given together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.building.closing import close_again
from counterfoil.dataset import SoundDataset, read_dataset
from counterfoil.errors import RunFailure
from counterfoil.label_checks import Selection
from counterfoil.regular_files import named_path
from counterfoil.reviewing.answers import Asked, RaterAnswers, read_answers
from counterfoil.reviewing.grids import accepted_images, known_ids
from counterfoil.reviewing.selection import selection_csv, selection_of
from counterfoil.store.content import changed_data, content_of_receipts
from counterfoil.store.layout import MANIFEST
from counterfoil.store.sealed_folder import REVIEWED

TABLE = "selection.csv"
_MOST_SHOWN = 10


@dataclass(frozen=True)
class Review:
    """What the answers say, and the folder of the dataset that holds it.

    raters: the files and the names that were typed in them, in the order of `selection.raters`; they are stored
    nowhere. replaced: of how many people the answers were that were there before.
    """

    directory: Path
    folder: Path
    selection: Selection
    raters: tuple[RaterAnswers, ...]
    replaced: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Who answered several pages, and what of it counts."""
        return tuple(
            f"{', '.join(str(path) for path in (rater.path, *rater.others))} are of one person, {one.rater}"
            + (f", who answered {rater.again} images again: the later file's answers count" if rater.again else "")
            for one, rater in zip(self.selection.raters, self.raters, strict=True)
            if rater.others
        )

    def to_json(self) -> dict[str, Any]:
        """The stored numbers, with the files and names that raters stand for."""
        document = self.selection.to_json()
        named = zip(document["raters"], self.raters, strict=True)
        document["raters"] = [
            {**one, "file": str(rater.path), "more_files": [str(path) for path in rater.others], "name": rater.name}
            for one, rater in named
        ]
        return {"directory": str(self.directory), "folder": str(self.folder), **document}


def review_answers(directory: str | Path, answers: Sequence[str | Path]) -> Review:
    """Count the answers of several people and store them in the dataset: `review/`, and on its card.

    A file is what one person answered to one page; who answered several is one person all the same (`Review.notes`).
    UserError for what is no finished dataset, and for files that are not answers to pages of this very dataset or are
    twice one person's to one page, with every problem; RunFailure where the dataset is damaged.
    """
    directory = named_path(directory)
    dataset = _ready(directory)
    asked = asked_of(dataset)
    content = asked.content
    raters = read_answers(answers, asked)
    changed = changed_data(directory, dataset.receipts)
    if changed:
        raise RunFailure(
            [f"{directory}: {line}" for line in changed[:_MOST_SHOWN]],
            f"`counterfoil verify {directory}` names all that is damaged, and how each is repaired.",
        )
    selection = selection_of(raters, asked)
    before, _ = Selection.of_dataset(directory, content)
    table = selection_csv(selection, asked).encode()
    close_again(directory, REVIEWED.files(selection.to_json(), {TABLE: table}), content, REVIEWED)
    replaced = len(before.raters) if before else 0
    return Review(directory, directory / REVIEWED.name, selection, tuple(raters), replaced)


def asked_of(dataset: SoundDataset) -> Asked:
    """What pages of a dataset can ask, which every answer is compared with."""
    content = content_of_receipts(dataset.receipts)
    images = accepted_images(dataset.directory, dataset.plan, dataset.receipts)
    classes = dataset.recipe.classes
    return Asked(
        content,
        known_ids(content, images, classes),
        tuple(cls.id for cls in classes),
        tuple(shift.name for shift in dataset.recipe.all_shifts()),
    )


def _ready(directory: Path) -> SoundDataset:
    """A finished dataset; one that a killed run left open is closed."""
    dataset = read_dataset(directory, "receipts").sound()
    if not (directory / MANIFEST).is_file() and len(dataset.receipts) == dataset.plan.n_shards:
        close_again(directory)
    else:
        dataset.refuse_unfinished()
    return dataset

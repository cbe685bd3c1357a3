"""Describe a task: what images have, the columns that hold it, what recipes may not combine with
it, and its words.

Other code reads the attributes and calls the methods of a task, so a new task does not change it.
`reader`, `row_fault` and `measured_by` name what higher layers have for the task, as `package.module:name`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.recipe.keep.rule import FIRST_ROWS, Column
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, as_mapping, as_sequence
from counterfoil.recipe.section import Section

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe
    from counterfoil.recipe.schema_inputs import Source

# Images that share a unit (frames of a video, scans of a patient) are no independent data. Rows
# hold a number instead of the input dataset's own text, which may name a patient.
UNIT = "unit"
# The class of images that classes do not divide. Its id and label are in every key, seed and table
# of such datasets.
EVERY_IMAGE: Mapping[str, Any] = {"id": "images", "name": "image", "source_label": 0}


class SourceTask:
    """A task. An instance of this class itself is the task of images with a class each.

    name: the task's name in `source.task`, and the key of its section. section: its keys in a
    recipe, `source.NAME`. by_class: whether classes divide the images. Otherwise each image is
    taken once, and its row stores what the image shows. placed: whether that lies on pixels.
    labelled: whether rows of the input dataset need labels. folders: whether the names of classes
    may be those of folders. reader: a function from rows and source to a `RowTruth`
    (`data/truth.py`). row_fault: a function from the source, a stored row and the size of its image
    to what is wrong with what the row stores of the task, or None. measured_by: a `Task`
    (`evaluation/task.py`). table: the file with the rows that people see first. nouns: what `names`
    are, one and several. measures: a phrase for what results have. models: a kind of models of the
    task, as their names begin. hub: the Hub's names of the task, and of the task's form.
    """

    name = "classes"
    section: type[Section] | None = None
    by_class = True
    placed = False
    labelled = True
    folders = True
    reader: str | None = None
    row_fault: str | None = None
    measured_by = "counterfoil.evaluation.tasks.classes.task:ClassesTask"
    table = "robustness.csv"
    nouns: tuple[str, str] = ("class", "classes")
    measures = "Accuracies and drops of classifiers"
    models = "local-dir"
    hub: tuple[str, list[str] | None] = (
        "image-classification",
        ["multi-class-image-classification"],
    )

    def fits(self, source: Mapping[str, Any]) -> bool:
        """Return whether the keys of a source of any form say this task. The last task that fits is
        the source's, or classes if none fits."""
        return self.section is not None and source.get(self.name) is not None

    def keys(self, source: Source) -> Any:
        """Return the task's section of a recipe."""
        return getattr(source, self.name)

    def names(self, source: Source) -> Sequence[str]:
        """Return the names of what images show, in the order of the numbers that rows hold."""
        return [entry.name for entry in source.classes or ()]

    @property
    def unit_column(self) -> Column:
        """Return the column of units, which in the first version only whole images have."""
        meaning = (
            "Number of the unit that images share in the input dataset (`source.unit_column`)."
        )
        return Column("int64", meaning, since=2 if self.by_class else FIRST_ROWS)

    def columns(self, source: Source) -> dict[str, Column]:
        """Return the columns that say what an image shows, beside its class."""
        return {}

    def planned(self, source: Source) -> dict[str, Any]:
        """Return what the plan hash covers of the task: of a section, the keys that are not at
        their default."""
        if self.section is None:
            return {}
        return {self.name: self.keys(source).model_dump(mode="json", exclude_defaults=True)}

    def notes(self, corruptions: Sequence[str | None]) -> tuple[str, ...]:
        """Return notes on what images show under these corruptions."""
        return ()

    def stays(self, recipe: Recipe) -> str:
        """Return a sentence for cards: how a shift moves what images show. Empty without places."""
        return ""

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        """Yield problems of a recipe of any form with this task."""
        for key in ("categories", "category_ids", "boxes"):
            if parts.source.get(key) not in (None, (), [], "coco"):
                yield (
                    ("source", key),
                    "found without source.objects, the column of boxes, expected null",
                )


class WholeImages(SourceTask):
    """A task of images that classes do not divide, such as a package's. That has a `section`, and is
    in a module that imports nothing of Counterfoil but `counterfoil.plugins`: recipes import it.

    undivided, unmade, unmined, unscreened: why there are no classes, why other kinds than corrupt
    make no images, and why nothing is mined or judged by a class. noun: what a model is called.
    means: measures of all shifts together, with their heads in tables. reading: what the card says
    of the measure that leads and of its drops, with `{names}` for the number of `names`. guesses:
    what a model near chance does.
    """

    by_class = False
    labelled = False
    folders = False
    undivided = "images of this task have no classes, expected null"
    unmade = "whose images have other truth than their rows, expected corrupt"
    unmined = "mining looks for failures of classifiers of one class an image, expected null"
    unscreened = "an image without a class cannot be screened by one, expected null"
    noun = "model"
    table = "shifts.csv"
    means: ClassVar[Mapping[str, str]] = {}
    reading: str
    guesses = "is near chance on the base, so its drops mean little."

    def names(self, source: Source) -> Sequence[str]:
        return ()

    def edit_problem(self, parts: RecipeParts) -> str | None:
        """Return why edits of rows do not have the truth of their rows, or None."""
        return self.unmade

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if self.section is not None:
            yield from super().problems(parts)
        classes = parts.source.get("classes")
        if classes is not None and not is_every_image(classes):
            yield ("source", "classes"), self.undivided
        if not parts.kind.corrupts and not parts.kind.edits:
            yield ("generator", "kind"), f"found '{parts.kind_name}', {self.unmade}"
            return
        if parts.kind.edits:
            refused = self.edit_problem(parts)
            if refused is not None:
                yield ("generator", "kind"), f"found 'edit', {refused}"
                return
        if parts.recipe.get("mine") is not None:
            yield ("mine",), self.unmined
        for key in ("model", "judge"):
            if parts.screen.get(key) is not None:
                yield ("screen", key), self.unscreened


class PlacedTruth(WholeImages):
    """A task whose truth lies on pixels, so that no change may move them. Its words:

    mark, marks: what lies on pixels, one and several. fit: what marks do while all stays in place.
    marked: what stays where it is. measured: what cards say is measured. holds: what images have,
    before a number of `nouns`. given, truth: what the input dataset gives, in full and short.
    numbers: what are positions in the list of `nouns`. shows, glimpse: what images show, several
    and one.
    """

    placed = True
    mark: str
    marks: str
    fit: str
    marked: str
    measured: str
    holds: str
    given: str
    truth: str
    numbers: str
    shows: str
    glimpse: str

    def stays(self, recipe: Recipe) -> str:
        return f"A shift leaves every {self.marked} where it is."

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if parts.source.get("conditions") is not None:
            message = f"images with {self.name} have no conditions, expected null"
            yield ("source", "conditions"), message
        yield from super().problems(parts)
        if not parts.kind.corrupts:  # edits are squares already
            return
        if parts.generator.get("saved_size") is not None:
            message = (
                f"images would become squares and {self.marks} would not fit, expected null:"
                " generator.size scales both"
            )
            yield ("generator", "saved_size"), message
        for path, spec in parts.of_shifts:
            name = spec.get("corruption")
            if isinstance(name, str) and name in CORRUPTIONS and CORRUPTIONS[name].moves_pixels:
                message = (
                    f"{name} moves what is in the image, so that {self.marks} no longer {self.fit};"
                    " expected a change that leaves every pixel in place, such as fog"
                )
                yield (*path, "corruption"), message


def is_every_image(classes: Any) -> bool:
    """Return whether a list of classes, of any form, holds only the class of every image."""
    return [
        {key: as_mapping(entry).get(key) for key in EVERY_IMAGE} for entry in as_sequence(classes)
    ] == [EVERY_IMAGE]

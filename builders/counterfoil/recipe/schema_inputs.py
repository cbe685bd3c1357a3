"""Sections of a recipe: the input dataset with its classes or conditions, and the class tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
    model_validator,
)

from counterfoil.errors import quoted
from counterfoil.recipe.names import (
    ELSEWHERE,
    LAB,
    LONGEST_CLASS_NAME,
    REPOSITORY,
    class_id_problem,
    nameless_problem,
)
from counterfoil.recipe.prompts import template_problem
from counterfoil.recipe.section import LARGEST_SIDE, NonEmpty, Section, field_check, written_keys
from counterfoil.recipe.tasks import TASKS, derive_task
from counterfoil.recipe.tasks.objects import categories_problem
from counterfoil.recipe.tasks.task import EVERY_IMAGE

Policy: TypeAlias = Literal["refuse", "ignore", "absent"]


class Conditions(Section):
    """Conditions: a row may have several. In `classes`, source label 0 has the first, 1 lacks it,
    and so on.

    Without classes, images keep all their conditions, for classifiers that score each by itself.
    """

    # As the findings of ChestX-ray14. Each is two classes of the recipe (Jain et al. 2023, Appendix
    # C.3).

    labels: tuple[str, ...] = ()
    """Labels in `label_column`, which then holds lists of labels, or text that separates them with
    `|`."""
    columns: tuple[str, ...] = ()
    """Columns of 0 and 1, one per condition. Do not give `labels` as well."""
    others: tuple[str, ...] = ()
    """Labels of `label_column` that are not conditions (`No Finding`). Any other label is an
    error."""
    unknown: Policy = "refuse"
    """What an unknown label is, a blank cell or -1 (CheXpert's uncertain): an error, `absent`, or
    left out (`ignore`), so that each label is measured on the images that know it."""
    blank: Policy | None = None
    """The same for blank cells alone, which some datasets write for absent. null: as `unknown`."""

    @property
    def of_blank(self) -> Policy:
        return self.blank or self.unknown

    @property
    def may_be_unknown(self) -> bool:
        """Return whether rows may lack a value of a condition."""
        return "ignore" in (self.unknown, self.blank)

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out later keys at their default, so that hashes and texts of older datasets are
        unchanged."""
        later = ("unknown", "blank")
        unsaid = set(later) - set(written_keys(self, later))
        return {name: value for name, value in dump(self).items() if name not in unsaid}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the conditions in order, by their names in the input dataset."""
        return self.labels or self.columns

    def problem(self) -> str | None:
        if bool(self.labels) == bool(self.columns):
            found = "labels and columns" if self.labels else "neither labels nor columns"
            return f"found {found}, expected one of them (null drops an inherited one)"
        if self.columns and self.others:
            return (
                "found others with columns, expected it with labels only (null drops an"
                " inherited one)"
            )
        for name, times in Counter((*self.names, *self.others)).items():
            if times > 1:
                return f"found '{name}' again, expected each condition and other label once"
            if name != name.strip() or not name or "|" in name:
                return f"found '{name}', expected a name without `|`, and without spaces around it"
        return None


# The neutral photograph prompts of textual inversion (Gal et al. 2022, appendix), with a class in
# the gap.
TEMPLATES = (
    "a photo of a {class}",
    "a rendering of a {class}",
    "a cropped photo of the {class}",
    "the photo of a {class}",
    "a photo of a clean {class}",
    "a photo of a dirty {class}",
    "a dark photo of the {class}",
    "a photo of my {class}",
    "a photo of the cool {class}",
    "a close-up photo of a {class}",
    "a bright photo of the {class}",
    "a cropped photo of a {class}",
    "a photo of the {class}",
    "a good photo of the {class}",
    "a photo of one {class}",
    "a close-up photo of the {class}",
    "a rendition of the {class}",
    "a photo of the clean {class}",
    "a rendition of a {class}",
    "a photo of a nice {class}",
    "a good photo of a {class}",
    "a photo of the nice {class}",
    "a photo of the small {class}",
    "a photo of the weird {class}",
    "a photo of the large {class}",
    "a photo of a cool {class}",
    "a photo of a small {class}",
)


def _index_problem(indices: tuple[int, ...]) -> str | None:
    for index in indices:
        if not 0 <= index <= 999:
            return f"found {index}, expected ImageNet-1k indices from 0 to 999"
    return None


class ClassEntry(Section):
    """A class of the dataset; its label is its position in the list."""

    written_as = (
        "a class: a name, or a mapping with name and, if the input dataset has no label"
        " names, source_label"
    )

    id: str
    """Unique slug: a WordNet id, or the zero-padded source label in quotes. If you leave it out, it
    is made from the letters and digits of the name."""
    name: str = Field(min_length=1, max_length=LONGEST_CLASS_NAME)
    """The name that prompts and captions use; names may repeat."""
    source_label: int | None = Field(default=None, ge=0)
    """The label of this class in the input dataset. If you leave it out, the label of the class
    with this name there."""
    imagenet: tuple[int, ...] = ()
    """ImageNet-1k indices that count as this class."""
    parent: str | None = Field(default=None, min_length=1, max_length=LONGEST_CLASS_NAME)
    """The kind of thing that the class is (`spaniel`): `{parent}` in prompts."""
    kinds: tuple[str, ...] = Field(default=(), max_length=100)
    """Ids of the kinds above the class, that of its parent first. The failure rules of parents
    compare them where they are given, and the words of `parent` where not."""
    category: str | None = Field(default=None, min_length=1, max_length=LONGEST_CLASS_NAME)
    """A wider kind (`canine`) of a few for many classes: `{category}`."""

    _slug = field_check("id", by=class_id_problem)

    _indices = field_check("imagenet", by=_index_problem)


_OF_TASKS: dict[str, Any] = {}
for _name, _task in TASKS.items():
    if _task.section is not None:
        _field = Field(default=None, description=_task.section.__doc__)
        _OF_TASKS[_name] = (_task.section | None, _field)
# Keys of a source that were added later, and that older datasets lack.
_LATER_KEYS = ("exif", "objects", "categories", "category_ids", "boxes", *_OF_TASKS)
if TYPE_CHECKING:
    TaskName: TypeAlias = str
    SectionsOfTasks: TypeAlias = Section
else:
    TaskName = Literal[tuple(TASKS)]
    SectionsOfTasks = create_model("SectionsOfTasks", __base__=Section, **_OF_TASKS)


class Source(SectionsOfTasks):
    """The input dataset and its classes."""

    task: TaskName | None = None
    """What an image has: one of the `classes`, `objects` with boxes, any number of `labels`
    (`conditions` without classes), or `masks`. null: what the other keys say; a task that disagrees
    with them is an error."""
    dataset: NonEmpty
    """`lab:wardrobe`, a Hub id, or a folder (`./…`, `/…`)."""
    config: str | None = None
    """Config of the input dataset."""
    revision: str | None = None
    """Branch, tag or commit on the Hub; the lock pins it."""
    train_split: str = "train"
    """Split that tokens are learned from."""
    validation_split: str = "validation"
    """Split that percentile thresholds come from."""
    image_column: str = "image"
    """Column that holds the images."""
    label_column: str = "label"
    """Column that holds the integer labels."""
    unit_column: NonEmpty | None = None
    """Column that names what rows share (a garment, a patient, a photo); null: rows are
    independent."""
    exif: Literal["apply", "ignore"] = "ignore"
    """Whether a photograph is turned as its camera noted (EXIF). `ignore` reads the pixels as they
    are stored, as torchvision and timm do. With `objects`, boxes are of the photographs that are so
    read, and a recipe says which if an EXIF tag turns one."""
    conditions: Conditions | None = None
    """Conditions, of which a row may have several or none. Each condition has two classes; without
    classes, generator.kind corrupt takes every image once with all its conditions. null: a row has
    one label."""
    classes: tuple[ClassEntry, ...] | None = Field(default=None, min_length=1)
    """The classes in label order, each a name or a mapping, or the path of a YAML file with that
    list; null: every class of the input dataset, with its names and in its order."""

    objects: NonEmpty | None = None
    """For detectors: the column with the objects of each image, their boxes and categories. Folders
    in the form of COCO, YOLO or Pascal VOC have it as `objects`. null: images have classes."""
    categories: tuple[str, ...] = ()
    """With `objects`: the names of categories, in the order of their numbers in the dataset.
    Objects of other categories are left out."""
    category_ids: tuple[int, ...] = ()
    """With `categories`: the number of each in the dataset's own files, where these are not 1, 2
    and so on. Predictions may use these numbers."""
    boxes: Literal["coco", "yolo", "pascal"] = "coco"
    """How a table writes a box: `coco` is [x, y, width, height] in pixels, `pascal` two corners in
    pixels, `yolo` the centre and the size as shares of the image. Folders of COCO, YOLO or Pascal
    VOC files say it."""

    _names_of_categories = field_check("categories", by=categories_problem)
    _has_a_name = field_check("dataset", by=nameless_problem)

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a later key at its default, so that the text of older datasets is unchanged.

        With boxes, `exif` says whether they are of turned photographs, so it is kept if the recipe
        says it. Other keys say the task.
        """
        unsaid = {"task", *_LATER_KEYS} - set(written_keys(self, _LATER_KEYS))
        if self.objects is not None and "exif" in self.model_fields_set:
            unsaid.discard("exif")
        return {name: value for name, value in dump(self).items() if name not in unsaid}

    @model_validator(mode="before")
    @classmethod
    def _says_its_task(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        task = derive_task(values)
        stated = values.get("task")
        if stated in [*TASKS] and stated != task.name:
            raise ValueError(
                f"found the task {stated}, expected {task.name}, which the other keys say:"
                " `objects` has boxes, `masks` has masks, and"
                " `conditions` without `classes` are labels (null drops an inherited key)"
            )
        values = {**values, "task": stated or task.name}
        if not task.by_class and values.get("classes") is None:
            values["classes"] = (dict(EVERY_IMAGE),)
        return values

    @property
    def numbering_splits(self) -> tuple[str, ...]:
        """The splits by which labels of text are numbered."""
        return self.train_split, self.validation_split

    def problem(self) -> str | None:
        if self.conditions is None or self.task != "classes":
            return None
        labels = [entry.source_label for entry in self.classes or ()]
        names = self.conditions.names
        most = 2 * len(names)
        if labels == list(range(most)):
            return None
        written = ["none" if label is None else str(label) for label in labels[:8]]
        shown = ", ".join(written) or "none"
        if len(labels) > 8:
            shown += " …"
        return (
            f"the classes have the source labels {shown}; expected two classes a condition, with"
            f" source labels from 0 to {most - 1} in order: 0 has '{names[0]}', 1 does not, and so"
            " on"
        )


def _templates_problem(templates: tuple[str, ...]) -> str | None:
    problems = (template_problem(template, with_class=True) for template in templates)
    return next(filter(None, problems), None)


class LearnSettings(Section):
    """How class tokens are learned by textual inversion. Defaults: the released code of Vendrow
    2023."""

    steps: int = Field(default=3000, ge=1)
    """Optimisation steps per token."""
    learning_rate: float = Field(default=5e-4, gt=0, le=100)
    """Constant learning rate of AdamW."""
    batch_size: int = Field(default=1, ge=1)
    """Images of a class per step."""
    weight_decay: float = Field(default=1e-2, ge=0)
    """AdamW weight decay."""
    pin_norm: bool = True
    """Keep each vector at the norm it started with."""
    vectors: int = Field(default=1, ge=1, le=32)
    """Vectors per token. Each takes one place in the prompt."""
    initial_word: NonEmpty | None = None
    """Word that every token starts from (`pet`), as the mean of its sub-tokens; null: the class's
    name."""
    templates: tuple[str, ...] = Field(default=TEMPLATES, min_length=1)
    """Prompts with `{class}` that training images are paired with."""
    flip: float = Field(default=0.5, ge=0, le=1)
    """Share of training images that are mirrored."""
    size: int | None = Field(default=None, ge=8, le=LARGEST_SIDE, multiple_of=8)
    """Side of training images in pixels; null: the rendered size."""
    min_images: int = Field(default=4, ge=1)
    """Minimum number of training images per class. A class with fewer is an error."""
    classes_in_flight: int = Field(default=8, ge=1, le=1024)
    """Classes learned together in one batch; limited by memory."""
    seed: int = Field(default=0, ge=0, lt=2**53)
    """Seed of image order, noise, times, templates and flips."""

    _templates = field_check("templates", by=_templates_problem)


def _tokens_problem(path: str) -> str | None:
    if path.startswith(("/", "./", "../", LAB, ELSEWHERE)) or REPOSITORY.fullmatch(path):
        return None
    return f"found {quoted(path)}, expected a folder (./{path[:40]}) or a Hub id (user/name)"


class Tokens(Section):
    """Class tokens that replace class names in prompts."""

    path: str | None = None
    """Folder (`./tokens`), `lab:tokens` or Hub id (`user/name`)."""
    revision: str | None = None
    """Branch, tag or commit on the Hub; the lock pins it."""
    learn: LearnSettings | None = None
    """Learn the tokens from the input dataset."""

    _folder_or_repository = field_check("path", by=_tokens_problem)

    def problem(self) -> str | None:
        if (self.path is None) == (self.learn is None):
            found = "neither path nor learn" if self.path is None else "path and learn"
            return f"found {found}, expected one of them (null drops an inherited one)"
        if self.learn is not None and self.revision is not None:
            return "found revision with learn, expected it only with path"
        return None

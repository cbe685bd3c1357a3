"""Declare what each command prints with `--json`, for `recipes/output.schema.json`
(`write_schema.py`).

`evaluate`, `mine` and `mend` print the documents that they write, with a few more keys; `show`
prints a recipe. Those documents have schemas of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from counterfoil.building.regenerate_dataset import RowDifferences
from counterfoil.comparing.compare_files import AnswerComparison
from counterfoil.dataset.label_checks import (
    AllControls,
    ControlsPassed,
    ReviewTask,
    Selected,
    TaskResult,
)
from counterfoil.dataset.verification.problems import Problem, Rerendered
from counterfoil.documents import unwrapped_schema
from counterfoil.generate.screen.doubts import DoubtedClass
from counterfoil.plan.estimate import AskedBudget, ComputedBudget, JudgedQuota, RenderedBudget
from counterfoil.report.labels import CheckedShare
from counterfoil.reviewing.review_dataset import ReviewPage

Counts = Annotated[
    dict[str, dict[str, int]],
    Field(description="Candidates of each shift by reason of rejection; '' is accepted."),
]
Files = Annotated[
    dict[str, Path], Field(description="Names of the written files, and their paths.")
]
Share = Annotated[float, Field(ge=0, le=1)]


@with_config(ConfigDict(extra="forbid"))
class Closed(TypedDict):
    """A document without other keys."""


class Doubts(Closed):
    """Doubts whether the screen knows the classes: a sentence, and the numbers behind it."""

    warning: str
    classes: tuple[DoubtedClass, ...]
    of_classes: int
    near_chance: bool
    accuracy: Share | None
    interval: tuple[Share, Share] | None
    chance: Share | None
    n: int | None
    decides: str


class FewImages(Closed):
    """A class with too few validation images for its percentile."""

    class_id: str
    percentile: float
    n: int
    needs: int


class FinishedDataset(Closed):
    """What is printed of every finished dataset."""

    directory: Path
    candidates: int
    accepted: int
    shards: int
    manifest_sha256: str
    counts: Counts
    open_shifts: Annotated[
        list[str], Field(description="Shifts without a threshold: none of their images is kept.")
    ]
    next: Annotated[str, Field(description="The command to run next.")]
    few_validation_images: list[FewImages]
    screen_doubts: Doubts | None


class Comparison(Closed):
    """A rebuilt dataset beside the manifest of its original."""

    identical: bool
    shard_files: int
    differing: list[str]
    others: list[str]
    left_out: list[str]
    stack: list[str]
    unexplained: list[str]
    rows: RowDifferences | None


class Build(FinishedDataset):
    """`build`, also with `--from` and `--repair`."""

    shards_made: int
    images_made: int
    seconds: float
    preview: NotRequired[Annotated[int, Field(description="The `--limit` of a preview.")]]
    notes: NotRequired[list[str]]
    repaired: NotRequired[bool]
    comparison: NotRequired[Comparison | None]


class BuildPart(Closed):
    """`build --shards`: one part of a dataset."""

    directory: Path
    part: str
    shards: int
    shards_made: int
    images_made: int
    seconds: float
    all_shards: int
    all_done: int
    closed: Annotated[bool, Field(description="Whether the dataset is complete.")]
    notes: NotRequired[list[str]]


class Tokens(Closed):
    """`tokens`."""

    folder: Path
    classes: int
    learned_now: list[str]
    losses: dict[str, float | None]
    manifest_sha256: str


class Recut(FinishedDataset):
    """`calibrate --apply`."""

    images_dropped: int
    changed: list[str]


class ShiftCut(Closed):
    """The threshold of a shift, and what it accepts."""

    shift: str
    caption: str
    open: bool
    percentile: float | None
    threshold: float | None
    candidates: int
    accepted: int
    # The name of this key is a word of Python.
    yield_: Annotated[Share | None, Field(alias="yield")]


class Calibrate(Closed):
    """`calibrate`."""

    directory: Path
    page: Path
    cut: Annotated[str, Field(description="The thresholds as YAML, for `calibrate --apply`.")]
    shifts: list[ShiftCut]
    screen_doubts: Doubts | None


class InitClass(Closed):
    id: str
    name: str
    images: Annotated[
        dict[str, int] | None,
        Field(description="Images of each split; null if they are not known."),
    ]


class InitCopies(Closed):
    train: str
    tested: str
    compared: Annotated[
        dict[str, int], Field(description="Images of each split that were compared.")
    ]
    unreadable: Annotated[
        dict[str, int],
        Field(description="Images of each split that cannot be read: their files are compared."),
    ]
    plain: Annotated[
        dict[str, int],
        Field(
            description="Nearly plain images of each split: exact copies are found, near ones not."
        ),
    ]
    radius: Annotated[
        int,
        Field(
            description="Bits in which hashes of near copies may differ; -1 if none were looked"
            " for. Below 18, so many images look alike that not all were."
        ),
    ]
    exact: Annotated[
        int, Field(description="Tested images with the file or pixels of a training image.")
    ]
    near: Annotated[
        int, Field(description="Other tested images that are near copies of a training image.")
    ]
    other_label: Annotated[
        int, Field(description="Tested images of which a copy has another label.")
    ]
    repeated: Annotated[
        int, Field(description="Tested images that are copies of an earlier tested image.")
    ]


class Init(Closed):
    """`init`."""

    recipe: str
    name: str
    splits: dict[str, int | None]
    train_split: str
    validation_split: str
    image_column: str
    label_column: str | None
    classes: list[InitClass]
    shifts: list[str]
    generator: str
    clip: str
    models: str
    notes: list[str]
    copies: list[InitCopies]
    next: list[str]


class InitDetector(Closed):
    """`init --detector` without a source."""

    config: str
    model: str
    notes: list[str]


class BundledRecipe(Closed):
    name: str
    description: str | None


class CheckedShift(Closed):
    shift: str
    group: str
    kind: str | None
    cells: int
    samples: int
    prompt: str | None
    embedding: bool
    caption: str | None
    threshold: dict[str, Any] | None
    object_threshold: dict[str, Any]


class Hashes(Closed):
    plan: str
    screen: str


class Lack(Closed):
    key: str
    weight: str
    text: str


class Check(Closed):
    """`check`: the plan, and what it will cost."""

    name: str
    hashes: Hashes
    cells: int
    samples: int
    exact: Annotated[
        bool, Field(description="Whether a build has so many samples. False: it may have fewer.")
    ]
    shards: int
    groups: list[str]
    files: int
    bytes: int
    seconds: float | None
    start_up_seconds: float | None
    total_seconds: float | None
    images_per_second: float | None
    assumptions: list[str]
    shifts: list[CheckedShift]
    mine: NotRequired[RenderedBudget]
    judged: NotRequired[list[JudgedQuota]]
    asked: NotRequired[list[AskedBudget]]
    computed: NotRequired[ComputedBudget]
    buildable: bool
    lacks: Annotated[
        list[Lack], Field(description="What is not on this machine, and what is fetched first.")
    ]


class Published(Closed):
    """What `publish` prints of a dataset and of a mended head."""

    repo: str
    url: str
    branch: str
    commit: str
    commits: int
    private: bool | None
    tag: str | None
    files: int
    added: int
    replaced: int
    deleted: int
    kept: list[str]
    bytes: int


class PublishedDataset(Published):
    """`publish DIR`."""

    pull_request: int | None
    configs_loaded: int


class PublishedHead(Published):
    """`publish HEAD`."""

    license: str
    base_model: list[str]
    datasets: list[str]


class Verify(Closed):
    """`verify`."""

    whole: bool
    source: str
    directory: Path
    problems: tuple[Problem, ...]
    notes: list[str]
    files: int
    bytes: int
    shards: int
    candidates: int
    images: int
    manifest_sha256: str | None
    rerendered: tuple[Rerendered, ...]


class Rater(Closed):
    """One person, whose answers are in one or more files."""

    rater: str
    grids: int
    images: int
    controls: ControlsPassed
    failed_controls: bool
    file: str
    more_files: list[str]
    name: str | None


class ShiftAnswers(Closed):
    """The images of a shift that people selected, asked about the class and about the shift."""

    name: str
    class_: Annotated[TaskResult | None, Field(alias="class")]
    shift: TaskResult | None


class ScreenRow(Closed):
    """The errors of a keep rule alone, or of all rules together, by people's answers."""

    rule: Annotated[str, Field(description="The rule's name; `all`: all rules together.")]
    shift: Annotated[
        str, Field(description="The shift's name; `all`: all shifts that people were asked about.")
    ]
    tasks: Annotated[
        list[ReviewTask], Field(description="What an image must show to count as right.")
    ]
    kept: int
    kept_answered: int
    false_accepts: CheckedShare | None
    dropped: int
    dropped_answered: int
    false_rejects: CheckedShare | None


class ReviewAnswers(Closed):
    """`review --answers`."""

    directory: str
    folder: str
    content: str
    confidence: Share
    raters: list[Rater]
    controls: AllControls
    shifts: list[ShiftAnswers]
    images: Annotated[
        dict[str, dict[str, Selected]], Field(description="Task, then key of the image.")
    ]
    screen: Annotated[
        list[ScreenRow], Field(description="Empty without answers to a page of `--screen`.")
    ]


class Open(Closed):
    """`open`."""

    address: str


class GateLine(Closed):
    """A line of a gate; shares are fractions."""

    line: str
    model: str
    group: str
    class_: Annotated[str | None, Field(alias="class")]
    advisory: bool
    verdict: str
    limit: float
    value: float | None
    low: float | None
    high: float | None
    classes: int | None
    classes_planned: int | None
    images_per_class: float | None
    images_per_class_needed: float | None
    reason: str | None


class Gate(Closed):
    verdict: str
    models: list[str]
    lines: list[GateLine]


class Evaluate(TypedDict):
    """`evaluate` and `demo`. The other keys are those of results.schema.json."""

    headline: str
    source: str
    directory: str | None
    unreadable_images: list[str]
    unreadable_paths: list[str | None]
    notes: list[str]
    files: Files
    gate: NotRequired[Gate]


class Pool(Closed):
    """The rows of a pool that a method chose."""

    pool: str
    split: str | None
    labels: str | None
    rows: int
    without_direction: list[str]
    shared: int
    unreadable: int
    unlabelled: int


class Mine(TypedDict):
    """`mine`. The other keys are those of findings.schema.json."""

    files: Files
    pool: NotRequired[Pool]


class Mend(TypedDict):
    """`mend`. The other keys are those of mend.schema.json."""

    files: Files


# By command, and by what distinguishes its outputs.
OUTPUTS: dict[str, Any] = {
    "build": Build | BuildPart,
    "calibrate": Calibrate | Recut,
    "check": Check,
    "compare": AnswerComparison,
    "evaluate": Evaluate,
    "init": Init | InitDetector,
    "mend": Mend,
    "mine": Mine,
    "open": Open,
    "publish": PublishedDataset | PublishedHead,
    "recipes": list[BundledRecipe],
    "review": ReviewPage | ReviewAnswers,
    "tokens": Tokens,
    "verify": Verify,
}


def without_titles(schema: Any, *, of_properties: bool = False) -> Any:
    """Return a schema without titles, which only repeat the names of properties."""
    if isinstance(schema, list):
        return [without_titles(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_titles(value, of_properties=key in ("properties", "$defs"))
        for key, value in schema.items()
        if of_properties or key != "title"
    }


def output_json_schema() -> dict[str, Any]:
    """Return one JSON Schema with a property for each command; `$defs` has the parts."""
    document = TypedDict("document", OUTPUTS, total=False)  # type: ignore[operator]
    schema = TypeAdapter(document).json_schema(mode="serialization", by_alias=True)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Counterfoil's output with --json",
        "description": "A property describes what the command of its name prints; `show` prints a"
        " recipe.",
    }
    return head | without_titles(unwrapped_schema(schema))

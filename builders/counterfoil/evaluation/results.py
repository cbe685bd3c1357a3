"""What an evaluation returns: plain values, from which the tables, the figures and the report are made.

Every accuracy and drop is a fraction here; the files and the report show percent and percentage points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from counterfoil.evaluation.statistics import Slope
from counterfoil.label_checks import LabelChecks
from counterfoil.notebook import shown_table
from counterfoil.recipe.layering import is_local, without_folders
from counterfoil.report.nested import Distances, MinedShiftResult, ModelComparison, ReferenceResult, Transfer
from counterfoil.report.results import LeftOut
from counterfoil.spoken_counts import counted
from counterfoil.stats import Estimate


@dataclass(frozen=True)
class ModelResult:
    """A model and how it does on the base.

    base: its accuracy averaged over the classes that the base measures, with its bootstrap interval: the one number of
    a model's base that people are shown; base_accuracy is its value. top1: every accepted base image counts once, as in
    timm's results. chance: right outputs over all outputs, averaged over classes. near_chance: whether its
    class-averaged accuracy over all classes with enough images is near that (`evaluation/floor.py`); averages over
    models leave it out. average_drop is its own, over shifts. tied: images whose two best scores are equal; the first
    output of the two counts as the answer. What a kind of classifier does not tell is None, its hash empty.
    """

    name: str
    architecture: str
    outputs: str
    num_classes: int
    img_size: int | None
    crop_pct: float | None
    interpolation: str | None
    param_count: int | None
    sha256: str
    top1: Estimate
    top_k: int
    top_k_accuracy: Estimate
    base_accuracy: float | None
    average_drop: float | None
    base: Estimate | None
    chance: float
    near_chance: bool
    tied: int

    @property
    def short_name(self) -> str:
        """The name without its source; of a folder or file, the last part; of timm's own repositories, timm's name."""
        if is_local(self.name) and not self.name.startswith((".", "/", "~")):
            return Path(without_folders(self.name)).name
        source, _, rest = self.name.partition(":")
        return rest.removeprefix("timm/") if source in ("lab", "hf-hub") else self.name


@dataclass(frozen=True)
class ShiftResult:
    """A shift (or the base): its yield, the classes measured, and what it does to all models together.

    impact and slope are over the models that are not near chance on the base.
    """

    name: str
    kind: str | None
    prompt: str
    group: str
    candidates: int | None
    accepted: int
    unreadable: int
    classes: int
    left_out: tuple[LeftOut, ...]
    images: int
    base_images: int
    impact: Estimate | None
    slope: Slope | None

    @property
    def share_kept(self) -> float | None:
        """The yield: accepted over rendered candidates."""
        return self.accepted / self.candidates if self.candidates else None

    @property
    def readable(self) -> int:
        """The accepted images that could be decoded."""
        return self.accepted - self.unreadable


@dataclass(frozen=True)
class Score:
    """One model under one shift. Class averages are over the shift's measured classes, on both sides.

    drop: base_accuracy - accuracy with its bootstrap interval. top1: all accepted images of the shift,
    each counted once, with the Wilson interval. The pairs columns use only indices accepted on both
    sides; pairs_drop is None where noise is not paired, or no pair is left. metrics: those of `evaluation/metrics/`.
    """

    model: str
    shift: str
    classes: int
    images: int
    base_images: int
    base_accuracy: float | None
    accuracy: float | None
    drop: Estimate | None
    pairs: int
    pairs_drop: Estimate | None
    top1: Estimate | None
    top_k_accuracy: Estimate | None
    metrics: Mapping[str, Estimate | None]

    @property
    def relative_drop(self) -> Estimate | None:
        """Drop over base accuracy: the metric of that name."""
        return self.metrics.get("relative_drop")


@dataclass(frozen=True)
class ClassScore:
    """One class under one shift; the accuracies are one a model, in the order of `Evaluation.models`.

    A class with too few images on either side is not measured: its accuracies are empty, its impact None. One that is
    near chance on the base (class_near_chance) has accuracies and no impact: averages leave it out. near_chance: for
    each model, whether its own accuracy on the class's base images is near its chance.
    """

    shift: str
    class_id: str
    name: str
    base_images: int
    shift_images: int
    base_accuracy: tuple[float, ...]
    accuracy: tuple[float, ...]
    impact: Estimate | None
    near_chance: tuple[bool, ...] = ()
    class_near_chance: bool = False

    @property
    def drops(self) -> tuple[float, ...]:
        """Base accuracy minus accuracy for each model; empty where the class is not measured."""
        return tuple(base - shifted for base, shifted in zip(self.base_accuracy, self.accuracy, strict=True))


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Everything that was measured on one dataset; `files` names what was written.

    `base` is None where no group of the images is one: then scores hold plain accuracies and no drops. `directory` is
    None for images that lie in no built dataset. `findings` are the mined shifts of a dataset that has some, `transfer`
    the judges of one whose keep rules chose what classifiers get wrong. `distances` are those to its source, one for
    each model of features, where they were asked for; so is `comparison`, of a mended model with its original.
    `reference` is the source's validation split, of a built dataset; `label_checks` what is known of its labels.
    `unreadable` are keys, `unreadable_paths` beside them where these images lie below their folder, None for those of
    none; no path is in anything that is stored in a dataset.
    `image_side` is how many pixels the shorter side of the images, or of the source's, usually has.
    """

    dataset: str
    name: str
    directory: Path | None
    content: str
    paired: bool
    min_images_per_class: int
    seed: int
    models: tuple[ModelResult, ...]
    base: ShiftResult | None
    shifts: tuple[ShiftResult, ...]
    scores: tuple[Score, ...]
    class_scores: tuple[ClassScore, ...]
    unreadable: tuple[str, ...]
    files: Mapping[str, Path]
    findings: tuple[MinedShiftResult, ...] = ()
    transfer: tuple[Transfer, ...] = ()
    distances: tuple[Distances, ...] = ()
    comparison: ModelComparison | None = None
    reference: ReferenceResult | None = None
    label_checks: LabelChecks | None = None
    unreadable_paths: tuple[str | None, ...] = ()
    image_side: int | None = None

    def __repr__(self) -> str:
        return f"<Evaluation of {self.name}: {'; '.join(self._told())}>"

    def _repr_html_(self) -> str:
        told = {model.name: model.short_name for model in self.models}
        rows = [
            (
                told.get(one.model, one.model),
                one.shift,
                _percent(one.top1),
                "" if one.drop is None else _percent(one.drop),
            )
            for one in self.scores
        ]
        return shown_table(
            f"{self.name}: {'; '.join(self._told())}", ("model", "group", "accuracy (%)", "drop (points)"), rows
        )

    def _told(self) -> list[str]:
        """The accuracy where it is measured first, and the largest drop of a model that is not near chance."""
        first = self.groups[0].name if self.groups else ""
        measured = [model.base for model in self.models]
        if self.base is None:
            measured = [one.top1 for one in self.scores if one.shift == first]
        shares = [one.value for one in measured if one is not None]
        models = self.models[0].short_name if len(self.models) == 1 else counted(len(self.models), "model")
        ends = dict.fromkeys(f"{100 * share:.1f}" for share in sorted(shares)[:: max(1, len(shares) - 1)])
        found = [f"{models}, {' to '.join(ends)} % right on {first}" if shares else models]
        sound = {one.name for one in self.sound_models}
        drops = [(one.drop.value, one) for one in self.scores if one.drop is not None and one.model in sound]
        if not drops:
            return [*found, "no drop can be given" if self.base is not None else "no base, no drops"]
        value, worst = max(drops, key=lambda pair: pair[0])
        whose = f" ({next(one.short_name for one in self.models if one.name == worst.model)})" * (len(self.models) > 1)
        return [*found, f"largest drop {100 * value:.1f} points in {worst.shift}{whose}"]

    @property
    def groups(self) -> tuple[ShiftResult, ...]:
        """The base, where there is one, and every other group."""
        return (*((self.base,) if self.base else ()), *self.shifts)

    @property
    def sound_models(self) -> tuple[ModelResult, ...]:
        """The models that averages are over: those that are not near chance on the base."""
        return tuple(model for model in self.models if not model.near_chance)

    @property
    def near_chance_classes(self) -> tuple[LeftOut, ...]:
        """The classes that are near chance on the base, and in no average."""
        return tuple(one for one in (self.base.left_out if self.base else ()) if one.why == "near chance")

    def averaged(self, values: Sequence[float]) -> float | None:
        """The mean of one value a model over the sound models; None where there is none."""
        sound = [value for model, value in zip(self.models, values, strict=True) if not model.near_chance]
        return sum(sound) / len(sound) if sound else None

    def to_pandas(self) -> Any:
        """The scores as a pandas DataFrame: a row a model and group, fractions, intervals as `…_low` and `…_high`."""
        import pyarrow as pa

        return pa.Table.from_pylist([_flat(score) for score in self.scores]).to_pandas()

    def failures(self, model: str | None = None) -> Any:
        """The images that a model gets wrong as a pandas DataFrame, a row an image and model, the surest first.

        Of every model, or of one. Columns: model, key, path (below the folder that the image was read from; None where
        there is none), label, class, answered, confidence and shift. They are read from `files["predictions"]`.
        UserError for a model that was not scored, or where that file is gone.
        """
        from counterfoil.evaluation.failures.failures_frame import failures_frame

        return failures_frame(self.files["predictions"], [one.name for one in self.models], model)

    @cached_property
    def _scores_by_name(self) -> dict[tuple[str, str], Score]:
        return {(one.model, one.shift): one for one in self.scores}

    def score(self, model: str, shift: str) -> Score:
        """The score of one model under one shift; KeyError when it was not measured."""
        return self._scores_by_name[model, shift]

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values, with paths as text; the classes' own scores are in `files["classes"]` only.

        `findings`, `transfer`, `distances`, `comparison`, `reference` and `label_checks` are there where there are any.
        """
        document = asdict(replace(self, class_scores=()))
        del document["class_scores"]
        if not self.findings:
            del document["findings"]
        if not self.transfer:
            del document["transfer"]
        if not self.distances:
            del document["distances"]
        for name in ("comparison", "reference", "label_checks"):
            if document[name] is None:
                del document[name]
        document["directory"] = None if self.directory is None else str(self.directory)
        document["files"] = {name: str(path) for name, path in self.files.items()}
        return document


def _percent(estimate: Estimate | None) -> str:
    return "–" if estimate is None else f"{100 * estimate.value:.1f}"


def _flat(score: Score) -> dict[str, Any]:
    """A score's numbers by column; an estimate is three."""
    row: dict[str, Any] = {}
    values: dict[str, Any] = asdict(score)
    metrics = values.pop("metrics")
    for name, value in (values | metrics).items():
        if name in ("drop", "pairs_drop", "top1", "top_k_accuracy", *metrics):
            estimate = value or {"value": None, "low": None, "high": None}
            row |= {name: estimate["value"], f"{name}_low": estimate["low"], f"{name}_high": estimate["high"]}
        else:
            row[name] = value
    return row

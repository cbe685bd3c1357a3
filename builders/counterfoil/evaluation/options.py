"""How an evaluation runs: the options that the command, the function and every task share."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from counterfoil.engines import EngineChoice
from counterfoil.errors import UserError
from counterfoil.models.score_scale import Scale
from counterfoil.prediction.class_map import Outputs
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import REPOSITORY
from counterfoil.recipe.schema_output import MOST_LIMITED

ClassOrder = str | Path | Sequence[str]


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """The options of `evaluate`. Not every task takes every one; a task refuses those that it does not take."""

    transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = None
    """Prepares each PIL image for a callable: one function for all, or a mapping by name. A torch module needs one,
    unless timm made it. None: other callables take float32 [3, height, width] from 0 to 1."""
    version: str | Mapping[str, str] | None = None
    """A text that names what a callable and its transform compute, one for all or a mapping by name. Their predictions
    are cached under it: change it whenever you change the code. None: they are not cached."""
    recipe: Recipe | str | Path | None = None
    """The recipe whose classes the labels of other images are. None: the images' own classes."""
    base: str | None = None
    """The group that the others are compared with, for images that no build made. None: accuracies only."""
    groups: str | None = None
    """The column that holds groups, or "configs", for images that no build made."""
    beside: Mapping[str, str | Path] | None = None
    """Natural test sets to score as further groups: a mapping from names to images."""
    out: Path | None = None
    """Folder for the tables and the report. None: `.counterfoil/evaluation/` inside the dataset, or with a limit
    `.counterfoil/preview/`, which are neither published nor compared, or the user's cache for other images."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` (every GPU) or a list such as `cuda:0,cuda:2`."""
    batch_size: int = 64
    """Images per batch. It does not change the results."""
    min_images_per_class: int | None = None
    """Leave classes with fewer accepted images out of drops. None: the recipe's value."""
    outputs: Outputs | None = None
    """Whether a model with more outputs than classes answers over "all" of them or over those of the "classes" alone.
    Both accuracies are computed; drops follow this one. None: the recipe's, by default "all"."""
    class_order: ClassOrder | Mapping[str, ClassOrder] | None = None
    """Which class each output is, whatever the model says: "position" (output i is label i of the dataset), "timm"
    (class folders as timm sorts them), the names, or a file with a name on each line. A mapping from names of models
    gives each its own. Files of predictions and open_clip need none."""
    scores_are: Scale | Mapping[str, Scale] | None = None
    """What a model's scores are: "probabilities", "percent", "log-probabilities", "logits" or "sigmoids". For all
    models, or a mapping from names of models. None: as their sums show; scores that show nothing order the classes, and
    give no confidence."""
    seed: int = 0
    """Seed of the bootstrap."""
    into_card: bool = False
    """Also store the results in the dataset (`evaluation/`) and show them on its card until its images change. Building
    again keeps them."""
    repo: str | None = None
    """The dataset's `user/name` on the Hub. If it is known, `eval_results/` gets one YAML file per model with
    evaluation-result entries for the model's repository. None: the recipe's `publish.repo`, or the repository that the
    dataset came from."""
    distances: str | Sequence[str] | None = None
    """Models in whose features the dataset is compared with its source (KID, FID), as a whole and shift by shift:
    "clip" (the recipe's own) or a classifier. A source that is not available is skipped, and the result gives the
    reason."""
    against: str | Path | None = None
    """Images to measure distances to instead of the source, named like `dataset`."""
    compare: tuple[str, str] | None = None
    """A mended model and its original. Both are scored even if `models` lacks them; without `models`, only these two.
    They are compared image by image, with intervals and exact tests adjusted for all groups. A model with a
    `mended.json` is never scored on the data that it was mended on."""
    reference: bool | None = None
    """Also score the models on the source's validation split, at most 50 images per class, to compare accuracy on the
    base with it. None: do so if the source is available. True: fetch it from the Hub if necessary. False: skip it."""
    gate: str | Path | Sequence[str] | None = None
    """A file with a YAML list of lines that a model has to meet, or the lines: `accuracy(base) >= 80`,
    `drop(at_night) <= 10`, `relative_drop(fog) <= 10%`, `worse_than(MODEL, any) <= 2`, or any measure of the task, such
    as `calibration_error(base) <= 5`. `gate` of the result has pass, fail or undecided for each line and model, and
    gate.md and gate.xml are written. MODEL is scored too, and not judged, or is the results.json of an earlier
    evaluation of these images."""
    allow_undecided: bool = False
    """Do not count undecided lines of the gate as errors."""
    workers: int | None = None
    """Worker processes per device. None: one per GPU, or on a CPU one per core from 2,000 images on."""
    engine: EngineChoice | None = None
    """Where models run, such as a cluster. None: on this machine. Callables always run in this process."""
    limit: int | None = None
    """Score a preview: at most so many images of each group, shifts on the rows of the base first. Every page says so.
    Classes count from one image on, none is near chance, and rates of mined shifts are left out."""

    def given(self) -> list[str]:
        """Return the names of the options that were set."""
        unset = (None, False, {}, EngineChoice())
        return [
            field.name
            for field in fields(self)
            if (value := getattr(self, field.name)) not in unset and value != field.default
        ]

    def check(self) -> None:
        """Raise UserError for a value that no dataset allows."""
        if self.repo is not None and not REPOSITORY.fullmatch(self.repo):
            raise UserError(f"the dataset's repository is {self.repo!r}: expected user/name")
        if self.batch_size < 1:
            raise UserError(f"batch size {self.batch_size}: expected 1 or more")
        if self.into_card and self.beside:
            raise UserError("into_card stores the results of a dataset's own shifts", "Leave out one of the two.")
        if self.allow_undecided and self.gate is None:
            raise UserError("allow_undecided goes with a gate, and none is given", "Leave it out, or give one.")
        if self.limit is not None and self.limit > MOST_LIMITED:
            raise UserError(f"limit is {self.limit}: expected 1 to {MOST_LIMITED:,}")
        if self.min_images_per_class is not None and self.min_images_per_class < 1:
            raise UserError(f"min_images_per_class is {self.min_images_per_class}: expected 1 or more")

    def refuse_preview(self, built: int | None) -> None:
        """Raise UserError for what a preview does not give: answers to a gate; with a limit, a card and distances.

        built: the images a shift of a dataset that is a preview itself.
        """
        limit = self.limit
        given = {
            "gate": self.gate is not None,
            "results on a card": limit and self.into_card,
            "distances": limit and self.distances,
        }
        named = [name for name, value in given.items() if value]
        if named and (limit is not None or built is not None):
            raise UserError(
                f"this is a preview of {built if limit is None else limit:,} images a shift, which takes no"
                f" {', no '.join(named)}",
                "Leave out --limit to evaluate all images." if built is None else "Build the recipe without --limit.",
            )


def option_texts() -> dict[str, str]:
    """Return the text under each option."""
    [declared] = ast.parse(inspect.getsource(EvaluationOptions)).body
    assert isinstance(declared, ast.ClassDef)
    texts = {}
    for option, text in pairwise(declared.body):
        if isinstance(option, ast.AnnAssign) and isinstance(text, ast.Expr):
            texts[ast.unparse(option.target)] = inspect.cleandoc(ast.literal_eval(text.value))
    return texts

"""How an evaluation runs: the options that the command, the function and every task share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.evaluation.messages import refusal
from counterfoil.options import (
    DATA,
    HUB,
    MACHINES,
    OUTPUT,
    EngineChoice,
    Limited,
    OnDevices,
    Option,
    argument,
    for_models,
    in_python,
    named_values,
    option,
    options,
)

if TYPE_CHECKING:
    from counterfoil.models.score_scale import Scale
    from counterfoil.prediction.class_map import Outputs
    from counterfoil.recipe import Recipe

ClassOrder = str | Path | Sequence[str]
ModelFunction = Callable[[Any], Any]
_COMPARISONS = "Comparisons"
_GATE = "Gate"


def usable_names(option: Option, words: Sequence[str]) -> list[str]:
    """Return the typed names of models. Raise UserError for a name that is only a file of weights,
    before libraries load."""
    from counterfoil.models.names import usable_name

    return [usable_name(word) for word in words]


@options
class EvaluationOptions(OnDevices, Limited):
    """The options of `evaluate`. Not every task takes every one; a task refuses those that it does
    not take."""

    out: Path | None = option(None, None, "--out", "-o")
    """Folder for the tables and the report.

    Default: `.counterfoil/evaluation/` inside the dataset, or with a limit `.counterfoil/preview/`.
    Neither folder is published or compared. For other images: a folder in the user's cache."""
    batch_size: int = option(64, MACHINES, least=1)
    """Images per batch. Does not change results."""
    min_images_per_class: int | None = option(
        None, OUTPUT, "--min-images", least=1, key="evaluate.min_images_per_class"
    )
    outputs: Outputs | None = option(
        None, OUTPUT, typed=Literal["all", "classes"], key="evaluate.outputs"
    )
    class_order: ClassOrder | Mapping[str, ClassOrder] | None = option(
        None, OUTPUT, read=for_models, metavar="[MODEL=]ORDER", example="local-dir:my-model=timm"
    )
    """The class of each output, in place of what a model itself says: `position` (output i is label
    i of the dataset), `timm` (class folders as timm sorts them), or a file with a class on each
    line. Without MODEL it holds for all models; repeat it to set several. Default: by name, or by
    position if all training programs agree on it. Detections with numbers of categories also take
    `from1`, `ids`, `coco80` and `coco91`.

    In Python, give an order, a list of class names, or a mapping from each model's name to its
    order. Files of predictions and open_clip need no order."""
    scores_are: Scale | Mapping[str, Scale] | None = option(
        None,
        OUTPUT,
        read=for_models,
        metavar="[MODEL=]SCALE",
        example="predictions:answers.csv=percent",
    )
    """What a model's scores are: probabilities, percent, log-probabilities, logits or sigmoids.
    Without MODEL it holds for all models; repeat it to set several. Default: inferred from the
    scores.

    In Python, give a scale, or a mapping from each model's name to its scale. Scores that
    fit no scale only rank the classes, and give no confidence."""
    most_calls: int | None = option(None, MACHINES, least=1)
    """Calls of servers that the run may make for chat models, one an image without an answer.
    Default: 10,000. A model that needs more is not asked at all."""
    seed: int = option(0, OUTPUT, least=0)
    """Seed of the bootstrap."""
    into_card: bool = False
    """Also store the results in the dataset (evaluation/) and show them on its card.

    The results stay until the dataset's images change. Another build of the same images keeps
    them."""
    repo: str | None = option(None, HUB, metavar="USER/NAME", key="publish.repo")
    """The repository that evaluation-result entries name as their dataset.

    If it is known, `eval_results/` gets one YAML file per model with evaluation-result entries for
    the model's repository. Default for a dataset from the Hub: its repository there."""
    recipe: Recipe | str | Path | None = option(None, DATA)
    """For images from elsewhere: the recipe whose classes their labels use.

    Default: the images' own classes."""
    groups: str | None = option(None, DATA, metavar="COLUMN")
    """For images from elsewhere: the column that holds each image's group, or `configs`."""
    base: str | None = option(None, DATA, metavar="GROUP")
    """The group that all others are compared with.

    Only for images that Counterfoil did not build. Without a base, such images have accuracies but
    no drops."""
    beside: Mapping[str, str | Path] | None = option(
        None, DATA, read=named_values, metavar="NAME=IMAGES", example="v2=vaishaal/ImageNetV2:test"
    )
    """Also evaluate on other images, such as a natural test set.

    They are scored as further groups: in Python a mapping from names to images."""
    preprocessing: Sequence[str] | None = option(
        None, DATA, metavar="CHANGE...", key="evaluate.preprocessing"
    )
    """Any dataset or folder will do. Without a base, all its images are the base."""
    distances: str | Sequence[str] | None = option(None, _COMPARISONS, metavar="FEATURES")
    """Also measure the distance (KID, FID) between these images and the source's, in the features
    of `clip` (the recipe's own) or of a classifier. Repeatable.

    The dataset is compared as a whole and shift by shift. A source that is not available is
    skipped, and the result gives the reason."""
    against: str | Path | None = option(None, _COMPARISONS, typed=str, metavar="IMAGES")
    """With --distances: measure the distance to these images, not to the source's.

    Name the images as you would name DATASET."""
    compare: tuple[str, str] | None = option(None, _COMPARISONS, metavar="MODEL OTHER")
    """Compare a model with another image by image, such as a mended one with its original. They
    need not be in --models.

    Without `models`, only these two are scored. They are compared with intervals and exact tests
    adjusted for all groups. A model with a `mended.json` is never scored on the data that it was
    mended on."""
    reference: bool | None = option(None, _COMPARISONS, "--reference/--no-reference")
    """Also evaluate on the source's validation images, at most 50 per class, to see whether the
    base is like them. Default: if the source is on this machine; --reference also downloads it."""
    gate: str | Path | Sequence[str] | None = option(None, _GATE, metavar="FILE")
    """A YAML list of lines that the models must meet, such as drop(at_night) <= 10. Exit code 3 if
    a line fails, 4 if one is undecided. Writes gate.md (a comment for a pull request, with pictures
    in gate/) and gate.xml (JUnit) beside the report.

    In Python also the lines themselves: `accuracy(base) >= 80`, `drop(at_night) <= 10`,
    `relative_drop(fog) <= 10%`, `worse_than(MODEL, any) <= 2`, or any measure of the task, such as
    `calibration_error(base) <= 5`. `gate` of the result has pass, fail or undecided for each line
    and model. MODEL is a model, which is scored but not judged, or the results.json of an earlier
    evaluation of these images."""
    allow_undecided: bool = option(False, _GATE)
    """With --gate: exit with 0 if no line fails."""
    workers: int | None = option(None, MACHINES, least=1)
    """Processes. Default: one per GPU. Without a GPU: one, or one per core for 2,000 images or
    more."""
    collect: bool = in_python(False)
    """Has no effect here: an evaluation always sends the models' answers back."""
    transform: Callable[[Any], Any] | Mapping[str, Callable[[Any], Any]] | None = in_python()
    """Prepares each PIL image for a callable: one function for all, or a mapping by name. A torch
    module needs a transform unless timm made the module. None: other callables take images as
    float32 [3, height, width] from 0 to 1."""
    version: str | Mapping[str, str] | None = in_python()
    """The version of a callable and its transform: one text for all, or a mapping by name.
    Predictions are cached under the version: change it whenever you change the code. None:
    predictions are not cached."""

    def given(self) -> list[str]:
        """Return the names of the options that were set."""
        names = []
        for field in fields(EvaluationOptions):
            unset = (None, False, {}, EngineChoice(), field.default)
            if getattr(self, field.name) not in unset:
                names.append(field.name)
        return names

    def check(self) -> None:
        """Raise UserError for a value that no dataset allows."""
        from counterfoil.recipe.names import REPOSITORY
        from counterfoil.recipe.preprocessing import preprocessing_names
        from counterfoil.recipe.schema_output import MOST_LIMITED

        if self.repo is not None and not REPOSITORY.fullmatch(self.repo):
            raise refusal("invalid-option", "repo", self.repo, "user/name")
        for name in ("beside", "preprocessing"):
            if self.into_card and getattr(self, name):
                raise refusal("unfit-option.shifts", "into_card", name)
        preprocessing_names(self.preprocessing or ())
        if self.allow_undecided and self.gate is None:
            raise refusal("unfit-option.undecided", "allow_undecided")
        if self.limit is not None and self.limit > MOST_LIMITED:
            raise refusal("invalid-option.limit", "limit", self.limit, MOST_LIMITED)

    def refuse_preview(self, built: int | None) -> None:
        """Raise UserError for options that a preview does not take: a gate, and with a limit also
        a card and distances.

        built: the number of images per shift if the dataset was built as a preview, else None.
        """
        images = built if self.limit is None else self.limit
        if images is None:
            return
        refused = []
        if self.gate is not None:
            refused.append("gate")
        if self.limit and self.into_card:
            refused.append("results on a card")
        if self.limit and self.distances:
            refused.append("distances")
        if refused:
            name = "unfit-option.preview"
            if built is None:
                name = "unfit-option.limit"
            raise refusal(name, None, ", no ".join(refused), images=images)


@options
class EvaluateArguments(EvaluationOptions):
    """What `evaluate` takes."""

    dataset: str | Path = argument(typed=str, metavar="DATASET")
    """A dataset directory, or user/name[@revision].

    Or any images with labels: a folder (imagefolder, Parquet, WebDataset), a Hub dataset,
    `lab:wardrobe:validation`, or `source:SPLIT` for a split of the recipe's input dataset. Name a
    split after a colon."""
    models: (
        str | Path | Sequence[str | Path] | ModelFunction | Mapping[str, ModelFunction | str] | None
    ) = argument(
        "--models", "-m", default=None, read=usable_names, metavar="NAME...", key="evaluate.models"
    )
    """Several after one flag. A .txt file (or @FILE) lists one name per line; # begins a comment.

    In Python also a callable, or a mapping from names to callables or names: `{"mine": model}`. A
    callable takes a batch and returns scores [b, classes]. `python:` names such a callable, or a
    function without arguments that returns a module and its transform. A file of names may be a
    Path."""
    options: EvaluationOptions | None = in_python()
    """The options in one object. Options given by name replace those of the object. None: the
    defaults."""


@options
class EvaluateCommand(EvaluateArguments):
    """The further options of the command. In Python they are methods of the result, and a
    function."""

    export_failures: Path | None = option(None, OUTPUT, metavar="FOLDER")
    """Also write the images that a model gets wrong to a new folder: by class, with lists of them
    for other programs ({names of exports})."""
    report_to: Sequence[str] = option((), OUTPUT, metavar="TRACKER...")
    """Also send the results to experiment trackers, one run each: {names of trackers}. Their own
    environment says where, and with which key."""
    write_keys: Path | None = option(None, DATA, metavar="FILE")
    """Evaluate nothing: write a CSV of the images (key, path, class_id, label). Another program can
    then predict on them, and `--models predictions:FILE` reads its predictions."""

"""The options of `calibrate`, `calibrate --apply`, `review` and `review --answers`, for commands
and functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from counterfoil.options import DATA, MODELS, Option, argument, in_python, option, options

if TYPE_CHECKING:
    from counterfoil.dataset.label_checks import ReviewTask
    from counterfoil.reviewing.recut_dataset import CutLosses


@options
class _OfDataset:
    directory: str | Path = argument(metavar="DATASET")
    """Directory of a built dataset."""


@options
class CalibrateOptions(_OfDataset):
    """What `calibrate` takes."""

    page: str | Path | None = argument(
        "--out", "-o", default=None, default_words="DATASET/.counterfoil/calibrate.html"
    )
    """The page to write. With --apply: a new directory for the re-cut dataset."""
    shifts: Sequence[str] | None = argument("--shift", default=None, panel=DATA, metavar="NAME")
    """Only this shift. Repeatable; not with --apply.

    Default: every screened shift."""


@options
class RecutOptions(_OfDataset):
    """What `recut` takes."""

    cut: str | Path = argument("--apply", metavar="FILE")
    """Apply the thresholds of this YAML file to the dataset.

    The page of `calibrate` gives such a file."""
    out: str | Path | None = argument("--out", "-o", default=None)
    """The directory of the new dataset. Give either this or `in_place`."""
    in_place: bool = False
    """With --apply: replace the dataset by the re-cut one. Lists what will be lost and asks first.

    In Python nothing asks but `before`."""
    source: str | None = option(None, DATA, metavar="PATH")
    """Folder of the input dataset, if it is one. Needed where --apply sets a new object
    percentile."""
    device: str = option("auto", MODELS)
    """Where CLIP runs, if --apply sets a new object percentile.

    CLIP loads only for an object percentile that was not measured before."""
    before: Callable[[CutLosses], None] | None = in_python()
    """With `in_place`, called before any file changes if something would be lost for good. It
    receives the losses. If it raises, the cut stops."""


def _tasks(
    option: Option,
    task: str,
) -> tuple[str, ...]:
    return ("class", "shift") if task == "both" else (task,)


@options
class ReviewOptions(_OfDataset):
    """What `review` takes."""

    page: str | Path | None = argument(
        "--out",
        "-o",
        default=None,
        metavar="PAGE",
        default_words="DATASET/.counterfoil/review.html",
    )
    """The page to write."""
    images: int | None = option(
        None, least=1, metavar="N", default_words="40, or fewer to keep the page under 12 MB"
    )
    """Images per shift."""
    tasks: Sequence[ReviewTask] = option(
        ("class", "shift"),
        None,
        "--task",
        typed=Literal["class", "shift", "both"],
        read=_tasks,
        default_words="both",
    )
    """Ask whether images show their class, their shift, or both."""
    screen: bool = option(False, DATA)
    """Show rejected images among the kept ones, to measure how often the screen is wrong.

    Half of each shift's images are kept ones and half rejected ones, drawn at random. The page does
    not say which are which. Needs a dataset built with `screen.keep_rejected: true`."""
    shifts: Sequence[str] | None = option(None, DATA, "--shift", metavar="NAME")
    """Only this shift. Repeatable."""
    seed: int = option(0, DATA)
    """Seed for the choice and order of images."""
    source: str | None = option(None, DATA, metavar="PATH")
    """Folder of the input dataset, if it is one."""
    controls: bool = option(True, DATA, "--controls/--no-controls")
    """Mix in real images of the classes from the source's validation split."""


@options
class AnswersOptions(_OfDataset):
    """What `review_answers` takes."""

    answers: Sequence[str | Path] = argument("--answers", metavar="FILE...")
    """Count these answers (one file for each person and page) and store the result in the dataset.
    It replaces an earlier result.

    A person who answered several pages counts as one person (`Review.notes`)."""

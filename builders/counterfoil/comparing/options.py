"""The options of `compare`, for the command and the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from counterfoil.options import argument, named_values, option, options

_OTHERS = "Other columns and rows"


@options
class CompareOptions:
    """The options of `compare`."""

    first: str | Path = argument(metavar="FIRST")
    """A file of one model's answers, such as those of the new model: .csv, .parquet, .json or
    .jsonl, with a row for each image."""
    second: str | Path = argument(metavar="SECOND")
    """The file of the other model's answers. The difference is FIRST less SECOND."""
    key: Sequence[str] = option((), None, metavar="COLUMN...")
    """Column that names the image, or several that do so together. Default: the first of key,
    image_id, image, file_name, filename, path, id and doc_id."""
    score: Sequence[str] = option((), None, metavar="COLUMN...")
    """Column of what an answer is worth: right or wrong, or any number, more being better. Default:
    the first of correct, is_correct, right, score, acc and exact_match, or the only score_….

    A second name is of the second file. Right or wrong is 1 or 0, true or false, yes or no, C or I
    (Inspect; P counts half). Rows without a score are left out, and counted."""
    prediction: str | None = option(None, _OTHERS, metavar="COLUMN")
    """Column of the predicted class. An answer is right if it equals --label; case and _ count only if
    two labels differ in nothing else. Default: without a score, the first of prediction, predicted and
    pred."""
    label: str | None = option(None, _OTHERS, metavar="COLUMN")
    """Column of the true class. Default: the first of label, target and truth."""
    unit: str | None = option(None, None, metavar="COLUMN")
    """Column of what images share, such as a patient or a video: images of one unit are not
    independent. Default: unit, if there is one."""
    epoch: str | None = option(None, _OTHERS, metavar="COLUMN")
    """Column that numbers repeated answers to the same image; their scores are averaged. Default:
    epoch, if there is one."""
    where: Mapping[str, str] | None = option(
        None,
        _OTHERS,
        read=named_values,
        metavar="COLUMN=VALUE",
        example="filter=strict-match",
    )
    """Take only the rows that have this value. Repeatable."""
    half_width: float | None = option(None, None, least=0, metavar="NUMBER")
    """Also say how many images make an interval of ± this number (0.01 is 1 point)."""

"""Answers of a pass that is not over yet, kept in parts, so that a killed run goes on where it stood.

While a pass runs, each of its models has a folder beside its future cache entry, with one file for every
stretch of images. A later run takes the stretches up to the first that is missing or damaged. When the
model is through, the whole is written as one entry and the folder goes.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np

from counterfoil.prediction.predictions import Predictions, load_predictions, save_predictions

# Images between two parts: at most these are scored again after a kill.
PART_ROWS = 1024
_NAME = re.compile(r"(\d{10})-(\d{10})\.parquet")


def parts_folder(entry: Path) -> Path:
    """Where the parts of a cache entry lie."""
    return entry.with_suffix(".parts")


def save_part(entry: Path, key: str, keys: tuple[str, ...], answers: Predictions, start: int, stop: int) -> None:
    """Keep the answers to rows `start` … `stop` - 1 of the dataset."""
    part = answers.rows(start, stop)
    save_predictions(parts_folder(entry) / f"{start:010d}-{stop:010d}.parquet", key, keys[start:stop], part)


def load_parts(entry: Path, key: str, keys: tuple[str, ...], answers: Predictions) -> tuple[Predictions, int]:
    """The answers as far as they are known without a gap: arrays over all rows, and how many rows are done.

    They are filled into `answers`, which is empty.
    """
    done = 0
    names = [_NAME.fullmatch(path.name) for path in parts_folder(entry).glob("*.parquet")]
    stretches = sorted((int(name[1]), -int(name[2])) for name in names if name is not None)
    for start, minus_stop in stretches:
        stop = -minus_stop
        if start != done or stop > len(keys):
            continue
        path = parts_folder(entry) / f"{start:010d}-{stop:010d}.parquet"
        part = load_predictions(path, key, keys[start:stop], answers)
        if part is not None:
            for name, values in part.columns().items():
                answers.columns()[name][start:stop] = values
            done = stop
    return answers, done


def finish_parts(entry: Path, key: str, keys: tuple[str, ...], answers: Predictions) -> None:
    """Write the whole entry, then forget its parts."""
    save_predictions(entry, key, keys, answers)
    shutil.rmtree(parts_folder(entry), ignore_errors=True)


def part_rows(batch_size: int) -> int:
    """Rows between two parts: whole batches, so that a resumed run forms the batches of one never killed."""
    return int(np.ceil(PART_ROWS / batch_size)) * batch_size

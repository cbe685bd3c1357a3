"""`load_dataset` finds what the store wrote, from a folder and from the Hub, and feeds torch's
DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from downstream_cases import FORMATS, GROUPS, LOCATIONS, labels, source, stored

# {config: {split: rows}}, as loaded and as streamed. Tar files give the numbers of JSON text:
# float32, written short.
LOAD = """
import hashlib

import numpy as np
from datasets import Image, get_dataset_config_names, load_dataset

def digest(content):
    return hashlib.sha256(content).hexdigest()

def plain(row):
    if "json" in row:
        assert row.pop("__key__") == row["json"]["key"]
        del row["__url__"]
        row = {**row.pop("json"), "label": row.pop("cls"), **({"image": row.pop("png")} if "png" in row else {})}
    return {name: np.float32(v).tolist() if isinstance(v, (float, list)) else v for name, v in row.items()}

def rows(data):
    pictures = [name for name, feature in data.features.items() if isinstance(feature, Image)]
    encoded = data
    for name in pictures:
        encoded = encoded.cast_column(name, Image(decode=False))
    plain_rows = []
    for row, drawn in zip(map(plain, encoded), map(plain, data), strict=True):
        if pictures:
            row["image"] = digest(row["image"]["bytes"])
            row["pixels"] = digest(np.asarray(drawn["image"].convert("RGB")).tobytes())
        plain_rows.append(row)
    return plain_rows

def table(**options):
    names = get_dataset_config_names(SOURCE)
    loaded = {name: load_dataset(SOURCE, name, **options) for name in names}
    return {name: {split: rows(data) for split, data in splits.items()} for name, splits in loaded.items()}

answer = {"loaded": table(), "streamed": table(streaming=True)}
"""

# [[key, label, pixels], …] of a group by way of torch, map-style and streamed by two workers.
# Channels come first.
TORCH = """
import hashlib
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader

def batches(workers, **options):
    data = load_dataset(SOURCE, GROUP, split="test", **options).with_format("torch").select_columns(COLUMNS)
    return DataLoader(data, batch_size=3, num_workers=workers)

def seen(loader):
    triples = []
    for batch in loader:
        keys, numbers, images = (batch[name] for name in COLUMNS)
        assert isinstance(numbers, torch.Tensor) and images.dtype == torch.uint8 and images.shape[1:] == (3, 64, 64)
        for key, label, image in zip(keys, numbers.tolist(), images, strict=True):
            pixels = image.permute(1, 2, 0).contiguous().numpy().tobytes()
            triples.append([key, label, hashlib.sha256(pixels).hexdigest()])
    return sorted(triples)

answer = [seen(batches(0)), seen(batches(2)), seen(batches(2, streaming=True))]
"""
COLUMNS = {"parquet": ["key", "label", "image"], "webdataset": ["__key__", "cls", "png"]}
READ_BY_TORCH = "in_the_snow"

Answers = dict[tuple[str, str, str], Any]


@pytest.fixture(scope="module")
def answers(ask_here: Callable[..., Any], ask_there: Callable[..., Any]) -> Answers:
    """Return (location, format, reader) → its answer; one process a location."""
    everything: Answers = {}
    for location, ask in zip(LOCATIONS, (ask_here, ask_there), strict=True):
        codes = {}
        for format in FORMATS:
            names = (
                f"SOURCE, GROUP, COLUMNS = {source(location, format)!r}, {READ_BY_TORCH!r},"
                f" {COLUMNS[format]!r}\n"
            )
            codes |= {
                (location, format, "load"): names + LOAD,
                (location, format, "torch"): names + TORCH,
            }
        everything |= dict(zip(codes, ask(list(codes.values())), strict=True))
    return everything


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("location", LOCATIONS)
def test_every_config_and_split_has_the_stored_rows(
    location: str, format: str, answers: Answers, datasets: dict[str, Path]
) -> None:
    directory = datasets[format]
    wanted = {
        "default": {group: stored(directory, group=group) for group in GROUPS},
        "all": {"test": [row for group in GROUPS for row in stored(directory, group=group)]},
        **{group: {"test": stored(directory, group=group)} for group in GROUPS},
        "candidates": {"test": stored(directory, "candidates")},
        "rejected": {"test": stored(directory, "rejected")},
    }
    assert all(rows for splits in wanted.values() for rows in splits.values())
    assert answers[location, format, "load"]["loaded"] == wanted
    assert answers[location, format, "load"]["streamed"] == wanted


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("location", LOCATIONS)
def test_torch_batches_hold_every_image_with_its_label_once(
    location: str, format: str, answers: Answers, datasets: dict[str, Path]
) -> None:
    wanted = labels(datasets[format], READ_BY_TORCH)
    assert len(wanted) > 3, "more than one batch"
    plain, by_workers, streamed = answers[location, format, "torch"]
    assert plain == wanted
    assert by_workers == wanted
    assert streamed == wanted


def test_both_formats_hold_the_same_images_and_labels(datasets: dict[str, Path]) -> None:
    for group in GROUPS:
        assert labels(datasets["parquet"], group) == labels(datasets["webdataset"], group)

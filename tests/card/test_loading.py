"""The finished directory loads as its card says: by config and split, streaming and not, and by other readers."""

from __future__ import annotations

import hashlib
import io
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from card_cases import Built, Offline, all_candidates
from PIL import Image

from counterfoil.store import Candidate
from counterfoil.store.rows import score_columns
from timm_readers import HF_READERS

# {config: {split: rows}}, as loaded and as streamed. An image is told by the hash of its bytes.
LOAD = """
import hashlib

import numpy as np
from datasets import Image, get_dataset_config_names, load_dataset

def plain(row):
    return {name: shown(value) for name, value in row.items()}

def shown(value):
    if isinstance(value, dict) and "bytes" in value:
        return hashlib.sha256(value["bytes"]).hexdigest()
    if isinstance(value, dict):
        return plain(value)
    # Streamed tar files give the numbers of the JSON text, which are float32 written short.
    return float(np.float32(value)) if isinstance(value, float) else value

def rows(data):
    for name, feature in data.features.items():
        if isinstance(feature, Image):
            data = data.cast_column(name, Image(decode=False))
    return [plain(row) for row in data]

def table(**options):
    names = get_dataset_config_names("cranes")
    loaded = {name: load_dataset("cranes", name, **options) for name in names}
    return {name: {split: rows(data) for split, data in splits.items()} for name, splits in loaded.items()}

def class_names(config):
    features = next(iter(load_dataset("cranes", config).values())).features
    return (features.get("label") or features["cls"]).names

answer = {
    "loaded": table(),
    "streamed": table(streaming=True),
    "splits": list(load_dataset("cranes")),
    "names": {config: class_names(config) for config in get_dataset_config_names("cranes")},
}
"""

# Follows the examples of the card.
EXAMPLES = """
assert next(iter(stream))
found = [[row.get("json", row) for row in pair] for pair in pairs]
answer = {
    "pairs": [[(row["shift"], row["pair"]) for row in pair] for pair in found],
    "rows": [len(shifted), len(candidates), len(rejected), len(list(dataset))],
}
"""

TIMM = """
from timm.data import create_dataset

def pixel(image):
    return list(image.convert("RGB").resize((1, 1)).getpixel((0, 0)))

answer = [[(pixel(image), int(label)) for image, label in create_dataset(**call)] for call in CALLS]
"""


class Read(NamedTuple):
    """A dataset and what other tools read of it."""

    built: Built
    tables: dict[str, Any]
    examples: dict[str, Any]
    calls: list[dict[str, str]]
    timm: list[list[tuple[list[int], int]]]


@pytest.fixture(scope="module")
def read(built: Built, offline: Offline) -> Read:
    blocks = re.findall(r"^```python\n(.*?)^```$", built.card.readme, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4, "load, pair, read without datasets, timm"
    calls = timm_calls(built)
    codes = [LOAD, "\n".join([*blocks, EXAMPLES]), f"CALLS = {calls!r}\n{TIMM}"]
    tables, examples, timm = offline(codes, built.directory.parent)
    return Read(built, tables, examples, calls, timm)


def timm_calls(built: Built) -> list[dict[str, str]]:
    """Every way that the card names to read every group with timm."""
    webdataset = built.plan.recipe.output.format == "webdataset"
    keys = {"input_key": "png", "target_key": "cls"} if webdataset else {}
    calls = []
    for group in ("base", "weather", "starry"):
        calls += [{"name": f"{reader}/cranes", "split": group, **keys} for reader in HF_READERS]
        if webdataset:
            listed = re.search(rf'^- `{group}`: `split="(.*)"`$', built.card.readme, re.MULTILINE)
            assert bool(listed) == (group == "starry"), "only a name with 'tar' in it needs its files listed"
            calls.append({"name": "wds/", "root": "cranes", "split": listed[1] if listed else group})
    return calls


def expected(candidates: list[Candidate], what: str, webdataset: bool) -> list[dict]:
    """The rows of a table as `datasets` shows them."""
    rows = []
    for candidate in candidates:
        if what == "data" and not candidate.accepted:
            continue
        if what == "rejected" and (candidate.accepted or candidate.image is None):
            continue
        sample = candidate.sample
        names = ("key", "shift", "class_id", "index", "pair", "prompt", "seed")
        row = {name: getattr(sample, name) for name in names}
        for name in ("object_score", "shift_score", "object_threshold", "shift_threshold"):
            value = score_columns(candidate.verdict)[name]
            row[name] = None if value is None else float(np.float32(value))
        if what != "data":
            row["reason"] = candidate.reason
        image = {} if what == "candidates" else {"image": hashlib.sha256(candidate.image or b"").hexdigest()}
        if webdataset:
            rows.append({"cls": sample.label, "json": row, **({"png": image["image"]} if image else {})})
        else:
            rows.append({**row, "label": sample.label, **image})
    return rows


def test_every_config_and_split_holds_what_was_written(read: Read) -> None:
    plan = read.built.plan
    webdataset = plan.recipe.output.format == "webdataset"
    for table in (read.tables["loaded"], read.tables["streamed"]):
        for row in [row for splits in table.values() for rows in splits.values() for row in rows]:
            if webdataset:
                assert row.pop("__key__") == row["json"]["key"]
                del row["__url__"]
    candidates = all_candidates(plan)
    of_group = {group: [c for c in candidates if c.sample.group == group] for group in plan.groups}
    data = {group: expected(own, "data", webdataset) for group, own in of_group.items()}
    seen = {group: rows for group, rows in data.items() if rows}
    assert list(seen) == ["base", "weather", "starry"], "nothing was accepted nowhere"
    wanted = {
        "default": seen,
        **{group: {"test": rows} for group, rows in seen.items()},
        "candidates": {"test": expected(candidates, "candidates", webdataset)},
        "rejected": {"test": expected(candidates, "rejected", webdataset)},
    }
    assert read.tables["loaded"] == wanted
    assert read.tables["streamed"] == wanted
    assert read.tables["splits"] == list(seen), "the base comes first"
    unique = ["crane (n02012849)", "crane (n03126707)", "coot: <b>a | b</b>"]
    assert read.tables["names"] == dict.fromkeys(wanted, unique)


def test_the_examples_of_the_card_run(read: Read) -> None:
    candidates = all_candidates(read.built.plan)
    accepted = {candidate.sample.key for candidate in candidates if candidate.accepted}
    weather = [c.sample for c in candidates if c.accepted and c.sample.group == "weather"]
    rejected = [c for c in candidates if not c.accepted and c.image is not None]
    paired = [sample for sample in weather if f"base_{sample.pair}" in accepted]
    assert paired
    assert read.examples == {
        "pairs": [[["base", sample.pair], [sample.shift, sample.pair]] for sample in paired],
        "rows": [len(weather), len(candidates), len(rejected), len(weather)],
    }


def test_timm_reads_images_and_labels_of_every_group(read: Read) -> None:
    candidates = all_candidates(read.built.plan)
    for call, rows in zip(read.calls, read.timm, strict=True):
        group = next(g for g in ("base", "weather", "starry") if g in call["split"])
        accepted = [c for c in candidates if c.accepted and c.sample.group == group]
        assert rows == [[_mean_pixel(c.image), c.sample.label] for c in accepted], call


def _mean_pixel(image: bytes | None) -> list[int]:
    pixel = Image.open(io.BytesIO(image or b"")).convert("RGB").resize((1, 1)).getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return [int(level) for level in pixel]

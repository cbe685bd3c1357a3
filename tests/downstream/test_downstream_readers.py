"""webdataset, timm, pandas, polars and DuckDB find the stored images, labels and scores, in a
folder and on the Hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from downstream_cases import FORMATS, GROUPS, LOCATIONS, NAMES, REPOS, labels, source, stored

from loopback_hub import LoopbackHub
from timm_readers import HF_READERS

GROUP = "in_the_snow"
COLUMNS = ("key", "label", "pair", "seed", "prompt", "object_score")

# Key, label and hash of the pixels of each image of a group, by key.
WEBDATASET = """
import hashlib
import webdataset

samples = webdataset.WebDataset(SHARDS, shardshuffle=False).decode("rgb8")
answer = sorted(
    [sample["__key__"], sample["cls"], hashlib.sha256(sample["png"].tobytes()).hexdigest()] for sample in samples
)
"""

# Label and hash of the pixels of each image, in no order, for each way to call timm.
TIMM = """
import hashlib
from timm.data import create_dataset

answer = [
    sorted([int(label), hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()] for image, label in dataset)
    for dataset in (create_dataset(**call) for call in CALLS)
]
"""

# The rows of one group, the number of rows a shift, and the bytes of an image, by each reader of
# Parquet.
PARQUET = """
import glob, hashlib, io
import duckdb, pandas, polars
from huggingface_hub import HfFileSystem

def digest(content):
    return hashlib.sha256(content).hexdigest()

files = HfFileSystem() if ROOT.startswith("hf://") else None
shards = sorted(files.glob(f"{ROOT}/data/{GROUP}/*.parquet") if files else glob.glob(f"{ROOT}/data/{GROUP}/*.parquet"))

by_pandas = pandas.read_parquet(f"{ROOT}/data/{GROUP}")

if files:
    by_polars = polars.concat(polars.read_parquet(io.BytesIO(files.read_bytes(shard))) for shard in shards)
else:
    by_polars = polars.read_parquet(f"{ROOT}/data/{GROUP}/*.parquet")

connection = duckdb.connect()
if files:
    connection.register_filesystem(files)
names = ", ".join(f'"{name}"' for name in COLUMNS)
by_duckdb = connection.sql(f"select {names} from '{ROOT}/data/{GROUP}/*.parquet' order by key").fetchall()
counts = connection.sql(
    f"select shift, count(*) from '{ROOT}/data/*/*.parquet' where object_score >= object_threshold group by shift"
).fetchall()
pictures = connection.sql(f"select image.bytes from '{ROOT}/data/{GROUP}/*.parquet' order by key").fetchall()

answer = {
    "pandas": by_pandas.sort_values("key")[COLUMNS].to_dict("split")["data"],
    "polars": [list(row) for row in by_polars.sort("key").select(COLUMNS).rows()],
    "duckdb": [list(row) for row in by_duckdb],
    "counts": dict(counts),
    "images": {
        "pandas": [digest(image["bytes"]) for image in by_pandas.sort_values("key")["image"]],
        "polars": [digest(image["bytes"]) for image in by_polars.sort("key")["image"]],
        "duckdb": [digest(content) for (content,) in pictures],
    },
}
"""

# Plain addresses of the files of a public dataset need no login.
ADDRESSES = """
import polars
answer = sorted(key for address in SHARDS for key in polars.read_parquet(address)["key"])
"""


def shards(directory: Path, group: str = GROUP) -> list[str]:
    return sorted(
        path.relative_to(directory).as_posix() for path in (directory / "data" / group).iterdir()
    )


def timm_calls(location: str, format: str) -> list[dict[str, str]]:
    keys = {"parquet": ("image", "label"), "webdataset": ("png", "cls")}[format]
    named = {"split": GROUP, "input_key": keys[0], "target_key": keys[1]}
    calls = [{"name": f"{reader}/{source(location, format)}", **named} for reader in HF_READERS]
    if (location, format) == ("directory", "webdataset"):
        calls.append({"name": "wds/", "root": NAMES[format], "split": GROUP})
    return calls


def pictures(directory: Path) -> list[list[Any]]:
    return sorted([label, pixels] for _, label, pixels in labels(directory, GROUP))


@pytest.fixture(scope="module")
def answers(
    ask_here: Callable[..., Any], ask_there: Callable[..., Any], datasets: dict[str, Path]
) -> dict[Any, Any]:
    """Return (location, reader) → its answer; one process a location."""
    everything: dict[Any, Any] = {}
    tars = shards(datasets["webdataset"])
    for location, ask in zip(LOCATIONS, (ask_here, ask_there), strict=True):
        folder = "" if location == "directory" else "hf://datasets/"
        addresses = [f"{folder}{source(location, 'webdataset')}/{path}" for path in tars]
        root = f"{folder}{source(location, 'parquet')}"
        codes: dict[Any, str] = {
            (location, "webdataset"): f"SHARDS = {addresses!r}\n{WEBDATASET}",
            (
                location,
                "tables",
            ): f"ROOT, GROUP, COLUMNS = {root!r}, {GROUP!r}, {list(COLUMNS)!r}\n{PARQUET}",
        }
        for format in FORMATS:
            codes[location, "timm", format] = f"CALLS = {timm_calls(location, format)!r}\n{TIMM}"
        everything |= dict(zip(codes, ask(list(codes.values())), strict=True))
    return everything


@pytest.mark.parametrize("location", LOCATIONS)
def test_webdataset_reads_tar_files(
    location: str, answers: dict[Any, Any], datasets: dict[str, Path]
) -> None:
    assert answers[location, "webdataset"] == labels(datasets["webdataset"], GROUP)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("location", LOCATIONS)
def test_timm_reads_images_and_labels(
    location: str, format: str, answers: dict[Any, Any], datasets: dict[str, Path]
) -> None:
    calls = timm_calls(location, format)
    for call, read in zip(calls, answers[location, "timm", format], strict=True):
        assert read == pictures(datasets[format]), call


@pytest.mark.parametrize("reader", ["pandas", "polars", "duckdb"])
@pytest.mark.parametrize("location", LOCATIONS)
def test_tables_are_read_as_parquet(
    location: str, reader: str, answers: dict[Any, Any], datasets: dict[str, Path]
) -> None:
    rows = sorted(stored(datasets["parquet"], group=GROUP), key=lambda row: row["key"])
    tables = answers[location, "tables"]
    assert tables[reader] == [[row[name] for name in COLUMNS] for row in rows]
    assert tables["images"][reader] == [row["image"] for row in rows]


@pytest.mark.parametrize("location", LOCATIONS)
def test_duckdb_counts_over_all_groups(
    location: str, answers: dict[Any, Any], datasets: dict[str, Path]
) -> None:
    counts = {group: len(stored(datasets["parquet"], group=group)) for group in GROUPS}
    assert answers[location, "tables"]["counts"] == counts


def test_addresses_of_a_public_dataset_need_no_login(
    public: LoopbackHub, ask_stranger: Callable[..., Any], datasets: dict[str, Path]
) -> None:
    def address(format: str, path: str = "") -> str:
        return f"{public.endpoint}/datasets/{REPOS[format]}/resolve/main{path and '/'}{path}"

    tars = [address("webdataset", path) for path in shards(datasets["webdataset"])]
    tables = [address("parquet", path) for path in shards(datasets["parquet"])]
    call = {"name": "wds/", "root": address("webdataset"), "split": GROUP}
    by_webdataset, by_polars, by_timm = ask_stranger(
        [
            f"SHARDS = {tars!r}\n{WEBDATASET}",
            f"SHARDS = {tables!r}\n{ADDRESSES}",
            f"CALLS = {[call]!r}\n{TIMM}",
        ]
    )
    assert by_webdataset == labels(datasets["webdataset"], GROUP)
    assert by_polars == [key for key, _, _ in labels(datasets["parquet"], GROUP)]
    assert by_timm == [pictures(datasets["webdataset"])]

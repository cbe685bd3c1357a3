"""croissant.json is what mlcroissant reads: valid, true of the files, and the same for equal
datasets."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import shutil
import tarfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
from card_cases import Built, build, plan_of
from PIL import Image

from counterfoil.dataset.card.metadata import license_reference
from counterfoil.store.manifest import published_paths
from counterfoil.store.reading import read_rows

# What a dataset cannot know: when, and as which release, it will be published.
UNKNOWN = {"https://schema.org/datePublished", "https://schema.org/version"}


def described(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "croissant.json").read_bytes())


def warned(dataset: mlcroissant.Dataset) -> set[str]:
    """Return the properties that mlcroissant misses; fail on any other warning."""
    missing = set()
    for warning in dataset.metadata.ctx.issues.warnings:
        match = re.search(r'Property "(\S+)" is recommended, but does not exist', warning)
        assert match, warning
        missing.add(match[1])
    return missing


def test_mlcroissant_finds_no_fault(built: Built, log_records: list[logging.LogRecord]) -> None:
    dataset = mlcroissant.Dataset(jsonld=str(built.directory / "croissant.json"))
    assert warned(dataset) == UNKNOWN
    assert not [record for record in log_records if "@context" in record.getMessage()]
    metadata = dataset.metadata
    assert metadata.ctx.is_v1_1()
    configs = ["default", "all", "base", "weather", "starry", "candidates", "rejected"]
    assert [record_set.uuid for record_set in metadata.record_sets] == ["class-names", *configs]
    assert metadata.license == ["https://spdx.org/licenses/CC0-1.0.html"]
    statements = (
        metadata.data_collection, metadata.data_collection_type, metadata.data_biases, metadata.data_limitations,
        metadata.data_use_cases, metadata.data_social_impact, metadata.personal_sensitive_information,
        metadata.data_release_maintenance_plan, metadata.data_annotation_protocol, metadata.annotations_per_item,
        metadata.machine_annotation_tools, metadata.data_preprocessing_protocol,
    )  # fmt: skip
    assert all(statements)
    assert "lab:sd, pinned at sha256 of 1 file, licence mit" in str(metadata.data_collection)
    assert "lab:clip, pinned at 4f2b, licence not stated" in str(metadata.machine_annotation_tools)


def test_the_class_names_are_those_of_the_labels(cranes: Built) -> None:
    dataset = mlcroissant.Dataset(jsonld=str(cranes.directory / "croissant.json"))
    rows = list(dataset.records("class-names"))
    assert [row["class-names/label"] for row in rows] == [0, 1, 2]
    assert [row["class-names/name"] for row in rows] == [
        "crane (n02012849)",
        "crane (n03126707)",
        "coot: <b>a | b</b>",
    ]
    label = next(
        field
        for field in described(cranes.directory)["recordSet"][1]["field"]
        if field["name"] == "label"
    )
    assert label["references"] == {"field": {"@id": "class-names/label"}}


def test_records_of_parquet_are_the_rows(cranes: Built, tmp_path: Path) -> None:
    # The document is the same in another folder.
    folder = Path(shutil.copytree(cranes.directory, tmp_path / "moved"))
    dataset = mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))
    data = {
        group: list(read_rows(folder, groups=[group])) for group in ("base", "weather", "starry")
    }
    wanted = {
        "default": sorted(
            (row | {"split": group} for group, rows in data.items() for row in rows), key=_key
        ),
        "all": sorted((row for rows in data.values() for row in rows), key=_key),
        **{group: sorted(rows, key=_key) for group, rows in data.items()},
        **{
            what: sorted(read_rows(folder, what=what), key=_key)
            for what in ("candidates", "rejected")
        },
    }
    for name, rows in wanted.items():
        records = sorted(dataset.records(name), key=lambda record: record[f"{name}/key"])
        assert len(records) == len(rows) > 0
        for record, row in zip(records, rows, strict=True):
            assert set(record) == {f"{name}/{column}" for column in row}
            for column, value in row.items():
                _assert_same(record[f"{name}/{column}"], value)


def _key(row: dict[str, Any]) -> str:
    return row["key"]


def _assert_same(field: Any, value: Any) -> None:
    if isinstance(value, dict):
        assert np.array_equal(np.asarray(field), np.asarray(Image.open(io.BytesIO(value["bytes"]))))
    elif isinstance(value, float):
        assert float(field) == value
    elif isinstance(value, list):
        assert [float(number) for number in field] == value
    else:
        assert (field.decode() if isinstance(field, bytes) else field) == value


def test_fields_of_webdataset_are_where_they_are_said_to_be(tars: Built) -> None:
    """mlcroissant reads no tar files of a file set, so its rules are followed here: globs, members,
    JSON paths."""
    document = described(tars.directory)
    sets = {node["@id"]: node for node in document["distribution"] if node["@type"] == "cr:FileSet"}
    paths = published_paths(tars.directory)
    for records in document["recordSet"][1:]:
        name = records["@id"]
        what = name if name in ("candidates", "rejected") else "data"
        files = [
            path
            for path in paths
            if any(fnmatch(path, glob) for glob in sets[f"{name}-files"]["includes"])
        ]
        groups = None if what != "data" or name in ("default", "all") else [name]
        rows = {row["key"]: row for row in read_rows(tars.directory, groups=groups, what=what)}
        seen = 0
        for path in files:
            for stem, members in _members(tars.directory / path).items():
                seen += 1
                for field in records["field"]:
                    if field["name"] != "split":
                        _assert_same_text(
                            _extracted(field["source"], sets, stem, members),
                            field["name"],
                            rows[stem],
                        )
        assert seen == len(rows) > 0, name


def _members(path: Path) -> dict[str, dict[str, bytes]]:
    members: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            assert stream
            members.setdefault(member.name.partition(".")[0], {})[member.name] = stream.read()
    return members


def _extracted(
    source: dict[str, Any], sets: dict[str, Any], stem: str, members: dict[str, bytes]
) -> Any:
    file_set = sets[source["fileSet"]["@id"]]
    assert file_set["containedIn"]["@id"].endswith("-files")
    (member,) = [name for name in members if fnmatch(name, file_set["includes"])]
    extract = source["extract"]
    if "jsonPath" in extract:
        return json.loads(members[member])[extract["jsonPath"].removeprefix("$.")]
    if extract["fileProperty"] == "filename":
        match = re.match(source["transform"]["regex"], member)
        assert match
        return match[1]
    return members[member]


def _assert_same_text(field: Any, column: str, row: dict[str, Any]) -> None:
    if column == "image":
        assert field == row["image"]["bytes"]
    elif column == "label":
        assert int(field) == row["label"]
    elif column.startswith("image_of_"):
        assert field == row["key"]
    elif isinstance(row[column], float):
        assert np.float32(field) == np.float32(row[column])
    else:
        assert field == row[column]


def test_file_objects_have_the_hashes_of_the_files(cranes: Built) -> None:
    files = {
        node["@id"]: node
        for node in described(cranes.directory)["distribution"]
        if "sha256" in node
    }
    assert set(files) == {"recipe.yaml", "lock.json", "thresholds.json"}, (
        "the manifest's hash is over this file too"
    )
    for path, node in files.items():
        content = (cranes.directory / path).read_bytes()
        assert node["sha256"] == hashlib.sha256(content).hexdigest()
        assert node["contentSize"] == f"{len(content)} B"
        assert node["contentUrl"] == path


def test_where_it_is_published_is_said_and_embeddings_are_arrays(
    cranes: Built, tmp_path: Path
) -> None:
    assert "url" not in described(cranes.directory)
    changes = (
        "publish.repo=someone/cranes",
        "publish.tags=[birds]",
        "screen.store_embeddings=true",
    )
    build(tmp_path, plan_of(*changes))
    dataset = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert warned(dataset) == UNKNOWN
    assert dataset.metadata.url == "https://huggingface.co/datasets/someone/cranes"
    assert [creator.name for creator in dataset.metadata.creators] == ["someone"]
    assert "birds" in (dataset.metadata.keywords or [])
    first = next(iter(dataset.records("base")))
    assert [float(number) for number in first["base/embedding"]] == [0.5, -0.25]


def test_a_licence_is_an_address_where_spdx_has_one() -> None:
    assert license_reference("CC-BY-NC-SA-4.0") == "https://spdx.org/licenses/CC-BY-NC-SA-4.0.html"
    assert license_reference("mit") == "https://spdx.org/licenses/MIT.html"
    assert license_reference("My Licence 2") == "My Licence 2"

"""A folder of folders of images, read by its names alone: the very table that `datasets` makes of it, in a pass.

`datasets` lists a folder once for each of fifty patterns, whenever it is loaded: minutes for 200,000 files. Here names
are listed once. Whatever is not plainly such a folder (tables, archives, metadata, a card with settings) is left to
`datasets`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from counterfoil.sources.folder_content import shown_names

# A card, or what else describes a dataset in a folder's root: `datasets` follows it.
_DESCRIBED = frozenset(("README.md", ".huggingface.yaml", "dataset_infos.json"))
# The separators that `datasets` lets a word such as "train" have beside it.
_BESIDE = "[-._ 0-9]"
_DATA_SHARD = re.compile(r"data/[^/]*-[0-9]{5}-of-[0-9]{5}[^/]*\.[^/]*")
# Of formats that it looks for before anything else.
_OTHER_FORMATS = re.compile(r"(?:^|/)(?:[^/]*\.eval|task\.toml|instruction\.md)$")
# What magic a folder's own path would have among patterns.
_MAGIC = re.compile(r"[*?\[\]{}!]|::|://")


def image_folder(folder: Path, listed: Sequence[str]) -> dict[str, Any] | None:
    """A table a split, with columns `image` and, where folders tell classes, `label`; None for any other folder.

    listed: every file of the folder by its path in it, sorted, hidden ones too.
    """
    if _MAGIC.search(str(folder)) or not _DESCRIBED.isdisjoint(listed):
        return None
    names = shown_names(listed)
    if any(map(_DATA_SHARD.fullmatch, names)) or any(map(_OTHER_FORMATS.search, names)):
        return None
    splits = {split: _images(folder, found) for split, found in _by_split(names).items()}
    return _tables(folder, {split: found for split, found in splits.items() if found}, len(splits))


def _by_split(names: Sequence[str]) -> dict[str, list[str]]:
    """Names by split, in the order (and as often) as the patterns of `datasets` find them."""
    from datasets.data_files import SPLIT_KEYWORDS

    parents = [name.rpartition("/")[0] for name in names]
    folders = set(parents)
    found: dict[str, list[str]] = {}
    for split, keywords in SPLIT_KEYWORDS.items():
        for pattern in (each for keyword in keywords for each in _in_folder_names(keyword)):
            matched = {parent for parent in folders if pattern.search(parent)}
            if matched:
                here = [name for name, parent in zip(names, parents, strict=True) if parent in matched]
                found.setdefault(str(split), []).extend(here)
    words = "|".join(word for keywords in SPLIT_KEYWORDS.values() for word in keywords)
    in_file_name = re.compile(rf"(?:^|/)(?:[^/]*{_BESIDE})?(?:{words}){_BESIDE}[^/]*$")
    if not found and any(map(in_file_name.search, names)):
        for split, keywords in SPLIT_KEYWORDS.items():
            for pattern in (each for keyword in keywords for each in _in_file_names(keyword)):
                here = [name for name in names if pattern.search(name)]
                if here:
                    found.setdefault(str(split), []).extend(here)
    return found or {"train": list(names)}


def _in_folder_names(word: str) -> Iterator[re.Pattern[str]]:
    for before in ("", f"[^/]*{_BESIDE}"):
        for after in ("", f"{_BESIDE}[^/]*"):
            yield re.compile(f"(?:^|/){before}{word}{after}(?:/|$)")


def _in_file_names(word: str) -> Iterator[re.Pattern[str]]:
    for before in ("", f"[^/]*{_BESIDE}"):
        yield re.compile(f"(?:^|/){before}{word}{_BESIDE}[^/]*$")


def _images(folder: Path, names: Sequence[str]) -> list[str] | None:
    """The images among the files of a split; None where `datasets` would take it for anything else, or more in it."""
    from datasets.packaged_modules import _ALL_EXTENSIONS, imagefolder

    known_endings, images = frozenset(_ALL_EXTENSIONS), frozenset(imagefolder.ImageFolder.EXTENSIONS)
    suffixes = {name: name.rpartition("/")[2].split(".")[1:] for name in names}
    known = [name for name in names if any(f".{suffix}" in known_endings for suffix in suffixes[name])]
    found = [name for name in known if _last(name) in images]
    others = [name for name in known if _last(name) not in images]
    # Whatever has an image's ending somewhere in its path, or is an archive or metadata, is more than a stray file.
    ending = re.compile("|".join(map(re.escape, (*images, ".zip", "metadata."))), re.IGNORECASE)
    if not found or (others and (ending.search(str(folder)) or any(map(ending.search, others)))):
        return None
    # The most frequent ending decides what the files are; a draw is decided by rules of their own.
    counts = Counter(f".{suffix.lower()}" for name in known for suffix in suffixes[name])
    counts = {ending: count for ending, count in counts.items() if ending in known_endings}
    most = max(counts.values())
    leading = {ending for ending, count in counts.items() if count == most}
    return found if leading <= images else None


def _last(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122 (as `datasets` does it, on hundreds of thousands)


def _class_of(folder: Path, name: str) -> str:
    return name.split("/")[-2] if "/" in name else folder.name


def _tables(folder: Path, splits: dict[str, list[str]], expected: int) -> dict[str, Any] | None:
    import datasets
    import pyarrow
    from datasets.table import InMemoryTable

    if len(splits) < expected:
        return None
    labels, depths, told = set(), set(), []
    for names in splits.values():  # classes are told where all images lie as deep, split after split
        labels.update(_class_of(folder, name) for name in names)
        depths.update(name.count("/") for name in names)
        told.append(len(labels) > 1 and len(depths) == 1)
    if len(set(told)) > 1:
        return None
    features = datasets.Features({"image": datasets.Image()})
    if told[0]:
        features["label"] = datasets.ClassLabel(names=sorted(labels))
    number = {label: place for place, label in enumerate(sorted(labels))}
    tables = {}
    for split, names in splits.items():
        paths = pyarrow.array([f"{folder}/{name}" for name in names], pyarrow.string())
        nothing = pyarrow.nulls(len(names), pyarrow.binary())
        columns = {"image": pyarrow.StructArray.from_arrays([nothing, paths], names=["bytes", "path"])}
        if told[0]:
            columns["label"] = pyarrow.array([number[_class_of(folder, name)] for name in names], pyarrow.int64())
        tables[split] = datasets.Dataset(
            InMemoryTable(pyarrow.table(columns)),
            info=datasets.DatasetInfo(features=features),
            split=datasets.NamedSplit(split),
            fingerprint="counterfoil",  # taken from the content otherwise; nothing here is kept by it
        )
    return tables

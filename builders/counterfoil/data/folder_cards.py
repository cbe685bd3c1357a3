"""The description of a folder: the files of each split, and the names of labels in their order.

A description is the YAML of README.md, .huggingface.yaml or dataset_infos.json. It may come from
anyone, so it only chooses among the files of the folder's own listing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from counterfoil.data.messages import failure, refusal
from counterfoil.documents import parse_json
from counterfoil.recipe.names import MOST_LABELS
from counterfoil.recipe.strict_yaml import refuse_unbounded
from counterfoil.regular_files import read_regular

CARD = "README.md"
SETTINGS = ".huggingface.yaml"
INFOS = "dataset_infos.json"
# The keys with which a card lists files and columns. Other cards are not parsed.
_KEYS = re.compile(r"configs|dataset_info")
_MOST_BYTES = 16_000_000
_DEFAULT = "default"
_SPLIT_WITHOUT_NAME = "train"


@dataclass(frozen=True)
class FolderCard:
    """The description of a folder.

    files: split → patterns of its files, or None if no files are listed. folder: the folder that
    holds all files.
    names: column → the names of its labels, by number.
    """

    files: Mapping[str, tuple[str, ...]] | None = None
    folder: str = ""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_card(folder: Path, names: Sequence[str], config: str | None) -> FolderCard | None:
    """Return what the files among `names` say of a folder, or None if its configs leave open which
    one is meant."""
    settings = _settings(folder, names)
    configs = _entries(settings.get("configs"))
    configs = [entry for entry in configs if isinstance(entry.get("config_name"), str)]
    chosen = _chosen(configs, config)
    if chosen is None:
        return None
    infos = {}
    for entry in _entries(settings.get("dataset_info")):
        infos[str(entry.get("config_name", _DEFAULT))] = entry
    if not infos and INFOS in names:  # earlier versions of `datasets` wrote this file
        try:
            document = parse_json(_read(folder / INFOS))
        except ValueError as error:
            raise refusal("unreadable-data.json", folder / INFOS, error) from error
        if isinstance(document, Mapping):
            for name, entry in document.items():
                if isinstance(entry, Mapping):
                    infos[str(name)] = entry
    info = infos.get(config or chosen.get("config_name", _DEFAULT))
    if not info:
        info = next(iter(infos.values())) if len(infos) == 1 else {}
    inside = ""
    directory = chosen.get("data_dir")
    if isinstance(directory, str) and directory.strip("./"):
        inside = f"{directory.strip('./')}/"
    files = None
    if chosen.get("data_files"):
        files = _patterns(chosen["data_files"], inside)
    return FolderCard(files, inside, dict(_label_names(info.get("features"))))


def pattern_matches(pattern: str, name: str) -> bool:
    """Check whether a pattern means a file, as in `datasets`: `*` stays in a folder, and `**` is
    any folders."""
    # the numbers of folders of the name that the pattern's first parts may mean
    parts = name.split("/")
    below = {0}
    for part in pattern.removeprefix("./").rstrip("/").split("/"):
        if part == "**":
            first = min(below, default=len(parts) + 1)
            below = set(range(first, len(parts) + 1))
        else:
            below = {at + 1 for at in below if at < len(parts) and fnmatchcase(parts[at], part)}
    is_folder = "*" not in pattern
    return len(parts) in below or (is_folder and bool(below))


def fixed_folder(pattern: str) -> str:
    """Return the folder that a pattern names before its first wildcard, with a slash at the end."""
    before = re.split(r"[*?[]", pattern.removeprefix("./"), maxsplit=1)[0]
    return before[: before.rfind("/") + 1]


def card_yaml(text: str) -> str:
    """Return the YAML at the head of a card; empty if there is none."""
    parts = text.split("---", 2)
    if len(parts) < 3 or parts[0]:
        return ""
    return parts[1]


def _settings(folder: Path, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the settings of a card, over which those of `.huggingface.yaml` go."""
    settings: dict[str, Any] = {}
    for name in (CARD, SETTINGS):
        if name not in names:
            continue
        text = _read(folder / name).decode("utf-8", "replace")
        if name == CARD:
            text = card_yaml(text)
        if _KEYS.search(text):
            settings |= yaml_mapping(text, str(folder / name))
    return settings


def yaml_mapping(text: str, file: str) -> dict[str, Any]:
    """Parse the YAML of a file that anyone may have written; empty for anything but a mapping."""
    import yaml

    try:
        refuse_unbounded(text, file)
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise refusal("unreadable-data.yaml", file, error) from error
    return document if isinstance(document, dict) else {}


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise failure("unreadable-data", path, error) from error


def _entries(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a list, or a mapping alone."""
    entries = value if isinstance(value, list) else [value]
    return [entry for entry in entries if isinstance(entry, Mapping)]


def _chosen(configs: Sequence[Mapping[str, Any]], config: str | None) -> Mapping[str, Any] | None:
    """Return the config that is meant, or None if it is unknown or several may be meant."""
    if not configs:
        return {} if config in (None, _DEFAULT) else None
    if config is None and len(configs) == 1:
        return configs[0]
    for entry in configs:
        name = entry["config_name"]
        is_default = entry.get("default") is True or name == _DEFAULT
        if name == config or (config is None and is_default):
            return entry
    return None


def _patterns(written: Any, inside: str) -> Mapping[str, tuple[str, ...]]:
    """Return split → patterns of files, from any form that `data_files` may have."""
    by_split: dict[str, list[str]] = {}
    if isinstance(written, Mapping):
        entries = [{"split": split, "path": path} for split, path in written.items()]
    else:
        entries = written if isinstance(written, list) else [written]
    for entry in entries:
        split = _SPLIT_WITHOUT_NAME
        paths = entry
        if isinstance(entry, Mapping):
            split = str(entry.get("split", _SPLIT_WITHOUT_NAME))
            paths = entry.get("path")
        texts = paths if isinstance(paths, list) else [paths]
        patterns = by_split.setdefault(split, [])
        patterns += [f"{inside}{text}" for text in texts if isinstance(text, str)]
    return {split: tuple(patterns) for split, patterns in by_split.items()}


def _label_names(features: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns of labels and their names, as a card (a list) or dataset_infos.json (a
    mapping) has them."""
    columns: list[tuple[Any, Any]] = []
    if isinstance(features, Mapping):
        columns += features.items()
    else:
        for entry in _entries(features):
            # `class_label` is below `dtype` or in the entry itself.
            kind = entry.get("dtype")
            holder = kind if isinstance(kind, Mapping) else entry
            columns.append((entry.get("name"), holder.get("class_label")))
    for column, feature in columns:
        names = feature.get("names") if isinstance(feature, Mapping) else None
        if isinstance(names, Mapping):
            try:
                names = [name for _, name in sorted(names.items(), key=lambda item: int(item[0]))]
            except (TypeError, ValueError):
                continue
        if isinstance(column, str) and isinstance(names, list) and 0 < len(names) <= MOST_LABELS:
            yield column, tuple(map(str, names))

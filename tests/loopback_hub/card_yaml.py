"""What the Hub checks of a card's YAML block before it takes it: `validate-yaml`, and each commit
of a README.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

_BLOCK = re.compile(r"\A\s*---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_SIZES = (
    *(
        "n<1K",
        "1K<n<10K",
        "10K<n<100K",
        "100K<n<1M",
        "1M<n<10M",
        "10M<n<100M",
        "100M<n<1B",
        "1B<n<10B",
    ),
    *("10B<n<100B", "100B<n<1T", "n>1T"),
)
_LISTS = (
    "annotations_creators",
    "language_creators",
    "source_datasets",
    "tags",
    "task_ids",
    "task_categories",
)


@dataclass
class Checked:
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def card_metadata(text: str) -> dict[str, Any]:
    """Return the metadata of a card, empty if it has none that can be read."""
    match = _BLOCK.match(text)
    try:
        value = yaml.safe_load(match["yaml"]) if match else None
    except yaml.YAMLError:
        return {}
    return _plain(value) if isinstance(value, dict) else {}


def check_card(text: str, kind: str) -> Checked:
    """Return the errors for which the Hub refuses a card, and the warnings that it only reports."""
    checked = Checked()
    match = _BLOCK.match(text)
    if match is None:
        checked.warnings.append("empty or missing yaml metadata in repo card")
        return checked
    try:
        value = yaml.safe_load(match["yaml"])
    except yaml.YAMLError as error:
        checked.errors.append(f"YAML metadata is invalid: {error}")
        return checked
    if value is None:
        checked.warnings.append("empty or missing yaml metadata in repo card")
    elif not isinstance(value, dict):
        checked.errors.append("YAML metadata must be an object")
    else:
        _check_metadata(value, kind, checked.errors)
    return checked


def _check_metadata(value: dict[Any, Any], kind: str, errors: list[str]) -> None:
    for name in _LISTS:
        given = value.get(name)
        if given is not None and not _texts(given):
            errors.append(f'"{name}" must be an array of strings')
    license = value.get("license")
    if license is not None and not _texts(license) and not isinstance(license, str):
        errors.append('"license" must be a string or an array of strings')
    if kind != "dataset":
        return
    sizes = value.get("size_categories")
    for size in [sizes] if isinstance(sizes, str) else sizes or []:
        if size not in _SIZES:
            errors.append(f'"size_categories" must only contain one of [{", ".join(_SIZES)}]')
    if value.get("configs") is not None:
        _check_configs(value["configs"], errors)


def _check_configs(configs: Any, errors: list[str]) -> None:
    if not isinstance(configs, list) or not all(isinstance(config, dict) for config in configs):
        errors.append('"configs" must be an array of objects')
        return
    names = [config.get("config_name") for config in configs]
    for index, config in enumerate(configs):
        if not isinstance(config.get("config_name"), str):
            errors.append(f'"configs[{index}].config_name" is required and must be a string')
        files = config.get("data_files")
        for item in files if isinstance(files, list) else []:
            split = item.get("split") if isinstance(item, dict) else None
            if isinstance(item, dict) and not re.fullmatch(r"\w+(\.\w+)*", str(split)):
                errors.append(
                    f'"configs[{index}].data_files" has the split name {split!r}, which is no valid'
                    " one"
                )
            if isinstance(item, dict) and not item.get("path"):
                errors.append(f'"configs[{index}].data_files" has an item without a path')
    if len(set(map(str, names))) != len(names):
        errors.append('"configs" names a config twice')
    if sum(bool(config.get("default")) for config in configs) > 1:
        errors.append('"configs" has more than one default')


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _plain(value: Any) -> Any:
    """Return a value with YAML's dates and the like as text, for a JSON answer."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)

"""What the card claims in numbers: rows and bytes of each config and split, the table of yields; Croissant's hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.dataset.verification.problems import ProblemsFound
from counterfoil.errors import CounterfoilError
from counterfoil.recipe.keep import ACCEPTED
from counterfoil.recipe.strict_yaml import read_yaml
from counterfoil.store.documents import parse_document
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import CARD, CROISSANT

if TYPE_CHECKING:
    from counterfoil.store import Receipt, StoredFile
    from counterfoil.store.manifest import Entry

_MOST_NAMED = 5
_BAR = re.compile(r"(?<!\\)\|")  # code in a cell escapes its own bars
# The columns of the table of yields that are counts of something else than a reason.
_NAME, _CANDIDATES, _REASONS_AFTER, _REASONS_BEFORE = ("Shift", "Group"), "Candidates", "Accepted", "Pairs"


def check_card(directory: Path, receipts: Sequence[Receipt], findings: ProblemsFound) -> None:
    """Compare README.md with the receipts of all shards; what differs goes to `findings`."""
    if not (directory / CARD).exists():
        findings.add(CARD, "is missing")
        return
    try:
        text = read_inside(directory, CARD).decode()
        metadata = read_yaml(_front_matter(text), CARD)
        faults = [*config_faults(metadata, [file for receipt in receipts for file in receipt.files])]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CounterfoilError) as error:
        findings.add(CARD, f"cannot be read: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        return
    for fault in [*faults, *yield_faults(text, receipts)]:
        findings.add(CARD, fault)


def check_croissant(directory: Path, found: Mapping[str, Entry], findings: ProblemsFound) -> None:
    """Compare the files that croissant.json gives hashes of with those that were `found`."""
    try:
        document = parse_document(read_inside(directory, CROISSANT))
        told = {node["contentUrl"]: node["sha256"] for node in document["distribution"] if "sha256" in node}
    except (OSError, ValueError, KeyError, TypeError) as error:
        findings.add(CROISSANT, f"cannot be read: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        return
    for path, sha256 in told.items():
        entry = found.get(path)
        if not findings.is_damaged(path) and (entry is None or entry.sha256 != sha256):
            here = "there is no such file" if entry is None else f"it is {entry.sha256[:12]}…"
            findings.add(CROISSANT, f"says that {path} has the sha256 {str(sha256)[:12]}…, and {here}")


def config_faults(metadata: Mapping[str, Any], files: Sequence[StoredFile]) -> Iterator[str]:
    """Configs whose globs match other files, or whose splits have other counts, than the receipts' files."""
    stored = {file.path: file for file in files}
    info = {
        (config["config_name"], split["name"]): split
        for config in metadata.get("dataset_info") or []
        for split in config["splits"]
    }
    matched: set[str] = set()
    for config in metadata.get("configs") or []:
        for split in config["data_files"]:
            name = (config["config_name"], split["split"])
            globs = [split["path"]] if isinstance(split["path"], str) else split["path"]
            own = [path for path in stored if any(fnmatchcase(path, glob) for glob in globs)]
            matched.update(own)
            told = info.pop(name, None)
            shown = f"config '{name[0]}', split '{name[1]}'"
            if told is None:
                yield f"says in dataset_info nothing of {shown}"
                continue
            for key, unit, count in (
                ("num_examples", "rows", sum(stored[path].rows for path in own)),
                ("num_bytes", "bytes", sum(stored[path].size for path in own)),
            ):
                if told.get(key) != count:
                    yield f"says that {shown} has {told.get(key)} {unit}, and its files have {count}"
    for config, split in info:
        yield f"says in dataset_info something of config '{config}', split '{split}', which it does not have"
    left = [path for path in stored if path not in matched]
    if left:
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        yield f"has no config that loads {', '.join(left[:_MOST_NAMED])}{more}"


def yield_faults(text: str, receipts: Sequence[Receipt]) -> Iterator[str]:
    """Counts of the table of yields (a row a shift, or a group) that are not those of the receipts."""
    table = _yield_table(text)
    if not table:
        return
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for receipt in receipts:
        for shift, reasons in receipt.counts.items():
            for name in (("Shift", shift), ("Group", receipt.group)):
                total = counts.setdefault(name, {})
                for reason, count in reasons.items():
                    total[reason] = total.get(reason, 0) + count
    header, names = table[0][0][0], {row[0][1].strip("`") for row in table}
    for name in [name for of, name in counts if of == header and name not in names]:
        yield f"has no row for {name} in its table of yields"
    for row in table:
        name = row[0][1].strip("`")
        found = counts.get((header, name), {})
        expected = {_CANDIDATES: sum(found.values()), _REASONS_AFTER: found.get(ACCEPTED, 0), **found}
        reason = False
        for column, cell in row:
            if column == _REASONS_BEFORE:
                break
            if reason or column in (_CANDIDATES, _REASONS_AFTER):
                count = expected.get(column.strip("`"), 0)
                if cell.replace(",", "") != str(count):
                    yield f"says {cell} in the table of yields, of {name} under {column}, expected {count}"
            reason = reason or column == _REASONS_AFTER


def _front_matter(text: str) -> str:
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    if match is None:
        raise ValueError("it does not begin with metadata between two lines of ---")
    return match[1]


def _yield_table(text: str) -> list[list[tuple[str, str]]]:
    """The rows of the table of yields as (column, cell) pairs; none where the card has no such table."""
    lines = iter(text.splitlines())
    for line in lines:
        header = _cells(line)
        if header and header[0] in _NAME and {_CANDIDATES, _REASONS_AFTER, _REASONS_BEFORE} <= set(header):
            next(lines, None)  # the rule under the header
            rows = []
            for row in lines:
                cells = _cells(row)
                if len(cells) != len(header):
                    break
                rows.append(list(zip(header, cells, strict=True)))
            return rows
    return []


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _BAR.split(line)[1:-1]] if line.startswith("|") else []

"""Files of rows that `datasets` reads: checked before they are read, so that none is lost, read
twice or outside.

`datasets` takes words in names for splits, and leaves out files without such a word. A dataset may
come from anyone, and its descriptions may name files of this machine.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from counterfoil.data.folder_cards import CARD, card_yaml, read_card
from counterfoil.data.folder_splits import SPLIT_WORDS, WORD
from counterfoil.data.image_folders import in_junk
from counterfoil.data.messages import refusal
from counterfoil.data.pins import InputDataset
from counterfoil.documents import parse_json
from counterfoil.errors import UserError
from counterfoil.foreign_tables import parquet_metadata
from counterfoil.recipe.strict_yaml import refuse_unbounded
from counterfoil.regular_files import UnfitFile, irregularity, open_regular, read_regular
from counterfoil.report.words import format_list

# The descriptions that `datasets` writes beside the files of a saved dataset, and the form of the
# file names.
_SPLITS = "dataset_dict.json"
_STATE = "state.json"
_PLAIN_NAME = re.compile(r"\w[\w.-]*")
_MOST_SAVED_SPLITS = 1_000
_MOST_DESCRIPTION = 16_000_000
_MOST_PARTS = 100_000
# Files of a table's rows, which belong to a split; and what the names of a split's parts have in
# common.
_ROW_FILES = (".parquet", ".arrow", ".tar")
_DESCRIBED = re.compile(
    r"(README\.md|config\.json|dataset_infos?\.json|dataset_dict\.json|state\.json)"
)
_PART = re.compile(r"(?P<before>.*)-(?P<part>\d{5})-of-(?P<parts>\d{5})(?P<after>[^/]*)")


def refuse_unassigned(
    source: InputDataset,
    builder: Any,
    files: Sequence[str],
    names: Mapping[str, str],
    folder: Path | None,
) -> None:
    """Raise UserError if `datasets` leaves out files of rows, reads one in two splits, or lacks
    parts of a split.

    files: all files of the dataset. names: data file of `datasets` → its name among them. folder:
    where a description may list the files of each split.
    """
    splits = defaultdict[str, list[str]](list)
    for split, of_split in (builder.config.data_files or {}).items():
        for name in of_split:
            splits[names[str(name)]].append(str(split))
    where = f"source: '{source.dataset}'"
    twice = []
    for name, owners in splits.items():
        if len(owners) > 1:
            twice.append(f"{name} ({format_list(owners)})")
    if twice:
        raise refusal("unclear-split.twice", where, twice)
    endings = {posixpath.splitext(name)[1].lower() for name in splits}
    card = None if folder is None else read_card(folder, files, source.config)
    if card is None or card.files is None:
        inside = "" if card is None else card.folder
        wanted = tuple({*_ROW_FILES, *endings} - {""})
        left = []
        for name in files:
            of_rows = name.startswith(inside) and name.lower().endswith(wanted)
            described = _DESCRIBED.fullmatch(posixpath.basename(name))
            if of_rows and name not in splits and not in_junk(name) and not described:
                left.append(name)
        _refuse_several_words(where, splits)
        if left:
            by_split = [f"{name} as {owners[0]}" for name, owners in splits.items()]
            raise refusal("unclear-split.unread", where, left, by_split)
    parts = defaultdict[tuple[str, ...], set[int]](set)
    for match in filter(None, map(_PART.fullmatch, splits)):
        whole = match.group("before", "parts", "after")
        parts[whole].add(int(match["part"]))
    for (before, count, after), present in parts.items():
        expected = range(min(int(count), _MOST_PARTS))
        absent = sorted(set(expected).difference(present))
        if absent:
            lacking = f"{before}-{absent[0]:05}-of-{count}{after}"
            where += f": {before}"
            raise refusal("unreadable-data.parts", where, len(absent), int(count), first=lacking)


def _refuse_several_words(where: str, splits: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError if files are of one split by different words, such as test.parquet and
    eval.parquet, which `datasets` joins."""
    first: dict[str, tuple[str, set[str]]] = {}
    for name, owners in splits.items():
        split = owners[0]
        of_split = SPLIT_WORDS.get(split, ())
        words = {word.lower() for word in WORD.findall(name)}
        words.intersection_update(of_split)
        other, other_words = first.setdefault(split, (name, words))
        has_words = words or other_words
        if has_words and words.isdisjoint(other_words):
            both = f"{other} and {name}"
            raise refusal("unclear-split.several", where, both, split=split)


def refuse_other_names(
    source: InputDataset,
    files: Iterable[Path],
    of_card: Mapping[str, Sequence[str]],
) -> None:
    """Raise UserError if Parquet files number their classes differently from each other or from
    the names that README.md has (`of_card`), because `datasets` uses one list for all.
    """
    where = f"source: '{source.dataset}'"
    first: dict[str, tuple[Path, Any]] = {}
    for file in files:
        if file.suffix != ".parquet":
            continue
        try:
            with open_regular(file) as opened:
                described = parse_json(parquet_metadata(opened).get(b"huggingface", b"{}"))
        except UnfitFile as error:
            raise refusal("unreadable-data.file", f"{where}: {file.name}", error) from error
        info = _mapping(_mapping(described).get("info"))
        for column, feature in _mapping(info.get("features")).items():
            names = _mapping(feature).get("names")
            if names is not None and [*of_card.get(column, names)] != names:
                raise refusal("unclear-label.card", where, column, file.name)
            known, known_names = first.setdefault(column, (file, names))
            if names != known_names:
                in_files = f"{known.name} and {file.name}"
                raise refusal("unclear-label.files", where, column, in_files)


def _mapping(value: Any) -> dict[str, Any]:
    """Return a value of a stranger's JSON; an empty mapping for anything but a mapping."""
    return value if isinstance(value, dict) else {}


def is_saved(path: Path) -> bool:
    return path.is_dir() and any((path / name).is_file() for name in (_STATE, _SPLITS))


def _is_plain(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and _PLAIN_NAME.fullmatch(name) is not None


def refuse_odd_saved(source: InputDataset, path: Path) -> list[Path]:
    """Return the files of rows of a saved dataset. Raise UserError if it names splits or files
    outside its folder."""
    folders = [path]
    rows = list[Path]()
    if (path / _SPLITS).is_file():
        splits = _described(path / _SPLITS).get("splits")
        names = splits if isinstance(splits, list) else []
        odd = [name for name in names if not _is_plain(name)]
        if odd:
            raise _odd_saved(source, f"{_SPLITS} names the split {odd[0]!r:.80}")
        if not 0 < len(names) <= _MOST_SAVED_SPLITS:
            raise _odd_saved(source, f"{_SPLITS} has no splits")
        folders = [path / name for name in names]
    for folder in folders:
        state = (folder / _STATE).relative_to(path)
        names = []
        for entry in _described(folder / _STATE).get("_data_files") or ():
            name = entry.get("filename") if isinstance(entry, dict) else entry
            if not _is_plain(name):
                raise _odd_saved(source, f"{state} names the file {name!r:.80}")
            names.append(name)
        if len(set(names)) < len(names):
            raise _odd_saved(source, f"{state} names a file twice")
        rows += [folder / name for name in names]
        for name in (*names, "dataset_info.json"):
            file = folder / name
            wrong = irregularity(file.stat().st_mode) if file.exists() else None
            if wrong is not None:
                raise _odd_saved(source, f"{state.with_name(name)} {wrong}")
    return rows


def _odd_saved(source: InputDataset, what: str) -> UserError:
    return refusal("unreadable-data.saved", f"source: '{source.dataset}'", what)


def _described(file: Path) -> dict[str, Any]:
    return _mapping(parse_json(read_regular(file, _MOST_DESCRIPTION)))


def refuse_odd_card(path: Path) -> None:
    """Raise UserError for a card whose YAML aliases expand without end. `datasets` follows every
    alias."""
    card = path / CARD
    if card.is_file():
        text = read_regular(card, _MOST_DESCRIPTION).decode("utf-8", errors="replace")
        refuse_unbounded(card_yaml(text), str(card))


def refuse_outside(source: InputDataset, builder: Any, inside: Callable[[str], bool]) -> None:
    """Raise UserError for files outside the dataset that its description names, because nothing
    pins them."""
    for name in data_files(builder):
        if not inside(name):
            raise refusal("outside-dataset", f"source: '{source.dataset}'", name)


def data_files(builder: Any) -> list[str]:
    return [str(name) for names in (builder.config.data_files or {}).values() for name in names]

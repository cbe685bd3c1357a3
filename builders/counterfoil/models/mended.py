"""What a mended model says that it was mended with and on: `mended.json` in its folder, read as a stranger's file.

The file is a JSON mapping of exactly these keys:

- `format`: 1
- `model`: `{"name", "sha256"}` of the model whose head was mended; the hash of its weights, or null
- `on`: `[{"name", "content"}]`, the sets whose rows chose anything (training rows, failures, λ)
- `train_content`: of each image that the head was fitted to, and of each row of the source that one of them is an edit
  of, the sha256 of its size and pixels (`store.decoding.pixels_sha256`), in a list; or the content of a whole set
- `datasets`: `[{"name", "content", "group", "seed", "recipe"}]`, what it was mended with; `seed` is their recipe's
  `samples.seed`, null where no noise began the images; group and recipe are null where there is none. Of edits of rows
  also `"edits": {"pool", "split", "rows"}`: which rows of which pool, by a hash of what it was pinned to
- `lambda`, `fit`, `weight_decay`: how it was fitted; `lambda` is null where nothing is weighed by one
- `rows`: how many rows it was fitted to, or such a number for each kind of rows
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import is_integer, is_number, is_text, shown, shown_key
from counterfoil.models.loading_errors import told_in_words
from counterfoil.models.names import HUB, local_folder, resolve_name
from counterfoil.regular_files import read_regular

MENDED = "mended.json"
FORMAT = 1
FITS = ("lbfgs", "sgd")

# A thousand classes of a hundred images, twice over; each is a hash of 64 digits.
MOST_CONTENTS = 200_000
MOST_BYTES = 16_000_000
MOST_SETS = 1_000
# Seeds of recipes have at most 53 bits, which every reader of JSON holds.
LARGEST_SEED = 2**53 - 1
LARGEST_LAMBDA = 1e9
_MOST_ROWS = 1_000_000_000
_MOST_PROBLEMS = 20
_SHA256 = re.compile(r"[0-9a-f]{64}")

_KEYS = ("format", "model", "on", "train_content", "datasets", "lambda", "fit", "weight_decay", "rows")
_MODEL_KEYS = ("name", "sha256")
_ON_KEYS = ("name", "content")
_DATASET_KEYS = ("name", "content", "group", "seed", "recipe")
_EDITS = "edits"
_EDITS_KEYS = ("pool", "split", "rows")


@dataclass(frozen=True)
class MendedOn:
    """A set of images that a mended model has seen: its name, and its content as the sources hash it."""

    name: str
    content: str


@dataclass(frozen=True)
class EditsOf:
    """The rows, ascending, of a pool's split that images are edits of. pool: a hash of what it was pinned to."""

    pool: str
    split: str
    rows: tuple[int, ...]

    def document(self) -> dict[str, Any]:
        """The same as the file has it."""
        return {"pool": self.pool, "split": self.split, "rows": list(self.rows)}


@dataclass(frozen=True)
class MendedWith:
    """A built dataset that a head was mended with; `seed` is its recipe's `samples.seed`."""

    name: str
    content: str
    group: str | None
    seed: int | None
    recipe: str | None
    edits: EditsOf | None = None

    def document(self) -> dict[str, Any]:
        """The same as the file has it."""
        told = {key: getattr(self, key) for key in _DATASET_KEYS}
        return told if self.edits is None else told | {_EDITS: self.edits.document()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> MendedWith:
        """What a file says of one, in which nothing is wrong."""
        edits = document.get(_EDITS)
        of = None if edits is None else EditsOf(edits["pool"], edits["split"], tuple(edits["rows"]))
        return cls(**{key: document[key] for key in _DATASET_KEYS}, edits=of)


@dataclass(frozen=True)
class MendedNote:
    """What mended.json says. `model_sha256` is the hash of the original's weights; `rows` counts by kind ("": all)."""

    model: str
    model_sha256: str | None
    on: tuple[MendedOn, ...]
    train_content: tuple[str, ...]
    datasets: tuple[MendedWith, ...]
    lam: float | None
    fit: str
    weight_decay: float
    rows: Mapping[str, int]

    def document(self) -> dict[str, Any]:
        """The same as the file has it."""
        return {
            "format": FORMAT,
            "model": {"name": self.model, "sha256": self.model_sha256},
            "on": [{"name": one.name, "content": one.content} for one in self.on],
            "train_content": list(self.train_content),
            "datasets": [one.document() for one in self.datasets],
            "lambda": self.lam,
            "fit": self.fit,
            "weight_decay": self.weight_decay,
            "rows": self.rows[""] if set(self.rows) == {""} else dict(self.rows),
        }


def mended_of(name: str) -> MendedNote | None:
    """What the model called `name` was mended with; None for one that says nothing of the kind.

    Only folders and repositories of timm can say it. UserError for a mended.json that cannot be understood.
    """
    if name.startswith("python:"):
        return None
    folder = local_folder(name) if name.startswith(("lab:", "local-dir:")) else _fetched(name)
    return None if folder is None else read_mended(folder, name)


def read_mended(folder: Path, model: str) -> MendedNote | None:
    """What a model's folder says that it was mended with; None where it has no mended.json.

    UserError with all that is wrong with one: what it was mended with is then not known, and it may not be measured.
    """
    file = folder / MENDED
    if not file.exists() and not file.is_symlink():
        return None
    try:
        text = read_regular(file, MOST_BYTES).decode("utf-8")
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_refused_constant)
    except OSError as error:
        raise _unreadable(model, error.strerror or str(error)) from error
    except RecursionError as error:
        raise _unreadable(model, "is nested too deeply") from error
    except ValueError as error:
        raise _unreadable(model, f"is not readable JSON: {error}") from error
    problems = _problems(document)
    if problems:
        more = [f"and {len(problems) - _MOST_PROBLEMS} more"] if len(problems) > _MOST_PROBLEMS else []
        raise UserError(
            [f"model {model!r}: {MENDED}: {problem}" for problem in [*problems[:_MOST_PROBLEMS], *more]], _HINT
        )
    rows = document["rows"]
    return MendedNote(
        model=document["model"]["name"],
        model_sha256=document["model"]["sha256"],
        on=tuple(MendedOn(**one) for one in document["on"]),
        train_content=(told,) if isinstance(told := document["train_content"], str) else tuple(told),
        datasets=tuple(MendedWith.of(one) for one in document["datasets"]),
        lam=None if document["lambda"] is None else float(document["lambda"]),
        fit=document["fit"],
        weight_decay=float(document["weight_decay"]),
        rows=rows if isinstance(rows, dict) else {"": rows},
    )


_HINT = "It tells what the model must not be measured on. Mend it again (`counterfoil mend`), or ask its author."


def _unreadable(model: str, what: str) -> UserError:
    return UserError(f"model {model!r}: {MENDED} {what}", _HINT)


def _fetched(name: str) -> Path | None:
    """The folder in the Hub's cache of the one commit whose mended.json lies there; None where there is none."""
    resolved = resolve_name(name)
    if not resolved.startswith(HUB):
        return None
    from huggingface_hub import errors as hub
    from huggingface_hub import hf_hub_download

    repository, _, revision = resolved.removeprefix(HUB).partition("@")

    def fetch() -> Path | None:
        config = Path(hf_hub_download(repository, "config.json", revision=revision or None))
        try:
            return Path(hf_hub_download(repository, MENDED, revision=config.parent.name)).parent
        except hub.EntryNotFoundError:  # offline too: whoever fetched the model with its note has the note
            return None

    return told_in_words(name, fetch)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        known: set[str] = set()
        twice = next(key for key, _ in pairs if key in known or known.add(key))
        raise ValueError(f"{shown_key(twice)} is there more than once")
    return found


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _problems(document: Any) -> list[str]:
    if not isinstance(document, dict):
        return [f"found {shown(document)}, expected a mapping"]
    if document.get("format") != FORMAT or isinstance(document.get("format"), bool):
        return [f"format is {shown(document.get('format'))}, expected {FORMAT}: written by another version"]
    problems = _key_problems(document, _KEYS, "")
    if problems:
        return problems
    problems += _model_problems(document["model"])
    problems += _set_problems(document["on"], "on", _ON_KEYS)
    problems += _content_problems(document["train_content"])
    problems += _set_problems(document["datasets"], "datasets", _DATASET_KEYS, (_EDITS,))
    for key, most in (("lambda", LARGEST_LAMBDA), ("weight_decay", LARGEST_LAMBDA)):
        if not is_number(document[key], 0, most) and not (key == "lambda" and document[key] is None):
            problems.append(f"{key} is {shown(document[key])}, expected a number of at least 0")
    if document["fit"] not in FITS:
        problems.append(f"fit is {shown(document['fit'])}, expected one of {', '.join(FITS)}")
    return [*problems, *_rows_problems(document["rows"])]


def _key_problems(
    value: Mapping[str, Any], keys: tuple[str, ...], place: str, others: tuple[str, ...] = ()
) -> list[str]:
    """Missing keys, and unknown ones: what is not understood may say what a model has seen. `others` need not be."""
    told = [f"{place}{key} is missing" for key in keys if key not in value]
    known = keys + others
    return told + [f"{place}{shown_key(key)} is no key of this format" for key in value if key not in known]


def _model_problems(model: Any) -> list[str]:
    if not isinstance(model, dict):
        return [f"model is {shown(model)}, expected a mapping of name and sha256"]
    problems = _key_problems(model, _MODEL_KEYS, "model.")
    if "name" in model and not is_text(model["name"]):
        problems.append(f"model.name is {shown(model['name'])}, expected a printable text")
    if model.get("sha256") is not None and not _is_sha256(model["sha256"]):
        problems.append(f"model.sha256 is {shown(model['sha256'])}, expected 64 hexadecimal digits or null")
    return problems


def _set_problems(value: Any, place: str, keys: tuple[str, ...], others: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with a list of named contents; one may have the keys `others` too."""
    if not isinstance(value, list) or len(value) > MOST_SETS:
        return [f"{place} is {shown(value)}, expected a list of at most {MOST_SETS:,} mappings"]
    problems = []
    for number, one in enumerate(value):
        where = f"{place}[{number}]"
        if not isinstance(one, dict):
            problems.append(f"{where} is {shown(one)}, expected a mapping")
            continue
        problems += _key_problems(one, keys, f"{where}.", others)
        if _EDITS in others and _EDITS in one:
            problems += _edits_problems(one[_EDITS], f"{where}.{_EDITS}")
        for key in one.keys() & set(keys):
            if wrong := _expected(key, one[key]):
                problems.append(f"{where}.{key} is {shown(one[key])}, expected {wrong}")
    return problems


def _edits_problems(value: Any, place: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{place} is {shown(value)}, expected a mapping of pool, split and rows"]
    problems = _key_problems(value, _EDITS_KEYS, f"{place}.")
    if "pool" in value and not _is_sha256(value["pool"]):
        problems.append(f"{place}.pool is {shown(value['pool'])}, expected 64 hexadecimal digits")
    if "split" in value and not is_text(value["split"]):
        problems.append(f"{place}.split is {shown(value['split'])}, expected a printable text")
    rows = value.get("rows", [])
    if not isinstance(rows, list) or len(rows) > MOST_CONTENTS:
        problems.append(f"{place}.rows is {shown(rows)}, expected a list of at most {MOST_CONTENTS:,} numbers of rows")
    else:
        wrong = [row for row in rows if not is_integer(row, 0, _MOST_ROWS)][:1]
        problems += [f"{place}.rows has {shown(row)}, expected numbers of rows" for row in wrong]
    return problems


def _expected(key: str, value: Any) -> str | None:
    """What a value of a set should have been; None where it is right."""
    if key == "content":
        return None if _is_sha256(value) else "64 hexadecimal digits"
    if key == "seed":
        return None if value is None or is_integer(value, 0, LARGEST_SEED) else "a seed of a recipe, or null"
    if key == "name":
        return None if is_text(value) else "a printable text"
    return None if value is None or is_text(value) else "a printable text, or null"


def _content_problems(value: Any) -> list[str]:
    value = [value] if isinstance(value, str) else value
    if not isinstance(value, list) or len(value) > MOST_CONTENTS:
        return [f"train_content is {shown(value)}, expected a list of at most {MOST_CONTENTS:,} hashes"]
    wrong = [number for number, one in enumerate(value) if not _is_sha256(one)]
    return [
        f"train_content[{number}] is {shown(value[number])}, expected 64 hexadecimal digits"
        for number in wrong[: _MOST_PROBLEMS + 1]
    ]


def _rows_problems(rows: Any) -> list[str]:
    if is_integer(rows, 0, _MOST_ROWS):
        return []
    kinds = rows.items() if isinstance(rows, dict) and 0 < len(rows) <= MOST_SETS else ((None, None),)
    if all(key is not None and is_text(key) and is_integer(count, 0, _MOST_ROWS) for key, count in kinds):
        return []
    return [f"rows is {shown(rows)}, expected a number of rows, or one for each kind of rows"]


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None

"""Resolve and pin model names: `lab:NAME`, `local-dir:PATH`, a folder or a Hub name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from counterfoil.errors import nearest_name
from counterfoil.models.loading_errors import known_cause
from counterfoil.models.messages import failure, refusal
from counterfoil.recipe.names import (
    ELSEWHERE,
    HUB,
    LAB,
    LOCAL,
    ONNX,
    TRANSFORMERS,
    chat_parts,
    is_local,
)
from counterfoil.regular_files import named_path, read_regular

LAB_WEIGHTS = Path(__file__).parents[1] / "lab" / "weights"
LAB_TOKENS = f"{LAB}tokens"

_LAB_TOKENS = LAB_WEIGHTS.with_name("tokens")

# This folder contains a subfolder with a classifier for each planted world (`lab/planted.py`).
_PLANTED = "planted"
_NOT_WEIGHTS = frozenset({"metrics.json", "training.json", "README.md"})
_LAB_LICENSE = "apache-2.0"
_LARGEST_CONFIG = 10_000_000
COMMIT = re.compile(r"[0-9a-f]{40}")
AnyModel = TypeVar("AnyModel")


@dataclass(frozen=True, slots=True)
class Pin:
    """The exact version of a named model: the commit of a Hub model, or a SHA-256 over the files of
    a folder."""

    name: str
    revision: str | None
    sha256: str | None
    license: str | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


# Weights without the network that they belong to.
_WEIGHTS = frozenset({".pth", ".pt", ".ckpt", ".bin", ".safetensors", ".h5", ".keras"})


def usable_name(name: Any) -> Any:
    """Return `onnx:FILE` for a file of ONNX, and other names unchanged. Raise UserError for a file
    of weights alone."""
    if not isinstance(name, str | Path) or (
        isinstance(name, str) and re.match(r"[a-z@][a-z_-]*:|@", name)
    ):
        return name
    file = named_path(name)
    if file.suffix.lower() == ".onnx":
        return f"{ONNX}{name}"
    if file.suffix.lower() not in _WEIGHTS:
        return name
    where = f"model {str(name)!r}"
    config = file.with_name("config.json")
    if not config.is_file():
        raise refusal("unfit-model.weights", where)
    of_transformers = b'"architectures"' in read_regular(config, _LARGEST_CONFIG)
    prefix = TRANSFORMERS if of_transformers else LOCAL
    folder = os.curdir if file.parent == Path() else file.parent
    raise refusal("unfit-model.weights-of-folder", where, f"{prefix}{folder}")


def lab_models() -> tuple[str, ...]:
    """Return the sorted names of the lab's models, without `lab:`. Planted worlds have names
    `planted/KIND-SEED`."""
    folders = [f for f in LAB_WEIGHTS.iterdir() if f.name != _PLANTED] + [
        *(LAB_WEIGHTS / _PLANTED).glob("*")
    ]
    with_weights = (f for f in folders if any(f.rglob("*.safetensors")))
    return tuple(sorted(f.relative_to(LAB_WEIGHTS).as_posix() for f in with_weights))


def resolve_name(name: str) -> str:
    """Turn `lab:NAME` into `local-dir:FOLDER`, and return other names unchanged. UserError for an
    unknown lab model."""
    if not name.startswith(LAB):
        return name
    short = name.removeprefix(LAB)
    known = lab_models()
    if short not in known:
        # The package contains the classifiers of only a few planted worlds.
        sentence = "unknown-model.lab"
        if short.split("/")[0] == _PLANTED:
            sentence = "unknown-model.planted"
        names = [f"{LAB}{model}" for model in known]
        where = f"model {name!r}"
        raise refusal(sentence, where, short, known, names=names)
    return f"{LOCAL}{LAB_WEIGHTS / short}"


def local_folder(name: str) -> Path | None:
    """Return the folder that a name means, or None for a Hub name.

    UserError if the folder is missing, or is on the machine that built the dataset
    (`refuse_elsewhere`).
    """
    refuse_elsewhere(name, "model")
    resolved = resolve_name(name)
    if not is_local(resolved):
        return None
    folder = named_path(resolved.removeprefix(LOCAL))
    if not folder.is_dir():
        where = f"model {name!r}"
        raise refusal("missing-model-file.folder", where, folder)
    return folder


def lab_tokens(name: str) -> Path:
    """Return the folder of the lab's class tokens. UserError for any other name under `lab:`."""
    if name != LAB_TOKENS:
        raise refusal("unknown-model.tokens", "tokens.path", name, [LAB_TOKENS])
    return _LAB_TOKENS


def refuse_elsewhere(name: str, what: str) -> None:
    """Raise UserError if a dataset's own recipe names a folder, which is on the machine that built
    the dataset."""
    if name.startswith(ELSEWHERE):
        served, address = chat_parts(name.removeprefix(ELSEWHERE))
        if address is not None:
            where = f"{what} 'chat:{served}'"
            raise refusal("untrusted-name.address", where, address)
        where = f"{what} '{name.removeprefix(ELSEWHERE)}'"
        raise refusal("untrusted-name.folder", where)


def meant_kind(prefix: str, kinds: Iterable[str]) -> str:
    """Return the clause "; did you mean 'KIND:'?" for a message, or an empty text."""
    near = nearest_name(prefix, kinds)
    return "" if near is None else f"; did you mean '{near}:'?"


def load_kind(
    what: str, kinds: Mapping[str, Callable[[str, str], AnyModel]], name: str, device: str
) -> AnyModel:
    """Load a model on a device by the kind that its name begins with. Raise UserError if it begins
    with no key of `kinds`."""
    refuse_elsewhere(name, "model")
    prefix, colon, _ = name.partition(":")
    if not colon or prefix not in kinds:
        known = [f"{kind}:" for kind in kinds]
        where = f"model {name!r}"
        kind = prefix if colon else ""
        hint = meant_kind(prefix, kinds)
        raise refusal("unknown-model.kind", where, kind, known, hint=hint, what=what)
    return kinds[prefix](name, device)


def refuse_shadowed(name: str, what: str) -> None:
    """Raise UserError for a name of the Hub that is also a local path, which libraries would read
    instead."""
    if os.path.exists(name):  # noqa: PTH110 (false for a name of 5,000 characters, for which a Path raises)
        where = f"{what} '{name}'"
        raise refusal("unknown-model.shadowed", where, name)


def pin_model(name: str, revision: str | None = None) -> Pin:
    """Pin a model to a commit or to a hash of its files.

    UserError for an unknown name; RunFailure if the Hub cannot be reached and the cache has no
    commit of the model.
    """
    folder = local_folder(name)
    if folder is not None:
        sha256 = folder_sha256(folder)
        if name.startswith(LAB):
            return Pin(name, None, sha256, _LAB_LICENSE)
        # The pin has only the last part of the path, because the same files in another folder are
        # the same model.
        return Pin(f"{LOCAL}{Path(name.removeprefix(LOCAL)).name}", None, sha256, None)
    import httpx2
    from huggingface_hub import HfApi, scan_cache_dir
    from huggingface_hub import errors as hub

    where = f"model {name!r}"
    repository = name.removeprefix(HUB)
    try:
        info = HfApi().model_info(repository, revision=revision)
        licence = getattr(info.card_data, "license", None) if info.card_data else None
        return Pin(name, info.sha, None, licence if isinstance(licence, str) else None)
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.HFValidationError) as error:
        if revision:
            where += f" at revision '{revision}'"
        raise refusal("not-on-hub", where) from error
    except (hub.OfflineModeIsEnabled, hub.HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        if revision and COMMIT.fullmatch(revision):
            return Pin(name, revision, None, None)
        branch = revision or "main"
        with contextlib.suppress(hub.CacheNotFound):
            for repo in scan_cache_dir().repos:
                is_model = repo.repo_id == repository and repo.repo_type == "model"
                if is_model and branch in repo.refs and repo.refs[branch].commit_hash:
                    return Pin(name, repo.refs[branch].commit_hash, None, None)
        known = known_cause(where, error)
        if isinstance(error, hub.HfHubHTTPError) and known is not None:
            raise known from error
        raise failure("unavailable.pin", where) from error


def folder_sha256(folder: Path) -> str:
    """Hash the relative paths and contents of a model's files, except notes and measurements
    (`_NOT_WEIGHTS`)."""
    digest = hashlib.sha256()
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in _NOT_WEIGHTS):
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()

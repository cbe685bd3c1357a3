"""Resolve and pin model names: `lab:NAME`, `local-dir:PATH`, a folder or a Hub name."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.loading_errors import known_cause
from counterfoil.recipe.names import (
    ELSEWHERE,
    HUB,
    LAB,
    LOCAL,
    ONNX,
    TRANSFORMERS,
    chat_parts,
    did_you_mean,
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
    hint = (
        "Save its network and its weights in a folder once, timm.models.save_for_hf(model,"
        " 'my-model',"
        " safe_serialization=True), and name local-dir:my-model. Or pass the module from Python:"
        " counterfoil.evaluate(dataset, model, transform=transform)."
    )
    if (config := file.with_name("config.json")).is_file():
        kind = (
            TRANSFORMERS if b'"architectures"' in read_regular(config, _LARGEST_CONFIG) else LOCAL
        )
        hint = f"Name its folder: {kind}{os.curdir if file.parent == Path() else file.parent}"
    raise UserError(
        f"model {str(name)!r} is a file of weights, which does not say of which network", hint
    )


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
        hint = f"The lab's models are {', '.join(LAB + k for k in known)}."
        if short.split("/")[0] == _PLANTED:
            hint = (
                f"{hint} scripts/train_planted.py trains others; name their folder with local-dir:."
            )
        raise UserError(
            f"model '{name}': the lab has no '{short}'{did_you_mean(short, known)}", hint
        )
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
        raise UserError(f"model '{name}': there is no folder {folder}", "Correct the path.")
    return folder


def lab_tokens(name: str) -> Path:
    """Return the folder of the lab's class tokens. UserError for any other name under `lab:`."""
    if name != LAB_TOKENS:
        near = did_you_mean(name.removeprefix(LAB), [LAB_TOKENS.removeprefix(LAB)])
        raise UserError(
            f"tokens.path: the lab has no tokens '{name}'{near}",
            f"The lab's tokens are {LAB_TOKENS}.",
        )
    return _LAB_TOKENS


def refuse_elsewhere(name: str, what: str) -> None:
    """Raise UserError if a dataset's own recipe names a folder, which is on the machine that built
    the dataset."""
    if name.startswith(ELSEWHERE):
        served, address = chat_parts(name.removeprefix(ELSEWHERE))
        if address is not None:
            raise UserError(
                f"{what} 'chat:{served}': its address {address[:80]} comes from a dataset's recipe",
                "If you trust it, name it yourself: --models chat:MODEL@ADDRESS",
            )
        raise UserError(
            f"{what} '{name.removeprefix(ELSEWHERE)}' is a folder on the machine that built the"
            " dataset",
            "If you have it and trust it, give its path with --set KEY=PATH or the command's own"
            " option.",
        )


def refuse_shadowed(name: str, what: str) -> None:
    """Raise UserError for a name of the Hub that is also a local path, which libraries would read
    instead."""
    if os.path.exists(name):  # noqa: PTH110 (false for a name of 5,000 characters, for which a Path raises)
        raise UserError(
            f"{what} '{name}': a local folder has this name, but the name refers to the Hub",
            f"Write ./{name} for the folder, or run the command in another directory.",
        )


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

    repository = name.removeprefix(HUB)
    try:
        info = HfApi().model_info(repository, revision=revision)
        licence = getattr(info.card_data, "license", None) if info.card_data else None
        return Pin(name, info.sha, None, licence if isinstance(licence, str) else None)
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.HFValidationError) as error:
        raise UserError(
            f"model '{name}'"
            + (f" at revision '{revision}'" if revision else "")
            + " is not on the Hub, or is"
            " private",
            "Correct the name, or run `hf auth login`.",
        ) from error
    except (hub.OfflineModeIsEnabled, hub.HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        if revision and COMMIT.fullmatch(revision):
            return Pin(name, revision, None, None)
        try:
            cached = [
                r
                for r in scan_cache_dir().repos
                if r.repo_id == repository and r.repo_type == "model"
            ]
        except hub.CacheNotFound:
            cached = []
        branch = revision or "main"
        for repo in cached:
            if branch in repo.refs and repo.refs[branch].commit_hash:
                return Pin(name, repo.refs[branch].commit_hash, None, None)
        known = known_cause(f"model '{name}'", error)
        if isinstance(error, hub.HfHubHTTPError) and known is not None:
            raise known from error
        raise RunFailure(
            f"model '{name}' is not in the local cache and the Hub cannot be reached",
            "Connect once to fetch it, give its commit as `revision`, or name a local-dir: or lab:"
            " model.",
        ) from error


def folder_sha256(folder: Path) -> str:
    """Hash the relative paths and contents of a model's files, except notes and measurements
    (`_NOT_WEIGHTS`)."""
    digest = hashlib.sha256()
    for file in sorted(p for p in folder.rglob("*") if p.is_file() and p.name not in _NOT_WEIGHTS):
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode())
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()

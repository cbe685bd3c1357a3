"""Built datasets that cases take copies of: Parquet with results, tar files, class tokens with an
open shift, edits; and an evaluation of the first.

They are tiny: two classes, three shifts, two candidates a cell. A copy that was changed can be
sealed again, so that hashes do not refuse at once what a stranger would have sealed too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzzing.trees import json_text
from fuzzing.values import as_bytes

ROWS = "rows.csv"

CLASSIFIER = "lab:lcnet_035"
CLASSES = ("00", "08")
_RECIPE = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '08', name: bag,"
    " source_label: 8}]",
    "tokens=null",
    *(f"prompts.shifts.{name}=null" for name in ("in_the_grass", "at_night", "red")),
    "generator={model: lab:sd, steps: 2, guidance: 3.0, batch_size: 4, dtype: float32}",
    "screen={model: lab:clip, object_threshold: 0.2, shift_threshold: 0.2, keep_rejected: true,"
    " store_embeddings: true}",
    "samples={candidates: 2, seed: 0, noise: paired}",
    "output={format: parquet, rows_per_shard: 4}",
    f"evaluate.models=['{CLASSIFIER}']",
    "publish.repo=someone/garments",
)
BUILT = PARQUET, TAR, TOKENS, EDITS = "parquet", "tar", "tokens", "edits"
EARLIER = "earlier"
ALL = (*BUILT, EARLIER)


def build_templates(folder: Path) -> dict[str, Path]:
    """Build them in `folder`; by name. Without a network, on one core."""
    from counterfoil.building.build_dataset import build
    from counterfoil.evaluation import evaluate
    from counterfoil.reviewing.calibrate_dataset import calibrate

    vectors = _vectors(folder / "vectors")
    changes = {
        PARQUET: (),
        TAR: (
            "output.format=webdataset",
            "output.image.format=jpg",
            "screen.store_embeddings=false",
        ),
        TOKENS: (
            f"tokens.path={vectors}",
            "screen.object_threshold={percentile: 5}",
            "prompts.shifts.in_the_snow.threshold={percentile: 50}",
            "prompts.shifts.in_the_snow.group=open",
        ),
        EDITS: (
            "generator={kind: edit, split: validation, steps: 2, guidance: 2.0, batch_size: 4}",
            "generator.captioner=lab:captioner",
            "prompts.shifts.in_the_snow.prompt='{caption} in the snow'",
            "screen.keep=[{same_image: {}}, thresholds]",
        ),
    }
    for name, more in changes.items():
        build("wardrobe-mini", folder / name, overrides=[*_RECIPE, *more], device="cpu", workers=1)
    evaluate(folder / PARQUET, [CLASSIFIER], out=folder / EARLIER, device="cpu")
    evaluate(folder / PARQUET, [CLASSIFIER], device="cpu", into_card=True)
    calibrate(folder / PARQUET)
    for name in changes:
        shutil.rmtree(folder / name / ".counterfoil", ignore_errors=True)
    return {name: folder / name for name in ALL}


def digest_of_the_package() -> str:
    """Return a hash of the package: datasets of other code are built anew."""
    import counterfoil

    digest = hashlib.sha256()
    for path in sorted(Path(counterfoil.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _vectors(folder: Path) -> Path:
    """Write class tokens that are words of the vocabulary; return their folder."""
    from safetensors.torch import save_file

    from counterfoil.models.diffusion import load_pipeline

    words = load_pipeline("lab:sd", dtype="float32").text_encoder.get_input_embeddings().weight
    folder.mkdir()
    for class_id, row in zip(CLASSES, (5, 11), strict=True):
        token = {f"<class-{class_id}>": words[[row]].detach().clone()}
        save_file(token, folder / f"{class_id}.safetensors")
    return folder


def preload() -> None:
    """Import what the commands import late, so that no case pays for it. Leave no thread: cases are
    forked."""
    import accelerate  # noqa: F401
    import datasets  # noqa: F401
    import diffusers  # noqa: F401
    import matplotlib.pyplot  # noqa: F401
    import open_clip  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.stats  # noqa: F401
    import timm  # noqa: F401
    import torch
    import transformers  # noqa: F401
    import webdataset  # noqa: F401

    import counterfoil.mining.captions  # noqa: F401

    torch.set_num_threads(1)


def modules_here() -> list[str]:
    return sorted(name for name, module in sys.modules.items() if module is not None)


def import_as_far_as_possible(names: list[str]) -> None:
    """Import modules that another process needed; some exist only there."""
    from importlib import import_module

    for name in names:
        if name not in sys.modules and not name.startswith(("fuzzing", "__")):
            with contextlib.suppress(Exception):
                import_module(name)


def sealed(directory: Path) -> None:
    """Let receipts, the lock and the manifest say of the files what they are now, as far as they
    can still be read."""
    hashes = _relocked(directory)
    receipts = directory / "receipts"
    for path in sorted(receipts.glob("*.json")) if receipts.is_dir() else ():
        receipt = _document(path)
        if not isinstance(receipt, dict):
            continue
        if hashes is not None:
            receipt["hashes"] = hashes
        files = receipt.get("files")
        for file in files if isinstance(files, list) else ():
            entry = _entry(directory, file.get("path")) if isinstance(file, dict) else None
            if entry is not None:
                file |= entry
        _write(path, receipt)
    manifest = directory / "manifest.json"
    if manifest.is_symlink() or _is_regular(manifest):
        entries = [{"path": path, **entry} for path, entry in _files(directory)]
        canonical = json.dumps(entries, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(as_bytes(canonical)).hexdigest()
        with contextlib.suppress(OSError):
            _write(manifest, {"version": 1, "files": entries, "sha256": digest})


def _relocked(directory: Path) -> dict[str, str] | None:
    """Write the lock anew for recipe, thresholds and tokens; return its hashes, or None if it
    cannot be written."""
    from counterfoil.documents import sha256_json
    from counterfoil.errors import CounterfoilError
    from counterfoil.generate.screen.thresholds import Thresholds
    from counterfoil.recipe import load_own_recipe

    damage = (CounterfoilError, OSError, ValueError, KeyError, TypeError, AttributeError)
    lock = _document(directory / "lock.json")
    recipe = directory / "recipe.yaml"
    if not isinstance(lock, dict) or not _is_regular(recipe) or recipe.stat().st_size > 20_000:
        return None
    try:
        loaded = load_own_recipe(directory)
        lock["plan"] = loaded.plan_document
        lock["screen"] = loaded.screen_document
        inputs = lock["inputs"]
        for class_id in inputs["tokens"] or ():
            entry = _entry(directory, f"tokens/{class_id}.safetensors")
            inputs["tokens"][class_id] = entry["sha256"] if entry else ""
        if isinstance(inputs.get("edited"), dict) and (rows := _entry(directory, ROWS)) is not None:
            inputs["edited"]["sha256"] = rows["sha256"]
        with contextlib.suppress(*damage):
            thresholds = directory / "thresholds.json"
            if _is_regular(thresholds):
                inputs["thresholds"] = Thresholds.read(thresholds.read_bytes()).pin()
        lock["hashes"] = {name: sha256_json(lock[name]) for name in ("plan", "screen", "inputs")}
    except (*damage, RecursionError):
        return None
    _write(directory / "lock.json", lock)
    return lock["hashes"]


def _document(path: Path) -> Any:
    """Read a small JSON document; return None if it does not exist."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if _is_regular(path) and path.stat().st_size < 1_000_000:
            return json.loads(path.read_bytes())
    return None


def _write(path: Path, document: Any) -> None:
    with contextlib.suppress(RecursionError, ValueError):
        path.write_bytes(as_bytes(json_text(document, canonical=True)))


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def _entry(directory: Path, path: Any) -> dict[str, Any] | None:
    """Return size and hash of a file, also through a link, for a stranger may know what it leads
    to.

    Read only below the folder of the case and its canaries: the machine has files that never end.
    """
    if not isinstance(path, str) or len(path) > 1_000 or "\0" in path:
        return None
    try:
        target = directory / path
        if not Path(os.path.realpath(target)).is_relative_to(directory.parents[1]):
            return None
        if not stat.S_ISREG(target.stat().st_mode) or target.stat().st_size > 50_000_000:
            return None
        content = target.read_bytes()
    except (OSError, ValueError):
        return None
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _files(directory: Path) -> list[tuple[str, Mapping[str, Any]]]:
    entries = []
    for folder, below, names in os.walk(directory):
        parent = Path(folder).relative_to(directory)
        if parent == Path():
            below[:] = [name for name in below if not name.startswith(".")]
            names = [name for name in names if not name.startswith(".") and name != "manifest.json"]
        for name in names:
            path = (parent / name).as_posix()
            entry = _entry(directory, path)
            if entry is not None:
                entries.append((path, entry))
    return sorted(entries, key=lambda pair: pair[0])

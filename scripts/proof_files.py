"""Files of the proofs: written whole or not at all, and found again by what decides them: a proof
can be resumed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from counterfoil.models.names import folder_sha256, local_folder

_SCRIPTS = Path(__file__).parent
# The lab's classifiers of the wardrobe.
CLASSIFIERS: tuple[str, ...] = (
    "resnet10t", "resnet14t", "convnext_atto", "convnext_pico", "vit_tiny_patch8", "vit_tiny_patch16",
    "mobilenetv3_small_050", "lcnet_035",
)  # fmt: skip
PACKAGE = _SCRIPTS.parent / "builders" / "counterfoil"
Arrays: TypeAlias = dict[str, NDArray]
Values: TypeAlias = Mapping[str, str]
"""Attribute → value of a scene, or of what words claim."""
Facts: TypeAlias = dict[str, Any]
"""What a part measured in one world or of one classifier, as its JSON holds it."""
Results: TypeAlias = Mapping[str, Facts]
"""The same by world or classifier."""


def saved(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file whole or not at all, by a function that takes an open one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{id(write):x}.part")
    with temporary.open("wb") as stream:
        write(stream)
    temporary.replace(path)


def kept_array(path: Path, make: Callable[[], NDArray], mapped: bool = False) -> NDArray:
    """Return the array of a path, `mapped` or read; make and write it if the file does not
    exist."""
    if not path.exists():
        array = make()
        saved(path, lambda to: np.save(to, array))
    return np.load(path, mmap_mode="r" if mapped else None)


def arrays_of(path: Path) -> Arrays:
    """Return the arrays of a path by name; no array if the file does not exist."""
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)


def save_arrays(path: Path, arrays: Mapping[str, Any], compressed: bool = False) -> None:
    """Write arrays by name, as `saved` writes."""
    write: Callable[..., None] = np.savez_compressed if compressed else np.savez
    saved(path, lambda to: write(to, **arrays))


def measured(path: Path, measure: Callable[[], Facts]) -> Facts:
    """Return the JSON of a path; measure and write it if the file does not exist."""
    if not path.exists():
        result = measure()
        saved(path, lambda to: to.write((json.dumps(result, indent=1) + "\n").encode()))
    return json.loads(path.read_text(encoding="utf-8"))


def sha256_of(model: str) -> str:
    """Return the hash of a local model's folder, by the model's name."""
    folder = local_folder(model)
    assert folder is not None
    return folder_sha256(folder)


def text_digest(text: str) -> str:
    """Return 24 digits of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def digest_of(value: Any) -> str:
    """Return 16 digits of what decides a result, as JSON takes it."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def code_of(places: Iterable[Path]) -> str:
    """Hash some files, and all Python files of some folders."""
    digest = hashlib.sha256()
    for path in places:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def imported_by(proof: str, name: str, no_number: Collection[str]) -> list[Path]:
    """Return a file of a proof's folder, the files of the folder that it imports, and so on; and
    how all proofs draw pictures.

    no_number: names of files that change no number, which are left out.
    """
    imports = re.compile(rf"^from {proof}(?:\.(\w+) import| import (.+))", re.MULTILINE)
    names = set()
    waiting = {name}
    while waiting:
        names |= waiting
        texts = [
            (_SCRIPTS / proof / f"{module}.py").read_text(encoding="utf-8") for module in waiting
        ]
        named = {
            module
            for text in texts
            for pair in imports.findall(text)
            for module in (pair[0], *pair[1].split(", "))
        }
        waiting = named - names - {"", *no_number}
    files = [_SCRIPTS / proof / f"{module}.py" for module in sorted(names)]
    return [*files, _SCRIPTS / "proof_pictures.py"]

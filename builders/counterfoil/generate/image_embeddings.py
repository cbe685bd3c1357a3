"""The image embeddings that shifts are drawn from: read from the files of a recipe, checked, pinned, and written anew.

A file may come from anybody. It is read once, up to a size, as numbers alone, and what is not one plain vector of
finite numbers is refused by its key. A dataset keeps the vectors that it used, and no others, in one file of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError, first_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import embedding_key, own_key
from counterfoil.regular_files import named_path, read_regular

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe, Shift

# A thousand classes under thirty shifts, by vectors of a thousand numbers.
MOST_BYTES = 128_000_000
# No CLIP that open_clip knows has wider ones than 1,280.
WIDEST = 65_536
_MOST_PROBLEMS = 20
_FLOATS: Mapping[str, Any] = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_HINT = "Each class of the shift needs a vector under its key, all as wide as the generator takes them."

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ImageEmbeddings:
    """Vectors (width,) by shift and class id, and the width that all of them have."""

    vectors: Mapping[str, Mapping[str, Vector]]
    templates: Mapping[str, str]
    width: int

    def of(self, shift: str, class_id: str) -> Vector | None:
        """Return the vector of a cell; None if it is drawn from its prompt alone."""
        return self.vectors.get(shift, {}).get(class_id)

    def hashes(self) -> dict[str, dict[str, str]]:
        return {
            shift: {class_id: vector_sha256(vector) for class_id, vector in own.items()}
            for shift, own in self.vectors.items()
        }

    def content(self) -> bytes:
        """Return the dataset's own file, under the keys that its own recipe says; equal vectors give equal bytes."""
        return embeddings_file(
            {
                embedding_key(own_key(shift, self.templates[shift]), class_id): vector
                for shift, own in self.vectors.items()
                for class_id, vector in own.items()
            }
        )


def embeddings_file(vectors: Mapping[str, Vector]) -> bytes:
    """Return a file of vectors (width,) by key, as recipes name them; equal vectors give equal bytes."""
    from safetensors.numpy import save

    return save({key: np.ascontiguousarray(vectors[key], "<f4") for key in sorted(vectors)})


def vector_sha256(vector: Vector) -> str:
    return hashlib.sha256(np.ascontiguousarray(vector, "<f4").tobytes()).hexdigest()


def read_image_embeddings(recipe: Recipe) -> ImageEmbeddings | None:
    """Return the vectors of all cells; None for a recipe that draws from prompts alone.

    UserError, collected, for unreadable files, missing keys, and tensors of another shape or width.
    """
    shifts = [shift for shift in recipe.all_shifts() if shift.embedding is not None]
    if not shifts:
        return None
    files: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    vectors: dict[str, dict[str, Vector]] = {}
    for shift in shifts:
        assert shift.embedding is not None
        file = shift.embedding.file
        if file not in files:
            try:
                files[file] = read_tensors(named_path(file))
            except UserError as error:
                problems += [f"{_place(shift)}.file: {problem}" for problem in error.problems]
                files[file] = {}
                continue
        if files[file]:
            vectors[shift.name] = dict(_vectors(recipe, shift, files[file], problems))
    widths: dict[int, str] = {}
    for name, own in vectors.items():
        for class_id, vector in own.items():
            widths.setdefault(len(vector), f"{name}, {class_id}")
    if len(widths) > 1:
        found = " and ".join(f"{width} ({where})" for width, where in list(widths.items())[:3])
        problems.append(f"prompts: embeddings of several widths: {found}; expected one")
    if problems:
        raise UserError(first_of(problems, _MOST_PROBLEMS), _HINT)
    templates = {shift.name: shift.embedding.key for shift in shifts if shift.embedding is not None}
    return ImageEmbeddings(vectors, templates, next(iter(widths)))


def read_tensors(path: Path) -> dict[str, Any]:
    """Key → a tensor as its file describes it. UserError for no safetensors file, a larger one, or an empty one."""
    from safetensors import SafetensorError, deserialize

    try:
        found = dict(deserialize(read_regular(path, MOST_BYTES)))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}; expected a safetensors file of vectors") from error
    except (SafetensorError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable safetensors file ({' '.join(str(error).split())[:200]})") from error
    if not found:
        raise UserError(f"{path}: holds no vector")
    return found


def _vectors(
    recipe: Recipe, shift: Shift, tensors: Mapping[str, Any], problems: list[str]
) -> Iterator[tuple[str, Vector]]:
    assert shift.embedding is not None
    for label in shift.class_labels:
        class_id = recipe.classes[label].id
        key = embedding_key(shift.embedding.key, class_id)
        if key not in tensors:
            # Looking for the nearest of thousands takes long; nobody reads thousands of suggestions.
            near = did_you_mean(key, tensors) if len(problems) < _MOST_PROBLEMS else ""
            problems.append(f"{_place(shift)}: no '{key}' in {Path(shift.embedding.file).name}{near}")
            continue
        vector = _as_vector(tensors[key])
        if isinstance(vector, str):
            problems.append(f"{_place(shift)}: '{key}' in {Path(shift.embedding.file).name} {vector}")
        else:
            yield class_id, vector


def _as_vector(tensor: Mapping[str, Any]) -> Vector | str:
    """Return a tensor as a vector, or its problem."""
    kind, shape = tensor["dtype"], list(tensor["shape"])
    if (kind not in _FLOATS and kind != "BF16") or len(shape) != 1 or not 1 <= shape[0] <= WIDEST:
        return f"is {kind} of shape {shape}, expected one vector of at most {WIDEST:,} floating-point numbers"
    if kind == "BF16":
        vector = (np.frombuffer(tensor["data"], "<u2").astype("<u4") << 16).view("<f4")
    else:
        with np.errstate(over="ignore"):
            vector = np.frombuffer(tensor["data"], _FLOATS[kind]).astype("<f4")
    if not np.isfinite(vector).all():
        return "holds numbers that are not finite"
    if not vector.any():
        return "is all zeros, which is not a direction"
    return np.asarray(vector, np.float32)


def _place(shift: Shift) -> str:
    return f"prompts.{'' if shift.name == 'base' else 'shifts.'}{shift.name}.embedding"

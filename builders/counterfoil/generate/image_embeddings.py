"""Read, check and write the image embeddings from which shifts are drawn.

A file of image embeddings may come from anybody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.arrays import Floats32
from counterfoil.errors import UserError, first_of
from counterfoil.recipe import Recipe, Shift
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import embedding_key, own_key
from counterfoil.regular_files import named_path, read_regular

# a thousand classes under thirty shifts, with vectors of a thousand numbers
MOST_BYTES = 128_000_000
WIDEST = 65_536  # open_clip's widest CLIP has 1,280
_MOST_PROBLEMS = 20
_FLOATS: Mapping[str, Any] = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_HINT = (
    "Each class of the shift needs a vector under its key, all as wide as the generator takes them."
)

Vector = Floats32


@dataclass(frozen=True, slots=True)
class ImageEmbeddings:
    """Vectors (width,) by shift and class id, the template for the keys of each shift, and the
    common width."""

    vectors: Mapping[str, Mapping[str, Vector]]
    templates: Mapping[str, str]
    width: int

    def of(self, shift: str, class_id: str) -> Vector | None:
        """Return the vector of a cell, or None if the cell is drawn from its prompt alone."""
        return self.vectors.get(shift, {}).get(class_id)

    def hashes(self) -> dict[str, dict[str, str]]:
        hashes: dict[str, dict[str, str]] = {}
        for shift, vectors in self.vectors.items():
            hashes[shift] = {}
            for class_id, vector in vectors.items():
                content = np.ascontiguousarray(vector, "<f4").tobytes()
                hashes[shift][class_id] = hashlib.sha256(content).hexdigest()
        return hashes

    def content(self) -> bytes:
        """Return the content of the dataset's file of embeddings, with the keys of the dataset's
        own recipe.

        Equal vectors give equal bytes.
        """
        vectors: dict[str, Vector] = {}
        for shift, by_class in self.vectors.items():
            template = own_key(shift, self.templates[shift])
            for class_id, vector in by_class.items():
                vectors[embedding_key(template, class_id)] = vector
        return embeddings_file(vectors)


def embeddings_file(vectors: Mapping[str, Vector]) -> bytes:
    """Return the content of a file of vectors (width,) by key. Equal vectors give equal bytes."""
    from safetensors.numpy import save

    tensors = {key: np.ascontiguousarray(vectors[key], "<f4") for key in sorted(vectors)}
    return save(tensors)


def read_image_embeddings(recipe: Recipe) -> ImageEmbeddings | None:
    """Return the vectors of all cells, or None for a recipe without embeddings.

    Raise UserError with all unreadable files, all missing keys, and all tensors of another shape or
    width.
    """
    files: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    templates: dict[str, str] = {}
    vectors: dict[str, dict[str, Vector]] = {}
    for shift in recipe.all_shifts():
        if shift.embedding is None:
            continue
        templates[shift.name] = shift.embedding.key
        file = shift.embedding.file
        if file not in files:
            try:
                files[file] = read_tensors(named_path(file))
            except UserError as error:
                problems += error.at(f"{_key_of(shift)}.file").problems
                files[file] = {}
                continue
        if files[file]:
            vectors[shift.name] = dict(_vectors(recipe, shift, files[file], problems))
    if not templates:
        return None
    widths: dict[int, str] = {}
    for name, by_class in vectors.items():
        for class_id, vector in by_class.items():
            widths.setdefault(len(vector), f"{name}, {class_id}")
    if len(widths) > 1:
        examples = list(widths.items())[:3]
        shown = " and ".join(f"{width} ({cell})" for width, cell in examples)
        problems.append(f"prompts: embeddings of several widths: {shown}; expected one")
    if problems:
        raise UserError(first_of(problems, _MOST_PROBLEMS), _HINT)
    return ImageEmbeddings(vectors, templates, next(iter(widths)))


def read_tensors(path: Path) -> dict[str, Any]:
    """Return key → tensor as the file describes it.

    Raise UserError for a file that is not in the safetensors format, or is too large or empty.
    """
    from safetensors import SafetensorError, deserialize

    try:
        tensors = dict(deserialize(read_regular(path, MOST_BYTES)))
    except OSError as error:
        raise UserError(
            f"{path}: {error.strerror or error}; expected a safetensors file of vectors"
        ) from error
    except (SafetensorError, ValueError, RecursionError) as error:
        cause = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a readable safetensors file ({cause})") from error
    if not tensors:
        raise UserError(f"{path}: holds no vector")
    return tensors


def _vectors(
    recipe: Recipe,
    shift: Shift,
    tensors: Mapping[str, Any],
    problems: list[str],
) -> Iterator[tuple[str, Vector]]:
    assert shift.embedding is not None
    file = Path(shift.embedding.file).name
    for label in shift.class_labels:
        class_id = recipe.classes[label].id
        key = embedding_key(shift.embedding.key, class_id)
        if key not in tensors:
            # A search for similar keys among thousands takes long, so suggest a key only for the
            # first problems.
            near = did_you_mean(key, tensors) if len(problems) < _MOST_PROBLEMS else ""
            problems.append(f"{_key_of(shift)}: no '{key}' in {file}{near}")
            continue
        vector = _as_vector(tensors[key])
        if isinstance(vector, str):
            problems.append(f"{_key_of(shift)}: '{key}' in {file} {vector}")
        else:
            yield class_id, vector


def _as_vector(tensor: Mapping[str, Any]) -> Vector | str:
    """Return a tensor as a vector, or a sentence about what is wrong with the tensor."""
    kind = tensor["dtype"]
    shape = list(tensor["shape"])
    known = kind in _FLOATS or kind == "BF16"
    if not known or len(shape) != 1 or not 1 <= shape[0] <= WIDEST:
        return (
            f"is {kind} of shape {shape}, expected one vector of at most {WIDEST:,}"
            " floating-point numbers"
        )
    if kind == "BF16":
        upper_half = np.frombuffer(tensor["data"], "<u2").astype("<u4")
        vector = (upper_half << 16).view("<f4")
    else:
        with np.errstate(over="ignore"):
            vector = np.frombuffer(tensor["data"], _FLOATS[kind]).astype("<f4")
    if not np.isfinite(vector).all():
        return "holds numbers that are not finite"
    if not vector.any():
        return "is all zeros, which is not a direction"
    return np.asarray(vector, np.float32)


def _key_of(shift: Shift) -> str:
    return f"prompts.{'' if shift.name == 'base' else 'shifts.'}{shift.name}.embedding"

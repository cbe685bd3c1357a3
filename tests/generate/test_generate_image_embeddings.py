"""Files of image embeddings: what a recipe needs is found, checked and told together; a stranger's file is numbers."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load, save
from safetensors.torch import save_file

from counterfoil.errors import UserError
from counterfoil.generate import image_embeddings
from counterfoil.generate.image_embeddings import embeddings_file, read_image_embeddings
from counterfoil.recipe import Recipe, load_recipe

TWO = "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag, source_label: 8}]"
RNG = np.random.default_rng(3)


def recipe_of(file: Path, *changes: str) -> Recipe:
    drawn = f"prompts.shifts.red.embedding={{file: {file}, key: '{{class_id}}_hard'}}"
    return load_recipe("wardrobe-mini", [TWO, "tokens=null", drawn, *changes])


def vectors(*keys: str, width: int = 16) -> dict[str, Any]:
    return {key: RNG.normal(size=width).astype(np.float32) for key in keys}


def write(path: Path, tensors: dict[str, Any]) -> Path:
    path.write_bytes(save(tensors))
    return path


def problems(recipe: Recipe) -> str:
    with pytest.raises(UserError) as refused:
        read_image_embeddings(recipe)
    return "\n".join(refused.value.problems)


def test_each_cell_gets_its_own_vector_and_no_other_cell_any(tmp_path: Path) -> None:
    held = vectors("05_hard", "08_hard", "unused")
    found = read_image_embeddings(recipe_of(write(tmp_path / "v.safetensors", held)))
    assert found is not None and found.width == 16
    np.testing.assert_array_equal(found.of("red", "08"), held["08_hard"])
    assert found.of("base", "08") is None and found.of("red", "00") is None
    assert read_image_embeddings(load_recipe("wardrobe-mini")) is None


def test_a_dataset_keeps_what_it_used_and_reads_it_back_as_pinned(tmp_path: Path) -> None:
    file = write(tmp_path / "v.safetensors", vectors("05_hard", "08_hard", "unused"))
    other = write(tmp_path / "w.safetensors", {"05_hard": np.ones(16, np.float32)})
    recipe = recipe_of(file, f"prompts.base.embedding={{file: {other}, key: 05_hard}}")
    found = read_image_embeddings(recipe)
    assert found is not None
    dataset = tmp_path / "dataset"
    dataset.mkdir()
    (dataset / "recipe.yaml").write_text(recipe.portable_yaml)
    (dataset / "lock.json").write_text("{}")
    (dataset / "embeddings.safetensors").write_bytes(found.content())
    assert set(load(found.content())) == {"base", "red/05", "red/08"}
    again = read_image_embeddings(load_recipe(dataset))
    assert again is not None
    assert again.hashes() == found.hashes() and again.content() == found.content()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_point_of_any_width_is_read_as_torch_reads_it(tmp_path: Path, kind: torch.dtype) -> None:
    held = {key: torch.from_numpy(value).to(kind) for key, value in vectors("05_hard", "08_hard").items()}
    save_file(held, tmp_path / "v.safetensors")
    found = read_image_embeddings(recipe_of(tmp_path / "v.safetensors"))
    assert found is not None
    np.testing.assert_array_equal(found.of("red", "05"), held["05_hard"].float().numpy())


@pytest.mark.parametrize(
    ("tensor", "told"),
    [
        (np.full(16, np.nan, np.float32), "not finite"),
        (np.full(16, 1e300), "not finite"),
        (np.zeros(16, np.float32), "all 0"),
        (np.ones((1, 16), np.float32), r"shape \[1, 16\], expected one vector"),
        (np.ones(16, np.int64), "I64"),
        (np.ones(0, np.float32), r"shape \[0\]"),
        (np.ones(70_000, np.float32), "at most 65,536"),
        (np.ones(17, np.float32), r"several widths: 17 .* and 16"),
    ],
)
def test_what_is_no_vector_is_told_by_its_key(tmp_path: Path, tensor: Any, told: str) -> None:
    file = write(tmp_path / "v.safetensors", {"05_hard": tensor, **vectors("08_hard")})
    with pytest.raises(UserError, match=told):
        read_image_embeddings(recipe_of(file))


def test_every_problem_is_told_at_once_with_the_nearest_key(tmp_path: Path) -> None:
    file = write(tmp_path / "v.safetensors", vectors("08_hart") | {"05_hard": np.full(16, np.inf, np.float32)})
    told = problems(recipe_of(file, f"prompts.base.embedding={{file: {tmp_path / 'none.safetensors'}}}"))
    assert "prompts.shifts.red.embedding: no '08_hard' in v.safetensors; did you mean '08_hart'?" in told
    assert "'05_hard' in v.safetensors holds numbers that are not finite" in told
    assert "prompts.base.embedding.file" in told and "No such file" in told


def test_a_strangers_file_is_numbers_alone_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Payload:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    (tmp_path / "pickle").write_bytes(pickle.dumps(Payload()))
    (tmp_path / "empty").write_bytes(save({}))
    head = b'{"05_hard":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
    (tmp_path / "lies").write_bytes(len(head).to_bytes(8, "little") + head)
    (tmp_path / "endless").write_bytes((2**62).to_bytes(8, "little") + b"{")
    os.mkfifo(tmp_path / "pipe")
    for name, told in {"pickle": "not a readable", "empty": "holds no vector", "lies": "not a readable",
                       "endless": "not a readable", "pipe": "is a pipe", ".": "is a folder"}.items():  # fmt: skip
        assert told in problems(recipe_of(tmp_path / name)), name
    assert not (tmp_path / "ran").exists()
    file = write(tmp_path / "v.safetensors", vectors("05_hard", "08_hard"))
    monkeypatch.setattr(image_embeddings, "MOST_BYTES", 100)
    assert "expected at most 100" in problems(recipe_of(file))


def test_equal_vectors_are_equal_bytes() -> None:
    held = vectors("b", "a")
    assert embeddings_file(held) == embeddings_file(dict(reversed(held.items())))

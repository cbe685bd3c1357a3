"""Released tokens imported: bare tensors of a zip or a folder, of the right width, read safely."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from counterfoil.building.token_import import import_tokens
from counterfoil.errors import UserError
from counterfoil.generate.token_files import read_token_file
from counterfoil.generate.tokens import read_token_folder
from counterfoil.recipe import Recipe, load_recipe
from tiny_builds import CLASSES

LABELS = {"00": 0, "05": 5, "08": 8}


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return load_recipe("wardrobe-mini", [CLASSES])


def _saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    return {f"{label}.bin": torch.randn(128, generator=torch.Generator().manual_seed(label)) for label in range(10)}


def _folder(place: Path, files: dict[str, bytes]) -> Path:
    place.mkdir()
    for name, content in files.items():
        (place / name).write_bytes(content)
    return place


def _archive(place: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(place.with_suffix(".zip"), "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tokens/{name}", content)
    return place.with_suffix(".zip")


@pytest.mark.parametrize("pack", [_folder, _archive])
def test_each_class_gets_the_tensor_of_its_source_label(
    pack: Callable[[Path, dict[str, bytes]], Path], tensors: dict[str, torch.Tensor], recipe: Recipe, tmp_path: Path
) -> None:
    source = pack(tmp_path / "released", {name: _saved(tensor) for name, tensor in tensors.items()})
    result = import_tokens(recipe, source, tmp_path / "out")
    assert set(result.losses) == set(LABELS)
    for class_id, label in LABELS.items():
        token = read_token_file(tmp_path / "out" / f"{class_id}.safetensors")
        assert torch.equal(token.vectors[0][0], tensors[f"{label}.bin"])
    assert read_token_folder(recipe, tmp_path / "out").placeholders["05"] == "<sandal-05>"


def test_everything_wrong_is_said_at_once(tensors: dict[str, torch.Tensor], recipe: Recipe, tmp_path: Path) -> None:
    files = {"0.bin": _saved(torch.zeros(1024)), "5.bin": _saved(torch.full((128,), float("nan")))}
    with pytest.raises(UserError) as refused:
        import_tokens(recipe, _folder(tmp_path / "released", files), tmp_path / "out")
    said = "\n".join(refused.value.problems)
    assert "0.bin: width 1024, expected 128 by lab:sd's text encoder" in said
    assert "5.bin holds numbers that are not finite" in said
    assert "has no 8.bin" in said
    assert not (tmp_path / "out").exists()


class _Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return (print, ("this ran",))


@pytest.mark.parametrize("content", [pickle.dumps(_Evil()), _saved(_Evil()), b"no tensor", _saved([1, 2]), b""])
def test_what_is_no_tensor_is_refused_and_never_run(
    content: bytes, tensors: dict[str, torch.Tensor], recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: _saved(tensor) for name, tensor in tensors.items()} | {"5.bin": content}
    with pytest.raises(UserError, match=r"5\.bin"):
        import_tokens(recipe, _folder(tmp_path / "released", files), tmp_path / "out")
    assert "this ran" not in capsys.readouterr().out


def test_no_archive_and_no_folder(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        import_tokens(recipe, tmp_path / "gone.zip", tmp_path / "out")
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(UserError, match="no readable zip"):
        import_tokens(recipe, tmp_path / "text.zip", tmp_path / "out")

"""Released tokens imported: bare tensors of a zip or a folder, of the right width, read safely."""

from __future__ import annotations

import io
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.tokens.class_tokens import read_token_file, read_token_folder
from counterfoil.tokens.import_tokens import import_tokens
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


def _packed(content: bytes) -> bytes:
    """A file of torch whose parts are packed."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(io.BytesIO(content)) as whole, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
            for part in whole.infolist():
                packed.writestr(part.filename, whole.read(part))
        return file.getvalue()


ODD: dict[str, tuple[bytes, str]] = {
    "512 GB in a few bytes": (_saved(torch.zeros(1).expand(10**9, 128)), "holds 1,000,000,000 vectors, expected 1 to"),
    "more than a token has": (_saved(torch.zeros(33, 128)), "holds 33 vectors"),
    "no vector": (_saved(torch.zeros(0, 128)), "holds 0 vectors"),
    "numbers kept apart": (_saved(torch.zeros(128).to_sparse()), "holds no vector"),
    "numbers nowhere": (_saved(torch.zeros(2, 128, device="meta")), "holds no vector"),
    "a tensor of more bytes than it shows": (_saved(torch.zeros(2_000_000)[:128]), "bytes, which no class token has"),
    "packed parts": (_packed(_saved(torch.zeros(2_000_000)[:128])), "is not a tensor that can be read safely"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_tensor_is_no_larger_than_a_token_before_it_takes_memory(case: str, recipe: Recipe, tmp_path: Path) -> None:
    content, said = ODD[case]
    files = {f"{label}.bin": _saved(torch.zeros(128)) for label in range(10)} | {"5.bin": content}
    with pytest.raises(UserError) as refused:
        import_tokens(recipe, _folder(tmp_path / "released", files), tmp_path / "out")
    assert len(refused.value.problems) == 1
    assert "5.bin" in refused.value.problems[0]
    assert said in refused.value.problems[0]


def _one_member(place: Path, content: bytes, packed: int, change: Callable[[bytearray], object]) -> Path:
    """A zip of 0.bin alone, packed so, and then changed."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", packed) as archive:
            archive.writestr("0.bin", content)
        whole = bytearray(file.getvalue())
    change(whole)
    place.write_bytes(whole)
    return place


def test_an_archive_that_is_damaged_or_packed_without_bound_is_told(recipe: Recipe, tmp_path: Path) -> None:
    token = _saved(torch.randn(128))

    def damage(whole: bytearray) -> None:
        whole[60:200] = b"\xff" * 140

    def lie(whole: bytearray) -> None:  # the directory at the end says that it is small
        at = whole.index(b"PK\x01\x02") + 24
        whole[at : at + 4] = (100).to_bytes(4, "little")

    odd = [
        (token, zipfile.ZIP_DEFLATED, damage),
        (token, zipfile.ZIP_BZIP2, lambda whole: None),
        (token, zipfile.ZIP_LZMA, lambda whole: None),
        (b"\0" * 300_000_000, zipfile.ZIP_DEFLATED, lie),
    ]
    for number, (content, packed, change) in enumerate(odd):
        archive = _one_member(tmp_path / f"{number}.zip", content, packed, change)
        tracemalloc.start()
        try:
            with pytest.raises(CounterfoilError, match=r"0\.bin"):
                import_tokens(recipe, archive, tmp_path / "out")
            assert tracemalloc.get_traced_memory()[1] < 100_000_000
        finally:
            tracemalloc.stop()


def test_no_archive_and_no_folder(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        import_tokens(recipe, tmp_path / "gone.zip", tmp_path / "out")
    (tmp_path / "text.zip").write_text("not a zip")
    with pytest.raises(UserError, match="no readable zip"):
        import_tokens(recipe, tmp_path / "text.zip", tmp_path / "out")

"""Builds with class tokens: they reach the prompts and the workers, and travel with the dataset."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import save_file

from counterfoil.building import build
from counterfoil.errors import UserError
from counterfoil.models.diffusion import load_pipeline
from counterfoil.store.reading import read_rows
from tiny_builds import images, published, tiny

NAMES = {"00": "t-shirt", "05": "sandal", "08": "bag"}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token for each class that holds the vectors of its very name; one, or three of them."""
    folder = tmp_path_factory.mktemp("learned")
    pipeline = load_pipeline("lab:sd", dtype="float32")
    vocabulary = pipeline.text_encoder.get_input_embeddings().weight
    for class_id, name in NAMES.items():
        ids = pipeline.tokenizer(name, add_special_tokens=False)["input_ids"]
        save_file({f"<class-{class_id}>": vocabulary[ids].detach().clone()}, folder / f"{class_id}.safetensors")
    return folder


@pytest.fixture(scope="module")
def with_tokens(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tokens") / "dataset"
    tiny(out, f"tokens.path={tokens}", workers=2)
    return out


def test_tokens_of_the_names_render_what_the_names_do(undisturbed: Path, with_tokens: Path) -> None:
    prompts = {row["class_id"]: row["prompt"] for row in read_rows(with_tokens, groups=["base"])}
    assert prompts == {class_id: f"a photo of a <class-{class_id}>" for class_id in NAMES}
    assert images(with_tokens) == images(undisturbed)


def test_tokens_travel_with_the_dataset(tokens: Path, with_tokens: Path, tmp_path: Path) -> None:
    files = published(with_tokens)
    for class_id in NAMES:
        name = f"{class_id}.safetensors"
        assert files[f"tokens/{name}"] == (tokens / name).read_bytes()
    assert not [path for path, content in files.items() if str(tokens).encode() in content]
    # The directory's own recipe, with its tokens, is enough to make it again.
    build(with_tokens, tmp_path / "again", device="cpu", workers=1)
    assert published(tmp_path / "again") == files


def test_other_tokens_are_refused_in_the_same_directory(tokens: Path, with_tokens: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(tokens, tmp_path / "other"))
    pipeline = load_pipeline("lab:sd", dtype="float32")
    vectors = pipeline.text_encoder.get_input_embeddings().weight[[5]].detach().clone()
    save_file({"<class-08>": vectors}, other / "08.safetensors")
    with pytest.raises(UserError) as refused:
        tiny(with_tokens, f"tokens.path={other}")
    assert "tokens.08" in "\n".join(refused.value.problems)

"""Class tokens: read from a folder, added to the vocabulary, and used in prompts in place of the names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from counterfoil.errors import UserError
from counterfoil.generate import Renderer
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import make_plan
from counterfoil.recipe import Recipe
from counterfoil.tokens.class_tokens import ClassTokens, read_class_tokens

MakeRecipe = Callable[..., Recipe]
TWO = "source.classes=[{id: bag, name: bag, source_label: 8}, {id: boot, name: ankle boot, source_label: 9}]"


def _vectors(pipeline: Any, words: str) -> torch.Tensor:
    """The vocabulary's own vectors of some words, [n, width]."""
    ids = pipeline.tokenizer(words, add_special_tokens=False)["input_ids"]
    return pipeline.text_encoder.get_input_embeddings().weight[ids].detach().clone()


def _write(folder: Path, tokens: dict[str, tuple[str, torch.Tensor]]) -> Path:
    folder.mkdir(parents=True)
    for class_id, (placeholder, vectors) in tokens.items():
        save_file({placeholder: vectors.contiguous()}, folder / f"{class_id}.safetensors")
    return folder


@pytest.fixture(scope="module")
def folder(pipeline: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tokens that stand for the very words: one vector for the bag, two for the ankle boot."""
    tokens = {"bag": ("<the-bag>", _vectors(pipeline, "bag")), "boot": ("<the-boot>", _vectors(pipeline, "ankle boot"))}
    assert [len(vectors) for _, vectors in tokens.values()] == [1, 2]
    return _write(tmp_path_factory.mktemp("tokens") / "tokens", tokens)


@pytest.fixture(scope="module")
def tokens(folder: Path, make_recipe: MakeRecipe) -> ClassTokens:
    found = read_class_tokens(make_recipe(TWO, f"tokens.path={folder}"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def with_tokens(tokens: ClassTokens) -> Any:
    return load_pipeline("lab:sd", dtype="float32", tokens=tokens.by_placeholder())


def test_files_are_read_as_they_are(tokens: ClassTokens, folder: Path) -> None:
    assert dict(tokens.placeholders) == {"bag": "<the-bag>", "boot": "<the-boot>"}
    assert tokens.files["boot"] == (folder / "boot.safetensors").read_bytes()
    assert len(set(tokens.hashes().values())) == 2
    assert tokens.vectors["boot"][0].shape[0] == 2


def test_a_parent_folder_with_tokens_in_it_will_do(folder: Path, tokens: ClassTokens, make_recipe: MakeRecipe) -> None:
    found = read_class_tokens(make_recipe(TWO, f"tokens.path={folder.parent}"))
    assert found is not None
    assert found.files == tokens.files
    assert read_class_tokens(make_recipe(TWO)) is None


def test_tokens_of_the_words_encode_as_the_words(
    pipeline: Any, with_tokens: Any, tokens: ClassTokens, make_recipe: MakeRecipe
) -> None:
    by_name, by_token = Renderer(pipeline, make_recipe(TWO)), Renderer(with_tokens, make_recipe(TWO))
    for name, placeholder in (("bag", "<the-bag>"), ("ankle boot", "<the-boot>")):
        for prompt in ("a photo of a {}", "a photo of a {} in the snow", "{}"):
            expected = by_name.encode(prompt.format(name))["prompt_embeds"]
            found = by_token.encode(prompt.format(placeholder))["prompt_embeds"]
            assert torch.equal(found, expected), prompt
    other = by_token.encode("a photo of a <the-boat>")["prompt_embeds"]
    assert not torch.equal(other, by_token.encode("a photo of a <the-boot>")["prompt_embeds"])


def test_prompts_with_tokens_render_from_their_vectors(
    pipeline: Any, with_tokens: Any, tokens: ClassTokens, make_recipe: MakeRecipe, folder: Path
) -> None:
    recipe = make_recipe(TWO, f"tokens.path={folder}")
    by_token, by_name = make_plan(recipe, tokens.placeholders), make_plan(make_recipe(TWO))
    for place in (0, 2):
        samples = list(by_token.shards[place].samples(by_token))
        named = list(by_name.shards[place].samples(by_name))
        assert ["<the-bag>" in str(samples[0].prompt), "<the-boot>" in str(samples[1].prompt)] == [True, True]
        assert [sample.seed for sample in samples] == [sample.seed for sample in named]
        found = Renderer(with_tokens, recipe).render(samples)
        for image, expected in zip(found, Renderer(pipeline, make_recipe(TWO)).render(named), strict=True):
            np.testing.assert_array_equal(image, expected)


def test_missing_tokens_are_named(tmp_path: Path, folder: Path, make_recipe: MakeRecipe) -> None:
    three = TWO.replace("]", ", {id: dress, name: dress, source_label: 3}]")
    with pytest.raises(UserError, match=r"no dress\.safetensors"):
        read_class_tokens(make_recipe(three, f"tokens.path={folder}"))
    with pytest.raises(UserError, match="no folder"):
        read_class_tokens(make_recipe(TWO, f"tokens.path={tmp_path / 'gone'}"))


def test_learning_is_not_reading(make_recipe: MakeRecipe) -> None:
    with pytest.raises(ValueError, match=r"tokens\.learn"):
        read_class_tokens(make_recipe(TWO, "tokens={learn: {}}"))


def test_tokens_for_another_text_encoder_are_refused() -> None:
    with pytest.raises(UserError, match=r"<wide>: width 768, expected 128"):
        load_pipeline(
            "lab:sd", dtype="float32", tokens={"<wide>": (torch.zeros(2, 768),), "<right>": (torch.zeros(1, 128),)}
        )


@pytest.mark.parametrize("word", ["bag</w>", "<|endoftext|>"])
def test_a_placeholder_that_is_a_word_already_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="already in the vocabulary") as refused:
        load_pipeline("lab:sd", dtype="float32", tokens={word: (torch.zeros(1, 128),)})
    assert repr(word) in refused.value.problems[0]


@pytest.mark.parametrize("damage", ["shared", "several", "text"])
def test_files_that_are_no_token_are_refused(damage: str, tmp_path: Path, make_recipe: MakeRecipe) -> None:
    ones = torch.ones(1, 128)
    names = {"bag": "<it>", "boot": "<it>" if damage == "shared" else "<boot>"}
    folder = _write(tmp_path / "tokens", {class_id: (name, ones) for class_id, name in names.items()})
    if damage == "several":
        save_file({"<a>": ones, "<b>": torch.zeros(1, 128)}, folder / "boot.safetensors")
    if damage == "text":
        (folder / "boot.safetensors").write_text("no tensors here")
    said = {"shared": "share a placeholder", "several": "2 tensors", "text": "not a readable safetensors file"}
    with pytest.raises(UserError, match=said[damage]):
        read_class_tokens(make_recipe(TWO, f"tokens.path={folder}"))

"""Class tokens load into the CLIP encoders of the families that say so, and into no other generator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import miniature_pipelines as miniature
import modern_pipelines as modern
from counterfoil.errors import UserError
from counterfoil.generate import Renderer
from counterfoil.models.diffusion import load_pipeline, load_tokenizers, pipeline_family, text_widths
from counterfoil.recipe import Recipe
from counterfoil.tokens.learn_tokens import learn_tokens

MakeRecipe = Callable[..., Recipe]
TAKERS = {
    "SD 1": (miniature.stable_diffusion_1, 1), "XL": (miniature.stable_diffusion_xl, 2), "FLUX.1": (modern.flux, 1),
    "unCLIP": (miniature.stable_unclip, 1),
}  # fmt: skip
OTHERS = [
    modern.stable_diffusion_3, modern.qwen_image, modern.z_image, modern.sana, modern.pixart, modern.lumina_2,
    miniature.kandinsky,
]  # fmt: skip


def _vectors(tokenizer: Any, encoder: Any, words: str) -> torch.Tensor:
    ids = tokenizer(words, add_special_tokens=False)["input_ids"]
    return encoder.get_input_embeddings().weight[ids].detach().clone()


@pytest.mark.parametrize("name", TAKERS)
def test_tokens_of_the_words_encode_as_the_words(name: str, tmp_path: Path, make_recipe: MakeRecipe) -> None:
    make, encoders = TAKERS[name]
    torch.manual_seed(1)
    make().save_pretrained(tmp_path / "model")
    model = f"local-dir:{tmp_path / 'model'}"
    assert pipeline_family(model)[0].takes_tokens
    assert text_widths(model) == [miniature.WIDTH] * encoders
    assert len(load_tokenizers(model)) == encoders
    by_name = load_pipeline(model, dtype="float32")
    sides = [(by_name.tokenizer, by_name.text_encoder)]
    sides += [(by_name.tokenizer_2, by_name.text_encoder_2)] if encoders == 2 else []
    tokens = {
        placeholder: tuple(_vectors(*side, words) for side in sides)
        for placeholder, words in (("<the-bag>", "bag"), ("<the-boot>", "ankle boot"))
    }
    assert len(tokens["<the-boot>"][0]) == 2
    by_token = load_pipeline(model, dtype="float32", tokens=tokens)
    recipe = make_recipe("generator.guidance=1")
    # T5 reads a placeholder's letters, whatever was learned.
    outputs = ["pooled_prompt_embeds"] if name == "FLUX.1" else ["prompt_embeds"]
    for words, placeholder in (("bag", "<the-bag>"), ("ankle boot", "<the-boot>")):
        expected = Renderer(by_name, recipe).encode(f"a photo of a {words} in the snow")
        found = Renderer(by_token, recipe).encode(f"a photo of a {placeholder} in the snow")
        unknown = Renderer(by_name, recipe).encode(f"a photo of a {placeholder} in the snow")
        for output in outputs:
            assert torch.equal(found[output], expected[output]), words
            assert not torch.equal(found[output], unknown[output])
        if name == "FLUX.1":
            assert torch.equal(found["prompt_embeds"], unknown["prompt_embeds"])


@pytest.mark.parametrize("make", OTHERS)
def test_a_generator_without_is_told_before_its_weights_load(make: Callable[[], Any], tmp_path: Path) -> None:
    make().save_pretrained(tmp_path / "model")
    model = f"local-dir:{tmp_path / 'model'}"
    assert not pipeline_family(model)[0].takes_tokens
    for file in (tmp_path / "model").rglob("*.safetensors"):
        file.unlink()
    with pytest.raises(UserError, match="no class tokens load"):
        load_pipeline(model, tokens={"<bag>": (torch.zeros(1, miniature.WIDTH),)})


@pytest.mark.parametrize(("make", "hint"), [(modern.flux, "learned for its CLIP"), (modern.sana, "`tokens: null`")])
def test_learning_with_another_architecture_is_told_before_anything_is_learned(
    make: Callable[[], Any], hint: str, tmp_path: Path, make_recipe: MakeRecipe
) -> None:
    make().save_pretrained(tmp_path / "model")
    recipe = make_recipe(
        f"generator.model=local-dir:{tmp_path / 'model'}", "tokens={path: null, learn: {steps: 3}}",
        "source.classes=[{id: bag, name: bag, source_label: 8}]",
    )  # fmt: skip
    with pytest.raises(UserError, match="with which no class tokens are learned") as caught:
        learn_tokens(recipe, tmp_path / "tokens", device="cpu")
    assert hint in str(caught.value)

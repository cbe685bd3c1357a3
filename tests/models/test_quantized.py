"""Weights in fewer bits: which parts, what an absent library is told by, and what the stack says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.engines import LocalEngine
from counterfoil.engines.stack import stack_where_done
from counterfoil.errors import UserError
from counterfoil.models.devices import libraries_of, quantize_problem, quantized_parts, stack_of
from counterfoil.models.diffusion import load_pipeline
from counterfoil.recipe import load_recipe
from miniature_pipelines import stable_diffusion_2

HAS_TORCHAO = util.find_spec("torchao") is not None
FLUX = {
    "_class_name": "FluxPipeline",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "text_encoder_2": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "FluxTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "image_encoder": [None, None],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("sd2")
    stable_diffusion_2().save_pretrained(place)
    return place


def test_what_draws_and_large_text_encoders_are_quantised() -> None:
    assert set(quantized_parts(FLUX)) == {"transformer", "text_encoder_2"}
    sana = {"text_encoder": ["transformers", "Gemma2Model"], "transformer": ["diffusers", "SanaTransformer2DModel"]}
    assert set(quantized_parts(sana)) == {"text_encoder", "transformer"}


def test_of_a_stable_diffusion_it_is_the_unet(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    assert quantized_parts(index) == ("unet",)


@pytest.mark.parametrize(
    ("quantize", "package", "extra"),
    [("bnb-8bit", "bitsandbytes", "bnb"), ("bnb-4bit", "bitsandbytes", "bnb"), ("torchao-int8", "torchao", "torchao")],
)
def test_an_absent_library_is_told_by_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, folder: Path, quantize: str, package: str, extra: str
) -> None:
    known = metadata.version

    def version(name: str) -> str:
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    told = quantize_problem(quantize)
    assert told is not None and told.endswith(f"pip install 'counterfoil[{extra}]'") and package in told
    with pytest.raises(UserError, match=rf"pip install 'counterfoil\[{extra}\]'"):
        load_pipeline(f"local-dir:{folder}", quantize=quantize)


def test_the_extras_are_declared() -> None:
    extras = metadata.metadata("counterfoil").get_all("Provides-Extra") or []
    if "bnb" not in extras:
        pytest.skip("an installation from before there were these extras")
    assert {"bnb", "torchao"} <= set(extras)


def test_bitsandbytes_needs_a_gpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.50")
    told = quantize_problem("bnb-4bit", "cpu")
    assert told is not None and "needs a GPU" in told and "torchao-int8" in told
    assert quantize_problem("bnb-4bit", "cuda:1") is None
    assert quantize_problem("bnb-4bit") is None, "where it is rendered is not known yet"
    assert quantize_problem("torchao-int8", "cpu") is None
    assert quantize_problem(None, "cpu") is None


def test_a_library_is_of_the_stack_only_where_it_is_used() -> None:
    generator = load_recipe("quickstart").generator
    assert libraries_of(generator) == ()
    assert libraries_of(replace(generator, quantize="bnb-8bit")) == ("bitsandbytes",)
    plain = stack_of("cpu", "float32", 4)
    assert plain == stack_of("cpu", "float32", 4, ())
    assert not {"torchao", "bitsandbytes"} & set(plain["versions"])
    # Any package that is installed shows that its version is taken.
    with_it = stack_of("cpu", "float32", 4, ("pyyaml",))
    assert with_it["versions"] == plain["versions"] | {"pyyaml": metadata.version("pyyaml")}


def test_the_stack_of_a_lock_is_measured_with_it_too() -> None:
    measured = stack_where_done(LocalEngine(), "cpu", "float32", 4, ("pyyaml",))
    assert measured["versions"]["pyyaml"] == metadata.version("pyyaml")


@pytest.mark.skipif(not HAS_TORCHAO, reason="torchao is an extra that is not installed")
def test_torchao_keeps_the_unet_in_eight_bits_and_draws_alike(folder: Path) -> None:
    plain, small = (
        load_pipeline(f"local-dir:{folder}", dtype="float32", quantize=quantize) for quantize in (None, "torchao-int8")
    )

    def weight(pipeline: Any) -> torch.Tensor:
        return pipeline.unet.mid_block.attentions[0].transformer_blocks[0].attn1.to_q.weight

    assert type(weight(small)).__name__ != type(weight(plain)).__name__
    assert "Int8" in type(weight(small)).__name__
    images = [
        pipeline(
            "a bag",
            num_inference_steps=2,
            generator=[torch.Generator("cpu").manual_seed(3)],
            output_type="pt",
        ).images
        for pipeline in (plain, small, small)
    ]
    assert torch.equal(images[1], images[2])
    assert not torch.equal(images[0], images[1])
    assert torch.allclose(images[0], images[1], atol=0.05)

"""Weights compute the same numbers wherever a file's layout puts them in memory."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from counterfoil.generate.render import Renderer
from counterfoil.lab.scenes import load_wardrobe
from counterfoil.models.adapters import load_adapter
from counterfoil.models.captioners import load_captioner
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.loras import load_loras, pin_lora
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.models.weights_files import align_weights, read_safetensors
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.recipe.kinds.diffusers import Lora
from miniature_pipelines import stable_diffusion_xl
from support.loras import saved_lora

LONGER_BY = (8, 24)


def with_longer_heads(folder: Path, copy: Path, by: int) -> Path:
    """Return a copy whose safetensors files hold the same tensors, each that many bytes further
    back."""
    shutil.copytree(folder, copy)
    for file in copy.rglob("*.safetensors"):
        content = file.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        head = content[8 : 8 + length] + b" " * by
        file.write_bytes(struct.pack("<Q", len(head)) + head + content[8 + length :])
        assert json.loads(head)
    return copy


def misplaced(module: nn.Module) -> list[str]:
    return [
        name
        for name, tensor in module.state_dict().items()
        if tensor.numel() and tensor.data_ptr() % 64
    ]


def parts(pipeline: Any) -> Iterator[nn.Module]:
    return (part for part in pipeline.components.values() if isinstance(part, nn.Module))


def pictures(seed: int = 3) -> list[Image.Image]:
    _, pixels = load_wardrobe("validation")
    return [Image.fromarray(pixels(row)) for row in range(seed, seed + 6)]


def drawn(folder: Path) -> bytes:
    pipeline = load_pipeline(f"local-dir:{folder}", dtype="float32")
    assert not [name for part in parts(pipeline) for name in misplaced(part)]
    generator = (
        f"generator={{model: 'local-dir:{folder}', steps: 2, guidance: 3.0, batch_size: 2,"
        " dtype: float32}"
    )
    recipe = load_recipe("wardrobe-mini", [generator, "tokens=null", "samples.candidates=2"])
    plan = make_plan(recipe)
    images = Renderer(pipeline, recipe).render(list(plan.samples(next(plan.cells()))))
    return b"".join(image.tobytes() for image in images if image is not None)


def scored(name: str) -> bytes:
    model = load_classifier(name)
    assert not misplaced(model.module)
    batch = torch.stack([model.transform()(picture) for picture in pictures()])
    return model.logits(batch, "cpu").numpy().tobytes()


def seen_by_clip(folder: Path) -> bytes:
    clip = load_clip(f"local-dir:{folder}")
    assert not misplaced(clip.module)
    with torch.inference_mode():
        return (
            clip.module.encode_image(torch.stack([clip.preprocess(image) for image in pictures()]))
            .numpy()
            .tobytes()
        )


def captioned(folder: Path) -> bytes:
    captioner = load_captioner(f"local-dir:{folder}")
    assert not misplaced(captioner.module)
    captions = ["a photo of a sandal in the snow", "a photo of a coat"]
    return b"".join(
        np.asarray(captioner.log_likelihoods(picture, captions)[0]).tobytes()
        for picture in pictures()
    )


def vision_transformer(folder: Path) -> Path:
    """Save a transformers classifier, whose weights are mapped from their file."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=36, num_hidden_layers=2, num_attention_heads=2, intermediate_size=60, image_size=32, patch_size=8,
        id2label={0: "a", 1: "b", 2: "c"}, label2id={"a": 0, "b": 1, "c": 2},
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def diffusion_pipeline(folder: Path) -> Path:
    torch.manual_seed(0)
    stable_diffusion_xl().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("make", "compute"),
    [
        pytest.param(diffusion_pipeline, drawn, id="generator"),
        pytest.param(
            vision_transformer, lambda folder: scored(f"transformers:{folder}"), id="transformers"
        ),
        pytest.param(
            lambda _: LAB_WEIGHTS / "vit_tiny_patch8",
            lambda path: scored(f"local-dir:{path}"),
            id="timm",
        ),
        pytest.param(lambda _: LAB_WEIGHTS / "clip", seen_by_clip, id="clip"),
        pytest.param(lambda _: LAB_WEIGHTS / "captioner", captioned, id="captioner"),
    ],
)
def test_a_file_with_a_longer_head_computes_the_same_bytes(
    make: Callable[[Path], Path], compute: Callable[[Path], bytes], tmp_path: Path
) -> None:
    folder = make(tmp_path / "as saved")
    expected = compute(folder)
    for by in LONGER_BY:
        assert compute(with_longer_heads(folder, tmp_path / f"by {by}", by)) == expected, by


def test_adapters_and_loras_lie_as_their_generators_weights_do(tmp_path: Path) -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    lora = saved_lora(pipeline, tmp_path / "lora", ["attn2.to_q", "attn2.to_v"])
    adapter = with_longer_heads(LAB_WEIGHTS / "decoder", tmp_path / "adapter", 24)
    loras = with_longer_heads(lora.parent, tmp_path / "longer", 24)
    named = Lora(path=str(loras / lora.name))
    with load_adapter(pipeline, f"local-dir:{adapter}").used():
        assert not [name for part in parts(pipeline) for name in misplaced(part)]
    load_loras(pipeline, {"snow": named}, {"snow": pin_lora("snow", named).document()})
    assert not [name for part in parts(pipeline) for name in misplaced(part)]


def test_tensors_are_moved_and_not_changed(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {name: torch.randn(size) for name, size in (("a", 3), ("b", 7), ("c", 1000))} | {
        "d": torch.empty(0)
    }
    save_file(tensors, tmp_path / "model.safetensors")
    (longer,) = with_longer_heads(tmp_path, tmp_path / "longer", 8).glob("*.safetensors")
    assert any(tensor.data_ptr() % 64 for tensor in load_file(longer).values()), (
        "or this test could not fail"
    )
    read = read_safetensors(longer)
    assert read.keys() == tensors.keys()
    for name, tensor in read.items():
        torch.testing.assert_close(tensor, tensors[name], rtol=0, atol=0)
        assert not tensor.numel() or tensor.data_ptr() % 64 == 0


def test_what_is_shared_stays_shared() -> None:
    """Shared weights are moved once, and both layers have them."""
    storage = torch.randn(65)
    first = nn.Linear(8, 8, bias=False)
    second = nn.Linear(8, 8, bias=False)
    first.weight = nn.Parameter(storage[1:].view(8, 8))
    second.weight = first.weight
    module = nn.Sequential(first, second)
    assert misplaced(module)
    align_weights(module)
    assert not misplaced(module) and first.weight is second.weight
    torch.testing.assert_close(first.weight.data, storage[1:].view(8, 8), rtol=0, atol=0)

"""What is set on a GPU, as far as a CPU can tell: the layout changes no picture, and settings end with the work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from counterfoil.models import devices
from counterfoil.models.devices import stack_of
from counterfoil.models.diffusion import load_pipeline


def _draw(pipeline: Any) -> Any:
    return pipeline(
        ["a photo of a bag"] * 2,
        generator=[torch.Generator().manual_seed(seed) for seed in (1, 2)],
        num_inference_steps=2, guidance_scale=3.0, output_type="np",
    ).images  # fmt: skip


def test_the_layout_is_turned_and_draws_the_same() -> None:
    plain, turned = (load_pipeline("lab:sd", dtype="float32") for _ in range(2))
    devices.channels_last(turned)
    for part in (turned.unet, turned.vae):
        layouts = [
            weights.is_contiguous(memory_format=torch.channels_last)
            for weights in part.parameters()
            if weights.ndim == 4
        ]
        assert layouts and all(layouts)
    assert np.abs(_draw(turned) - _draw(plain)).max() < 1e-3


def test_what_convolves_over_time_stays_as_it_is() -> None:
    class Held:
        vae = torch.nn.Conv3d(2, 2, 3)
        unet = None

    before = Held.vae.weight.stride()
    devices.channels_last(Held())
    assert Held.vae.weight.stride() == before


def test_on_a_cpu_nothing_is_set_or_told() -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    wide = [weights for weights in pipeline.unet.parameters() if weights.ndim == 4 and min(weights.shape[1:]) > 1]
    assert wide and not any(weights.is_contiguous(memory_format=torch.channels_last) for weights in wide)
    before = torch.get_float32_matmul_precision()
    with devices.computing_on("cpu"):
        assert torch.get_float32_matmul_precision() == before
    assert "arithmetic" not in stack_of("cpu", "float32", 4)
    assert devices.arithmetic("cuda:1") == devices.arithmetic("cuda") != {}


def test_settings_end_with_the_work() -> None:
    cudnn = torch.backends.cudnn
    kept = torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic
    try:
        torch.set_float32_matmul_precision("highest")
        cudnn.benchmark, cudnn.deterministic = True, False
        with pytest.raises(ZeroDivisionError), devices.reproducible():
            assert torch.get_float32_matmul_precision() == "high"
            assert (cudnn.benchmark, cudnn.deterministic) == (False, True)
            _ = 1 / 0
        assert torch.get_float32_matmul_precision() == "highest"
        assert (cudnn.benchmark, cudnn.deterministic) == (True, False)
    finally:
        torch.set_float32_matmul_precision(kept[0])
        cudnn.benchmark, cudnn.deterministic = kept[1:]

"""IP-Adapters of strangers: heads are judged first, other forms are refused, and nothing but
safetensors is read."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.adapters import ADAPTER_FILE, adapter_width, load_adapter, pin_adapter
from counterfoil.models.diffusion import load_pipeline
from counterfoil.models.loras import load_loras, pin_lora
from counterfoil.models.names import LAB_WEIGHTS
from counterfoil.recipe.kinds.diffusers import Lora
from support.files import Payload
from support.loras import saved_lora
from support.refusals import refuses

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return load_pipeline("lab:sd", dtype="float32")


def changed(folder: Path, change: Callable[[Tensors], object]) -> str:
    folder.mkdir()
    tensors = load_file(LAB_WEIGHTS / "decoder" / ADAPTER_FILE)
    change(tensors)
    save_file(tensors, folder / ADAPTER_FILE)
    return f"local-dir:{folder}"


def test_the_labs_decoder_takes_the_vectors_of_its_clip(pipeline: Any) -> None:
    assert adapter_width("lab:decoder") == 128
    adapter = load_adapter(pipeline, "lab:decoder")
    before = dict(pipeline.unet.attn_processors)
    with adapter.used():
        assert pipeline.unet.encoder_hid_proj is not None
        assert pipeline.unet.attn_processors != before
    assert pipeline.unet.attn_processors == before and pipeline.unet.encoder_hid_proj is None
    file = LAB_WEIGHTS / "decoder" / ADAPTER_FILE
    assert file.stat().st_size < 3_000_000
    weight = load_file(file)["ip_adapter.1.to_k_ip.weight"]
    assert weight.dtype == torch.float16
    first = next(
        processor
        for name, processor in adapter.within.processors.items()
        if name.endswith("attn2.processor")
    )
    torch.testing.assert_close(first.to_k_ip[0].weight, weight.float(), rtol=0, atol=0)


def test_the_linear_form_is_an_adapter_too(tmp_path: Path, pipeline: Any) -> None:
    def linear(tensors: Tensors) -> None:
        for key in [key for key in tensors if key.startswith("image_proj.proj")]:
            del tensors[key]
        tensors |= {
            "image_proj.proj.weight": torch.randn(4 * 128, 40),
            "image_proj.proj.bias": torch.zeros(4 * 128),
        }

    name = changed(tmp_path / "linear", linear)
    assert adapter_width(name) == 40
    with load_adapter(pipeline, name).used():
        tokens = pipeline.unet.encoder_hid_proj([torch.randn(3, 1, 40)])[0]
    assert tokens.shape == (3, 1, 4, 128)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"image_proj.latents": torch.zeros(1, 16, 8)}),
        lambda t: t.pop("image_proj.norm.bias"),
        lambda t: t.update({"other": torch.zeros(2)}),
        lambda t: t.clear(),
        lambda t: t.update({"image_proj.proj.0.weight": torch.zeros(8)}),
    ],
)
def test_another_form_is_refused_by_its_head(
    tmp_path: Path, change: Callable[[Tensors], object]
) -> None:
    name = changed(tmp_path / "other", change)
    with refuses("invalid-adapter", f"adapter '{name}'", "expected an IP-Adapter"):
        adapter_width(name)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda t: t["image_proj.proj.0.bias"].fill_(torch.nan), UserError, "no finite"),
        (
            lambda t: [t.pop(f"ip_adapter.13.{part}_ip.weight") for part in ("to_k", "to_v")],
            RunFailure,
            "has 6 layers",
        ),
        (
            lambda t: t.update({"ip_adapter.1.to_k_ip.weight": torch.zeros(64, 128)}),
            CounterfoilError,
            "adapter|loaded",
        ),
    ],
)
def test_what_does_not_fit_is_reported_and_leaves_the_generator_as_it_was(
    tmp_path: Path,
    pipeline: Any,
    change: Callable[[Tensors], object],
    kind: type[Exception],
    message: str,
) -> None:
    before = dict(pipeline.unet.attn_processors)
    with pytest.raises(kind, match=message):
        load_adapter(pipeline, changed(tmp_path / "misfit", change))
    assert pipeline.unet.attn_processors == before


def test_pickles_never_run_and_one_file_is_meant(tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "ip_adapter.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(UserError, match="has 0 safetensors files"):
        adapter_width(str(folder))
    (folder / ADAPTER_FILE).write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(CounterfoilError, match="damaged"):
        adapter_width(str(folder))
    assert not (tmp_path / "ran").exists()
    two = tmp_path / "two"
    two.mkdir()
    for name in ("a.safetensors", "b.safetensors"):
        shutil.copy(LAB_WEIGHTS / "decoder" / ADAPTER_FILE, two / name)
    with pytest.raises(UserError, match="has 2 safetensors files"):
        adapter_width(str(two))
    with pytest.raises(UserError, match="only safetensors files are read"):
        adapter_width("user/name/models/ip-adapter.bin")


def test_a_pin_follows_the_weights_and_no_path(tmp_path: Path) -> None:
    same = shutil.copytree(LAB_WEIGHTS / "decoder", tmp_path / "decoder")
    other = changed(tmp_path / "other", lambda t: t["image_proj.norm.bias"].add_(1))
    pins = [pin_adapter(name, None) for name in ("lab:decoder", f"local-dir:{same}", other)]
    assert pins[0].sha256 == pins[1].sha256 != pins[2].sha256
    assert str(tmp_path) not in str(pins[1])


def test_an_adapter_goes_with_lora_weights(tmp_path: Path, pipeline: Any) -> None:
    lora = {"snow": Lora(path=str(saved_lora(pipeline, tmp_path, ("to_q", "to_v"))))}
    adapter = load_adapter(pipeline, "lab:decoder")
    vector = torch.randn(1, 1, 128, generator=torch.Generator().manual_seed(1))

    def drawn(**given: Any) -> Any:
        noise = torch.Generator().manual_seed(0)
        return pipeline(
            "a bag",
            num_inference_steps=1,
            guidance_scale=1.0,
            generator=noise,
            output_type="np",
            **given,
        )[0]

    alone = drawn()
    with adapter.used():
        adapted = drawn(ip_adapter_image_embeds=[vector])
    loras = load_loras(pipeline, lora, {"snow": pin_lora("snow", lora["snow"]).document()})
    assert loras is not None
    try:
        with loras.used({"snow": 0.0}):
            assert (drawn() == alone).all()
            with adapter.used():
                assert (drawn(ip_adapter_image_embeds=[vector]) == adapted).all()
        with loras.used(), adapter.used():
            assert abs(drawn(ip_adapter_image_embeds=[vector]) - adapted).max() > 1e-3
    finally:
        pipeline.unload_lora_weights()
    assert (drawn() == alone).all()

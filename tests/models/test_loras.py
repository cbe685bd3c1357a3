"""LoRA weights of strangers: heads are judged first, every tensor is used or named, every layer has
its scale."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import miniature_pipelines as miniature
import modern_pipelines as modern
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.diffusion import refuse_odd_pipeline
from counterfoil.models.loras import Loras, load_loras, lora_file, pin_lora, wrong_loras
from counterfoil.recipe.kinds.diffusers import Lora
from support.files import Payload
from support.loras import saved_lora

Tensors = dict[str, torch.Tensor]
# Attention, and layers outside of it: what scales by block would miss.
TARGETS = ("attn2.to_q", "ff.net.2", "proj_in", "conv1", "conv_in", "time_emb_proj")
LAYER = "down_blocks.1.attentions.0.transformer_blocks.0.attn2.to_q"
DOWN = f"unet.{LAYER}.lora_A.weight"
UP = f"unet.{LAYER}.lora_B.weight"


@pytest.fixture(scope="module")
def pipeline() -> Any:
    torch.manual_seed(0)
    return miniature.stable_diffusion_1()


@pytest.fixture(scope="module")
def file(pipeline: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_lora(pipeline, tmp_path_factory.mktemp("lora"), TARGETS, rank=2, alpha=3)


@pytest.fixture(autouse=True)
def taken_out_again(pipeline: Any) -> Iterator[None]:
    yield
    pipeline.unload_lora_weights()


def loaded(pipeline: Any, files: Mapping[str, Path], **scales: float) -> Loras:
    loras = {
        name: Lora(path=str(file), scale=scales.get(name, 1.0)) for name, file in files.items()
    }
    loras_loaded = load_loras(
        pipeline, loras, {name: pin_lora(name, lora).document() for name, lora in loras.items()}
    )
    assert loras_loaded is not None
    return loras_loaded


def layers(model: Any) -> dict[str, Any]:
    return {name: layer for name, layer in model.named_modules() if hasattr(layer, "lora_A")}


def written(path: Path, tensors: Tensors, metadata: dict[str, str] | None = None) -> Path:
    path.parent.mkdir(exist_ok=True)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path, metadata)
    return path


def of_kohya(tensors: Tensors, part: str = "unet", alpha: float | None = 3.0) -> Tensors:
    """Return the tensors as kohya's scripts write them: names without dots, and an alpha for each
    layer."""
    renamed: Tensors = {}
    for key, tensor in tensors.items():
        layer, side = key.removeprefix(f"{part}.").rsplit(".lora_", 1)
        stem = f"lora_unet_{layer.replace('.', '_')}"
        renamed[f"{stem}.lora_{'down' if side[0] == 'A' else 'up'}.weight"] = tensor
        if alpha is not None:
            renamed[f"{stem}.alpha"] = torch.tensor(alpha)
    return renamed


def of_older_diffusers(tensors: Tensors) -> Tensors:
    names = {
        ".lora_A.": ".lora.down.",
        ".lora_B.": ".lora.up.",
        ".to_q.lora.": ".processor.to_q_lora.",
    }
    renamed = {}
    for key, tensor in tensors.items():
        for name, older in names.items():
            key = key.replace(name, older)
        renamed[key] = tensor
    return renamed


@pytest.mark.parametrize("form", [dict, of_kohya, of_older_diffusers])
def test_every_layer_has_the_tensors_of_the_file_and_its_scale(
    form: Callable[[Tensors], Tensors], pipeline: Any, file: Path, tmp_path: Path
) -> None:
    tensors = load_file(file)
    settings = {"lora_adapter_metadata": json.dumps({"unet.r": 2, "unet.lora_alpha": 3.0})}
    of_form = written(
        tmp_path / "form.safetensors", form(tensors), None if form is of_kohya else settings
    )
    loras = loaded(pipeline, {"snow": of_form}, snow=0.7)
    lora_layers = layers(pipeline.unet)
    assert {
        f"unet.{name}.lora_{side}.weight" for name in lora_layers for side in "AB"
    } == tensors.keys()
    assert {type(layer.base_layer).__name__ for layer in lora_layers.values()} == {
        "Linear",
        "Conv2d",
    }
    for name, layer in lora_layers.items():
        for side in "AB":
            weight = getattr(layer, f"lora_{side}")["own0"].weight
            assert torch.equal(weight, tensors[f"unet.{name}.lora_{side}.weight"])
        assert layer.scaling == {"own0": pytest.approx(0.7 * 3 / 2)}
    with loras.used({"snow": 2.0}):
        assert {tuple(layer.scaling.items()) for layer in lora_layers.values()} == {
            (("own0", 2.0 * 3 / 2),)
        }


def test_blocks_that_xl_files_number_otherwise_are_the_same_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pipeline = miniature.stable_diffusion_xl()
    tensors = load_file(
        saved_lora(pipeline, tmp_path / "made", ("down_blocks.1.attentions.0.proj_in",))
    )
    kohya = of_kohya(tensors)
    numbered = {
        key.replace("down_blocks_1_attentions_0", "input_blocks_3_1"): kohya[key] for key in kohya
    }
    loaded(pipeline, {"snow": written(tmp_path / "numbered.safetensors", numbered)})
    (name,) = layers(pipeline.unet)
    assert name == "down_blocks.1.attentions.0.proj_in"


def test_ranks_and_alphas_may_differ_from_layer_to_layer(
    pipeline: Any, file: Path, tmp_path: Path
) -> None:
    tensors = load_file(file)
    wide = {DOWN: torch.randn(5, tensors[DOWN].shape[1]), UP: torch.randn(tensors[UP].shape[0], 5)}
    alphas = {f"unet.{LAYER}.alpha": torch.tensor(4.0)}
    training = {"lora_adapter_metadata": json.dumps({"unet.r": 2, "unet.lora_alpha": 3})}
    loaded(
        pipeline,
        {"snow": written(tmp_path / "mixed.safetensors", tensors | wide | alphas, training)},
    )
    scales = {name: layer.scaling["own0"] for name, layer in layers(pipeline.unet).items()}
    assert scales.pop(LAYER) == pytest.approx(4 / 5)
    assert set(scales.values()) == {3 / 2}
    pipeline.unload_lora_weights()
    loaded(pipeline, {"snow": written(tmp_path / "silent.safetensors", tensors | wide)})
    assert {layer.scaling["own0"] for layer in layers(pipeline.unet).values()} == {1}, (
        "alpha is the rank"
    )


def test_scales_are_set_for_one_call_and_only_where_they_change(
    pipeline: Any, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = saved_lora(pipeline, tmp_path / "other", ("conv1", "conv2"), rank=4, alpha=4)
    loras = loaded(pipeline, {"snow": file, "fog": other}, snow=0.5, fog=-1.0)
    both = layers(pipeline.unet)["down_blocks.0.resnets.0.conv1"]
    assert both.active_adapters == ["own0", "own1"], (
        "fog, then snow, whatever the order in the recipe"
    )
    assert both.scaling == {"own0": -1.0, "own1": 0.5 * 3 / 2}
    calls: list[object] = []
    set_adapters = pipeline.unet.set_adapters
    monkeypatch.setattr(
        pipeline.unet, "set_adapters", lambda *given: [calls.append(given), set_adapters(*given)]
    )
    with loras.used():
        pass
    assert calls == []
    for _ in range(2):
        with loras.used({"snow": 0.25}):
            assert both.scaling == {"own0": -1.0, "own1": 0.25 * 3 / 2}
    assert calls == [(["own0", "own1"], [-1.0, 0.25])], "plain numbers, once"
    with loras.used({"snow": 0.0}):
        assert both.active_adapters == ["own0"]
    with loras.used({"snow": 0.0, "fog": 0.0}):
        assert both.disable_adapters
    with loras.used():
        assert not both.disable_adapters and both.scaling == {"own0": -1.0, "own1": 0.5 * 3 / 2}
    with pytest.raises(KeyError, match="rain"), loras.used({"rain": 1.0}):
        pass


def _head(text: bytes, claimed: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if claimed is None else claimed) + text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"a": 1}), "expected a safetensors file"),
        (_head(b"{}", 1 << 60), "expected a safetensors file"),
        (_head(b" " * (1 << 23) + b"{}"), "expected a safetensors file"),
        (b"", "damaged|safetensors"),
        (_head(b"{}"), "found 0 tensors"),
        (_head(b'{"a": 1}'), "damaged"),
        (_head(b'{"unet.a.lora_A.weight":{"dtype":"F32","shape":[99999999,4],"data_offsets":[0,16]}}') + bytes(16),
         "damaged"),
    ],
    ids=["pickle", "head beyond the file", "long head", "empty", "no tensors", "no head", "numbers that are not there"],
)  # fmt: skip
def test_files_that_are_no_safetensors_are_refused(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "lora.safetensors"
    path.write_bytes(content)
    with pytest.raises(CounterfoilError, match=message):
        pin_lora("snow", Lora(path=str(path)))


def _set(key: str, tensor: torch.Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({key: tensor})


def _pair(layer: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update(
        {f"{layer}.lora_{side}.weight": torch.zeros(2, 2) for side in "AB"}
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("unet.conv_in.dora_scale", torch.zeros(4)), "found: .*dora_scale"),
        (_set("unet.conv_in.weight", torch.zeros(4, 4)), "found: unet.conv_in.weight"),
        (_set("unet.(a+)+$.lora_A.weight", torch.zeros(2, 4)), "expected matrices"),
        (_set(f"{'a' * 400}.lora_A.weight", torch.zeros(2, 4)), "expected matrices"),
        (_set(DOWN, torch.zeros(2, 32, dtype=torch.int32)), "expected matrices"),
        (_set(DOWN, torch.zeros(2000, 4)), "expected matrices"),
        (_set(DOWN, torch.zeros(0, 32)), "expected matrices"),
        (_set(DOWN, torch.zeros(2)), "expected matrices"),
        (_set(f"unet.{LAYER}.alpha", torch.zeros(2)), "found: .*alpha"),
        (lambda tensors: tensors.update({f"unet.x{n}.alpha": torch.zeros(1) for n in range(20_000)}), "20,0.. tensors"),
    ],
)  # fmt: skip
def test_heads_are_judged_before_anything_loads(
    change: Callable[[Tensors], object],
    message: str,
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors = load_file(file)
    change(tensors)
    path = written(tmp_path / "lora.safetensors", tensors)
    monkeypatch.setattr("safetensors.torch.load_file", None)
    with pytest.raises(UserError, match=message) as refused:
        pin_lora("snow", Lora(path=str(path)))
    (problem,) = refused.value.problems
    assert (problem.code, problem.path) == ("invalid-adapter", "LoRA 'snow'")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set(DOWN, torch.zeros(2, 31)), "do not fit a layer of"),
        (_set(UP, torch.zeros(32, 3)), "do not fit a layer of"),
        (_set(DOWN, torch.zeros(2, 32, 1, 1)), "do not fit a layer of"),
        (lambda tensors: tensors.pop(UP), "there is no other half of: .*lora_A.weight"),
        (lambda tensors: tensors[DOWN].fill_(-torch.inf), "not finite"),
        (_set(f"unet.{LAYER}.alpha", torch.tensor(0.0)), "the alpha 0,"),
        (_set(f"unet.{LAYER}.alpha", torch.tensor(torch.nan)), "not finite: .*alpha"),
        (_set("unet.nowhere.alpha", torch.tensor(4.0)), "no matrices for the alphas of:"
            " unet.nowhere"),
        (_pair("unet.nowhere"), "has no layer for: unet.nowhere.lora_A.weight"),
        (_pair(f"unet.{LAYER}.base_layer"), "has no layer for"),
        (_pair("text_encoder.a"), "text encoders are not used"),
        (_set(f"unet.{LAYER}.lora.down.weight", torch.zeros(2, 32)), "no layer|does not read"),
        (_set(f"lora_unet_{LAYER.replace('.', '_')}.lora_down.weight", torch.zeros(2, 32)), "no other half of"),
    ],
)  # fmt: skip
def test_tensors_that_would_not_be_used_as_they_are_are_refused(
    change: Callable[[Tensors], object], message: str, pipeline: Any, file: Path, tmp_path: Path
) -> None:
    tensors = load_file(file)
    change(tensors)
    with pytest.raises(UserError, match=message):
        loaded(pipeline, {"snow": written(tmp_path / "lora.safetensors", tensors)})
    assert not layers(pipeline.unet)


def test_what_a_reading_of_kohyas_form_leaves_out_is_refused(
    pipeline: Any, file: Path, tmp_path: Path
) -> None:
    tensors = of_kohya(load_file(file))
    without = {
        key: tensor for key, tensor in tensors.items() if not key.endswith("conv_in.lora_up.weight")
    }
    with pytest.raises(UserError, match=r"no other half of: lora_unet_conv_in\.lora_down"):
        loaded(pipeline, {"snow": written(tmp_path / "half.safetensors", without)})
    # diffusers drops names of one kind in a file that has the other too.
    other = "lora_unet_input_blocks_1_1_proj_in"
    both = tensors | {f"{other}.lora_{side}.weight": torch.zeros(2, 2) for side in ("down", "up")}
    with pytest.raises(UserError, match=rf"does not read .*{other}"):
        loaded(pipeline, {"snow": written(tmp_path / "both.safetensors", both)})


def test_flux_files_that_diffusers_cuts_are_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pipeline = modern.flux()
    kohya = {
        "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight": torch.randn(2, 32),
        "lora_unet_double_blocks_0_img_attn_qkv.lora_up.weight": torch.randn(96, 2),
    }
    with pytest.raises(UserError, match="does not read these tensors") as refused:
        loaded(pipeline, {"snow": written(tmp_path / "cut.safetensors", kohya)})
    assert "save_lora_weights" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "could not be loaded"),
        ("[" * 100_000, "could not be loaded"),
        ('{"unet.lora_alpha": true}', "lora_alpha: found true"),
        ('{"unet.lora_alpha": NaN}', "lora_alpha: found"),
        ('{"unet.lora_alpha": -1}', "the alpha -1,"),
        ('{"unet.alpha_pattern": {"conv1": 8}}', "alpha_pattern: found"),
        ('{"unet.use_rslora": true}', "use_rslora: found true"),
    ],
)
def test_settings_of_a_training_that_say_no_alpha_are_refused(
    text: str, message: str, pipeline: Any, file: Path, tmp_path: Path
) -> None:
    odd = written(tmp_path / "lora.safetensors", load_file(file), {"lora_adapter_metadata": text})
    with pytest.raises(CounterfoilError, match=message):
        loaded(pipeline, {"snow": odd})


def test_pickles_never_run_and_one_file_is_meant(tmp_path: Path) -> None:
    (tmp_path / "pytorch_lora_weights.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(UserError, match="has 0 safetensors files"):
        pin_lora("snow", Lora(path=str(tmp_path)))
    with pytest.raises(UserError, match="expected a safetensors file"):
        pin_lora("snow", Lora(path=str(tmp_path / "pytorch_lora_weights.bin")))
    with pytest.raises(UserError, match="only safetensors files are read"):
        lora_file("user/name/lora.bin", None)
    assert not (tmp_path / "ran").exists()


def test_a_pin_follows_the_content_and_no_path(pipeline: Any, file: Path, tmp_path: Path) -> None:
    lora = Lora(path=str(written(tmp_path / "one.safetensors", load_file(file))))
    pin = pin_lora("snow", lora)
    assert str(tmp_path) not in str(pin) and pin.name == "./one.safetensors"
    pins = {"snow": pin.document()}
    assert list(wrong_loras({"snow": lora}, pins)) == []
    written(
        tmp_path / "one.safetensors", {key: tensor + 1 for key, tensor in load_file(file).items()}
    )
    (problem,) = wrong_loras({"snow": lora}, pins)
    assert (
        problem.startswith("generator.lora.snow.path: found ")
        and f"expected sha256 {pin.sha256}" in problem
    )
    with pytest.raises(UserError, match=f"expected {pin.sha256}"):
        load_loras(pipeline, {"snow": lora}, pins)
    (problem,) = wrong_loras({"snow": Lora(path="elsewhere:./one.safetensors")}, pins)
    assert "--set generator.lora.snow.path=/PATH" in problem
    assert len(list(wrong_loras({"snow": lora}, {}))) == 1


def test_a_pipeline_that_brings_weights_for_peft_is_refused(tmp_path: Path) -> None:
    miniature.stable_diffusion_1().save_pretrained(tmp_path)
    refuse_odd_pipeline("mine", tmp_path)
    (tmp_path / "text_encoder" / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "user/other"}'
    )
    with pytest.raises(UserError, match=r"text_encoder/adapter_config\.json is not followed"):
        refuse_odd_pipeline("mine", tmp_path)

"""Loaded models hold the very numbers of their files, and a damaged or unknown one is told in a line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models import LAB_WEIGHTS
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import resolve_device, stack_of
from counterfoil.models.diffusion import load_pipeline, native_size


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return load_pipeline("lab:sd", dtype="float32")


def _assert_same(loaded: dict[str, torch.Tensor], file: Path) -> None:
    stored = load_file(file)
    # Libraries differ in what they put before a name (`text_model.`), never in its end.
    short = {name.removeprefix("text_model."): tensor for name, tensor in loaded.items()}
    wanted = {name.removeprefix("text_model."): tensor for name, tensor in stored.items()}
    wanted = {name: tensor for name, tensor in wanted.items() if not name.endswith("position_ids")}
    assert wanted
    assert set(wanted) <= set(short)
    assert {name for name in short if not name.endswith("position_ids")} == set(wanted)
    for name, tensor in wanted.items():
        assert short[name].dtype == torch.float32 or not tensor.is_floating_point(), name
        assert torch.equal(short[name], tensor.to(short[name].dtype)), name


@pytest.mark.parametrize(
    ("part", "file"),
    [
        ("unet", "diffusion_pytorch_model.safetensors"),
        ("vae", "diffusion_pytorch_model.safetensors"),
        ("text_encoder", "model.safetensors"),
    ],
)
def test_the_generator_holds_the_numbers_of_its_files(pipeline: Any, part: str, file: str) -> None:
    module = getattr(pipeline, part)
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())
    _assert_same(module.state_dict(), LAB_WEIGHTS / "sd" / part / file)


def test_the_generator_is_an_ordinary_pipeline_without_a_filter(pipeline: Any) -> None:
    assert type(pipeline).__name__ == "StableDiffusionPipeline"
    assert pipeline.safety_checker is None
    assert native_size(pipeline) == 64


def test_the_screen_holds_the_numbers_of_its_file() -> None:
    clip = load_clip("lab:clip")
    assert not clip.module.training
    stored = load_file(LAB_WEIGHTS / "clip" / "open_clip_model.safetensors")
    loaded = clip.module.state_dict()
    assert {name for name in loaded if loaded[name].is_floating_point()} == {
        name for name in stored if stored[name].is_floating_point()
    }
    for name, tensor in stored.items():
        assert torch.equal(loaded[name], tensor.to(loaded[name].dtype)), name
        assert loaded[name].dtype in (torch.float32, torch.int64), name


def test_number_types_reach_every_part() -> None:
    half = load_pipeline("lab:sd", dtype="bfloat16")
    assert {half.unet.dtype, half.vae.dtype, half.text_encoder.dtype} == {torch.bfloat16}


def test_a_scheduler_takes_the_place_of_the_models_own(pipeline: Any) -> None:
    for name in ("DDIM", "EulerDiscrete"):
        other = load_pipeline("lab:sd", dtype="float32", scheduler=name)
        assert type(other.scheduler).__name__ == f"{name}Scheduler"
        for key in ("prediction_type", "beta_schedule", "num_train_timesteps"):
            assert other.scheduler.config[key] == pipeline.scheduler.config[key]


@pytest.mark.parametrize(
    ("name", "nearest"), [("DDIMM", "DDIM"), ("EulerDiscret", "EulerDiscrete"), ("ddim", "DDIM"), ("zzz", None)]
)
def test_an_unknown_scheduler_suggests_the_nearest(name: str, nearest: str | None) -> None:
    with pytest.raises(UserError) as refused:
        load_pipeline("lab:sd", scheduler=name)
    assert f"no '{name}'" in refused.value.problems[0]
    assert (f"did you mean '{nearest}'?" in refused.value.problems[0]) == (nearest is not None)


def test_a_folder_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match=r"no model_index\.json"):
        load_pipeline("lab:clip")
    with pytest.raises(UserError, match=r"no open_clip_config\.json"):
        load_clip("lab:sd")


@pytest.mark.parametrize(
    ("model", "file"), [("sd", "unet/diffusion_pytorch_model.safetensors"), ("clip", "open_clip_model.safetensors")]
)
def test_damaged_weights_are_a_failure_in_one_line(model: str, file: str, tmp_path: Path) -> None:
    folder = tmp_path / model
    shutil.copytree(LAB_WEIGHTS / model, folder)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    load = load_pipeline if model == "sd" else load_clip
    with pytest.raises(RunFailure) as failed:
        load(f"local-dir:{folder}")
    assert len(failed.value.problems) == 1
    assert "\n" not in failed.value.problems[0]


@pytest.mark.parametrize(
    ("name", "weights", "said"), [("ViT-B-33", None, "ViT-B-32"), ("ViT-B-32", "laion3b", "laion2b_s34b_b79k")]
)
def test_an_unknown_open_clip_model_is_told_with_what_there_is(name: str, weights: str | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        load_clip(name, weights)


def test_devices_that_are_not_there_are_refused() -> None:
    assert resolve_device("cpu") == "cpu"
    for device in ("gpu", "cuda:99", "xla"):
        with pytest.raises(CounterfoilError) as refused:
            resolve_device(device)
        assert refused.value.exit_code == 2
        assert "\n" not in refused.value.problems[0]


def test_the_stack_is_plain_data_without_clock_or_host() -> None:
    stack = stack_of("cpu", "auto", 4)
    assert stack == stack_of("cpu", "float32", 4)
    assert (stack["dtype"], stack["batch_size"], stack["threads"]) == ("float32", 4, 1)
    assert stack["versions"]["torch"] == torch.__version__.split("+")[0] or stack["versions"]["torch"]

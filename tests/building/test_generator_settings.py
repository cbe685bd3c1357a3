"""A generator's settings are refused together, by configurations alone, before anything loads or is learned."""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.building.inputs import check_generator, resolve_inputs
from counterfoil.engines.local import LocalEngine
from counterfoil.engines.ray_engine import RayEngine
from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, load_recipe
from miniature_pipelines import kandinsky, stable_diffusion_2
from modern_pipelines import flux
from tiny_builds import tiny

PIPELINES = {"sd": stable_diffusion_2, "flux": flux, "kandinsky": kandinsky}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of pipelines with their configurations, and no weights: whoever loads them fails."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models")
    for name, make in PIPELINES.items():
        make().save_pretrained(folder / name)
    for weights in folder.rglob("*.safetensors"):
        weights.unlink()
    return folder


def recipe_of(model: Path, *changes: str) -> Recipe:
    return load_recipe("wardrobe-mini", [f"generator.model=local-dir:{model}", "tokens=null", *changes])


def problems(model: Path, *changes: str, device: str | None = None) -> tuple[str, ...]:
    with pytest.raises(UserError) as caught:
        check_generator(recipe_of(model, *changes), device)
    return caught.value.problems


def test_settings_that_fit_pass(models: Path) -> None:
    check_generator(recipe_of(models / "sd", "generator.size=72", "generator.options={clip_skip: 1, eta: 0.5}"))
    check_generator(recipe_of(models / "flux", "generator.size=48", "generator.options={max_sequence_length: 256}"))
    check_generator(recipe_of(models / "sd", "generator.guidance_interval=[0.2, 0.8]"))
    check_generator(load_recipe("wardrobe-mini"))


def test_all_that_is_wrong_is_told_at_once_and_by_its_key(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    found = problems(
        models / "kandinsky",
        "tokens={path: lab:tokens}",
        "generator.quantize=torchao-int8",
        "generator.guidance_interval=[0.2, 0.8]",
        "generator.options={max_sequence_length: 256, height: 64}",
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "generator.quantize",
        "tokens",
        "generator.guidance_interval",
        "generator.options.max_sequence_length",
        "generator.options.height",
    ]


def test_class_tokens_for_a_family_without_are_refused(models: Path) -> None:
    (told,) = problems(models / "kandinsky", "tokens={path: lab:tokens}")
    assert "takes no class tokens" in told and "expected null" in told


def test_class_tokens_that_cannot_be_learned_are_refused(models: Path) -> None:
    (told,) = problems(models / "flux", "tokens={learn: {}}")
    assert told.startswith("tokens.learn: ") and "expected tokens.path" in told


def test_a_side_that_is_no_multiple_is_told_with_one_that_is(models: Path) -> None:
    (told,) = problems(models / "flux", "generator.size=1000")
    assert told.startswith("generator.size: found 1000") and "multiples of 16, such as 992" in told


def test_an_option_that_the_call_lacks_is_told_with_the_nearest(models: Path) -> None:
    (told,) = problems(models / "flux", "generator.options={max_sequence_lenght: 256}")
    assert "did you mean 'max_sequence_length'?" in told


def test_guidance_in_a_part_of_the_steps_is_for_families_that_have_it(models: Path) -> None:
    (told,) = problems(models / "flux", "generator.guidance_interval=[0.2, 0.8]")
    assert told.startswith("generator.guidance_interval: ") and "FLUX.1" in told


def test_pairs_that_share_attention_are_for_families_that_have_it(models: Path) -> None:
    (told,) = problems(models / "kandinsky", "samples.pairs=attention")
    assert told.startswith("samples.pairs: ") and "Kandinsky" in told and "expected noise" in told
    for model in ("sd", "flux"):
        check_generator(recipe_of(models / model, "samples.pairs=attention"))


@pytest.mark.parametrize("interval", ["[0.8, 0.2]", "[-0.1, 0.5]", "[0.5, 1.5]", "[0.5, 0.5]"])
def test_a_part_of_the_steps_lies_within_them(models: Path, interval: str) -> None:
    told = problems(models / "sd", f"generator.guidance_interval={interval}")
    assert any("guidance_interval" in problem for problem in told)


@pytest.mark.parametrize(
    ("file", "key", "value", "said"),
    [
        ("unet/config.json", "time_cond_proj_dim", 8, "is distilled"),
        ("model_index.json", "_class_name", "LatentConsistencyModelPipeline", "is a LatentConsistencyModelPipeline"),
    ],
)
def test_a_distilled_pipeline_has_no_part_of_the_steps(
    models: Path, tmp_path: Path, file: str, key: str, value: Any, said: str
) -> None:
    distilled = tmp_path / "distilled"
    shutil.copytree(models / "sd", distilled)
    config = json.loads((distilled / file).read_text())
    (distilled / file).write_text(json.dumps(config | {key: value}))
    (told,) = problems(distilled, "generator.guidance_interval=[0.2, 0.8]")
    assert told.startswith("generator.guidance_interval: ") and said in told


def test_sizes_to_be_led_away_from_do_not_go_with_a_part_of_the_steps(models: Path) -> None:
    found = problems(
        models / "sd",
        "generator.guidance_interval=[0.2, 0.8]",
        "generator.options={negative_original_size: [8, 8]}",
    )
    assert any("found options negative_original_size, expected none beside it" in problem for problem in found)


def test_a_pipeline_that_draws_no_image_from_a_prompt_is_told_beside_the_rest(models: Path, tmp_path: Path) -> None:
    odd = tmp_path / "video"
    odd.mkdir()
    (odd / "model_index.json").write_text('{"_class_name": "WanPipeline"}')
    found = problems(odd, "generator.quantize=bnb-4bit", "generator.size=64", device="cpu")
    assert any("WanPipeline" in problem for problem in found)
    assert any("generator.quantize" in problem for problem in found)


def test_layers_cannot_wait_where_an_adapter_changes_them(models: Path) -> None:
    (told,) = problems(models / "sd", "generator.offload=sequential", "generator.adapter=lab:decoder")
    assert "generator.offload" in told and "expected model" in told


@pytest.mark.parametrize("offload", ["model", "sequential"])
def test_weights_may_wait_on_a_cpu_where_that_does_nothing(models: Path, offload: str) -> None:
    check_generator(recipe_of(models / "sd", f"generator.offload={offload}"), "cpu")


def test_rows_of_a_pool_have_nothing_to_compare(models: Path) -> None:
    rows = "generator={kind: rows, model: null, steps: null, guidance: null, rows: {base: {'00': [0]}}}"
    recipe = load_recipe("wardrobe-mini", ["tokens=null", "samples.noise=independent", rows])
    check_generator(recipe)


def test_a_build_refuses_before_tokens_are_learned_or_weights_load(models: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        tiny(
            tmp_path / "out",
            f"generator.model=local-dir:{models / 'flux'}",
            "tokens={learn: {}}",
            "generator.size=56",
            "generator.options={hieght: 64}",
        )
    assert {problem.partition(":")[0] for problem in caught.value.problems} == {
        "tokens.learn",
        "generator.size",
        "generator.options.hieght",
    }
    assert not (tmp_path / "out" / "lock.json").exists()


@pytest.mark.parametrize("address", [None, "there:6379"], ids=["here", "a cluster"])
def test_the_driver_of_a_cluster_needs_no_gpu_itself(
    address: str | None, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "1")
    recipe = recipe_of(models / "flux", "generator.quantize=bnb-4bit", "generator.size=1000")
    engine = LocalEngine() if address is None else RayEngine(("cuda",), None, address)
    with pytest.raises(UserError) as caught:
        resolve_inputs(recipe, tmp_path / "out", "cpu", engine)
    told = {problem.partition(":")[0] for problem in caught.value.problems}
    assert told == ({"generator.size", "generator.quantize"} if address is None else {"generator.size"})

"""Builds with LoRA weights: their content is an input, their scale is of the plan, and at scale 0
nothing changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from counterfoil.building import regenerate_dataset
from counterfoil.building.build_dataset import BuildProgress
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.generate.kinds import maker_of
from counterfoil.models.diffusion import load_pipeline
from counterfoil.recipe import load_recipe
from counterfoil.starting.lacking import list_lacking
from driven import given_up
from miniature_pipelines import kandinsky
from support.loras import saved_lora
from tiny_builds import images, published, tiny


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lora")
    return saved_lora(load_pipeline("lab:sd", dtype="float32"), folder, ("to_q", "to_v", "conv1"))


def changes(file: Path, scale: float = 0.05) -> tuple[str, ...]:
    return (
        f"generator.lora={{slider: {{path: {file}, scale: {scale}}}}}",
        "output.rows_per_shard=8",
    )


LEVELS = "prompts.shifts.in_the_snow.severity={by: lora, lora: slider, levels: [0.5, 1]}"


@pytest.fixture(scope="module")
def built(file: Path) -> Iterator[Path]:
    """Yield an interrupted and resumed build with constant weights beside those of a shift."""
    out = file.parent / "out"
    loras = (f"generator.lora={{slider: {{path: {file}, scale: 0.1}}, always: {{path:"
        f" {file.parent}, scale: 0.02}}}}",
             LEVELS, "output.rows_per_shard=8", "prompts.shifts.pencil_sketch=null")  # fmt: skip
    with given_up(lambda message: isinstance(message, BuildProgress) and message.shards_done == 1):
        tiny(out, *loras)
    assert not (out / "manifest.json").exists()
    tiny(out, *loras)
    yield out


def test_the_whole_of_a_dataset_is_made_and_rendered_again(built: Path, file: Path) -> None:
    where = [f"generator.lora.slider.path={file}", f"generator.lora.always.path={file.parent}"]
    report = verify(built, rerender=6, device="cpu", overrides=where)
    assert report.problems == ()
    assert [row.outcome for row in report.rerendered] == ["identical bytes"] * 6
    again = regenerate_dataset.regenerate(
        built, built.with_name("again"), overrides=where, device="cpu", workers=1
    )
    assert again.comparison is not None and again.comparison.identical
    assert published(built) == published(built.with_name("again"))


def test_levels_are_of_the_shift_alone_and_the_constant_weights_of_every_image(
    built: Path, file: Path, tmp_path: Path
) -> None:
    built_images = images(built)
    tiny(tmp_path / "constant", *changes(file, 0.02), "prompts.shifts.pencil_sketch=null")
    constant = images(tmp_path / "constant")
    ours = {key for key in built_images if key.startswith(("base", "red"))}
    assert len(ours) == 12 and {key: built_images[key] for key in ours} == {
        key: constant[key] for key in ours
    }
    snowy = [built_images[f"in_the_snow{level}_05_000001"] for level in ("", "_50")]
    assert len({*snowy, constant["in_the_snow_05_000001"]}) == 3


def test_at_scale_0_images_are_those_without(file: Path, undisturbed: Path, tmp_path: Path) -> None:
    tiny(tmp_path / "none", *changes(file, 0.0))
    assert images(tmp_path / "none") == images(undisturbed)
    locks = [
        json.loads((directory / "lock.json").read_text())
        for directory in (tmp_path / "none", undisturbed)
    ]
    assert "peft" in locks[0]["stack"]["versions"] and "peft" not in locks[1]["stack"]["versions"]
    assert "loras" not in locks[1]["inputs"] and "lora" not in locks[1]["plan"]["generator"]


def test_a_dataset_names_its_weights_and_no_folder_of_this_machine(built: Path, file: Path) -> None:
    assert not [
        name for name, content in published(built).items() if str(file.parent).encode() in content
    ]
    card = (built / "README.md").read_text()
    assert (
        "pytorch_lora_weights.safetensors (slider, scale 0.1)" in card
        and "(always, scale 0.02)" in card
    )


def test_weights_that_the_lock_does_not_pin_are_refused(
    built: Path, file: Path, tmp_path: Path
) -> None:
    other = tmp_path / file.name
    save_file({key: tensor + 1 for key, tensor in load_file(file).items()}, other)
    key = "generator.lora.slider.path"
    overrides = [f"{key}={other}", f"generator.lora.always.path={file.parent}"]
    with pytest.raises(UserError, match=rf"{key}: found [0-9a-f]{{64}}, expected sha256"):
        verify(built, rerender=1, device="cpu", overrides=overrides)
    with pytest.raises(UserError, match=rf"{key}: found [0-9a-f]{{64}}, expected sha256"):
        regenerate_dataset.regenerate(
            built, tmp_path / "again", overrides=overrides, device="cpu", workers=1
        )
    with pytest.raises(UserError, match=rf"--set {key}=/PATH"):
        verify(built, rerender=1, device="cpu")
    with pytest.raises(UserError, match=r"only generator\.model or generator\.lora\.slider\.path"):
        verify(built, rerender=1, device="cpu", overrides=["generator.lora.slider.scale=2"])
    copy = Path(shutil.copytree(built, tmp_path / "copy"))
    with pytest.raises(UserError, match=r"loras\.slider\.sha256"):
        tiny(copy, LEVELS, f"generator.lora={{slider: {{path: {other}, scale: 0.1}}, always:"
            f" {{path: {file.parent},"
             " scale: 0.02}}", "output.rows_per_shard=8", "prompts.shifts.pencil_sketch=null")  # fmt: skip


def problems(*settings: str) -> str:
    with pytest.raises(UserError) as refused:
        recipe = load_recipe("wardrobe-mini", ["tokens=null", *settings])
        maker_of(recipe).check(recipe)
    return "\n".join(refused.value.problems)


def test_what_lora_weights_do_not_go_with_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    kandinsky().save_pretrained(tmp_path)
    lora = f"generator.lora.snow.path={file}"
    assert "takes no LoRA weights" in problems(lora, f"generator.model=local-dir:{tmp_path}")
    for setting in ("compile=true", "offload=sequential", "quantize=torchao-int8"):
        assert "generator.lora: found with quantize" in problems(lora, f"generator.{setting}")
    monkeypatch.setattr("counterfoil.models.pipeline_settings.find_spec", lambda name: None)
    assert "pip install 'counterfoil[lora]'" in problems(lora)
    lacks = {
        lack.key: lack
        for lack in list_lacking(
            load_recipe("wardrobe-mini", [lora, "generator.lora.fog.path=./fog"])
        )
    }
    assert (
        "counterfoil[lora]" in lacks["generator.lora"].text
        and "no folder" in lacks["generator.lora.fog.path"].text
    )
    assert "generator.lora.snow.path" not in lacks
    of_hub = list_lacking(
        load_recipe("wardrobe-mini", ["generator.lora.fog.path=user/fog/weights/fog.safetensors"])
    )
    assert any(
        "user/fog/weights/fog.safetensors is not on this machine yet" in lack.text
        for lack in of_hub
    )


def test_weights_without_their_other_half_begin_no_directory(file: Path, tmp_path: Path) -> None:
    """They are refused before a worker starts, as all that `tests/models/test_loras.py` lists."""
    weights = load_file(file)
    for key in sorted(key for key in weights if key.endswith("lora_B.weight"))[:7]:
        del weights[key]
    save_file(weights, tmp_path / "wrong.safetensors")
    with pytest.raises(UserError) as refused:
        tiny(tmp_path / "out", *changes(tmp_path / "wrong.safetensors"))
    (text,) = refused.value.problems
    assert "LoRA 'slider'" in text and "no other half of: " in text
    assert text.count(".lora_A.weight") == 5 and "2 more" in text
    assert not (tmp_path / "out").exists()

"""Pipelines of today from strangers: what they say of themselves is judged before any of their weights load."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import modern_pipelines as modern
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.diffusion import load_pipeline, pipeline_family
from support.files import edit

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    makers = (modern.stable_diffusion_3, modern.flux, modern.qwen_image, modern.sana, modern.lumina_2)
    for make in makers:
        make().save_pretrained(folder / make.__name__)
    return {make.__name__: folder / make.__name__ for make in makers}


def named(name: str) -> Change:
    return lambda index: index.update(_class_name=name)


NO_PIPELINES = {
    "StableVideoDiffusionPipeline": "which draws no image from a prompt (its call takes no prompt)",
    "WanPipeline": "which draws from more than a prompt (its call takes num_frames)",
    "FluxFillPipeline": "which draws from more than a prompt (its call takes image)",
    "StableDiffusionXLControlNetPipeline": "which draws from more than a prompt (its call takes image)",
    "KandinskyV22PriorPipeline": "which draws no image from a prompt",
    "StableAudioPipeline": "which draws no image from a prompt",
    "QwenImagePipelin": "which diffusers does not have",
    "DDIMScheduler": "which diffusers does not have",
    "utils": "which diffusers does not have",
    "DiffusionPipeline": "which draws no image from a prompt",
}


@pytest.mark.parametrize("name", NO_PIPELINES)
def test_what_draws_no_image_from_a_prompt_is_told_with_its_reason(
    name: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(saved["flux"], tmp_path / "model"))
    edit(folder / "model_index.json", named(name))
    for file in folder.rglob("*.safetensors"):
        file.unlink()
    for asked in (load_pipeline, pipeline_family):
        with pytest.raises(UserError, match="it is not driven, expected one of Stable Diffusion 1") as caught:
            asked(f"local-dir:{folder}")
        assert f"names the pipeline {name}, {NO_PIPELINES[name]}" in str(caught.value)


ODD: dict[str, tuple[str, str, Change, str]] = {
    "third encoder": (
        "stable_diffusion_3", "text_encoder_3/config.json", lambda c: c.update(d_model=10**9), "expected at most"
    ),
    "third encoder's layers": (
        "stable_diffusion_3", "text_encoder_3/config.json", lambda c: c.update(num_layers=3),
        "num_layers is 3, and its weights have 1",
    ),
    "language model": (
        "qwen_image", "text_encoder/config.json", lambda c: c["text_config"].update(hidden_size=10**8),
        "expected at most",
    ),
    "language model's layers": (
        "qwen_image", "text_encoder/config.json", lambda c: c["text_config"].update(num_hidden_layers=5),
        "num_hidden_layers is 5, and its weights have 2",
    ),
    "transformer": ("flux", "transformer/config.json", lambda c: c.update(num_layers=10**5), "expected at most"),
    "side": ("sana", "transformer/config.json", lambda c: c.update(sample_size=4096), "sample_size is 4096"),
    "side of text": ("sana", "transformer/config.json", lambda c: c.update(sample_size="8"), "expected a whole number"),
    "code": ("flux", "text_encoder_2/config.json", lambda c: c.update(auto_map={"AutoModel": "a.B"}), "auto_map"),
    "tokenizer's code": (
        "qwen_image", "tokenizer/tokenizer_config.json", lambda c: c.update(auto_map={"AutoTokenizer": ["a.B", None]}),
        "tokenizer/tokenizer_config.json: auto_map names code of its author, which is never run",
    ),
    "quantised": (
        "flux", "transformer/config.json", lambda c: c.update(quantization_config={"quant_method": "bitsandbytes"}),
        "quantization_config is not followed",
    ),
    "library": ("lumina_2", "model_index.json", lambda c: c.update(vae=["os", "path"]), "takes 'vae' from 'os'"),
    "module": ("lumina_2", "model_index.json", lambda c: c.update(vae=["..flux", "A"]), "takes 'vae' from '..flux'"),
    "class": (
        "flux", "model_index.json", lambda c: c.update(text_encoder_2=["transformers", "T5EncoderModl"]),
        "takes 'text_encoder_2' to be T5EncoderModl, which transformers does not have",
    ),
    "function": (
        "flux", "model_index.json", lambda c: c.update(vae=["transformers", "is_torch_available"]),
        "which transformers does not have",
    ),
    "class of a pipeline's module": (
        "flux", "model_index.json", lambda c: c.update(text_encoder_2=["flux", "Evil"]),
        "takes 'text_encoder_2' to be Evil, which flux does not have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_parts_that_no_library_knows_or_no_memory_holds_are_told(
    case: str, saved: dict[str, Path], tmp_path: Path
) -> None:
    which, file, change, expected = ODD[case]
    folder = Path(shutil.copytree(saved[which], tmp_path / "model"))
    edit(folder / file, change)
    with pytest.raises(UserError) as caught:
        load_pipeline(f"local-dir:{folder}")
    assert expected in str(caught.value)
    assert "It is not loaded" in str(caught.value.hint)


@pytest.mark.parametrize("which", ["flux", "lumina_2"])
def test_python_beside_the_parts_never_runs(which: str, saved: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved[which], tmp_path / "model"))
    code = f"from pathlib import Path\nPath({str(tmp_path / 'ran')!r}).touch()\nclass AutoencoderKL: pass\n"
    for place in (folder, folder / "vae", folder / "text_encoder", folder / "tokenizer"):
        for name in ("diffusers", "transformers", "pipeline", "modeling"):
            (place / f"{name}.py").write_text(code)
    try:
        load_pipeline(f"local-dir:{folder}")
    except CounterfoilError as error:
        assert "could not be loaded" in str(error)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("which", ["flux", "lumina_2"])
def test_pickles_never_load(which: str, saved: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved[which], tmp_path / "model"))
    for file in list(folder.rglob("*.safetensors")):
        torch.save({}, file.with_suffix(".bin"))
        file.unlink()
    with pytest.raises(CounterfoilError):
        load_pipeline(f"local-dir:{folder}")


def test_a_whole_one_loads(saved: dict[str, Path]) -> None:
    for which, folder in saved.items():
        assert load_pipeline(f"local-dir:{folder}", dtype="float32") is not None, which

"""Weights that wait in memory: nothing on a CPU, and elsewhere the same numbers, with nothing moved as a whole.

No GPU is needed: the hooks that bring parts to their device are set for the CPU as for any other.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.hooks import AlignDevicesHook, CpuOffload

from counterfoil.errors import UserError
from counterfoil.generate import Renderer
from counterfoil.models.diffusion import load_pipeline, placed, wait_in_memory
from counterfoil.plan import make_plan
from counterfoil.recipe import Recipe, load_recipe
from miniature_pipelines import stable_diffusion_2, stable_diffusion_xl


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=[stable_diffusion_2, stable_diffusion_xl])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("pipeline")
    request.param().save_pretrained(place)
    return place


def recipe_of(folder: Path, *changes: str) -> Recipe:
    generator = f"generator={{model: 'local-dir:{folder}', steps: 2, guidance: 3.0, batch_size: 2, dtype: float32}}"
    return load_recipe("wardrobe-mini", [generator, "tokens=null", "samples.candidates=2", *changes])


def loaded(folder: Path, offload: str = "none") -> Any:
    return load_pipeline(f"local-dir:{folder}", dtype="float32", device="cpu", offload=offload)


def drawn(pipeline: Any, recipe: Recipe) -> list[bytes]:
    plan = make_plan(recipe)
    samples = list(plan.samples(next(plan.cells())))
    return [image.tobytes() for image in Renderer(pipeline, recipe).render(samples) if image is not None]


def hooks(pipeline: Any) -> list[Any]:
    parts = [part for part in pipeline.components.values() if isinstance(part, torch.nn.Module)]
    return [hook for part in parts for module in part.modules() if (hook := getattr(module, "_hf_hook", None))]


@pytest.mark.parametrize("offload", ["model", "sequential"])
def test_on_a_cpu_it_is_accepted_and_does_nothing(folder: Path, offload: str) -> None:
    pipeline, recipe = loaded(folder, offload), recipe_of(folder, f"generator.offload={offload}")
    assert not hooks(pipeline)
    images = drawn(pipeline, recipe)
    assert len(images) == 2 and images == drawn(loaded(folder), recipe_of(folder))


def test_through_the_hooks_the_same_pictures_come_out(folder: Path) -> None:
    """By part: layers cannot be brought from memory to memory, which accelerate takes for a weight that is shared."""
    pipeline = wait_in_memory(loaded(folder), "cpu", "model")
    assert any(isinstance(hook, CpuOffload) for hook in hooks(pipeline))
    once = drawn(pipeline, recipe_of(folder))
    assert once == drawn(loaded(folder), recipe_of(folder))
    assert once == drawn(pipeline, recipe_of(folder)), "diffusers sets the hooks anew after each call"


@pytest.mark.parametrize(("offload", "device"), [("model", "cuda:1"), ("sequential", "meta:1")])
def test_where_it_computes_is_told_by_the_hooks_and_not_by_the_weights(folder: Path, offload: str, device: str) -> None:
    """Hooks for a GPU are set without one: weights are in memory, and prompts must go where they are computed."""
    pipeline = loaded(folder)
    assert pipeline._execution_device == torch.device("cpu")
    wait_in_memory(pipeline, device, offload)
    assert pipeline._execution_device == torch.device(device)
    assert pipeline.vae.device.type == ("cpu" if offload == "model" else "meta")
    kind = CpuOffload if offload == "model" else AlignDevicesHook
    assert any(isinstance(hook, kind) for hook in hooks(pipeline))


def test_a_pipeline_is_never_moved_as_a_whole_where_weights_wait(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, moved = loaded(folder), []
    plain = type(pipeline).to

    def to(self: Any, *where: Any, **options: Any) -> Any:
        moved.append(str(where[0]))
        return plain(self, *where, **options)

    monkeypatch.setattr(type(pipeline), "to", to)
    placed(pipeline, "cuda:1", "model")
    assert set(moved) <= {"cpu"}


def test_a_pipeline_without_an_order_of_its_parts_is_told_in_words(folder: Path) -> None:
    pipeline = copy.copy(loaded(folder))
    pipeline.model_cpu_offload_seq = None
    with pytest.raises(UserError, match="expected sequential or none"):
        wait_in_memory(pipeline, "cpu", "model")

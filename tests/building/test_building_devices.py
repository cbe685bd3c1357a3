"""A build on GPUs, as far as one goes without: its own process asks for no context, and kinds of GPUs do not mix."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from garments import GARMENT_CLASSES, garment_folder

from counterfoil.building import build, workers
from counterfoil.building.inputs import Commits, resolve_inputs
from counterfoil.building.workers import Job
from counterfoil.engines import called_on, local
from counterfoil.engines.local import LocalEngine
from counterfoil.engines.processes import begin_server
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import stack_of
from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.store import ShardWriter
from counterfoil.user_cache import user_cache
from tiny_builds import HEAVY, TINY

PERCENTILE = "screen.object_threshold={percentile: 20}"
JUDGED = "screen.judge=lab:resnet10t"
LEARNED = "tokens={learn: {}}"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What asks for a context of CUDA in this process, where torch counts two GPUs and workers find none."""
    found: list[str] = []

    def begin() -> None:
        found.append("a context")
        raise RuntimeError("Found no NVIDIA driver on your system")

    monkeypatch.setattr(torch.cuda, "_lazy_init", begin)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return found


def test_a_gpu_that_fails_its_worker_is_told(asked: list[str], tmp_path: Path) -> None:
    with pytest.raises(RunFailure) as failed:
        build("wardrobe-mini", tmp_path / "out", overrides=TINY, device="auto")
    assert failed.value.problems[0] == "no device is left to work on"
    assert failed.value.problems[1].startswith("cuda:0: ")
    assert asked == []


@pytest.mark.parametrize("change", [PERCENTILE, JUDGED, LEARNED], ids=["percentile", "judge", "tokens"])
def test_whatever_touches_a_gpu_is_done_by_a_worker(
    change: str, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Forked, which is quicker; where CUDA is known before a fork, torch says that it cannot be used behind.
    begin_server(HEAVY, "cpu")
    monkeypatch.setattr(local, "worker_context", lambda device: multiprocessing.get_context("forkserver"))
    with pytest.raises((RunFailure, RuntimeError), match=r"no device is left|CUDA in forked"):
        build("wardrobe-mini", tmp_path / "out", overrides=[*TINY, change], device="auto")
    assert asked == []


def test_what_a_worker_measures_of_validation_images_is_what_this_process_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"source.dataset={garment_folder(tmp_path / 'garments', ('validation',))}"
    recipe = load_recipe("wardrobe-mini", [*TINY, PERCENTILE, JUDGED, GARMENT_CLASSES, source])
    here = resolve_inputs(recipe, tmp_path / "here", "cpu", LocalEngine())
    for module in (called_on, local):
        monkeypatch.setattr(module, "holds_context", lambda device: True)
    user_cache().rename(tmp_path / "cache")
    there = resolve_inputs(recipe, tmp_path / "there", "cpu", LocalEngine())
    assert user_cache().is_dir(), "it was measured anew"
    assert there.document == here.document
    assert there.thresholds.content() == here.thresholds.content()
    assert there.notes == here.notes


def of_gpus(**names: str) -> Any:
    """`stack_of` on a machine with these GPUs."""

    def stack(device: str, dtype: str, batch_size: int, *used: Any, **also: Any) -> dict[str, Any]:
        measured = stack_of("cpu", dtype, batch_size, *used, **also)
        return measured | {"device": names[device.replace(":", "")], "cuda": "13.2", "threads": None}

    return stack


def test_another_kind_of_gpu_in_the_same_machine_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = of_gpus(cuda0="NVIDIA A100-SXM4-80GB", cuda1="NVIDIA A100-SXM4-80GB", cuda2="Tesla T4")
    monkeypatch.setattr(workers, "stack_of", measured)
    recipe = load_recipe("wardrobe-mini", TINY)
    generator = recipe.generator
    stack = measured("cuda:0", generator.dtype, generator.batch_size)
    writer = ShardWriter.of_plan(tmp_path, make_plan(recipe), {}, stack)
    job = Job(recipe, None, None, b"", "cuda:0", Commits(None, None), {}, writer)
    assert job.on("cuda:1")._writer_here().stack == stack
    with pytest.raises(UserError) as refused, job.on("cuda:2").ready():
        pass
    said = "\n".join(refused.value.problems)
    for words in ("NVIDIA A100-SXM4-80GB", "Tesla T4", "measured on cuda:2"):
        assert words in said
    assert "--allow-mixed" in (refused.value.hint or "")
    mixed = replace(job.on("cuda:2"), allow_mixed=True)
    assert mixed._writer_here().stack["device"] == "Tesla T4", "each receipt tells its own"

"""A call on a device: in this process on a CPU; on a GPU in a process that ends with it, so that none is held here."""

from __future__ import annotations

import os

import pytest
import torch

from counterfoil.engines import called_on as calls
from counterfoil.engines import local
from counterfoil.engines.called_on import called_on
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import resolve_devices


def number_of_this_process(unused: str) -> int:
    return os.getpid()


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whatever asks for a context of CUDA in this process, which all of torch does in one place."""
    asked: list[str] = []

    def begin() -> None:
        asked.append("a context")
        raise RuntimeError("Found no NVIDIA driver on your system")

    monkeypatch.setattr(torch.cuda, "_lazy_init", begin)
    return asked


def test_on_a_cpu_this_process_calls() -> None:
    assert called_on("cpu", number_of_this_process, "word") == os.getpid()


def test_on_a_gpu_another_process_meets_the_device(uses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(RunFailure) as failed:
        called_on("cuda:0", number_of_this_process, "word")
    assert failed.value.problems[0] == "no device is left to work on"
    assert failed.value.problems[1].startswith("cuda:0: ")
    assert uses == []


def test_its_value_and_its_refusals_come_back_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, on a device that this machine has."""
    for module in (calls, local):
        monkeypatch.setattr(module, "holds_context", lambda device: True)
    assert called_on("cpu", number_of_this_process, "word") != os.getpid()
    with pytest.raises(UserError, match="'gpu' cannot be used"):
        called_on("cpu", resolve_devices, "gpu")

"""Which devices a word stands for, without a context of CUDA; and what errors say of memory and of devices."""

from __future__ import annotations

from importlib import metadata

import pytest
import torch

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import resolve_device, resolve_devices, stack_of
from counterfoil.models.loading_errors import device_error, memory_error


@pytest.fixture(params=[0, 1, 4])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As many GPUs as torch would count; whoever used one here would fail the test."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)

    def begin() -> None:
        raise AssertionError("a context of CUDA was asked for")

    monkeypatch.setattr(torch.cuda, "_lazy_init", begin)
    return request.param


def refused(device: str) -> str:
    with pytest.raises(UserError) as problem:
        resolve_devices(device)
    assert len(problem.value.problems) == 1
    assert "\n" not in problem.value.problems[0]
    assert device[:80] in problem.value.problems[0]
    return problem.value.problems[0]


def test_every_visible_gpu_is_meant_where_none_is_named(gpus: int) -> None:
    every = tuple(f"cuda:{number}" for number in range(gpus))
    assert resolve_devices("auto") == (every or ("cpu",))
    assert resolve_device("auto") == (every or ("cpu",))[0]
    if gpus:
        assert resolve_devices("cuda") == every
        assert resolve_device("cuda") == "cuda:0"
    else:
        assert "no GPU is visible" in refused("cuda")


def test_gpus_are_named_by_number_in_any_order(gpus: int) -> None:
    if gpus == 4:
        assert resolve_devices("cuda:2") == ("cuda:2",)
        assert resolve_devices("cuda:2, cuda:0,cuda:01") == ("cuda:2", "cuda:0", "cuda:1")
        assert resolve_device("cuda:3") == "cuda:3"
        with pytest.raises(UserError, match="expected one"):
            resolve_device("cuda:0,cuda:2")


def test_a_number_that_is_not_there_is_refused_with_how_many_there_are(gpus: int) -> None:
    there = {0: "no GPU is visible", 1: "but cuda:0 alone", 4: "but 4 GPUs, cuda:0 to cuda:3"}[gpus]
    assert there in refused("cuda:4")
    assert there in refused("cuda:0,cuda:99") or gpus == 0
    assert resolve_devices("cpu") == ("cpu",)


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("cuda:1,cuda:1", "cuda:1 is named twice"),
        ("cuda:1,cuda:01", "cuda:1 is named twice"),
        ("cpu,cuda:0", "only GPUs"),
        ("cpu,cpu", "only GPUs"),
        ("cuda,cuda:1", "only GPUs"),
        ("auto,cuda:1", "only GPUs"),
        ("cuda:0,", "only GPUs"),
    ],
)
def test_mixtures_and_repetitions_are_refused(device: str, said: str, gpus: int) -> None:
    if gpus == 4:
        assert said in refused(device)


@pytest.mark.parametrize(("package", "extra"), [("bitsandbytes", "bnb"), ("torchao", "torchao")])
def test_a_library_that_quantises_and_is_absent_is_told_with_its_extra(
    package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = metadata.version

    def version(name: str) -> str:
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return installed(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(UserError, match=rf"generator\.quantize: .*{package}, which is not installed") as problem:
        stack_of("cpu", "auto", 4, (package,))
    assert problem.value.problems[0].endswith(f": pip install 'counterfoil[{extra}]'")
    assert "torch" in stack_of("cpu", "auto", 4)["versions"], "and nobody else needs it"


def chained(error: BaseException, behind: BaseException) -> BaseException:
    error.__cause__ = behind
    return error


ASSERTED = RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported elsewhere")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        chained(RunFailure("model 'x': out of memory"), MemoryError()),
    ],
)
def test_too_little_memory_is_known_however_it_is_said(error: BaseException) -> None:
    assert memory_error(error)


@pytest.mark.parametrize(
    "error",
    [
        ASSERTED,
        RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        RuntimeError("No CUDA GPUs are available"),
        AssertionError("Torch not compiled with CUDA enabled"),
        chained(RunFailure("model 'x' could not be loaded: CUDA error"), ASSERTED),
    ],
)
def test_a_device_that_fails_is_known_and_is_no_matter_of_memory(error: BaseException) -> None:
    assert device_error(error)
    assert "\n" not in (device_error(error) or "")
    assert memory_error(error) is None


@pytest.mark.parametrize(
    "error", [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), UserError("no"), ValueError("CUDA error: no")]
)
def test_other_errors_are_neither(error: BaseException) -> None:
    assert device_error(error) is None
    assert memory_error(error) is None

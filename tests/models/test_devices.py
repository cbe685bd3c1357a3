"""Devices and the stack: GPUs by name, arithmetic, compiled blocks, weights in fewer bits or
waiting in memory."""

from __future__ import annotations

import copy
import json
import os
import platform
import sys
from collections.abc import Iterator
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._inductor.config as inductor
from accelerate.hooks import AlignDevicesHook, CpuOffload

import warm
from counterfoil import __version__
from counterfoil.engines import LocalEngine
from counterfoil.engines.local import stack_where_done
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.render import Renderer
from counterfoil.models import memory, stack
from counterfoil.models.arithmetic import arithmetic, channels_last, computing_on, reproducible
from counterfoil.models.compiling import compiler_of
from counterfoil.models.devices import resolve_device, resolve_devices
from counterfoil.models.diffusion import load_pipeline, place_pipeline, wait_in_memory
from counterfoil.models.loading_errors import device_error, memory_error
from counterfoil.models.quantizing import quantize_problem, quantized_parts
from counterfoil.models.stack import libraries_of, stack_of
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe, load_recipe
from miniature_pipelines import kandinsky, stable_diffusion_2, stable_diffusion_xl
from support.refusals import problems_of


@pytest.fixture(params=[0, 1, 4])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Pretend that torch counts this many GPUs; using one fails the test."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: request.param > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: request.param)

    def begin() -> None:
        raise AssertionError("a context of CUDA was asked for")

    monkeypatch.setattr(torch.cuda, "_lazy_init", begin)
    return request.param


def refused(device: str) -> str:
    problems = problems_of(resolve_devices, device)
    assert len(problems) == 1
    assert "\n" not in problems[0]
    assert device[:80] in problems[0]
    return problems[0]


def test_every_visible_gpu_is_meant_where_none_is_named(gpus: int) -> None:
    every = tuple(f"cuda:{number}" for number in range(gpus))
    assert resolve_devices("auto") == (every or ("cpu",))
    assert resolve_device("auto") == (every or ("cpu",))[0]
    if gpus:
        assert resolve_devices("cuda") == every
        assert resolve_device("cuda") == "cuda:0"
    else:
        assert "no GPU is visible" in refused("cuda")


of_four = pytest.mark.parametrize("gpus", [4], indirect=True)


@of_four
def test_gpus_are_named_by_number_in_any_order(gpus: int) -> None:
    assert resolve_devices("cuda:2, cuda:0,cuda:01") == ("cuda:2", "cuda:0", "cuda:1")
    assert resolve_device("cuda:3") == "cuda:3"
    with pytest.raises(UserError, match="expected one"):
        resolve_device("cuda:0,cuda:2")


def test_a_number_that_is_not_there_is_refused_with_how_many_there_are(gpus: int) -> None:
    message = {0: "no GPU is visible", 1: "but cuda:0 alone", 4: "but 4 GPUs, cuda:0 to cuda:3"}[
        gpus
    ]
    assert message in refused("cuda:4")
    assert message in refused("cuda:0,cuda:99") or gpus == 0
    assert resolve_devices("cpu") == ("cpu",)


@of_four
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cuda:1,cuda:01", "cuda:1 is named twice"),
        ("cpu,cuda:0", "only GPUs"),
        ("auto,cuda:1", "only GPUs"),
        ("cuda:0,", "only GPUs"),
    ],
)
def test_mixtures_and_repetitions_are_refused(device: str, message: str, gpus: int) -> None:
    assert message in refused(device)


def chained(error: BaseException, behind: BaseException) -> BaseException:
    error.__cause__ = behind
    return error


ASSERTED = RuntimeError(
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be reported elsewhere"
)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"
        ),
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
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        UserError("no"),
        ValueError("CUDA error: no"),
    ],
)
def test_other_errors_are_neither(error: BaseException) -> None:
    assert device_error(error) is None
    assert memory_error(error) is None


def _draw(pipeline: Any) -> Any:
    return pipeline(
        ["a photo of a bag"] * 2,
        generator=[torch.Generator().manual_seed(seed) for seed in (1, 2)],
        num_inference_steps=1, guidance_scale=3.0, output_type="np",
    ).images  # fmt: skip


def test_the_layout_is_turned_and_draws_the_same() -> None:
    plain, turned = (load_pipeline("lab:sd", dtype="float32") for _ in range(2))
    channels_last(turned)
    for part in (turned.unet, turned.vae):
        layouts = [
            weights.is_contiguous(memory_format=torch.channels_last)
            for weights in part.parameters()
            if weights.ndim == 4
        ]
        assert layouts and all(layouts)
    assert np.abs(_draw(turned) - _draw(plain)).max() < 1e-3


def test_what_convolves_over_time_stays_as_it_is() -> None:
    class Held:
        vae = torch.nn.Conv3d(2, 2, 3)
        unet = None

    before = Held.vae.weight.stride()
    channels_last(Held())
    assert Held.vae.weight.stride() == before


def test_the_stack_has_the_version_that_last_changed_bytes_and_not_the_one_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the next version could not resume a directory."""
    monkeypatch.setattr(stack, "RENDERING_VERSION", "0.1.5")
    assert stack_of("cpu", "float32", 4)["versions"]["counterfoil"] == "0.1.5" != __version__


# The answers of a network five times, and how many pages the kernel mapped during the last two.
FAULTS = """
import hashlib, resource, sys
import torch
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.devices import resolve_devices
torch.set_num_threads(1)
device = resolve_devices("cpu")[0] if sys.argv[1] == "kept" else "cpu"
classifier = load_classifier("lab:resnet10t")
batch = torch.arange(64 * 3 * 64 * 64, dtype=torch.float32).mul(0.618).frac().reshape(64, 3, 64, 64)
first = [classifier.logits(batch, device) for _ in range(3)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
last = [classifier.logits(batch, device) for _ in range(2)]
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults, hashlib.sha256(b"".join(one.numpy().tobytes() for one in first + last)).hexdigest())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_that_was_freed_is_used_again_and_changes_no_answer() -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")
    }
    outputs = {
        mode: warm.run([sys.executable, "-c", FAULTS, mode], environment, check=True).stdout.split()
        for mode in ("kept", "mapped")
    }
    assert outputs["kept"][1] == outputs["mapped"][1]
    assert 5 * int(outputs["kept"][0]) < int(outputs["mapped"][0])


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    memory._glibc.cache_clear()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    try:
        assert not memory.keep_freed_memory()
        memory.give_back_memory()
        assert resolve_devices("cpu") == ("cpu",)
    finally:
        memory._glibc.cache_clear()


def test_on_a_cpu_nothing_is_set_or_said() -> None:
    pipeline = load_pipeline("lab:sd", dtype="float32")
    wide = [
        weights
        for weights in pipeline.unet.parameters()
        if weights.ndim == 4 and min(weights.shape[1:]) > 1
    ]
    assert wide and not any(
        weights.is_contiguous(memory_format=torch.channels_last) for weights in wide
    )
    before = torch.get_float32_matmul_precision()
    with computing_on("cpu"):
        assert torch.get_float32_matmul_precision() == before
    assert "arithmetic" not in stack_of("cpu", "float32", 4)
    assert arithmetic("cuda:1") == arithmetic("cuda") != {}


def test_settings_end_with_the_work() -> None:
    cudnn = torch.backends.cudnn
    settings = torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic
    try:
        torch.set_float32_matmul_precision("highest")
        cudnn.benchmark = True
        cudnn.deterministic = False
        with pytest.raises(ZeroDivisionError), reproducible():
            assert torch.get_float32_matmul_precision() == "high"
            assert (cudnn.benchmark, cudnn.deterministic) == (False, True)
            _ = 1 / 0
        assert torch.get_float32_matmul_precision() == "highest"
        assert (cudnn.benchmark, cudnn.deterministic) == (True, False)
    finally:
        torch.set_float32_matmul_precision(settings[0])
        cudnn.benchmark, cudnn.deterministic = settings[1:]


def _compiler() -> str | None:
    try:
        return compiler_of("cpu")
    except UserError:
        return None


compiles = pytest.mark.skipif(_compiler() is None, reason="no C++ compiler here")


def _recipe(*changes: str) -> Recipe:
    generator = "generator={model: lab:sd, steps: 2, guidance: 3.0, batch_size: 4, dtype: float32}"
    return load_recipe(
        "wardrobe-mini", [generator, "tokens=null", "samples.candidates=1", *changes]
    )


def _samples(recipe: Recipe, count: int) -> list[Sample]:
    plan = make_plan(recipe)
    every = [sample for shard in plan.shards for sample in shard.samples(plan)]
    return every[:: len(every) // count][:count]


@pytest.fixture(scope="module")
def compiled() -> Iterator[Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_pipeline("lab:sd", dtype="float32", compiled=True)
    torch.set_num_threads(threads)


@pytest.mark.whole
@compiles
def test_pictures_are_those_of_the_model_and_neighbours_change_no_bit(compiled: Any) -> None:
    recipe = _recipe("generator.guidance_interval=[0, 0.5]")  # batches of two sizes
    samples = _samples(recipe, 6)
    renderer = Renderer(compiled, recipe)
    drawn = renderer.render(samples[:4])
    assert [part for part in compiled.unet.modules() if part._compiled_call_impl is not None], (
        "something is compiled"
    )
    plain = Renderer(load_pipeline("lab:sd", dtype="float32"), recipe).render(samples[:4])
    for picture, plain_picture in zip(drawn, plain, strict=True):
        assert picture is not None and plain_picture is not None
        assert np.abs(picture.astype(int) - plain_picture.astype(int)).max() <= 1
    for places in ([3, 2, 1, 0], [4, 1, 5], [2]):
        again = renderer.render([samples[index] for index in places])
        for index, image in zip(places, again, strict=True):
            if index < 4:
                np.testing.assert_array_equal(image, drawn[index])


@compiles
def test_only_a_recipe_that_compiles_has_a_compiler_in_its_stack() -> None:
    plain = stack_of("cpu", "float32", 4)
    other = stack_of("cpu", "float32", 4, compiled=True)
    assert "compiled" not in plain
    assert other == plain | {"compiled": _compiler()}
    assert _recipe().plan_hash == _recipe("generator.compile=true").plan_hash


def test_a_machine_without_a_compiler_is_reported_before_anything_loads() -> None:
    with inductor.patch({"cpp.cxx": ("no-such-compiler",)}):
        for ask in (
            lambda: stack_of("cpu", "float32", 4, compiled=True),
            lambda: load_pipeline("lab:sd", dtype="float32", compiled=True),
        ):
            with pytest.raises(
                UserError, match=r"generator\.compile: torch compiles for cpu with a C\+\+ compiler"
            ):
                ask()
        assert stack_of("cpu", "float32", 4)


@compiles
def test_a_model_without_blocks_that_repeat_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    kandinsky().save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match="UNet2DConditionModel without repeated blocks"):
        load_pipeline(f"local-dir:{tmp_path / 'model'}", dtype="float32", compiled=True)


def test_layers_that_are_brought_one_by_one_are_not_compiled() -> None:
    with pytest.raises(UserError, match="compile is true and offload is sequential"):
        _recipe("generator.compile=true", "generator.offload=sequential")


HAS_TORCHAO = util.find_spec("torchao") is not None
FLUX = {
    "_class_name": "FluxPipeline",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "text_encoder_2": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "FluxTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "image_encoder": [None, None],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("sd2")
    stable_diffusion_2().save_pretrained(path)
    return path


def test_what_draws_and_large_text_encoders_are_quantised() -> None:
    assert set(quantized_parts(FLUX)) == {"transformer", "text_encoder_2"}
    sana = {
        "text_encoder": ["transformers", "Gemma2Model"],
        "transformer": ["diffusers", "SanaTransformer2DModel"],
    }
    assert set(quantized_parts(sana)) == {"text_encoder", "transformer"}


def test_of_a_stable_diffusion_it_is_the_unet(folder: Path) -> None:
    index = json.loads((folder / "model_index.json").read_text())
    assert quantized_parts(index) == ("unet",)


@pytest.mark.parametrize(
    ("quantize", "package", "extra"),
    [("bnb-4bit", "bitsandbytes", "bnb"), ("torchao-int8", "torchao", "torchao")],
)
def test_an_absent_library_is_reported_by_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, folder: Path, quantize: str, package: str, extra: str
) -> None:
    known = metadata.version

    def version(name: str) -> str:
        if name == package:
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    message = quantize_problem(quantize, None)
    assert (
        message is not None
        and f"pip install 'counterfoil[{extra}]'" in message
        and package in message
    )
    for ask in (
        lambda: load_pipeline(f"local-dir:{folder}", quantize=quantize),
        lambda: stack_of("cpu", "auto", 4, (package,)),
    ):
        with pytest.raises(UserError, match=rf"pip install 'counterfoil\[{extra}\]'"):
            ask()


def test_bitsandbytes_needs_a_gpu_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "0.50")
    message = quantize_problem("bnb-4bit", "cpu")
    assert message is not None and "needs a GPU" in message and "torchao-int8" in message
    assert quantize_problem("bnb-4bit", "cuda:1") is None
    assert quantize_problem("bnb-4bit", None) is None, "where it is rendered is not known yet"
    assert quantize_problem("torchao-int8", "cpu") is None
    assert quantize_problem(None, "cpu") is None


def test_a_library_is_of_the_stack_only_where_it_is_used() -> None:
    generator = load_recipe("wardrobe-mini").generator
    assert libraries_of(generator) == ()
    assert libraries_of(generator.model_copy(update={"quantize": "bnb-8bit"})) == ("bitsandbytes",)
    plain = stack_of("cpu", "float32", 4)
    assert plain == stack_of("cpu", "float32", 4, ())
    assert not {"torchao", "bitsandbytes"} & set(plain["versions"])
    # Any package that is installed shows that its version is taken.
    with_it = stack_of("cpu", "float32", 4, ("pyyaml",))
    assert with_it["versions"] == plain["versions"] | {"pyyaml": metadata.version("pyyaml")}


def test_the_stack_of_a_lock_is_measured_with_it_too() -> None:
    measure = partial(stack_of, dtype="float32", batch_size=4, libraries=("pyyaml",))
    measured = stack_where_done(LocalEngine(), "cpu", measure)
    assert measured["versions"]["pyyaml"] == metadata.version("pyyaml")


@pytest.mark.skipif(not HAS_TORCHAO, reason="torchao is an extra that is not installed")
def test_torchao_keeps_the_unet_in_eight_bits_and_draws_alike(folder: Path) -> None:
    plain, small = (
        load_pipeline(f"local-dir:{folder}", dtype="float32", quantize=quantize)
        for quantize in (None, "torchao-int8")
    )

    def weight(pipeline: Any) -> torch.Tensor:
        return pipeline.unet.mid_block.attentions[0].transformer_blocks[0].attn1.to_q.weight

    assert type(weight(small)).__name__ != type(weight(plain)).__name__
    assert "Int8" in type(weight(small)).__name__
    images = [
        pipeline(
            "a bag",
            num_inference_steps=2,
            generator=[torch.Generator("cpu").manual_seed(3)],
            output_type="pt",
        ).images
        for pipeline in (plain, small, small)
    ]
    assert torch.equal(images[1], images[2])
    assert not torch.equal(images[0], images[1])
    assert torch.allclose(images[0], images[1], atol=0.05)


@pytest.fixture(scope="module", autouse=True)
def one_torch_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("pipeline")
    stable_diffusion_xl().save_pretrained(path)
    return path


def recipe_of(waits: Path, *changes: str) -> Recipe:
    generator = (
        f"generator={{model: 'local-dir:{waits}', steps: 2, guidance: 3.0, batch_size: 2,"
        " dtype: float32}"
    )
    return load_recipe(
        "wardrobe-mini", [generator, "tokens=null", "samples.candidates=2", *changes]
    )


def loaded(waits: Path, offload: str = "none") -> Any:
    return load_pipeline(f"local-dir:{waits}", dtype="float32", device="cpu", offload=offload)


def drawn(pipeline: Any, recipe: Recipe) -> list[bytes]:
    plan = make_plan(recipe)
    samples = list(plan.samples(next(plan.cells())))
    return [
        image.tobytes() for image in Renderer(pipeline, recipe).render(samples) if image is not None
    ]


def hooks(pipeline: Any) -> list[Any]:
    parts = [part for part in pipeline.components.values() if isinstance(part, torch.nn.Module)]
    return [
        hook
        for part in parts
        for module in part.modules()
        if (hook := getattr(module, "_hf_hook", None))
    ]


def test_on_a_cpu_it_is_accepted_and_through_hooks_the_same_pictures_come_out(waits: Path) -> None:
    """Weights move by part: accelerate takes a layer that moves from memory to memory for a shared
    weight."""
    assert not hooks(loaded(waits, "sequential"))
    plain = loaded(waits, "model")
    assert not hooks(plain)
    once = drawn(plain, recipe_of(waits, "generator.offload=model"))
    pipeline = wait_in_memory(plain, "cpu", "model")
    assert any(isinstance(hook, CpuOffload) for hook in hooks(pipeline))
    assert len(once) == 2 and once == drawn(pipeline, recipe_of(waits))
    assert once == drawn(pipeline, recipe_of(waits)), (
        "diffusers sets the hooks anew after each call"
    )


@pytest.mark.parametrize(("offload", "device"), [("model", "cuda:1"), ("sequential", "meta:1")])
def test_where_it_computes_is_said_by_the_hooks_and_not_by_the_weights(
    waits: Path, offload: str, device: str
) -> None:
    """Hooks for a GPU are set without one: weights are in memory, and prompts must go to the hooks'
    device."""
    pipeline = loaded(waits)
    assert pipeline._execution_device == torch.device("cpu")
    wait_in_memory(pipeline, device, offload)
    assert pipeline._execution_device == torch.device(device)
    assert pipeline.vae.device.type == ("cpu" if offload == "model" else "meta")
    kind = CpuOffload if offload == "model" else AlignDevicesHook
    assert any(isinstance(hook, kind) for hook in hooks(pipeline))


def test_a_pipeline_is_never_moved_as_a_whole_where_weights_wait(
    waits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = loaded(waits)
    moved = []
    plain = type(pipeline).to

    def to(self: Any, *where: Any, **options: Any) -> Any:
        moved.append(str(where[0]))
        return plain(self, *where, **options)

    monkeypatch.setattr(type(pipeline), "to", to)
    place_pipeline(pipeline, "cuda:1", "model")
    assert set(moved) <= {"cpu"}


def test_a_pipeline_without_an_order_of_its_parts_is_reported_in_words(waits: Path) -> None:
    pipeline = copy.copy(loaded(waits))
    pipeline.model_cpu_offload_seq = None
    with pytest.raises(UserError, match="expected sequential or none"):
        wait_in_memory(pipeline, "cpu", "model")

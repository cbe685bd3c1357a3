"""The bench of a GPU: true sizes, correct counts of operations, and a small run of all of it on a
CPU."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

import warm
from benches.gpu import PARTS
from gpu_bench.architectures import (
    ARCHITECTURES,
    clip_sizes,
    parts,
    tiny,
    tiny_clip_sizes,
)
from gpu_bench.flops import count, dense_bf16_peak
from tiny_builds import command

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "bench_gpu.py"
# As the weights were released.
PARAMETERS = {
    "sd15": {"unet": 859_520_964, "vae": 83_653_863, "text_encoder": 123_060_480},
    "xl": {
        "unet": 2_567_463_684, "vae": 83_653_863, "text_encoder": 123_060_480, "text_encoder_2": 694_659_840,
    },
    "ViT-H-14": {"clip": 986_109_441},
}  # fmt: skip


def _parameters(module: Any) -> int:
    return sum(weights.numel() for weights in module.parameters())


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_parts_have_the_parameters_of_the_released_weights(name: str) -> None:
    with torch.device("meta"):
        modules = parts(ARCHITECTURES[name])
    assert {part: _parameters(module) for part, module in modules.items()} == PARAMETERS[name]


def test_clip_has_the_parameters_of_the_released_weights() -> None:
    with torch.device("meta"):
        assert {"clip": _parameters(open_clip.CLIP(**clip_sizes()))} == PARAMETERS["ViT-H-14"]


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_operations_are_those_of_the_layers_that_run(name: str) -> None:
    """Count again layer by layer, as each is called: convolutions, products, and both products of
    attention."""
    architecture = tiny(ARCHITECTURES[name])
    unet = parts(architecture)["unet"]
    total = 0

    def seen(module: Any, arguments: Any, output: Any) -> None:
        nonlocal total
        if isinstance(module, torch.nn.Conv2d):
            total += (
                2
                * output.numel()
                * module.in_channels
                * module.kernel_size[0]
                * module.kernel_size[1]
            )
        elif isinstance(module, torch.nn.Linear):
            total += 2 * output.numel() * module.in_features

    def attended(module: Any, arguments: Any, options: Any, output: Any) -> None:
        nonlocal total
        asking = arguments[0].shape[1]
        states = options.get("encoder_hidden_states")
        total += 4 * asking * (asking if states is None else states.shape[1]) * module.inner_dim

    for module in unet.modules():
        if type(module).__name__ == "Attention":
            module.register_forward_hook(attended, with_kwargs=True)
        else:
            module.register_forward_hook(seen)
    more: dict[str, Any] = {}
    if name == "xl":
        more["added_cond_kwargs"] = {
            "text_embeds": torch.zeros(1, 32),
            "time_ids": torch.zeros(1, 6),
        }
    states = torch.zeros(1, 77, architecture.unet["cross_attention_dim"])
    with torch.inference_mode():
        unet(torch.zeros(1, 4, 8, 8), torch.tensor(1), encoder_hidden_states=states, **more)
    counted = count(architecture, tiny_clip_sizes())
    assert counted.unet == total > 1e6
    assert counted.image(10) - counted.image(4) == 6 * counted.unet
    assert counted.image(0) == counted.vae + counted.clip


def test_peaks_are_of_the_very_device() -> None:
    peaks = {
        "NVIDIA H100 80GB HBM3": 989.5,
        "NVIDIA H100 PCIe": 756.5,
        "NVIDIA H200": 989.5,
        "NVIDIA A100-SXM4-80GB": 312.0,
        "NVIDIA A100-PCIE-40GB": 312.0,
        "NVIDIA A100 80GB PCIe": 312.0,
        "NVIDIA L40S": 362.0,
        "NVIDIA L4": 121.0,
        "NVIDIA GeForce RTX 4090": 165.2,
    }
    for name, teraflops in peaks.items():
        peak = dense_bf16_peak(name)
        assert peak is not None and peak[0] == teraflops, name
    for name in (
        "a CPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA L40",
        "Tesla T4",
    ):
        assert dense_bf16_peak(name) is None, name


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True)


@pytest.mark.whole
def test_all_parts_run_small_on_a_cpu(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    done = _run("--tiny", "--seconds", "0.1", "--device", "cpu", "--write", str(page))
    assert done.returncode == 0, done.stderr[-3000:]
    tables = {part: page.read_text().partition(f"<!-- bench_gpu: {part} -->")[2] for part in PARTS}
    tables = {
        part: text.partition(f"<!-- bench_gpu: {part} ends -->")[0] for part, text in tables.items()
    }
    assert "failed" not in page.read_text()
    for part in ("sd15", "xl"):
        assert "On a CPU" in tables[part] and "no peak is known" in tables[part]
        bare, build, _ = (float(rate) for rate in re.findall(r"\| ([0-9.e+]+) \| – ", tables[part]))
        ratio = re.search(r"\| build / bare \| ([0-9.]+) \|", tables[part])
        assert ratio is not None and float(ratio[1]) == pytest.approx(build / bare, rel=0.02)
    files = re.search(r"; (\d+) of (\d+) files are the same", tables["killed"])
    assert files is not None and files[1] == files[2] != "0"
    for part, rows in (("tokens", 2), ("clip", 2), ("evaluate", 4)):
        rates = re.findall(r"^\| [^|]+ \| ([0-9.e+]+) \|", tables[part], re.MULTILINE)
        assert len(rates) == rows and all(float(rate) > 0 for rate in rates), part


@pytest.mark.whole
def test_a_run_that_is_killed_leaves_its_rows(tmp_path: Path) -> None:
    page = tmp_path / "gpu.md"
    line = [
        sys.executable,
        str(SCRIPT),
        "--tiny",
        "--seconds",
        "0.1",
        "--device",
        "cpu",
        "--write",
        str(page),
    ]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and not page.exists():
            time.sleep(0.1)
        running.kill()
    assert "| bare UNet + VAE + CLIP in batches, images |" in page.read_text()


def test_true_sizes_are_refused_on_a_cpu() -> None:
    done = warm.run([sys.executable, str(SCRIPT), "--device", "cpu"], command()[1])
    assert done.returncode != 0 and "on a CPU: --tiny" in done.stderr

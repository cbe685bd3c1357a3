"""What stages keep on disk: corpora that are rendered once, resumable training loops, and finished
models' folders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from counterfoil.lab.world import SIDE, Scene, render

WEIGHTS = Path(__file__).parents[2] / "builders/counterfoil/lab/weights"


@dataclass
class Loop:
    """A seeded training loop that survives being killed: `for step in loop.steps(): …` then
    `loop.after(step, loss)`.

    Everything that decides the next step (weights, moving average, optimizer, step) is in the
    checkpoint; data are drawn from `numpy.random.default_rng([seed, step])`, so a resumed run sees
    the same batches.
    """

    folder: Path
    modules: dict[str, nn.Module]
    optimizer: torch.optim.Optimizer
    total: int
    schedule: Callable[[float], float]
    average: float | None = None
    every_seconds: float = 180.0
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.averaged = {n: _clone(m) for n, m in self.modules.items()} if self.average else {}
        self.first = 0
        self.saved_at = time.monotonic()
        if self.path.exists():
            state = torch.load(self.path, weights_only=True)
            for name, module in self.modules.items():
                module.load_state_dict(state["modules"][name])
            self.averaged = state["averaged"]
            self.optimizer.load_state_dict(state["optimizer"])
            self.first = state["step"]
            print(f"resumed {self.folder.name} at step {self.first}", flush=True)

    @classmethod
    def of_adamw(
        cls,
        folder: Path,
        modules: dict[str, nn.Module],
        config: Mapping[str, Any],
        every_seconds: float = 180.0,
        **options: Any,
    ) -> Loop:
        """Return the loop of a stage whose settings say steps, rate, decay and average."""
        parameters = [p for module in modules.values() for p in module.parameters()]
        optimizer = torch.optim.AdamW(parameters, lr=config["rate"], **options)
        schedule = warm_then_linear(config["decay_from"])
        average = config["average"]
        return cls(folder, modules, optimizer, config["steps"], schedule, average, every_seconds)

    @property
    def path(self) -> Path:
        return self.folder / "state.pt"

    def steps(self) -> Iterator[int]:
        """Yield the steps still to do; set the rate before each."""
        for step in range(self.first, self.total):
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate * self.schedule(step / self.total) * min(1.0, (step + 1) / 100)
            yield step
        self.save(self.total)

    def draws(self, *seed: int) -> Iterator[tuple[int, np.random.Generator]]:
        """Yield the steps still to do, each with its chances."""
        for step in self.steps():
            yield step, np.random.default_rng([*seed, step])

    def after(self, step: int, loss: torch.Tensor, clip: float = 1.0) -> None:
        """Run backward, update, average, print and save."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(parameters, clip)
        self.optimizer.step()
        if self.average:
            decay = min(self.average, (step + 1) / (step + 10))
            for name, module in self.modules.items():
                for key, value in module.state_dict().items():
                    kept = self.averaged[name][key]
                    if value.is_floating_point():
                        kept.lerp_(value, 1 - decay)
                    else:
                        kept.copy_(value)
        self.losses.append(float(loss.detach()))
        if (step + 1) % 50 == 0:
            recent = self.losses[-50:]
            rate = self.optimizer.param_groups[0]["lr"]
            print(
                f"{self.folder.name} {step + 1}/{self.total} loss {sum(recent) / len(recent):.4f}"
                f" lr {rate:.2e}",
                flush=True,
            )
        if time.monotonic() - self.saved_at > self.every_seconds:
            self.save(step + 1)

    def save(self, step: int) -> None:
        """Write the checkpoint atomically."""
        state = {
            "modules": {n: m.state_dict() for n, m in self.modules.items()},
            "averaged": self.averaged,
            "optimizer": self.optimizer.state_dict(),
            "step": step,
        }
        torch.save(state, self.path.with_suffix(".tmp"))
        self.path.with_suffix(".tmp").replace(self.path)
        self.saved_at = time.monotonic()

    def load_averages(self) -> None:
        """Put the moving averages into the modules (for export)."""
        for name, module in self.modules.items():
            if name in self.averaged:
                module.load_state_dict(self.averaged[name])


def _clone(module: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.detach().clone() for key, value in module.state_dict().items()}


def warm_then_linear(decay_from: float) -> Callable[[float], float]:
    """Return a rate that is constant, then a straight line to zero over the last part of the
    run."""
    return lambda t: 1.0 if t < decay_from else max(0.02, (1 - t) / (1 - decay_from))


def half_floats(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors as fp16, contiguous, ready for safetensors."""
    return {k: (v.half() if v.is_floating_point() else v).contiguous() for k, v in state.items()}


def write_json(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")


def write_training(folder: Path, stage: str, settings: Mapping[str, Any]) -> None:
    """Write what a model's folder records of its training."""
    command = {"command": f"python scripts/train_lab.py {stage}"}
    write_json(folder / "training.json", {**settings, **command})


def update_metrics(folder: Path, **metrics: object) -> None:
    """Merge measured figures into a model's metrics.json."""
    path = folder / "metrics.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    write_json(path, known | metrics)


def mean_of(values: Any) -> float:
    """Return the mean of numbers or flags, or a number itself, as metrics.json has it."""
    return round(float(np.mean(values)), 4)


@dataclass
class Remembered:
    """Rows of numbers of texts; remembers those that it has made."""

    make: Callable[[list[str]], Any]
    seen: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        new = sorted({text for text in texts if text not in self.seen})
        if new:
            self.seen.update(zip(new, self.make(new), strict=True))
        return np.stack([self.seen[text] for text in texts])


def renders(scenes: Sequence[Scene]) -> np.ndarray:
    """Return the pictures of scenes, uint8 [n, 64, 64, 3]."""
    return np.stack([render(scene) for scene in scenes])


def batches(rows: Any, size: int) -> Iterator[Any]:
    """Yield the rows in parts of at most `size`."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def save_array(path: Path, array: np.ndarray) -> None:
    """Write an array, in one step where it was not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.npy")
    np.save(temporary, array)
    temporary.replace(path)


def rendered_once(
    path: Path, shape: tuple[int, ...], picture: Callable[[int], np.ndarray]
) -> np.ndarray:
    """Return uint8 of this shape, `picture` of each row, rendered once."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp.npy")
        pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=shape)
        for number in range(len(pixels)):
            pixels[number] = picture(number)
        pixels.flush()
        temporary.replace(path)
    return np.load(path, mmap_mode="r")


def corpus(folder: Path, name: str, count: int, scene_of: Callable[[int], Scene]) -> np.ndarray:
    """Return uint8 [count, 64, 64, 3] of scenes 0 … count-1, rendered once."""
    path = folder / f"{name}-{count}.npy"
    return rendered_once(path, (count, SIDE, SIDE, 3), lambda number: render(scene_of(number)))


def to_tensor(pixels: np.ndarray) -> torch.Tensor:
    """Return uint8 [n, 64, 64, 3] as float [n, 3, 64, 64] in -1 … 1 (the normalisation of every lab
    model)."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1


def softened(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Blur half of a batch [n, 3, 64, 64] a little, at random.

    The oracle and the screen also look at generated pictures, which are softer than true renders;
    without this they read softness itself as an attribute (an embroidery without sharp stitches as
    a photograph).
    """
    from torchvision.transforms.v2.functional import gaussian_blur

    chosen = torch.from_numpy(np.flatnonzero(rng.random(len(images)) < 0.5))
    sigma = float(rng.uniform(0.4, 1.4))
    out = images.clone()
    out[chosen] = gaussian_blur(images[chosen], [7, 7], [sigma, sigma])
    return out

"""Pipelines that are loaded once, for what renders: the lab's generator, and miniatures of every
family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import modern_pipelines as modern
from counterfoil.models.diffusion import load_pipeline
from small_pipeline import make_recipe, one_torch_thread, pipeline  # noqa: F401


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that saves a miniature and loads it as a recipe's model, once."""
    ready: dict[str, Any] = {}

    def load(make: Callable[[], Any]) -> Any:
        if make.__name__ not in ready:
            torch.manual_seed(5)
            folder = tmp_path_factory.mktemp("models") / make.__name__
            modern.livelier(make()).save_pretrained(folder)
            ready[make.__name__] = load_pipeline(f"local-dir:{folder}", dtype="float32")
            ready[make.__name__].folder = f"local-dir:{folder}"
        return ready[make.__name__]

    return load


@pytest.fixture
def unrounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep pictures unrounded: whole levels would hide most changes by a neighbour."""
    monkeypatch.setattr(
        "counterfoil.generate.render.as_pictures",
        lambda pixels: lambda: list(pixels.permute(0, 2, 3, 1).numpy()),
    )

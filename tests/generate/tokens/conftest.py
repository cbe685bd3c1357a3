"""The lab's generator, loaded once, for what learns and reads class tokens."""

from __future__ import annotations

from small_pipeline import make_recipe, one_torch_thread, pipeline  # noqa: F401

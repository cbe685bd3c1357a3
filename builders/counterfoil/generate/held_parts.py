"""The part of a picture that a shift changes least stays its base's for a good part of the steps.

Base and shifted image begin with one noise. After a few steps they differ most where the shift's prompt says something
else, and least where both say the same: at the garment, where the wall becomes grass, and at the wall, where the
garment becomes red. There the shifted image is put back onto its base, step by step, until both have taken shape;
what is left of the steps is its own. (That the difference of two prompts' noise shows where a picture must change is
of Couairon et al. 2023, DiffEdit, section 3.2; they draw a mask of it for an edit of a given image.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.recipe.schema_output import first_compared

if TYPE_CHECKING:
    import torch

# Latents around one whose differences are averaged with its own, as the side of a square.
_AROUND = 3


class HeldParts:
    """Called at the end of every step: puts the held part of each shifted image back onto its base.

    Rows are `half` bases and then as many shifted images. `share` of each picture is held, `until` that share of steps.
    """

    def __init__(self, half: int, share: float, until: float) -> None:
        self.half = half
        self.share = share
        self.until = until
        self._held: torch.Tensor | None = None

    def __call__(self, pipeline: Any, place: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        steps = pipeline.num_timesteps
        if not first_compared(steps) <= place + 1 <= self.until * steps + 1e-6:
            return {}
        base, shifted = tensors["latents"].split(self.half)
        if self._held is None:
            self._held = least_changed(base, shifted, self.share)
        return {"latents": torch.cat([base, torch.where(self._held, base, shifted)])}


def with_held_parts(call: Mapping[str, Any], held: HeldParts) -> dict[str, Any]:
    """What a call takes for its steps' ends, with this one before whatever else it is called back for."""
    other = call.get("callback_on_step_end")

    def both(pipeline: Any, place: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        found = held(pipeline, place, timestep, tensors)
        return found if other is None else found | other(pipeline, place, timestep, _without(tensors, "latents"))

    names = [*call.get("callback_on_step_end_tensor_inputs", ()), "latents"]
    return {**call, "callback_on_step_end": both, "callback_on_step_end_tensor_inputs": names}


def _without(tensors: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {own: value for own, value in tensors.items() if own != name}


def least_changed(base: torch.Tensor, shifted: torch.Tensor, share: float) -> torch.Tensor:
    """Where two batches of latents differ least: bool, for `share` of each picture, of a shape that goes with theirs.

    Latents are [n, channels, height, width], or a square's places in rows, [n, places, channels].
    """
    import torch
    from torch.nn import functional

    packed = base.dim() == 3
    changed = (shifted.float() - base.float()).abs().mean(2 if packed else 1)
    side = round(changed.shape[1] ** 0.5) if packed else changed.shape[1]
    grid = changed.reshape(len(changed), 1, side, -1)
    smooth = functional.avg_pool2d(grid, _AROUND, 1, _AROUND // 2, count_include_pad=False)
    limit = smooth.flatten(1).quantile(share, dim=1)[:, None, None, None]
    found = smooth < limit if share < 1 else torch.ones_like(smooth, dtype=torch.bool)
    return found.reshape(*changed.shape, 1) if packed else found

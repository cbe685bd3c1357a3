"""What a shifted image has of its base: where both differ least, for as many steps as are said."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.ndimage import uniform_filter

from counterfoil.generate.steps import HeldParts, least_changed, with_held_parts
from counterfoil.recipe.schema_output import HeldFromBase


def _latents(n: int = 3, side: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    base = torch.randn(n, 4, side, side, generator=generator)
    return base, base + torch.randn(n, 4, side, side, generator=generator)


def test_what_is_held_is_where_the_smoothed_difference_is_least() -> None:
    base, shifted = _latents()
    found = least_changed(base, shifted, 0.4).squeeze(1).numpy()
    for own, before, after in zip(found, base.numpy(), shifted.numpy(), strict=True):
        changed = np.abs(after - before).mean(0)
        # Zeros around, and as many as there are counted: the mean of what is in the picture.
        counted = uniform_filter(np.ones_like(changed), 3, mode="constant")
        smooth = uniform_filter(changed, 3, mode="constant") / counted
        assert smooth[own].max() < smooth[~own].min()
        assert own.mean() == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(("share", "held"), [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0)])
def test_a_share_of_the_picture_is_held(share: float, held: float) -> None:
    assert float(least_changed(*_latents(), share).float().mean()) == held


def test_places_in_rows_are_those_of_a_square() -> None:
    base, shifted = _latents()
    packed = [part.flatten(2).transpose(1, 2) for part in (base, shifted)]
    found = least_changed(packed[0], packed[1], 0.5)
    assert found.shape == (3, 64, 1)
    torch.testing.assert_close(found.reshape(3, 8, 8), least_changed(base, shifted, 0.5).squeeze(1))


def test_no_neighbour_decides_what_is_held() -> None:
    base, shifted = _latents()
    alone = least_changed(base[1:2], shifted[1:2], 0.5)
    assert torch.equal(alone[0], least_changed(base, shifted, 0.5)[1])


def test_steps_put_it_back_until_their_time_is_over() -> None:
    base, shifted = _latents()
    held, pipeline = HeldParts(3, 0.5, 0.5), SimpleNamespace(num_timesteps=12)
    found = [held(pipeline, place, None, {"latents": torch.cat([base, shifted])}) for place in range(12)]
    assert [bool(one) for one in found] == [False, True, True, True, True, True, *[False] * 6]
    kept = least_changed(base, shifted, 0.5)
    for one in found[1:6]:
        bases, others = one["latents"].split(3)
        assert torch.equal(bases, base)
        assert torch.equal(others, torch.where(kept, base, shifted))
    # What is held is decided once: where both are alike behind it says nothing.
    again = held(pipeline, 3, None, {"latents": torch.cat([base, shifted.flip(2)])})
    assert torch.equal(again["latents"][3:], torch.where(kept, base, shifted.flip(2)))


@pytest.mark.parametrize("steps", [*range(1, 14), 50])
@pytest.mark.parametrize("until", [0.0, 0.1, 1 / 6, 0.167, 0.5, 0.75, 1.0])
def test_a_recipe_tells_whether_any_step_holds(steps: int, until: float) -> None:
    tensors = {"latents": torch.cat(_latents())}
    held, pipeline = HeldParts(3, 0.5, until), SimpleNamespace(num_timesteps=steps)
    found = [place for place in range(steps) if held(pipeline, place, None, tensors)]
    assert bool(found) == HeldFromBase(share=0.5, until=until).holds(steps)
    assert all(1 / 6 <= (place + 1) / steps <= until + 1e-6 for place in found)


def test_who_else_is_called_back_gets_what_it_asked_for() -> None:
    asked: list[set[str]] = []

    def other(pipeline: object, place: int, timestep: object, tensors: dict[str, object]) -> dict[str, object]:
        asked.append(set(tensors))
        return {"prompt_embeds": "new"}

    base, shifted = _latents()
    call = {
        "guidance_scale": 2.0,
        "callback_on_step_end": other,
        "callback_on_step_end_tensor_inputs": ["prompt_embeds"],
    }
    both = with_held_parts(call, HeldParts(3, 0.5, 1.0))
    assert both["guidance_scale"] == 2.0
    assert both["callback_on_step_end_tensor_inputs"] == ["prompt_embeds", "latents"]
    tensors = {"prompt_embeds": "old", "latents": torch.cat([base, shifted])}
    found = both["callback_on_step_end"](SimpleNamespace(num_timesteps=2), 0, None, tensors)
    assert asked == [{"prompt_embeds"}]
    assert set(found) == {"prompt_embeds", "latents"}

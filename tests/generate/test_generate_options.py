"""A recipe's options reach the call of its pipeline, and what the call does not take reaches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil.errors import UserError
from counterfoil.generate import Renderer
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import make_plan
from miniature_pipelines import stable_diffusion_2
from small_pipeline import MakeRecipe


@pytest.fixture(scope="module")
def sd(tmp_path_factory: pytest.TempPathFactory) -> Any:
    torch.manual_seed(0)
    folder: Path = tmp_path_factory.mktemp("sd2")
    stable_diffusion_2().save_pretrained(folder)
    return load_pipeline(f"local-dir:{folder}", dtype="float32")


def drawn(pipeline: Any, make_recipe: MakeRecipe, *changes: str) -> bytes:
    recipe = make_recipe(*changes)
    plan = make_plan(recipe)
    (image,) = Renderer(pipeline, recipe).render(list(plan.samples(next(plan.cells())))[:1])
    assert image is not None
    return image.tobytes()


def test_an_option_changes_what_is_drawn_as_the_call_says(sd: Any, make_recipe: MakeRecipe) -> None:
    plain = drawn(sd, make_recipe)
    assert drawn(sd, make_recipe, "generator.options={eta: 0.0}") == plain, "as it is by default"
    assert drawn(sd, make_recipe, "generator.options={guidance_rescale: 0.7}") != plain


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("{guidance_rescal: 0.7}", "did you mean 'guidance_rescale'?"),
        ("{guidance_rescale: high}", "expected a number"),
        ("{height: 64}", "generator.size"),
        ("{ip_adapter_image: 'https://example.org/x.png'}", "set for each batch"),
    ],
)
def test_whoever_renders_is_refused_what_the_call_does_not_take(
    sd: Any, make_recipe: MakeRecipe, options: str, told: str
) -> None:
    """Also where nobody checked before: a dataset of a stranger brings its own options."""
    with pytest.raises(UserError) as caught:
        Renderer(sd, make_recipe(f"generator.options={options}"))
    assert told in str(caught.value)

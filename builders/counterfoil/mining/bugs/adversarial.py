"""A layer that builds many images of confirmed findings which classifiers get wrong (Wiles 2022, section 4.2).

It is laid over mining's own layer, whose shifts say what each was found by; noise, quota and keep rules are its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.keep.misclassified import TOP1
from counterfoil.mining.findings_layer import laid_over, seed_for
from counterfoil.recipe import layer_text
from counterfoil.recipe.names import derived_name, without_folders
from counterfoil.recipe.schema_mine import mined_facts
from counterfoil.report.findings import BESIDE

PURPOSE = "adversarial"


def adversarial_layer(
    recipe: str | Path,
    targets: Sequence[str],
    folder: Path,
    *,
    accepted: int,
    at_most: int,
    method: str,
    seed: int,
    at_least: int = 1,
    failure: str = TOP1,
) -> str:
    """The text of a layer in `folder` over `recipe`, mining's layer: what at least so many of `targets` get wrong.

    A cell (a class under a shift) draws until `accepted` are kept, and `at_most` candidates. What is wrong is said by
    `failure`, the rule of the run that mined. What mining wrote beside failures, for comparison, is dropped; so are the
    numbers and keep rules of single shifts. `method` and `seed` are those of the run that mined: with its recipe's
    seed, this purpose and the targets they give a `samples.seed` that nothing else draws with. UserError where no
    failure is left, or where the layer's recipe cannot be loaded.
    """
    rule: dict[str, Any] = {"models": list(targets), **({} if at_least == 1 else {"at_least": at_least})}
    rule |= {} if failure == TOP1 else {"failure": failure}
    # Laid as a person's override: folders are those of here, wherever the layer lies.
    keep = f"screen.keep={json.dumps(['thresholds', {'misclassified': rule}])}"
    below, carried, extends = laid_over(recipe, [keep], folder)
    shifts: dict[str, Any] = {}
    for name, spec in below.prompts.shifts.items():
        if mined_facts(spec.mined_from).role in BESIDE:
            shifts[name] = None
        elif own := [key for key in ("samples", "keep") if getattr(spec, key) is not None]:
            shifts[name] = dict.fromkeys(own)
    if all(shifts.get(name, "") is None for name in below.prompts.shifts):
        raise UserError(
            f"{below.name} has no shift that was found to fail, so nothing can be collected",
            "Name the recipe that `counterfoil mine` wrote where it confirmed findings.",
        )
    drawn_for = "\0".join(without_folders(target) for target in targets)
    changes: dict[str, Any] = {
        "name": derived_name(below.name, PURPOSE),
        **carried,
        **({"prompts": {"shifts": shifts}} if shifts else {}),
        "samples": {
            "seed": seed_for(below.samples.seed, PURPOSE, method, drawn_for, seed),
            **({"candidates": None} if below.samples.candidates is not None else {}),
            "accepted": accepted,
            "at_most": at_most,
        },
    }
    return layer_text(changes, below, extends)

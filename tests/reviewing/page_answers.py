"""What a page holds, as its script reads it, and answers.json as its button writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from counterfoil.plan.layout import make_plan
from counterfoil.recipe import load_own_recipe
from counterfoil.reviewing.grids import CandidateImage, RealControl, accepted_images, known_ids
from counterfoil.store.manifest import content_of_receipts
from counterfoil.store.reading import read_receipts

Known = dict[str, CandidateImage | RealControl]
# True if a person selects a picture under a task and a label.
Choice = Callable[[str, str, CandidateImage | RealControl], bool]

TOKENS = [f"{number:016x}" for number in range(1, 9)]


def data_of(page: Path) -> dict[str, Any]:
    match = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert match
    return json.loads(match[1])


def known_of(directory: Path) -> Known:
    """Return what every id of a dataset's pages stands for."""
    recipe = load_own_recipe(directory)
    receipts = read_receipts(directory)
    images = accepted_images(directory, make_plan(recipe), receipts)
    return dict(known_ids(content_of_receipts(receipts), images, recipe.classes))


def is_own(task: str, label: str, picture: CandidateImage | RealControl) -> bool:
    """Return whether a picture of the colours has this label and is no control."""
    if isinstance(picture, RealControl):
        return False
    return label == (f"{picture.label:02d}" if task == "class" else picture.shift)


def is_true(task: str, label: str, picture: CandidateImage | RealControl) -> bool:
    """Return whether a person who believes the dataset selects the picture."""
    return isinstance(picture, RealControl) or is_own(task, label, picture)


def answers(
    page: Path, known: Known, choice: Choice = is_true, token: str = TOKENS[0], rater: str = ""
) -> dict[str, Any]:
    data = data_of(page)
    grids = [
        {
            "task": grid["task"],
            "label": grid["label"],
            "shown": grid["shown"],
            "selected": [
                id for id in grid["shown"] if choice(grid["task"], grid["label"], known[id])
            ],
        }
        for grid in data["grids"]
    ]
    head = {name: data[name] for name in ("form", "version", "content", "sheet")}
    return {**head, "token": token, "rater": rater, "grids": grids}


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path

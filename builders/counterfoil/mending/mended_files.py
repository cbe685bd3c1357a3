"""The files that mending leaves in its folder: the document, its table, the report, and a folder of each model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.mending.document import Mended, ModelMended, mend_json
from counterfoil.mending.fitting import WEIGHT_DECAY
from counterfoil.mending.model_card import model_card
from counterfoil.mending.one_model import MendedModel
from counterfoil.mending.prepared import Prepared
from counterfoil.mending.tables import mend_csv
from counterfoil.models.classifiers.head import write_with_head
from counterfoil.recipe import Recipe
from counterfoil.recipe.layering import without_folders
from counterfoil.store.atomic import write_atomically

DOCUMENT, TABLE, REPORT, MODEL, MODELS = "mend.json", "mend.csv", "report.html", "model", "models"


@dataclass(frozen=True)
class MendResult:
    """What a run told, and its files by what they are: `report`, `document`, `table`, and models by name."""

    directory: Path
    mended: Mended
    files: Mapping[str, Path]
    models: Mapping[str, Path]


def refuse_another_run(folder: Path, recipe: Recipe, models: Sequence[str]) -> None:
    """UserError where a folder holds what came of another recipe or other models: nothing is lost by a wrong name."""
    path = folder / DOCUMENT
    if not path.exists():
        return
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        theirs = (known["recipe"]["name"], [one["name"] for one in known["models"]])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no document of mending ({type(error).__name__})", "Name another folder.") from error
    if theirs != (recipe.name, list(models)):
        raise UserError(
            f"{folder} holds what came of mending {', '.join(map(str, theirs[1]))} on {theirs[0]}",
            "Name another folder with --out, or remove that one.",
        )


def write_mended(folder: Path, mended: Mended, found: Sequence[MendedModel], prepared: Prepared) -> MendResult:
    """Write models, then the report, and the document last: a folder that has one has everything."""
    from counterfoil.mending.report import mend_report

    told: list[ModelMended] = []
    places: dict[str, Path] = {}
    for one in found:
        place = MODEL if len(found) == 1 else f"{MODELS}/{_file_name(one.told.name)}"
        model = one.told
        if model.saved is not None:
            sha256 = _write_model(folder / place, one, prepared, mended)
            places[model.name] = (folder / place).resolve()
            model = replace(model, folder=place, mended_sha256=sha256)
        told.append(model)
    whole = replace(mended, models=tuple(told))
    files = {
        "table": (TABLE, mend_csv(whole)),
        "report": (REPORT, mend_report(whole)),
        "document": (DOCUMENT, mend_json(whole)),
    }
    for name, text in files.values():
        write_atomically(folder / name, text.encode())
    return MendResult(folder, whole, {what: (folder / name).resolve() for what, (name, _) in files.items()}, places)


def _write_model(folder: Path, one: MendedModel, prepared: Prepared, mended: Mended) -> str:
    assert one.told.saved is not None
    arm = one.told.arm(one.told.saved)
    about = about_model(one, prepared, mended)
    card = model_card(about, arm.verdict or "")
    return write_with_head(one.classifier, one.heads[arm.name], folder, about=about, card=card)


def about_model(one: MendedModel, prepared: Prepared, mended: Mended) -> dict[str, Any]:
    """What a model folder says of how it was mended (`mended.json`), so that nothing it learned from judges it."""
    assert one.told.saved is not None
    arm = one.told.arm(one.told.saved)
    source = prepared.source
    used = next((known for known in prepared.arms_of(one.told.name) if known.name == arm.name), None)
    debug = None if used is None else used.debug
    datasets = []
    if debug is not None:
        datasets.append(
            {
                "name": without_folders(debug.dataset),
                "content": debug.content,
                "group": debug.group,
                "seed": debug.samples_seed,
                "recipe": debug.recipe,
            }
        )
    return {
        "format": 1,
        "model": {"name": without_folders(one.told.name), "sha256": one.told.sha256},
        "on": [{"name": without_folders(part.name), "content": part.content} for part in prepared.audited],
        "train_content": source.train.content,
        "datasets": datasets,
        "lambda": arm.lam,
        "fit": prepared.settings.how,
        "weight_decay": WEIGHT_DECAY,
        "rows": {"train": mended.train["rows"], "debug": arm.images},
    }


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", without_folders(name)).strip("._-")[-80:] or "model"

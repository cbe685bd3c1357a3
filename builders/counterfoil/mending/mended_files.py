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
from counterfoil.models.classifiers.head import refuse_another_folder, write_with_head
from counterfoil.recipe import Recipe
from counterfoil.recipe.layering import without_folders
from counterfoil.regular_files import read_regular
from counterfoil.store.atomic import write_atomically

DOCUMENT, TABLE, REPORT, MODEL, MODELS = "mend.json", "mend.csv", "report.html", "model", "models"
_MOST_BYTES = 1 << 28


@dataclass(frozen=True)
class MendResult:
    """What a run told, and its files by what they are: `report`, `document`, `table`, and models by name."""

    directory: Path
    mended: Mended
    files: Mapping[str, Path]
    models: Mapping[str, Path]


def refuse_another_run(folder: Path, recipe: Recipe, models: Sequence[str]) -> None:
    """UserError where a folder holds what came of another recipe or other models, or something else where a model goes:
    nothing is lost by a wrong name."""
    for place in model_places(models).values():
        refuse_another_folder(folder / place)
    path = folder / DOCUMENT
    if not path.exists():
        return
    try:
        known = json.loads(read_regular(path, _MOST_BYTES))
        theirs = (known["recipe"]["name"], [one["name"] for one in known["models"]])
    except OSError as error:
        raise UserError(f"{path} cannot be read: it {error.strerror or error}", "Name another folder.") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is no document of mending ({type(error).__name__})", "Name another folder.") from error
    if theirs != (recipe.name, list(models)):
        raise UserError(
            f"{folder} holds what came of mending {', '.join(map(str, theirs[1]))} on {theirs[0]}",
            "Name another folder with --out, or remove that one.",
        )


def model_places(models: Sequence[str]) -> dict[str, str]:
    """Where each of several models is left, under the folder of a run: no two in one place."""
    if len(models) == 1:
        return {models[0]: MODEL}
    places: dict[str, str] = {}
    for name in models:
        own, taken = _file_name(name), {place.casefold() for place in places.values()}
        tried = (f"{MODELS}/{own}", *(f"{MODELS}/{own}-{number}" for number in range(2, len(models) + 1)))
        places[name] = next(place for place in tried if place.casefold() not in taken)
    return places


def write_mended(folder: Path, mended: Mended, found: Sequence[MendedModel], prepared: Prepared) -> MendResult:
    """Write models, then the report, and the document last: a folder that has one has everything."""
    from counterfoil.mending.report import mend_report

    told: list[ModelMended] = []
    places: dict[str, Path] = {}
    planned = model_places([one.told.name for one in found])
    for one in found:
        place = planned[one.told.name]
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

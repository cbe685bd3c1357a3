"""The files that mending leaves in its folder: the document, its table, the report, and a folder of each model."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from counterfoil.card.index_page import write_index
from counterfoil.documents import document_text, read_document
from counterfoil.errors import RunFailure, UserError
from counterfoil.mending.debug_images import DebugImages
from counterfoil.mending.document import (
    BALANCED_ROLES,
    HELPS,
    ArmResult,
    AskedFor,
    Mended,
    ModelMended,
    RecipeMended,
    mend_csv,
)
from counterfoil.mending.fitting import WEIGHT_DECAY
from counterfoil.mending.given import told_names
from counterfoil.mending.model_card import model_card
from counterfoil.mending.one_model import MendedModel
from counterfoil.mending.opening import MendSource
from counterfoil.mending.prepared import MendSettings, Prepared
from counterfoil.mending.told import recipe_told, test_name
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.classifiers.head import LinearHead, refuse_another_folder, remove_mended, write_with_head
from counterfoil.models.classifiers.of_python import PREFIX
from counterfoil.models.mended import FORMAT, MendedModelName, MendedNote, MendedOn, MendedWith
from counterfoil.recipe.names import without_folders
from counterfoil.store.atomic import remove_stale, write_atomically

DOCUMENT, TABLE, REPORT, MODEL, MODELS = "mend.json", "mend.csv", "report.html", "model", "models"


@dataclass(frozen=True)
class MendResult:
    """What a run told, its files by what they are (`report`, `document`, `table`), and models as they were named.

    heads: of torch modules that were handed over, which no folder can hold, by the same names.
    """

    directory: Path
    mended: Mended
    files: Mapping[str, Path]
    models: Mapping[str, Path]
    heads: Mapping[str, LinearHead] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<MendResult in {self.directory}: {self.mended.headline}>"


def refuse_another_run(
    folder: Path, source: MendSource, models: Sequence[str], settings: MendSettings, asked: AskedFor
) -> None:
    """UserError where a folder holds what came of other models, rows or settings: nothing is lost by a wrong name.

    More to mend with is the same run: all that it told before is told again.
    """
    for place in model_places(models).values():
        refuse_another_folder(folder / place)
    path = folder / DOCUMENT
    if not path.exists():
        return
    known = Mended.from_json(read_document(path), str(path))
    named = ", ".join(one.name for one in known.models)
    other = [
        f"{what}: {theirs}, and not {ours}"
        for what, theirs, ours in (
            ("models", named, ", ".join(told_names(models).values())),
            ("recipe", _recipe_called(known.recipe), _recipe_called(recipe_told(source.recipe))),
            ("mine.seed", known.audited.seed, source.mine.seed),
            ("mine.failure", known.audited.failure, source.mine.failure),
            ("audited", ", ".join(known.asked.audited), ", ".join(asked.audited)),
            ("--test", known.test.name, test_name(source)),
            ("--fit", known.fit.how, settings.how),
            ("--seed", known.train.seed, settings.seed),
            ("--per-class", known.train.per_class, source.per_class),
        )
        if theirs != ours
    ]
    left = [name for name in known.asked.using if name not in asked.using]
    left += [f"--own {model}={name}" for model, name in known.asked.own.items() if asked.own.get(model) != name]
    if left:
        other.append(f"--with: {', '.join(left)} too")
    if other:
        raise UserError(
            f"{folder} holds what came of mending {named} on {known.recipe.name}, by other choices than these:"
            f" {'; '.join(other)}",
            "Name another folder with --out, or remove that one.",
        )


def _recipe_called(told: RecipeMended) -> str:
    return f"{told.name} ({told.sha256[:12]})"


def model_places(models: Sequence[str]) -> dict[str, str]:
    """Where each of several models is left, under the folder of a run: no two in one place."""
    if len(models) == 1:
        return {models[0]: MODEL}
    return {name: f"{MODELS}/{own}" for name, own in zip(models, _folder_names(models), strict=True)}


def write_mended(folder: Path, mended: Mended, found: Sequence[MendedModel], prepared: Prepared) -> MendResult:
    """Write models, then the report, and the document last: a folder that has one has everything."""
    from counterfoil.mending.report import mend_report

    # Beside another model an old document would tell what is not so.
    remove_stale(folder, (DOCUMENT,))
    told: list[ModelMended] = []
    places: dict[str, Path] = {}
    heads: dict[str, LinearHead] = {}
    planned = model_places([one.told.name for one in found])
    for one, model in zip(found, mended.models, strict=True):
        if one.told.saved is not None and one.told.name.startswith(PREFIX):
            heads[one.told.name.removeprefix(PREFIX)] = one.heads[one.told.saved]
        elif model.saved is not None:
            place = planned[one.told.name]
            sha256 = _write_model(folder / place, one, model.headline, prepared)
            places[one.told.name] = (folder / place).resolve()
            model = replace(model, folder=place, mended_sha256=sha256)
        else:
            remove_mended(folder / planned[one.told.name])
        told.append(model)
    whole = replace(mended, models=tuple(told))
    files = {
        "table": (TABLE, mend_csv(whole)),
        "report": (REPORT, mend_report(whole)),
        "document": (DOCUMENT, document_text(whole)),
    }
    for name, text in files.values():
        write_atomically(folder / name, text.encode())
    write_index(folder)
    written = {what: (folder / name).resolve() for what, (name, _) in files.items()}
    return MendResult(folder, whole, written, places, heads)


def _write_model(folder: Path, one: MendedModel, headline: str, prepared: Prepared) -> str:
    assert one.told.saved is not None
    arm = one.told.arm(one.told.saved)
    about = about_model(one, prepared).to_json()
    audited = [without_folders(part.name) for part in prepared.audited]
    balanced = arm.role in BALANCED_ROLES
    card = model_card(
        about,
        arm.verdict or "",
        role=arm.role,
        headline=headline,
        helps=arm.outcome == HELPS,
        trained_on=audited if balanced else [without_folders(prepared.source.train.name)],
        chosen_on=[] if balanced else audited,
    )
    # Of several models only one is in memory at a time.
    classifier = load_classifier(one.told.name, classes=prepared.source.recipe.classes)
    if classifier.sha256 != one.classifier.sha256:
        raise RunFailure(f"model {one.told.name!r}: its weights changed while it was mended", "Run it again.")
    return write_with_head(classifier, one.heads[arm.name], folder, about=about, card=card)


def about_model(one: MendedModel, prepared: Prepared) -> MendedNote:
    """What a model folder says of how it was mended (`mended.json`), so that nothing it learned from judges it."""
    assert one.told.saved is not None
    arm = one.told.arm(one.told.saved)
    source = prepared.source
    used = next((known for known in prepared.arms_of(one.told.name) if known.name == arm.name), None)
    debug = None if used is None or arm.lam == 0 else used.debug
    seen = ((source.whole_train,) if arm.role not in BALANCED_ROLES else ()) + prepared.audited
    return MendedNote(
        format=FORMAT,
        model=MendedModelName(without_folders(one.told.name), one.told.sha256),
        on=tuple(MendedOn(without_folders(part.name), part.content) for part in seen),
        train_content=tuple(fitted_pixels(one, arm.role, debug, prepared)),
        datasets=()
        if debug is None
        else (
            MendedWith(
                name=without_folders(debug.dataset),
                content=debug.content,
                group=debug.group,
                seed=debug.samples_seed if debug.seeds else None,  # of noise, which rows and edits have not
                recipe=debug.recipe,
                edits=debug.edits,
            ),
        ),
        lam=arm.lam,
        fit=prepared.settings.how,
        weight_decay=WEIGHT_DECAY,
        rows=_row_kinds(arm, prepared),
    )


def _row_kinds(arm: ArmResult, prepared: Prepared) -> dict[str, int]:
    """How many rows of each kind a head was fitted to; at λ = 0 drawn images are none of them."""
    if arm.role in BALANCED_ROLES:
        return {"discover": arm.images}
    return {"train": len(prepared.source.train)} | ({"debug": arm.images} if arm.images and arm.lam != 0 else {})


def fitted_pixels(one: MendedModel, role: str, debug: DebugImages | None, prepared: Prepared) -> list[str]:
    """The pixels of what a head of such a role was fitted to, by which `evaluate` knows it again.

    Of every image, and of every row of the source that one is an edit of.
    """
    digests: set[str | None] = set()
    if role in BALANCED_ROLES:
        pixels = {
            key: digest
            for part in prepared.audited
            for key, digest in zip(part.keys, prepared.pixels[part.content], strict=True)
        }
        digests |= {pixels[one.keys[row]] for row in one.discover.tolist()}
    else:
        digests |= set(prepared.pixels[prepared.source.train.content])
    if debug is not None:
        for images in (debug.images, *([debug.edited] if debug.edited is not None else [])):
            digests |= set(prepared.pixels[images.content])
    return sorted(digest for digest in digests if digest is not None)


def _folder_names(models: Sequence[str]) -> list[str]:
    """A folder's name for each of some models: what it is called, with a number where another one has that already."""
    found: list[str] = []
    for model in models:
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", without_folders(model)).strip("._-")[-80:] or "model"
        taken = {one.lower() for one in found}  # some disks do not tell large letters from small ones
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        found.append(next(one for one in itertools.chain([name], numbered) if one.lower() not in taken))
    return found

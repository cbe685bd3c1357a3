"""List what a recipe lacks on this machine, before anything loads: models, folders, the source,
what is left out.

Only names are looked up: in folders, and in the caches of the Hub's client and of `datasets`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from counterfoil.errors import UserError, some_of
from counterfoil.models.diffusion import index_here
from counterfoil.models.names import HUB, LAB, LOCAL, lab_tokens, local_folder, resolve_name
from counterfoil.models.pipeline_settings import (
    has_settings_to_compare,
    own_problems,
    pipeline_problems,
)
from counterfoil.plan.estimate import KNOWN_CLIPS, KNOWN_MODELS
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import (
    BEFORE_FILES,
    BEFORE_FOLDERS,
    ELSEWHERE,
    TRANSFORMERS,
    chat_parts,
    is_local,
)
from counterfoil.recipe.prompts import BASE
from counterfoil.regular_files import named_path
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from counterfoil.plan.layout import Plan

# The CLIP of the thresholds in Vendrow 2023, Table 1.
_OF_PUBLISHED_THRESHOLDS = ("ViT-H-14", "laion2b_s32b_b79k")
Weight = Literal["missing", "fetched", "optional"]


@dataclass(frozen=True, slots=True)
class Lack:
    """The recipe's key, what is lacking in words, and its weight.

    missing: the recipe cannot be built here. fetched: a build fetches it first. optional: a build
    does without.
    """

    key: str
    text: str
    weight: Weight

    @property
    def line(self) -> str:
        return f"{'note' if self.weight == 'optional' else 'needs'}: {self.key}: {self.text}"


def list_lacking(recipe: Recipe, of_source: Sequence[Lack] = ()) -> tuple[Lack, ...]:
    """Return what a recipe lacks here: missing, fetched, then optional things. of_source: as
    `look_at_source` gives."""
    lacks = [
        *of_source,
        *_source(recipe),
        *_models(recipe),
        *_generator(recipe),
        *_tokens(recipe),
        *_classifiers(recipe),
        *_left_out(recipe),
    ]
    order: Sequence[Weight] = ("missing", "fetched", "optional")
    return tuple(sorted(dict.fromkeys(lacks), key=lambda lack: order.index(lack.weight)))


def too_few_images(plan: Plan) -> Iterator[Lack]:
    """Yield how many classes have so few base images that a drop leaves them out."""
    recipe = plan.recipe
    least = plan.recipe.evaluate.min_images_per_class
    cells = []
    if recipe.task.by_class:
        cells = takewhile(lambda cell: cell.shift == BASE, plan.cells())
    counts = [cell.candidates for cell in cells]
    few = [count for count in counts if count < least]
    if few:
        text = (
            f"{len(few):,} of {format_count(len(counts), 'class', 'classes')} have fewer than"
            f" {least} images, {min(few)} at"
        )
        more = "drops leave them out. Add images, or set a smaller number"
        yield Lack("evaluate.min_images_per_class", f"{text} the fewest: {more}", "optional")


def server_calls(plan: Plan) -> Iterator[Lack]:
    """Yield how many calls of its server each chat model to evaluate needs."""
    for name in plan.recipe.evaluate.models:
        if chat_parts(name)[1] is not None:
            calls = f"{name}: at most {plan.n_samples:,} calls of its server, one an image"
            yield Lack("evaluate.models", calls, "optional")


def lacking_classes(recipe: Recipe) -> Lack | None:
    """Return the input dataset if it is missing and the recipe takes its classes from it, else
    None."""
    if recipe.names_every_label:
        return None
    why = " (the recipe takes its classes from there)"
    lacks = _dataset("source.dataset", recipe.source.dataset, why, needed=True)
    for lack in lacks:
        if lack.weight == "missing":
            return lack
    return None


def _source(recipe: Recipe) -> Iterator[Lack]:
    pool = recipe.generator.get("dataset")
    uses = []
    if any(shift.object_threshold.percentile is not None for shift in recipe.all_shifts()):
        uses.append("thresholds")
    if recipe.tokens is not None and recipe.tokens.learn is not None:
        uses.append("class tokens")
    if recipe.kind.takes_rows and pool is None:
        uses.append("the images themselves")
    why = f" ({' and '.join(uses)} come from it)" if uses else ""
    yield from _dataset("source.dataset", recipe.source.dataset, why, needed=bool(uses))
    if pool is not None:
        yield from _dataset("generator.dataset", pool, " (rows come from it)", needed=True)


def _dataset(key: str, name: str, why: str, *, needed: bool) -> Iterator[Lack]:
    if name.startswith(LAB):
        return
    if is_local(name):
        missing = missing_path(name)
        if missing is not None:
            yield Lack(
                key,
                missing + (why or " (needed only to re-cut with other percentiles)"),
                _if(needed),
            )
        return
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE) / f"datasets--{name.replace('/', '--')}" / "snapshots"
    with contextlib.suppress(OSError):  # a name that no folder can have
        if any(snapshots.iterdir()):
            return
    # As `datasets` spells it: OWNER___some_name for OWNER/SomeName; asked without it, which loads
    # half of Python.
    tables = Path(constants.HF_HOME) / "datasets"
    wanted = _plain(name.replace("/", "___"))
    if not tables.is_dir() or all(_plain(folder.name) != wanted for folder in tables.iterdir()):
        yield _to_fetch(key, f"{name} is not on this machine yet{why}", None, needed)


def _models(recipe: Recipe) -> Iterator[Lack]:
    generator = recipe.generator
    screen = recipe.screen
    for key, name in generator.named_models().items():
        known = KNOWN_MODELS.get(name)
        of_lora = key.startswith("generator.lora.")
        if not (of_lora and is_local(name) and named_path(name.removeprefix(LOCAL)).is_file()):
            yield from _model(key, name, known.gigabytes if known is not None else None)
    captioner = generator.get("captioner")
    if captioner is not None:
        yield from _model("generator.captioner", captioner, None)
    clip = generator.get("clip")
    if clip is not None:
        yield from _clip("generator.clip.model", clip.model, clip.weights)
    if screen.model is not None:
        yield from _clip("screen.model", screen.model, screen.weights)
    for rule in recipe.asking_rules:
        if rule.address is None:
            yield from _model("screen.keep", rule.model.removeprefix(TRANSFORMERS), None)
        elif rule.address.startswith(ELSEWHERE):
            text = (
                f"the address of {rule.model} comes from a dataset's recipe, and no image is sent"
                " there. Give the rule yourself, with your server's"
            )
            yield Lack("screen.keep", text, "missing")


def _clip(key: str, model: str, weights: str | None) -> Iterator[Lack]:
    known = KNOWN_CLIPS.get((model, weights or ""))
    if known is not None:
        shown = f"{model}/{weights}"
        yield from _model(key, known.repository, known.gigabytes, f"{shown} ({known.repository})")
    elif is_local(model) or model.startswith((LAB, HUB)):
        yield from _model(key, model, None)
    else:
        yield Lack(
            key,
            f"{model}/{weights}: open_clip downloads it if it is not on this machine yet",
            "fetched",
        )


def _generator(recipe: Recipe) -> Iterator[Lack]:
    """Yield problems of the generator's settings, if the pipeline's configuration is on this
    machine."""
    if not recipe.kind.draws:
        return
    generator = recipe.drawing
    problems = list(own_problems(recipe))
    compared = True
    folder = is_local(generator.model) or generator.model.startswith(LAB)
    if has_settings_to_compare(recipe) and not (folder and missing_path(generator.model)):
        try:
            index = index_here(generator.model, generator.revision)
            compared = index is not None
            problems += () if index is None else pipeline_problems(recipe, index)
        except UserError as error:
            problems += error.problems
    for problem in problems:
        key, _, text = problem.partition(": ")
        yield Lack(key, text, "missing")
    if not compared:
        text = (
            f"size, class tokens, pairs and options are checked against {generator.model} once"
            " its configuration is"
        )
        yield Lack("generator", f"{text} downloaded", "fetched")


def _model(
    key: str, name: str, gigabytes: float | None, shown: str | None = None
) -> Iterator[Lack]:
    if is_local(name) or name.startswith(LAB):
        missing = missing_path(name)
        if missing is not None:
            yield Lack(key, missing, "missing")
        return
    repository = "/".join(name.removeprefix(HUB).split("/")[:2])
    if not _is_fetched_model(repository):
        text = f"{shown or name} is not on this machine yet"
        yield _to_fetch(key, text, gigabytes, needed=True)


def _tokens(recipe: Recipe) -> Iterator[Lack]:
    path = recipe.tokens.path if recipe.tokens is not None else None
    if path is None:
        return
    if path.startswith(LAB):
        try:
            lab_tokens(path)
        except UserError as error:
            yield Lack("tokens.path", error.problems[0], "missing")
    else:
        yield from _model("tokens.path", path, None)


def _classifiers(recipe: Recipe) -> Iterator[Lack]:
    """Yield lacking judges, which a build asks, and models to evaluate, which it does not."""
    second = recipe.screen.judge
    judges = [
        name for shift in recipe.all_shifts() for rule in shift.keep for name in rule.judges()
    ]
    for name in dict.fromkeys(judges):
        yield from _classifier("screen.keep", name, needed=True)
    if second is not None and second not in judges:
        yield from _classifier("screen.judge", second, needed=True)
    missing = [name for name in recipe.evaluate.models if any(_classifier("", name, needed=False))]
    if missing:
        yield Lack(
            "evaluate.models",
            f"not on this machine yet; evaluate downloads them or asks for them: {some_of(missing)}",
            "optional",
        )


def _classifier(key: str, name: str, *, needed: bool) -> Iterator[Lack]:
    plain = name
    for kind in (*BEFORE_FOLDERS, *BEFORE_FILES):
        plain = plain.removeprefix(kind)
    if name.startswith(BEFORE_FILES) or is_local(plain) or plain.startswith(LAB):
        missing = missing_path(plain, is_file=name.startswith(BEFORE_FILES))
        if missing is not None:
            yield Lack(key, missing, _if(needed))
    elif not name.startswith(BEFORE_FOLDERS):
        # A timm name is a repository of timm's.
        repository = name.removeprefix(HUB) if name.startswith(HUB) else f"timm/{name}"
        if not _is_fetched_model(repository):
            yield _to_fetch(key, f"{name} is not on this machine yet", None, needed)


def _left_out(recipe: Recipe) -> Iterator[Lack]:
    """Yield what a build leaves out, and what that costs its numbers."""
    source = recipe.source
    shifts = recipe.all_shifts()[1:]
    if not recipe.evaluate.models:
        text = "no model is named. Name yours in the recipe, or with counterfoil evaluate --models"
        yield Lack("evaluate.models", text, "optional")
    if source.validation_split == source.train_split and recipe.screen.model is not None:
        text = "there is no validation split, so thresholds are percentiles of"
        yield Lack(
            "source.validation_split",
            f"{text} {source.train_split}, the training images",
            "optional",
        )
    unscreened = [shift.name for shift in shifts if shift.caption is None]
    if unscreened and recipe.screen.model is not None:
        text = "is not screened: it has no caption and no threshold, so every image of it is kept"
        yield Lack("screen.shift_threshold", f"{some_of(unscreened)} {text}", "optional")
    waiting = [
        s.name
        for s in shifts
        if s.caption is not None and s.threshold and s.threshold.percentile is not None
    ]
    if waiting:
        text = "no image of it is kept until you choose one with counterfoil calibrate"
        yield Lack(
            "screen.shift_threshold", f"no threshold yet for {some_of(waiting)}: {text}", "optional"
        )
    yield from _of_another_scale(recipe)
    # The second judge is asked about labels alone and decides nothing.
    if recipe.screen.model is None:
        return
    if recipe.screen.judge is None:
        yield Lack(
            "screen.judge",
            "no second judge: only one CLIP says whether labels are still true",
            "optional",
        )
    if not recipe.screen.keep_rejected:
        text = (
            "rejected images are not stored: a lower threshold cannot bring them back without"
            " rendering them again"
        )
        yield Lack("screen.keep_rejected", text, "optional")


def _of_another_scale(recipe: Recipe) -> Iterator[Lack]:
    """Yield a note on thresholds given as numbers, unless they may be those published for the
    CLIP."""
    screen = recipe.screen
    if screen.model is None or screen.model.startswith(LAB):
        return
    numbers = []
    for shift in recipe.all_shifts():
        values = [shift.threshold.value if shift.threshold else None, shift.object_threshold.value]
        if any(value is not None and value > -1 for value in values):
            numbers.append(shift.name)
    if numbers and (screen.model, screen.weights) != _OF_PUBLISHED_THRESHOLDS:
        text = (
            f"thresholds are given as numbers for {some_of(numbers, 3)}, and each CLIP has a scale"
            f" of its own. Unless they were chosen with {screen.model}, choose them anew with"
            " counterfoil calibrate"
        )
        yield Lack("screen.shift_threshold", text, "optional")


def _if(needed: bool) -> Weight:
    return "missing" if needed else "optional"


def _to_fetch(key: str, text: str, gigabytes: float | None, needed: bool) -> Lack:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return Lack(key, f"{text}, and HF_HUB_OFFLINE forbids a download", _if(needed))
    size = f" (about {gigabytes:g} GB)" if gigabytes else ""
    return Lack(key, f"{text} and will be downloaded{size}", "fetched" if needed else "optional")


def missing_path(name: str, *, is_file: bool = False) -> str | None:
    """Return why a folder or file cannot be used, or None if it exists."""
    if name.startswith(ELSEWHERE):
        return (
            f"{name.removeprefix(ELSEWHERE)} is a folder on the machine that built the dataset."
            " Name yours instead"
        )
    try:
        if is_file:
            return None if named_path(name).is_file() else f"there is no file {name}"
        if name.startswith(LAB):
            resolve_name(name)
        elif not name.startswith(LOCAL):
            return None if named_path(name).is_dir() else f"there is no folder {name}"
        else:
            local_folder(name)
    except UserError as error:
        return error.problems[0]
    return None


def _is_fetched_model(repository: str) -> bool:
    """Return whether the Hub's cache has a snapshot of a model with weights; others of its files
    may be missing."""
    from huggingface_hub import constants

    # as timm names a revision: user/name@v1
    folder = f"models--{repository.partition('@')[0].replace('/', '--')}"
    snapshots = Path(constants.HF_HUB_CACHE) / folder / "snapshots"
    return any(any(snapshots.rglob(pattern)) for pattern in ("*.safetensors", "*.bin", "*.pt"))


def _plain(name: str) -> str:
    return re.sub(r"(?<!_)_(?!_)|-", "", name).casefold()

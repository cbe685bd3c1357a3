"""Rebuild a dataset from its own files and compare it with the original, or repair it in place
(`build --from`).

A rebuild does not need the input dataset, because the directory has thresholds as numbers and
tokens as vectors.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from counterfoil.building.asked_models import refuse_address
from counterfoil.building.build_dataset import BuildResult, DatasetBuild
from counterfoil.building.inputs import Inputs, rows_file
from counterfoil.building.judges import pin_judges
from counterfoil.building.options import RegenerateOptions
from counterfoil.data.hub import locate_dataset
from counterfoil.data.pool import wrong_pool
from counterfoil.dataset.reading import SoundDataset, read_dataset, wrong_model
from counterfoil.dataset.verification.problems import Outcome
from counterfoil.dataset.verification.rerendering import compare_images
from counterfoil.documents import document_differences
from counterfoil.engines import engine_and_device
from counterfoil.errors import UserError
from counterfoil.generate.screen.doubts import warn_of_screen
from counterfoil.models.loras import wrong_loras
from counterfoil.options import takes
from counterfoil.recipe import Recipe, load_own_recipe
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.names import TRANSFORMERS
from counterfoil.regular_files import named_path
from counterfoil.store import layout
from counterfoil.store.atomic import try_folder
from counterfoil.store.decoding import UnreadableImage
from counterfoil.store.lock import Lock, read_lock, stack_differences, without_validation
from counterfoil.store.manifest import file_faults, read_manifest
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.receipts import Receipt, standing_shards
from counterfoil.store.replacement import settle_directory
from counterfoil.store.sealed_folder import SEALED_FOLDERS

# `WANTED` are the files of a published dataset that a rebuild and its comparison need.
WANTED = (
    layout.RECIPE, layout.LOCK, layout.THRESHOLDS, layout.MANIFEST, f"{layout.TOKENS}/**", "receipts/**", layout.ROWS,
    layout.EMBEDDINGS,
)  # fmt: skip


def refuse_other_models(recipe: Recipe, lock: Lock) -> None:
    """Raise UserError if the folder of a model is missing, or if it has another model than the lock
    pins."""
    pins = lock.inputs["models"]
    problems: list[str] = []
    if recipe.kind.draws:
        generator = recipe.drawing
        problems += wrong_model("generator.model", generator.model, pins["generator"])
        adapter = generator.get("adapter")
        if adapter is not None:
            problems += wrong_model("generator.adapter", adapter, pins.get("adapter"))
        lora_pins = lock.inputs.get("loras") or {}
        problems += wrong_loras(generator.get("lora", {}), lora_pins)
    if recipe.kind.takes_rows:
        problems += wrong_pool(recipe, lock.inputs.get("pool"))
    # with weights, it is open_clip's own model
    screen = recipe.screen
    if screen.model is not None and screen.weights is None:
        problems += wrong_model("screen.model", screen.model, pins["screen"])
    if not problems and recipe.judges:
        pinned = without_validation(lock.inputs.get("judges") or {})
        if pin_judges(recipe) != pinned:
            key = "screen.keep" if screen.judge is None else "screen.judge"
            problems.append(f"{key}: the judges are not those that {layout.LOCK} pins")
    asked_pins = lock.inputs.get("asked") or {}
    for rule in recipe.asking_rules:
        if rule.address is not None:
            refuse_address(rule)
            continue
        pin = asked_pins.get(without_folders(rule.model))
        name = rule.model.removeprefix(TRANSFORMERS)
        problems += wrong_model("screen.keep", name, pin)
    if problems:
        hint = "To use another model, build another dataset: `counterfoil build RECIPE`."
        raise UserError(problems, f"Rebuilding needs the same weights. {hint}")


def _overridden(
    dataset: SoundDataset,
    overrides: Sequence[str],
) -> Recipe:
    original = dataset.recipe
    if not overrides:
        return original
    recipe = load_own_recipe(dataset.directory, overrides)
    lines: list[str] = []
    if original.plan_hash != recipe.plan_hash:
        plan_lines = document_differences(original.plan_document, recipe.plan_document)
        lines += plan_lines or ["plan: the hash differs"]
    if original.screen_hash != recipe.screen_hash:
        screen_lines = document_differences(original.screen_document, recipe.screen_document)
        lines += screen_lines or ["screen: the hash differs"]
    # Overrides of these sections change no image here, but the recipe would no longer name the
    # origin of thresholds and tokens.
    before = _origins(original)
    after = _origins(recipe)
    for section in before:
        lines += document_differences(before[section], after[section], section)
    if lines:
        listed = [f"  {line}" for line in lines]
        raise UserError(
            ["--set would change the dataset that is rebuilt:", *listed],
            "--set may say where a folder is now, or change text on the card. For another dataset"
            f" build its recipe: counterfoil build {dataset.directory} --set … --out NEW",
        )
    return recipe


def _origins(recipe: Recipe) -> dict[str, Any]:
    """Return where thresholds, tokens and embeddings come from, without folders."""
    embeddings = {}
    for shift in recipe.all_shifts():
        embeddings[shift.name] = _portable(shift.embedding)
    return {
        "source": _portable(recipe.source),
        layout.TOKENS: _portable(recipe.tokens),
        "embedding": embeddings,
    }


def _portable(section: Any) -> Any:
    values = None if section is None else section.model_dump(mode="json")
    for key in ("dataset", "path"):
        if values and isinstance(values.get(key), str):
            values[key] = without_folders(values[key])
    return values


# `_DESCRIBING` are files that a build writes besides shards. Files that no build writes are not
# compared.
_DESCRIBING = (layout.CARD, layout.CROISSANT, layout.BENCHMARK)
_WRITTEN = (
    *_DESCRIBING, layout.RECIPE, layout.LOCK, layout.THRESHOLDS, layout.TIMM_INFO, layout.EMBEDDINGS, layout.ROWS,
)  # fmt: skip
_FOLDERS = (*layout.WHATS, layout.TOKENS, layout.RECEIPTS, layout.FIGURES)

MOST_ROWS = 200  # the most rows whose pixels are compared, over all differing shards
MOST_LISTED = 20

Shards = Mapping[tuple[str, int], Receipt]


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """A candidate for which the original and the rebuilt dataset have different decisions.

    there: the decision in the original. here: the decision in the rebuilt dataset. A decision is
    None if the candidate was not rendered.
    """

    key: str
    there: str | None
    here: str | None


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """The differences between the rows of shards that differ.

    rows: the number of compared rows, at most 200. same_bytes: the number of rows whose images have
    equal bytes.
    same_pixels: the number of rows whose images have equal pixels. least_psnr, median_psnr: the
    PSNR of the other rows, in decibels. decisions: the number of candidates with another decision.
    changed: the first of these candidates.
    """

    rows: int
    same_bytes: int
    same_pixels: int
    least_psnr: float | None
    median_psnr: float | None
    decisions: int
    changed: tuple[DecisionChange, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a rebuilt dataset's files with the manifest of the original."""

    shard_files: int
    """The number of files with data, candidates and rejected images."""
    differing: tuple[str, ...]
    """The shard files that differ, are missing or are new."""
    others: tuple[str, ...]
    """The other files of a build that differ."""
    left_out: tuple[str, ...]
    """The files that cannot be equal, or that no build writes."""
    stack: tuple[str, ...]
    """A line for each field of the stack that differs."""
    unexplained: tuple[str, ...]
    """The files, except cards, that differ although the stacks are equal."""
    rows: RowDifferences | None
    """The differences between rows, or None if nothing differs or the images of the original are
    missing."""

    @property
    def identical(self) -> bool:
        """Return whether all compared files have equal bytes."""
        return not self.differing and not self.others


def compare_with_original(
    original: SoundDataset,
    original_shards: Shards,
    out: Path,
    *,
    described: bool,
    images: bool,
) -> Comparison | None:
    """Compare the dataset in `out` with its original; return None if the original has no manifest.

    original_shards: the receipts of the original, read before the rebuild. described: whether to
    compare the recipe and the card, which is possible if no override changed their text. images:
    whether the images of the original still exist.
    """
    rebuilt = read_manifest(out)
    lock = read_lock(out)
    listed = original.listed
    if not listed or rebuilt is None or lock is None:
        return None
    paths = sorted(listed.keys() | rebuilt.keys())
    unequal = []
    left_out = set()
    for path in paths:
        folder, _, _ = path.partition("/")
        if path not in _WRITTEN and folder not in _FOLDERS:
            left_out.add(path)
        in_both = path in listed and path in rebuilt
        if not in_both or listed[path].sha256 != rebuilt[path].sha256:
            unequal.append(path)
    sealed = tuple(f"{folder.name}/" for folder in SEALED_FOLDERS)
    evaluated = any(path.startswith(sealed) for path in unequal)
    if evaluated or not described:
        left_out |= {*_DESCRIBING}
    if not described:
        left_out.add(layout.RECIPE)
    if layout.BENCHMARK not in rebuilt:  # a user wrote this file
        left_out.add(layout.BENCHMARK)
    differing = []
    others = []
    for path in unequal:
        if _is_shard(path):
            differing.append(path)
        elif path not in left_out:
            others.append(path)
    new_shards = {}
    for receipt in read_receipts(out):
        new_shards[receipt.group, receipt.shard] = receipt
    old_stack = original.lock.stack
    lines = stack_differences(old_stack, lock.stack)
    same_stack: set[tuple[str, int]] = set()
    for shard, receipt in new_shards.items():
        before = original_shards[shard].stack if shard in original_shards else old_stack
        of_shard = stack_differences(before, receipt.stack)
        lines = [*lines, *of_shard]
        if not of_shard:
            same_stack.add(shard)
    rows = None
    if images and differing:
        rows = _compare_rows(original.directory, original_shards, out, new_shards, differing)
    unexplained = []
    for path in differing:
        shard = _shard_of(path)
        if shard in same_stack or shard not in new_shards:
            unexplained.append(path)
    # Another version of Counterfoil may write other words in a card, and the stack does not record
    # this version.
    if not lines:
        unexplained += [path for path in others if path not in _DESCRIBING]
    return Comparison(
        shard_files=sum(map(_is_shard, paths)),
        differing=tuple(differing),
        others=tuple(others),
        left_out=tuple(sorted(left_out & listed.keys())),
        stack=tuple(dict.fromkeys(lines)),
        unexplained=tuple(unexplained),
        rows=rows,
    )


def _is_shard(path: str) -> bool:
    return path.partition("/")[0] in layout.WHATS


def _shard_of(path: str) -> tuple[str, int]:
    file = layout.parse_shard_path(path)
    return (file.group, file.number) if file else ("", 0)


def _compare_rows(
    directory: Path,
    original_shards: Shards,
    out: Path,
    new_shards: Shards,
    differing: Sequence[str],
) -> RowDifferences | None:
    shards = []
    for shard in dict.fromkeys(map(_shard_of, differing)):
        if shard in new_shards and shard in original_shards:
            files = original_shards[shard].files
            # A receipt may name files of other shards. Never open such a path.
            of_files = {_shard_of(file.path) for file in files}
            if of_files <= {shard} and not any(file_faults(directory, files)):
                shards.append(shard)
    if not shards:
        return None
    ratios: list[float] = []
    outcomes: Counter[Outcome] = Counter()
    changed: list[DecisionChange] = []
    decisions = 0
    rows_of_shard = max(1, MOST_ROWS // len(shards))
    for shard in shards:
        if outcomes.total() < MOST_ROWS:
            old_images = _images(directory, original_shards[shard])
            before = dict(islice(old_images, rows_of_shard))
            for key, image in _images(out, new_shards[shard]):
                if key not in before:
                    continue
                try:
                    outcome, decibels, _ = compare_images(before[key], image)
                except UnreadableImage:
                    outcome = "different"
                    decibels = None
                outcomes[outcome] += 1
                # images that do not decode, or of other sizes, count as 0 decibels
                if outcome == "different":
                    ratios.append(decibels or 0.0)
        original = _decisions(directory, original_shards[shard])
        rebuilt = _decisions(out, new_shards[shard])
        for key in {**original, **rebuilt}:
            change = DecisionChange(key, original.get(key), rebuilt.get(key))
            if change.there != change.here:
                decisions += 1
                if len(changed) < MOST_LISTED:
                    changed.append(change)
    return RowDifferences(
        rows=outcomes.total(),
        same_bytes=outcomes["identical bytes"],
        same_pixels=outcomes["identical pixels"],
        least_psnr=min(ratios, default=None),
        median_psnr=statistics.median(ratios) if ratios else None,
        decisions=decisions,
        changed=tuple(changed),
    )


def _images(
    directory: Path,
    receipt: Receipt,
) -> Iterator[tuple[str, bytes]]:
    kinds: tuple[layout.What, ...] = ("data", "rejected")
    for what in kinds:
        rows = read_shard(directory, receipt, ["key", "image"], what)
        for row in rows:
            image = row["image"] or {}
            yield row["key"], image.get("bytes") or b""


def _decisions(
    directory: Path,
    receipt: Receipt,
) -> dict[str, str]:
    rows = read_shard(directory, receipt, ["key", "reason"], "candidates")
    return {row["key"]: row["reason"] for row in rows}


@dataclass(frozen=True, slots=True)
class Regeneration(BuildResult):
    """The result of rebuilding or repairing a dataset.

    It includes the comparison with the original, if the original has a manifest, and whether the
    dataset was repaired.
    """

    comparison: Comparison | None = None
    repaired: bool = False


@takes(RegenerateOptions)
def regenerate(options: RegenerateOptions) -> Regeneration:
    """Rebuild a dataset in the directory `out` from its own recipe, lock, thresholds and tokens, or
    resume there.

    The input dataset is not needed. The models must be the models that the lock pins. If `out` is
    the directory of `source`, the dataset is repaired. A repair makes only damaged or missing
    shards again, then the card and the manifest.

    Returns:
        A Regeneration, which compares the new dataset with the original.

    Raises:
        UserError: An input cannot be used. Example: the source's recipe was edited.
        RunFailure: The source's recipe, lock, thresholds or tokens are damaged.
    """
    out = named_path(options.out)
    try_folder(out, of_dataset=True)
    located = locate_dataset(options.source, WANTED)
    is_local = located.reference is None
    in_place = is_local and out.resolve() == located.directory.resolve()
    standing_dataset = read_dataset(
        located.directory,
        "words",
        "thresholds",
        "tokens",
        "embeddings",
        "rows",
        own=is_local,
    )
    original = standing_dataset.sound()
    recipe = _overridden(original, options.overrides)
    table = original.plan.table
    described = recipe.portable_yaml == original.recipe.portable_yaml
    inputs = Inputs(
        original.lock.inputs,
        original.thresholds,
        original.tokens,
        rows_file(recipe) if table is None else table.content,
        original.embeddings,
    )
    settle_directory(out)
    resolved_engine, first_device = engine_and_device(options)
    refuse_other_models(recipe, original.lock)
    before = {}
    for standing in standing_shards(located.directory, ()):
        receipt = standing.receipt
        if receipt is not None and receipt.path == standing.path:
            before[receipt.group, receipt.shard] = receipt
    warn_of_screen(recipe, original.thresholds)
    recipe_yaml = original.recipe_yaml if described else recipe.portable_yaml
    repair = original.listed if in_place else None
    begun = DatasetBuild(
        recipe,
        inputs,
        out,
        first_device,
        resolved_engine,
        options.allow_mixed,
        recipe_yaml,
        repair,
    )
    result = begun.whole()
    comparison = compare_with_original(
        original,
        before,
        out,
        described=described,
        images=is_local and not in_place,
    )
    made = {}
    for field in fields(BuildResult):
        made[field.name] = getattr(result, field.name)
    return Regeneration(**made, comparison=comparison, repaired=in_place)

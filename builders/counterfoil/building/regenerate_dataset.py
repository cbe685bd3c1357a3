"""`build --from`: rebuild a dataset from its own files and compare it with the original, or repair it in place.

Recipe, lock, thresholds and tokens are verified before they are used. The input dataset is not needed: the directory
holds thresholds as numbers and tokens as vectors.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from counterfoil.building.build_dataset import BuildResult, make_dataset
from counterfoil.building.inputs import Inputs, rows_file
from counterfoil.building.judges import pin_judges
from counterfoil.data.hub import locate_dataset
from counterfoil.data.pool import wrong_pool
from counterfoil.dataset import SoundDataset, read_dataset
from counterfoil.dataset.label_checks import without_validation
from counterfoil.dataset.reading import wrong_model
from counterfoil.documents import differences
from counterfoil.engines import EngineChoice, engine_and_device
from counterfoil.errors import UserError
from counterfoil.generate.pictures import decoded, psnr
from counterfoil.models.loras import wrong_loras
from counterfoil.recipe import Recipe, load_own_recipe
from counterfoil.recipe.layering import without_folders
from counterfoil.regular_files import named_path
from counterfoil.store import Receipt, read_receipts
from counterfoil.store.atomic import try_folder
from counterfoil.store.decoding import UnreadableImage
from counterfoil.store.layout import (
    BENCHMARK,
    CARD,
    CROISSANT,
    EMBEDDINGS,
    FIGURES,
    LOCK,
    MANIFEST,
    RECEIPTS,
    RECIPE,
    ROWS,
    THRESHOLDS,
    TIMM_INFO,
    TOKENS,
    WHATS,
    What,
    parse_shard_path,
)
from counterfoil.store.lock import Lock, read_lock
from counterfoil.store.manifest import file_faults, read_manifest
from counterfoil.store.reading import read_shard
from counterfoil.store.receipts import standing_shards
from counterfoil.store.replacement import settle_directory
from counterfoil.store.sealed_folder import SEALED_FOLDERS

# The files of a published dataset that rebuilding and comparing need.
WANTED = (RECIPE, LOCK, THRESHOLDS, MANIFEST, f"{TOKENS}/**", "receipts/**", ROWS, EMBEDDINGS)


@dataclass(frozen=True, slots=True)
class Original:
    """A dataset, and what rebuilds it: its recipe with overrides, and its inputs."""

    dataset: SoundDataset
    recipe: Recipe
    recipe_yaml: str
    inputs: Inputs


def read_original(directory: Path, overrides: Sequence[str] = (), *, own: bool = True) -> Original:
    """Return the original in a directory, with `a.b=c` overrides that change none of its images and rows.

    `own` is False for a published copy, in which no interrupted replacement is settled. Raise UserError if there is no
    dataset or an override would change it. Raise RunFailure, with every damaged file, if a file that cannot be rebuilt
    differs from the lock or the manifest.
    """
    dataset = read_dataset(directory, "words", "thresholds", "tokens", "embeddings", "rows", own=own).sound()
    recipe = _overridden(dataset, overrides)
    portable = recipe.portable_yaml
    table = dataset.plan.table
    rows = rows_file(recipe) if table is None else table.content
    return Original(
        dataset=dataset,
        recipe=recipe,
        recipe_yaml=dataset.recipe_yaml if portable == dataset.recipe.portable_yaml else portable,
        inputs=Inputs(dataset.lock.inputs, dataset.thresholds, dataset.tokens, rows, dataset.embeddings),
    )


def refuse_other_models(recipe: Recipe, lock: Lock) -> None:
    """Raise UserError if a model in a folder is missing, or has other content than the lock pins.

    Models of the Hub are loaded at their pinned commits, so they are not checked.
    """
    pins = lock.inputs["models"]
    problems: list[str] = []
    if recipe.kind.draws:
        problems += wrong_model("generator.model", recipe.generator.model, pins["generator"])
        if recipe.generator.adapter is not None:
            pin = pins.get("adapter") or {"revision": None, "sha256": None}
            problems += wrong_model("generator.adapter", recipe.generator.adapter, pin)
        problems += wrong_loras(recipe.generator.lora, lock.inputs.get("loras") or {})
    if recipe.kind.takes_rows:
        problems += wrong_pool(recipe, lock.inputs.get("pool"))
    if recipe.screen.model is not None and recipe.screen.weights is None:  # else the name is one of open_clip's own
        problems += wrong_model("screen.model", recipe.screen.model, pins["screen"])
    if not problems and recipe.judges and pin_judges(recipe) != without_validation(lock.inputs.get("judges") or {}):
        key = "screen.keep" if recipe.screen.judge is None else "screen.judge"
        problems.append(f"{key}: the judges are not those that {LOCK} pins")
    if problems:
        raise UserError(
            problems,
            "Rebuilding needs the same weights. To use another model, build another dataset: `counterfoil build"
            " RECIPE`.",
        )


def _overridden(dataset: SoundDataset, overrides: Sequence[str]) -> Recipe:
    original = dataset.recipe
    if not overrides:
        return original
    recipe = load_own_recipe(dataset.directory, overrides)
    lines: list[str] = []
    if original.plan_hash != recipe.plan_hash:
        lines += differences(original.plan_document, recipe.plan_document) or ["plan: the hash differs"]
    if original.screen_hash != recipe.screen_hash:
        lines += differences(original.screen_document, recipe.screen_document) or ["screen: the hash differs"]
    # These change no image here, but the recipe would no longer name the origin of thresholds and tokens.
    for section in ("source", TOKENS):
        before, after = (getattr(each, section) for each in (original, recipe))
        lines += differences(_portable(before), _portable(after), section)
    before, after = (
        {s.name: s.embedding and s.embedding.model_dump() for s in r.all_shifts()} for r in (original, recipe)
    )
    lines += differences(before, after, "embedding")
    if lines:
        raise UserError(
            ["--set would change the dataset that is rebuilt:", *(f"  {line}" for line in lines)],
            "--set may say where a folder is now, or change text on the card. For another dataset build its recipe:"
            f" counterfoil build {dataset.directory} --set … --out NEW",
        )
    return recipe


def _portable(section: Any) -> Any:
    values = None if section is None else section.model_dump(mode="json")
    for key in ("dataset", "path"):
        if values and isinstance(values.get(key), str):
            values[key] = without_folders(values[key])
    return values


# The files that a build writes beside shards; other files in a directory are not compared.
_DESCRIBING = (CARD, CROISSANT, BENCHMARK)
_WRITTEN = (*_DESCRIBING, RECIPE, LOCK, THRESHOLDS, TIMM_INFO, EMBEDDINGS, ROWS)
_FOLDERS = (*WHATS, TOKENS, RECEIPTS, FIGURES)

MOST_ROWS = 200  # whose pixels are compared, over all shards that differ
MOST_LISTED = 20

Shards = Mapping[tuple[str, int], Receipt]


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """A candidate with another decision of the screen: the original's (`there`) and the new one (`here`).

    None if it was not rendered.
    """

    key: str
    there: str | None
    here: str | None


@dataclass(frozen=True, slots=True)
class RowDifferences:
    """The differences between rows of differing shards. `rows` are the compared rows, at most 200, with two images.

    same_bytes, same_pixels: rows with equal images. least_psnr, median_psnr: of the other rows, in decibels.
    decisions: candidates of these shards with another decision. changed: the first of them.
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
    """The comparison of a rebuilt dataset's files with the manifest of the original.

    shard_files: the compared files of data, candidates and rejected. differing: those that differ, are missing or are
    new. others: other files of a build that differ. left_out: files that cannot be equal or that no build writes.
    stack: a line for each field of the stack that differs. unexplained: files, except cards, that differ although the
    stack does not. rows: None if no row was compared, because nothing differs or the original's images are missing.
    """

    shard_files: int
    differing: tuple[str, ...]
    others: tuple[str, ...]
    left_out: tuple[str, ...]
    stack: tuple[str, ...]
    unexplained: tuple[str, ...]
    rows: RowDifferences | None

    @property
    def identical(self) -> bool:
        """Return whether all compared files are identical byte for byte."""
        return not self.differing and not self.others


def compare(
    original: Original, original_shards: Shards, out: Path, *, described: bool, images: bool
) -> Comparison | None:
    """Compare the dataset in `out` with its original; return None if the original has no manifest.

    original_shards: the original's receipts, read before the rebuild. described: compare recipe and card, which is
    pointless if overrides change their text. images: the original's images still exist.
    """
    rebuilt = read_manifest(out)
    lock = read_lock(out)
    if not original.dataset.listed or rebuilt is None or lock is None:
        return None
    paths = sorted(original.dataset.listed.keys() | rebuilt.keys())
    hashes = {path: [e and e.sha256 for e in (original.dataset.listed.get(path), rebuilt.get(path))] for path in paths}
    other = {path for path, (before, after) in hashes.items() if before != after}
    evaluated = any(path.startswith(f"{folder.name}/") for path in other for folder in SEALED_FOLDERS)
    left_out = {path for path in paths if path not in _WRITTEN and path.partition("/")[0] not in _FOLDERS}
    if evaluated or not described:
        left_out |= {*_DESCRIBING} & set(paths)
    if not described:
        left_out |= {RECIPE} & set(paths)
    if BENCHMARK not in rebuilt:  # a user wrote it
        left_out |= {BENCHMARK} & set(paths)
    differing = tuple(path for path in paths if path in other and _is_shard(path))
    others = tuple(path for path in paths if path in other and not _is_shard(path) and path not in left_out)
    after = {(receipt.group, receipt.shard): receipt for receipt in read_receipts(out)}
    stacks = [differences(original.dataset.lock.stack, lock.stack)]
    by_shard = {
        shard: differences(
            original_shards[shard].stack if shard in original_shards else original.dataset.lock.stack, receipt.stack
        )
        for shard, receipt in after.items()
    }
    stack = tuple(dict.fromkeys(line for lines in [*stacks, *by_shard.values()] for line in lines))
    alike = [path for path in differing if not by_shard.get(_shard_of(path))]
    return Comparison(
        shard_files=sum(map(_is_shard, paths)),
        differing=differing,
        others=others,
        left_out=tuple(path for path in sorted(left_out) if path in original.dataset.listed),
        stack=stack,
        # Another version of Counterfoil may word a card differently, and the stack does not record that version.
        unexplained=(*alike, *(path for path in others if not stack and path not in _DESCRIBING)),
        rows=_compare_rows(original.dataset.directory, original_shards, out, after, differing)
        if images and differing
        else None,
    )


def _is_shard(path: str) -> bool:
    return path.partition("/")[0] in WHATS


def _shard_of(path: str) -> tuple[str, int]:
    file = parse_shard_path(path)
    return (file.group, file.number) if file else ("", 0)


def _compare_rows(
    directory: Path, original_shards: Shards, out: Path, new_shards: Shards, differing: Sequence[str]
) -> RowDifferences | None:
    shards = [
        shard
        for shard in dict.fromkeys(map(_shard_of, differing))
        if shard in new_shards and shard in original_shards and _at_hand(directory, shard, original_shards[shard])
    ]
    if not shards:
        return None
    apart: list[float] = []
    same_bytes = 0
    changed: list[DecisionChange] = []
    decisions = 0
    rows_of_shard = max(1, MOST_ROWS // len(shards))
    for shard in shards:
        if len(apart) + same_bytes < MOST_ROWS:
            before = dict(islice(_images(directory, original_shards[shard]), rows_of_shard))
            for key, image in _images(out, new_shards[shard]):
                if key in before:
                    same_bytes += before[key] == image
                    apart += [] if before[key] == image else [_apart(before[key], image)]
        for change in _changed(directory, original_shards[shard], out, new_shards[shard]):
            decisions += 1
            changed += [change] if len(changed) < MOST_LISTED else []
    finite = [decibels for decibels in apart if decibels != float("inf")]
    return RowDifferences(
        rows=same_bytes + len(apart),
        same_bytes=same_bytes,
        same_pixels=len(apart) - len(finite),
        least_psnr=min(finite, default=None),
        median_psnr=statistics.median(finite) if finite else None,
        decisions=decisions,
        changed=tuple(changed),
    )


def _apart(before: bytes, after: bytes) -> float:
    """Return the PSNR of two encoded images in decibels; 0 if one does not decode or the sizes differ."""
    try:
        before_pixels, after_pixels = decoded(before), decoded(after)
    except UnreadableImage:
        return 0.0
    return psnr(before_pixels, after_pixels) if before_pixels.shape == after_pixels.shape else 0.0


def _at_hand(directory: Path, shard: tuple[str, int], receipt: Receipt) -> bool:
    """Return whether the original's files of a shard are present and unchanged."""
    if any(_shard_of(file.path) != shard for file in receipt.files):
        return False  # never open another path that a receipt names
    return not any(file_faults(directory, receipt.files))


def _images(directory: Path, receipt: Receipt) -> Iterator[tuple[str, bytes]]:
    kinds: tuple[What, ...] = ("data", "rejected")
    for what in kinds:
        for row in read_shard(directory, receipt, ["key", "image"], what):
            yield row["key"], (row["image"] or {}).get("bytes") or b""


def _changed(directory: Path, original_receipt: Receipt, out: Path, new_receipt: Receipt) -> Iterator[DecisionChange]:
    before, after = (
        {row["key"]: row["reason"] for row in read_shard(folder, receipt, ["key", "reason"], "candidates")}
        for folder, receipt in ((directory, original_receipt), (out, new_receipt))
    )
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            yield DecisionChange(key, before.get(key), after.get(key))


@dataclass(frozen=True, slots=True)
class Regeneration(BuildResult):
    """The rebuilt dataset, and its comparison with the original; `comparison` is None if the original has no manifest.

    `repaired` is True if it was rebuilt in the original's own directory.
    """

    comparison: Comparison | None = None
    repaired: bool = False


def regenerate(
    source: str | Path,
    out: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
    allow_mixed: bool = False,
    engine: EngineChoice | None = None,
) -> Regeneration:
    """Rebuild a dataset in the directory `out` from its own recipe, lock, thresholds and tokens, or resume there.

    The input dataset is not needed. Models must be those that the lock pins. If `out` is the directory of `source`, the
    dataset is repaired: only damaged or missing shards are made again, then the card and the manifest.

    Args:
        source: A dataset directory or `user/name[@revision]`.
        out: The directory to write.
        overrides: Where a model's folder is now, as `a.b=c` strings.
        device: As in `build`.
        workers: As in `build`.
        allow_mixed: As in `build`.
        engine: As in `build`.

    Returns:
        A Regeneration, which compares the new dataset with the original.

    Raises:
        UserError: An input cannot be used. Example: the source's recipe was edited.
        RunFailure: The source's recipe, lock, thresholds or tokens are damaged.
    """
    out = named_path(out)
    try_folder(out)
    located = locate_dataset(source, WANTED)
    is_local = located.reference is None
    in_place = is_local and out.resolve() == located.directory.resolve()
    original = read_original(located.directory, overrides, own=is_local)
    settle_directory(out)
    made_by, here_on = engine_and_device(device, workers, engine)
    refuse_other_models(original.recipe, original.dataset.lock)
    before = {
        (stands.receipt.group, stands.receipt.shard): stands.receipt
        for stands in standing_shards(located.directory, ())
        if stands.receipt is not None and stands.receipt.path == stands.path
    }
    described = original.recipe_yaml == original.dataset.recipe_yaml
    result = make_dataset(
        original.recipe,
        original.inputs,
        out,
        device=here_on,
        engine=made_by,
        allow_mixed=allow_mixed,
        recipe_yaml=original.recipe_yaml,
        repair=original.dataset.listed if in_place else None,
    )
    comparison = compare(original, before, out, described=described, images=is_local and not in_place)
    made = {field.name: getattr(result, field.name) for field in fields(BuildResult)}
    return Regeneration(**made, comparison=comparison, repaired=in_place)

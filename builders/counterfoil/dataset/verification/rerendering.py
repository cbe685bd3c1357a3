"""Re-render random rows from their metadata, the recipe, tokens and pinned generator, and compare
the images."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.data.pool import loadable_pool, wrong_pool
from counterfoil.dataset.reading import StandingDataset, wrong_model
from counterfoil.dataset.verification.problems import Outcome, Rerendered
from counterfoil.dataset.verification.shards import tables_with_images
from counterfoil.errors import ProblemLine, UserError
from counterfoil.generate.kinds import Materials, maker_of
from counterfoil.generate.pictures import decode_image, psnr
from counterfoil.models.loras import wrong_loras
from counterfoil.models.names import local_folder
from counterfoil.plan.layout import Plan
from counterfoil.progress import report_progress
from counterfoil.recipe import load_own_recipe
from counterfoil.store.layout import LOCK, RECIPE, What
from counterfoil.store.lock import stack_differences
from counterfoil.store.messages import message, refusal
from counterfoil.store.reading import read_file
from counterfoil.store.receipts import Receipt

_MODEL = "generator.model"
_ADAPTER = "generator.adapter"
_SOURCE = "source.dataset"
_COLUMNS = ("key", "shift", "class_id", "label", "index", "pair", "prompt", "seed", "image")


@dataclass(frozen=True, slots=True)
class ChosenRow:
    """A row, named by its shard's receipt, its table, the table's file, and its number in the
    file."""

    receipt: Receipt
    what: What
    path: str
    row: int


def pinned_generator(dataset: StandingDataset, overrides: Sequence[str]) -> Materials | None:
    """Return the pinned generator, or None if recipe or lock is damaged. Raise UserError for
    another generator."""
    recipe = dataset.recipe
    drawn = recipe is None or recipe.kind.draws
    edits = recipe is not None and recipe.kind.alters_rows
    allowed = [_MODEL]
    if recipe is not None:
        allowed = list(recipe.generator.named_models())
    if edits:
        allowed.append(_SOURCE)
    problems = []
    for override in overrides:
        key = override.partition("=")[0]
        if key.strip() not in allowed:
            named = " or ".join(allowed)
            problems.append(message("cannot-rerender.set", f"--set {override}", expected=named))
    if problems:
        raise UserError(problems)
    if recipe is None or dataset.lock is None:
        return None
    if any(fault.path in (RECIPE, LOCK) for fault in dataset.causes()):
        return None
    if not drawn and not edits:
        raise refusal("cannot-rerender.held", dataset.directory, recipe.kind.holds)
    if overrides:
        recipe = load_own_recipe(dataset.directory, overrides)
    models = recipe.generator.named_models()
    inputs = dataset.lock.inputs
    revision = adapter_revision = pool = None
    if drawn:
        revision = _pinned_revision(_MODEL, models[_MODEL], inputs["models"]["generator"])
    if edits:
        problems = list(wrong_pool(recipe, inputs["pool"]))
        if problems:
            raise UserError(problems, f"Name the one that {LOCK} pins: --set {_SOURCE}=PATH")
        pool = loadable_pool(recipe, inputs["pool"])
    loras = inputs.get("loras") or {}
    problems = list(wrong_loras(recipe.generator.get("lora", {}), loras))
    if problems:
        raise UserError(problems)
    if _ADAPTER in models:
        pin = inputs["models"].get("adapter") or {}
        adapter_revision = _pinned_revision(_ADAPTER, models[_ADAPTER], pin)
    return Materials(
        recipe,
        revision=revision,
        adapter_revision=adapter_revision,
        loras=loras,
        pool=pool,
    )


def _pinned_revision(key: str, name: str, pin: Mapping[str, Any]) -> str | None:
    """Return the commit of a model, or None for a folder. Raise UserError if it is not the pinned
    model."""
    problems = list(wrong_model(key, name, pin))
    if problems:
        raise UserError(problems, f"Name the one that {LOCK} pins: --set {key}=local-dir:PATH")
    if local_folder(name) is not None:
        return None
    return str(pin["revision"])


def choose_rows(
    receipts: Sequence[Receipt],
    sound: Callable[[str], bool],
    count: int,
    seed: int,
) -> list[ChosenRow]:
    """Choose at most `count` rows that have images, from `sound` files, with a seed. Return them in
    plan order."""
    tables = list(tables_with_images(receipts, sound))
    total = sum(file.rows for _, _, file in tables)
    drawn = random.Random(seed).sample(range(total), min(count, total))
    wanted = sorted(drawn)
    chosen = []
    first = 0
    for receipt, what, file in tables:
        while len(chosen) < len(wanted) and wanted[len(chosen)] < first + file.rows:
            row = wanted[len(chosen)] - first
            chosen.append(ChosenRow(receipt, what, file.path, row))
        first += file.rows
    return chosen


def rerender_rows(
    directory: Path,
    plan: Plan,
    materials: Materials,
    chosen: Sequence[ChosenRow],
) -> list[Rerendered]:
    """Render chosen rows again on the resolved device of `materials`. Errors of loading and
    rendering are raised."""
    from PIL import Image

    from counterfoil.generate.pictures import encode_image
    from counterfoil.models.arithmetic import computing_on, one_thread
    from counterfoil.models.stack import rendering_stack
    from counterfoil.plan.layout import Sample

    recipe = plan.recipe
    device = materials.device
    done = []
    threads = one_thread() if recipe.runs_models else contextlib.nullcontext()
    with threads, computing_on(device):
        renderer = maker_of(recipe).renderer(materials)
        stack = rendering_stack(device, recipe)
        rows = _rows(directory, chosen)
        while batch := list(islice(rows, recipe.generator.batch_size)):
            samples = []
            for position, row in batch:
                values = {name: row[name] for name in _COLUMNS if name != "image"}
                shift = row["shift"]
                class_id = row["class_id"]
                if plan.edits:
                    cls = plan.class_of(row["label"])
                    values |= plan.of_edit(cls, row["index"])
                else:
                    values["base_prompt"] = plan.base_prompt(shift, class_id)
                values["between"] = plan.between(shift, class_id, values["base_prompt"])
                samples.append(Sample(group=position.receipt.group, **values))
            # In full batches, because at one batch size, other images of a batch change no bit of
            # an image.
            images = renderer.render(samples)
            for (position, row), pixels in zip(batch, images, strict=True):
                compared: tuple[Outcome, float | None, int | None] = ("not rendered", None, None)
                if pixels is not None:
                    rendered = encode_image(Image.fromarray(pixels), recipe)
                    compared = compare_images(row["image"]["bytes"], rendered)
                fields = tuple(stack_differences(position.receipt.stack, stack))
                done.append(Rerendered(position.path, row["key"], *compared, fields))
            report_progress("re-rendering", len(done), len(chosen))
    return done


def _rows(
    directory: Path,
    chosen: Sequence[ChosenRow],
) -> Iterator[tuple[ChosenRow, dict[str, Any]]]:
    """Yield the chosen rows, which are in the order of files. Each file is read up to its last
    chosen row."""
    by_file = groupby(chosen, key=lambda position: (position.path, position.what))
    for (path, what), positions in by_file:
        wanted = {position.row: position for position in positions}
        first = 0
        for rows in read_file(directory / path, what, _COLUMNS):
            for number in range(first, first + len(rows)):
                if number in wanted:
                    yield wanted.pop(number), rows[number - first]
            if not wanted:
                break
            first += len(rows)


def rendering_fault(row: Rerendered) -> ProblemLine | None:
    """Return why a re-rendered row is damaged, or None. On the same stack, bytes must be equal,
    else pixels alike."""
    numbers = ""
    if row.psnr is not None:
        numbers = f" (PSNR {row.psnr:.1f} dB, at most {row.greatest} levels)"
    name = "other-rendering.same-stack"
    damaged = row.outcome != "identical bytes"
    if row.stack:
        name = "other-rendering.stack"
        is_different = row.outcome == "different" and (row.psnr or 0.0) < LEAST_PSNR
        damaged = row.outcome == "not rendered" or is_different
    if not damaged:
        return None
    return message(
        name,
        None,
        row.outcome,
        LEAST_PSNR,
        row=row.key,
        numbers=numbers,
    )


# Above 40 dB, people see no difference between two 8-bit images; below 30 dB, most do. Other stacks
# change levels by 1.
LEAST_PSNR = 30.0


def compare_images(stored: bytes, rendered: bytes) -> tuple[Outcome, float | None, int | None]:
    """Return the outcome. For different pixels, add PSNR in dB and the greatest difference in
    levels of 255."""
    if stored == rendered:
        return "identical bytes", None, None
    first = decode_image(stored)
    second = decode_image(rendered)
    if first.shape != second.shape:
        return "different", None, None
    if np.array_equal(first, second):
        return "identical pixels", None, None
    return "different", psnr(first, second), greatest_difference(first, second)


def greatest_difference(first: np.ndarray, second: np.ndarray) -> int:
    return int(np.abs(first.astype(np.int16) - second.astype(np.int16)).max())

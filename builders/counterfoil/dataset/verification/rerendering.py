"""Seeded random rows made again, from nothing but their metadata, recipe, tokens and the pinned generator."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.data.pool import loadable_pool, wrong_pool
from counterfoil.dataset import StandingDataset
from counterfoil.dataset.reading import wrong_model
from counterfoil.dataset.verification.problems import Outcome, ProblemsFound, Rerendered
from counterfoil.documents import differences
from counterfoil.errors import UserError
from counterfoil.generate.kinds import Materials, maker_of
from counterfoil.generate.pictures import decoded, psnr
from counterfoil.models import local_folder
from counterfoil.models.loras import wrong_loras
from counterfoil.progress import report
from counterfoil.recipe import load_own_recipe
from counterfoil.store.layout import LOCK, RECIPE, What
from counterfoil.store.reading import read_file

if TYPE_CHECKING:
    from counterfoil.plan import Plan
    from counterfoil.recipe import Recipe
    from counterfoil.store import Receipt


_MODEL, _ADAPTER = "generator.model", "generator.adapter"
_SOURCE = "source.dataset"
_WITH_IMAGES: tuple[What, ...] = ("data", "rejected")
_COLUMNS = ("key", "shift", "class_id", "label", "index", "pair", "prompt", "seed", "image")


@dataclass(frozen=True, slots=True)
class ChosenRow:
    """A row by its place: the shard's receipt, the table, and its number in the shard's file."""

    receipt: Receipt
    what: What
    row: int


def pinned_generator(there: StandingDataset, overrides: Sequence[str]) -> Materials | None:
    """The generator of a dataset as it can be loaded here; None where its recipe or lock is damaged.

    `overrides` say where the generator, its adapter and rows that are edited lie (`generator.model=PATH`), and nothing
    else. UserError, with both hashes, for one that is not what the lock pins.
    """
    adapted = there.recipe is not None and there.recipe.generator.adapter is not None
    loras = () if there.recipe is None else tuple(f"generator.lora.{name}.path" for name in there.recipe.generator.lora)
    edits = there.recipe is not None and there.recipe.kind.alters_rows
    drawn = there.recipe is None or there.recipe.kind.draws
    allowed = (*((_MODEL,) if drawn else ()), *((_ADAPTER,) if adapted else ()), *loras, *((_SOURCE,) if edits else ()))
    others = [override for override in overrides if override.partition("=")[0].strip() not in allowed]
    if others:
        raise UserError(
            [f"--set {override}: only {' or '.join(allowed)} can be set here" for override in others],
            hint="--set can only say where the generator is.",
        )
    if there.recipe is None or there.lock is None or any(fault.path in (RECIPE, LOCK) for fault in there.causes()):
        return None
    if not drawn and not edits:
        held = there.recipe.kind.holds
        raise UserError(f"{there.directory} holds {held}, which were not rendered", "Verify it without --rerender.")
    recipe = load_own_recipe(there.directory, overrides) if overrides else there.recipe
    generator, inputs = recipe.generator, there.lock.inputs
    revision = adapter_revision = pool = None
    if drawn:
        pin = inputs["models"]["generator"]
        if problems := list(wrong_model(_MODEL, generator.model, pin)):
            raise UserError(problems, f"Name the one that {LOCK} pins: --set {_MODEL}=local-dir:PATH")
        revision = _revision(generator.model, pin)
    if edits:
        if problems := list(wrong_pool(recipe, inputs["pool"])):
            raise UserError(problems, f"Name the one that {LOCK} pins: --set {_SOURCE}=PATH")
        pool = loadable_pool(recipe, inputs["pool"])
    loras = (generator.lora, inputs.get("loras") or {})
    if problems := list(wrong_loras(*loras)):
        raise UserError(problems)
    if generator.adapter is not None:
        own = inputs["models"].get("adapter") or {"revision": None, "sha256": None}
        if problems := list(wrong_model(_ADAPTER, generator.adapter, own)):
            raise UserError(problems, f"Name the one that {LOCK} pins: --set {_ADAPTER}=local-dir:PATH")
        adapter_revision = _revision(generator.adapter, own)
    return Materials(recipe, revision=revision, adapter_revision=adapter_revision, loras=loras, pool=pool)


def _revision(name: str, pin: Mapping[str, Any]) -> str | None:
    return None if local_folder(name) is not None else str(pin["revision"])


def choose_rows(receipts: Sequence[Receipt], sound: Callable[[str], bool], count: int, seed: int) -> list[ChosenRow]:
    """`count` rows with images, or all where there are fewer, in the plan's order; the same for the same seed.

    `sound` tells which files may be read. All rows are equally likely.
    """
    tables: list[tuple[Receipt, What, int]] = [
        (receipt, what, file.rows)
        for receipt in receipts
        for what in _WITH_IMAGES
        if (file := receipt.file(what)) is not None and sound(file.path)
    ]
    total = sum(rows for _, _, rows in tables)
    wanted = sorted(random.Random(seed).sample(range(total), min(count, total)))
    chosen, first, at = [], 0, 0
    for receipt, what, rows in tables:
        while at < len(wanted) and wanted[at] < first + rows:
            chosen.append(ChosenRow(receipt, what, wanted[at] - first))
            at += 1
        first += rows
    return chosen


@dataclass(frozen=True, slots=True)
class Rerenderer:
    """Renders chosen rows again. The materials' device is resolved; raises what loading and rendering raise."""

    directory: Path
    plan: Plan
    materials: Materials

    def render(self, chosen: Sequence[ChosenRow]) -> list[Rerendered]:
        """Render and compare each row, in order; report after each batch."""
        from PIL import Image

        from counterfoil.generate.pictures import encode_image
        from counterfoil.models.devices import computing_on, libraries_of, one_thread, stack_of
        from counterfoil.plan import Sample

        generator, device = self.recipe.generator, self.materials.device
        done: list[Rerendered] = []
        with one_thread(), computing_on(device):
            renderer = maker_of(self.recipe).renderer(self.materials)
            libraries = libraries_of(generator)
            stack = stack_of(device, generator.dtype, generator.batch_size, libraries, compiled=generator.compile)
            for batch in self._batches(chosen):
                samples = []
                for place, row in batch:
                    own = {name: row[name] for name in _COLUMNS if name != "image"}
                    shift, class_id = row["shift"], row["class_id"]
                    if self.plan.edits:
                        beside: dict[str, Any] = self.plan.of_edit(self.plan.class_of(row["label"]), row["index"])
                    else:
                        beside = {"base_prompt": self.plan.base_prompt(shift, class_id)}
                    between = self.plan.between(shift, class_id, beside["base_prompt"])
                    samples.append(Sample(group=place.receipt.group, between=between, **own, **beside))
                # In full batches, since at one batch size neighbours change no bit.
                for (place, row), pixels in zip(batch, renderer.render(samples), strict=True):
                    compared: tuple[Outcome, float | None, int | None] = ("not rendered", None, None)
                    if pixels is not None:
                        rendered = encode_image(Image.fromarray(pixels), self.recipe)
                        compared = compare_images(row["image"]["bytes"], rendered)
                    fields = tuple(differences(place.receipt.stack, stack))
                    done.append(Rerendered(_path(place), row["key"], *compared, fields))
                report("re-rendering", len(done), len(chosen))
        return done

    @property
    def recipe(self) -> Recipe:
        return self.plan.recipe

    def _batches(self, chosen: Sequence[ChosenRow]) -> Iterator[list[tuple[ChosenRow, dict[str, Any]]]]:
        batch: list[tuple[ChosenRow, dict[str, Any]]] = []
        for place, row in self._rows(chosen):
            batch.append((place, row))
            if len(batch) == self.recipe.generator.batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _rows(self, chosen: Sequence[ChosenRow]) -> Iterator[tuple[ChosenRow, dict[str, Any]]]:
        """The chosen rows, each file read as far as its last one."""
        by_file: dict[tuple[str, What], list[ChosenRow]] = {}
        for place in chosen:
            by_file.setdefault((_path(place), place.what), []).append(place)
        for (path, what), places in by_file.items():
            wanted = {place.row: place for place in places}
            first = 0
            for rows in read_file(self.directory / path, what, _COLUMNS):
                for number in range(first, first + len(rows)):
                    if number in wanted:
                        yield wanted.pop(number), rows[number - first]
                if not wanted:
                    break
                first += len(rows)


def report_differences(rerendered: Sequence[Rerendered], receipts: Mapping[str, str], findings: ProblemsFound) -> None:
    """What of the rows rendered again is damage: any other byte on the same stack, and on another what one would see.

    `receipts` are the shards' receipts by file.
    """
    for each in rerendered:
        what = difference_text(each)
        if what is not None:
            findings.add(each.path, what, findings.repairs.of_shard(receipts[each.path]))


def difference_text(each: Rerendered) -> str | None:
    """Why a row that was rendered again is damaged; None where it is not."""
    numbers = ""
    if each.psnr is not None:
        numbers = f" (PSNR {each.psnr:.1f} dB, at most {each.greatest} levels)"
    if not each.stack:
        if each.outcome == "identical bytes":
            return None
        return f"is wrong in {each.key}: re-rendered on the same stack, it is {each.outcome}{numbers}"
    if each.outcome == "not rendered" or (each.outcome == "different" and (each.psnr or 0.0) < LEAST_PSNR):
        return (
            f"is wrong in {each.key}: re-rendered, it is {each.outcome}{numbers},"
            f" more than another stack explains ({LEAST_PSNR:g} dB)"
        )
    return None


def _path(place: ChosenRow) -> str:
    file = place.receipt.file(place.what)
    assert file is not None  # it was chosen from one
    return file.path


# Above 40 dB nobody sees a difference between two 8-bit images; below 30 dB most do. Another stack moves levels by one.
LEAST_PSNR = 30.0


def compare_images(stored: bytes, rendered: bytes) -> tuple[Outcome, float | None, int | None]:
    """The outcome, PSNR in dB and the greatest difference in levels of 255 of two encoded images that decode.

    The numbers are None for equal pixels, and PSNR and levels also where the sizes differ.
    """
    if stored == rendered:
        return "identical bytes", None, None
    one, other = decoded(stored), decoded(rendered)
    if one.shape != other.shape:
        return "different", None, None
    if np.array_equal(one, other):
        return "identical pixels", None, None
    return "different", psnr(one, other), greatest_difference(one, other)


def greatest_difference(one: np.ndarray, other: np.ndarray) -> int:
    """The greatest difference of two uint8 arrays, in levels."""
    return int(np.abs(one.astype(np.int16) - other.astype(np.int16)).max())

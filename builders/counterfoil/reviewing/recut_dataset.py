"""Cut a built dataset again: apply other thresholds to the stored scores, keep the images, and
render nothing.

The result has the same bytes as a fresh build of the cut recipe.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.building.inputs import thresholds_of
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.dataset.card.index_page import write_index
from counterfoil.dataset.closing import close_dataset
from counterfoil.dataset.reading import SoundDataset, read_dataset
from counterfoil.documents import document_differences, sha256_json
from counterfoil.errors import RunFailure, UserError, quoted, some_of
from counterfoil.generate.screen.doubts import ScreenDoubts, screen_doubts, warn_of_screen
from counterfoil.generate.screen.thresholds import (
    FewImages,
    Thresholds,
    needs_validation,
    open_shifts,
)
from counterfoil.models.clip import pin_clip
from counterfoil.models.devices import resolve_device
from counterfoil.models.names import Pin
from counterfoil.options import takes
from counterfoil.plan.layout import make_plan
from counterfoil.progress import report_progress
from counterfoil.recipe import Recipe
from counterfoil.recipe.keep.cells import ACCEPTED, FAILED, decide_cell, keeps_image, quota_draws
from counterfoil.recipe.keep.misclassified import TOP1
from counterfoil.recipe.keep.rule import AskingRule, Verdict
from counterfoil.recipe.loader import load_cut
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.tasks.task import UNIT
from counterfoil.regular_files import named_path
from counterfoil.report.words import format_count
from counterfoil.reviewing.options import RecutOptions
from counterfoil.store.atomic import try_folder
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.inside import is_outside
from counterfoil.store.layout import (
    CARD,
    CROISSANT,
    FIGURES,
    LOCK,
    MANIFEST,
    RECEIPTS,
    RECIPE,
    THRESHOLDS,
    TIMM_INFO,
    WHATS,
)
from counterfoil.store.lock import read_lock
from counterfoil.store.manifest import file_faults, published_paths
from counterfoil.store.reading import planned_rows, read_shard
from counterfoil.store.receipts import Receipt, counts_of, repair_hint
from counterfoil.store.replacement import (
    discard_replacement,
    replace_dataset,
    replacement_folder,
    settle_directory,
)
from counterfoil.store.rows import Candidate, TableForm, verdict_of
from counterfoil.store.sealed_folder import SEALED_FOLDERS

if TYPE_CHECKING:
    from counterfoil.plan.layout import Cell, Plan, Shard
    from counterfoil.recipe import Shift

_SCORED = ("prompt", "object_score", "shift_score", "reason")
# Folders of results that were measured on the old images. A cut dataset does not get them.
_RESULTS = tuple(folder.name for folder in SEALED_FOLDERS)
_MOST_SHIFTS = 8  # shifts named in a message
_PLACES = (
    "Give --out NEW (in Python out=…) for a new directory, or --in-place (in_place=True) to"
    " change this one."
)


@dataclass(frozen=True, slots=True)
class CutLosses:
    """What a cut in place deletes for good: images by shift, candidates, columns, and result files
    by folder."""

    images: Mapping[str, int]
    candidates: int
    columns: tuple[str, ...]
    results: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.lines())

    def lines(self) -> list[str]:
        """Return a line for each kind of loss."""
        lines = []
        if self.images:
            shown = [f"{count:,} of {name}" for name, count in self.images.items()]
            lines.append(
                f"deletes {format_count(sum(self.images.values()), 'image')} that no later cut can"
                f" restore: {some_of(shown, _MOST_SHIFTS, what='shifts')}"
            )
        if self.candidates:
            lines.append(
                f"deletes {format_count(self.candidates, 'candidate')}, drawn after their cells were"
                " full, and their scores"
            )
        if self.columns:
            lines.append(f"deletes columns that no rule uses any more: {', '.join(self.columns)}")
        for folder, files in self.results.items():
            lines.append(
                f"deletes results in {folder}/, measured on the current images:"
                f" {format_count(files, 'file')}"
            )
        return lines


@dataclass(frozen=True, slots=True)
class RecutResult:
    """The result of a cut."""

    directory: Path
    counts: Mapping[str, Mapping[str, int]]
    candidates: int
    accepted: int
    shards: int
    images_dropped: int
    """The number of images that are no longer kept."""
    manifest_sha256: str
    changed: tuple[str, ...]
    """The changed settings of the screen, a line each."""
    open_shifts: tuple[str, ...] = ()
    few_images: tuple[FewImages, ...] = ()
    screen_doubts: ScreenDoubts | None = None


@takes(RecutOptions)
def recut(given: RecutOptions) -> RecutResult:
    """Apply the thresholds in the file `cut` to a finished dataset.

    If a run is killed, call the function again: it resumes.

    Returns:
        A RecutResult with counts by shift and reason.

    Raises:
        UserError: Both or neither of `out` and `in_place` are given, or the cut needs images that
            were not kept or not rendered.
    """
    directory = named_path(given.directory)
    out = _place(directory, given.out, given.in_place)
    if out is not None:
        try_folder(out, of_dataset=True)
    settle_directory(directory)
    # A directory without write access cannot change while it is read.
    writable = out is None or os.access(directory, os.W_OK)
    with contextlib.ExitStack() as stack:
        if writable and (directory / LOCK).is_file():
            stack.enter_context(directory_lock(directory))
        dataset = read_dataset(directory, "thresholds", "receipts", "rows").finished()
        recipe = load_cut(directory / RECIPE, named_path(given.cut))
        changed = document_differences(dataset.recipe.screen_document, recipe.screen_document)
        receipts = dataset.receipts
        thresholds = dataset.thresholds
        if out is not None or recipe.portable_yaml != dataset.recipe.portable_yaml:
            new = _New.of(dataset, recipe, given.source, given.device)
            thresholds = new.thresholds
            losses = new.refuse_missing()
            if out is not None:
                receipts = new.write(out)
            else:
                if losses and given.before is not None:
                    given.before(losses)
                target = replacement_folder(directory)
                other = read_lock(target)
                if other is not None and dict(other.hashes) != new.hashes:
                    # an earlier cut by other thresholds began this replacement
                    discard_replacement(directory)
                receipts = new.write(target)
                replace_dataset(directory)
        if out is None:
            # a cut that was killed after it replaced the dataset left the old page
            write_index(directory)
        warn_of_screen(recipe, thresholds)
        counts = counts_of(receipts)
        target = out or directory
        return RecutResult(
            directory=target,
            counts=counts,
            candidates=sum(sum(reasons.values()) for reasons in counts.values()),
            accepted=sum(reasons.get(ACCEPTED, 0) for reasons in counts.values()),
            shards=len(receipts),
            images_dropped=_images(dataset.receipts) - _images(receipts),
            manifest_sha256=json.loads((target / MANIFEST).read_bytes())["sha256"],
            changed=tuple(changed),
            open_shifts=open_shifts(recipe),
            few_images=thresholds.few_images(),
            screen_doubts=screen_doubts(recipe, thresholds),
        )


def _images(receipts: Sequence[Receipt]) -> int:
    return sum(receipt.rows["data"] + receipt.rows["rejected"] for receipt in receipts)


def _place(
    directory: Path,
    out: str | Path | None,
    in_place: bool,
) -> Path | None:
    """Return the directory of the cut dataset, or None if it replaces the old dataset."""
    if out is None and in_place:
        return None
    if out is None:
        raise UserError(
            f"no directory is named for the cut dataset, and {directory} itself changes only in"
            " place",
            _PLACES,
        )
    if in_place:
        raise UserError(
            "a cut is written either in place or to another directory, not both", _PLACES
        )
    if named_path(out).resolve() == directory.resolve():
        raise UserError(f"{out} is the dataset itself, which changes only in place", _PLACES)
    return named_path(out)


@dataclass(frozen=True, slots=True)
class _New:
    """The new dataset that a cut makes from the old one."""

    old: SoundDataset
    recipe: Recipe
    plan: Plan
    thresholds: Thresholds
    inputs: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        old: SoundDataset,
        recipe: Recipe,
        source: str | None,
        device: str,
    ) -> _New:
        if recipe.screen.store_embeddings and not old.recipe.screen.store_embeddings:
            raise UserError(
                "screen.store_embeddings: this dataset did not store them, and a cut does not"
                " screen images again",
                "Build the recipe into another folder.",
            )
        problems = list(_never_asked(old.recipe, recipe))
        if problems:
            raise UserError(
                problems,
                "Build the recipe into another folder: a cut does not screen images again.",
            )
        known = old.measured
        measuring = recipe
        if source is not None:  # a directory's recipe has no path of a local folder
            lies = {"dataset": str(named_path(source).resolve())}
            moved = recipe.source.model_copy(update=lies)
            measuring = recipe.model_copy(update={"source": moved})
        pin = _same_pins(old, measuring) if needs_validation(recipe, known) else None
        resolved = resolve_device(device)
        # Only the lock's facts on the CLIP model are taken.
        screen = old.lock.inputs["models"]["screen"]
        clip = Pin(*(screen.get(name) for name in ("name", "revision", "sha256", "license")))
        thresholds = thresholds_of(measuring, known, resolved, clip, pin, old.thresholds.known)
        inputs = {**old.lock.inputs, "thresholds": thresholds.pin()}
        needed = {"judges": recipe.judges, "asked": [rule.model for rule in recipe.asking_rules]}
        for key, models in needed.items():
            pins = inputs.pop(key, None) or {}
            names = list(map(without_folders, models))
            unknown = [name for name in names if name not in pins]
            if unknown:
                raise RunFailure(
                    f"{old.directory / LOCK} does not pin {', '.join(unknown)}",
                    "Restore it from a copy.",
                )
            if names:
                inputs[key] = {name: pins[name] for name in names}
        plan = make_plan(recipe, edited=old.plan.table)
        return cls(old, recipe, plan, thresholds, inputs)

    @property
    def hashes(self) -> dict[str, str]:
        return {
            "plan": self.recipe.plan_hash,
            "screen": self.recipe.screen_hash,
            "inputs": sha256_json(self.inputs),
        }

    def refuse_missing(self) -> CutLosses:
        """Return what is lost if the new dataset replaces the old. Raise UserError if it needs
        missing images."""
        missing = Counter[str]()
        short_cells = Counter[str]()
        lost = Counter[str]()
        candidates = 0
        for shard, receipt in self._shards():
            for cut in self._cells(shard, receipt):
                shift = cut.cell.shift
                if cut.short:
                    short_cells[shift] += 1
                candidates += len(cut.beyond)
                unneeded = [*cut.beyond]
                for row, reason in zip(cut.rows, cut.reasons, strict=True):
                    if not self._needs_image(reason):
                        unneeded.append(row)
                    elif not self._has_image(row):
                        missing[shift] += 1
                for row in unneeded:
                    if self._has_image(row) and row["reason"] != FAILED:
                        lost[shift] += 1
        problems = []
        for name, count in missing.items():
            problems.append(f"{name}: needs {count} images that were not kept")
        for name, count in short_cells.items():
            problems.append(f"{name}: {count} cells need candidates that were not rendered")
        if problems:
            raise UserError(
                problems,
                "Choose thresholds that accept only images that were kept, or build the re-cut"
                " recipe into"
                " another folder (with screen.keep_rejected: true every later cut is possible).",
            )
        kept = TableForm.of(self.recipe).added
        columns = [name for name in TableForm.of(self.old.recipe).added if name not in kept]
        if self.old.recipe.screen.store_embeddings and not self.recipe.screen.store_embeddings:
            columns.append("embedding")
        results = Counter[str]()
        for path in published_paths(self.old.directory):
            folder, _, _ = path.partition("/")
            if folder in _RESULTS:
                results[folder] += 1
        return CutLosses(lost, candidates, tuple(columns), results)

    def write(self, target: Path) -> list[Receipt]:
        """Write the whole dataset to `target`, or continue one begun there. Return its receipts."""
        portable = self.recipe.portable_yaml
        # Class tokens and files that a person added are kept. Results are not, because they were
        # measured on other images.
        rewritten = {CARD, CROISSANT, RECIPE, LOCK, MANIFEST, TIMM_INFO, THRESHOLDS}
        folders = {RECEIPTS, FIGURES, *_RESULTS, *WHATS}
        directory = self.old.directory
        attachments = {}
        problems = []
        for path in published_paths(directory):
            folder, _, _ = path.partition("/")
            if path in rewritten or folder in folders:
                continue
            if is_outside(path):
                problems.append(f"{directory}: the file name {path!r} is a path on some systems")
            else:
                attachments[path] = (directory / path).read_bytes()
        if problems:
            raise UserError(
                problems[:10], "No build writes such a file: rename it, or move it elsewhere."
            )
        attachments[THRESHOLDS] = self.thresholds.content()
        with DatasetStore.open(
            target,
            self.plan,
            self.hashes,
            self.inputs,
            self.old.lock.stack,
            recipe_yaml=portable,
            attachments=attachments,
            allow_mixed=True,
        ) as store:
            done = {(receipt.group, receipt.shard) for receipt in store.receipts()}
            for shard, receipt in self._shards():
                if (shard.group, shard.number) not in done:
                    # Each shard keeps the stack that rendered it.
                    writer = replace(store.writer, stack=receipt.stack)
                    try:
                        writer.write(shard, list(self._candidates(shard, receipt)))
                    except ValueError as error:  # rows that no build writes
                        raise RunFailure(
                            f"{self.old.directory}: {error}", repair_hint(self.old.directory)
                        ) from error
                    done.add((shard.group, shard.number))
                report_progress("shards", len(done), self.plan.n_shards)
            close_dataset(store)
            return store.receipts()

    def _shards(self) -> Iterator[tuple[Shard, Receipt]]:
        return zip(self.plan.shards, self.old.receipts, strict=True)

    def _cells(
        self,
        shard: Shard,
        receipt: Receipt,
    ) -> Iterator[_CutCell]:
        # Columns that no rule needs any more are left behind.
        form = TableForm.of(self.recipe)
        columns = [*_SCORED, *form.added]
        if self.recipe.screen.store_embeddings:
            columns.append("embedding")
        rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
        directory = self.old.directory
        every = planned_rows(directory, self.plan, shard, receipt, "candidates", columns, form)
        for row in every:
            rows.setdefault((row["shift"], row["label"]), []).append(row)
        for cell in shard.cells:
            cell_rows = rows.get((cell.shift, cell.label), [])
            shift = self.plan.shift(cell.shift)
            # Values that the shift's rules no longer need are left out, even if another shift has
            # the column.
            needed = self.recipe.columns_of(shift)
            is_open = self.thresholds.is_open(cell.shift)
            verdicts = []
            for row in cell_rows:
                thresholds = self.thresholds.of(cell.shift, row["class_id"])
                verdict = verdict_of(row, thresholds, needed, open=is_open)
                verdicts.append(verdict)
            rules = shift.keep
            short = False
            beyond = []
            if cell.accepted is not None:
                batches = map(len, self.plan.batches(cell))
                rendered = quota_draws(rules, verdicts, batches, cell.accepted)
                short = rendered > len(cell_rows)
                beyond = cell_rows[rendered:]
                cell_rows = cell_rows[:rendered]
                verdicts = verdicts[:rendered]
            reasons = decide_cell(rules, verdicts, cell.accepted)
            yield _CutCell(cell, cell_rows, verdicts, reasons, short, beyond)

    def _needs_image(self, reason: str) -> bool:
        if reason == ACCEPTED or keeps_image(reason, self.recipe.screen.keep_rejected):
            # A failed candidate has an image only if scoring failed, not rendering.
            return reason != FAILED or not self.old.recipe.screen.keep_rejected
        return False

    def _has_image(self, row: Mapping[str, Any]) -> bool:
        reason = row["reason"]
        return reason == ACCEPTED or keeps_image(reason, self.old.recipe.screen.keep_rejected)

    def _candidates(
        self,
        shard: Shard,
        receipt: Receipt,
    ) -> Iterator[Candidate]:
        directory = self.old.directory
        # A damaged file must not enter the new dataset.
        problems = [
            f"{directory / file.path} is missing or differs from {receipt.path}"
            for file, _ in file_faults(directory, receipt.files)
        ]
        if problems:
            raise RunFailure(problems, repair_hint(directory))
        images = {}
        for what in ("data", "rejected"):
            for row in read_shard(directory, receipt, ["key", "image"], what):
                stored = row["image"] or {}
                images[row["key"]] = stored.get("bytes")
        samples = {sample.key: sample for sample in shard.samples(self.plan)}
        for cut in self._cells(shard, receipt):
            columns = [*self.recipe.generator.columns()]
            if self.recipe.stored_units is not None:
                columns.append(UNIT)
            columns += self.recipe.given(self.plan.shift(cut.cell.shift))
            for row, verdict, reason in zip(cut.rows, cut.verdicts, cut.reasons, strict=True):
                key = row["key"]
                image = images.get(key)
                if reason == ACCEPTED and image is None:
                    raise RunFailure(
                        f"{receipt.path}: {key} has no image", "Restore it from a copy."
                    )
                # The prompt holds the class's placeholder token, which is not in the recipe.
                sample = replace(samples[key], prompt=row["prompt"])
                values = {name: row[name] for name in columns}
                embedding = row.get("embedding")
                yield Candidate(sample, verdict, reason, image, embedding, values)


@dataclass(frozen=True, slots=True)
class _CutCell:
    """A cell with its new decisions. short: whether the cell needs more candidates than were
    rendered. beyond: rows to drop.
    """

    cell: Cell
    rows: Sequence[Mapping[str, Any]]
    verdicts: Sequence[Verdict]
    reasons: Sequence[str]
    short: bool
    beyond: Sequence[Mapping[str, Any]]


def _same_pins(old: SoundDataset, measuring: Recipe) -> SourcePin:
    """Return the pin of the input dataset. Raise UserError if it, or CLIP, is not the one in the
    lock."""
    screen = measuring.screen
    recorded = old.lock.inputs.get("source")
    source = open_source(measuring.source, recorded, as_recorded=True).pin
    clip = pin_clip(screen.clip, screen.weights)
    stored_clip, stored_source = json.loads(json.dumps([clip.document(), source.document()]))
    lines = [
        *document_differences(old.lock.inputs["models"]["screen"], stored_clip, "screen"),
        *document_differences(recorded, stored_source, "source"),
    ]
    if lines:
        raise UserError(
            [
                "a new object percentile needs the inputs that the dataset was built from:",
                *(f"  {line}" for line in lines),
            ],
            "Restore them (for a moved folder: --source PATH), or give the object threshold as a"
            " value.",
        )
    return source


def _never_asked(
    before: Recipe,
    after: Recipe,
) -> Iterator[str]:
    """Yield judges, answers and measures that the cut needs and the dataset lacks. The dataset always has
    the first answer of a judge. For any other failure rule, it has only the answer to that rule.
    """
    earlier = {shift.name: shift for shift in before.all_shifts()}
    missing: dict[tuple[str, str], list[str]] = {}  # the text before the shifts, and after them
    for shift in after.all_shifts():
        judged = _judges(before, earlier[shift.name])
        rules = {without_folders(judge): rule for judge, rule in judged.items()}
        for judge, rule in _judges(after, shift).items():
            known = rules.get(without_folders(judge))
            if known is None or rule not in (TOP1, known):
                by_rule = ""
                if known is not None:
                    by_rule = f" by the failure rule '{rule}'"
                missing.setdefault((f"{judge} did not judge", by_rule), []).append(shift.name)
    for shift in after.all_shifts():
        for name in sorted(_measures(shift) - _measures(earlier[shift.name])):
            missing.setdefault((f"{name} was not measured on", ""), []).append(shift.name)
    for shift in after.all_shifts():
        for _, model, text in sorted(_answers(shift) - _answers(earlier[shift.name])):
            what = f"{model} was not asked {quoted(text)} of"
            missing.setdefault((what, ""), []).append(shift.name)
    for (what, by_rule), shifts in missing.items():
        yield f"{what} the images of {some_of(shifts, 3, what='shifts')}{by_rule}"


def _answers(shift: Shift) -> set[tuple[str, str, str]]:
    """Return each column that a model answers for a shift's images, the model, and its text."""
    answers: set[tuple[str, str, str]] = set()
    for rule in shift.keep:
        if isinstance(rule, AskingRule):
            model = without_folders(rule.model)
            answers.update((column, model, text) for column, text in rule.asks(shift).items())
    return answers


def _measures(shift: Shift) -> set[str]:
    return {name for rule in shift.keep for name in rule.measures}


def _judges(
    recipe: Recipe,
    shift: Shift,
) -> dict[str, str]:
    """Return the failure rule by which each judge is asked about a shift's images."""
    rules = {judge: recipe.failure_asked(shift, judge) for judge in recipe.judges}
    return {judge: rule for judge, rule in rules.items() if rule is not None}

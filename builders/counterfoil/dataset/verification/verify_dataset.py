"""Verify a dataset: its files, receipts, inputs, rows, images and card."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from counterfoil.data.hub import locate_dataset
from counterfoil.dataset.options import VerifyOptions
from counterfoil.dataset.reading import StandingDataset, other_stacks, read_dataset
from counterfoil.dataset.verification.problems import (
    ProblemsFound,
    Repairs,
    Rerendered,
    Verification,
)
from counterfoil.dataset.verification.rerendering import (
    choose_rows,
    pinned_generator,
    rendering_fault,
    rerender_rows,
)
from counterfoil.dataset.verification.shards import ShardCheck, decode_images, tables_with_images
from counterfoil.documents import document_bytes, parse_json
from counterfoil.errors import CounterfoilError, ProblemLine
from counterfoil.generate.kinds import Materials
from counterfoil.options import takes
from counterfoil.progress import report_progress
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.strict_yaml import read_yaml
from counterfoil.store import layout
from counterfoil.store.inside import read_inside
from counterfoil.store.manifest import (
    Entry,
    FileCheck,
    check_files,
    file_difference,
    manifest_document,
)
from counterfoil.store.messages import message, refusal
from counterfoil.store.receipts import (
    Receipt,
    StoredFile,
    receipt_faults,
    standing_shards,
    timm_info,
)


@takes(VerifyOptions)
def verify(given: VerifyOptions) -> Verification:
    """Check that a dataset directory, or a published dataset, is complete and correct; report every
    problem with its repair.

    It looks for missing, changed or unexpected files; recipe, lock, thresholds and tokens that
    disagree; wrong receipts; rows that differ from the plan and the thresholds; images that do not
    decode; and a card with other counts.

    Returns:
        A Verification with every problem; a complete dataset has none.

    Raises:
        UserError: There is no dataset, or the generator is not the pinned one.
        RunFailure: A dataset or model cannot be fetched.
    """
    if given.overrides and not given.rerender:
        raise refusal("cannot-rerender.option", "--set")
    located = locate_dataset(given.source)
    directory = located.directory
    described = read_dataset(
        directory,
        "thresholds",
        "tokens",
        "embeddings",
        "rows",
        own=located.reference is None,
    )
    if not any((directory / name).is_file() for name in (layout.LOCK, layout.MANIFEST)):
        raise refusal("no-dataset", directory)
    device = given.device
    generator = None
    if given.rerender:  # report a mistake in the options before gigabytes are read
        from counterfoil.models.devices import resolve_device

        device = resolve_device(device)
        generator = pinned_generator(described, given.overrides)
    repairs = Repairs(directory, located.reference)
    findings = ProblemsFound(repairs)
    reading = _Reading.of(described, findings)
    candidates, images = reading.check_shards()
    reading.check_summaries()
    rerendered = []
    if given.rerender:
        rerendered = reading.rerender(given.rerender, given.seed, device, generator)
    files = reading.files
    manifest_sha256 = None
    if files.listed is not None:
        manifest = manifest_document(list(files.listed.values()))
        manifest_sha256 = manifest["sha256"]
    return Verification(
        source=str(given.source),
        directory=directory,
        problems=findings.problems(),
        notes=tuple(findings.notes),
        files=len(files.entries),
        bytes=sum(entry.size for entry in files.entries.values()),
        shards=len(reading.receipts),
        candidates=candidates,
        images=images,
        manifest_sha256=manifest_sha256,
        rerendered=tuple(rerendered),
    )


@dataclass(frozen=True, slots=True)
class _Reading:
    findings: ProblemsFound
    files: FileCheck
    described: StandingDataset
    receipts: Mapping[tuple[str, int], Receipt]

    @classmethod
    def of(cls, described: StandingDataset, findings: ProblemsFound) -> _Reading:
        files = check_files(described.directory)
        for path, problem in files.problems:
            if problem.code == "unexpected-file":
                findings.unexpected(path, problem)
            elif problem.code == "irregular-file":
                findings.add(path, problem, findings.repairs.of_unfit(path))
            else:
                findings.add(path, problem)
        if files.listed is None:
            note = (
                f"{layout.MANIFEST} is missing or damaged, so files were compared only with"
                f" receipts and {layout.LOCK}"
            )
            findings.notes.append(note)
        damaged = {fault.path for fault in described.faults if findings.is_damaged(fault.path)}
        for fault in described.causes():
            if not fault.consequence or fault.path not in damaged:
                findings.add(fault.path, fault.line)
        if described.recipe is None:
            note = f"rows were not compared with the plan, because {layout.RECIPE} gives no plan"
            findings.notes.append(note)
        elif not described.prompts_known:
            plan = described.plan
            what = "class tokens are"
            if described.recipe.kind.counts_rows and plan is not None and not plan.counts:
                what = f"{layout.ROWS} is"
            note = f"prompts were not compared with the plan, because {what} damaged"
            findings.notes.append(note)
        receipts = read_shard_receipts(described, files, findings)
        return cls(findings, files, described, receipts)

    @property
    def directory(self) -> Path:
        return self.described.directory

    def is_sound(self, path: str) -> bool:
        return path in self.files.entries and not self.findings.is_damaged(path)

    def check_shards(self) -> tuple[int, int]:
        """Check the rows and images of every shard. Return the numbers of candidates and images
        that were read."""
        total = 0
        for receipt in self.receipts.values():
            total += receipt.rows["data"] + receipt.rows["rejected"]
        plan = self.described.plan
        if plan is not None and plan.recipe.kind.drawn_elsewhere and not plan.counts:
            plan = None  # only the damaged table lists the rows
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            if plan is None:
                tables = tables_with_images(self.receipts.values(), self.is_sound)
                return 0, decode_images(self.directory, tables, self.findings, pool)
            check = ShardCheck(plan, self.described, self.files.entries, self.findings, pool)
            for shard in plan.shards:
                receipt = self.receipts.get((shard.group, shard.number))
                for done in check.check(shard, receipt):
                    report_progress("checking images", done, max(done, total))
            check.finish()
            return check.candidates, check.images

    def check_summaries(self) -> None:
        plan = self.described.plan
        if plan is not None and len(self.receipts) == plan.n_shards:
            receipts = list(self.receipts.values())
            check_card(self.directory, receipts, self.findings)
            if plan.recipe.output.format == "webdataset":
                expected = document_bytes(timm_info(receipts))
                path = layout.TIMM_INFO
                if path not in self.files.entries:
                    self.findings.add(path, message("missing-file"))
                elif self.is_sound(path) and read_inside(self.directory, path) != expected:
                    self.findings.add(path, message("wrong-card.info"))
        if layout.CROISSANT in self.files.entries:
            check_croissant(self.directory, self.files.entries, self.findings)

    def rerender(
        self,
        count: int,
        seed: int,
        device: str,
        generator: Materials | None,
    ) -> list[Rerendered]:
        plan = self.described.plan
        known = self.described.prompts_known and self.described.embeddings_known
        if generator is None or plan is None or self.described.lock is None or not known:
            self.findings.notes.append("nothing was re-rendered: files that this needs are damaged")
            return []
        receipts = list(self.receipts.values())
        chosen = choose_rows(receipts, self.is_sound, count, seed)
        if len(chosen) < count:
            note = f"{len(chosen)} rows were re-rendered: there are no more complete images"
            self.findings.notes.append(note)
        if not chosen:
            return []
        tokens = self.described.tokens
        materials = replace(
            generator,
            device=device,
            tokens=None if tokens is None else tokens.by_placeholder(),
            embeddings=self.described.embeddings,
            table=plan.table,
        )
        done = rerender_rows(self.directory, plan, materials, chosen)
        receipt_of = {position.path: position.receipt.path for position in chosen}
        for row in done:
            problem = rendering_fault(row)
            if problem is not None:
                repair = self.findings.repairs.of_shard(receipt_of[row.path])
                self.findings.add(row.path, problem, repair)
        return done


def read_shard_receipts(
    described: StandingDataset,
    files: FileCheck,
    findings: ProblemsFound,
) -> dict[tuple[str, int], Receipt]:
    """Return sound receipts by group and shard number. Report other receipts, and files that
    contradict receipts."""
    plan = described.plan
    recipe = described.recipe
    split = None
    format = None
    hashes = {}
    if recipe is not None:
        split = recipe.output.split
        format = recipe.output.format
        # For a damaged lock.
        hashes = {"plan": recipe.plan_hash, "screen": recipe.screen_hash}
    if described.lock is not None:
        hashes = dict(described.lock.hashes)
    receipts: dict[tuple[str, int], Receipt] = {}
    known = set()
    listed = set()
    # Files of shards whose receipt is damaged. They are not reported as unexpected.
    planned = set()
    shards = () if plan is None else plan.shards
    for standing in standing_shards(described.directory, shards):
        path = standing.path
        shard = standing.shard
        receipt = standing.receipt
        if plan is not None and shard is None:
            continue
        known.add(path)
        changed = findings.is_damaged(path)
        faults: list[ProblemLine] = []
        if path not in files.entries:
            if not changed:
                faults.append(message("missing-file"))
        elif receipt is None:
            if standing.unreadable is not None:
                faults.append(standing.unreadable)
        else:
            faults = list(receipt_faults(standing, hashes, split, format))
        for fault in faults:
            findings.add(path, fault)
        if receipt is None or changed or faults:
            if shard is not None and split is not None and format is not None:
                paths = layout.shard_paths(shard, split, format)
                planned.update(paths.values())
            continue
        receipts[receipt.group, receipt.shard] = receipt
        for file in receipt.files:
            listed.add(file.path)
            if findings.is_damaged(file.path):
                continue
            if file.path not in files.entries:
                findings.add(file.path, message("missing-file"))
            elif problem := file_difference(files.entries[file.path], file, f" by {path}"):
                findings.add(file.path, problem)
    for path in files.entries if plan is not None else ():
        folder = path.partition("/")[0]
        if folder == layout.RECEIPTS and path not in known:
            findings.unexpected(path, message("unexpected-file.plan"))
        elif folder in layout.WHATS and path not in listed | planned:
            findings.unexpected(path, message("unexpected-file.listed"))
    if described.lock is not None:
        others = other_stacks(described.lock.stack, receipts.values())
        for lines, count in others.items():
            rendered = f"{count} shards were" if count > 1 else f"{count} shard was"
            stack = f"another stack than that of {layout.LOCK} (“there”)"
            findings.notes.append(f"{rendered} rendered with {stack}: {'; '.join(lines)}")
    return receipts


_BAR = re.compile(r"(?<!\\)\|")  # a bar within a cell is escaped
# Columns of the table of yields that are not counts of a reason.
_NAME = ("Shift", "Group")
_CANDIDATES = "Candidates"
_REASONS_AFTER = "Accepted"
_REASONS_BEFORE = "Pairs"


def check_card(
    directory: Path,
    receipts: Sequence[Receipt],
    findings: ProblemsFound,
) -> None:
    """Compare README.md with the receipts of all shards, and add differences to `findings`."""
    if not (directory / layout.CARD).exists():
        findings.add(layout.CARD, message("missing-file"))
        return
    try:
        text = read_inside(directory, layout.CARD).decode()
        front_matter = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        if front_matter is None:
            raise ValueError("it does not begin with metadata between two lines of ---")
        metadata = read_yaml(front_matter[1], layout.CARD)
        files = [file for receipt in receipts for file in receipt.files]
        faults = list(config_faults(metadata, files))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CounterfoilError) as error:
        findings.add(layout.CARD, _not_read(error))
        return
    for fault in [*faults, *yield_faults(text, receipts)]:
        findings.add(layout.CARD, fault)


def check_croissant(
    directory: Path,
    files: Mapping[str, Entry],
    findings: ProblemsFound,
) -> None:
    """Compare the hashes in croissant.json with the dataset's files, and add differences to
    `findings`."""
    try:
        document = parse_json(read_inside(directory, layout.CROISSANT))
        hashes = {}
        for node in document["distribution"]:
            if "sha256" in node:
                hashes[node["contentUrl"]] = node["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        findings.add(layout.CROISSANT, _not_read(error))
        return
    for path, sha256 in hashes.items():
        entry = files.get(path)
        if findings.is_damaged(path) or (entry is not None and entry.sha256 == sha256):
            continue
        actual = "there is no such file"
        if entry is not None:
            actual = f"the file has {entry.sha256[:12]}…"
        problem = message(
            "wrong-card.hash",
            None,
            actual,
            str(sha256),
            file=path,
        )
        findings.add(layout.CROISSANT, problem)


def _not_read(error: Exception) -> ProblemLine:
    return message(
        "wrong-card.read",
        None,
        error,
        kind=type(error).__name__,
    )


def config_faults(
    metadata: Mapping[str, Any], files: Sequence[StoredFile]
) -> Iterator[ProblemLine]:
    stored = {file.path: file for file in files}
    info = {}
    for config in metadata.get("dataset_info") or []:
        for split in config["splits"]:
            info[config["config_name"], split["name"]] = split
    matched = set()
    for config in metadata.get("configs") or []:
        for split in config["data_files"]:
            name = (config["config_name"], split["split"])
            globs = split["path"]
            if isinstance(globs, str):
                globs = [globs]
            paths = set[str]()
            for glob in globs:
                paths.update(path for path in stored if fnmatchcase(path, glob))
            matched |= paths
            split_info = info.pop(name, None)
            shown = f"config '{name[0]}', split '{name[1]}'"
            if split_info is None:
                yield message("wrong-card.no-info", name=shown)
                continue
            rows = sum(stored[path].rows for path in paths)
            size = sum(stored[path].size for path in paths)
            for key, unit, count in (("num_examples", "rows", rows), ("num_bytes", "bytes", size)):
                listed = split_info.get(key)
                if listed != count:
                    yield message(
                        "wrong-card.counts",
                        None,
                        listed,
                        count,
                        unit=unit,
                        name=shown,
                    )
    for config, split in info:
        shown = f"config '{config}', split '{split}'"
        yield message("wrong-card.no-config", name=shown)
    left = [path for path in stored if path not in matched]
    if left:
        yield message("wrong-card.unloaded", None, left)


def yield_faults(text: str, receipts: Sequence[Receipt]) -> Iterator[ProblemLine]:
    """Yield a fault for each count in the table of yields, by shift or group, that differs from the
    receipts."""
    table = _yield_table(text)
    if not table:
        return
    counts = defaultdict[tuple[str, str], Counter[str]](Counter)
    for receipt in receipts:
        for shift, reasons in receipt.counts.items():
            counts["Shift", shift].update(reasons)
            counts["Group", receipt.group].update(reasons)
    columns = [column for column, _ in table[0]]
    first_column = columns[0]
    accepted = columns.index(_REASONS_AFTER)
    end_of_reasons = columns.index(_REASONS_BEFORE)
    names = {row[0][1].strip("`") for row in table}
    for column, name in counts:
        if column == first_column and name not in names:
            yield message("wrong-card.no-yields", None, name)
    for row in table:
        name = row[0][1].strip("`")
        reasons = counts[first_column, name]
        expected = {_CANDIDATES: reasons.total(), _REASONS_AFTER: reasons[ACCEPTED], **reasons}
        for index, (column, cell) in enumerate(row[:end_of_reasons]):
            if index >= accepted or column == _CANDIDATES:
                count = expected.get(column.strip("`"), 0)
                if cell.replace(",", "") != str(count):
                    yield message(
                        "wrong-card.yields",
                        None,
                        cell,
                        count,
                        row=name,
                        column=column,
                    )


def _yield_table(text: str) -> list[list[tuple[str, str]]]:
    """Return the rows of the table of yields as (column, cell) pairs, or no rows if the card has no
    such table."""
    lines = iter(text.splitlines())
    counts = {_CANDIDATES, _REASONS_AFTER, _REASONS_BEFORE}
    for line in lines:
        header = _cells(line)
        if header and header[0] in _NAME and counts <= set(header):
            next(lines, None)  # the line under the header
            rows = []
            for row in lines:
                cells = _cells(row)
                if len(cells) != len(header):
                    break
                rows.append(list(zip(header, cells, strict=True)))
            return rows
    return []


def _cells(line: str) -> list[str]:
    if not line.startswith("|"):
        return []
    return [cell.strip() for cell in _BAR.split(line)[1:-1]]

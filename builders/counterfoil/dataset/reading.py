"""Read a dataset directory: recipe, lock, manifest, and other documents on demand. Each is verified
before use."""

from __future__ import annotations

import functools
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.documents import document_differences, in_one_line, sha256_json
from counterfoil.errors import CounterfoilError, ProblemLine, RunFailure, UserError, quoted
from counterfoil.generate.screen.thresholds import (
    Measured,
    ThresholdEntry,
    Thresholds,
    needs_validation,
    resolve_thresholds,
)
from counterfoil.generate.tokens.class_tokens import ClassTokens, read_token_folder, token_file_name
from counterfoil.models.names import COMMIT, LOCAL, folder_sha256, local_folder
from counterfoil.plan.layout import Plan, RowTable, make_plan
from counterfoil.recipe import Recipe, load_own_recipe
from counterfoil.recipe.kinds import kind_of
from counterfoil.recipe.layering import text_of, without_folders
from counterfoil.recipe.rows_table import MOST_BYTES, ChosenKind
from counterfoil.regular_files import open_regular
from counterfoil.store.inside import list_files, read_inside, refuse_unfit
from counterfoil.store.layout import (
    EMBEDDINGS,
    LOCK,
    MANIFEST,
    RECEIPTS,
    RECIPE,
    ROWS,
    THRESHOLDS,
    TOKENS,
)
from counterfoil.store.lock import HASHES, LEVELS, Lock, read_lock, stack_differences, validation_of
from counterfoil.store.manifest import Entry as FileEntry
from counterfoil.store.manifest import read_manifest
from counterfoil.store.messages import failure, message, refusal
from counterfoil.store.receipts import Receipt, receipt_faults, repair_hint, standing_shards
from counterfoil.store.replacement import settle_directory

if TYPE_CHECKING:
    from counterfoil.generate.image_embeddings import ImageEmbeddings


# "words": the texts of the recipe that no hash covers, so that only the manifest verifies them.
# "rows": the table of rows that a build retrieved, edited or was given.
Part = Literal["thresholds", "tokens", "embeddings", "rows", "receipts", "words"]

_MOST_LINES = 20
# Errors that reading a file may raise besides our own errors, because a stranger may have written
# the file.
_ODD = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
_MOST_FAULTS = 20  # shown in the message of a command that refuses the dataset

RESTORE = "These cannot be rebuilt: restore them from a copy, such as the published dataset."


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a file of the dataset."""

    path: str
    problem: ProblemLine
    lines: tuple[str, ...] = ()
    """Details."""
    mistake: bool = False
    """Whether the fault loses no data."""
    consequence: bool = False
    """Whether the fault may follow from another fault."""
    hint: str | None = None
    """What to do, if it is not the advice of the problem."""

    @property
    def line(self) -> ProblemLine:
        """The problem with its details, without its path."""
        text = self.problem.text
        if self.lines:
            text += f": {in_one_line(self.lines)}"
        code = self.problem.code
        return ProblemLine(f"{text} [{code}]", code)


@dataclass(frozen=True, slots=True)
class StandingDataset:
    """The parts of a dataset that can be relied on. What is unread, damaged or contradicts other
    parts is None."""

    directory: Path
    lock: Lock | None
    recipe: Recipe | None
    plan: Plan | None
    """It has the placeholders of the tokens and the rows of the table, if these could be read."""
    listed: Mapping[str, FileEntry] | None
    """The files in the manifest."""
    read_thresholds: Thresholds | None
    measured: Mapping[Measured, ThresholdEntry]
    """The thresholds from validation images."""
    tokens: ClassTokens | None
    receipts: Sequence[Receipt]
    faults: tuple[Fault, ...]
    unfit: RunFailure | None = None
    """Why the dataset is not opened (links, pipes)."""
    embeddings: ImageEmbeddings | None = None

    @property
    def embeddings_known(self) -> bool:
        """Whether all embeddings from which the images were rendered were read."""
        if self.recipe is None:
            return False
        drawn = any(shift.embedding is not None for shift in self.recipe.all_shifts())
        return not drawn or self.embeddings is not None

    @property
    def prompts_known(self) -> bool:
        """Whether the plan has the prompts of the images, for which tokens and the table must have
        been read."""
        if self.recipe is None or self.plan is None:
            return False
        counted = self.plan.counts or not self.recipe.kind.counts_rows
        worded = self.recipe.tokens is None or self.tokens is not None
        return counted and worded

    @property
    def judges(self) -> Mapping[str, Any]:
        if self.lock is None:
            return {}
        return self.lock.inputs.get("judges") or {}

    def causes(self) -> list[Fault]:
        """Return the faults that no other fault of the same file explains."""
        changed = {fault.path for fault in self.faults if not fault.consequence}
        causes = []
        for fault in self.faults:
            if not fault.consequence or fault.path not in changed:
                causes.append(fault)
        return causes

    def sound(self) -> SoundDataset:
        """Return the dataset if it has no faults. Otherwise raise UserError if all faults are
        mistakes, or RunFailure.

        UserError if the directory holds no dataset.
        """
        if self.unfit is not None:
            raise self.unfit
        if not (self.directory / LOCK).exists():
            raise refusal("no-dataset", self.directory)
        faults = self.causes()
        if faults:
            lines = []
            for fault in faults[:_MOST_FAULTS]:
                lines.append(fault.problem.only_at(self.directory / fault.path))
                lines += [f"  {more}" for more in fault.lines]
            more = len(faults) - _MOST_FAULTS
            if more > 0:
                lines.append(f"… and {more} more; `counterfoil verify` lists them all")
            kind = UserError if all(fault.mistake for fault in faults) else RunFailure
            hints = {fault.hint or fault.problem.advice or RESTORE for fault in faults}
            raise kind(lines, hints.pop() if len(hints) == 1 else RESTORE)
        known: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        known["listed"] = self.listed or {}
        return SoundDataset(**known)

    def finished(self) -> SoundDataset:
        """Return the dataset as `sound` does. UserError if shards or the manifest are missing."""
        dataset = self.sound()
        dataset.refuse_unfinished()
        return dataset


@dataclass(frozen=True, slots=True)
class SoundDataset(StandingDataset):
    """A dataset whose parts were read without a fault. Parts that were not read are None or
    empty."""

    lock: Lock
    recipe: Recipe
    plan: Plan
    listed: Mapping[str, FileEntry]

    @property
    def recipe_yaml(self) -> str:
        return text_of(self.directory / RECIPE)

    @property
    def thresholds(self) -> Thresholds:
        assert self.read_thresholds is not None
        return self.read_thresholds

    def refuse_unfinished(self) -> None:
        """Raise UserError if the manifest or shards are missing. The receipts must have been
        read."""
        done = len(self.receipts)
        shards = self.plan.n_shards
        if done < shards or not (self.directory / MANIFEST).is_file():
            raise refusal(
                "not-finished",
                self.directory,
                done,
                shards,
            )


def read_dataset(directory: Path, *parts: Part, own: bool = True) -> StandingDataset:
    """Read the recipe, the lock, the manifest and these parts of a directory, and collect its
    faults.

    The methods `sound` and `finished` of the result raise the faults. own: whether the directory is
    the user's own and not a published copy. In an own directory, a replacement of files that a
    killed process left unfinished is finished first. UserError if another process works in the
    directory; RunFailure if the replacement cannot be finished.
    """
    unfit = None
    try:
        refuse_unfit(directory)
    except RunFailure as error:
        unfit = error
    except OSError as error:
        unfit = failure("damaged-file.folder", directory, error)
    if unfit is None and own and os.access(directory, os.W_OK):
        settle_directory(directory)
    # Links and other irregular files are not read, because the readers of recipe and tokens would
    # follow links.
    odd: Mapping[str, str] = {}
    if unfit is not None:
        odd = list_files(directory, hidden=True).unfit
    reader = _Reader(directory, odd)
    recipe = reader.recipe()
    listed = read_manifest(directory)
    plan = None
    thresholds = None
    measured = {}
    tokens = None
    embeddings = None
    table = None
    receipts = []
    if recipe is not None:
        if "thresholds" in parts:
            thresholds, measured = reader.thresholds(recipe)
        if "tokens" in parts:
            tokens = reader.tokens(recipe)
        if "embeddings" in parts:
            embeddings = reader.embeddings(recipe)
        if "rows" in parts and recipe.kind.table is not None:
            table = reader.table(recipe, recipe.kind.table)
        placeholders = tokens.placeholders if tokens else None
        plan = make_plan(recipe, placeholders, table)
        if "receipts" in parts:
            receipts = list(reader.receipts(plan))
    wanted = {LOCK, ROWS}
    if recipe is None or "words" in parts:
        wanted.add(RECIPE)
    if "embeddings" in parts:
        wanted.add(EMBEDDINGS)
    if "thresholds" in parts:
        wanted.add(THRESHOLDS)
    for path, entry in (listed or {}).items():
        is_token = "tokens" in parts and PurePosixPath(path).parent == PurePosixPath(TOKENS)
        if (path in wanted or is_token) and path not in odd:
            reader.compare(path, entry)
    return StandingDataset(
        directory,
        reader.lock,
        recipe,
        plan,
        listed,
        thresholds,
        measured,
        tokens,
        receipts,
        tuple(dict.fromkeys(reader.faults)),
        unfit,
        embeddings,
    )


class _Reader:
    """Reads the parts of a directory. A method returns its part, or adds a fault and returns
    None."""

    def __init__(self, directory: Path, odd: Mapping[str, str]) -> None:
        """Take what each irregular file is, by path."""
        self.directory = directory
        self.odd = odd
        self.faults: list[Fault] = []
        self.sha256_of = functools.cache(self._sha256)
        self.lock = self._lock()

    def _fault(
        self,
        path: str,
        name: str,
        *values: object,
        lines: Iterable[str] = (),
        consequence: bool = False,
        **others: object,
    ) -> None:
        """Add the fault of a file that a sentence states."""
        problem = message(name, None, *values, **others)
        self.faults.append(Fault(path, problem, tuple(lines), consequence=consequence))

    def _unreadable(
        self,
        path: str,
        error: Exception,
        *,
        more: Iterable[str] = (),
        consequence: bool = False,
    ) -> None:
        """Add the fault of a file whose reader raised an error. more: lines after those of it."""
        lines = [f"{type(error).__name__}: {error}"]
        if isinstance(error, CounterfoilError):
            prefix = str(self.directory / path)
            lines = [problem.removeprefix(prefix).lstrip(": ") for problem in error.problems]
        lines += more
        self._fault(
            path,
            "damaged-file.details",
            lines=lines,
            consequence=consequence,
        )

    def _odd(self, paths: Iterable[str]) -> None:
        """Add a fault for irregular files."""
        for path in paths:
            self._fault(
                path,
                "irregular-file",
                self.odd[path],
                consequence=True,
            )

    def _sha256(self, path: str) -> str | None:
        """Return the hash of a file, or None if the file cannot be read."""
        try:
            with open_regular(self.directory / path) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None

    def _no_hash(self, path: str, *, consequence: bool = False) -> None:
        """Add a fault for a file that has no hash."""
        exists = (self.directory / path).exists()
        name = "damaged-file.details" if exists else "missing-file"
        self._fault(path, name, consequence=consequence)

    def _lock(self) -> Lock | None:
        try:
            lock = read_lock(self.directory)
        except CounterfoilError as error:
            of_another_version = isinstance(error, UserError)
            self.faults.append(Fault(LOCK, error.problems[0], mistake=of_another_version))
            return None
        except _ODD as error:
            return self._unreadable(LOCK, error)
        if lock is None:
            return self._fault(LOCK, "missing-file")
        changed = [
            name for name in HASHES if lock.hashes.get(name) != sha256_json(getattr(lock, name))
        ]
        for name in changed:
            self._fault(LOCK, "changed-file.lock", name)
        if changed:
            return None
        if not _pins_as_a_build(lock):
            self._fault(LOCK, "not-as-pinned.lock")
        return lock

    def _pinned(self, name: str) -> Any:
        """Return an input that the lock pins, or None."""
        if self.lock is None:
            return None
        return self.lock.inputs.get(name)

    def recipe(self) -> Recipe | None:
        lock = self.lock
        path = self.directory / RECIPE
        linked = [name for name in (RECIPE, ROWS) if name in self.odd]
        if linked:
            return self._odd(linked)
        if not path.exists():
            return self._fault(RECIPE, "missing-file")
        try:
            recipe = load_own_recipe(self.directory)
            lines = []
            if lock is not None:
                if lock.hashes["plan"] != recipe.plan_hash:
                    of_plan = document_differences(lock.plan, recipe.plan_document)
                    lines += of_plan or ["its plan hash"]
                if lock.hashes["screen"] != recipe.screen_hash:
                    of_screen = document_differences(lock.screen, recipe.screen_document)
                    lines += of_screen or ["its screen hash"]
                locked_scales = lock.inputs.get(LEVELS, {})
                lines += document_differences(locked_scales, recipe.scales, LEVELS)
            groups = {shard.group: shard.of for shard in make_plan(recipe).shards}
        except (CounterfoilError, *_ODD) as error:
            lines = []
            plugins = self._pinned("plugins")
            if isinstance(plugins, Mapping):
                for what, package in plugins.items():
                    package_name = quoted(str(package))
                    lines.append(f"its {quoted(str(what))} is of the package {package_name}")
            return self._unreadable(RECIPE, error, more=lines)
        if lines:
            problem = message("not-as-pinned.recipe")
            self.faults.append(Fault(RECIPE, problem, tuple(lines), mistake=True))
            return None
        if lock is not None and list(lock.groups.items()) != list(groups.items()):
            self._fault(LOCK, "changed-file.groups")
        return recipe

    def thresholds(
        self, recipe: Recipe
    ) -> tuple[Thresholds | None, Mapping[Measured, ThresholdEntry]]:
        """Return the thresholds that the rows must have, and the measured thresholds that the lock
        pins."""
        # the thresholds in the file; None if something is wrong with it
        stored: Thresholds | None = None
        known: Mapping[Measured, ThresholdEntry] = {}
        content = b""
        try:
            content = read_inside(self.directory, THRESHOLDS)
            stored = Thresholds.read(content)
            if self.lock is not None and stored.pin() != self._pinned("thresholds"):
                stored = self._fault(THRESHOLDS, "changed-file.thresholds")
            else:
                captions = {shift.name: shift.object_caption for shift in recipe.all_shifts()}
                known = stored.measured(captions)
        except FileNotFoundError:
            self._fault(THRESHOLDS, "missing-file")
        except ValueError as error:
            stored = self._fault(THRESHOLDS, "damaged-file.form", error)
        except _ODD as error:
            stored = self._unreadable(THRESHOLDS, error)
        if needs_validation(recipe, known):
            if stored is not None:
                self._fault(THRESHOLDS, "not-as-pinned.no-thresholds", consequence=True)
            return None, known
        known_classes = None if stored is None else stored.known
        expected = resolve_thresholds(recipe, None, known)
        expected = expected.with_known(known_classes, recipe)
        if stored is not None and content != expected.content():
            lines = document_differences(expected.document(), stored.document())
            lines = lines or ["the same values, written differently"]
            self._fault(THRESHOLDS, "not-as-pinned.thresholds", lines=lines)
        return expected, known

    def tokens(self, recipe: Recipe) -> ClassTokens | None:
        if recipe.tokens is None:
            return None
        linked = [path for path in self.odd if path.partition("/")[0] == TOKENS]
        if linked:
            return self._odd(linked)
        pins = self._pinned("tokens") or {}
        faults_before = len(self.faults)
        for cls in recipe.classes:
            path = f"{TOKENS}/{token_file_name(cls.id)}"
            pinned = pins.get(cls.id) if isinstance(pins, Mapping) else None
            sha256 = self.sha256_of(path)
            if sha256 is None:
                self._no_hash(path)
            elif self.lock is not None and sha256 != pinned:
                self._fault(
                    path,
                    "changed-file.sha256",
                    sha256,
                    str(pinned),
                    by=f" by {LOCK}",
                    consequence=True,
                )
        if len(self.faults) > faults_before:
            return None
        try:
            return read_token_folder(recipe, self.directory / TOKENS)
        except (CounterfoilError, OSError) as error:
            return self._unreadable(TOKENS, error)

    def embeddings(self, recipe: Recipe) -> ImageEmbeddings | None:
        if all(shift.embedding is None for shift in recipe.all_shifts()):
            return None
        if EMBEDDINGS in self.odd:
            return self._odd([EMBEDDINGS])
        from counterfoil.generate.image_embeddings import read_image_embeddings

        try:
            embeddings = read_image_embeddings(recipe)
        except (CounterfoilError, *_ODD) as error:
            return self._unreadable(EMBEDDINGS, error)
        if embeddings is None or self.lock is None:
            return embeddings
        pinned = self._pinned("embeddings")
        if embeddings.hashes() != pinned:
            lines = document_differences(pinned, embeddings.hashes(), "embeddings")
            return self._fault(
                EMBEDDINGS,
                "changed-file.embeddings",
                lines=lines,
                consequence=True,
            )
        return embeddings

    def table(self, recipe: Recipe, kind: ChosenKind) -> RowTable | None:
        try:
            content = read_inside(self.directory, ROWS, MOST_BYTES)
            table = RowTable.read(content, ROWS, kind)
        except FileNotFoundError:
            return self._fault(ROWS, "missing-file")
        except (CounterfoilError, *_ODD) as error:
            return self._unreadable(ROWS, error, consequence=True)
        problems = list(islice(table.problems(recipe), _MOST_LINES))
        if problems:
            return self._fault(
                ROWS,
                "not-as-pinned.rows",
                lines=problems,
                consequence=True,
            )
        # A pin may hold more than the hash, such as the model that wrote captions.
        pin = self._pinned(kind) or {}
        if self.lock is not None and pin.get("sha256") != table.sha256:
            return self._fault(ROWS, "changed-file.rows", consequence=True)
        return table

    def receipts(self, plan: Plan) -> Iterator[Receipt]:
        """Yield the sound receipts in the order of the plan, and add a fault for each other
        receipt."""
        hashes = {} if self.lock is None else self.lock.hashes
        try:
            for standing in standing_shards(self.directory, plan.shards):
                if standing.shard is None:
                    self._fault(standing.path, "unexpected-file.shard")
                    continue
                problems: list[ProblemLine] = []
                if standing.unreadable is not None:
                    problems = [standing.unreadable]
                elif standing.receipt is not None:
                    problems = list(receipt_faults(standing, hashes))
                if problems:
                    lines = tuple(problem.text for problem in problems[1:])
                    hint = repair_hint(self.directory)
                    self.faults.append(Fault(standing.path, problems[0], lines, hint=hint))
                elif standing.receipt is not None:
                    yield standing.receipt
        except OSError as error:
            self._fault(RECEIPTS, "damaged-file", error)

    def compare(self, path: str, entry: FileEntry) -> None:
        """Add a fault if a file differs from its entry in the manifest."""
        sha256 = self.sha256_of(path)
        if sha256 is None:
            self._no_hash(path, consequence=True)
        elif sha256 != entry.sha256:
            self._fault(path, "changed-file.entry", consequence=True)


def _pins_as_a_build(lock: Lock) -> bool:
    """Return whether the lock has a well-formed pin for each model, token and row that the kind of
    generator needs."""
    try:
        generator = lock.plan["generator"]
        kind = kind_of(generator)
        models = lock.inputs["models"]
        parts = [*kind.models]
        if lock.screen.get("model") is not None:
            parts.append("screen")
        if "adapter" in models:
            parts.append("adapter")
        pins = [models[part] for part in parts]
        pins += [lock.inputs["loras"][name] for name in generator.get("lora", ())]
        pins += lock.inputs.get("asked", {}).values()
        whole = isinstance(lock.inputs["tokens"], Mapping | None)
        for pin in pins:
            commit = pin["revision"]
            whole &= commit is None or COMMIT.fullmatch(commit) is not None
            whole &= isinstance(pin["sha256"], str | None)
        if kind.takes_rows:
            whole &= isinstance(lock.inputs["pool"], Mapping)
        if kind.table is not None:
            whole &= isinstance(lock.inputs[kind.table], Mapping)
        judges = lock.inputs.get("judges", {})
        if lock.screen.get("judge") is not None:
            class_ids = [cls["id"] for cls in lock.plan["classes"]]
            validation_of(judges[lock.screen["judge"]], class_ids)
        return whole and isinstance(judges, Mapping)
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def other_stacks(stack: Mapping[str, Any], receipts: Iterable[Receipt]) -> Counter[tuple[str, ...]]:
    """Count the shards of each other stack, by its differences from `stack`."""
    each = (tuple(stack_differences(stack, receipt.stack)) for receipt in receipts)
    return Counter(lines for lines in each if lines)


def wrong_model(
    key: str,
    name: str,
    pin: Mapping[str, Any] | None,
) -> Iterator[ProblemLine]:
    """Yield a problem if a model's folder is missing or has other content, or its commit on the Hub
    is unknown."""
    pin = pin or {}
    revision = pin.get("revision")
    pinned_sha256 = pin.get("sha256")
    try:
        folder = local_folder(name)
    except UserError as error:
        plain = without_folders(name)
        scheme = LOCAL if plain.startswith(LOCAL) else ""
        example = f"{scheme}/PATH/{Path(plain.removeprefix(LOCAL)).name}"
        yield message(
            "not-as-pinned.folder",
            key,
            error.reason,
            key=key,
            example=example,
        )
        return
    sha256 = None if folder is None else folder_sha256(folder)
    if folder is None and revision is None:
        yield message("not-as-pinned.commit", key, name)
    elif sha256 != pinned_sha256:
        actual = f"sha256 {sha256}" if sha256 else "a name of the Hub"
        pinned = f"sha256 {pinned_sha256}"
        if not pinned_sha256:
            pinned = f"commit {revision} of the Hub"
        yield message(
            "not-as-pinned.model",
            key,
            actual,
            pinned,
            name=name,
        )

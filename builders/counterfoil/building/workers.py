"""The work of a build's workers: load the models once, make spans, and write or send each whole shard.

A worker that shares no folder with the main process writes each shard into a temporary folder and sends its files. The
main process writes them in the same way: whole files, the receipt last. A folder of the dataset's name on the worker's
machine is never read.

Bytes still depend on the *stack*: the worker that makes a shard measures it and stores it in the receipt. A worker
whose stack is not the lock's is refused before it renders, unless `--allow-mixed`; so is another kind of GPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from counterfoil.building.judges import Judges, Pins
from counterfoil.building.shard import Made, ShardMaker
from counterfoil.building.spans import Span
from counterfoil.data.folders import pinned_content
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pool_of
from counterfoil.engines import Delivered, Doing
from counterfoil.engines.executor import name_of_item
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.generate.kinds import Materials, maker_of
from counterfoil.generate.pictures import encoding_threads
from counterfoil.generate.screen import Scorer, Thresholds
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import computing_on, holds_context, libraries_of, stack_of
from counterfoil.plan import Plan, RowTable, Shard, make_plan
from counterfoil.regular_files import named_path
from counterfoil.store import Receipt, ShardWriter
from counterfoil.store.atomic import remove_durably, write_atomically
from counterfoil.store.directory_lock import FolderMark
from counterfoil.store.layout import LOCK, ROWS, WHATS, parse_shard_path, shard_path
from counterfoil.store.lock import refuse_other_stack
from counterfoil.store.receipts import write_receipt
from counterfoil.store.rows import Candidate

if TYPE_CHECKING:
    import torch

    from counterfoil.recipe import Recipe


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """A shard that a worker sends: its receipt, and the content of every file in it."""

    receipt: Receipt
    contents: Mapping[str, bytes]


def write_to_send(writer: ShardWriter, shard: Shard, candidates: Sequence[Candidate]) -> ShardFiles:
    """Write a shard in a temporary folder, to be sent to the main process."""
    with tempfile.TemporaryDirectory(prefix="counterfoil-shard-") as folder:
        directory = Path(folder)
        (directory / LOCK).touch()  # without one a writer thinks that the dataset was removed
        receipt = replace(writer, directory=directory).write(shard, candidates)
        return ShardFiles(receipt, {file.path: (directory / file.path).read_bytes() for file in receipt.files})


@dataclass(frozen=True, slots=True)
class SpanToCollect:
    """A span for a worker, and the receipts by id of its shards that a lost worker sent before."""

    span: Span
    came: Mapping[str, Receipt]

    @property
    def id(self) -> str:
        return name_of_item(self.span)


class SpansToCollect(Sequence[SpanToCollect]):
    """Spans with the receipts so far: an engine asks again for a span whose worker was lost."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._spans = spans
        self._came: dict[str, Receipt] = {}

    def __len__(self) -> int:
        return len(self._spans)

    @overload
    def __getitem__(self, at: int) -> SpanToCollect: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[SpanToCollect]: ...
    def __getitem__(self, at: int | slice) -> SpanToCollect | Sequence[SpanToCollect]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(len(self)))]
        span = self._spans[at]
        return SpanToCollect(span, {shard.id: self._came[shard.id] for shard in span if shard.id in self._came})

    def note(self, shard: str, receipt: Receipt) -> None:
        """Remember that a shard came and is written."""
        self._came[shard] = receipt


def write_collected(writer: ShardWriter, came: ShardFiles, asked: Collection[tuple[str, int, int]]) -> None:
    """Write a shard from a worker into the writer's directory, unless it was written before.

    `asked` are the shards that workers make: group, number, of how many. RunFailure for another shard, a damaged one,
    or one that names files of others.
    """
    receipt = came.receipt
    if (receipt.group, receipt.shard, receipt.of) not in asked:
        raise RunFailure(
            f"a worker sent a shard that was not requested: {receipt.shard} of {receipt.of} of {receipt.group[:80]!r}",
            "The shard was not written. Check that machine.",
        )
    directory = writer.directory
    if not (directory / LOCK).exists():
        raise RunFailure(
            f"{directory} was removed while it was being built (it has no {LOCK})",
            "Nothing more was written there. Run the same command again.",
        )
    if (directory / receipt.path).exists():
        return
    _refuse_damaged(writer, came)
    for what in WHATS:
        path = shard_path(what, receipt.group, writer.split, receipt.shard, receipt.of, writer.format)
        if path not in came.contents:
            remove_durably(directory / path)  # left by a run that was killed under another stack
    for path, content in came.contents.items():
        write_atomically(directory / path, content)
    write_receipt(directory, receipt)


def _refuse_damaged(writer: ShardWriter, came: ShardFiles) -> None:
    receipt = came.receipt
    name_of_item = {file.path: file for file in receipt.files}
    place = (receipt.group, receipt.shard, receipt.of)
    own = all((p := parse_shard_path(path)) is not None and (p.group, p.number, p.of) == place for path in name_of_item)
    whole = name_of_item.keys() == came.contents.keys() and all(
        hashlib.sha256(content).hexdigest() == name_of_item[path].sha256 for path, content in came.contents.items()
    )
    if not own or not whole or dict(receipt.hashes) != dict(writer.hashes):
        raise RunFailure(
            f"{receipt.path}: the files that a worker sent do not match their receipt",
            "The shard was not written. Run the same command again; if it happens again, check that machine.",
        )


def imported_for(recipe: Recipe) -> Sequence[str]:
    """Return the heavy modules that a worker imports for a recipe."""
    always = (__name__, "pandas")  # pandas is what pyarrow looks for where it gets its first list
    screens = () if recipe.screen.model is None else ("open_clip",)
    draws = ("diffusers.pipelines.auto_pipeline",) if recipe.kind.draws else ()
    return (*always, *screens, *draws)


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a worker needs, as plain data that pickles (an `engines.Work`).

    `commits` are the pinned commits of models, which workers load. Samples are drawn from `embeddings`. `loras` pin
    added weights, `judges` classifiers, `pool` the images that rows are taken from; the file `rows` says which.
    `writer` has the directory's stack; another one is refused unless `allow_mixed`. `mark` proves that the worker sees
    the same directory.
    """

    recipe: Recipe
    placeholders: Mapping[str, str] | None
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None
    thresholds: bytes
    device: str
    commits: Mapping[str, str | None]
    judges: Pins
    writer: ShardWriter
    embeddings: ImageEmbeddings | None = None
    loras: Pins = field(default_factory=dict)
    pool: SourcePin | None = None
    rows: bytes | None = None
    allow_mixed: bool = False
    mark: FolderMark | None = None
    collect: bool = False

    def on(self, device: str) -> Job:
        return replace(self, device=device)

    @property
    def less_memory(self) -> str:
        return (
            "Set a smaller generator.batch_size (which changes the plan, so build into another folder) or"
            " generator.offload."
        )

    @property
    def imports(self) -> Sequence[str]:
        return imported_for(self.recipe)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Span | SpanToCollect], Doing[Any, list[Receipt]]]]:
        """Load the models; yield a function that makes a span and yields the number of images as it goes.

        Each shard is written as soon as it is whole, and its receipt is `Delivered`. A shard that a lost worker wrote
        or sent is not made again. UserError if this worker's stack or directory is refused, and what loading raises.
        """
        if self.mark is not None:
            self.mark.refuse_unseen()
        writer = self._writer_here()
        kind = self.recipe.kind.table
        table = RowTable.read(self.rows, ROWS, kind) if self.rows is not None and kind is not None else None
        with computing_on(self.device):
            maker = self._maker(make_plan(self.recipe, self.placeholders, table))

            def make(item: Span | SpanToCollect) -> Doing[Any, list[Receipt]]:
                span, came = (item.span, item.came) if isinstance(item, SpanToCollect) else (item, {})
                receipts, left = [], []
                for shard in span:
                    if receipt := came.get(shard.id) if self.collect else writer.made_before(shard):
                        receipts.append(receipt)
                        yield receipt.rows["candidates"]  # finished before: counted at once
                        yield Delivered(receipt)
                    else:
                        left.append(shard)
                with contextlib.closing(maker.make(left)) as steps:
                    for step in steps:
                        if not isinstance(step, Made):
                            yield step
                            continue
                        if self.pool is not None and self.pool.content is not None:
                            # A folder of photographs may have changed since it was opened.
                            name = pool_of(self.recipe).dataset
                            pinned_content(named_path(name), name, self.pool.content)
                        if self.collect:
                            sent = write_to_send(writer, step.shard, step.candidates)
                            receipts.append(sent.receipt)
                            yield Delivered(sent)
                        else:
                            receipts.append(writer.write(step.shard, step.candidates))
                            yield Delivered(receipts[-1])
                return receipts

            try:
                yield make
            finally:
                maker.close()

    def _writer_here(self) -> ShardWriter:
        """Return a writer whose receipts record the stack of this process, which may run on another machine."""
        generator = self.recipe.generator
        libraries = libraries_of(generator)
        here = stack_of(self.device, generator.dtype, generator.batch_size, libraries, compiled=generator.compile)
        if not self.allow_mixed:
            try:
                refuse_other_stack(self.writer.directory, self.writer.stack, here)
            except UserError as error:
                if not holds_context(self.device):
                    raise
                # GPUs of one machine may be of several kinds: which of them differs is what --device needs.
                raise UserError([*error.problems, f"  (measured on {self.device})"], error.hint) from None
        return replace(self.writer, stack=here)

    def _maker(self, plan: Plan) -> ShardMaker:
        screen = plan.recipe.screen
        scorer = None
        if screen.model is not None:
            clip = load_clip(screen.model, screen.weights, self.device, revision=self.commits["screen"])
            scorer = Scorer(clip, plan)
        materials = Materials(
            plan.recipe,
            self.device,
            self.tokens,
            self.commits["generator"],
            self.commits["adapter"],
            (plan.recipe.generator.lora, self.loras),
            self.embeddings,
            self.pool,
            plan.table,
        )
        return ShardMaker(
            plan,
            maker_of(plan.recipe).renderer(materials),
            scorer,
            Thresholds.read(self.thresholds),
            Judges.load(plan, self.judges, self.device) if plan.recipe.judges else None,
            encoding_threads(self.device),
        )

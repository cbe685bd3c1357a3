"""Do the work of a worker: load the models, make spans of shards, and write or send each whole
shard.

A worker that shares no folder with the main process sends the files of each shard, and the main
process writes them. If a worker has another stack than the lock, it is refused before it renders,
unless the user gave `--allow-mixed`.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.building.asked_models import AskedModels
from counterfoil.building.inputs import Inputs
from counterfoil.building.judges import Judges
from counterfoil.building.shard import Made, ShardMaker
from counterfoil.building.spans import Span
from counterfoil.data.folders import pinned_content
from counterfoil.data.pool import pool_of
from counterfoil.engines import Delivered, Doing
from counterfoil.engines.executor import name_of_item
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.kinds import Materials, maker_of
from counterfoil.generate.pictures import encoding_threads
from counterfoil.generate.screen.scores import Scorer
from counterfoil.models.arithmetic import computing_on
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import holds_context
from counterfoil.models.stack import rendering_stack
from counterfoil.plan.layout import LazySequence, Plan, Shard, make_plan
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import remove_durably, write_atomically
from counterfoil.store.dataset_store import ShardWriter
from counterfoil.store.directory_lock import FolderMark
from counterfoil.store.layout import LOCK, WHATS, parse_shard_path, shard_path
from counterfoil.store.lock import refuse_other_stack
from counterfoil.store.receipts import Receipt, write_receipt
from counterfoil.store.rows import Candidate

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """A shard that a worker sends, with its receipt and the content of every file that the receipt
    lists."""

    receipt: Receipt
    contents: Mapping[str, bytes]


def write_to_send(
    writer: ShardWriter,
    shard: Shard,
    candidates: Sequence[Candidate],
) -> ShardFiles:
    """Write a shard in a temporary folder, and return its files, which the worker sends to the main
    process."""
    with tempfile.TemporaryDirectory(prefix="counterfoil-shard-") as folder:
        directory = Path(folder)
        (directory / LOCK).touch()  # a writer refuses a folder without a lock
        writer = replace(writer, directory=directory)
        receipt = writer.write(shard, candidates)
        contents = {}
        for file in receipt.files:
            written = directory / file.path
            contents[file.path] = written.read_bytes()
        return ShardFiles(receipt, contents)


@dataclass(frozen=True, slots=True)
class SpanToCollect:
    """A span for a worker, and the receipts of the shards that a lost worker already sent, by shard
    id."""

    span: Span
    receipts: Mapping[str, Receipt]

    @property
    def id(self) -> str:
        return name_of_item(self.span)


class SpansToCollect(LazySequence[SpanToCollect]):
    """Spans with the receipts of the shards that workers have sent so far.

    If a worker was lost, the engine reads its span again and gets the receipts.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__(range(len(spans)), self._with_receipts)
        self._spans = spans
        self._receipts: dict[str, Receipt] = {}

    def _with_receipts(self, number: int) -> SpanToCollect:
        span = self._spans[number]
        receipts = {}
        for shard in span:
            if shard.id in self._receipts:
                receipts[shard.id] = self._receipts[shard.id]
        return SpanToCollect(span, receipts)

    def note(
        self,
        shard: str,
        receipt: Receipt,
    ) -> None:
        """Remember the receipt of a shard that the main process has written."""
        self._receipts[shard] = receipt


def write_collected(
    writer: ShardWriter,
    sent: ShardFiles,
    pending: Collection[tuple[str, int, int]],
) -> None:
    """Write a shard from a worker into the directory of the writer, unless the shard is there
    already.

    pending: the group, the number and the count of each shard that workers make. Raise RunFailure
    for any other shard, for a damaged shard, and for a shard that names files of other shards.
    """
    receipt = sent.receipt
    sent_shard = (receipt.group, receipt.shard, receipt.of)
    if sent_shard not in pending:
        raise RunFailure(
            f"a worker sent a shard that was not requested: {receipt.shard} of {receipt.of} of"
            f" {receipt.group[:80]!r}",
            "The shard was not written. Check that machine.",
        )
    writer.refuse_removed()
    directory = writer.directory
    if (directory / receipt.path).exists():
        return
    expected = {file.path: file.sha256 for file in receipt.files}
    digests = {}
    for path, content in sent.contents.items():
        digest = hashlib.sha256(content)
        digests[path] = digest.hexdigest()
    sound = digests == expected
    for path in expected:
        shard = parse_shard_path(path)
        shard_id = None if shard is None else (shard.group, shard.number, shard.of)
        sound = sound and shard_id == sent_shard
    if not sound or dict(receipt.hashes) != dict(writer.hashes):
        raise RunFailure(
            f"{receipt.path}: the files that a worker sent do not match their receipt",
            "The shard was not written. Run the same command again; if it happens again, check that"
            " machine.",
        )
    for what in WHATS:
        path = shard_path(
            what,
            receipt.group,
            writer.split,
            receipt.shard,
            receipt.of,
            writer.format,
        )
        if path not in sent.contents:
            remove_durably(directory / path)  # a killed run under another stack left this file
    for path, content in sent.contents.items():
        write_atomically(directory / path, content)
    write_receipt(directory, receipt)


def imported_for(recipe: Recipe) -> Sequence[str]:
    """Return the names of the heavy modules that a worker imports for a recipe."""
    names = [__name__, "pandas"]  # pyarrow imports pandas with its first list
    if recipe.screen.model is not None:
        names.append("open_clip")
    if recipe.kind.draws:
        names.append("diffusers.pipelines.auto_pipeline")
    return names


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a worker needs, as plain data that can be pickled (an `engines.Work`)."""

    recipe: Recipe
    inputs: Inputs
    device: str
    writer: ShardWriter
    """The writer of shards, which has the stack of the directory."""
    allow_mixed: bool = False
    """Whether a worker may have another stack."""
    mark: FolderMark | None = None
    """Proves that the worker sees the same directory."""
    collect: bool = False
    """Whether workers send shards to the main process."""

    def on(self, device: str) -> Job:
        return replace(self, device=device)

    @property
    def less_memory(self) -> str:
        return (
            "Set a smaller generator.batch_size (which changes the plan, so build into another"
            " folder) or generator.offload."
        )

    @property
    def models(self) -> bool:
        return self.recipe.runs_models

    @property
    def imports(self) -> Sequence[str]:
        return imported_for(self.recipe)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Span | SpanToCollect], Doing[Any, list[Receipt]]]]:
        """Load the models, and yield a function that makes a span.

        The function yields the number of images of each step. It writes each whole shard and yields
        its receipt as `Delivered`. It does not make a shard again that a lost worker wrote or sent.
        Raise UserError if the stack or the directory of this worker is refused.
        """
        if self.mark is not None:
            self.mark.refuse_unseen()
        writer = self._writer_here()
        pool = self.inputs.pool
        table = self.inputs.table(self.recipe)
        with computing_on(self.device):
            plan = make_plan(self.recipe, self.inputs.placeholders, table)
            maker = self._maker(plan)

            def make(item: Span | SpanToCollect) -> Doing[Any, list[Receipt]]:
                kept = None
                if isinstance(item, SpanToCollect):
                    kept = item.receipts
                    item = item.span
                receipts = []
                left = []
                for shard in item:
                    receipt = writer.made_before(shard) if kept is None else kept.get(shard.id)
                    if receipt is None:
                        left.append(shard)
                        continue
                    receipts.append(receipt)
                    yield receipt.rows["candidates"]
                    yield Delivered(receipt)
                with contextlib.closing(maker.make(left)) as steps:
                    for step in steps:
                        if not isinstance(step, Made):
                            yield step
                            continue
                        if pool is not None and pool.content is not None:
                            # A folder of photographs may have changed since it was opened.
                            name = pool_of(self.recipe).dataset
                            pinned_content(named_path(name), name, pool.content)
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
        """Return a writer whose receipts record the stack of this process.

        This process may run on another machine than the main process.
        """
        stack = rendering_stack(self.device, self.recipe)
        if not self.allow_mixed:
            try:
                refuse_other_stack(self.writer.directory, self.writer.stack, stack)
            except UserError as error:
                if not holds_context(self.device):
                    raise
                # Name the GPU, because a machine may have GPUs of several kinds and the user can
                # choose by --device.
                raise UserError(
                    [*error.problems, f"  (measured on {self.device})"], error.hint
                ) from None
        return replace(self.writer, stack=stack)

    def _maker(self, plan: Plan) -> ShardMaker:
        recipe = self.recipe
        inputs = self.inputs
        scorer = None
        if recipe.screen.model is not None:
            clip = load_clip(
                recipe.screen.model,
                recipe.screen.weights,
                self.device,
                revision=inputs.commit("screen"),
            )
            scorer = Scorer(clip, plan)
        tokens = inputs.tokens.by_placeholder() if inputs.tokens else None
        materials = Materials(
            recipe=recipe,
            device=self.device,
            tokens=tokens,
            revision=inputs.commit("generator"),
            adapter_revision=inputs.commit("adapter"),
            loras=inputs.document.get("loras") or {},
            embeddings=inputs.embeddings,
            pool=inputs.pool,
            table=plan.table,
        )
        renderer = maker_of(recipe).renderer(materials)
        judges = None
        if recipe.judges:
            judge_pins = inputs.document.get("judges") or {}
            judges = Judges.load(plan, judge_pins, self.device)
        asked_models = None
        if recipe.asking_rules:
            asked_models = AskedModels.load(plan, inputs.document["asked"], self.device)
        threads = encoding_threads(self.device)
        thresholds = inputs.thresholds
        return ShardMaker(plan, renderer, scorer, thresholds, judges, asked_models, threads)

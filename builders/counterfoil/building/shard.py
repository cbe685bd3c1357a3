"""Make shards: render batches that run across them, screen and encode each behind the next, decide every cell."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.building.judges import Judges, asks_similarity, measured, similarities
from counterfoil.building.spans import Way, way_of
from counterfoil.generate.pictures import encode_image
from counterfoil.generate.render import Renderer
from counterfoil.generate.rows import EditRenderer, PoolRows
from counterfoil.generate.screen import Scorer, Thresholds
from counterfoil.recipe.keep import OBJECT, SHIFT, Verdict, decide_cell, passing
from counterfoil.store import Candidate

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.generate.pictures import DrawnAhead
    from counterfoil.plan import Cell, Plan, Sample, Shard

_UNDECIDED = ""  # the reason of a candidate until its whole cell is screened
_BEHIND = 1  # batches that are screened while the next is rendered: enough to hide the rest, and bounded memory


@dataclass(frozen=True, slots=True)
class Made:
    """A whole shard: every candidate in order, with its reason."""

    shard: Shard
    candidates: list[Candidate]


class ShardMaker:
    """Render → screen → encode for whole shards, with models that are loaded once.

    Scoring and encoding run on one thread behind the renderer, in order: they overlap with the next
    batch and change nothing of what is computed. Where there are several `encoders`, as many threads encode the images
    of a batch while it is scored.
    """

    def __init__(
        self,
        plan: Plan,
        renderer: Renderer | PoolRows | EditRenderer,
        scorer: Scorer | None,
        thresholds: Thresholds,
        judges: Judges | None = None,
        encoders: int = 1,
    ) -> None:
        self.plan = plan
        self.renderer = renderer
        self.scorer = scorer
        self.thresholds = thresholds
        self.judges = judges
        self._behind = ThreadPoolExecutor(1, "screen", initializer=_one_torch_thread)
        self._encoders = ThreadPoolExecutor(encoders, "encode") if encoders > 1 else None

    def make(self, shards: Sequence[Shard]) -> Generator[int | Made]:
        """The images of each rendered batch, and every shard as soon as its last image is screened.

        A shard that comes is whole, whatever becomes of those behind it.
        """
        return _Making(self).steps(shards)

    def close(self) -> None:
        self._behind.shutdown(cancel_futures=True)
        if self._encoders is not None:
            self._encoders.shutdown(cancel_futures=True)

    def screened(self, batch: Sequence[Sample]) -> Future[list[Candidate]]:
        """Render a batch; what is found of it, behind those that were given before."""
        # Rows are read by this thread alone: a reader of datasets may not be one for several.
        return self._behind.submit(self._screen, batch, self.renderer.ahead(batch), self._compared(batch))

    def _compared(self, batch: Sequence[Sample]) -> list[Image.Image | None]:
        """What the images are compared with: of edits their rows, where a keep rule asks; else nothing."""
        if not isinstance(self.renderer, EditRenderer):
            return [None for _ in batch]
        asked = [asks_similarity(self.plan, sample) for sample in batch]
        sources = iter(self.renderer.sources([sample for sample, asks in zip(batch, asked, strict=True) if asks]))
        return [next(sources) if asks else None for asks in asked]

    def decided(self, cell: Cell, rows: Sequence[Candidate]) -> Iterator[Candidate]:
        """The candidates of a cell in order, each with its reason."""
        verdicts = [row.verdict for row in rows]
        reasons = decide_cell(self.plan.shift(cell.shift).keep, verdicts, cell.accepted)
        for row, reason in zip(rows, reasons, strict=True):
            yield replace(row, reason=reason)

    def _screen(
        self, batch: Sequence[Sample], drawn_ahead: DrawnAhead, sources: Sequence[Image.Image | None]
    ) -> list[Candidate]:
        from PIL import Image

        recipe = self.plan.recipe
        images = drawn_ahead()
        drawn = [i for i, image in enumerate(images) if image is not None]
        pictures = {i: Image.fromarray(pixels) for i in drawn if (pixels := images[i]) is not None}
        encoding = self._encoding([pictures.get(i) for i in range(len(batch))])
        scores: dict[int, tuple[float, float | None]] = {}
        embeddings: dict[int, np.ndarray] = {}
        if drawn and self.scorer is not None:
            rows, pairs = self.scorer.score([pictures[i] for i in drawn], [batch[i] for i in drawn])
            scores = dict(zip(drawn, pairs, strict=True))
            embeddings = dict(zip(drawn, rows, strict=True))
        encoded = list(encoding)
        of_rows = self.renderer if isinstance(self.renderer, PoolRows | EditRenderer) else None
        values = [{} for _ in batch] if of_rows is None else of_rows.values(batch)
        said = self.judges.answers(batch, encoded) if self.judges is not None else [{} for _ in batch]
        measures = measured(self.plan, batch, encoded)
        similar = similarities(self.scorer, embeddings, sources)
        scored = []
        for i, sample in enumerate(batch):
            object_score, shift_score = scores.get(i, (None, None))
            if object_score is not None and not np.isfinite([object_score, shift_score or 0.0]).all():
                object_score = shift_score = None  # recorded as failed; it does not end the run
            kept = recipe.screen.store_embeddings and i in embeddings and object_score is not None
            scored.append(
                Candidate(
                    sample,
                    Verdict(
                        {OBJECT: object_score, SHIFT: shift_score, **said[i], **measures[i], **similar[i]},
                        self.thresholds.of(sample.shift, sample.class_id),
                        open=self.thresholds.is_open(sample.shift),
                    ),
                    _UNDECIDED,
                    encoded[i],
                    embeddings[i].tolist() if kept else None,
                    {**recipe.given(self.plan.shift(sample.shift)), **values[i]},
                )
            )
        return scored

    def _encoding(self, pictures: Sequence[Image.Image | None]) -> Iterator[bytes | None]:
        """Each picture encoded, in order: begun at once where threads do it, else when asked for."""

        def encoded(picture: Image.Image | None) -> bytes | None:
            return None if picture is None else encode_image(picture, self.plan.recipe)

        return map(encoded, pictures) if self._encoders is None else self._encoders.map(encoded, pictures)


@dataclass(slots=True)
class _Begun:
    """A shard that is being made: what was found of each cell, and how many samples are still on their way."""

    shard: Shard
    found: dict[tuple[str, int], list[Candidate]] = field(default_factory=dict)
    coming: int = 0
    all_asked: bool = False


class _Making:
    """One span on its way: samples that wait for a full batch, batches that are screened, shards that are not whole."""

    def __init__(self, maker: ShardMaker) -> None:
        self.maker = maker
        self.plan = maker.plan
        self.size = maker.plan.recipe.generator.batch_size
        self.waiting: dict[Way, list[Sample]] = {"prompt": [], "vector": [], "pair": []}
        self.behind: deque[Future[list[Candidate]]] = deque()
        self.begun: list[_Begun] = []

    def steps(self, shards: Sequence[Shard]) -> Generator[int | Made]:
        for shard in shards:
            begun = _Begun(shard, {(cell.shift, cell.label): [] for cell in shard.cells})
            self.begun.append(begun)
            for cell in shard.cells:
                if cell.accepted is None:
                    yield from self._ask(begun, self.plan.samples(cell))
                else:
                    yield from self._quota(begun, cell, cell.accepted)
            begun.all_asked = True
            yield from self._whole()
        for batch in self.waiting.values():
            if batch:
                yield from self._render(batch)
        yield from self._take(0)

    def _ask(self, begun: _Begun, samples: Iterable[Sample]) -> Iterator[int | Made]:
        """Let samples wait with those that are drawn alike, of whatever shard, until they fill a batch."""
        for sample in samples:
            begun.coming += 1
            way = way_of(self.plan, sample.shift)
            self.waiting[way].append(sample)
            if len(self.waiting[way]) == self.size:
                batch, self.waiting[way] = self.waiting[way], []
                yield from self._render(batch)

    def _quota(self, begun: _Begun, cell: Cell, accepted: int) -> Iterator[int | Made]:
        """Full batches of indices 0, 1, 2 … until enough pass; whole batches, so that no order matters.

        What is left for the last one, where all are drawn, waits with others: nothing is decided behind it.
        """
        rules, found = self.plan.shift(cell.shift).keep, begun.found[cell.shift, cell.label]
        passed = 0
        for batch in self.plan.batches(begun.shard, cell):
            if len(batch) < self.size:
                yield from self._ask(begun, batch)
                return
            begun.coming += len(batch)
            yield from self._render(batch)
            yield from self._take(0)
            passed += passing(rules, [row.verdict for row in found[-len(batch) :]])
            if passed >= accepted:
                return

    def _render(self, batch: Sequence[Sample]) -> Iterator[int | Made]:
        self.behind.append(self.maker.screened(batch))
        yield len(batch)
        yield from self._take(_BEHIND)

    def _take(self, left: int) -> Iterator[int | Made]:
        """Take what was screened, in order, until so many batches are left behind the renderer."""
        while len(self.behind) > left:
            for row in self.behind.popleft().result():
                cell = (row.sample.shift, row.sample.label)
                begun = next(begun for begun in self.begun if cell in begun.found)
                begun.found[cell].append(row)
                begun.coming -= 1
            yield from self._whole()

    def _whole(self) -> Iterator[Made]:
        """The shards that lack nothing any more, in order."""
        for begun in [begun for begun in self.begun if begun.all_asked and not begun.coming]:
            self.begun.remove(begun)
            rows = ((cell, begun.found[cell.shift, cell.label]) for cell in begun.shard.cells)
            yield Made(begun.shard, [candidate for cell, own in rows for candidate in self.maker.decided(cell, own)])


def _one_torch_thread() -> None:
    import torch

    torch.set_num_threads(1)  # the setting is a thread's own

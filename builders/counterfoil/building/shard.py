"""Make one shard: render its batches, screen and encode each behind the next, decide every cell."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.building.judges import Judges
from counterfoil.building.measured_images import measured
from counterfoil.generate import PoolRows, Renderer, encode_image
from counterfoil.keep import OBJECT, SHIFT, Verdict, decide_cell, passing
from counterfoil.screen import Scorer, Thresholds
from counterfoil.store import Candidate
from counterfoil.under_way import UnderWay

if TYPE_CHECKING:
    from counterfoil.plan import Cell, Plan, Sample, Shard

_ONE_BEHIND = 2  # batches in flight behind the renderer: enough to hide the rest, and bounded memory


@dataclass(frozen=True, slots=True)
class _Scored:
    sample: Sample
    verdict: Verdict
    image: bytes | None
    embedding: list[float] | None
    values: Mapping[str, Any]


class ShardMaker:
    """Render → screen → encode for whole shards, with models that are loaded once.

    Scoring and encoding run on one thread behind the renderer, in order: they overlap with the next
    batch and change nothing of what is computed.
    """

    def __init__(
        self,
        plan: Plan,
        renderer: Renderer | PoolRows,
        scorer: Scorer,
        thresholds: Thresholds,
        judges: Judges | None = None,
    ) -> None:
        self.plan = plan
        self.renderer = renderer
        self.scorer = scorer
        self.thresholds = thresholds
        self.judges = judges
        self._behind = ThreadPoolExecutor(1, "screen", initializer=_one_torch_thread)

    def make(self, shard: Shard) -> UnderWay[int, list[Candidate]]:
        """Every candidate of the shard in order, with its reason. Yields the images of each rendered batch."""
        cells: list[tuple[Cell, list[_Scored]]] = []
        if any(cell.accepted is not None for cell in shard.cells):
            for cell in shard.cells:
                cells.append((cell, (yield from self._cell(shard, cell))))
        else:
            scored = iter((yield from self._scored(self.plan.batches(shard))))
            cells = [(cell, [next(scored) for _ in range(cell.candidates)]) for cell in shard.cells]
        return [candidate for cell, rows in cells for candidate in self._decided(cell, rows)]

    def close(self) -> None:
        self._behind.shutdown(cancel_futures=True)

    def _scored(self, batches: Iterable[list[Sample]]) -> UnderWay[int, list[_Scored]]:
        rows: list[_Scored] = []
        waiting: deque[Future[list[_Scored]]] = deque()
        for batch in batches:
            images = self.renderer.render(batch)
            waiting.append(self._behind.submit(self._screen, batch, images))
            yield len(batch)
            if len(waiting) >= _ONE_BEHIND:
                rows += waiting.popleft().result()
        while waiting:
            rows += waiting.popleft().result()
        return rows

    def _cell(self, shard: Shard, cell: Cell) -> UnderWay[int, list[_Scored]]:
        """Full batches of indices 0, 1, 2 … until enough pass; whole batches, so that no order matters."""
        if cell.accepted is None:
            return (yield from self._scored(self.plan.batches(shard, cell)))
        rows: list[_Scored] = []
        passed, rules = 0, self.plan.shift(cell.shift).keep
        for batch in self.plan.batches(shard, cell):
            scored = yield from self._scored([batch])
            rows += scored
            passed += passing(rules, [row.verdict for row in scored])
            if passed >= cell.accepted:
                break
        return rows

    def _screen(self, batch: Sequence[Sample], images: Sequence[np.ndarray | None]) -> list[_Scored]:
        from PIL import Image

        recipe = self.plan.recipe
        drawn = [i for i, image in enumerate(images) if image is not None]
        pictures = {i: Image.fromarray(pixels) for i in drawn if (pixels := images[i]) is not None}
        scores: dict[int, tuple[float, float | None]] = {}
        embeddings: dict[int, np.ndarray] = {}
        if drawn:
            rows, pairs = self.scorer.score([pictures[i] for i in drawn], [batch[i] for i in drawn])
            scores = dict(zip(drawn, pairs, strict=True))
            embeddings = dict(zip(drawn, rows, strict=True))
        encoded = [encode_image(pictures[i], recipe) if i in pictures else None for i in range(len(batch))]
        values = self.renderer.values(batch) if isinstance(self.renderer, PoolRows) else [{} for _ in batch]
        said = self.judges.answers(batch, encoded) if self.judges is not None else [{} for _ in batch]
        measures = measured(self.plan, batch, encoded)
        scored = []
        for i, sample in enumerate(batch):
            object_score, shift_score = scores.get(i, (None, None))
            if object_score is not None and not np.isfinite([object_score, shift_score or 0.0]).all():
                object_score = shift_score = None  # recorded as failed; it does not end the run
            kept = recipe.screen.store_embeddings and i in embeddings and object_score is not None
            scored.append(
                _Scored(
                    sample,
                    Verdict(
                        {OBJECT: object_score, SHIFT: shift_score, **said[i], **measures[i]},
                        self.thresholds.of(sample.shift, sample.class_id),
                        open=self.thresholds.is_open(sample.shift),
                    ),
                    encoded[i],
                    embeddings[i].tolist() if kept else None,
                    values[i],
                )
            )
        return scored

    def _decided(self, cell: Cell, rows: Sequence[_Scored]) -> Iterator[Candidate]:
        verdicts = [row.verdict for row in rows]
        reasons = decide_cell(self.plan.shift(cell.shift).keep, verdicts, cell.accepted)
        for row, reason in zip(rows, reasons, strict=True):
            yield Candidate(row.sample, row.verdict, reason, row.image, row.embedding, row.values)


def _one_torch_thread() -> None:
    import torch

    torch.set_num_threads(1)  # the setting is a thread's own

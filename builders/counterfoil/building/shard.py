"""Make shards: render batches, screen and encode their images, and decide every cell.

A batch may cross shards. While a batch is screened and encoded, the next batch is rendered.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.building.asked_models import AskedModels
from counterfoil.building.judges import Judges, measured_columns, source_similarities
from counterfoil.building.spans import Way, way_of
from counterfoil.generate.pictures import ImageRenderer, encode_image
from counterfoil.generate.screen.scores import Scorer
from counterfoil.generate.screen.thresholds import Thresholds
from counterfoil.recipe.keep.cells import decide_cell, quota_passes
from counterfoil.recipe.keep.rule import OBJECT, SHIFT, Verdict
from counterfoil.recipe.keep.same_image import SOURCE_SIMILARITY
from counterfoil.store.rows import Candidate

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.generate.pictures import DrawnAhead
    from counterfoil.plan.layout import Cell, Plan, Sample, Shard

_UNDECIDED = ""  # the reason of a candidate until its whole cell is screened
_BEHIND = 1  # batches in screening while the next is rendered; more would only cost memory


@dataclass(frozen=True, slots=True)
class Made:
    """A whole shard, with every candidate in order and the reason of each decision."""

    shard: Shard
    candidates: list[Candidate]


def _one_torch_thread() -> None:
    import torch

    torch.set_num_threads(1)


class ShardMaker:
    """Renders, screens and encodes whole shards with loaded models.

    One thread scores batches in order, while another thread renders. encoders: the threads that
    encode the images of a batch while the batch is scored, if there is more than one such thread.
    """

    def __init__(
        self,
        plan: Plan,
        renderer: ImageRenderer,
        scorer: Scorer | None,
        thresholds: Thresholds,
        judges: Judges | None = None,
        asked_models: AskedModels | None = None,
        encoders: int = 1,
    ) -> None:
        self.plan = plan
        self.renderer = renderer
        self.scorer = scorer
        self.thresholds = thresholds
        self.judges = judges
        self.asked_models = asked_models
        # The screening thread has one torch thread; each thread has its own setting.
        prepare = _one_torch_thread if plan.recipe.runs_models else None
        self._behind = ThreadPoolExecutor(1, "screen", prepare)
        self._encoders = None
        if encoders > 1:
            self._encoders = ThreadPoolExecutor(encoders, "encode")

    def make(self, shards: Sequence[Shard]) -> Generator[int | Made]:
        """Yield the number of images of each rendered batch. Yield each shard when its last image
        is screened."""
        return _Making(self).steps(shards)

    def close(self) -> None:
        self._behind.shutdown(cancel_futures=True)
        if self._encoders is not None:
            self._encoders.shutdown(cancel_futures=True)

    def screened(self, batch: Sequence[Sample]) -> Future[list[Candidate]]:
        """Render a batch, and queue the batch for screening after the earlier batches."""
        # Only this thread reads rows, because a reader of datasets may not support several threads.
        drawn_ahead = self.renderer.ahead(batch)
        # The image of the row, for each edit that a keep rule compares with its row.
        compared = {}
        for index, sample in enumerate(batch):
            keep = self.plan.shift(sample.shift).keep
            if any(rule.compares for rule in keep):
                compared[index] = sample
        images = self.renderer.sources(list(compared.values()))
        sources = dict(zip(compared, images, strict=True))
        return self._behind.submit(self._screen, batch, drawn_ahead, sources)

    def decided(
        self,
        cell: Cell,
        rows: Sequence[Candidate],
    ) -> Iterator[Candidate]:
        """Yield the candidates of a cell in order, with the reason of each decision."""
        verdicts = [row.verdict for row in rows]
        rules = self.plan.shift(cell.shift).keep
        reasons = decide_cell(rules, verdicts, cell.accepted)
        for row, reason in zip(rows, reasons, strict=True):
            yield replace(row, reason=reason)

    def _screen(
        self,
        batch: Sequence[Sample],
        drawn_ahead: DrawnAhead,
        sources: Mapping[int, Image.Image | None],
    ) -> list[Candidate]:
        from PIL import Image

        recipe = self.plan.recipe
        pictures = {}
        for index, pixels in enumerate(drawn_ahead()):
            if pixels is not None:
                pictures[index] = Image.fromarray(pixels)

        def encode(index: int) -> bytes | None:
            picture = pictures.get(index)
            return None if picture is None else encode_image(picture, recipe)

        # Encoding threads start now. Without such threads, this thread encodes the images below.
        encode_each = map if self._encoders is None else self._encoders.map
        encoding = encode_each(encode, range(len(batch)))
        scores: dict[int, tuple[float, float | None]] = {}
        embeddings: dict[int, np.ndarray] = {}
        if pictures and self.scorer is not None:
            drawn = [batch[index] for index in pictures]
            images = list(pictures.values())
            rows, pairs = self.scorer.score(images, drawn)
            scores = dict(zip(pictures, pairs, strict=True))
            embeddings = dict(zip(pictures, rows, strict=True))
        encoded = list(encoding)
        values = self.renderer.values(batch)
        answers: list[dict[str, Any]] = [{} for _ in batch]
        for models in (self.judges, self.asked_models):
            if models is not None:
                of_models = models.answers(batch, encoded)
                for columns, more in zip(answers, of_models, strict=True):
                    columns |= more
        in_clip = {}
        for index, source in sources.items():
            keep = self.plan.shift(batch[index].shift).keep
            compared = any(SOURCE_SIMILARITY in rule.measures for rule in keep)
            if compared and source is not None:
                in_clip[index] = source
        similarities = source_similarities(self.scorer, embeddings, in_clip)
        scored = []
        for index, sample in enumerate(batch):
            shift = self.plan.shift(sample.shift)
            image = encoded[index]
            object_score, shift_score = scores.get(index, (None, None))
            embedding = None
            if object_score is not None:
                both = [object_score, shift_score or 0.0]
                if not np.isfinite(both).all():
                    object_score = shift_score = None  # recorded as failed, and the run goes on
                elif recipe.screen.store_embeddings:
                    embedding = embeddings[index].tolist()
            columns = {
                OBJECT: object_score,
                SHIFT: shift_score,
                **answers[index],
                **measured_columns(shift.keep, image, sources.get(index)),
                **similarities.get(index, {}),
            }
            thresholds = self.thresholds.of(sample.shift, sample.class_id)
            is_open = self.thresholds.is_open(sample.shift)
            verdict = Verdict(columns, thresholds, open=is_open)
            given = {**recipe.given(shift), **values[index]}
            candidate = Candidate(sample, verdict, _UNDECIDED, image, embedding, given)
            scored.append(candidate)
        return scored


@dataclass(slots=True)
class _Begun:
    """A shard in progress, with the candidates of each cell so far and the number of samples that
    are not screened."""

    shard: Shard
    candidates: dict[tuple[str, int], list[Candidate]] = field(default_factory=dict)
    coming: int = 0
    all_asked: bool = False


class _Making:
    """A span in progress, with samples that wait for a full batch, batches in screening, and
    unfinished shards."""

    def __init__(self, maker: ShardMaker) -> None:
        self.maker = maker
        self.plan = maker.plan
        self.size = maker.plan.recipe.generator.batch_size
        self.waiting: dict[Way, list[Sample]] = defaultdict(list)
        self.behind: deque[Future[list[Candidate]]] = deque()
        self.begun: list[_Begun] = []

    def steps(self, shards: Sequence[Shard]) -> Generator[int | Made]:
        for shard in shards:
            begun = _Begun(shard)
            self.begun.append(begun)
            for cell in shard.cells:
                begun.candidates[cell.shift, cell.label] = []
            for cell in shard.cells:
                if cell.accepted is None:
                    samples = self.plan.samples(cell)
                    yield from self._ask(begun, samples)
                else:
                    yield from self._quota(begun, cell, cell.accepted)
            begun.all_asked = True
            yield from self._whole()
        for batch in self.waiting.values():
            if batch:
                yield from self._render(batch)
        yield from self._take(0)

    def _ask(
        self,
        begun: _Begun,
        samples: Iterable[Sample],
    ) -> Iterator[int | Made]:
        """Queue samples together with samples of other shards that are drawn the same way. Render
        full batches."""
        for sample in samples:
            begun.coming += 1
            way = way_of(self.plan, sample.shift)
            batch = self.waiting[way]
            batch.append(sample)
            if len(batch) == self.size:
                self.waiting[way] = []
                yield from self._render(batch)

    def _quota(
        self,
        begun: _Begun,
        cell: Cell,
        accepted: int,
    ) -> Iterator[int | Made]:
        """Render full batches in order of index until enough candidates pass.

        The samples of a last batch that is not full wait for samples of other cells.
        """
        rules = self.plan.shift(cell.shift).keep
        candidates = begun.candidates[cell.shift, cell.label]
        passed = 0
        for batch in self.plan.batches(cell):
            if len(batch) < self.size:
                yield from self._ask(begun, batch)
                return
            begun.coming += len(batch)
            yield from self._render(batch)
            yield from self._take(0)
            screened = candidates[-len(batch) :]
            verdicts = [row.verdict for row in screened]
            passed += quota_passes(rules, verdicts)
            if passed >= accepted:
                return

    def _render(self, batch: Sequence[Sample]) -> Iterator[int | Made]:
        self.behind.append(self.maker.screened(batch))
        yield len(batch)
        yield from self._take(_BEHIND)

    def _take(self, left: int) -> Iterator[int | Made]:
        """Take screened batches in order, until only `left` batches are in screening."""
        while len(self.behind) > left:
            for row in self.behind.popleft().result():
                cell = (row.sample.shift, row.sample.label)
                begun = next(begun for begun in self.begun if cell in begun.candidates)
                begun.candidates[cell].append(row)
                begun.coming -= 1
            yield from self._whole()

    def _whole(self) -> Iterator[Made]:
        """Yield finished shards in order."""
        for begun in list(self.begun):
            if begun.coming or not begun.all_asked:
                continue
            self.begun.remove(begun)
            candidates: list[Candidate] = []
            for cell in begun.shard.cells:
                rows = begun.candidates[cell.shift, cell.label]
                candidates += self.maker.decided(cell, rows)
            yield Made(begun.shard, candidates)

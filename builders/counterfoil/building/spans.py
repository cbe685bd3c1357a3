"""Which shards a worker makes in one go, so that batches run across them and little is padded.

An image depends on its sample and on the size of its batch, so that a batch may hold samples of several shards. What
is chosen here changes how long a build takes, and no byte. Pure: it reads numbers and gives numbers.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from counterfoil.plan.estimate import IMAGES_A_PAIR

if TYPE_CHECKING:
    from counterfoil.plan import Plan, Shard

Span: TypeAlias = "tuple[Shard, ...]"
# Samples of two ways are never in one batch.
Way: TypeAlias = Literal["prompt", "vector", "pair"]

# Batches of the longest spans; a shard that is longer is a span by itself. What is lost with a worker that is lost
# stays bounded, and the one batch that a span pads is 1.6 % of it.
LONGEST = 64
# A span of less than the longest ends at the first shard where no more of its images than this are padding.
_LITTLE = 0.01
# Shorter ones leave workers idle for less at the end, and pad more: the best is found by trying.
_LENGTHS = (4, 8, 16, 32, LONGEST, 2 * LONGEST)
# The end of a long list is dealt as well as can be found: so many shards, and of the longest spans for each worker.
_LEFT_SHARDS, _LEFT_SPANS = 500, 2


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to render of a shard: images by prompt alone, by a vector and of pairs, and full batches of quotas.

    Samples that are drawn in different ways never share a batch (`generate/render.py`), and a quota's batches are its
    cell's own. A sample of a pair is two images, its own and that of its base beside it.
    """

    by_prompt: int
    by_vector: int = 0
    full: int = 0
    of_pairs: int = 0


def load_of(plan: Plan, shard: Shard) -> Load:
    """Return the load of a shard whose quotas draw the most they may."""
    size = plan.recipe.generator.batch_size
    images: dict[Way, int] = {"prompt": 0, "vector": 0, "pair": 0}
    full = 0
    for cell in shard.cells:
        way, alone = way_of(plan, cell.shift), cell.candidates
        each = IMAGES_A_PAIR if way == "pair" else 1
        if cell.accepted is not None:
            full += cell.candidates // size * each
            alone = cell.candidates % size
        images[way] += alone * each
    return Load(images["prompt"], images["vector"], full, images["pair"])


def way_of(plan: Plan, shift: str) -> Way:
    """Return how samples of a shift are drawn: by prompts, from image embeddings, or in pairs with their base."""
    own = plan.shift(shift)
    return "vector" if own.embedding is not None else "pair" if plan.recipe.beside_base(own) else "prompt"


def spans(plan: Plan, shards: Sequence[Shard], workers: int) -> Sequence[Span]:
    """Return the shards in spans for workers that each take the next one when free; a lazy sequence, in order."""
    ends = cuts((load_of(plan, shard) for shard in shards), plan.recipe.generator.batch_size, workers)
    return _Spans(shards, ends)


def cuts(loads: Iterable[Load], batch_size: int, workers: int) -> array[int]:
    """Return where each span ends, as positions behind its last shard.

    Of the ways that are tried the one whose last worker has ended first, counted in rendered batches with what is
    padded; of these the one with the fewest batches, and of these the one with the most spans.
    """
    batches = _Batches(loads, batch_size)
    count = len(batches)
    if not count:
        return array("q")
    idle = [0] * min(workers, count)
    begun = array("q")
    at = 0
    # Spans of a long list, up to where the rest is short enough to be dealt with care.
    while count - at > _LEFT_SHARDS and batches.of(at, count) > _LEFT_SPANS * LONGEST * workers:
        at = batches.padding_little(at, LONGEST)
        begun.append(at)
    for start, end in pairwise([0, *begun]):
        heapq.heapreplace(idle, idle[0] + batches.of(start, end))
    start = begun[-1] if begun else 0
    ways = [array("q", range(start + 1, count + 1))]
    ways += [_filled(batches, start, idle, longest) for longest in _LENGTHS]
    best = min(ways, key=lambda way: _score(batches, start, idle, way))
    return begun + best


class _Batches:
    """Batches and images of any span, from sums over all shards before each."""

    def __init__(self, loads: Iterable[Load], batch_size: int) -> None:
        self.size = batch_size
        self._ways = (array("q", [0]), array("q", [0]), array("q", [0]))
        self._full = array("q", [0])
        for load in loads:
            for sums, images in zip(self._ways, (load.by_prompt, load.by_vector, load.of_pairs), strict=True):
                sums.append(sums[-1] + images)
            self._full.append(self._full[-1] + load.full)

    def __len__(self) -> int:
        return len(self._full) - 1

    def of(self, start: int, end: int) -> int:
        """Return the batches of the shards from `start` to before `end` as one span."""
        alone = sum(-(-(sums[end] - sums[start]) // self.size) for sums in self._ways)
        return alone + self._full[end] - self._full[start]

    def images(self, start: int, end: int) -> int:
        """Return the images of these shards, without padding."""
        drawn = sum(sums[end] - sums[start] for sums in self._ways)
        return drawn + self.size * (self._full[end] - self._full[start])

    def furthest(self, start: int, most: int) -> int:
        """Return the end of the longest span of at most `most` batches, but of at least one shard."""
        return max(
            start + 1, bisect_right(range(len(self) + 1), most, lo=start, key=lambda end: self.of(start, end)) - 1
        )

    def padding_little(self, start: int, most: int) -> int:
        """Return the end of the first span of at most `most` batches that pads little, or that pads least."""
        best, least = start + 1, 2.0
        for end in range(start + 1, len(self) + 1):
            rendered = self.size * self.of(start, end)
            if rendered > most * self.size and end > start + 1:
                break
            share = 1 - self.images(start, end) / rendered if rendered else 0.0
            if share < least:
                best, least = end, share
            if share <= _LITTLE:
                break
        return best


def _filled(batches: _Batches, start: int, idle: Sequence[int], longest: int) -> array[int]:
    """Return the ends of spans that fill each worker to one level, the lowest that has space for all shards."""
    least = max(-(-(sum(idle) + batches.of(start, len(batches))) // len(idle)), max(idle))
    low, high, found = least - 1, least, _up_to(batches, start, idle, longest, least)
    while found is None:
        low, high = high, least + 2 * (high - least) + 1
        found = _up_to(batches, start, idle, longest, high)
    while high - low > 1:
        level = (low + high) // 2
        way = _up_to(batches, start, idle, longest, level)
        if way is None:
            low = level
        else:
            high, found = level, way
    return found


def _up_to(batches: _Batches, start: int, idle: Sequence[int], longest: int, level: int) -> array[int] | None:
    """Return the ends of spans with which no worker exceeds the level, or None."""
    free, ends, at = list(idle), array("q"), start
    heapq.heapify(free)
    while at < len(batches):
        space = level - free[0]
        end = batches.furthest(at, space)
        if batches.of(at, end) > space:
            return None
        if batches.of(at, end) > longest:
            end = batches.padding_little(at, longest)
        heapq.heapreplace(free, free[0] + batches.of(at, end))
        ends.append(end)
        at = end
    return ends


def _score(batches: _Batches, start: int, idle: Sequence[int], ends: Sequence[int]) -> tuple[int, int, int]:
    """Return when the last worker ends, all batches, and minus the spans: lower is better."""
    free, total = list(idle), 0
    heapq.heapify(free)
    for first, last in pairwise([start, *ends]):
        count = batches.of(first, last)
        heapq.heapreplace(free, free[0] + count)
        total += count
    return max(free), total, -len(ends)


class _Spans(Sequence["Span"]):
    """Spans by where they end; each is made when it is asked for."""

    def __init__(self, shards: Sequence[Shard], ends: Sequence[int]) -> None:
        self._shards = shards
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> Span: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Span]: ...
    def __getitem__(self, at: int | slice) -> Span | Sequence[Span]:
        if isinstance(at, slice):
            return [self[position] for position in range(*at.indices(len(self)))]
        position = at + len(self) if at < 0 else at
        if not 0 <= position < len(self):
            raise IndexError(f"span {at} of {len(self)}")
        first = self._ends[position - 1] if position else 0
        return tuple(self._shards[index] for index in range(first, self._ends[position]))

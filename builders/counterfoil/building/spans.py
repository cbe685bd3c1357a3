"""Choose spans of shards for workers. Batches run across the shards of a span, so little is padded.

The choice of spans changes no byte of a dataset.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from counterfoil.plan.estimate import IMAGES_A_PAIR
from counterfoil.plan.layout import LazySequence, Plan, Shard

Span: TypeAlias = "tuple[Shard, ...]"
# A `Way` is how samples are drawn. A batch never has samples that are drawn in two ways.
Way: TypeAlias = Literal["prompt", "vector", "pair"]

# The longest spans have `LONGEST` batches, unless one shard has more. This bounds the work that is
# lost with a worker. The padding of one batch is at most 1.6 % of such a span.
LONGEST = 64
# A shorter span ends at the first shard where padding is at most the share `_LITTLE` of its images.
_LITTLE = 0.01
# Shorter spans leave workers idle for less time at the end, but need more padding. So every length
# in `_LENGTHS` is tried.
_LENGTHS = (4, 8, 16, 32, LONGEST, 2 * LONGEST)
# Only the end of a long list of shards is optimised. This end has at most `_LEFT_SHARDS` shards, or
# at most `_LEFT_SPANS` longest spans for each worker.
_LEFT_SHARDS = 500
_LEFT_SPANS = 2


@dataclass(frozen=True, slots=True)
class Load:
    """The number of images of a shard for each way of drawing, and the number of full batches of
    quotas.

    Samples that are drawn in different ways never share a batch (`generate/render.py`). Quotas of
    different cells do not share full batches either. A sample that is drawn together with its base
    counts as two images.
    """

    by_prompt: int
    by_vector: int = 0
    full: int = 0
    of_pairs: int = 0


def load_of(plan: Plan, shard: Shard) -> Load:
    """Return the load of a shard. Each quota counts with the largest number of samples that it may
    draw."""
    size = plan.recipe.generator.batch_size
    images: Counter[Way] = Counter()
    full = 0
    for cell in shard.cells:
        way = way_of(plan, cell.shift)
        alone = cell.candidates
        each = IMAGES_A_PAIR if way == "pair" else 1
        if cell.accepted is not None:
            full += cell.candidates // size * each
            alone = cell.candidates % size
        images[way] += alone * each
    return Load(images["prompt"], images["vector"], full, images["pair"])


def way_of(plan: Plan, shift: str) -> Way:
    """Return how samples of a shift are drawn: by prompts, from image embeddings, or in pairs with
    their base."""
    resolved = plan.shift(shift)
    if resolved.embedding is not None:
        return "vector"
    return "pair" if plan.recipe.beside_base(resolved) else "prompt"


def shard_spans(
    plan: Plan,
    shards: Sequence[Shard],
    workers: int,
) -> Sequence[Span]:
    """Return the shards in spans, as a lazy sequence in order.

    Each worker takes the next span as soon as it has finished its last one.
    """
    loads = (load_of(plan, shard) for shard in shards)
    ends = cuts(loads, plan.recipe.generator.batch_size, workers)

    def span(number: int) -> Span:
        first = ends[number - 1] if number else 0
        positions = range(first, ends[number])
        return tuple(shards[position] for position in positions)

    return LazySequence(range(len(ends)), span)


def cuts(
    loads: Iterable[Load],
    batch_size: int,
    workers: int,
) -> array[int]:
    """Return the position after the last shard of each span.

    Several divisions are tried. The best division is the one whose last worker ends first, counted
    in padded batches. If divisions are equal in this, the one with the fewest batches is best, and
    then the one with the most spans.
    """
    batches = _Batches(loads, batch_size)
    count = len(batches)
    if not count:
        return array("q")
    idle = [0] * min(workers, count)
    begun = array("q")
    at = 0
    most_left = _LEFT_SPANS * LONGEST * workers
    # In a long list, take spans of the usual length up to the end that is optimised.
    while count - at > _LEFT_SHARDS and batches.of(at, count) > most_left:
        at = batches.padding_little(at, LONGEST)
        begun.append(at)
    for start, end in pairwise([0, *begun]):
        taken = batches.of(start, end)
        heapq.heapreplace(idle, idle[0] + taken)
    start = begun[-1] if begun else 0
    one_each = array("q", range(start + 1, count + 1))
    ways = [one_each]
    for longest in _LENGTHS:
        filled = _filled(batches, start, idle, longest)
        ways.append(filled)
    best = min(ways, key=lambda way: _score(batches, start, idle, way))
    return begun + best


class _Batches:
    """Counts the batches and the images of any span from cumulative sums over shards."""

    def __init__(
        self,
        loads: Iterable[Load],
        batch_size: int,
    ) -> None:
        self.size = batch_size
        self._ways = [array("q", [0]) for _ in range(3)]
        self._full = array("q", [0])
        for load in loads:
            images_of_ways = (load.by_prompt, load.by_vector, load.of_pairs)
            for sums, images in zip(self._ways, images_of_ways, strict=True):
                sums.append(sums[-1] + images)
            self._full.append(self._full[-1] + load.full)

    def __len__(self) -> int:
        return len(self._full) - 1

    def of(
        self,
        start: int,
        end: int,
    ) -> int:
        """Return the number of batches of one span with the shards [start, end)."""
        count = self._full[end] - self._full[start]
        for sums in self._ways:
            images = sums[end] - sums[start]
            count += -(-images // self.size)
        return count

    def images(
        self,
        start: int,
        end: int,
    ) -> int:
        """Return the number of images of the shards [start, end), without padding."""
        drawn = sum(sums[end] - sums[start] for sums in self._ways)
        full = self._full[end] - self._full[start]
        return drawn + self.size * full

    def furthest(
        self,
        start: int,
        most: int,
    ) -> int:
        """Return the end of the longest span of at most `most` batches. A span has at least one
        shard."""
        ends = range(len(self) + 1)
        after = bisect_right(ends, most, lo=start, key=lambda end: self.of(start, end))
        return max(start + 1, after - 1)

    def padding_little(
        self,
        start: int,
        most: int,
    ) -> int:
        """Return the end of the first span of at most `most` batches that pads little.

        If no such span pads little, return the end of the span that pads least.
        """
        best = start + 1
        least = 2.0
        for end in range(start + 1, len(self) + 1):
            rendered = self.size * self.of(start, end)
            if rendered > most * self.size and end > start + 1:
                break
            share = 0.0
            if rendered:
                share = 1 - self.images(start, end) / rendered
            if share < least:
                best = end
                least = share
            if share <= _LITTLE:
                break
        return best


def _filled(
    batches: _Batches,
    start: int,
    idle: Sequence[int],
    longest: int,
) -> array[int]:
    """Return the ends of spans that give no worker more batches than necessary.

    The function finds the lowest level, in batches, to which all workers can be filled with all
    shards.
    """

    def up_to(level: int) -> array[int] | None:
        """Return the ends of spans with which no worker exceeds the level, or None if this is
        impossible."""
        free = sorted(idle)
        ends = array("q")
        at = start
        while at < len(batches):
            space = level - free[0]
            end = batches.furthest(at, space)
            taken = batches.of(at, end)
            if taken > space:
                return None
            if taken > longest:
                end = batches.padding_little(at, longest)
                taken = batches.of(at, end)
            heapq.heapreplace(free, free[0] + taken)
            ends.append(end)
            at = end
        return ends

    total = sum(idle) + batches.of(start, len(batches))
    equal = -(-total // len(idle))
    least = max(equal, *idle)
    low = least - 1
    high = least
    ends = up_to(least)
    while ends is None:
        low = high
        high = least + 2 * (high - least) + 1
        ends = up_to(high)
    while high - low > 1:
        level = (low + high) // 2
        lower = up_to(level)
        if lower is None:
            low = level
        else:
            high = level
            ends = lower
    return ends


def _score(
    batches: _Batches,
    start: int,
    idle: Sequence[int],
    ends: Sequence[int],
) -> tuple[int, int, int]:
    """Return the end of the last worker in batches, the number of batches, and minus the number of
    spans.

    A lower score is better.
    """
    free = sorted(idle)
    total = 0
    for first, last in pairwise([start, *ends]):
        count = batches.of(first, last)
        heapq.heapreplace(free, free[0] + count)
        total += count
    return max(free), total, -len(ends)

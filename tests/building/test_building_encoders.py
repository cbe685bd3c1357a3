"""However many threads encode, a shard has the same rows and the same bytes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from counterfoil.building import shard as shard_making
from counterfoil.building.shard import Made, ShardMaker
from counterfoil.generate import encode_image, encoding_threads
from counterfoil.generate.pictures import DrawnAhead
from counterfoil.models.clip import load_clip
from counterfoil.plan import Plan, Sample, make_plan
from counterfoil.recipe import load_recipe
from counterfoil.screen import Scorer, Thresholds
from counterfoil.store import Candidate
from tiny_builds import TINY


class Noise:
    """DrawnAhead of each sample's own noise; one of every batch is none."""

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        drawn: list[Any] = [
            np.random.default_rng(sample.seed).integers(0, 256, (32, 32, 3), dtype=np.uint8) for sample in samples
        ]
        return lambda: [None, *drawn[1:]]


def _made(plan: Plan, scorer: Scorer, encoders: int) -> list[Candidate]:
    entries = {
        shift.name: {cls.id: {"value": -1.0, "percentile": None, "n": 0, "source": "x"} for cls in plan.recipe.classes}
        for shift in plan.recipe.all_shifts()
    }
    renderer: Any = Noise()
    maker = ShardMaker(plan, renderer, scorer, Thresholds(entries, entries), encoders=encoders)
    try:
        made = [one for one in maker.make([plan.shards[0]]) if isinstance(one, Made)]
        return [candidate for one in made for candidate in one.candidates]
    finally:
        maker.close()


def test_threads_that_encode_change_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(load_recipe("wardrobe-mini", list(TINY)))
    scorer = Scorer.for_plan(load_clip("lab:clip"), plan)
    names: set[str] = set()

    def watched(*arguments: Any) -> bytes:
        names.add(threading.current_thread().name)
        return encode_image(*arguments)

    monkeypatch.setattr(shard_making, "encode_image", watched)
    alone = _made(plan, scorer, 1)
    assert {name.partition("_")[0] for name in names} == {"screen"}
    names.clear()
    together = _made(plan, scorer, 3)
    assert {name.partition("_")[0] for name in names} == {"encode"}
    assert [candidate.image is None for candidate in alone] == [True, False, False, False]
    assert together == alone


def test_a_cpu_worker_encodes_alone() -> None:
    assert encoding_threads("cpu") == 1

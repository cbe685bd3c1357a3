"""What each keep rule drops alone, against a loop over the rows of a dataset."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np

from counterfoil.dataset.reading import read_dataset
from counterfoil.reviewing.screen_errors import screened_images
from counterfoil.store.reading import read_shard
from counterfoil.store.rows import TableForm


def test_each_rule_alone_and_all_together_against_a_loop(dark: Path) -> None:
    dataset = read_dataset(dark, "receipts").finished()
    screened = {each.image.key: each for each in screened_images(dataset)}
    dropped = {"thresholds": 0, "visible": 0}
    form = TableForm.of(dataset.recipe)
    for row in chain.from_iterable(
        read_shard(dark, receipt, None, "candidates", form) for receipt in dataset.receipts
    ):
        each = screened.pop(row["key"], None)
        if row["reason"] in ("failed", "open"):
            assert each is None
            continue
        assert each is not None and each.shown
        assert each.image.kept == (row["reason"] == "accepted")
        expected = set()
        for name in ("object", "shift"):
            score, least = row[f"{name}_score"], row[f"{name}_threshold"]
            if score is not None and least is not None and score < least:
                expected.add("thresholds")
        if row["shift"] == "rain" and (row["contrast"] < 10 or row["black"] > np.float32(0.8)):
            expected.add("visible")
        assert ("all" in each.dropped_by) == (not each.image.kept) == bool(expected)
        assert each.dropped_by - {"all"} == expected
        for name in expected:
            dropped[name] += 1
    assert not screened
    assert min(dropped.values()) > 0

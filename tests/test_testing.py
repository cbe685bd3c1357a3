"""The checks of `counterfoil.testing`: registered objects pass them, and a broken promise is
named."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.engines import engine_for
from counterfoil.engines.local import LocalEngine
from counterfoil.evaluation.failure_folder import EXPORTS
from counterfoil.evaluation.tasks.classes.measures import MEASURES
from counterfoil.recipe import load_recipe
from counterfoil.recipe.keep.rule import Verdict
from counterfoil.recipe.keep.thresholds import ThresholdsRule
from counterfoil.recipe.keep.top import TopRule
from counterfoil.recipe.tasks import TASKS
from counterfoil.testing import (
    check_classifier,
    check_corruption,
    check_detector,
    check_engine,
    check_export,
    check_generator,
    check_keep_rule,
    check_measure,
    check_task,
)
from support.plugins import install

BROKEN = """
import numpy as np
from counterfoil.plugins import Corruption, Measure
def made(apply, draw=None):
    return Corruption("noise", "Breaks.", (.1, .2, .3, .4, .5), apply=apply, draw=draw)
RANDOM = made(lambda picture, share: picture + np.random.rand())
WIDER = made(lambda picture, share: np.concatenate([picture, picture], 1))
WEAKER = made(lambda picture, share: picture * share)
def by_processor(picture, share):
    from numpy._core._multiarray_umath import __cpu_features__
    return picture * share + sum(__cpu_features__.values()) / 255
PROCESSOR = made(by_processor)
def unweighted(images, weights):
    return np.full(len(weights), images.correct.mean())
UNWEIGHTED = Measure(None, "Unweighted", "percent", "None.", resampled=unweighted)

from counterfoil.plugins import ScoredTask, WholeImages

class Unmeasured(WholeImages):
    name = "broken"
    measured_by = f"{__name__}:HalfTask"

class HalfTask(ScoredTask):
    name = "broken"

    def scores(self, answers):
        return {}

UNMEASURED = Unmeasured()
"""


@pytest.mark.release(of="plugins")
@pytest.mark.parametrize(("name", "farther"), [("fog", True), ("contrast", True), ("frost", False)])
def test_corruptions_keep_their_promises(name: str, farther: bool) -> None:
    """Check one that draws, one that does not, and one that is published not to grow. What is
    promised of all, `test_corruptions.py` and `test_processors.py` check."""
    check_corruption(name, farther=farther)


@pytest.mark.parametrize(
    "name", [name for name in MEASURES.bundled if MEASURES.bundled[name].resampled]
)
def test_every_measure_of_resamples_keeps_its_promises(name: str) -> None:
    check_measure(name)


@pytest.mark.parametrize("name", ["lab:resnet10t"])
def test_a_classifier_of_the_lab_keeps_its_promises(name: str) -> None:
    check_classifier(name)


@pytest.mark.parametrize(
    ("rule", "whole"),
    [(TopRule(k=2, by="object"), True), (ThresholdsRule(), False)],
    ids=["top", "thresholds"],
)
def test_keep_rules_keep_their_promises(rule: Any, whole: bool) -> None:
    scores = [0.1, 0.5, None, 0.3]
    cell = [
        Verdict({"object": score, "shift": score}, {"object": 0.2, "shift": 0.2})
        for score in scores
    ]
    check_keep_rule(rule, cell)
    assert rule.whole_cell is whole


@pytest.mark.parametrize(
    ("group", "value", "check", "words"),
    [
        ("corruptions", "RANDOM", check_corruption, "the same seed gives other bytes"),
        ("corruptions", "WIDER", check_corruption, "the shape changes"),
        ("corruptions", "WEAKER", check_corruption, "a higher severity changes less"),
        (
            "corruptions",
            "PROCESSOR",
            partial(check_corruption, farther=False),
            "an older processor gives other bytes",
        ),
        ("measures", "UNWEIGHTED", check_measure, "weights give"),
        ("tasks", "UNMEASURED", check_task, "HalfTask is without answers, read_truth"),
    ],
)
def test_a_broken_promise_is_told(
    group: str,
    value: str,
    check: Callable[[str], None],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = f"broken_{value.lower()}"
    install(
        tmp_path,
        monkeypatch,
        package,
        {f"counterfoil.{group}": {"broken": f"{package}:{value}"}},
        BROKEN,
    )
    with pytest.raises(AssertionError, match=words):
        check("broken")


@pytest.mark.parametrize("name", TASKS.bundled)
def test_every_task_keeps_its_promises(name: str) -> None:
    check_task(name)


@pytest.mark.parametrize("name", EXPORTS.bundled)
def test_every_export_keeps_its_promises(name: str) -> None:
    check_export(name)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_engine_of_this_machine_keeps_its_promises(workers: int, tmp_path: Path) -> None:
    check_engine(engine_for(["none"], workers), tmp_path)


def test_an_engine_that_forgets_an_item_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = LocalEngine.run
    monkeypatch.setattr(LocalEngine, "run", lambda self, work, items: whole(self, work, items[1:]))
    with pytest.raises(AssertionError, match="are finished as"):
        check_engine(engine_for(["none"], 1), tmp_path)


def test_a_detector_of_the_lab_keeps_its_promises() -> None:
    check_detector("lab:rtdetr_boxes")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("wardrobe-corrupt", ["source.classes=null"]),
        ("wardrobe-mini", ["tokens=null", "generator.steps=1", "generator.batch_size=2"]),
        (
            "wardrobe-edited",
            ["tokens=null", "generator.steps=2", "generator.batch_size=2", "samples.candidates=1"],
        ),
    ],
)
def test_our_own_generators_keep_their_promises(name: str, changes: list[str]) -> None:
    check_generator(resolve_classes(load_recipe(name, changes)), images=2)


def test_a_rule_without_a_reason_of_its_own_is_told() -> None:
    class Strange(TopRule):
        def dropped(self, left: Any) -> list[str | None]:
            return ["strange" for _ in left]

    with pytest.raises(AssertionError, match="'strange'"):
        check_keep_rule(Strange(k=1), [Verdict({}, {})])

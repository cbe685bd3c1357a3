"""The registry: our own names first, then those of installed plugins, and errors that name the
package."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from counterfoil import registry
from counterfoil.corrupting.corrupt import corrupt, corruptions
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.engines import ENGINES
from counterfoil.errors import UserError
from counterfoil.evaluation.failure_folder import EXPORTS
from counterfoil.evaluation.tasks.classes.measures import MEASURES
from counterfoil.evaluation.trackers import TRACKERS
from counterfoil.mining.methods import METHODS
from counterfoil.models.classifiers import CLASSIFIER_KINDS, load_classifier
from counterfoil.models.detectors import DETECTOR_KINDS
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.kinds import KINDS
from counterfoil.recipe.tasks import TASKS
from support.plugins import install

REGISTRIES = (
    CORRUPTIONS, MEASURES, CLASSIFIER_KINDS, DETECTOR_KINDS, ENGINES, EXPORTS, KEEP_RULES, KINDS, METHODS, TASKS,
    TRACKERS,
)  # fmt: skip
INVERT = """
from counterfoil.corrupting.corruptions import Corruption
def invert(picture, share):
    return picture + share * (1 - 2 * picture)
INVERT = Corruption("digital", "Inverts.", (.2, .4, .6, .8, 1), apply=invert)
LAZY = Corruption("digital", "Does nothing.", (1, 2, 3, 4, 5))
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    registry._points.cache_clear()
    for name in ("one", "other"):
        sys.modules.pop(name, None)


def test_each_group_has_one_registry() -> None:
    assert {known.group for known in REGISTRIES} == set(registry.GROUPS)
    assert len({known.group for known in REGISTRIES}) == len(REGISTRIES)


@pytest.mark.parametrize("kinds", REGISTRIES, ids=[kinds.group for kinds in REGISTRIES])
def test_our_own_objects_are_what_a_plugin_must_be(kinds: registry.Registry) -> None:
    if kinds is CORRUPTIONS:  # ours have functions of their names
        return
    assert {name: kinds.problem(kinds[name]) for name in kinds.bundled} == dict.fromkeys(
        kinds.bundled
    )
    assert kinds.problem(3) is not None


def test_a_plugin_stands_after_our_own_and_is_imported_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path, monkeypatch, "one", {"counterfoil.corruptions": {"invert": "one:INVERT"}}, INVERT
    )
    assert list(CORRUPTIONS) == [*CORRUPTIONS.bundled, "invert"]
    assert "invert" in CORRUPTIONS
    assert "one" not in sys.modules
    assert CORRUPTIONS["invert"].says == "Inverts."
    assert str(registry.plugin_of(CORRUPTIONS.group, "invert")) == "one 1.2.3"
    assert registry.plugin_of(CORRUPTIONS.group, "fog") is None
    assert registry.plugin_of(CORRUPTIONS.group, "rain") is None
    assert "invert" in corruptions()
    pixels = np.arange(12 * 12 * 3).astype(np.uint8).reshape(12, 12, 3)
    assert (corrupt(pixels, "invert", 5) == 255 - pixels).all()


@pytest.mark.parametrize(
    ("entries", "name", "words"),
    [
        ({"fog": "one:INVERT"}, "fog", r"'fog' is registered by counterfoil and by one 1\.2\.3"),
        (
            {"rain": "one:NOTHING"},
            "rain",
            r"'rain' cannot be imported from one 1\.2\.3: AttributeError",
        ),
        (
            {"rain": "nowhere:RAIN"},
            "rain",
            r"'rain' cannot be imported from one 1\.2\.3: ModuleNotFoundError",
        ),
        (
            {"rain": "one:LAZY"},
            "rain",
            r"one 1\.2\.3 registers 'rain' as a corruption, but one:LAZY is without a func",
        ),
        ({"rain": "one:Corruption"}, "rain", r"but one:Corruption is no `Corruption`"),
    ],
)
def test_a_name_that_is_wrong_is_told_with_its_package(
    entries: dict[str, str], name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "one", {"counterfoil.corruptions": entries}, INVERT)
    with pytest.raises(UserError) as refused:
        CORRUPTIONS[name]
    assert re.search(words, refused.value.problems[0]), refused.value.problems


def test_a_name_of_two_packages_is_refused_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("one", "other"):
        entries = {"counterfoil.corruptions": {"invert": f"{package}:INVERT"}}
        install(tmp_path / package, monkeypatch, package, entries, INVERT)
    with pytest.raises(
        UserError, match=r"registered by (one 1\.2\.3 and by other|other 1\.2\.3 and by one)"
    ):
        CORRUPTIONS["invert"]


def test_an_unknown_prefix_lists_those_of_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        monkeypatch,
        "one",
        {"counterfoil.classifiers": {"toy": "one"}},
        "describe = load = print",
    )
    with pytest.raises(UserError) as refused:
        load_classifier("toi:model")
    assert "did you mean 'toy:'?" in refused.value.problems[0]
    assert "toy:" in (refused.value.hint or "")

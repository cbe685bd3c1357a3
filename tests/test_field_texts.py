"""Texts under fields are read from code, and name what is registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from counterfoil import field_texts
from counterfoil.engines import ENGINES
from counterfoil.evaluation.failure_folder import EXPORTS
from counterfoil.evaluation.options import EvaluateCommand
from counterfoil.evaluation.trackers import TRACKERS
from counterfoil.field_texts import key_text, paragraph_lines, texts_of
from counterfoil.mining.methods import METHODS
from counterfoil.models.classifiers import CLASSIFIER_KINDS
from counterfoil.models.detectors import DETECTOR_KINDS
from counterfoil.recipe.schema import Recipe
from counterfoil.registry import Registry
from support.plugins import install, ran

NAMED = [CLASSIFIER_KINDS, DETECTOR_KINDS, ENGINES, EXPORTS, METHODS, TRACKERS]


@pytest.mark.parametrize("known", NAMED, ids=[known.group for known in NAMED])
def test_the_names_that_are_read_are_those_of_the_registry(known: Registry) -> None:
    group = known.group.removeprefix("counterfoil.")
    assert field_texts._own_names(group) == [*known.bundled]


def test_help_names_what_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ", ".join(TRACKERS) in " ".join(texts_of(EvaluateCommand)["report_to"].split())
    assert "lab:, local-dir:, " in key_text("evaluate.models") and " :" not in key_text(
        "evaluate.models"
    )
    entries = {"counterfoil.trackers": {"to_file": "no_module:track"}}
    install(tmp_path / "installed", monkeypatch, "tracked", entries)
    shown = ran(tmp_path, tmp_path / "installed", "evaluate", "--help-all", COLUMNS="5000").stdout
    assert f"{', '.join(TRACKERS.bundled)}, to_file. Their" in shown


def test_a_key_has_the_text_of_its_field() -> None:
    for key in ("samples.limit", "mine.on"):
        section, _, name = key.partition(".")
        annotation: Any = Recipe.model_fields[section].annotation
        sections = (annotation, *getattr(annotation, "__args__", ()))
        texts = [texts_of(each)[name] for each in sections if hasattr(each, "model_fields")]
        assert texts == [key_text(key)]
    with pytest.raises(KeyError):
        key_text("mine.nothing")


def test_a_paragraph_and_an_entry_of_a_list_is_one_line() -> None:
    text = "A text\nof two lines.\n\nA list:\n- of one\n  line\n- of two."
    assert paragraph_lines(text) == "A text of two lines.\n\nA list:\n- of one line\n- of two."

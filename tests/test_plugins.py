"""A keep rule, an engine, a detector, an export and a tracker of installed packages, from a recipe
to a report."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from counterfoil import registry
from counterfoil.building.build_dataset import build
from counterfoil.engines import EngineChoice, engine_for
from counterfoil.evaluation import evaluate
from counterfoil.store.reading import read_rows
from counterfoil.testing import check_detector, check_engine, check_export
from support.plugins import install, ran
from tiny_builds import TINY

RULE = """
from typing import ClassVar
from pydantic import Field
from counterfoil.plugins import KeepRule

class EveryNth(KeepRule):
    \"\"\"Keep every n-th of a cell.\"\"\"
    whole_cell: ClassVar[bool] = True
    reasons: ClassVar[tuple[str, ...]] = ("between",)
    n: int = Field(ge=1, description="How many make one.")

    def scores(self):
        return ()

    def dropped(self, left):
        return [None if index % self.n == 0 else "between" for index in range(len(left))]
"""
SOURCE = """
import os
import torch
from pathlib import Path
from typing import ClassVar
from counterfoil.engines.local import LocalEngine
from counterfoil.plugins import Detector

class Alone(LocalEngine):
    \"\"\"Work in this process, whatever number of workers is asked for.\"\"\"
    @classmethod
    def of(cls, devices, workers, choice):
        return cls(1, tuple(devices))

class WholeImage(Detector):
    complete: ClassVar[bool] = True

    def __call__(self, images):
        sizes = [image.size for image in images]
        return [
            {
                "boxes": torch.tensor([[0.0, 0.0, *map(float, size)]]),
                "scores": torch.tensor([0.5]),
                "labels": torch.tensor([3]),
            }
            for size in sizes
        ]

def load_detector(name, device):
    names = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
    return WholeImage(
        name=name, architecture="none", label_names=names, param_count=0, sha256="0" * 64, input_key="whole"
    )

def list_export(failures):
    return {"paths.txt": "".join(image.path + "\\n" for image in failures.images)}

def track(run):
    Path(os.environ["TRACKED"]).write_text("\\n".join(sorted(run.metrics)))
"""
PACKAGE = "four_plugins"
ENTRIES = {
    "counterfoil.engines": {"alone": f"{PACKAGE}:Alone"},
    "counterfoil.detectors": {"whole": f"{PACKAGE}:load_detector"},
    "counterfoil.exports": {"list": f"{PACKAGE}:list_export"},
    "counterfoil.trackers": {"to_file": f"{PACKAGE}:track"},
}


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(tmp_path / "installed", monkeypatch, PACKAGE, ENTRIES, SOURCE)
    yield
    registry._points.cache_clear()
    sys.modules.pop(PACKAGE, None)


def test_a_keep_rule_and_an_engine_build_and_the_rest_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Commands are processes of their own: keep rules become keys of recipes when the schema is
    # imported. So a rule is in a module that imports nothing else of the package.
    entry = {"counterfoil.keep_rules": {"every_nth": "every_nth:EveryNth"}}
    install(tmp_path / "installed", monkeypatch, "every_nth", entry, RULE)
    rule = "screen={keep: [thresholds, {every_nth: {n: 2}}], keep_rejected: true}"
    changes = [
        word for change in (*TINY, rule, "samples.candidates=4") for word in ("--set", change)
    ]
    installed = tmp_path / "installed"
    build = (
        "build",
        "wardrobe-mini",
        "--out",
        "set",
        "--device",
        "cpu",
        "--engine",
        "alone",
        "--workers",
        "2",
    )
    built = ran(tmp_path, installed, *build, *changes)
    assert built.returncode == 0, built.stderr
    reasons = [row["reason"] for row in read_rows(tmp_path / "set", ["reason"], what="candidates")]
    assert {reason: reasons.count(reason) for reason in reasons} == {"accepted": 24, "between": 24}
    lock = json.loads((tmp_path / "set" / "lock.json").read_text())
    assert lock["inputs"]["plugins"] == {"keep rule every_nth": "every_nth"}
    assert lock["stack"]["versions"]["every_nth"] == "1.2.3"
    assert "every_nth" in (tmp_path / "set" / "README.md").read_text()
    verified = ran(tmp_path, installed, "verify", "set")
    assert verified.returncode == 0, verified.stdout

    options = (
        "--models",
        "lab:resnet10t",
        "--report-to",
        "to_file",
        "--export-failures",
        "failures",
        "--device",
        "cpu",
    )
    evaluated = ran(
        tmp_path, installed, "evaluate", "set", *options, TRACKED=str(tmp_path / "tracked.txt")
    )
    assert evaluated.returncode == 0, evaluated.stderr
    assert "resnet10t/base/accuracy" in (tmp_path / "tracked.txt").read_text().splitlines()
    folder = tmp_path / "failures"
    paths = (folder / "paths.txt").read_text().splitlines()
    assert sorted(paths) == sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("images/*/*")
    )


def test_a_detector_is_evaluated(tmp_path: Path) -> None:
    changes = [
        "samples={candidates: 4}",
        "prompts.shifts={fog: {corruption: fog, severity: 3}}",
        "evaluate.models=[]",
    ]
    build("wardrobe-boxes", tmp_path / "dataset", overrides=changes, device="cpu", workers=1)
    evaluation = evaluate(tmp_path / "dataset", "whole:any", device="cpu")
    assert evaluation.results.models[0].name == "whole:any"
    assert evaluation.results.lead == "AP"
    assert "whole:any" in (evaluation.files["report"]).read_text()


def test_what_it_registers_keeps_its_promises(tmp_path: Path) -> None:
    check_detector("whole:any")
    check_export("list")
    check_engine(engine_for(["none"], 2, EngineChoice("alone")), tmp_path)

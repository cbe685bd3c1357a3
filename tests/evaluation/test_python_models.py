"""Models of a person's own code, by name: what they can be, and that names of strangers are not
imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from colour_kinds import colour_function
from colour_world import NAMES, build_colours, save_folders
from counterfoil.building.build_dataset import build
from counterfoil.cli.main import app
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.evaluation.gate import FAILED, UNDECIDED, GateFailure, GateLine, GateResult, Judged
from counterfoil.progress import Stage, listening
from counterfoil.report.reference import answer_warnings
from counterfoil.starting.init_recipe import init
from results_examples import top1
from support.boxes import coco_folder
from support.measured import measured
from support.refusals import refuses

CODE = """
import sys
from pathlib import Path

import numpy as np
import torch

from colour_kinds import ColourModule, as_tensor, colour_function

Path("imported").write_text("yes")
module = ColourModule()
number = 3

def pair():
    return ColourModule(), as_tensor

def bare():
    return ColourModule()

def made(order=(1, 2, 0)):
    model = ColourModule(order)
    model.label_names = ["green", "blue", "red"]
    return model, as_tensor

class Own(ColourModule):
    pass

def predict(batch):
    return colour_function(batch)

def wrong():
    return ColourModule((1, 2, 0)), as_tensor

def by_chance(batch):
    return colour_function(batch) + np.random.normal(size=(len(batch), 3))

def fails():
    raise ValueError("no weights")

def ends():
    sys.exit(0)

def nothing():
    return None
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a working folder with `CODE` as `models.of_colours` and images of three colours."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "of_colours.py").write_text(CODE)
    save_folders(tmp_path / "images", NAMES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.split(".")[0] == "models"]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "models"]:
        del sys.modules[name]


def scored(name: str, **options: Any) -> Any:
    return measured("images", f"python:models.of_colours:{name}", **options)


def test_a_model_that_answers_by_chance_has_a_warning(folder: Path) -> None:
    (warning,) = answer_warnings(scored("by_chance").results)
    assert "by_chance scores the same image differently" in warning and "eval()" in warning
    assert not answer_warnings(scored("predict").results)


class TestImported:
    @pytest.mark.parametrize("name", ["pair", "predict"])
    def test_a_factory_or_a_function_of_images_is_a_model(self, folder: Path, name: str) -> None:
        result = scored(name, class_order=NAMES)
        assert top1(result).value == 1.0
        assert [model.name for model in result.models] == [f"python:models.of_colours:{name}"]

    def test_a_factory_s_model_has_its_names(self, folder: Path) -> None:
        result = scored("made")
        assert top1(result).value == 1.0 and result.models[0].matched == "by name: 3 of 3 classes"

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("bare", "torch module without a transform"),
            ("module", "torch module without a transform"),
            ("Own", "torch module without a transform"),
            ("number", "has a int, and no function, number"),
            ("predcit", "has no predcit; did you mean 'predict'"),
            ("fails", r"fails\(\) failed: no weights"),
            ("ends", r"ends\(\) failed: it called sys.exit\(0\)"),
            ("nothing", "is NoneType, which cannot be called"),
        ],
    )
    def test_what_is_no_model_is_refused(self, folder: Path, name: str, says: str) -> None:
        with pytest.raises(CounterfoilError, match=says):
            scored(name)

    @pytest.mark.parametrize(
        ("name", "says"),
        [
            (
                "python:models.of_colors:pair",
                "models.of_colors cannot be imported: No module named",
            ),
            ("python:pair", "expected python:package.module:function"),
            ("python:models/of_colours.py:pair", "expected python:package.module:function"),
            ("python:models.of_colours:pair()", "expected python:package.module:function"),
        ],
    )
    def test_what_cannot_be_imported_is_refused(self, folder: Path, name: str, says: str) -> None:
        with pytest.raises(UserError, match=says):
            measured("images", name)

    def test_a_list_and_a_mapping_may_name_one(self, folder: Path) -> None:
        Path("models.txt").write_text("python:models.of_colours:made  # ours\n")
        assert top1(measured("images", "models.txt")).value == 1.0
        given = {"mine": "python:models.of_colours:made"}
        assert [model.name for model in measured("images", given).models] == ["mine"]

    def test_the_command_takes_one_and_a_gate_stops_it(self, folder: Path) -> None:
        images = save_folders(folder / "many", NAMES, 12)
        (folder / "gate.yaml").write_text("- accuracy(all) >= 70\n")
        for name, code in (("made", 0), ("wrong", FAILED)):
            model = f"python:models.of_colours:{name}"
            words = [
                "evaluate",
                str(images),
                "--device",
                "cpu",
                "--out",
                "out",
                "--gate",
                "gate.yaml",
            ]
            ran = CliRunner().invoke(app, [*words, "--models", model])
            assert ran.exit_code == code, ran.output
            assert (
                "Warning: The outputs of python:models.of_colours:wrong look" in ran.output
            ) == bool(code)


class TestOthersNames:
    def test_no_name_of_a_dataset_s_recipe_is_imported(self, folder: Path) -> None:
        dataset = build_colours(
            folder / "dataset", "evaluate.models=['python:models.of_colours:pair']"
        )
        with pytest.raises(UserError, match="only if you name it yourself"):
            measured(dataset)
        assert not (folder / "imported").exists()

    def test_no_name_of_a_gate_is_imported(self, folder: Path) -> None:
        dataset = build_colours(folder / "dataset")
        line = "worse_than(python:models.of_colours:pair, base) <= 5"
        with pytest.raises(UserError, match="only if you name it yourself"):
            measured(dataset, "lab:resnet10t", gate=[line])
        assert not (folder / "imported").exists()

    def test_no_name_of_a_detector_is_imported_that_a_recipe_or_a_gate_brings(
        self, folder: Path
    ) -> None:
        coco_folder(folder / "coco")
        init(folder / "coco", folder / "recipe.yaml", device="cpu")
        changes = [
            "samples.candidates=2",
            "prompts.shifts={}",
            "prompts.shifts={fog: {corruption: fog, severity: 3}}",
        ]
        named = "evaluate.models=['python:models.of_colours:predict']"
        build(
            folder / "recipe.yaml",
            folder / "boxes",
            overrides=[*changes, named],
            device="cpu",
            workers=1,
        )
        with pytest.raises(UserError, match="only if you name it yourself"):
            measured(folder / "boxes")
        line = "worse_than(python:models.of_colours:predict, base) <= 5"
        with pytest.raises(UserError, match="only if you name it yourself"):
            measured(folder / "boxes", "transformers:./none", gate=line)
        assert not (folder / "imported").exists()


class TestGates:
    def test_a_named_model_that_a_line_compares_with_is_not_judged(self, folder: Path) -> None:
        dataset = build_colours(folder / "dataset")
        new = "python:models.of_colours:made"
        line = "worse_than(python:models.of_colours:wrong, base) <= 5"
        names = [new, "python:models.of_colours:wrong"]
        result = measured(dataset, names, gate=line)
        assert result.gate is not None and result.gate.models == (new,)

    def test_a_gate_raises_in_python_what_ends_the_command(self, folder: Path) -> None:
        images = save_folders(folder / "many", NAMES, 12)
        for limit, allowed in ((95, False), (95, True), (0, False)):
            lines = [f"accuracy(all) >= {limit}"]
            model = "python:models.of_colours:wrong"
            result = measured(images, model, gate=lines, allow_undecided=allowed)
            assert result.gate is not None and result.gate.exit_code == (FAILED if limit else 0)
            if not limit:
                result.gate.raise_if_failed()
                continue
            with pytest.raises(
                GateFailure, match=r"accuracy\(all\) >= 95 for python:models.* on all: fail"
            ) as raised:
                result.gate.raise_if_failed()
            assert raised.value.exit_code == FAILED

    def test_what_is_undecided_raises_unless_it_is_allowed(self) -> None:
        line = GateLine("drop(dusk) <= 5", "drop", "dusk", 0.05)
        judged = (Judged(line, "mine", "dusk", "undecided", reason="nobody checked its labels"),)
        GateResult("colours", ("mine",), judged, allow_undecided=True).raise_if_failed()
        with refuses(
            "gate-failed", None, "undecided, nobody checked its labels", kind=GateFailure
        ) as raised:
            GateResult("colours", ("mine",), judged).raise_if_failed()
        assert raised.value.exit_code == UNDECIDED


class TestVersion:
    @pytest.fixture
    def batch_sizes(self) -> list[int]:
        return []

    def score(
        self, batch_sizes: list[int], version: str | dict[str, str] | None, turn: int = 0
    ) -> Any:
        def model(batch: np.ndarray) -> np.ndarray:
            batch_sizes.append(len(batch))
            return np.roll(colour_function(batch), turn, axis=1)

        models = {"mine": model, "other": lambda batch: colour_function(1 - batch)}
        return measured("images", models, version=version, batch_size=2, class_order=NAMES)

    def test_answers_are_kept_under_it_alone(self, folder: Path, batch_sizes: list[int]) -> None:
        first = self.score(batch_sizes, version="1")
        assert sum(batch_sizes) > 1, "of more than the image that it is tried on"
        for version in ("1", {"mine": "1"}):
            del batch_sizes[:]
            again = self.score(batch_sizes, version, turn=1)  # the present code does not matter
            assert batch_sizes == [1]
            assert [again.score(model, "all") for model in ("mine", "other")] == [
                first.score(model, "all") for model in ("mine", "other")
            ]
        for turn, version in enumerate(("2", None, {"other": "1"})):
            del batch_sizes[:]
            self.score(batch_sizes, version, turn)
            assert sum(batch_sizes) > 1

    def test_a_run_that_ends_early_resumes(
        self, folder: Path, batch_sizes: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("counterfoil.prediction.answer_cache.PART_ROWS", 2)
        with pytest.raises(KeyboardInterrupt), listening(stop_at(2)):
            self.score(batch_sizes, version="ended")
        del batch_sizes[:]
        self.score(batch_sizes, version="ended")
        resumed = sum(batch_sizes)
        self.score(batch_sizes, version="whole")
        assert resumed < sum(batch_sizes) - resumed

    def test_what_is_none_is_refused(self, folder: Path, batch_sizes: list[int]) -> None:
        with refuses("unlisted-model", "version", "'mime'"):
            self.score(batch_sizes, version={"mime": "1"})
        with refuses("unusable-model", "version of model 'mine'", "found ' ', expected a text"):
            self.score(batch_sizes, version=" ")


def stop_at(images: int) -> Callable[[Stage], None]:
    """Return a listener that interrupts the answers of a model after so many images."""

    def heard(stage: Stage) -> None:
        if "mine" in stage.name and stage.done >= images:
            raise KeyboardInterrupt

    return heard

"""`counterfoil evaluate` takes several models after one flag and prints drops and paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colour_world import SIZE, save_colour_model
from counterfoil.cli.main import app
from counterfoil.cli.options import spread
from counterfoil.errors import UserError


@pytest.mark.parametrize(
    "given",
    [
        "d --models a b c --json",
        "--models a --models b --models c --json d",
        "-m a b -m c --json d",
        "d --models=a b c --json",
        "--json --models a b c -- d",
    ],
)
def test_models_follow_one_flag_or_several(given: str) -> None:
    words = spread(given.split(), {"--models": "--models", "-m": "--models"})
    models = [words[place + 1] for place, word in enumerate(words) if word in ("--models", "-m")]
    rest = [word for place, word in enumerate(words) if word[:2] != "--" and words[place - 1] != "--models"]
    assert models == ["a", "b", "c"]
    assert rest == ["d"]


def test_a_run_prints_the_drops_and_where_the_report_is(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    names = [models["sharp"], models["no_red"]]
    result = CliRunner().invoke(app, ["evaluate", str(dataset), "--models", *names, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "33.3" in result.stdout and "swap" in result.stdout
    assert str(tmp_path / "report.html") in result.stdout


def test_a_folder_that_is_made_for_far_larger_images_gets_a_hint(
    dataset: Path, models: dict[str, str], tmp_path: Path
) -> None:
    large = f"local-dir:{save_colour_model(tmp_path / 'large', size=4 * SIZE)}"
    words = ["evaluate", str(dataset), "--out", str(tmp_path / "out"), "--models", models["sharp"], large]
    told = CliRunner().invoke(app, words).stdout
    hints = [line for line in told.splitlines() if "enlarged" in line]
    assert len(hints) == 1 and hints[0].startswith("large gets these images enlarged 4 times")
    assert f"set input_size to [3, {SIZE}, {SIZE}]" in hints[0]
    assert "large gets these images" in (tmp_path / "out" / "report.html").read_text()


def test_json_is_all_that_stdout_holds(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    arguments = ["evaluate", str(dataset), "--out", str(tmp_path), "--json", "--models", models["sharp"]]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["files"]["report"] == str(tmp_path / "report.html")
    swap = next(one for one in document["rows"] if (one["measure"], one["group"]) == ("drop", "swap"))
    assert swap["value"] == pytest.approx(1 / 3, abs=1e-6)


def test_a_list_of_models_is_a_file_beside_names(dataset: Path, models: dict[str, str], tmp_path: Path) -> None:
    listed = tmp_path / "models.txt"
    listed.write_text(f"# two\n{models['sharp']}\n{models['no_red']}  # blind to red\n")
    words = ["--models", str(listed), models["no_blue"], "--json", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["evaluate", str(dataset), *words])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [one["name"] for one in document["models"]] == [models[name] for name in ("sharp", "no_red", "no_blue")]
    assert document["files"]["classes"] == str(tmp_path / "out" / "classes.csv")
    assert not any("class_id" in one for one in document["rows"])


def test_a_mistake_reaches_the_caller_as_an_error_for_people(dataset: Path) -> None:
    result = CliRunner().invoke(app, ["evaluate", str(dataset), "--models", "resnet81"])
    assert isinstance(result.exception, UserError)
    missing = CliRunner().invoke(app, ["evaluate", str(dataset), "--models"])
    assert missing.exit_code == 2

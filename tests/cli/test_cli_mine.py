"""`mine` as a person types it: what its help says, and which options do not go together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil.cli.main import app, main
from counterfoil.errors import UserError

TRY = ("--try", "in the snow", "--class", "sandal")


def refused(*words: str) -> UserError:
    done = CliRunner().invoke(app, ["mine", *words])
    assert isinstance(done.exception, UserError), done.output
    return done.exception


def test_help_tells_every_option_and_a_working_example() -> None:
    text = re.sub(r"[\s│]+", " ", CliRunner().invoke(app, ["mine", "--help"], env={"COLUMNS": "200"}).output)
    for option in (
        "--out", "--method", "--target", "--on", "--confirm", "--set", "--device", "--workers", "--pool", "--pool-rows",
        "--pool-labels", "--weights", "--try", "--class", "--again", "--json",
    ):  # fmt: skip
        assert option in text
    assert "counterfoil mine wardrobe-star --target lab:resnet10t --on audit --out mined" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["wardrobe-bugs"], ["--out is missing"]),
        (["mined", "--try", "in the snow"], ["--try and --class go together: what is to be seen, and of which class"]),
        (["mined", "--class", "sandal"], ["--try and --class go together: what is to be seen, and of which class"]),
        (["mined", "--again", "wardrobe-mini", *TRY], ["--try and --class do not go with --again"]),
        (
            ["mined", *TRY, "--out", "x", "--target", "lab:resnet10t", "--set", "name=x"],
            ["--out does not go with --try", "--target does not go with --try", "--set does not go with --try"],
        ),
        (
            ["mined", *TRY, "--pool-rows", "3", "--pool-labels", "label", "--weights"],
            [f"{option} does not go with --try" for option in ("--pool-rows", "--pool-labels", "--weights")],
        ),
        (
            ["mined", "--again", "wardrobe-mini", "--method", "bugs", "--confirm", "rows", "--pool", "x"],
            [f"{option} does not go with --again" for option in ("--method", "--confirm", "--pool")],
        ),
    ],
)
def test_options_that_do_not_go_together_are_told_at_once(words: Sequence[str], told: Sequence[str]) -> None:
    assert list(refused(*words).problems) == list(told)


@pytest.mark.parametrize("more", [TRY, ("--again", "wardrobe-mini", "--set", "generator.steps=2")])
def test_a_folder_without_a_search_is_refused_and_not_made(more: Sequence[str], tmp_path: Path) -> None:
    assert "holds no search for bugs" in str(refused(str(tmp_path / "mined"), *more))
    assert not (tmp_path / "mined").exists()


def test_a_refusal_is_a_message_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["counterfoil", "mine", str(tmp_path / "mined"), *TRY])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert "holds no search for bugs" in told and "Traceback" not in told

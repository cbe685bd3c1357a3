"""`recipes`, `show`, `check` and `mine` as a person and as a script use them, in real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

import counterfoil.cli
import warm
from counterfoil.cli.main import app
from counterfoil.errors import UserError
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import bundled_recipes, load_recipe, load_recipe_text
from support.refusals import succeed

TRIES = ", which tests descriptions with what an earlier run used"
AGAIN = ", which tests the findings of an earlier run once more"
TRY = ("--try", "in the snow", "--class", "sandal")


def run(
    *words: str, code: int = 0, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "counterfoil.cli.main", *words]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100"} | env
    done = warm.run(line, environment, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done


def commands() -> Any:
    return typer.main.get_command(app)


def test_recipes_lists_the_bundled_ones_with_their_descriptions() -> None:
    text = succeed("recipes").stdout
    listed = json.loads(succeed("recipes", "--json").stdout)
    assert [entry["name"] for entry in listed] == list(bundled_recipes())
    for entry in listed:
        assert entry["name"] in text
        assert entry["description"] == load_recipe(entry["name"]).description


def test_show_prints_a_recipe_that_needs_no_other(tmp_path: Path) -> None:
    overrides = ("--set", "samples.candidates=5", "--set", "name=mine")
    text = succeed("show", "wardrobe-mini", *overrides).stdout
    recipe = load_recipe_text(text)
    assert recipe == load_recipe("wardrobe-mini", ["samples.candidates=5", "name=mine"])
    assert "extends" not in yaml.safe_load(text)
    as_json = json.loads(succeed("show", "wardrobe-mini", *overrides, "--json").stdout)
    (tmp_path / "again.yaml").write_text(json.dumps(as_json))
    assert load_recipe(tmp_path / "again.yaml") == recipe


def test_check_prints_cells_samples_shards_size_time_and_a_line_a_shift() -> None:
    text = run("check", "wardrobe-star", "--rate", "10").stdout
    assert "12,000" in text and "20.0 minutes" in text and "240" in text
    lines = text.splitlines()
    for shift in load_recipe("wardrobe-star").all_shifts():
        assert sum(line.split()[:1] == [shift.name] for line in lines) == 1


def test_check_as_json_holds_the_plan_and_the_estimate() -> None:
    plan = json.loads(
        succeed(
            "check", "wardrobe-mini", "--set", "samples.candidates=40", "--json", "--rate", "2"
        ).stdout
    )
    assert (plan["cells"], plan["samples"], plan["shards"]) == (60, 2400, 30)
    assert plan["seconds"] == 1200
    assert sum(shift["samples"] for shift in plan["shifts"]) == plan["samples"]
    assert set(plan["hashes"]) == {"plan", "screen"}


def test_check_refuses_a_wrong_recipe_with_exit_2_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(
        "extends: wardrobe-mini\nnme: x\nsamples: {candidates: -1}\n"
    )
    done = run("check", "./bad.yaml", "--json", code=2, cwd=tmp_path)
    assert done.stdout == ""
    assert "error: 2 problems" in done.stderr
    assert "nme (bad.yaml:2): unknown key; did you mean 'name'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("check", "wardrobe-mimi"),
        ("check", "wardrobe-mini", "--rate", "0"),
        ("check",),
        ("chek", "wardrobe-mini"),
    ],
)
def test_a_users_mistake_exits_2_with_a_message_on_stderr(words: tuple[str, ...]) -> None:
    done = run(*words, code=2)
    assert done.stdout == "" and done.stderr.strip()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", commands().commands)
def test_every_command_has_help_with_an_example_and_json(command: str) -> None:
    text = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "80"}).output
    assert max(map(len, text.splitlines())) <= 80
    assert "--json" in text
    short = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "80"}).output
    assert (
        len(short.splitlines()) <= 45
        and "--json" not in short.partition("Example")[0]
        and "--help-all" in short
    )
    top = text.partition("─ Options ─")[2].partition("╰")[0]
    flags = set(re.findall(r"^│ (--[\w-]+)", top, re.MULTILINE)) - {"--help", "--help-all"}
    assert len(flags) <= 5, flags
    (example,) = re.findall(r"Example: counterfoil (.*)", " ".join(text.split()))
    name, *words = shlex.split(example)
    assert name == command
    with commands().get_command(None, name).make_context(name, words):
        pass  # what no option takes would have been refused


def test_the_help_of_mend_shows_what_its_how_to_passes() -> None:
    """Show each option that a flow of the documentation passes, without --help-all."""
    text = CliRunner().invoke(app, ["mend", "--help"], env={"COLUMNS": "80"}).output
    page = Path(__file__).parents[2].joinpath("docs/how-to/mend.md").read_text(encoding="utf-8")
    passed = re.search(r"^\$ counterfoil mend .*--audited.*$", page, re.MULTILINE)
    assert passed and all(f"│ {flag} " in text for flag in re.findall(r"--[\w-]+", passed[0]))


def test_next_lines_are_written_in_one_place_as_a_shell_takes_them() -> None:
    folder = Path(counterfoil.cli.__file__).parent
    assert [file.name for file in folder.glob("*.py") if "Next:" in file.read_text()] == [
        "terminal.py"
    ]


HEAVY = (
    "torch datasets pandas matplotlib diffusers transformers open_clip timm sklearn scipy"
    " numpy"
    " pyarrow PIL"
)


def imports_none(heavy: str, *commands: tuple[str, ...]) -> None:
    """Run commands in a process of their own, and assert that they end well without these
    modules."""
    code = (
        "import sys\nfrom counterfoil.cli.main import main\n"
        f"for words in {commands!r}:\n"
        "    sys.argv = ['counterfoil', *words]\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        assert not end.code, end.code\n"
        f"heavy = sorted(set({heavy!r}.split()) & set(sys.modules))\n"
        "print(heavy, file=sys.stderr)\nsys.exit(bool(heavy))\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nothing_heavy_is_imported() -> None:
    imports_none(
        HEAVY, ("--help",), ("recipes",), ("show", "wardrobe-mini"), ("check", "wardrobe-star")
    )


def test_corruptions_and_predictions_need_no_model_library(tmp_path: Path) -> None:
    heavy = "torch torchvision diffusers transformers timm open_clip"
    changes = ["samples.candidates=1", "source.classes=[{id: '05', name: sandal, source_label: 5}]"]
    plan = make_plan(load_recipe("wardrobe-corrupt", changes))
    samples = [sample for cell in plan.cells() for sample in plan.samples(cell)]
    rows = [f"{sample.key},{sample.class_id}" for sample in samples]
    answers = tmp_path / "answers.csv"
    answers.write_text("\n".join(["key,prediction", *rows]))
    built = str(tmp_path / "built")
    sets = [word for change in changes for word in ("--set", change)]
    imports_none(
        heavy,
        ("build", "wardrobe-corrupt", *sets, "--workers", "1", "--out", built),
        ("evaluate", built, "--models", f"predictions:{answers}", "--out", str(tmp_path / "out")),
    )


def test_version() -> None:
    from counterfoil import __version__

    assert run("--version").stdout == f"counterfoil {__version__}\n"


@pytest.mark.skipif(not hasattr(signal, "SIGINT"), reason="needs signals")
def test_ctrl_c_exits_130_with_a_calm_message() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "counterfoil.cli.main", "show", "imagenet-star"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=0,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)  # it prints more than a pipe takes, and waits amid it
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Interrupted" in stderr and "Traceback" not in stderr


def refused(*words: str) -> UserError:
    done = CliRunner().invoke(app, ["mine", *words])
    assert isinstance(done.exception, UserError), done.output
    return done.exception


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["wardrobe-bugs"], ["--out is missing"]),
        (
            ["mined", "--try", "in the snow"],
            ["--class is missing"],
        ),
        (
            ["mined", "--class", "sandal"],
            ["--try is missing"],
        ),
        (
            ["mined", "--again", "wardrobe-mini", *TRY],
            [f"{option} does not go with --again{AGAIN}" for option in ("--try", "--class")],
        ),
        (
            ["mined", *TRY, "--out", "x", "--target", "lab:resnet10t", "--set", "name=x"],
            [
                f"{option} does not go with --try{TRIES}"
                for option in ("--out", "--target", "--set")
            ],
        ),
        (
            ["mined", *TRY, "--pool-rows", "3", "--pool-labels", "label", "--weights"],
            [
                f"{option} does not go with --try{TRIES}"
                for option in ("--pool-rows", "--pool-labels", "--weights")
            ],
        ),
        (
            [
                "mined",
                "--again",
                "wardrobe-mini",
                "--method",
                "bugs",
                "--confirm",
                "rows",
                "--pool",
                "x",
            ],
            [
                f"{option} does not go with --again{AGAIN}"
                for option in ("--method", "--confirm", "--pool")
            ],
        ),
    ],
)
def test_options_that_do_not_go_together_are_reported_at_once(
    words: Sequence[str], message: Sequence[str]
) -> None:
    assert list(refused(*words).problems) == list(message)


@pytest.mark.parametrize("more", [TRY, ("--again", "wardrobe-mini", "--set", "generator.steps=2")])
def test_a_folder_without_a_search_is_refused_and_not_made(
    more: Sequence[str], tmp_path: Path
) -> None:
    assert "holds no search for bugs" in str(refused(str(tmp_path / "mined"), *more))
    assert not (tmp_path / "mined").exists()

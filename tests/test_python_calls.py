"""A program gets from the functions what a person gets from the commands: one item for many, and
every warning."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import counterfoil
from colour_kinds import colour_function
from colour_world import NAMES, build_colours, save_folders, save_trained
from counterfoil.cli.main import app
from counterfoil.errors import CounterfoilWarning, UserError
from counterfoil.options import takes

ROOT = Path(__file__).parents[1]
FUNCTIONS = sorted(set(counterfoil.__all__) - {"__version__", "Corrupt"})


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_single_item_is_a_list_of_one_in_every_function(name: str) -> None:
    """Record what each function would be called with; a parameter that also takes a bare text
    decides by itself."""
    function = getattr(counterfoil, name)
    signature = inspect.signature(function)
    several = {
        parameter.name
        for parameter in signature.parameters.values()
        if re.match(r"Sequence\[|tuple\[", str(parameter.annotation))
    }
    for parameter in signature.parameters.values():
        annotation = str(parameter.annotation)
        if parameter.name not in several and re.search(
            r"Sequence\[|Iterable\[|list\[|tuple\[", annotation
        ):
            assert "str |" in annotation or annotation.startswith("str\n"), (
                f"{name}: {parameter.name}"
            )
    if several:
        recorded: Any = takes(function.declared)(lambda given: given)
        required = {
            parameter.name
            for parameter in signature.parameters.values()
            if parameter.default is parameter.empty
        }
        given = recorded(**dict.fromkeys(several | required, "one"))
        assert all(getattr(given, parameter) == ("one",) for parameter in several)
        assert all(getattr(given, parameter) == "one" for parameter in required - several)


def refusal(work: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as refused:
        work()
    return str(refused.value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda text, out: counterfoil.load_recipe("wardrobe-mini", text), "samples.nothing=3"),
        (
            lambda text, out: counterfoil.build("wardrobe-mini", out, overrides=text),
            "samples.nothing=3",
        ),
        (
            lambda text, out: counterfoil.mend("lab:resnet10t", "wardrobe-mini", text, out),
            "./photos-learn:nowhere",
        ),
        (
            lambda text, out: counterfoil.mend(
                "lab:resnet10t", "wardrobe-mini", "dfr:clip", out, audited=text
            ),
            "photos-choose",
        ),
        (
            lambda text, out: counterfoil.mine(
                "wardrobe-star", out, on=text, target="lab:resnet10t"
            ),
            "photos-choose",
        ),
    ],
)
def test_a_text_and_a_list_of_it_are_refused_alike(
    call: Callable[[Any, Path], Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = refusal(lambda: call(text, tmp_path / "out"))
    assert alone == refusal(lambda: call([text], tmp_path / "out"))
    assert text.partition("=")[0].partition(":")[0].rpartition(".")[2].rpartition("/")[2] in alone


def said(output: str) -> list[str]:
    return [
        line.removeprefix("Warning: ")
        for line in output.splitlines()
        if line.startswith("Warning: ")
    ]


def test_what_the_command_warns_of_the_function_says_at_the_callers_line(tmp_path: Path) -> None:
    names = ("airplane", "bird", "cat", "dog")
    images = save_folders(tmp_path / "images", names, 12)
    model = save_trained(tmp_path / "model", names, ("dog", "airplane", "bird", "cat"))
    words = ["evaluate", str(images), "-m", model, "--device", "cpu", "--out", str(tmp_path)]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0 and "Warning" not in ran.stdout
    with pytest.warns(CounterfoilWarning) as heard:
        counterfoil.evaluate(images, model, device="cpu", out=tmp_path)
    assert [str(warning.message) for warning in heard] == said(ran.stderr)
    assert "shifted by one: 100.0 %" in str(heard[0].message) and heard[0].filename == __file__
    as_json = CliRunner().invoke(app, [*words, "--json"])
    assert said(as_json.stderr) == said(ran.stderr), "the document alone is on standard output"
    with warnings.catch_warnings():
        warnings.simplefilter("error", CounterfoilWarning)
        with pytest.raises(CounterfoilWarning):
            counterfoil.evaluate(images, model, device="cpu", out=tmp_path)


def test_no_command_has_a_warning_of_its_own() -> None:
    """Commands print as warnings what functions warn of, by one hook: so that a program hears all
    of them."""
    package = Path(counterfoil.__file__).parent
    modules = [
        path
        for path in package.rglob("*.py")
        if re.search(r"[\"']Warning: ", path.read_text("utf-8"))
    ]
    assert [path.relative_to(package).as_posix() for path in sorted(modules)] == [
        "cli/main.py",
        "mending/one_model.py",
    ]


def test_the_lines_of_the_readme_run_as_a_script_without_a_guard(tmp_path: Path) -> None:
    """Save the program as a file and run it with several workers; `test_worker_process.py` has
    their side of it."""
    build_colours(tmp_path / "photos-corrupt")
    (block,) = re.findall(
        r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL
    )
    program = (
        "from colour_kinds import ColourModule, as_tensor as my_transform\nmy_torch_module ="
        " ColourModule()\n"
    )
    made = (
        "changes = ['samples.candidates=1', 'prompts.shifts=null', 'prompts.shifts.fog={corruption:"
        " fog}']\ncounterfoil.build('wardrobe-corrupt', 'built', overrides=changes, workers=2)\n"
    )
    (tmp_path / "own.py").write_text(program + block + made)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "own.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout.count("report.html") == 1
        and "Traceback" not in done.stderr
        and "__main__" not in done.stderr
    )


def test_a_bare_function_is_a_model(tmp_path: Path) -> None:
    images = save_folders(tmp_path / "images", NAMES)
    result = counterfoil.evaluate(
        images, colour_function, class_order=NAMES, device="cpu", out=tmp_path / "out"
    )
    assert [model.name for model in result.models] == ["colour_function"]
    several: Any = [colour_function, colour_function]
    with pytest.raises(UserError, match="found a function in a list, expected names of models"):
        counterfoil.evaluate(images, several, device="cpu", out=tmp_path / "out")

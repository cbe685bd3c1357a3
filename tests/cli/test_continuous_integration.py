"""The workflow and the job of docs/how-to/continuous-integration.md: their scripts run in a shell,
as a runner's, with recorders in place of `gh`, `curl` and `pip`, for there is no network."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import counterfoil
import warm
from counterfoil.cli.main import app
from counterfoil.evaluation.gate import FAILED, UNDECIDED
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.recipe import load_recipe
from support.images import encoded

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/continuous-integration.md"
SOURCE = Path(counterfoil.__file__).parent
MARK = "<!-- counterfoil gate -->"
GATES = {
    0: ["accuracy(base) >= 1"],
    FAILED: ["drop(any) <= -90"],
    UNDECIDED: ["accuracy(base) >= 95"],
}
# Writes its words, and the file that it sends, as a line; prints what `answer` holds.
RECORDER = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
name = pathlib.Path(sys.argv[0]).name
body = [word[6:] for word in sys.argv[1:] if word.startswith(("body=@", "body@"))]
sent = pathlib.Path("comment.md").read_text() if body else None
with (folder / f"{{name}}.jsonl").open("a") as log:
    log.write(json.dumps([sys.argv[1:], sent]) + "\\n")
answer = folder / f"{{name}}.answer"
if not body and answer.exists():
    print(answer.read_text(), end="")
"""


def yaml_blocks() -> list[Any]:
    texts = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [yaml.safe_load(text) for text in texts]


def one_with(key: str) -> Any:
    blocks = [block for block in yaml_blocks() if isinstance(block, dict) and key in block]
    assert len(blocks) == 1
    return blocks[0]


GITHUB = one_with("jobs")
GITLAB = one_with("gate")["gate"]
(PICTURES,) = (
    block[0]
    for block in yaml_blocks()
    if isinstance(block, list) and isinstance(block[0], dict) and block[0].get("name") == "pictures"
)
STEPS = GITHUB["jobs"]["gate"]["steps"]


def step(name: str) -> dict[str, Any]:
    return next(each for each in STEPS if each.get("name") == name)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a checkout: a recipe of photographs of two classes, a model, and the built test set."""
    folder = tmp_path_factory.mktemp("checkout")
    for cls in load_recipe("wardrobe-mini").classes[:2]:
        for number in range(12):
            path = folder / "photos" / "validation" / cls.name / f"{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            scene = wardrobe_scene("validation", 10 * number + (cls.source_label or 0))
            path.write_bytes(encoded(render(scene)))
    shutil.copytree(SOURCE / "lab/weights/resnet10t", folder / "my-model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        build = "build recipe.yaml --out photos-corrupt --workers 1"
        for line in ("init ./photos --device cpu", build):
            done = CliRunner().invoke(app, line.split())
            assert done.exit_code == 0, done.output
    return folder


class Runner:
    """A runner's machine: a checkout, tools on its path, and its variables."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.checkout = folder / "checkout"
        shutil.copytree(checkout, self.checkout)
        self.logs = folder / "logs"
        tools = folder / "tools"
        self.logs.mkdir()
        tools.mkdir()
        recorder = RECORDER.format(python=sys.executable, folder=str(self.logs))
        self.variables = {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCE.parent),
            "HOME": str(folder),
            "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        command = "from counterfoil.cli.entry import main; main()"
        scripts = dict.fromkeys(("gh", "curl", "pip"), recorder)
        scripts["counterfoil"] = warm.script_of(command, self.variables)
        scripts["python"] = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
        for name, text in scripts.items():
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script as runners do: a file of bash that ends with the first command that
        fails."""
        file = self.logs / "script.sh"
        file.write_text(script)
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(file)],
            cwd=self.checkout,
            env=self.variables | variables,
            capture_output=True,
            text=True,
        )

    def calls(self, tool: str) -> list[tuple[list[str], str | None]]:
        log = self.logs / f"{tool}.jsonl"
        if not log.exists():
            return []
        return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def runner(checkout: Path, tmp_path: Path) -> Runner:
    return Runner(checkout, tmp_path)


def expressions(texts: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Return texts with each `${{ … }}` replaced by its value."""
    return {
        name: re.sub(r"\$\{\{ (.*?) \}\}", lambda match: values[match[1]], text)
        for name, text in texts.items()
    }


OF_GITHUB = {
    "github.token": "token",
    "github.event.pull_request.number": "7",
    "github.event.pull_request.head.repo.full_name != github.repository": "false",
    "steps.report.outputs.artifact-url": "https://github.example/artifacts/1",
}


def test_the_files_are_pinned_and_no_script_has_an_expression() -> None:
    """Find no expression in a script: it could put a stranger's text there."""
    assert GITHUB[True] == ["pull_request"]  # YAML 1.1 reads `on` so
    assert GITHUB["permissions"] == {"contents": "read", "pull-requests": "write"}
    for each in [*STEPS, PICTURES]:
        assert re.fullmatch(
            r"actions/[\w-]+@[0-9a-f]{40}", each.get("uses", "actions/x@" + "0" * 40)
        )
        assert "${{" not in each.get("run", "")
    assert GITHUB["jobs"]["gate"]["defaults"]["run"]["shell"] == "bash"
    assert GITLAB["allow_failure"]["exit_codes"] == [UNDECIDED]


@pytest.mark.parametrize("code", GATES)
def test_the_steps_of_github_end_with_the_answer_and_comment(code: int, runner: Runner) -> None:
    (runner.checkout / "gate.yaml").write_text(yaml.safe_dump(GATES[code]))
    for each in STEPS:
        if "run" in each and "name" not in each:
            done = runner.run(each["run"])
            assert done.returncode == 0, done.stdout + done.stderr
    assert runner.calls("pip") == [[["install", "./counterfoil"], None]]
    done = runner.run(step("gate")["run"])
    assert done.returncode == code, done.stdout + done.stderr
    assert ("::warning::" in done.stdout) == (code == UNDECIDED)
    comment = step("comment")
    variables = expressions(comment["env"], OF_GITHUB)
    summary = runner.logs / "summary.md"
    variables |= {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_REPOSITORY": "me/mine"}
    before = runner.run(comment["run"], **variables)
    assert before.returncode == 0, before.stderr
    (listed, _), (posted, body) = runner.calls("gh")
    assert listed[:3] == ["api", "--paginate", "repos/me/mine/issues/7/comments"]
    assert posted == [
        "api",
        "--method",
        "POST",
        "repos/me/mine/issues/7/comments",
        "-F",
        "body=@comment.md",
    ]
    assert body is not None and body.startswith(f"{MARK}\n### The gate says ")
    assert summary.read_text() == body and "](gate/" not in body and "![" not in body
    sheets = (runner.checkout / "report/gate").glob("*.webp")
    links = body.count("[The worst images of this group](https://github.example/artifacts/1)")
    assert links == len(list(sheets)) > 0
    if code:
        return
    # The next push replaces the comment; a fork has no token for one.
    (runner.logs / "gh.answer").write_text("11\n12\n")
    assert runner.run(comment["run"], **variables).returncode == 0
    assert runner.calls("gh")[-1][0][:4] == [
        "api",
        "--method",
        "PATCH",
        "repos/me/mine/issues/comments/12",
    ]
    calls = len(runner.calls("gh"))
    assert runner.run(comment["run"], **variables | {"FORK": "true"}).returncode == 0
    assert len(runner.calls("gh")) == calls
    _pictures_are_pushed(runner, variables)


def _pictures_are_pushed(runner: Runner, variables: Mapping[str, str]) -> None:
    """Push the pictures to a repository on this machine, and link to them by their commit."""
    remote = runner.logs / "remote.git"
    made = runner.run(
        f"git init -q --bare {remote} && git init -q && git remote add origin {remote}"
    )
    assert made.returncode == 0, made.stderr
    environment = runner.logs / "environment"
    of_job = expressions(PICTURES["env"], OF_GITHUB) | {
        "GITHUB_ENV": str(environment),
        "GITHUB_SERVER_URL": "https://github.example",
        "GITHUB_REPOSITORY": "me/mine",
        "RUNNER_TEMP": str(runner.logs),
    }
    done = runner.run(PICTURES["run"], **of_job)
    assert done.returncode == 0, done.stderr
    listed = runner.run(f"git -C {remote} ls-tree --name-only gate-pictures-7").stdout.split()
    assert listed == sorted(path.name for path in (runner.checkout / "report/gate").iterdir())
    name, _, address = environment.read_text().strip().partition("=")
    assert name == "PICTURES"
    assert runner.run("git diff --cached --name-only").stdout == ""  # its own index
    assert runner.run(step("comment")["run"], **variables, PICTURES=address).returncode == 0
    body = runner.calls("gh")[-1][1]
    commit = runner.run(f"git -C {remote} rev-parse gate-pictures-7").stdout.strip()
    assert body is not None
    linked = re.findall(r"^!\[.*\]\(https://github\.example/me/mine/raw/(.*)/(.*)\)$", body, re.M)
    assert sorted(linked) == [(commit, name) for name in listed]


def test_the_job_of_gitlab_ends_with_the_answer_and_comments(runner: Runner) -> None:
    (runner.checkout / "gate.yaml").write_text(yaml.safe_dump(GATES[UNDECIDED]))
    done = runner.run("\n".join(GITLAB["script"]))
    assert done.returncode == UNDECIDED, done.stdout + done.stderr
    report = runner.checkout / "report"
    assert (runner.checkout / GITLAB["artifacts"]["reports"]["junit"]).is_file()
    variables = {
        "CI_API_V4_URL": "https://gitlab.example/api/v4",
        "CI_PROJECT_ID": "5",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_JOB_URL": "https://gitlab.example/me/mine/-/jobs/9",
        "GATE_TOKEN": "token",
    }
    notes = "https://gitlab.example/api/v4/projects/5/merge_requests/7/notes"
    bot = {"username": "project_5_bot_1f"}
    spoof = {"id": 3, "author": {"username": "someone"}, "body": f"{MARK}\nx"}
    ours = {"id": 4, "author": bot, "body": f"{MARK}\nold"}
    for listed, method, address in (([spoof], "POST", notes), ([spoof, ours], "PUT", f"{notes}/4")):
        (runner.logs / "curl.answer").write_text(json.dumps(listed))
        after = runner.run("\n".join(GITLAB["after_script"]), **variables)
        assert after.returncode == 0, after.stderr
        words, body = runner.calls("curl")[-1]
        assert words[words.index("--request") + 1] == method and words[-1] == address
        assert body is not None and body.startswith(f"{MARK}\n### The gate says undecided")
        prefix = "https://gitlab.example/me/mine/-/jobs/9/artifacts/raw/report/gate/"
        files = re.findall(rf"^!\[.*\]\({re.escape(prefix)}(.*)\)$", body, re.M)
        assert sorted(files) == sorted(path.name for path in (report / "gate").iterdir())
    shutil.rmtree(report)
    calls = len(runner.calls("curl"))
    assert runner.run("\n".join(GITLAB["after_script"]), **variables).returncode == 0
    assert len(runner.calls("curl")) == calls, "without a gate there is nothing to say"

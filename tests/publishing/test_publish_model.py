"""A mended model's folder on the Hub: verified, in one commit, with a card that the Hub finds it
by, and loadable."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from publishing_cases import Publisher, changing, with_package

import warm
from colour_world import save_colour_model
from counterfoil.dataset.card.markdown import without_marks
from counterfoil.models.mended import MENDED, MendedModelName, MendedNote, MendedOn, MendedWith
from loopback_hub import LoopbackHub, client, client_environment
from support.files import flip

Start = Callable[..., Publisher]
REPO = "someone/mended"
OTHER = "e" * 64
NOTE = MendedNote(
    format=1,
    model=MendedModelName("resnet18.a1_in1k", OTHER),
    on=(MendedOn("lab:wardrobe:train", OTHER),),
    train_content=(OTHER,),
    datasets=(
        MendedWith("someone/garments", OTHER, "contexts", 3, "garments"),
        MendedWith("someone/hidden", OTHER, "hard", 3, "hidden"),
        MendedWith("out/folder", OTHER, None, None, None),
    ),
    lam=0.5,
    fit="lbfgs",
    weight_decay=5e-4,
    rows={"train": 30, "debug": 12},
)


def make_model(
    folder: Path, *, note: MendedNote | None = NOTE, blind: tuple[int, ...] = ()
) -> Path:
    save_colour_model(folder, blind=blind, labels=True)
    set_license(folder, None)
    (folder / "README.md").write_text("---\ntags: [mine]\n---\n# Colours, mended\n")
    if note is not None:
        (folder / MENDED).write_text(json.dumps(note.to_json()))
    return folder


def set_license(folder: Path, license: str | None) -> None:
    """Set the licence in the configuration; timm writes that of the architecture's own weights."""
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["license"] = license
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def model(saved_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_model, tmp_path / "model"))


def call(folder: Path, repo: str = REPO, confirm: bool = True, **options: Any) -> dict[str, Any]:
    return {
        "directory": str(folder),
        "repo": repo,
        "confirm": confirm,
        "options": options,
        "model": True,
    }


def published(hub: LoopbackHub, repo: str = REPO) -> dict[str, bytes]:
    files = hub.branch(repo, "main", kind="model")
    return {path: content for path, content in files.items() if not path.startswith(".")}


def metadata(card: bytes) -> dict[str, Any]:
    return yaml.safe_load(card.decode().split("---\n")[1])


def run_here(hub: LoopbackHub, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = with_package(client_environment(hub, home, sleep_scale=0.01))
    return warm.run([sys.executable, *words], environment)


@pytest.mark.release(of="hub")
def test_a_model_goes_there_in_one_commit_and_is_loaded_from_there(
    loopback: LoopbackHub, model: Path, start_publisher: Start, tmp_path: Path
) -> None:
    api = client(loopback)
    api.create_repo("someone/garments", repo_type="dataset")
    api.create_repo("someone/hidden", repo_type="dataset", private=True)
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    answer = start_publisher(loopback).publish(call(model, license="apache-2.0", tag="v1"))
    assert answer["published"]["commits"] == 1 and answer["published"]["private"]
    files = published(loopback)
    assert {name: files[name] for name in files if name != "README.md"} == {
        name: content for name, content in before.items() if name != "README.md"
    }
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before
    card = metadata(files["README.md"])
    assert card["license"] == "apache-2.0"
    assert card["base_model"] == ["timm/resnet18.a1_in1k"]
    assert card["datasets"] == ["someone/garments"]
    assert card["tags"] == ["mine", "timm", "image-classification", "counterfoil", "mended"]
    assert (card["library_name"], card["pipeline_tag"]) == ("timm", "image-classification")
    assert without_marks(files["README.md"].decode()).endswith("---\n\n# Colours, mended\n")
    shown = "\n".join(answer["preview"])
    assert "a model in 4 files" in shown and "1 commit" in shown and "license: apache-2.0" in shown
    program = (
        "import sys\nfrom counterfoil.models.classifiers import load_classifier\n"
        "from counterfoil.models.mended import mended_of\n"
        "one = load_classifier(sys.argv[1])\nprint(one.sha256, one.label_names,"
        " mended_of(sys.argv[1]).rows)"
    )
    done = run_here(loopback, tmp_path / "reader", "-c", program, f"hf-hub:{REPO}")
    from counterfoil.models.classifiers import load_classifier

    local = load_classifier(f"local-dir:{model}")
    assert done.stdout == f"{local.sha256} {local.label_names} {dict(sorted(NOTE.rows.items()))}\n"


def test_again_it_changes_nothing_and_a_next_version_replaces_it(
    loopback: LoopbackHub, model: Path, start_publisher: Start, tmp_path: Path
) -> None:
    process = start_publisher(loopback)
    process.publish(call(model))
    commits = len(loopback.commits(REPO, kind="model"))
    assert process.publish(call(model))["published"]["commits"] == 0
    assert len(loopback.commits(REPO, kind="model")) == commits
    following = make_model(tmp_path / "following", note=replace(NOTE, lam=1.0), blind=(1,))
    assert process.publish(call(following))["published"]["files_changed"] == 2
    assert (
        published(loopback)["model.safetensors"] == (following / "model.safetensors").read_bytes()
    )
    assert metadata(published(loopback)["README.md"])["license"] == "unknown"
    set_license(following, "cc0-1.0")
    process.publish(call(following))
    assert metadata(published(loopback)["README.md"])["license"] == "cc0-1.0"


def test_asked_and_declined_nothing_is_sent(
    loopback: LoopbackHub, model: Path, start_publisher: Start
) -> None:
    answer = start_publisher(loopback).ask(call(model, confirm=False))
    assert answer["published"] is None
    assert any("license: unknown (name it with --license)" in line for line in answer["preview"])
    assert not changing(loopback)


STRAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pickle": (
        lambda folder: (folder / "pytorch_model.bin").write_bytes(b"x"),
        "pytorch_model.bin is not a file",
    ),
    "a hidden file": (lambda folder: (folder / ".env").write_text("x"), ".env is hidden"),
    "a hidden folder": (lambda folder: (folder / ".git").mkdir(), ".git is hidden"),
    "a folder": (lambda folder: (folder / "runs").mkdir(), "runs is a folder"),
    "a link": (
        lambda folder: (folder / "LICENSE").symlink_to("/etc/hostname"),
        "LICENSE is a link",
    ),
    "a pipe": (lambda folder: os.mkfifo(folder / "NOTICE"), "NOTICE is not a regular file"),
    "code": (lambda folder: (folder / "modeling.py").write_text("1"), "modeling.py is not a file"),
    "no weights": (
        lambda folder: (folder / "model.safetensors").unlink(),
        "model.safetensors is missing",
    ),
    "no configuration": (
        lambda folder: (folder / "config.json").unlink(),
        "config.json is missing",
    ),
    "a note of another form": (
        lambda folder: (folder / MENDED).write_text("{}"),
        "mended.json is not of format 1",
    ),
    "a card of another coding": (
        lambda folder: (folder / "README.md").write_bytes(b"\xff"),
        "not UTF-8",
    ),
    "a secret": (
        lambda folder: (folder / "README.md").write_text("\nhf_" + "aB3" * 10),
        "README.md, line 2: contains what looks like a token of the Hub",
    ),
    "metadata of another kind": (
        lambda folder: (folder / "README.md").write_text("---\n- 1\n---\n"),
        "metadata is",
    ),
}


@pytest.mark.parametrize("stray", STRAYS)
def test_what_is_not_a_models_is_refused(
    loopback: LoopbackHub, model: Path, start_publisher: Start, stray: str
) -> None:
    change, words = STRAYS[stray]
    change(model)
    refused = start_publisher(loopback).ask(call(model))
    assert (refused["exit_code"], refused["kind"]) == (2, "UserError")
    assert any(words in line for line in refused["error"]), refused["error"]
    assert "aB3aB3" not in str(refused)
    assert not changing(loopback)


def test_damaged_weights_are_not_sent(
    loopback: LoopbackHub, model: Path, start_publisher: Start
) -> None:
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    refused = start_publisher(loopback).ask(call(model))
    assert refused["exit_code"] == 1 and "damaged" in refused["error"][0]
    assert not changing(loopback)


def test_a_file_that_changes_on_the_way_ends_it(
    loopback: LoopbackHub, model: Path, start_publisher: Start
) -> None:
    def meanwhile(request: Any) -> None:
        if request.path.endswith("/preupload/main"):
            flip(model / "model.safetensors")
            loopback.on_request = None

    loopback.on_request = meanwhile
    refused = start_publisher(loopback).ask(call(model))
    assert (
        refused["exit_code"] == 1
        and "model.safetensors changed on this machine" in refused["error"][0]
    )
    assert "config.json" not in published(loopback)


@pytest.mark.parametrize("path", ["model.safetensors", "src/train.py"])
def test_somebody_elses_repository_stays(
    loopback: LoopbackHub, model: Path, start_publisher: Start, path: str
) -> None:
    api = client(loopback)
    api.create_repo(REPO, repo_type="model")
    api.upload_file(path_or_fileobj=b"mine", path_in_repo=path, repo_id=REPO)
    before = loopback.branch(REPO, "main", kind="model")
    refused = start_publisher(loopback).ask(call(model))
    assert refused["exit_code"] == 2 and "holds something else" in refused["error"][0]
    assert loopback.branch(REPO, "main", kind="model") == before


def test_a_model_that_was_never_mended_tells_no_origin(
    loopback: LoopbackHub, start_publisher: Start, tmp_path: Path
) -> None:
    plain = make_model(tmp_path / "plain", note=None)
    (plain / "README.md").unlink()
    (plain / "LICENSE").write_text("MIT\n")
    start_publisher(loopback).publish(call(plain, license="Own Terms 1.0"))
    files = published(loopback)
    card = metadata(files["README.md"])
    assert (card["license"], card["license_name"]) == ("other", "own-terms-1.0")
    assert (
        "base_model" not in card
        and "datasets" not in card
        and card["tags"] == ["timm", "image-classification"]
    )
    assert files["LICENSE"] == b"MIT\n" and REPO in files["README.md"].decode()


def test_the_licence_of_the_base_model_holds_where_no_other_is_named(
    loopback: LoopbackHub, start_publisher: Start, tmp_path: Path
) -> None:
    api = client(loopback)
    api.create_repo("someone/base", repo_type="model")
    api.upload_file(
        path_or_fileobj=b"---\nlicense: mit\n---\n# Base\n",
        path_in_repo="README.md",
        repo_id="someone/base",
    )
    original = MendedModelName("hf-hub:someone/base@main", OTHER)
    folder = make_model(tmp_path / "of_base", note=replace(NOTE, model=original))
    start_publisher(loopback).publish(call(folder))
    card = metadata(published(loopback)["README.md"])
    assert (card["license"], card["base_model"]) == ("mit", ["someone/base"])
    assert card["base_model_relation"] == "finetune"


def run_command(hub: LoopbackHub, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_here(hub, home, "-m", "counterfoil.cli.main", "publish", *words)


@pytest.mark.release(of="hub")
def test_the_command_asks_and_refuses_what_does_not_go_together(
    loopback: LoopbackHub, model: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    unconfirmed = run_command(loopback, home, str(model), REPO, "--model")
    assert unconfirmed.returncode == 2 and "Pass -y" in unconfirmed.stderr
    wrong = run_command(loopback, home, str(model), "--model", "--create-pr", "-y")
    assert wrong.returncode == 2 and "--create-pr does not go with --model" in wrong.stderr
    assert "USER/NAME is missing" in wrong.stderr
    forgotten = run_command(loopback, home, str(model), REPO, "-y")
    assert forgotten.returncode == 2 and "--model" in forgotten.stderr
    assert not changing(loopback)
    done = run_command(
        loopback, home, str(model), REPO, "--model", "--license", "mit", "-y", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["license"] == "mit"
    assert loopback.token not in done.stdout + done.stderr

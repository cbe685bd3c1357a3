"""`check` compares a generator's settings with its model's configuration where that is here, and else says so."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.recipe import load_recipe
from counterfoil.starting.lacking import Lack, lacking

NAME = "black-forest-labs/FLUX.1-schnell"
FLUX = {"_class_name": "FluxPipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]}


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub's client, which may ask the Hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


@pytest.fixture
def fetched(caches: Path) -> None:
    """The model's index, as the Hub's client keeps it."""
    place = caches / "models--black-forest-labs--FLUX.1-schnell"
    snapshot = place / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model_index.json").write_text(json.dumps(FLUX))
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0" * 40)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    place = tmp_path / "flux"
    place.mkdir()
    (place / "model_index.json").write_text(json.dumps(FLUX))
    return f"generator.model=local-dir:{place}"


def missing(*overrides: str) -> dict[str, Lack]:
    found = lacking(load_recipe("wardrobe-mini", overrides))
    return {lack.key: lack for lack in found if lack.weight == "missing"}


def test_what_does_not_go_with_a_folders_configuration_cannot_be_built(folder: str) -> None:
    found = missing(
        folder, "generator.size=72", "generator.options={max_sequence_lenght: 256}", "tokens={path: null, learn: {}}"
    )
    assert found.keys() == {"tokens.learn", "generator.size", "generator.options.max_sequence_lenght"}
    assert "did you mean 'max_sequence_length'?" in found["generator.options.max_sequence_lenght"].text


@pytest.mark.usefixtures("fetched")
def test_so_it_is_for_a_model_of_the_hub_whose_configuration_was_fetched() -> None:
    assert missing(f"generator.model={NAME}", "generator.size=72", "tokens=null").keys() == {"generator.size"}
    fits = lacking(load_recipe("flux-schnell"))
    assert not [lack for lack in fits if lack.key.startswith("generator") and lack.key != "generator.model"]


def test_where_it_is_not_here_that_is_told() -> None:
    found = [lack for lack in lacking(load_recipe("flux-schnell")) if lack.key == "generator"]
    assert [lack.weight for lack in found] == ["fetched"]
    assert f"compared with {NAME} once its configuration is here" in found[0].text
    nothing = lacking(load_recipe("wardrobe-mini", [f"generator.model={NAME}", "tokens=null"]))
    assert not [lack for lack in nothing if lack.key == "generator"], "there is nothing to compare"


@pytest.mark.skipif(util.find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_an_absent_library_is_told_whatever_is_here() -> None:
    found = missing("generator.quantize=bnb-4bit")
    assert "pip install 'counterfoil[bnb]'" in found["generator.quantize"].text


def test_check_ends_with_2_and_lists_every_problem(folder: str) -> None:
    words = ["check", "wardrobe-mini", "--json"]
    for change in (folder, "generator.size=72", "generator.options={height: 3}", "tokens=null"):
        words += ["--set", change]
    done = CliRunner().invoke(app, words)
    assert getattr(done.exception, "exit_code", None) == 2
    assert "multiples of 16" in str(done.exception) and "by generator.size" in str(done.exception)
    document = json.loads(done.stdout)
    assert document["buildable"] is False
    assert {"generator.size", "generator.options.height"} <= {lack["key"] for lack in document["lacks"]}


@pytest.mark.parametrize("name", ["flux-schnell", "sd35-medium", "z-image"])
def test_the_bundled_generators_are_checked(name: str) -> None:
    done = CliRunner().invoke(app, ["check", name])
    assert done.exit_code == 0, done.output
    assert "tokens" not in [line.split(": ")[1] for line in done.stdout.splitlines() if line.startswith("needs: ")]


def test_size_and_tokens_are_compared_without_heavy_libraries(folder: str) -> None:
    code = (
        "import sys; from counterfoil.recipe import load_recipe; from counterfoil.starting.lacking import lacking\n"
        f"print(any(lack.key == 'generator.size' for lack in lacking(load_recipe('wardrobe-mini', [{folder!r},"
        " 'generator.size=72', 'tokens=null']))))\n"
        "print([name for name in ('torch', 'diffusers', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True", "[]"]

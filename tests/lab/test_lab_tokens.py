"""The lab's class tokens: small, of the generator that ships beside them, learned as a recipe could say, measured."""

from __future__ import annotations

import hashlib
import json

import pytest

from counterfoil.errors import UserError
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.models import lab_models, pin_model, resolve_name
from counterfoil.recipe import load_recipe
from counterfoil.sources.pins import pin_source
from counterfoil.tokens.class_tokens import read_class_tokens, read_token_file, token_folder
from lab_training.class_tokens import MEASURED, RECIPE, SETTINGS, learning

FOLDER = token_folder("lab:tokens", None)
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())
METRICS = json.loads((FOLDER / "metrics.json").read_text())


def test_they_are_kilobytes_and_nothing_else_lies_there() -> None:
    ids = [f"{label:02d}" for label in range(len(CLASSES))]
    notes = {"manifest.json", "training.json", "metrics.json"}
    assert {file.name for file in FOLDER.iterdir()} == {f"{class_id}.safetensors" for class_id in ids} | notes
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 64_000


@pytest.mark.parametrize("name", ["wardrobe-mini", "wardrobe-star"])
def test_the_wardrobe_recipes_prompt_with_them(name: str) -> None:
    recipe = load_recipe(name)
    tokens = read_class_tokens(recipe)
    assert tokens is not None
    for cls in recipe.classes:
        assert tokens.placeholders[cls.id] == f"<{cls.name.replace(' ', '-')}-{cls.id}>"
        assert [tuple(part.shape) for part in tokens.vectors[cls.id]] == [(SETTINGS["vectors"], 128)]
    assert tokens.hashes() == {class_id: entry["sha256"] for class_id, entry in MANIFEST["classes"].items()}


def test_they_were_learned_with_the_generator_that_ships_from_the_training_images() -> None:
    recipe = load_recipe(RECIPE, learning(SETTINGS))
    assert recipe.tokens is not None and recipe.tokens.learn is not None
    assert MANIFEST["generator"] == pin_model("lab:sd").document()
    assert MANIFEST["source"] == pin_source(recipe.source).document() | {"split": "train"}
    assert {**recipe.tokens.learn.model_dump(mode="json"), "rendered_size": None} == MANIFEST["settings"]
    for cls in recipe.classes:
        path = FOLDER / f"{cls.id}.safetensors"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == MANIFEST["classes"][cls.id]["sha256"]
        notes = read_token_file(path).notes
        assert (notes["initial_words"], notes["images"]) == (cls.name, 800)


def test_they_say_how_they_were_trained_and_what_they_change() -> None:
    training = json.loads((FOLDER / "training.json").read_text())
    assert training["command"] == "python scripts/train_lab.py tokens"
    assert training["tokens"]["learn"] == json.loads(json.dumps(SETTINGS))
    assert METRICS["measured"]["samples"] == MEASURED
    assert MEASURED["seed"] not in {load_recipe(name).samples.seed for name in ("wardrobe-mini", "wardrobe-star")}
    assert set(METRICS["base_accuracy"]) == set(load_recipe(RECIPE).evaluate.models)


def test_they_are_no_model_and_other_names_of_the_lab_are_no_tokens() -> None:
    assert "tokens" not in lab_models()
    with pytest.raises(UserError, match="the lab has no 'tokens'"):
        resolve_name("lab:tokens")
    with pytest.raises(UserError, match=r"no tokens 'lab:token'; did you mean 'tokens'\?"):
        token_folder("lab:token", None)
    with pytest.raises(UserError, match="no tokens 'lab:sd'") as refused:
        read_class_tokens(load_recipe(RECIPE, ["tokens.path=lab:sd"]))
    assert "lab:tokens" in (refused.value.hint or "")

"""Object thresholds by class: laid, checked, hashed and resolved; a shift's threshold has none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from counterfoil.card.tables import threshold_rows
from counterfoil.cli.main import app
from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, dump_recipe, load_recipe, load_recipe_text
from counterfoil.recipe.loader import load_cut
from counterfoil.screen import Thresholds, resolve_thresholds
from counterfoil.screen.thresholds import needs_validation

SCORES = {f"{label:02}": np.linspace(0.2, 0.3, 41, dtype=np.float32) for label in range(10)}


def resolved(recipe: Recipe) -> Thresholds:
    return resolve_thresholds(recipe, lambda caption: SCORES)


def mini(*changes: str) -> Recipe:
    return load_recipe("wardrobe-mini", changes)


def problems(*changes: str) -> list[str]:
    with pytest.raises(UserError) as refused:
        mini(*changes)
    return list(refused.value.problems)


def test_a_class_of_its_own_wins_and_the_others_are_as_before() -> None:
    before, after = resolved(mini()), resolved(mini("screen.object_threshold.classes={'04': 0.21}"))
    for shift, entries in after.object.items():
        assert entries["04"] == {"value": float(np.float32(0.21)), "percentile": None, "n": 0, "source": "recipe"}
        others = {class_id: entry for class_id, entry in entries.items() if class_id != "04"}
        assert others == {class_id: before.object[shift][class_id] for class_id in others}
        assert {entry["source"] for entry in others.values()} == {"validation"}
    every = dict.fromkeys(SCORES, 0.2)
    assert not needs_validation(mini(f"screen.object_threshold.classes={json.dumps(every)}"))


def test_a_shift_of_its_own_classes_takes_the_rest_from_the_screen() -> None:
    recipe = mini(
        "screen.object_threshold.classes={'04': 0.21, '06': 0.22}",
        "prompts.shifts.red.object_threshold.classes={'06': 0.1}",
        "prompts.shifts.at_night.object_threshold=0.3",
        "prompts.base.object_threshold={value: 0.25, classes: {'00': 0.5}}",
    )
    values = {
        shift: {class_id: entry["value"] for class_id, entry in entries.items()}
        for shift, entries in resolved(recipe).object.items()
    }
    of = lambda shift: [values[shift][class_id] for class_id in ("00", "04", "06")]  # noqa: E731
    percentile = resolved(mini()).object["red"]["00"]["value"]
    assert of("red") == pytest.approx([percentile, 0.21, 0.1])
    assert of("in_the_snow") == pytest.approx([percentile, 0.21, 0.22])
    assert of("at_night") == pytest.approx([0.3, 0.3, 0.3])
    assert of("base") == pytest.approx([0.5, 0.25, 0.25])


def test_the_default_enters_no_hash_and_a_class_enters_the_screen_alone() -> None:
    plain = mini()
    for nothing in ("classes=null", "classes={}", "classes={'04': null}"):
        again = mini(f"screen.object_threshold.{nothing}")
        assert (again.screen_document, again.portable_yaml) == (plain.screen_document, plain.portable_yaml)
    own = mini("screen.object_threshold.classes={'04': 0.21, '03': 0.2}")
    assert own.plan_hash == plain.plan_hash
    assert own.screen_hash != plain.screen_hash
    other_order = mini("screen.object_threshold.classes={'03': 0.2, '04': 0.21}")
    assert (own.screen_hash, own.portable_yaml) == (other_order.screen_hash, other_order.portable_yaml)
    assert load_recipe_text(dump_recipe(own)) == own
    one = mini("prompts.shifts.red.object_threshold.classes={'04': 0.21}")
    assert len({plain.screen_hash, own.screen_hash, one.screen_hash}) == 3


def test_layers_add_classes_and_null_takes_one_out(tmp_path: Path) -> None:
    lower, upper = tmp_path / "lower.yaml", tmp_path / "upper.yaml"
    lower.write_text("extends: wardrobe-mini\nscreen: {object_threshold: {classes: {'04': 0.21, '06': 0.2}}}\n")
    upper.write_text("extends: ./lower.yaml\nscreen: {object_threshold: {classes: {'06': null, '00': 0.1}}}\n")
    spec = load_recipe(upper).screen.object_threshold
    assert (spec.percentile, spec.classes) == (5, {"00": 0.1, "04": 0.21})
    lower.write_text("extends: wardrobe-mini\nscreen: {object_threshold: null}\n")
    upper.write_text("extends: ./lower.yaml\nscreen: {object_threshold: 0.2}\n")
    number = load_recipe(upper, ["screen.object_threshold.classes={'04': 0.21}"]).screen.object_threshold
    assert (number.value, number.classes) == (0.2, {"04": 0.21})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("screen.object_threshold.classes={'4': 0.2}", "screen.object_threshold.classes.4"),
        ("screen.object_threshold.classes={'0 4': 0.2}", "did you mean '04'"),
        ("prompts.base.object_threshold.classes={'44': 0.2}", "expected the id of a class"),
        ("prompts.shifts.red.object_threshold.classes={'44': 0.2}", "prompts.shifts.red.object_threshold.classes.44"),
        ("screen.object_threshold.classes={'04': 2}", "found the number 2, expected a number from -1 to 1"),
        ("screen.object_threshold.classes={'04': .nan}", "finite"),
        ("screen.object_threshold.classes={'04': yes}", "found 'yes', expected a number"),
        ("screen.object_threshold.classes=[0.2]", "expected a mapping"),
        ("screen.object_threshold={percentile: null, classes: {'04': 0.2}}", "found classes alone"),
        ("screen.shift_threshold={value: 0.3, classes: {'04': 0.2}}", "unknown key"),
        ("prompts.shifts.red.threshold={value: 0.3, classes: {'04': 0.2}}", "unknown key"),
        ("prompts.shifts.red={classes: ['03'], object_threshold: {classes: {'04': 0.2}}}", "listed here"),
    ],
)
def test_what_is_wrong_is_said_where_it_stands(change: str, words: str) -> None:
    (line,) = problems(change)
    assert words in line


def test_a_cut_sets_classes_and_leaves_the_percentile(tmp_path: Path) -> None:
    recipe, cut = tmp_path / "recipe.yaml", tmp_path / "cut.yaml"
    recipe.write_text(dump_recipe(mini()))
    cut.write_text(
        "screen: {object_threshold: {classes: {'04': 0.21}}}\n"
        "prompts:\n  base: {object_threshold: {classes: {'06': 0.2}}}\n"
        "  shifts: {red: {object_threshold: {classes: {'06': 0.1}}}}\n"
    )
    after = load_cut(recipe, cut)
    assert (after.screen.object_threshold.percentile, after.screen.object_threshold.classes) == (5, {"04": 0.21})
    assert after.all_shifts()[0].object_threshold.classes == {"04": 0.21, "06": 0.2}
    recipe.write_text(dump_recipe(after))
    cut.write_text("screen: {object_threshold: {value: 0.2, classes: {'04': null}}}\n")
    again = load_cut(recipe, cut).screen.object_threshold
    assert (again.value, again.percentile, again.classes) == (0.2, None, None)
    cut.write_text("screen: {object_threshold: {classes: {'4': 0.2}}}")
    with pytest.raises(UserError, match=r"object_threshold\.classes\.4.*cut\.yaml:1"):
        load_cut(recipe, cut)


def test_check_and_card_say_it_in_words() -> None:
    changes = (
        "screen.object_threshold.classes={'04': 0.21}",
        "prompts.shifts.red.object_threshold.classes={'06': 0.1}",
    )
    shown = CliRunner().invoke(app, ["check", "wardrobe-mini", *(w for one in changes for w in ("--set", one))])
    assert shown.exit_code == 0
    assert "p5, 1 by class" in shown.stdout
    assert "coat (04) 0.21, shirt (06) 0.1 in red" in shown.stdout
    recipe = mini(*changes)
    rows = {row.shift: row.object_threshold for row in threshold_rows(recipe, resolved(recipe).document())}
    assert rows["base"] == "0.205 to 0.210 (percentile 5); chosen by class: coat 0.210"
    assert rows["red"].endswith("; chosen by class: coat 0.210, shirt 0.100")
    assert "chosen" not in {row.object_threshold for row in threshold_rows(mini(), {})}.pop()

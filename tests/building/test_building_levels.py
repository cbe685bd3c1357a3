"""Shifts with levels: datasets whose other images are those without, and then datasets like any."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from counterfoil.building import realised_levels
from counterfoil.building.realised_levels import POINTS, scales_reaching
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.data.open_source import open_source
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.generate.pictures import decode_image
from counterfoil.mining.audited import opened_parts
from counterfoil.recipe import load_recipe
from counterfoil.reviewing.calibrate_dataset import calibrate
from counterfoil.reviewing.recut_dataset import recut
from shared_datasets import Once
from support.built_rows import table_rows
from tiny_builds import images, published, tiny

LEVELS = ("prompts.shifts.in_the_snow.severity={levels: [.25, .6, 1]}",)
REALISED = "prompts.shifts.in_the_snow.severity={levels: {realised: [.5, 1]}}"


@pytest.fixture(scope="module")
def levelled(once_a_run: Once) -> Path:
    return once_a_run("levelled", lambda out: tiny(out, *LEVELS))


def severities(directory: Path) -> dict[str, float | None]:
    """Return key → severity of every accepted image."""
    return {row["key"]: row["severity"] for row in table_rows(directory, "key", "severity")}


def test_every_other_image_is_the_one_without_levels(levelled: Path, undisturbed: Path) -> None:
    plain = images(undisturbed)
    levelled_images = images(levelled)
    assert plain.items() <= levelled_images.items(), (
        "the base, the whole shift and other shifts, byte for byte"
    )
    by_shift = {key[: -len("_00_000000")]: value for key, value in severities(levelled).items()}
    assert by_shift == {
        "base": 0, "in_the_snow_25": 0.25, "in_the_snow_60": np.float32(0.6), "in_the_snow": 1, "red": None,
        "pencil_sketch": None,
    }  # fmt: skip
    assert "severity" in (levelled / "croissant.json").read_text(encoding="utf-8")


def test_a_milder_level_is_nearer_to_the_base(levelled: Path) -> None:
    pixels = {key: decode_image(content).astype(float) for key, content in images(levelled).items()}
    for pair in ("00_000000", "05_000001", "08_000000"):
        steps = [np.abs(pixels[f"{shift}_{pair}"] - pixels[f"base_{pair}"]).mean()
                 for shift in ("in_the_snow_25", "in_the_snow_60", "in_the_snow")]  # fmt: skip
        assert 0 < steps[0] < steps[1] < steps[2]


def test_it_is_verified_and_rerendered(levelled: Path) -> None:
    checked = verify(levelled, rerender=6)
    assert checked.whole and {row.outcome for row in checked.rerendered} == {"identical bytes"}


def test_a_cut_keeps_the_levels(levelled: Path, half_threshold: float, tmp_path: Path) -> None:
    cut = tmp_path / "cut.yaml"
    cut.write_text(f"screen: {{object_threshold: {half_threshold!r}}}")
    recut(levelled, cut, tmp_path / "cut")
    before = severities(levelled)
    after = severities(tmp_path / "cut")
    assert after.items() < before.items() and set(after.values()) == set(before.values())
    assert verify(tmp_path / "cut").whole


def test_levels_have_no_slider_and_one_entry_in_a_cut(levelled: Path, tmp_path: Path) -> None:
    page = calibrate(levelled, tmp_path / "page.html").page.read_text(encoding="utf-8")
    data = json.loads(
        page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    )
    names = [unit["name"] for unit in data["units"]]
    shown = [names[shift["unit"]] for shift in data["shifts"]]
    assert shown == ["red", "pencil_sketch"]
    snow = [unit for unit in data["units"] if unit["key"] == "in_the_snow"]
    assert [unit["top"] for unit in snow] == [False, False, True]
    assert {unit["threshold"] for unit in snow} == {None}


def test_it_is_mined_with_its_levels(levelled: Path) -> None:
    recipe = load_recipe(levelled)
    (images,) = opened_parts(recipe, [str(levelled)], open_source(recipe.source))
    assert images.units is not None
    scenes = {key[-len("00_000000") :] for key in images.keys}
    assert len(set(images.units)) == len(scenes) == 6, "a scene is one unit at whatever level"


def test_scales_are_found_on_images_of_their_own_and_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realised_levels, "SCENES_A_SEARCH", 6)
    others = (
        "prompts.shifts.red=null",
        "prompts.shifts.pencil_sketch=null",
        "samples.candidates=1",
    )
    tiny(tmp_path / "dataset", REALISED, "generator.steps=2", *others)
    scales = json.loads((tmp_path / "dataset/lock.json").read_text())["inputs"]["levels"][
        "in_the_snow"
    ]
    assert 0 < scales[0] < scales[1] == 1
    built_recipe = load_recipe(tmp_path / "dataset")
    assert built_recipe.scales == {"in_the_snow": scales}
    before = published(tmp_path / "dataset")
    regenerate(tmp_path / "dataset", tmp_path / "again", device="cpu", workers=1)
    assert published(tmp_path / "again") == before
    recipe = tmp_path / "dataset/recipe.yaml"
    recipe.write_text(recipe.read_text().replace(f"- {scales[0]}", "- 0.999"))
    with pytest.raises((UserError, RunFailure), match="levels"):
        evaluate(tmp_path / "dataset", ["lab:lcnet_035"], device="cpu")


def _rising(gain: float, bend: float, noise: float) -> np.ndarray:
    """Return scores of many scenes whose mean rises by `gain` as a power of the way."""
    rng = np.random.default_rng(0)
    return (
        rng.normal(0.2, 0.05, (400, 1))
        + gain * np.asarray(POINTS) ** bend
        + rng.normal(0, noise, (400, len(POINTS)))
    )


@pytest.mark.parametrize("bend", [0.5, 1.0, 3.0])
def test_a_scale_is_where_the_curve_reaches_the_share(bend: float) -> None:
    shares = [0.25, 0.5, 0.75, 1.0]
    scales = scales_reaching(_rising(0.1, bend, 0.01), shares)
    assert scales == pytest.approx([share ** (1 / bend) for share in shares], abs=0.04)
    assert scales[-1] == 1


def test_the_whole_shift_is_the_whole_way_where_the_curve_goes_flat() -> None:
    flat = np.minimum(_rising(0.1, 1.0, 0.0), _rising(0.1, 1.0, 0.0)[:, 6:7])
    assert scales_reaching(flat, [0.5, 1.0]) == [pytest.approx(0.375, abs=0.01), 1.0]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (_rising(0.0, 1.0, 0.02), "no clear gain"),
        (_rising(-0.1, 1.0, 0.01), "no clear gain"),
        (_rising(0.1, 1.0, 0.01) - 0.1 * np.isin(POINTS, 0.75), "falls on the way"),
    ],
)
def test_a_score_that_does_not_rise_is_refused(scores: np.ndarray, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        scales_reaching(scores, [0.5, 1.0])

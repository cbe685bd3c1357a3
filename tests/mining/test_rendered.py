"""Hypotheses are tested on images that are rendered for them: a dataset with noise of its own."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.lab.world import Scene, render
from counterfoil.mining.findings import Finding
from counterfoil.mining.findings_layer import seed_for
from counterfoil.mining.hypotheses import ClassNote, DiscoverHalf, Found, Hypothesis
from counterfoil.mining.method import FindMethod
from counterfoil.mining.methods import METHODS
from counterfoil.mining.methods.directions import grammar_captions
from counterfoil.mining.mine_recipe import mine
from counterfoil.mining.mined_files import FINDINGS, LAYER, REPORT, MineResult
from counterfoil.mining.rounds import PURPOSE, ROUND, compared_rows
from counterfoil.plan.estimate import rendered_budget
from counterfoil.plan.layout import sample_seed
from counterfoil.progress import Stage, report_progress
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import METHOD_SETTINGS, DirectionsSettings, Mine
from counterfoil.stats import count_failures, score_test
from counterfoil.store.reading import read_rows
from driven import given_up
from support.refusals import succeed

T_SHIRT = 0
PULLOVER = 1
NAMES = ("t-shirt", "pullover")
GARMENTS = (0, 2)
SIZE = 10
# For any class this prompt draws a bag, and the target answers bag: its images fail, and hardly any
# base does.
WRONG = "a photo of a bag"
LEFT = (FINDINGS, REPORT, LAYER)
TESTS = 600


def hypothesis(
    name: str, labels: tuple[int, ...], half: DiscoverHalf, role: Any = "hard"
) -> Hypothesis:
    vector = half.captions.vectors[half.captions.texts.index(WRONG)]
    # The median of a class is its cut-off: half of the class is in the set.
    cosines = half.features.astype(np.float32) @ vector
    cutoffs = tuple(float(np.median(cosines[half.labels == label])) for label in labels)
    rows = np.flatnonzero(np.isin(half.labels, labels))[:4]
    return Hypothesis(name, labels, role, name, WRONG, vector, cutoffs, rows, np.zeros(len(rows)))


def given_hypotheses(
    half: DiscoverHalf, mine: Mine, settings: DirectionsSettings, workers: int | None
) -> Found:
    """Return the same hypotheses for any rows: a class and a category that are bags, and a class
    far from a bag."""
    report_progress("told", 1, 1)
    hypotheses = (
        hypothesis("shirt_hard", (T_SHIRT,), half),
        hypothesis("top_hard", (T_SHIRT, PULLOVER), half),
        hypothesis("shirt_far_from", (T_SHIRT,), half, "far_from"),
    )
    return Found(hypotheses, (ClassNote(reason="told"),) * len(NAMES))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    images = []
    labels = []
    for label, garment in enumerate(GARMENTS):
        for number in range(10):
            stream = io.BytesIO()
            scene = Scene("validation", number, garment, colour="blue", seed=number)
            Image.fromarray(render(scene)).save(stream, "PNG")
            images.append({"bytes": stream.getvalue(), "path": None})
            labels.append(label)
    table = datasets.Dataset.from_dict({"image": images, "label": labels})
    table.cast_column("image", datasets.Image()).to_parquet(str(folder / "validation.parquet"))
    (folder / "captions.txt").write_text(f"{WRONG}\na photo of a red {{noun}}\n")
    return folder


def settings(folder: Path, *more: str) -> list[str]:
    classes = ", ".join(
        f"{{id: '{label}', name: {name}, source_label: {label}, category: top}}"
        for label, name in enumerate(NAMES)
    )
    return [
        f"source={{dataset: {folder}, unit_column: null, classes: [{classes}]}}",
        "tokens=null",
        "generator.steps=2",
        "generator.batch_size=10",
        "screen={object_threshold: -1, shift_threshold: -1, keep: [thresholds, {misclassified:"
        " {models: [lab:vit]}}]}",
        "samples={candidates: null, accepted: 3, at_most: 6}",
        "output.rows_per_shard=10",
        "evaluate.models=[lab:resnet10t]",
        f"mine={{method: told, target: lab:resnet10t, rendered: {SIZE}}}",
        f"mine.settings.captions={folder / 'captions.txt'}",
        *more,
    ]


def mined(folder: Path, out: Path, *more: str, confirm: str = "rendered") -> MineResult:
    return mine(
        "wardrobe-mini",
        out,
        overrides=settings(folder, *more),
        confirm=confirm,
        device="cpu",
        workers=1,
    )


@pytest.fixture(scope="module", autouse=True)
def methods() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHOD_SETTINGS, "told", DirectionsSettings)
        patch.setitem(
            METHODS.bundled,
            "told",
            FindMethod(DirectionsSettings, given_hypotheses, captions=grammar_captions),
        )
        yield


@pytest.fixture(scope="module")
def rendered(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    return mined(photographs, tmp_path_factory.mktemp("rendered") / "out")


def by_name(result: MineResult) -> dict[str, Finding]:
    return {finding.name: finding for finding in result.findings.findings}


def test_a_known_failure_is_seen_on_images_that_were_rendered_for_it(rendered: MineResult) -> None:
    findings = by_name(rendered)
    assert set(findings) == {"shirt_hard", "top_hard"} and rendered.findings.tested == 2
    for finding in findings.values():
        assert (
            finding.tested_on == "rendered" and finding.confirmed and finding.rendered is not None
        )
        assert (finding.set, finding.rest, finding.difference, finding.p) == (
            finding.rendered.set, finding.rendered.rest, finding.rendered.difference, finding.rendered.p
        )  # fmt: skip
        assert finding.set.rows == finding.rest.rows == SIZE
        assert (
            finding.set.rate is not None
            and finding.rest.rate is not None
            and finding.set.rate > 0.6 > 0.3 > finding.rest.rate
        )
        drawn = [piece for piece in finding.evidence if piece.half == "rendered"]
        assert "bag" in {piece.answered for piece in drawn if piece.failed}
        assert all(piece.key.startswith(f"{ROUND}/{finding.name}_") for piece in drawn) and drawn
    (untested,) = rendered.findings.not_tested
    assert untested.name == "shirt_far_from" and "it cannot be rendered" in untested.reason
    page = (rendered.directory / REPORT).read_text()
    assert (
        page.count('title="rounds/01/shirt_hard_') == page.count(' alt="rounds/01/shirt_hard_') > 0
    )
    assert "Named but not tested" in page


def test_a_round_is_a_dataset_that_no_classifier_picked(rendered: MineResult) -> None:
    folder = rendered.directory / ROUND
    assert verify(folder / "dataset").problems == ()
    rows = list(read_rows(folder / "dataset", columns=["shift", "class_id", "index", "seed"]))
    cells = {(shift, label) for shift, label in [(row["shift"], row["class_id"]) for row in rows]}
    # A hypothesis of a category is drawn of all its classes.
    assert cells == {
        ("base", "0"),
        ("base", "1"),
        ("shirt_hard", "0"),
        ("top_hard", "0"),
        ("top_hard", "1"),
    }
    recipe = load_recipe(folder / "recipe.yaml")
    assert recipe.samples.accepted is None
    assert not any(rule.judges() for shift in recipe.all_shifts() for rule in shift.keep)
    assert len(rows) == 4 * SIZE  # the base of both classes, for one of them is drawn alone
    layer = load_recipe(rendered.directory / LAYER)
    others = {
        sample_seed(seed, label, index, None)
        for seed in (layer.samples.seed, 0)
        for label in ("0", "1")
        for index in range(1000)
    }
    assert not others & {row["seed"] for row in rows}
    origin = layer.prompts.shifts["top_hard"].mined_from or {}
    assert origin["tested_on"] == "rendered" and origin["rendered"]["set"]["rows"] == SIZE


def test_a_round_and_the_layer_of_findings_keep_what_the_pairs_of_a_recipe_share(
    photographs: Path, tmp_path: Path
) -> None:
    result = mined(photographs, tmp_path / "out", "samples.pairs=attention")
    folder = result.directory / ROUND
    assert all(finding.rendered is not None for finding in result.findings.findings)
    assert verify(folder / "dataset").problems == ()
    for recipe in (load_recipe(folder / "recipe.yaml"), load_recipe(result.directory / LAYER)):
        assert recipe.samples.pairs == "attention"
        assert {recipe.beside_base(shift) for shift in recipe.all_shifts()[1:]} == {True}


def test_a_run_that_was_ended_once_it_had_rendered_goes_on_to_the_same_bytes(
    rendered: MineResult, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # without cached answers
    given = {
        "overrides": settings(photographs),
        "confirm": "rendered",
        "device": "cpu",
        "workers": 1,
    }

    dataset = out / ROUND / "dataset"
    seen: list[str] = []

    def answers_to_what_is_rendered(stage: Stage) -> bool:
        # Between build and evaluation: the dataset is closed, and the target has not answered to
        # all of it.
        seen.append(stage.name)
        return f"{ROUND}: images" in seen and seen[-1] == "lab:resnet10t"

    with given_up(answers_to_what_is_rendered):
        mine("wardrobe-mini", out, **given)
    assert (dataset / "manifest.json").exists() and not (out / FINDINGS).exists()
    mine("wardrobe-mini", out, **given)
    first = rendered.directory
    for name in LEFT:
        assert (out / name).read_bytes() == (first / name).read_bytes()
    paths = [path.relative_to(dataset) for path in dataset.rglob("*.parquet")]
    assert paths and all(
        (dataset / path).read_bytes() == (first / ROUND / "dataset" / path).read_bytes()
        for path in paths
    )


def test_both_must_reject_and_what_cannot_be_drawn_is_tested_on_rows(
    rendered: MineResult, photographs: Path, tmp_path: Path
) -> None:
    shutil.copytree(rendered.directory, tmp_path / "out")
    both = mined(photographs, tmp_path / "out", confirm="both")
    rows = by_name(mined(photographs, tmp_path / "rows", confirm="rows"))
    assert not (tmp_path / "rows" / "rounds").exists() and not both.findings.not_tested
    drawn = by_name(rendered)
    assert {
        finding.name for finding in both.findings.findings if finding.tested_on == "both"
    } == set(drawn)
    for name, finding in by_name(both).items():
        assert (finding.set, finding.rest) == (rows[name].set, rows[name].rest)
        if finding.rendered is None:
            assert name == "shirt_far_from" and finding.p == rows[name].p
        else:
            assert finding.p == max(rows[name].p, drawn[name].p)
            assert (finding.rendered.set, finding.rendered.p) == (drawn[name].set, drawn[name].p)


def test_a_round_of_other_hypotheses_is_refused_and_left_as_it_is(
    rendered: MineResult, photographs: Path
) -> None:
    layer = (rendered.directory / ROUND / "recipe.yaml").read_bytes()
    with pytest.raises(UserError, match="rendered for other hypotheses or with other settings"):
        mined(photographs, rendered.directory, "mine.rendered=20")
    assert (rendered.directory / ROUND / "recipe.yaml").read_bytes() == layer


@pytest.mark.parametrize(
    ("confirm", "more", "problem"),
    [
        ("rendered", "mine.target=predictions:answers.csv", "asks the target about new images"),
        ("both", "generator={kind: rows, model: null, steps: null, guidance: null, dtype: null,"
            " batch_size: null,"
         " rows: {base: {'0': [0]}}}", "cannot render from noise"),
        ("drawn", "mine.fdr=0.1", "found 'drawn', expected rows, rendered, both"),
    ],
)  # fmt: skip
def test_what_cannot_be_rendered_or_answered_is_told_first(
    confirm: str, more: str, problem: str, photographs: Path, tmp_path: Path
) -> None:
    plain = [
        "screen.keep=thresholds",
        "samples={candidates: 3, accepted: null, at_most: null, noise: independent}",
    ]
    with pytest.raises(UserError, match=problem):
        mined(photographs, tmp_path / "out", *plain, more, confirm=confirm)


def test_only_whole_pairs_of_several_classes_are_compared() -> None:
    labels = np.array([0, 0, 1, 1, 0, 0, 1, 1, 2])
    indices = np.array([0, 1, 0, 1, 0, 1, 0, 2, 0])
    shifts = np.array([0, 0, 0, 0, 3, 3, 3, 3, 0])
    whole = np.ones(9, dtype=bool)
    vector = np.zeros(2, dtype=np.float32)
    none = np.zeros(0, dtype=np.int64)
    pooled, alone = (
        Hypothesis("x", classes, "hard", "x", "x", vector, (0.0,) * len(classes), none, np.zeros(0))
        for classes in ((0, 1), (1,))
    )
    rows, ours = compared_rows(pooled, 3, shifts, labels, indices, whole)
    assert rows[ours].tolist() == [4, 5, 6] and rows[~ours].tolist() == [0, 1, 2]
    assert np.bincount(labels[rows[ours]]).tolist() == np.bincount(labels[rows[~ours]]).tolist()
    of_one = shifts * (labels == 1)
    rows, ours = compared_rows(alone, 3, of_one, labels, indices, whole)
    assert rows[ours].tolist() == [6, 7] and rows[~ours].tolist() == [2, 3]
    whole[0] = whole[4] = False  # cannot be decoded
    rows, _ = compared_rows(pooled, 3, shifts, labels, indices, whole)
    assert rows.tolist() == [1, 2, 5, 6]


def test_shared_noise_makes_the_test_stricter_and_never_looser() -> None:
    """At most 5 % of tests reject at .05 if the set's rate is the base's plus the margin."""
    rng = np.random.default_rng(5)
    margin = 0.05
    base = 0.3
    n = 60
    rejected = {}
    for shared in (0.0, 0.8):
        rejections = 0
        for _ in range(TESTS):
            common = rng.random(n) < shared
            first = rng.random(n)
            second = rng.random(n)
            failed = np.concatenate([np.where(common, first, second) < base + margin, first < base])
            counts = count_failures(failed, np.tile(np.arange(n), 2), np.repeat([True, False], n))
            rejections += score_test(*counts, margin) <= 0.05
        rejected[shared] = rejections / TESTS
    assert rejected[0.8] < rejected[0.0] <= 0.05 + 3 * (0.05 * 0.95 / TESTS) ** 0.5


@given(
    st.integers(0, 2**53 - 1), st.integers(0, 2**20), st.sampled_from(["directions", "bugs"]), st.text(max_size=20),
    st.sampled_from(["0", "n02093428"]), st.integers(0, 10_000), st.integers(0, 10_000),
)  # fmt: skip
def test_a_rounds_noise_is_no_others(
    seed: int,
    halves: int,
    method: str,
    target: str,
    class_id: str,
    index: int,
    other_index: int,
) -> None:
    noise_seed = seed_for(seed, PURPOSE, method, target, halves)
    others = [
        seed,
        seed_for(seed, "layer", method, target, halves),
        seed_for(seed, PURPOSE, method, target, halves + 1),
    ]
    assert 0 <= noise_seed < 2**53
    drawn = sample_seed(noise_seed, class_id, index, None)
    assert all(
        noise_seed != other and drawn != sample_seed(other, class_id, other_index, None)
        for other in others
    )
    assert noise_seed == seed_for(seed, PURPOSE, method, target, halves)


def test_check_prices_the_most_that_can_be_rendered(
    rendered: MineResult, photographs: Path
) -> None:
    recipe = load_recipe("wardrobe-mini", settings(photographs, "mine.confirm=both"))
    budget = rendered_budget(recipe, 2.0)
    assert budget is not None
    # One hypothesis a class and a category, of ten images each; and the base of both classes.
    assert (budget.hypotheses, budget.images, budget.seconds) == (3, 30 + 20, 25.0)
    assert (budget.hypothesis_images, budget.hypothesis_seconds) == (20, 10.0)
    rows = list(read_rows(rendered.directory / ROUND / "dataset", columns=["key"]))
    assert len(rows) <= budget.images
    assert rendered_budget(load_recipe("wardrobe-mini", settings(photographs))) is None


def test_check_tells_the_budget_where_images_are_rendered_and_only_there() -> None:
    plain = succeed("check", "wardrobe-mini").stdout
    priced = succeed("check", "wardrobe-mini", "--set", "mine.confirm=rendered").stdout
    assert "mine" not in plain.replace("mined", "")
    more = [line for line in priced.splitlines() if line not in plain.splitlines()]
    assert "1,000" in more[0] and "10 hypotheses" in more[0]
    assert "100 images per hypothesis" in more[1]
    bugs = CliRunner().invoke(app, ["check", "wardrobe-bugs"]).stdout
    assert "1,024" in bugs
    assert "more images at most for each confirmed one, to estimate its error rates" in bugs
    words = ("check", "wardrobe-mini", "--set", "mine.confirm=rendered", "--json")
    assert '"mine": {' in succeed(*words).stdout

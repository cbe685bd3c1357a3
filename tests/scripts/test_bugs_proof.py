"""The proof of bugs: its rounds are those that `mine` builds, words name what they say, its
arithmetic holds."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import results_page as report
from bugs_proof import ranks
from bugs_proof.arms import keyword_scores
from bugs_proof.audits import Audit
from bugs_proof.nulls import exchanged
from bugs_proof.paper_table import log_e
from bugs_proof.pictures import PictureCell
from bugs_proof.plan import LAB, PLANTED, PRINTED_SEED, SETTINGS_SEED, Asked
from bugs_proof.reachable import is_planted
from bugs_proof.runs import Carried, Run, Shown, kept_run, replayed
from bugs_proof.screen import CANDIDATES, of_target
from bugs_proof.truth import BASE, Truth, shown
from bugs_proof.words import contexts, named, renderable
from counterfoil.lab.planted import named_world
from counterfoil.lab.vocabulary import CLASSES, MARKS
from counterfoil.lab.world import render
from counterfoil.mining.methods.bugs.descriptions import Description, Piece
from counterfoil.mining.methods.bugs.trials import BugHypothesis, RoundAsked
from counterfoil.models.names import local_folder
from counterfoil.paired_stats import count_pairs, log_e_value

SNOW = Description((Piece("in the snow", "after"),))


@pytest.mark.whole
def test_a_round_has_the_rows_noise_and_bytes_of_one_that_is_built(tmp_path: Path) -> None:
    quick = (
        "generator.batch_size=4",
        "generator.steps=2",
        "screen.object_threshold={value: 0.1, percentile: null}",
    )
    audit = Audit("lab:lcnet_035", Asked(SETTINGS_SEED, quick), tmp_path)
    drawer = audit.drawer("test")
    request = RoundAsked(3, "test", 3, {"sandal_snow": BugHypothesis("sandal_snow", 5, SNOW)}, (5,))
    ours = drawer(request)
    drawer.drawer.run.folder.mkdir(parents=True, exist_ok=True)
    built = drawer.drawer(request)
    assert ours.seed == built.seed
    assert (ours.keys, ours.shift_names) == (built.keys, built.shift_names)
    for name in ("shifts", "labels", "indices", "failed", "answers"):
        assert np.array_equal(getattr(ours, name), getattr(built, name)), name
    assert dict(ours.images.images()) == dict(built.images.images())
    drawn = audit.store.drawn
    again = audit.drawer("again")
    again(request)
    assert audit.store.drawn == drawn == 6
    # Drawing more of a cell continues after its last image.
    again(RoundAsked(3, "test", 4, {}, (5,)))
    assert audit.store.drawn == drawn + 1


def test_the_screen_is_judged_on_contexts_of_which_an_image_is_kept() -> None:
    contexts = [[[10, 5, 8], [20, 2, 20]], [[0, 0, 0], [20, 2, 20]], [[10, 1, 10], [20, 4, 10]]]
    true = np.array([[0.3, 0.1], [0.9, 0.1], [0.2, 0.1]])
    means = of_target(np.array(contexts), true)
    assert means["kept"] == pytest.approx(20 / (3 * CANDIDATES)) and means[
        "of the class"
    ] == pytest.approx(18 / 20)
    assert (means["context"], means["base"]) == pytest.approx((0.3, 0.15))
    # Differences of .4 and -.1, which are truly .2 and .1.
    assert (means["difference"], means["error"]) == pytest.approx((0.15, 0.2))
    assert means["right"] == (1, 1)


def test_words_name_what_they_say() -> None:
    for label in range(len(CLASSES)):
        for claim, description in contexts(label).items():
            assert named(description) == (claim,)
    assert ("pattern", MARKS["coat"]) not in contexts(CLASSES.index("coat"))
    three_pieces = Description(
        (Piece("red", "before"), Piece("striped", "before"), Piece("by a brick wall", "after"))
    )
    assert named(three_pieces) == (
        ("background", "brick"),
        ("colour", "red"),
        ("pattern", "striped"),
    )
    assert named(Description((Piece("black and white pencil sketch of", "lead"),))) == (
        ("style", "sketch"),
    )
    assert named(Description((Piece("shiny", "before"),))) == ()
    two = named(Description((Piece("red", "before"), Piece("blue", "before"))))
    assert len(two) == 2 and not renderable(two)


def test_the_truth_changes_what_is_claimed_and_nothing_else(tmp_path: Path) -> None:
    class Panel:
        names = ("red is wrong",)
        weights: ClassVar = ["red is wrong"]

        def failed_pixels(self, pixels, label, names):
            reddish = pixels[..., 0].mean(axis=(1, 2)) - pixels[..., 2].mean(axis=(1, 2)) > 10
            return dict.fromkeys(names, reddish)

    plain = {
        "colour": "blue", "pattern": "plain", "background": "snow", "weather": "clear", "light": "day",
        "companion": "none", "style": "photo",
    }  # fmt: skip
    truth = Truth(Panel(), {0: [plain, plain | {"colour": "white"}]}, tmp_path, 8)  # pyrefly: ignore[bad-argument-type]
    base = truth.scenes(0)
    assert {scene.colour for scene in base} == {"blue", "white"}
    assert [render(scene).tobytes() for scene in truth.scenes(0, 2, 5)] == [
        render(scene).tobytes() for scene in base[2:5]
    ]
    estimate = truth.rate("red is wrong", 0, (("colour", "red"),))
    assert (estimate.rate, estimate.base, estimate.scenes) == (1.0, 0.0, 8)
    assert truth.rate("red is wrong", 0, BASE).drop == 0
    assert shown(truth.mix[0], (("colour", "white"),)) == 0.5


def test_planted_cells_are_those_of_the_world() -> None:
    for target in PLANTED:
        world = named_world(target.rpartition("/")[2])
        assert world is not None
        if world.attribute in ("background", "colour") and world.planted is not None:
            planted = is_planted(target, world.planted, ((world.attribute, str(world.value)),))
            assert planted == (world.kind == "noisy")
            assert is_planted(target, world.planted, ((world.attribute, "another"),)) == (
                not planted
            )
            assert not is_planted(target, (world.planted + 1) % 10, ((world.attribute, "another"),))
    assert not is_planted(LAB[0], 5, (("background", "snow"),))


def test_a_keyword_of_what_failed_scores_above_one_of_what_is_right() -> None:
    axes = np.eye(3)
    scores = keyword_scores(axes[[0, 0, 1, 1]], np.array([True, True, False, False]), axes)
    assert scores.tolist() == [100, -100, 0]
    assert not keyword_scores(axes, np.array([True] * 3), axes).any()


def carried(cell: str, base: str, looks: tuple[int, ...], *, confirmed: bool = False) -> Carried:
    def at(pairs: int) -> tuple[int, float]:
        count = count_pairs(
            [bit == "1" for bit in cell[:pairs]], [bit == "1" for bit in base[:pairs]]
        )
        return pairs, log_e_value(count.failing, count.discordant)

    return Carried(
        "x", 5, "sandal in the snow", (("in the snow", "after"),), "found", None, "open", confirmed, None, cell, base,
        tuple(map(at, looks)), (), (),
    )  # fmt: skip


def test_a_run_is_kept_as_it_was_and_made_once(tmp_path: Path) -> None:
    shown_there = (Shown(PictureCell("a photo of a sandal", "05", 7), (0, 2)),)
    finding = replace(
        carried("101", "001", (2, 3), confirmed=True), pictures=shown_there, beside=shown_there
    )
    run = Run(
        "lab:lcnet_035",
        "random",
        500,
        (("baseline", 80), ("test", 32)),
        (finding,),
        {"04": "fails"},
        1,
    )
    audit = Audit("lab:lcnet_035", Asked(SETTINGS_SEED), tmp_path)
    calls = []
    for _ in range(2):
        assert kept_run(audit, "random", None, lambda: calls.append(1) or run) == run
    assert len(calls) == 1 and run.findings == (finding,)
    assert finding.claims == (("background", "snow"),) and finding.count.failing == 1
    other = Audit("lab:lcnet_035", Asked(SETTINGS_SEED, ("mine.fdr=0.2",)), tmp_path)
    kept_run(other, "random", None, lambda: calls.append(1) or run)
    assert len(calls) == 2


def test_exchanged_pairs_confirm_no_more_than_alpha() -> None:
    rng = np.random.default_rng(0)
    cells = ["".join("01"[int(bit)] for bit in rng.random(64) < 0.7) for _ in range(4)]
    base = ["".join("01"[int(bit)] for bit in rng.random(64) < 0.2) for _ in range(4)]
    hypotheses = tuple(
        carried(*pair, (16, 32, 64), confirmed=True) for pair in zip(cells, base, strict=True)
    )
    assert all(hypothesis.looks[-1][1] > np.log(40) for hypothesis in hypotheses)
    run = Run("lab:x", "bugs", 500, (), hypotheses, {}, 0)
    counts = exchanged(run, 0.1, 0.05, replicates=300)
    assert counts["runs"] / 300 <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 300)
    assert counts["tested"] == 4


def test_a_run_is_replayed_at_the_rates_that_it_measured() -> None:
    cell = "1" * 20 + "0" * 12
    base = "0" * 30 + "11"
    replay = replayed(
        Run("lab:x", "bugs", 500, (), (carried(cell, base, (16, 32), confirmed=True),), {}, 0), 0.1
    )
    assert (
        replay is not None
        and replay.pairs == 32
        and replay.confirmed == 1
        and replay.fixed is not None
    )
    assert 5 < replay.fixed < 32
    assert replayed(Run("lab:x", "bugs", 500, (), (), {}, 0), 0.1) is None


def test_a_rank_without_a_description_has_no_means() -> None:
    nothing = {
        "right": [0, 0],
        "described": 0,
        "pieces": 0,
        "drop": None,
        "same": 0,
    }
    some = {
        "right": [1, 2],
        "described": 4,
        "pieces": 6,
        "drop": 0.25,
        "same": 3,
    }
    first, *others = ranks.RANKS
    results = {"a": {"clusters": 5, "ranks": {first: some} | dict.fromkeys(others, nothing)}}
    *_, described, _, empty = ranks.table(results)
    assert described.startswith(f"| `{first}` | 5 | 4 | 3 | 1.5 | ")
    assert described.endswith(" of 2 | 25 points |")
    assert empty == f"| `{others[-1]}` | 5 | 0 | 0 | – | – of 0 | – |"


def test_a_section_replaces_its_own_alone(tmp_path: Path) -> None:
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n\nbefore\n")
    report.write(
        path, "prove_x", "X", ["once"], {"one": ["first"], "two": ["second"]}, ["one", "two"]
    )
    report.write(path, "bench_x", "Y", [], {"one": ["bench"]}, ["one"])
    report.write(path, "prove_x", "X", ["twice"], {"two": ["changed"]}, ["one", "two"])
    text = path.read_text()
    assert "before" in text and "bench" in text and "first" in text and "changed" in text
    assert "second" not in text and "once" not in text
    assert [
        text.count(mark)
        for mark in ("<!-- prove_x: begin -->", "<!-- prove_x: one -->", "\nbench\n")
    ] == [1, 1, 1]


def test_every_part_tells_its_own_worlds_versions_and_date(tmp_path: Path) -> None:
    """Measuring a part again in fewer worlds changes nothing in the others' tables."""
    path = tmp_path / "RESULTS.md"
    old = "<!-- prove_x: old -->\nfrom before\n\n<!-- prove_x: old ends -->\n"
    path.write_text(f"<!-- prove_x: begin -->\n{old}<!-- prove_x: end -->\n")
    order = ["one", "two", "old"]
    worlds = {
        part: report.by_kind([f"rare-{seed}" for seed in range(100, end)])
        for part, end in (("one", 125), ("two", 101))
    }
    report.write(
        path,
        "prove_x",
        "X",
        ["Opening."],
        {part: [f"| {part} |"] for part in worlds},
        order,
        worlds,
    )
    report.write(
        path,
        "prove_x",
        "X",
        ["Opening."],
        {"two": ["| again |"]},
        order,
        {"two": report.by_kind(["null-100", "lab:x"])},
    )
    opening, first, second, before, _ = re.split(
        r"<!-- prove_x: \w+ -->", path.read_text().partition("begin -->")[2]
    )
    assert "Written on" not in opening and "numpy" not in opening
    assert (
        "of 25 worlds (rare 100 101" in first
        and f"numpy {np.__version__}" in first
        and str(date.today()) in first
    )
    assert "of 1 world and 1 classifier (null 100; lab:x)" in second and "rare" not in second
    assert "from before" in before and "were not kept" in before
    report.write(path, "prove_x", "X", [], {}, order)
    assert path.read_text().count("were not kept") == 1


def test_no_printed_run_chose_a_setting() -> None:
    assert PRINTED_SEED >= 100 and 0 <= SETTINGS_SEED < 4
    assert all(local_folder(target) is not None for target in itertools.chain(LAB, PLANTED))


@pytest.mark.parametrize("target", [LAB[0], PLANTED[0]])
def test_the_rules_of_parents_move_nothing_here(target: str, tmp_path: Path) -> None:
    """Count failures by the best output, as the recipe does, whose classes have no parents."""
    audit = Audit(target, Asked(PRINTED_SEED), tmp_path)
    assert audit.mine.failure == "top1"
    assert all(cls.parent is None and not cls.kinds for cls in audit.recipe.classes)
    label = 5
    panel = audit.panel
    outputs = np.arange(10)
    expected = [output not in panel.right_of(target)[label] for output in outputs]

    class Answers:
        answers = staticmethod(lambda store, cell, name: outputs)
        right_of = panel.right_of
        failed = type(panel).failed

    shown: Any = Answers()
    assert shown.failed(audit.store, PictureCell("", "05", 0), label, target).tolist() == expected


@pytest.mark.parametrize(("failing", "rescued"), [(0, 0), (0, 7), (30, 12)])
def test_the_paper_tables_e_value_is_an_average_over_alternatives(
    failing: int, rescued: int
) -> None:
    # θ = sin² of an angle that is uniform from π/4 to π/2.
    share = np.sin(np.pi / 4 + (np.arange(200_000) + 0.5) / 200_000 * np.pi / 4) ** 2
    average = ((2 * share) ** failing * (2 * (1 - share)) ** rescued).mean()
    assert log_e(failing, rescued) == pytest.approx(np.log(average), rel=1e-6, abs=1e-6)
    assert log_e(failing, rescued) == pytest.approx(
        log_e_value(failing, failing + rescued), abs=1e-9
    )


@pytest.mark.parametrize("target", ["lab:planted/rare-0"])
def test_merged_classes_are_right_by_either_name(target: str, tmp_path: Path) -> None:
    world = named_world("rare-0")
    assert world is not None
    right = Audit(target, Asked(0), tmp_path).panel.right_of(target)
    assert all(
        world.class_names[index].find(name) >= 0
        for name, (index,) in zip(CLASSES, right, strict=True)
    )

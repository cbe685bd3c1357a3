"""Audited images: contents, conditions as problems of two classes, and whole runs with several
conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from huggingface_hub import CommitOperationAdd
from mined_examples import PLACES, answer, on_the_beach, recipe_sets, save_split, scenes

import warm
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.labels import ConditionLabels
from counterfoil.data.open_source import open_source
from counterfoil.documents import parse_document
from counterfoil.errors import UserError
from counterfoil.lab.world import Scene, load_garments
from counterfoil.mining.audited import ContentsSeen, audit_target, condition_questions, row_labels
from counterfoil.mining.findings import Findings
from counterfoil.mining.mine_recipe import MineResult, mine
from counterfoil.prediction.class_map import ClassMap
from counterfoil.recipe import Recipe, load_recipe
from loopback_hub import LoggedRequest, LoopbackHub, client, client_environment
from tiny_builds import command

SHOWN = scenes(0, 12)


@pytest.mark.parametrize("seed", range(4))
def test_an_image_under_two_units_is_in_one_half(seed: int, tmp_path: Path) -> None:
    shown = [*SHOWN, SHOWN[0], SHOWN[1]]  # copies, filed under other names
    units = [f"patient {row // 2}" for row in range(len(shown))]
    save_split(
        tmp_path / "data",
        "validation",
        shown,
        label=[scene.label for scene in shown],
        patient=units,
    )
    target = answer(tmp_path / "answers.csv", shown, lambda scene: False)
    sets = [*recipe_sets(tmp_path / "data"), "source.unit_column=patient", f"mine.seed={seed}"]
    recipe = load_recipe("wardrobe-mini", [*sets, f"mine.target={target}"])
    assert recipe.mine is not None
    (audited,), _ = audit_target(recipe, recipe.mine, open_source(recipe.source), "cpu")
    discover = np.isin(np.arange(len(shown)), audited.halves.discover)
    assert discover[0] == discover[1] == discover[12] == discover[13]
    assert 0 < discover.sum() < len(shown)
    assert audited.dealt_by == "unit"


def test_rows_are_read_once_whoever_reads_them(tmp_path: Path) -> None:
    read: list[str] = []

    def reading(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for row, key in enumerate(("a", "b", "c")):
            if wanted is None or key in wanted:
                read.append(key)
                yield key, None if key == "c" else bytes([row // 2])

    nothing = np.zeros(3, np.int64)
    images = LabelledImages("three", "0" * 64, ("a", "b", "c"), nothing, nothing, ("all",), reading)
    seen = ContentsSeen(images, tmp_path)
    assert [key for key, _ in seen.images.images(frozenset("ac"))] == ["a", "c"]
    contents = seen.known()
    assert contents[0] == contents[1] != contents[2]
    assert sorted(read) == ["a", "b", "c"]
    assert ContentsSeen(images, tmp_path).known() == contents
    assert sorted(read) == ["a", "b", "c"]
    other = replace(images, content="1" * 64, keys=("a", "b"))
    assert ContentsSeen(other, tmp_path).known() == contents[:2]


def test_each_condition_is_a_question_of_two_classes() -> None:
    rng = np.random.default_rng(0)
    present = rng.random((60, 3)) < 0.4
    values = rng.random((60, 3))
    values[7] = np.nan  # of an image without an answer
    classifier: Any = None
    outputs = ClassMap("names", 3, ((0,), (1,), (2,)))
    has = ConditionLabels(("a", "b", "c"), present.astype(np.int8))
    chosen_on = np.arange(10, 40)
    read = np.arange(60) != 7
    judged = condition_questions(classifier, outputs, values, has, chosen_on)
    assert [question.classes for question in judged] == [(0, 1), (2, 3), (4, 5)]
    for k, question in enumerate(judged):
        yes, no = question.classes
        assert np.array_equal(question.labels == yes, present[:, k])
        assert np.array_equal(question.labels == no, ~present[:, k])
        limit = question.target.about["thresholds"]["abc"[k]]
        assert np.array_equal(question.failed, ((values[:, k] >= limit) != present[:, k]) & read)
        # A right answer is the label; a wrong one is the other class of the condition.
        assert np.array_equal(
            question.target.predictions.answers[:, 0] == question.labels, ~question.failed
        )
        assert (np.sort(question.target.predictions.answers, axis=1) == question.classes).all()


def test_a_row_has_a_label_of_every_condition() -> None:
    rows, labels = row_labels(np.array([[True, False, True], [False, False, True]]))
    assert rows.tolist() == [0, 0, 0, 1, 1, 1]
    assert labels.tolist() == [0, 3, 4, 1, 3, 4]


CONDITIONS = ("Striped", "Flower")
CAPTIONS = """
captions:
  - a photo of a shirt in the beach
  - a photo of a shirt in the snow
  - a photo of a shirt on the road
  - a photo of a shirt in the forest
  - a photo of a red shirt
reference: a photo of a shirt
"""


def patients(first: int, count: int) -> list[Scene]:
    """Return two scenes of each garment: both striped or both plain, each with or without a
    flower."""
    rng = np.random.default_rng(first)
    shirts = np.flatnonzero(load_garments("audit").labels == 6).tolist()
    pictures = []
    for number in range(first, first + count):
        pattern = "striped" if rng.random() < 0.5 else "plain"
        for picture in range(2):
            background = (
                "beach" if rng.random() < 0.4 else PLACES[int(rng.integers(1, len(PLACES)))]
            )
            companion = "flower" if rng.random() < 0.4 else "none"
            seed = 2 * number + picture
            pictures.append(
                Scene(
                    "audit",
                    shirts[number],
                    6,
                    "blue",
                    pattern,
                    background,
                    companion=companion,
                    seed=seed,
                )
            )
    return pictures


AUDITED = patients(0, 90)
POOL = patients(130, 30)
TRAIN = patients(170, 12)


def present(scene: Scene) -> tuple[bool, bool]:
    return scene.pattern == "striped", scene.companion == "flower"


def scored(scene: Scene) -> tuple[float, float]:
    """Score both conditions. Stripes are missed on the beach, seldom elsewhere; flowers are missed
    at random."""
    striped, flower = present(scene)
    unlucky = np.random.default_rng(scene.seed).random(2)
    missed = unlucky[0] < (0.9 if scene.background == "beach" else 0.05)
    stripes = 0.3 if not striped else 0.1 if missed else 0.8
    return stripes + unlucky[1] / 100, 0.9 if flower != (unlucky[1] < 0.1) else 0.2


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "data"
    (folder.parent / "captions.yaml").write_text(CAPTIONS)
    for split, shown in (("validation", AUDITED), ("test", POOL), ("train", TRAIN)):
        columns = {
            name: [int(present(scene)[k]) for scene in shown] for k, name in enumerate(CONDITIONS)
        }
        save_split(folder, split, shown, patient=[scene.garment for scene in shown], **columns)
    lines = ["key,Flower,Striped"]  # in another order than the recipe's
    lines += [
        f"validation_{row:08d},{scored(scene)[1]},{scored(scene)[0]}"
        for row, scene in enumerate(AUDITED)
    ]
    (folder.parent / "answers.csv").write_text("\n".join(lines) + "\n")
    perfect = [
        f"validation_{row:08d},{present(scene)[1]:d},{present(scene)[0]:d}"
        for row, scene in enumerate(AUDITED)
    ]
    (folder.parent / "perfect.csv").write_text("\n".join([lines[0], *perfect]) + "\n")
    return folder


def sets(world: Path) -> list[str]:
    names = ("striped", "no stripes", "flower", "no flower")
    classes = ", ".join(
        f"{{id: c{label}, name: {name}, source_label: {label}}}" for label, name in enumerate(names)
    )
    return [
        f"source.dataset={world}", f"source.classes=[{classes}]", "tokens=null", "source.unit_column=patient",
        "source.conditions={columns: [Striped, Flower]}", "mine.on=[validation]",
        f"mine.others=['predictions:{world.parent / 'perfect.csv'}']",
        f"mine.target=predictions:{world.parent / 'answers.csv'}",
        f"mine.settings={{captions: {world.parent / 'captions.yaml'}, permutations: 5}}",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def result(world: Path, tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    out = tmp_path_factory.mktemp("mined")
    return mine(
        "wardrobe-mini",
        out,
        overrides=sets(world),
        device="cpu",
        workers=1,
        pool="test",
        pool_rows=5,
        weights=True,
    )


def recipe_of(world: Path, *more: str) -> Recipe:
    return load_recipe("wardrobe-mini", [*sets(world), *more])


def test_what_a_condition_fails_in_is_found_for_those_that_have_it(result: MineResult) -> None:
    findings = result.findings
    assert [cls.name for cls in findings.classes] == [
        "striped",
        "no stripes",
        "flower",
        "no flower",
    ]
    first = next(finding for finding in findings.confirmed if finding.role == "hard")
    assert first.class_names == ("striped",)
    assert "beach" in first.caption
    assert (first.set.rate or 0) - (first.rest.rate or 0) > 0.4
    # Scenes without stripes are never wrong: their scores are far below the threshold.
    assert findings.classes[1].errors == 0
    assert findings.classes[1].reason == "no errors"
    assert {finding.class_names for finding in findings.confirmed} == {("striped",)}
    assert {piece.answered for piece in first.evidence if piece.failed} == {"no stripes"}
    assert {piece.answered for piece in first.evidence if not piece.failed} == {"striped"}


def test_other_classifiers_have_thresholds_of_their_own(result: MineResult) -> None:
    for finding in result.findings.findings:
        (other,) = finding.others
        assert (other.set.rate, other.rest.rate) == (0, 0)


def test_each_condition_counts_every_row_once(result: MineResult) -> None:
    rows = [cls.rows for cls in result.findings.classes]
    truth = np.asarray([present(scene) for scene in AUDITED])
    assert rows == [
        truth[:, 0].sum(),
        (~truth[:, 0]).sum(),
        truth[:, 1].sum(),
        (~truth[:, 1]).sum(),
    ]
    halves = result.findings.halves
    assert halves is not None
    assert halves.discover.rows + halves.confirm.rows == len(AUDITED)
    assert halves.discover.units + halves.confirm.units == len(AUDITED) // 2  # patients


def test_thresholds_are_of_the_discover_half_alone_and_are_told(
    world: Path, result: MineResult
) -> None:
    """Other answers on the confirm half change no threshold."""
    recipe = recipe_of(world)
    assert recipe.mine is not None
    audits, _ = audit_target(recipe, recipe.mine, open_source(recipe.source), "cpu")
    confirm = {audits[0].keys[row] for row in audits[0].halves.confirm.tolist()}
    lines = (world.parent / "answers.csv").read_text().splitlines()
    changed = [
        f"{line.split(',')[0]},0.5,0.5" if line.split(",")[0] in confirm else line for line in lines
    ]
    (world.parent / "other.csv").write_text("\n".join(changed) + "\n")
    again = recipe_of(world, f"mine.target=predictions:{world.parent / 'other.csv'}")
    assert again.mine is not None
    others, _ = audit_target(again, again.mine, open_source(again.source), "cpu")
    thresholds = result.findings.target.about["thresholds"]
    assert (
        thresholds == audits[0].target.about["thresholds"] == others[0].target.about["thresholds"]
    )
    assert list(thresholds) == list(CONDITIONS)
    assert not np.array_equal(audits[1].failed, others[1].failed)
    assert "best F1 on the discover half" in result.files["report"].read_text()


def test_the_layer_and_the_vectors_name_the_classes_of_the_condition(result: MineResult) -> None:
    recipe = load_recipe(result.files["recipe"])
    hard = [shift for shift in recipe.prompts.shifts.values() if shift.group == "hard"]
    assert [shift.classes for shift in hard] == [("c0",)] * len(hard)
    assert hard
    from safetensors.numpy import load

    vectors = load(result.files["vectors"].read_bytes())
    assert "c0_weights" in vectors
    assert "c1_weights" not in vectors


def test_rows_of_a_pool_and_weights_go_by_condition(result: MineResult) -> None:
    pool = result.pool
    assert pool is not None
    chosen = [POOL[row] for row in pool.hardest.rows[0].tolist()]
    assert len(chosen) == 5
    assert all(scene.pattern == "striped" for scene in chosen)
    assert np.mean([scene.background == "beach" for scene in chosen]) >= 0.8
    assert 1 not in pool.hardest.rows
    # A row has a class for each condition. Classes with a direction are those that gave rows.
    labels = [{0 if present(scene)[0] else 1, 2 if present(scene)[1] else 3} for scene in POOL]
    assert pool.hardest.unlabelled == sum(not label & set(pool.hardest.rows) for label in labels)
    recipe = load_recipe(result.files["pool"])
    assert recipe.source.conditions is not None
    table = pq.read_table(result.files["weights"])
    assert table.column_names == ["key", "row", *CONDITIONS]
    heavy = [
        scene
        for scene, weight in zip(TRAIN, table["Striped"].to_pylist(), strict=True)
        if weight == 2
    ]
    assert heavy
    assert all(scene.pattern == "striped" for scene in heavy)


def test_images_rendered_for_one_condition_test_nothing(world: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="draws images of one class each, and rows here have conditions"
    ):
        mine("wardrobe-mini", tmp_path, overrides=sets(world), device="cpu", confirm="rendered")


def test_what_ranks_answers_is_no_rule_for_a_condition(world: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a condition is only yes or no"):
        mine("wardrobe-mini", tmp_path, overrides=[*sets(world), "mine.failure=top3"], device="cpu")


ON_THE_HUB = "someone/scenes"


def put_version(hub: LoopbackHub, folder: Path, shown: dict[str, list[Scene]]) -> None:
    """Commit a version of the dataset on the Hub: a file for each split."""
    additions = []
    for split, rows in shown.items():
        save_split(folder, split, rows)
        additions.append(
            CommitOperationAdd(f"{split}.parquet", (folder / f"{split}.parquet").read_bytes())
        )
    client(hub).create_commit(
        ON_THE_HUB, additions, commit_message="A version", repo_type="dataset"
    )


def test_all_rows_of_a_run_are_of_one_commit_wherever_the_branch_goes(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    client(loopback).create_repo(ON_THE_HUB, repo_type="dataset")
    first = {"validation": scenes(0, 40), "train": scenes(300, 10), "test": scenes(400, 30)}
    put_version(loopback, tmp_path / "first", first)
    before = loopback.keep(ON_THE_HUB)
    put_version(
        loopback,
        tmp_path / "second",
        {"validation": scenes(20, 40), "train": scenes(350, 6), "test": scenes(440, 8)},
    )
    after = loopback.keep(ON_THE_HUB)
    loopback.put_back(before)
    moved: list[str] = []

    def move(request: LoggedRequest) -> None:
        if not moved and request.path.endswith("/validation.parquet"):
            moved.append(request.path)
            loopback.put_back(after)

    loopback.on_request = move
    target = answer(tmp_path / "answers.csv", first["validation"], on_the_beach)
    sets = recipe_sets(tmp_path / "data", **{"mine.train_rows": 100, "mine.others": "[]"})
    sets[0] = f"source.dataset={ON_THE_HUB}"
    out = tmp_path / "out"
    words, environment = command(
        "mine", "wardrobe-mini", "--target", target, "--on", "validation", "--pool", "test", "--weights",
        "--out", str(out), "--device", "cpu", "--workers", "1", *(word for item in sets for word in ("--set", item)),
    )  # fmt: skip
    warm.run(
        words, client_environment(loopback, tmp_path / "home", inherited=environment), check=True
    )
    assert moved and len(loopback.commits(ON_THE_HUB)) == 3  # with the first, which is empty
    findings = parse_document(Findings, (out / "findings.json").read_bytes(), "findings.json")
    assert findings.whitened_by == f"10 rows of {ON_THE_HUB}/train"
    assert pq.read_table(out / "weights.parquet").num_rows == 10

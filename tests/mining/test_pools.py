"""Rows of a pool that a direction calls hardest, built as a dataset, and weights of training
rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest
from mined_examples import SANDAL, T_SHIRT, answer, on_the_beach, recipe_sets, save_split, scenes
from PIL import Image

from counterfoil.building.build_dataset import build
from counterfoil.cli.mine import _print as print_result
from counterfoil.data.labelled_sources import NamedDataset, every_row
from counterfoil.data.open_source import open_source
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.mining.audited import audit_target, class_map_of, collect_answers
from counterfoil.mining.hypotheses import Found
from counterfoil.mining.mine_recipe import MineResult, mine
from counterfoil.mining.pools import (
    FACTOR,
    POOL_LAYER,
    PREDICTED,
    FilteredPool,
    Hardest,
    PoolOrigin,
    filter_pool,
    hard_weights,
    hardest_rows,
    open_pool,
    pool_files,
    pool_labels,
    weights_parquet,
)
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.recipe.schema_mine import Mine
from support.refusals import succeed

NAN = np.nan
# Classes 0 and 2 of the recipe have a direction; rows 3 and 8 cannot be decoded, and row 9 has
# another class.
LABELS = np.array([0, 0, 0, 0, 0, 2, 2, 2, 2, -1])
DECISIONS = np.array([0.5, -2.0, -2.0, NAN, -3.0, 0.9, 0.1, 0.4, NAN, -9.0])
CLASSES = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name: sandal,"
    " source_label: 5}, {id: '08', name: bag, source_label: 8}]"
)


def picture(row: int) -> np.ndarray:
    return np.random.default_rng(row).integers(0, 256, (10 + row, 12, 3), dtype=np.uint8)


def pool(folder: Path, split: str = "train", **columns: list[Any]) -> Path:
    """Write a folder of ten images. Rows 3 and 8 cannot be decoded."""
    names = columns.pop("names", None)
    images: list[dict[str, Any]] = []
    for row in range(10):
        stream = io.BytesIO()
        Image.fromarray(picture(row)).save(stream, "PNG")
        images.append({"bytes": b"no image" if row in (3, 8) else stream.getvalue(), "path": None})
    table = datasets.Dataset.from_dict({"image": images, **columns})
    if names is not None:
        table = table.cast_column("label", datasets.ClassLabel(names=names))
    folder.mkdir(parents=True)
    table.cast_column("image", datasets.Image()).to_parquet(str(folder / f"{split}.parquet"))
    return folder


def layer(hardest: Hardest, origin: PoolOrigin, folder: Path, *sets: str, **changes: Any) -> Path:
    """Write the layer over wardrobe-mini. `sets` and `changes` are the same settings in two
    forms."""
    below = load_recipe("wardrobe-mini")
    recipe = load_recipe("wardrobe-mini", [CLASSES, *sets])
    classes = [
        {"id": cls.id, "name": cls.name, "source_label": cls.source_label} for cls in recipe.classes
    ]
    changed = {"source": {"classes": classes}, **changes}
    files = pool_files(
        hardest,
        origin,
        recipe,
        below,
        "wardrobe-mini",
        changed,
        {"method": "directions"},
    )
    return laid(files, folder)


def laid(files: Mapping[str, bytes], folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / POOL_LAYER


def built(path: Path, out: Path) -> dict[tuple[str, int], np.ndarray]:
    """Build the layer. Return the pixels of each image by (class id, row of the pool)."""
    build(path, out, device="cpu", workers=1)
    assert verify(out).problems == ()
    tables = [pq.read_table(path) for path in sorted((out / "data").rglob("*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist()]
    assert {row["shift"] for row in rows} == {"hard"}
    return {
        (row["class_id"], row["source_row"]): np.asarray(
            Image.open(io.BytesIO(row["image"]["bytes"]))
        )
        for row in rows
    }


def test_the_hardest_are_the_least_whatever_their_sign_and_ties_go_to_the_first_row() -> None:
    hardest = hardest_rows(DECISIONS, LABELS, 2)
    assert {label: rows.tolist() for label, rows in hardest.rows.items()} == {0: [4, 1], 2: [6, 7]}
    assert {label: values.tolist() for label, values in hardest.decisions.items()} == {
        0: [-3.0, -2.0],
        2: [0.1, 0.4],
    }
    assert (hardest.unreadable, hardest.unlabelled) == (2, 1)
    every = hardest_rows(DECISIONS, LABELS, 100)
    assert {label: rows.tolist() for label, rows in every.rows.items()} == {
        0: [4, 1, 2, 0],
        2: [6, 7, 5],
    }


def test_a_row_of_several_conditions_may_be_hard_in_one_and_easy_in_another() -> None:
    rows = np.array([0, 0, 1, 1, 2, 2])
    labels = np.array([0, 3, 0, 2, 1, 2])
    decisions = np.array([1.0, -1.0, 2.0, -2.0, NAN, NAN])
    hardest = hardest_rows(decisions, labels, 1, rows)
    assert {label: chosen.tolist() for label, chosen in hardest.rows.items()} == {
        0: [0],
        2: [1],
        3: [0],
    }
    assert hardest.unreadable == 1


def test_the_layer_builds_to_exactly_the_rows_that_were_chosen(tmp_path: Path) -> None:
    """Class names and their order are the pool's. Nothing is rendered, and no threshold drops a
    row."""
    names = ["bag", "t-shirt", "umbrella"]
    named = [1, 1, 1, 1, 1, 0, 0, 0, 0, 2]
    folder = pool(tmp_path / "pool", label=named, names=names)
    origin = PoolOrigin(NamedDataset(str(folder), "train"), "label")
    path = layer(hardest_rows(DECISIONS, LABELS, 2), origin, tmp_path / "mined")
    assert sorted(file.name for file in path.parent.iterdir()) == ["pool.csv", "pool.yaml"]
    images = built(path, tmp_path / "out")
    assert set(images) == {("00", 4), ("00", 1), ("08", 6), ("08", 7)}
    assert all(np.array_equal(pixels, picture(row)) for (_, row), pixels in images.items())
    recipe = load_recipe(tmp_path / "out")
    assert recipe.license == "other"
    assert recipe.prompts.shifts["hard"].mined_from == {
        "method": "directions",
        "pool": "pool",
        "split": "train",
        "labels": "label",
        "decisions": (-3.0, 0.4),
        "unreadable": 2,
    }
    assert "no label of the pool" not in (tmp_path / "out" / "README.md").read_text()


def test_a_pool_without_labels_takes_those_that_are_predicted_and_says_so(tmp_path: Path) -> None:
    folder = pool(tmp_path / "pool", "test")
    images, rows = every_row(NamedDataset(str(folder)))
    assert (rows.split, rows.columns, len(images)) == ("test", ("image",), 10)
    origin = PoolOrigin(NamedDataset(str(folder), "test"), PREDICTED)
    path = layer(hardest_rows(DECISIONS, LABELS, 1), origin, tmp_path / "mined")
    assert set(built(path, tmp_path / "out")) == {("00", 4), ("08", 6)}
    assert (
        "The classes are a classifier’s predictions" in (tmp_path / "out" / "README.md").read_text()
    )
    assert load_recipe(tmp_path / "out").generator.get("labels") == PREDICTED


def test_rows_whose_label_is_another_are_refused_when_they_are_built(tmp_path: Path) -> None:
    folder = pool(tmp_path / "pool", label=["t-shirt"] * 4 + ["bag"] * 6)
    origin = PoolOrigin(NamedDataset(str(folder), "train"), "label")
    path = layer(hardest_rows(DECISIONS, LABELS, 1), origin, tmp_path / "mined")
    with pytest.raises(UserError, match=r"row 4 of .* has the label of another class"):
        build(path, tmp_path / "out", device="cpu", workers=1)


def chest(folder: Path, conditions: str = "{labels: [Effusion], others: [No Finding]}") -> Recipe:
    text = f"""
recipe: 1
name: chest
source:
  dataset: {folder}
  label_column: found
  conditions: {conditions}
  classes:
    - {{id: effusion, name: effusion, source_label: 0}}
    - {{id: no_effusion, name: no effusion, source_label: 1}}
generator: {{model: lab:sd, steps: 2}}
prompts: {{base: {{prompt: "a radiograph of {{class}}"}}, shifts: {{blurred: {{prompt: "a blurred {{class}}"}}}}}}
screen: {{model: lab:clip, object_threshold: {{percentile: 20}}}}
samples: {{accepted: 5, at_most: 20}}
"""
    (folder.parent / "chest.yaml").write_text(text)
    return load_recipe_text(text)


def test_rows_of_an_input_dataset_of_conditions_are_compared_with_what_they_have(
    tmp_path: Path,
) -> None:
    texts = ["Effusion"] * 4 + ["No Finding"] * 6
    recipe = chest(pool(tmp_path / "chest", found=texts))
    origin = PoolOrigin(NamedDataset(recipe.source.dataset, "train", label_column="found"), "found")
    for rows, message in [
        ({0: [1], 1: [5, 9]}, None),
        ({0: [5], 1: [9]}, r"row 5 of .* has the label of another class"),
    ]:
        chosen = {label: np.array(indices) for label, indices in rows.items()}
        decisions = {label: np.zeros(len(indices)) for label, indices in rows.items()}
        folder = tmp_path / f"mined{message is None}"
        path = laid(
            pool_files(Hardest(chosen, decisions), origin, recipe, recipe, "../chest.yaml", {}, {}),
            folder,
        )
        if message is None:
            assert set(built(path, folder / "out")) == {
                ("effusion", 1),
                ("no_effusion", 5),
                ("no_effusion", 9),
            }
        else:
            with pytest.raises(UserError, match=message):
                build(path, folder / "out", device="cpu", workers=1)


def test_labels_from_a_column_as_before_are_the_same_plan() -> None:
    rows = (
        "generator={kind: rows, model: null, steps: null, guidance: null, rows: {base: {'00':"
        " [0]}}}"
    )
    changes = ["tokens=null", "samples.noise=independent", rows]
    plain, explicit, other = (
        load_recipe("wardrobe-mini", [*changes, *more])
        for more in ([], ["generator.labels=column"], ["generator.labels=predicted"])
    )
    assert "labels" not in plain.plan_document["generator"]
    assert plain.plan_hash == explicit.plan_hash != other.plan_hash


def test_what_lies_between_the_layer_and_its_recipe_goes_with_it(tmp_path: Path) -> None:
    """Settings of the run stay, except those of rendering, which rows do not have."""
    names = ["bag", "t-shirt", "umbrella"]
    folder = pool(tmp_path / "pool", label=[1, 1, 1, 1, 1, 0, 0, 0, 0, 2], names=names)
    origin = PoolOrigin(NamedDataset(str(folder), "train"), "label")
    sets = (
        "output.rows_per_shard=7",
        "generator.steps=5",
        "screen.keep_rejected=true",
        "publish.repo=a/b",
    )
    changes: Mapping[str, Any] = {
        "output": {"rows_per_shard": 7},
        "generator": {"steps": 5},
        "screen": {"keep_rejected": True},
        "publish": {"repo": "a/b"},
    }
    path = layer(hardest_rows(DECISIONS, LABELS, 2), origin, tmp_path / "mined", *sets, **changes)
    recipe = load_recipe(path)
    assert (recipe.output.rows_per_shard, recipe.screen.keep_rejected) == (7, True)
    assert (recipe.kind.name, recipe.publish.repo, recipe.tokens) == ("rows", None, None)
    assert list(recipe.prompts.shifts) == ["hard"]


def test_rows_are_no_pairs_of_a_recipe_whose_pairs_share_attention(tmp_path: Path) -> None:
    origin = PoolOrigin(NamedDataset(str(tmp_path / "pool"), "train"), "label")
    samples: Mapping[str, Any] = {"pairs": "attention", "held": {"share": 0.1}}
    path = layer(
        hardest_rows(DECISIONS, LABELS, 2), origin, tmp_path / "mined", f"samples={json.dumps(samples)}",
        samples=samples,
    )  # fmt: skip
    assert (load_recipe(path).samples.pairs, load_recipe(path).samples.noise) == (
        "noise",
        "independent",
    )


def test_whose_labels_a_pool_has_must_be_stated_where_it_has_none() -> None:
    columns = ("image", "label", "kind")
    assert pool_labels(None, "p", columns) == "label"
    assert pool_labels("kind", "p", columns) == "kind"
    assert pool_labels("predicted", "p", ("image",)) == PREDICTED
    with pytest.raises(UserError) as refused:
        pool_labels(None, "p", ("image", "kind"))
    assert "the class of its rows is unknown" in refused.value.problems[0]
    assert "`predicted`" in (refused.value.hint or "")
    with pytest.raises(UserError, match="no column 'kin'; did you mean 'kind'"):
        pool_labels("kin", "p", columns)


def test_weights_go_by_the_sign_alone() -> None:
    assert FACTOR == 2.0
    weights = hard_weights(np.array([-0.1, 0.0, 0.1, NAN, -5.0]))
    assert weights.tolist() == [2.0, 1.0, 1.0, 1.0, 2.0]
    assert hard_weights(np.array([[-1.0, 1.0]])).tolist() == [[2.0, 1.0]]


def test_weights_are_stored_by_row_in_the_same_bytes(tmp_path: Path) -> None:
    keys = ["train_00000004", "train_00000007"]
    weights = {"weight": hard_weights(np.array([-1.0, 1.0]))}
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(weights_parquet(keys, weights))
    assert pq.read_table(tmp_path / "one").to_pydict() == {
        "key": keys,
        "row": [4, 7],
        "weight": [2.0, 1.0],
    }
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


AUDITED = scenes(0, 140)
POOL = scenes(200, 60)
TRAIN = scenes(300, 40)
BROKEN = 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the splits. The pool has an unreadable image and, last, an audited one. Sandals fail on
    the beach."""
    folder = tmp_path_factory.mktemp("world") / "data"
    save_split(folder, "validation", AUDITED)
    save_split(folder, "test", [*POOL, AUDITED[0]], [BROKEN])
    save_split(folder, "train", TRAIN, [2])
    answer(
        folder.parent / "answers.csv",
        AUDITED,
        lambda scene: scene.label == SANDAL and on_the_beach(scene),
    )
    return folder


def mined(world: Path, out: Path, **more: Any) -> MineResult:
    target = f"predictions:{world.parent / 'answers.csv'}"
    return mine(
        "wardrobe-mini",
        out,
        overrides=recipe_sets(world),
        target=target,
        device="cpu",
        workers=1,
        **more,
    )


@pytest.fixture(scope="module")
def result(world: Path, tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    return mined(world, tmp_path_factory.mktemp("mined"), pool="test", pool_rows=8, weights=True)


def test_the_rows_of_the_pool_are_those_that_the_failure_is_of(result: MineResult) -> None:
    pool = result.pool
    assert pool is not None
    # T-shirts have no error, so no direction, and none of their rows is chosen.
    assert (pool.count, pool.without, pool.shared, pool.hardest.unreadable) == (
        8,
        ("t-shirt",),
        1,
        1,
    )
    assert pool.hardest.unlabelled == sum(scene.label == T_SHIRT for scene in POOL) - (
        POOL[BROKEN].label == T_SHIRT
    )
    rows = list(csv.DictReader((result.directory / "pool.csv").open()))
    chosen = [POOL[int(row["row"])] for row in rows]
    assert len(chosen) == 8
    assert {scene.label for scene in chosen} == {SANDAL}
    beach = np.mean([scene.background == "beach" for scene in POOL if scene.label == SANDAL])
    assert beach < 0.6
    assert np.mean([scene.background == "beach" for scene in chosen]) >= 0.85


def test_the_pools_recipe_tells_where_its_rows_are_from(result: MineResult) -> None:
    recipe = load_recipe(result.files["pool"])
    record = recipe.prompts.shifts["hard"].mined_from
    assert record is not None
    assert (record["method"], record["shared"], record["labels"], record["split"]) == (
        "directions",
        1,
        "label",
        "test",
    )


def test_training_rows_weigh_twice_where_they_are_hard(result: MineResult) -> None:
    facts = json.loads(pq.read_schema(result.files["weights"]).metadata[b"counterfoil"])
    document = json.loads(result.files["findings"].read_text())
    assert facts["mined"]["discover_sha256"] == document["halves"]["discover"]["sha256"]
    assert (
        facts["mined"]["on"][0]["content"] == document["on"][0]["content"]
        and len(facts["train_content"]) == 64
    )
    table = pq.read_table(result.files["weights"]).to_pylist()
    assert [row["key"] for row in table] == [f"train_{row:08d}" for row in range(len(TRAIN))]
    assert [row["row"] for row in table] == list(range(len(TRAIN)))
    heavy = [scene for scene, row in zip(TRAIN, table, strict=True) if row["weight"] == 2]
    assert {row["weight"] for row in table} == {1.0, 2.0}
    assert {scene.label for scene in heavy} == {SANDAL}
    assert np.mean([scene.background == "beach" for scene in heavy]) >= 0.8
    assert table[2]["weight"] == 1  # it cannot be decoded


def test_a_pool_changes_nothing_of_the_findings_and_is_printed(
    world: Path, result: MineResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the command without a pool, and print what the run with one chose and left out."""
    sets = [part for change in recipe_sets(world) for part in ("--set", change)]
    words = f"--target predictions:{world.parent / 'answers.csv'} --device cpu --workers 1"
    out = tmp_path / "alone"
    done = succeed("mine", "wardrobe-mini", "--out", str(out), *sets, *words.split(), "--json")
    document = json.loads(done.stdout)
    assert "pool" not in document
    assert set(document["files"]) == set(result.files) - {"pool", "weights"}
    for name in ("findings", "table", "report"):
        content = Path(document["files"][name]).read_bytes()
        assert content == result.files[name].read_bytes(), name
    print_result(result)
    shown = capsys.readouterr().out
    assert "8 rows of 1 classes were chosen from the pool" in shown
    left_out = "1 left out: among the audited images; 1 left out: unreadable; without a direction:"
    assert f"{left_out} t-shirt" in " ".join(shown.split())
    assert result.pool is not None
    document = result.pool.to_json()
    assert (document["rows"], document["without_direction"]) == (8, ["t-shirt"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pool": "validation"}, "the pool validation is what the target is audited on"),
        ({"pool": "test", "pool_labels": "predicted"}, "has none for new images"),
        ({"pool": "test", "pool_labels": "labels"}, "no column 'labels'; did you mean 'label'"),
        (
            {"pool_labels": "label", "pool_rows": 3},
            "--pool-rows and --pool-labels: no pool is named",
        ),
        ({"pool": "test", "pool_rows": 0}, "pool_rows is 0: expected 1 or more"),
        ({"pool": "./nowhere"}, "./nowhere: there is no such folder"),
    ],
)
def test_a_pool_that_is_none_is_refused_before_anything_is_looked_at(
    world: Path, more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        mined(world, tmp_path / "out", **more)
    assert not list((tmp_path / "out").glob("*.json"))


@pytest.fixture(scope="module")
def audited(world: Path) -> tuple[Recipe, Mine, Any]:
    """Audit a target that can be loaded. Return the recipe, its settings, and the source with the
    audit."""
    recipe = load_recipe("wardrobe-mini", [*recipe_sets(world), "mine.target=lab:resnet10t"])
    assert recipe.mine is not None
    source = open_source(recipe.source)
    return recipe, recipe.mine, (source, *audit_target(recipe, recipe.mine, source, "cpu"))


def filtered(
    audited: tuple[Recipe, Mine, Any], pool: Path, labels: str, decide: Any
) -> FilteredPool:
    recipe, settings, (source, audits, clip) = audited
    opened = open_pool(str(pool), labels, recipe, settings, source)
    directions = Found((), (), {}, {0: decide, 1: decide})
    return filter_pool(opened, 5, recipe, audits, directions, clip.embedder, "cpu")


def test_a_pool_in_another_folder_has_a_class_by_name_and_none_of_the_audited_images(
    audited: tuple[Recipe, Mine, Any], tmp_path: Path
) -> None:
    shown = [*AUDITED[:20], *POOL[:6]]
    kinds = ["sandal" if scene.label == SANDAL else "unknown" for scene in shown]
    save_split(tmp_path / "pool", "test", shown, kind=kinds)
    with pytest.raises(UserError, match="is unknown"):
        open_pool(str(tmp_path / "pool"), None, *audited[:2], audited[2][0])
    pool = filtered(audited, tmp_path / "pool", "kind", lambda features: np.zeros(len(features)))
    sandals = [row for row in range(20, 26) if kinds[row] == "sandal"]
    assert (pool.shared, {label: rows.tolist() for label, rows in pool.hardest.rows.items()}) == (
        20,
        {1: sandals},
    )


def test_predicted_labels_are_the_targets_answers(
    audited: tuple[Recipe, Mine, Any], tmp_path: Path
) -> None:
    save_split(tmp_path / "pool", "test", POOL[:30], kind=["unknown"] * 30)
    pool = filtered(
        audited, tmp_path / "pool", "predicted", lambda rows: -np.arange(len(rows), dtype=float)
    )
    recipe, settings, (source, *_) = audited
    images = open_pool(str(tmp_path / "pool"), "predicted", recipe, settings, source).images
    answers = collect_answers(
        [images], {"lab:resnet10t": class_map_of(recipe, "lab:resnet10t")}, recipe, "cpu"
    )["lab:resnet10t"]
    names = answers.class_map.label_names
    assert names is not None
    given = [names[output] for output in answers.predictions.prediction.tolist()]
    for label, name in enumerate(("t-shirt", "sandal")):
        rows = [row for row, answered in enumerate(given) if answered == name]
        assert len(rows) > 5
        assert pool.hardest.rows[label].tolist() == rows[::-1][:5]
    assert pool.origin.labels == "predicted"

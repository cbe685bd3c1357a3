"""Edits of real images: rows chosen once, drawn under every shift, and then a dataset like any."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from counterfoil.building.build_dataset import BuildResult, build
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.data.labelled_sources import row_key
from counterfoil.dataset.verification import verify
from counterfoil.documents import csv_text, sha256_json
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import edits_of, open_dataset
from counterfoil.evaluation.scored_models import refuse_trained_on
from counterfoil.generate.kinds import ChosenTable, maker_of
from counterfoil.generate.kinds import edit as rows_to_edit
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.world import render
from counterfoil.mending.given import given_variants
from counterfoil.mending.variants import open_debug_images
from counterfoil.models.clip import load_clip
from counterfoil.models.mended import EditsOf, MendedModelName, MendedNote, MendedWith
from counterfoil.recipe import load_recipe
from counterfoil.recipe.keep.rule import KeepRule, Verdict
from counterfoil.recipe.rows_table import read_chosen_rows
from counterfoil.reviewing.recut_dataset import recut
from counterfoil.reviewing.screen_scores import scores_of
from counterfoil.store.lock import read_lock, write_lock
from counterfoil.store.reading import read_receipts
from fuzzing.templates import sealed
from lab_training.corpora import unbiased_scene
from support.built_rows import table_rows
from support.images import encoded
from tiny_builds import CLASSES, images, published, tiny

REPO = "someone/edited"
SCENES = [10 * number + label for number in range(4) for label in (0, 5, 8)]
WORDLESS = 4  # a row without a caption
SETTINGS = (
    CLASSES,
    "source.unit_column=null",
    "tokens=null",
    "prompts.shifts={}",
    "prompts.shifts.red={prompt: 'a photo of a red {class}', caption: 'a photo red', kind: colour}",
    "prompts.shifts.at_night={prompt: '{caption} at night', kind: light}",
    "screen={model: lab:clip, object_threshold: -1, shift_threshold: -1, keep: [{same_image: {}},"
    " thresholds],"
    " judge: null}",
    "samples={candidates: 2, seed: 0}",
    "output={format: parquet, rows_per_shard: 4}",
    "generator={kind: edit, split: test, steps: 1, size: 32, guidance: 2.0, batch_size: 4,"
    " caption_column: text,"
    " license_column: terms}",
)
SANDAL = "source.classes=[{id: '05', name: sandal, source_label: 5}]"
COLUMNS = (
    "key",
    "shift",
    "class_id",
    "index",
    "prompt",
    "source_row",
    "source_similarity",
    "license",
)


def png(number: int) -> bytes:
    return encoded(Image.fromarray(render(unbiased_scene(number))).resize((32, 32)))


def saved(
    folder: Path, scenes: list[int], captions: Mapping[int, str] = MappingProxyType({})
) -> Path:
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.Value("int64"),
            "text": datasets.Value("string"),
            "terms": datasets.Value("string"),
        }
    )
    cells = {
        "image": [{"bytes": png(scene), "path": None} for scene in scenes],
        "label": [scene % 10 for scene in scenes],
        "text": [
            None if row == WORDLESS else captions.get(row, f" row\n{row}.  ")
            for row in range(len(scenes))
        ],
        "terms": [f"licence {row}" for row in range(len(scenes))],
    }
    table = datasets.Dataset.from_dict(cells, features=features)
    datasets.DatasetDict({"train": table, "test": table}).save_to_disk(str(folder))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("sources") / "photos", SCENES)


def edited_build(source: Path, out: Path, *changes: str, workers: int = 1) -> BuildResult:
    settings = [*SETTINGS, f"source.dataset={source}", *changes]
    return build("wardrobe-mini", out, overrides=settings, device="cpu", workers=workers)


@pytest.fixture(scope="module")
def dataset(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BuildResult]:
    out = tmp_path_factory.mktemp("edited") / "dataset"
    return out, edited_build(source, out)


def rows_of(directory: Path, *columns: str) -> list[dict[str, Any]]:
    return table_rows(directory, *COLUMNS, *columns)


def test_every_shift_edits_the_same_rows_of_its_classes(dataset: tuple[Path, BuildResult]) -> None:
    rows = rows_of(dataset[0], "image")
    assert len(rows) == 3 * 3 * 2
    of_pair: dict[tuple[str, int], set[int]] = {}
    for row in rows:
        of_pair.setdefault((row["class_id"], row["index"]), set()).add(row["source_row"])
        assert SCENES[row["source_row"]] % 10 == int(row["class_id"])
        assert row["license"] == f"licence {row['source_row']}"
        assert row["source_row"] != WORDLESS
        assert -1 <= row["source_similarity"] <= 1
        if row["shift"] == "at_night":
            # in one line, without the full stop
            assert row["prompt"] == f"row {row['source_row']} at night"
    assert all(len(row_numbers) == 1 for row_numbers in of_pair.values()) and len(of_pair) == 6
    assert len({row["image"]["bytes"] for row in rows}) == len(rows)
    base = {row["key"]: row for row in rows if row["shift"] == "base"}
    drawn = Image.open(io.BytesIO(base["base_00_000000"]["image"]["bytes"]))
    assert (
        drawn.size == Image.open(io.BytesIO(png(SCENES[base["base_00_000000"]["source_row"]]))).size
    )


def test_a_level_of_an_edit_is_nearer_to_its_row(source: Path, tmp_path: Path) -> None:
    few = ("prompts.shifts.at_night=null", "generator.caption_column=null", "samples.candidates=1")
    levels = "prompts.shifts.red.severity={levels: [.3, 1]}"
    edited_build(source, tmp_path / "levels", SANDAL, *few, levels, "generator.steps=4")
    drawn = images(tmp_path / "levels")
    pixels = {
        key: np.asarray(Image.open(io.BytesIO(content)).convert("RGB"), float)
        for key, content in drawn.items()
    }
    for key in (key for key in drawn if key.startswith("base")):
        mild, whole = (
            np.abs(pixels[key.replace("base", name)] - pixels[key]).mean()
            for name in ("red_30", "red")
        )
        assert 0 < mild < whole
    again = verify(
        tmp_path / "levels", rerender=3, device="cpu", overrides=[f"source.dataset={source}"]
    )
    assert [row.outcome for row in again.rerendered] == ["identical bytes"] * 3


def test_more_candidates_or_fewer_classes_edit_the_rows_that_they_did(source: Path) -> None:
    chosen = partial(chosen_rows, source)
    few = chosen()
    more = chosen("samples.candidates=3")
    assert all(more[class_id][:2] == rows for class_id, rows in few.items())
    sandals = chosen(SANDAL)
    assert sandals == {"05": few["05"]}
    assert chosen("samples.seed=1") != few


def test_no_caption_cuts_away_what_a_shift_says(source: Path, tmp_path: Path) -> None:
    """Rows with captions of more tokens than the 32 that the lab's model reads are left out, and
    counted."""
    first = {rows[0] for rows in chosen_rows(source).values()} - {WORDLESS}
    assert len(first) == 3
    wordy = saved(tmp_path / "photos", SCENES, dict.fromkeys(first, "a bag " * 30))
    choice = choose(wordy)
    assert not first & {row.row for cell in choice.table.rows.values() for row in cell}
    assert any("3 of the first rows have a caption too long for" in n for n in choice.notes)
    assert "32 prompt tokens that lab:sd reads" in " ".join(choice.notes)
    with pytest.raises(
        CounterfoilError, match="1 more with one too long for the 32 tokens of a prompt"
    ):
        choose(wordy, "samples.candidates=4")
    assert (
        choose(wordy, "prompts.shifts.at_night=null", "generator.caption_column=null").notes == ()
    )


def choose(source: Path, *changes: str) -> ChosenTable:
    recipe = load_recipe("wardrobe-mini", [*SETTINGS, f"source.dataset={source}", *changes])
    return maker_of(recipe).choose_rows(recipe, rows_to_edit_pin(recipe), {}, "cpu")


def chosen_rows(source: Path, *changes: str) -> dict[str, list[int]]:
    return {
        class_id: [row.row for row in rows]
        for (_, class_id), rows in choose(source, *changes).table.rows.items()
    }


def rows_to_edit_pin(recipe: Any) -> Any:
    from counterfoil.data.pool import pin_pool

    return pin_pool(recipe, None)


def test_it_is_whole_tells_what_it_is_and_comes_out_again(
    dataset: tuple[Path, BuildResult], source: Path
) -> None:
    directory = dataset[0]
    report = verify(directory, rerender=4, overrides=[f"source.dataset={source}"], device="cpu")
    assert (
        report.problems == ()
        and [row.outcome for row in report.rerendered] == ["identical bytes"] * 4
    )
    with pytest.raises(CounterfoilError, match=r"source\.dataset"):
        verify(directory, rerender=1, device="cpu")
    card, _, its_recipe = (directory / "README.md").read_text().partition("```yaml")
    assert "kind: edit" in its_recipe and str(source.parent) not in card + its_recipe
    assert "- edited" in card and "- synthetic" in card
    assert "They may show the people in the originals" in (directory / "croissant.json").read_text()
    lock = read_lock(directory)
    assert lock is not None and lock.inputs["models"].keys() == {"generator", "screen"}
    assert lock.inputs["pool"]["content"] == lock.inputs["source"]["content"]


def test_what_was_chosen_stands(
    dataset: tuple[Path, BuildResult], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resumed and repeated builds keep the rows of the first build."""
    again = tmp_path / "again"
    shutil.copytree(dataset[0], again)
    for path in ("manifest.json", "receipts/red-00000.json", "receipts/at_night-00001.json"):
        (again / path).unlink()

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("rows are chosen again")

    with monkeypatch.context() as patched:
        patched.setattr(rows_to_edit, "in_drawn_order", never)
        edited_build(source, again, workers=2)
        overrides = [f"source.dataset={source}"]
        result = regenerate(
            dataset[0], tmp_path / "made", overrides=overrides, device="cpu", workers=1
        )
        assert result.comparison is not None and result.comparison.identical
    for folder in ("again", "made"):
        assert published(tmp_path / folder) == published(dataset[0])


@pytest.mark.parametrize(("old", "new"), [(",row 1", ",row 2"), ("caption", "words")])
def test_a_changed_table_is_seen(
    dataset: tuple[Path, BuildResult], source: Path, tmp_path: Path, old: str, new: str
) -> None:
    shutil.copytree(dataset[0], tmp_path / "changed")
    file = tmp_path / "changed" / "rows.csv"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new, 1))
    report = verify(tmp_path / "changed")
    assert "rows.csv" in {problem.path for problem in report.problems}
    assert "prompts were not compared with the plan, because rows.csv is damaged" in report.notes
    with pytest.raises(CounterfoilError, match=r"rows\.csv"):
        regenerate(
            tmp_path / "changed",
            tmp_path / "again",
            overrides=[f"source.dataset={source}"],
            device="cpu",
        )


@pytest.mark.parametrize("gone", ["pool", "edited", "generator"])
def test_a_lock_that_pins_too_little_for_edits_is_reported(
    dataset: tuple[Path, BuildResult], source: Path, tmp_path: Path, gone: str
) -> None:
    """Also a lock with the right hash is reported: with rows and nothing to edit them by, or
    without the rows."""
    shutil.copytree(dataset[0], crafted := tmp_path / "crafted")
    lock = read_lock(crafted)
    assert lock is not None
    inputs = {name: value for name, value in lock.inputs.items() if name != gone}
    inputs["models"] = {name: pin for name, pin in lock.inputs["models"].items() if name != gone}
    hashes = {**lock.hashes, "inputs": sha256_json(inputs)}
    write_lock(crafted, replace(lock, inputs=inputs, hashes=hashes))
    report = verify(crafted, rerender=1, overrides=[f"source.dataset={source}"], device="cpu")
    assert ("lock.json", "does not pin models and tokens as a build does") in {
        (problem.path, problem.what) for problem in report.problems
    }


def test_files_are_named_on_this_machine_and_in_nothing_that_is_published(tmp_path: Path) -> None:
    person = "Jane Doe"
    out = tmp_path / "dataset"
    for split in ("test", "validation"):
        (tmp_path / "photos" / split).mkdir(parents=True)
        for number, scene in enumerate(SCENES):
            (tmp_path / "photos" / split / f"{person} {number:02d}.png").write_bytes(png(scene))
        listed = [
            {
                "file_name": f"{person} {number:02d}.png",
                "label": scene % 10,
                "text": f"row {number}",
                "terms": "mine",
            }
            for number, scene in enumerate(SCENES)
        ]
        (tmp_path / "photos" / split / "metadata.csv").write_text(csv_text(listed))
    edited_build(tmp_path / "photos", out, "prompts.shifts.red=null")
    options: dict[str, Any] = {"device": "cpu", "min_images_per_class": 1}
    evaluation = evaluate(
        out, ["lab:resnet10t"], into_card=True, repo=REPO, reference=True, **options
    )
    # the folder's own rows were scored
    assert evaluation.reference is not None and evaluation.reference.images > 0
    assert evaluation.results.paired
    beside = evaluate(
        out, ["lab:resnet10t"], beside={"photos": f"{tmp_path / 'photos'}:validation"}, **options
    )
    files = published(out)
    assert "evaluation/results.json" in files and not holding(files, person)
    local = {name: path.read_bytes() for name, path in beside.files.items()}
    assert {"predictions", "failures"} <= holding(local, person)


def holding(files: Mapping[str, bytes], text: str) -> set[str]:
    """Return the files that hold a text, also in a compressed value of a Parquet file."""

    def values(content: bytes) -> str:
        return (
            repr(pq.read_table(pa.BufferReader(content)).to_pylist())
            if content.startswith(b"PAR1")
            else ""
        )

    return {
        name
        for name, content in files.items()
        if text.encode() in content or text in values(content)
    }


def mended_with(edits: EditsOf | None) -> MendedNote:
    used = MendedWith("drawn", "e" * 64, "red", 0, None, edits)
    return MendedNote(1, MendedModelName("m", None), (), (), (used,), 1.0, "lbfgs", 5e-4, {"": 1})


def test_who_mends_with_edits_of_a_folder_learns_which_rows_they_are_of(
    dataset: tuple[Path, BuildResult], source: Path, tmp_path: Path
) -> None:
    """Rows are known by the content of their folder, because the dataset does not name its path."""
    shutil.copytree(source, moved := tmp_path / "moved")
    for folder in (source, moved):
        recipe = load_recipe(
            "wardrobe-mini", [*SETTINGS, f"source.dataset={folder}", "source.unit_column=terms"]
        )
        given, _ = open_debug_images(given_variants([f"{dataset[0]}:red"])[0], recipe)
        rows = [row["source_row"] for row in rows_of(dataset[0]) if row["shift"] == "red"]
        assert not given.seeds  # a row began it, and no noise
        assert given.edited is not None and set(given.edited.keys) == {
            row_key("test", row) for row in rows
        }
        assert given.edits is not None and set(given.edits.rows) == set(rows)
        assert sorted(given.images.units or ()) == sorted(f"licence {row}" for row in rows)
    subject = open_dataset(dataset[0])
    own_edits = edits_of(dataset[0], load_recipe(dataset[0]), subject.pins, subject.keys)
    assert own_edits is not None
    others = (
        replace(own_edits, rows=(10**6,)),
        replace(own_edits, split="train"),
        replace(own_edits, pool="e" * 64),
    )
    for edits in (None, *others):  # of one samples.seed, which began none of them
        refuse_trained_on(subject, {"m": mended_with(edits)})
    with pytest.raises(
        UserError, match=r"mended with drawn, and .* has edits of 1 of the same rows, such as row"
    ):
        refuse_trained_on(subject, {"m": mended_with(replace(own_edits, rows=own_edits.rows[:1]))})
    other = saved(tmp_path / "photos", [1000 + scene for scene in SCENES])
    recipe = load_recipe(
        "wardrobe-mini", [*SETTINGS, f"source.dataset={other}", "source.unit_column=terms"]
    )
    given, _ = open_debug_images(given_variants([f"{dataset[0]}:red"])[0], recipe)
    assert given.edited is None and given.images.units is None
    assert given.edits is not None and set(given.edits.rows) == set(rows)


@pytest.mark.parametrize("row", [None, -1, 10**12])
def test_a_row_that_is_none_is_reported_to_who_mends_with_it(
    dataset: tuple[Path, BuildResult], source: Path, tmp_path: Path, row: int | None
) -> None:
    shutil.copytree(dataset[0], crafted := tmp_path / "crafted")
    for receipt in read_receipts(crafted):
        for file in receipt.files:
            if file.path.startswith("data/"):
                table = pq.read_table(crafted / file.path)
                index = table.column_names.index("source_row")
                column = pa.array([row] * table.num_rows, pa.int64())
                pq.write_table(
                    table.set_column(index, table.schema.field(index), column), crafted / file.path
                )
    sealed(crafted)
    recipe = load_recipe(
        "wardrobe-mini", [*SETTINGS, f"source.dataset={source}", "source.unit_column=terms"]
    )
    with pytest.raises(
        UserError,
        match=r"source_row of .* is not a row|of row 1,000,000,000,000 of .* which has 12",
    ):
        open_debug_images(given_variants([f"{crafted}:red"])[0], recipe)


def test_rows_without_licences_of_their_own_have_that_of_their_dataset(
    source: Path, tmp_path: Path
) -> None:
    few = ("generator.license_column=null", "samples.candidates=1", "prompts.shifts.red=null")
    lab = (
        "source.dataset=lab:wardrobe",
        "generator.split=validation",
        "generator.caption_column=null",
    )
    edited_build(
        source, tmp_path / "lab", *few, *lab, "prompts.shifts.at_night.prompt='a {class} at night'"
    )
    assert {row["license"] for row in rows_of(tmp_path / "lab")} == {"mit"}
    assert verify(tmp_path / "lab").problems == ()


def test_a_captioner_tells_where_no_column_does(source: Path, tmp_path: Path) -> None:
    """It writes each caption once: the table has the captions, and the lock names the captioner."""
    changes = (
        "generator.caption_column=null",
        "generator.captioner=lab:captioner",
        "samples.candidates=1",
    )
    without = ("generator.license_column=null", "prompts.shifts.red=null")
    edited_build(source, tmp_path / "out", *changes, *without)
    table = read_chosen_rows((tmp_path / "out" / "rows.csv").read_bytes(), "rows.csv", "edited")
    assert all(
        row.caption and row.caption.startswith("a ") for rows in table.values() for row in rows
    )
    lock = read_lock(tmp_path / "out")
    assert lock is not None and lock.inputs["edited"]["captioner"]["name"] == "lab:captioner"
    assert "captioner" in (tmp_path / "out" / "README.md").read_text()
    assert {row["license"] for row in rows_of(tmp_path / "out")} == {None}, (
        "nobody tells a licence of the folder"
    )
    assert verify(tmp_path / "out").problems == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("samples.candidates=5", "class '00' (t-shirt) has 4 rows in"),
        ("samples.candidates=4", "1 more without a caption, expected 4"),
        ("generator.caption_column=words", "has no column 'words'"),
        ("generator.split=audit", "audit"),
    ],
)
def test_what_cannot_be_edited_is_reported_before_anything_is_written(
    source: Path, change: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(CounterfoilError) as refused:
        edited_build(source, tmp_path / "out", change)
    assert message in "\n".join(refused.value.problems)
    assert not (tmp_path / "out").exists()


# The similarity of an edit and its row, and where it shows its row: measured on stored images, scores
# to cut by, and counted as in a build.


EDITS = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name: sandal,"
    " source_label: 5}]",
    "generator={kind: edit, split: validation, model: lab:sd, steps: 2, guidance: 3.0, batch_size:"
    " 4, dtype: float32}",
    "generator.size=null",
    "prompts.shifts.pencil_sketch=null",
    "prompts.shifts.in_the_snow=null",
    "screen.keep_rejected=true",
    "screen.keep=[{same_image: {}}, registered, thresholds]",
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset whose rules drop nothing. Read only."""
    out = tmp_path_factory.mktemp("measured") / "dataset"
    tiny(out, *EDITS)
    return out


def candidates(out: Path, *columns: str) -> list[dict[str, Any]]:
    """Return every candidate's row, with the columns that only some recipes have."""
    return table_rows(out, "key", "shift", "source_row", "reason", *columns, what="candidates")


def test_it_is_the_cosine_of_what_is_stored_and_its_row(measured: Path) -> None:
    rows = candidates(measured, "source_similarity")
    stored = images(measured)
    clip = load_clip("lab:clip", None, "cpu")
    seen = clip.embed_images([Image.open(io.BytesIO(stored[row["key"]])) for row in rows], 4)
    sources = clip.embed_images([Image.fromarray(original(row)) for row in rows], 4)
    similarities = np.array([row["source_similarity"] for row in rows])
    np.testing.assert_allclose(similarities, (seen * sources).sum(1), atol=1e-5)
    base = np.array([row["shift"] == "base" for row in rows])
    # What is drawn under its own words is nearer to itself than what is drawn red.
    assert similarities[base].mean() > similarities[~base].mean()
    assert {row["reason"] for row in rows} == {"accepted"}
    assert verify(measured).whole


def original(row: Mapping[str, Any]) -> np.ndarray:
    return render(wardrobe_scene("validation", row["source_row"]))


def cut(dataset: Path, out: Path, *keep: object) -> Path:
    """Cut a dataset by other rules."""
    layer = out.with_suffix(".yaml")
    layer.write_text(json.dumps({"screen": {"keep": [*keep, "thresholds"]}}))
    recut(dataset, layer, out)
    return out


def test_a_cut_by_it_drops_what_is_less_alike_and_the_page_counts_alike(
    measured: Path, tmp_path: Path
) -> None:
    """That a cut has the bytes of a fresh build is shown beside second judges."""
    rows = candidates(measured, "source_similarity")
    red = {row["key"]: row["source_similarity"] for row in rows if row["shift"] == "red"}
    middle = round(sorted(red.values())[len(red) // 2], 3)
    done = cut(measured, tmp_path / "cut", {"same_image": {"similarity": middle}}, "registered")
    reasons = {row["key"]: row["reason"] for row in candidates(done)}
    assert {key: reasons[key] for key in red} == {
        key: "other_image" if similarity < np.float32(middle) else "accepted"
        for key, similarity in red.items()
    }
    kept = sum(similarity >= np.float32(middle) for similarity in red.values())
    assert 0 < kept < len(red)
    (scores,) = scores_of(done, load_recipe(done), read_receipts(done), ["red"])
    assert scores.accepted_at(-1) == kept


def test_edits_are_registered_with_their_rows(measured: Path, tmp_path: Path) -> None:
    rule = registering_rule(measured)
    rows = candidates(measured, *rule.measures)
    stored = images(measured)
    for row in rows[::3]:
        pixels = np.asarray(Image.open(io.BytesIO(stored[row["key"]])))
        expected = rule.measure_against(pixels, original(row))
        for name in rule.measures:
            assert row[name] == expected.get(name)
    # Inversion moves nothing, and the base is what the autoencoder makes of its row.
    bases = [row for row in rows if row["shift"] == "base" and row["zoom"] is not None]
    assert len(bases) > 2
    assert all(abs(row["translation_x"]) < 0.02 and 0.97 < row["zoom"] < 1.03 for row in bases)
    limits = {"registered": {"translation": 0.01, "zoom": 1.02}}
    done = cut(measured, tmp_path / "cut", "same_image", limits)
    strict = {row["key"]: row["reason"] for row in candidates(done)}
    by_hand = registering_rule(done)
    for row in rows:
        scores = {name: row[name] for name in rule.measures}
        (reason,) = by_hand.dropped([Verdict(scores, {})])
        assert strict[row["key"]] == (reason or "accepted")
    assert verify(done).whole


def registering_rule(dataset: Path) -> KeepRule:
    """Return the keep rule of the shift `red` that registers."""
    (red,) = [shift for shift in load_recipe(dataset).all_shifts() if shift.name == "red"]
    return red.keep[1]

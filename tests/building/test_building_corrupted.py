"""Corrupted rows: real images as they are and under known changes, and then a dataset like any."""

from __future__ import annotations

import io
import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from counterfoil.building.build_dataset import BuildProgress, BuildResult, build
from counterfoil.building.regenerate_dataset import regenerate
from counterfoil.corrupting.corrupt import corrupt
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.data.open_source import lab_dataset
from counterfoil.data.truth import RowTruth
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import edits_of, open_dataset
from counterfoil.generate.rows import CorruptedRows
from counterfoil.plan.layout import sample_seed
from counterfoil.progress import listening
from counterfoil.recipe import load_recipe
from counterfoil.store.reading import read_receipts, read_rows
from drawn_folders import draw_folder
from shared_datasets import Once
from support.built_rows import table_rows
from tiny_builds import CLASSES, published

SETTINGS = (
    CLASSES,
    "samples={candidates: 3, seed: 0}",
    "prompts.shifts={}",
    "prompts.shifts.gaussian_noise={corruption: gaussian_noise, severity: 2}",
    "prompts.shifts.fog={corruption: fog, severity: 5}",
    "prompts.shifts.greyscale={corruption: greyscale}",
    "output={format: parquet, rows_per_shard: 6}",
    "evaluate.models=[]",
)
COLUMNS = [
    "key",
    "shift",
    "class_id",
    "index",
    "source_row",
    "severity",
    "license",
    "image",
    "object_score",
    "prompt",
]
SEVERITIES = {"base": 0, "gaussian_noise": 2, "fog": 5, "greyscale": 3}


def corrupted_build(out: Path, *changes: str, workers: int = 1) -> BuildResult:
    return build(
        "wardrobe-corrupt", out, overrides=[*SETTINGS, *changes], device="cpu", workers=workers
    )


@pytest.fixture(scope="module")
def dataset(once_a_run: Once) -> Path:
    """Return a dataset that previews are compared with too. Read only."""
    return once_a_run("corrupted-whole", corrupted_build)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    return table_rows(directory, *COLUMNS)


def pixels(row: dict[str, Any]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])))


def test_the_base_is_the_row_itself_and_a_shift_is_its_corruption(dataset: Path) -> None:
    source = lab_dataset("lab:wardrobe")
    rows = rows_of(dataset)
    assert len(rows) == 4 * 3 * 3
    for row in rows:
        real = source.pixels("validation", row["source_row"])
        assert (
            row["severity"] == SEVERITIES[row["shift"]]
            and row["object_score"] is None
            and row["prompt"] is None
        )
        if row["shift"] == "base":
            np.testing.assert_array_equal(pixels(row), real)
        else:
            seed = sample_seed(0, row["class_id"], row["index"], None)
            np.testing.assert_array_equal(
                pixels(row), corrupt(real, row["shift"], row["severity"], seed=seed)
            )
            assert np.abs(pixels(row).astype(int) - real).mean() > 1


@pytest.mark.parametrize(("room", "reads"), [(1 << 27, 3), (2 * 64 * 64 * 3, 2 + 4), (0, 12)])
def test_a_photograph_is_decoded_once_for_all_groups_while_there_is_room(
    room: int, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterfoil.generate.rows._MOST_KEPT", room)
    source = lab_dataset("lab:wardrobe")
    read = list[int]()

    def image(row: int) -> Image.Image:
        read.append(row)
        return Image.fromarray(source.pixels("validation", row))

    renderer = CorruptedRows(
        load_recipe("wardrobe-corrupt", SETTINGS), image, None, {}, RowTruth(), None
    )
    for shift, severity in SEVERITIES.items():
        samples: list[Any] = [SimpleNamespace(row=row, shift=shift, seed=row) for row in range(3)]
        for row, drawn in enumerate(renderer.render(samples)):
            real = source.pixels("validation", row)
            expected = real if shift == "base" else corrupt(real, shift, severity, seed=row)
            np.testing.assert_array_equal(drawn, expected)
    assert len(read) == reads


def test_levels_are_the_severities_of_one_row(dataset: Path, tmp_path: Path) -> None:
    corrupted_build(
        tmp_path / "levels", "prompts.shifts.fog={corruption: fog, severity: {levels: [.2, 1]}}"
    )
    rows = {row["key"]: row for row in rows_of(tmp_path / "levels")}
    for before in rows_of(dataset):
        assert rows[before["key"]]["image"] == before["image"], "fog of severity 5 is level 1"
        if before["shift"] == "fog":
            mild, base = (rows[before["key"].replace("fog", name)] for name in ("fog_1", "base"))
            assert (mild["severity"], mild["source_row"]) == (1, before["source_row"])
            seed = sample_seed(0, before["class_id"], before["index"], None)
            np.testing.assert_array_equal(
                pixels(mild), corrupt(pixels(base).astype(np.uint8), "fog", 1, seed=seed)
            )


def test_the_library_that_corrupts_is_of_the_stack(dataset: Path) -> None:
    for receipt in read_receipts(dataset):
        assert receipt.stack["versions"]["scipy"] == metadata.version("scipy")


def test_it_is_whole_and_comes_out_again(dataset: Path, tmp_path: Path) -> None:
    report = verify(dataset, rerender=8)
    assert (
        not report.problems
        and [row.outcome for row in report.rerendered] == ["identical bytes"] * 8
    )
    regenerate(dataset, tmp_path / "again", device="cpu", workers=1)
    assert published(tmp_path / "again") == published(dataset)


def test_more_candidates_other_shifts_and_workers_change_no_image_that_stays(
    dataset: Path, tmp_path: Path
) -> None:
    corrupted_build(tmp_path / "more", "samples.candidates=4", "prompts.shifts.fog=null", workers=2)
    first, second = (
        {row["key"]: row["image"]["bytes"] for row in read_rows(path)}
        for path in (dataset, tmp_path / "more")
    )
    shared = first.keys() & second.keys()
    assert len(shared) == 3 * 3 * 3 and all(first[key] == second[key] for key in shared)


def test_severities_of_one_corruption_share_their_noise(dataset: Path) -> None:
    row = next(row for row in rows_of(dataset) if row["shift"] == "gaussian_noise")
    real = lab_dataset("lab:wardrobe").pixels("validation", row["source_row"]).astype(float)
    seed = sample_seed(0, row["class_id"], row["index"], None)
    mild, strong = (
        corrupt(real.astype(np.uint8), "gaussian_noise", severity, seed=seed) - real
        for severity in (1, 2)
    )
    inside = (real > 60) & (real < 195)
    assert np.corrcoef(mild[inside], strong[inside])[0, 1] > 0.95


def test_it_is_scored_like_any_dataset_and_who_learned_its_rows_is_known(
    dataset: Path, tmp_path: Path
) -> None:
    scores = evaluate(
        dataset, ["lab:resnet10t"], out=tmp_path / "out", workers=1, min_images_per_class=1
    )
    assert scores.score("lab:resnet10t", "fog").drop is not None
    assert "% right on base; largest drop" in repr(scores)
    # Their labels are the source's own, so that a drop is a number and no "unchecked".
    report = scores.files["report"].read_text()
    assert (
        scores.reference is None
        and "unchanged images of the input dataset, so there is no gap" in report
    )
    assert (
        "cover other images like these under the same changes" in report
        and "synthetic" not in report
    )
    assert "generator" not in report.partition("How each number is computed")[2], (
        "nothing was drawn"
    )
    assert (
        "shows no loss of accuracy" in report
        and "unchecked" not in report.split("</style>")[1].split("<script>")[0]
    )
    opened = open_dataset(dataset)
    edits = edits_of(opened.directory, opened.recipe, opened.pins, opened.keys)
    assert edits is not None and edits.split == "validation" and len(edits.rows) == 9


def folder_recipe(folder: Path, path: Path) -> Path:
    """Write a recipe of a folder without splits; the class names come from the folder."""
    path.write_text(
        f"""
recipe: 1
name: photos
source: {{dataset: {folder}, train_split: train, validation_split: train}}
generator: {{kind: corrupt, split: train}}
prompts: {{shifts: {{fog: {{corruption: fog}}}}}}
samples: {{candidates: 3}}
"""
    )
    return path


def test_of_a_small_class_all_is_taken_and_what_does_not_decode_is_replaced(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", ("mug", "star"), 5, splits=("",))
    for path in sorted((folder / "mug").iterdir())[:2]:
        path.write_bytes(b"no image")
    for path in sorted((folder / "star").iterdir())[:3]:
        path.unlink()
    result = build(
        folder_recipe(folder, tmp_path / "recipe.yaml"), tmp_path / "out", device="cpu", workers=1
    )
    rows = list(read_rows(tmp_path / "out", columns=["shift", "class_id"]))
    assert sorted((row["shift"], row["class_id"]) for row in rows) == sorted(
        (shift, class_id)
        for shift in ("base", "fog")
        for class_id, n in (("mug", 3), ("star", 2))
        for _ in range(n)
    )
    notes = " ".join(result.notes)
    assert "does not decode" in notes and "star has fewer images than the recipe asks for" in notes
    assert not verify(tmp_path / "out").problems
    before = published(tmp_path / "out")
    build(
        folder_recipe(folder, tmp_path / "recipe.yaml"), tmp_path / "out", device="cpu", workers=1
    )
    assert published(tmp_path / "out") == before


def test_a_class_without_an_image_that_decodes_is_named(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", ("mug", "star"), 1, splits=("",))
    for path in (folder / "star").iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(UserError, match="star"):
        build(
            folder_recipe(folder, tmp_path / "recipe.yaml"),
            tmp_path / "out",
            device="cpu",
            workers=1,
        )


def test_larger_rows_are_reduced_on_every_shift_and_keep_their_shape(tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "bag"
    folder.mkdir(parents=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 90, 3), dtype=np.uint8)).save(
        folder / "wide.png"
    )
    Image.fromarray(np.zeros((20, 24, 3), dtype=np.uint8)).save(folder / "small.png")
    draw_folder(folder.parent, ("mug",), 1, splits=("",))
    recipe = folder_recipe(folder.parent, tmp_path / "recipe.yaml")
    build(recipe, tmp_path / "out", overrides=["generator.size=32"], device="cpu", workers=1)
    sizes = sorted(pixels(row).shape for row in read_rows(tmp_path / "out"))
    assert sizes == [(20, 24, 3)] * 2 + [(32, 32, 3)] * 2 + [(32, 48, 3)] * 2
    assert not verify(tmp_path / "out").problems


def test_its_card_names_every_change(dataset: Path) -> None:
    card = (dataset / "README.md").read_text()
    for shift in ("gaussian_noise", "fog", "greyscale"):
        assert CORRUPTIONS[shift].says in card
    assert (
        "Not of the published set." in card
        and "CIFAR-10-C" in card
        and "nothing was screened" in card
    )
    keywords = json.loads((dataset / "croissant.json").read_text())["keywords"]
    assert "corruptions" in keywords and "synthetic" not in keywords and "- synthetic" not in card


def test_its_card_says_what_compressing_a_jpeg_file_again_takes_where_a_shift_compresses(
    dataset: Path, tmp_path: Path
) -> None:
    corrupted_build(tmp_path, "prompts.shifts.rough={corruption: jpeg_compression}")
    sentence = "already than from lossless ones, and a higher severity may then take less"
    has_sentence = [
        sentence in (directory / "README.md").read_text() for directory in (dataset, tmp_path)
    ]
    assert has_sentence == [False, True]
    images = {row["key"]: row["image"] for row in rows_of(tmp_path)}
    assert all(images[row["key"]] == row["image"] for row in rows_of(dataset))


MATCH = """
recipe: 1
name: matched
source: {{dataset: {folder}, config: base, train_split: test, validation_split: test}}
generator: {{kind: corrupt, split: test}}
prompts: {{shifts: {{fog: {{corruption: match}}}}}}
samples: {{candidates: 3}}
"""


def test_a_match_has_the_brightness_and_contrast_of_its_partner_and_nothing_else(
    dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "match.yaml").write_text(MATCH.format(folder=dataset))
    build(tmp_path / "match.yaml", tmp_path / "out", device="cpu", workers=1)
    assert not verify(
        tmp_path / "out", rerender=4, overrides=[f"source.dataset={dataset}"]
    ).problems
    named = {"00": "t-shirt", "05": "sandal", "08": "bag"}
    rows = {(row["shift"], row["class_id"], row["index"]): row for row in rows_of(tmp_path / "out")}
    bases = [row for row in rows_of(dataset) if row["shift"] == "base"]
    fogs = {
        (row["class_id"], row["index"]): pixels(row)
        for row in rows_of(dataset)
        if row["shift"] == "fog"
    }
    assert len(rows) == 2 * len(bases)
    for cell, row in rows.items():
        base = bases[row["source_row"]]
        # the recipe takes the classes' names, and ids of these
        assert named[base["class_id"]] == row["class_id"]
        if row["shift"] == "base":
            assert row["image"]["bytes"] == base["image"]["bytes"]
            continue
        fog = fogs[base["class_id"], base["index"]].astype(float)
        matched = pixels(row).astype(float)
        assert abs(matched.mean() - fog.mean()) < 8 and row["severity"] == 0
        real = pixels(rows["base", *cell[1:]]).astype(float)
        inside = (matched > 2) & (matched < 253)
        assert np.corrcoef(real[inside], matched[inside])[0, 1] > 0.999
    evaluate(
        tmp_path / "out",
        ["lab:resnet10t"],
        out=tmp_path / "report",
        min_images_per_class=1,
        device="cpu",
    )
    assert (tmp_path / "report" / "shifts.csv").exists()
    assert not (tmp_path / "report" / "corruptions.csv").exists(), (
        "a match is no kind of corruption"
    )


def test_a_class_needs_a_partner_under_its_own_shifts_alone(dataset: Path, tmp_path: Path) -> None:
    """Other classes of a match keep their rows under a drawn shift of one class."""
    first, *others = load_recipe(dataset).classes
    corrupted_build(tmp_path / "drawn", f"prompts.shifts.fog.classes=['{first.id}']")
    shifts = (
        "{greyscale: {corruption: match}, fog: {corruption: match, classes:"
        f" ['{first.name}']}}}}"
    )
    match = MATCH.format(folder=tmp_path / "drawn").replace("{fog: {corruption: match}}", shifts)
    (tmp_path / "match.yaml").write_text(match)
    build(tmp_path / "match.yaml", tmp_path / "out", device="cpu", workers=1)
    cells = {(row["shift"], row["class_id"]) for row in rows_of(tmp_path / "out")}
    every = (first.name, *(other.name for other in others))
    assert cells == {("fog", first.name)} | {
        (shift, name) for shift in ("base", "greyscale") for name in every
    }
    croissant = (tmp_path / "out" / "croissant.json").read_text()
    assert "contrast of its partner" in croissant and "at a severity from 1 to 5" not in croissant


def test_photographs_that_change_during_a_build_are_in_no_shard(tmp_path: Path) -> None:
    photos = draw_folder(tmp_path / "photos")
    out = tmp_path / "out"
    before = {path: path.read_bytes() for path in photos.rglob("*.png")}
    changes = (
        f"source.dataset={photos}",
        "source.classes=[{id: mug, name: mug}, {id: star, name: star}]",
        "source.unit_column=null",
        "prompts.shifts.fog=null",
    )

    def swap(progress: Any) -> None:
        if isinstance(progress, BuildProgress) and progress.shards_done == 1:
            for path in before:
                Image.new("RGB", (96, 96), "red").save(path)

    with pytest.raises(RunFailure, match="is no longer what was pinned"), listening(swap):
        corrupted_build(out, *changes)
    assert 1 <= len(read_receipts(out)) < 3
    for path, content in before.items():
        path.write_bytes(content)
    corrupted_build(out, *changes)
    corrupted_build(tmp_path / "undisturbed", *changes)
    assert published(out) == published(tmp_path / "undisturbed")

"""`init` proposes a recipe for images of one's own; `check` fetches nothing."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from PIL import Image

import counterfoil
import warm
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.starting.found_data import FoundClass, FoundData, class_entries, prompt_names
from counterfoil.starting.init_recipe import (
    KINDS,
    LARGE_GENERATOR,
    InitResult,
    extent_of,
    init,
    proposed_models,
)
from drawn_folders import draw_folder
from loopback_hub import LoopbackHub, client, client_environment
from support.images import encoded
from support.refusals import problems_of

LAB: dict[str, Any] = {"generator": "lab:sd", "device": "cpu"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def loaded(result: InitResult) -> Recipe:
    return resolve_classes(load_recipe(result.path))


def noted(result: InitResult, *words: str) -> bool:
    return any(all(word in note for word in words) for note in result.notes)


def table(
    labels: list[Any], label: str = "label", image: str = "image", **features: Any
) -> datasets.Dataset:
    columns = {image: [{"bytes": encoded((9, 9, 9)), "path": None} for _ in labels], label: labels}
    kinds = datasets.Features(
        {image: datasets.Image(), label: features.get("kind", datasets.Value("string"))}
    )
    return datasets.Dataset.from_dict(columns, features=kinds)


def test_a_folder_of_class_folders_becomes_a_recipe_that_loads(tmp_path: Path) -> None:
    draw_folder(tmp_path / "photos", per_class=2)
    result = counterfoil.init("photos", "own.yaml", **LAB)
    recipe = loaded(result)
    assert [(cls.id, cls.name, cls.source_label) for cls in recipe.classes] == [
        ("ladder", "ladder", 0), ("mug", "mug", 1), ("star", "star", 2),
    ]  # fmt: skip
    assert result.images == {
        name: {"train": 2, "validation": 2} for name in ("ladder", "mug", "star")
    }
    assert (recipe.source.train_split, recipe.source.validation_split) == ("train", "validation")
    assert (
        len(recipe.prompts.shifts) == 6
        and recipe.screen.keep_rejected
        and not recipe.evaluate.models
    )
    assert recipe.screen.object_threshold.percentile == 5
    assert (recipe.drawing.model, recipe.screen.model) == ("lab:sd", "lab:clip")
    assert noted(result, "all classes", "fewer than 20 images", "weak")


def test_class_folders_may_be_links_and_are_reported(tmp_path: Path) -> None:
    draw_folder(tmp_path / "photos", per_class=2)
    (tmp_path / "photos" / "train" / "mug").rename(tmp_path / "collected")
    (tmp_path / "photos" / "train" / "mug").symlink_to(tmp_path / "collected")
    result = init("photos", **LAB)
    assert result.images["mug"] == {"train": 2, "validation": 2}
    assert noted(result, "train/mug is a link", str(tmp_path / "collected"))


def test_a_bare_word_is_a_folder_and_the_hub_is_asked_once_where_it_is_none(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    words = ("init", "photoz", "--generator", "lab:sd", "--device", "cpu")
    done = python(loopback, tmp_path, "-m", "counterfoil.cli.main", *words)
    assert done.returncode == 1
    assert f"there is no folder photoz in {tmp_path}" in done.stderr and "Retry" not in done.stderr
    assert len([request for request in loopback.requests if "photoz" in str(request)]) <= 2


def test_the_file_has_words_for_people_and_names_the_folder_from_where_it_lies(
    tmp_path: Path,
) -> None:
    draw_folder(tmp_path / "sets" / "photos", per_class=2)
    text = init("sets/photos", "sets/own.yaml", **LAB).path.read_text()
    assert sum(line.lstrip().startswith("# ") for line in text.splitlines()) >= 10
    written = yaml.safe_load(text)
    assert written["source"]["dataset"] == "./photos"
    assert written["source"]["classes"] == ["ladder", "mug", "star"]
    init("sets/photos", "elsewhere/own.yaml", **LAB)
    assert load_recipe("elsewhere/own.yaml").source.dataset == str(tmp_path / "sets" / "photos")


def test_prompts_fit_every_article(tmp_path: Path) -> None:
    draw_folder(tmp_path / "photos", per_class=2, splits=("",))
    recipe = loaded(init("photos", **LAB))
    for shift in recipe.all_shifts():
        assert shift.prompt is not None
        assert " a {class}" not in shift.prompt and " an {class}" not in shift.prompt
        assert (
            not shift.object_caption.startswith("a {class}")
            and "of a {class}" not in shift.object_caption
        )
    assert {shift.kind for shift in recipe.all_shifts()[1:]} == {
        "background",
        "weather",
        "light",
        "colour",
        "style",
    }


def test_splits_are_found_and_it_is_said_what_a_lack_of_them_means(tmp_path: Path) -> None:
    draw_folder(tmp_path / "alone", per_class=3, splits=("",))
    alone = init("alone", "alone.yaml", **LAB)
    source = loaded(alone).source
    assert source.train_split == source.validation_split == "train"
    assert noted(alone, "percentiles of training images")
    draw_folder(tmp_path / "one", per_class=2, splits=("train", "val"))
    assert loaded(init("one", "one.yaml", **LAB)).source.validation_split == "validation"
    draw_folder(tmp_path / "two", per_class=2, splits=("train", "test"))
    result = init("two", "two.yaml", **LAB)
    assert loaded(result).source.validation_split == "test"
    assert noted(result, "no validation split", "test")


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    draw_folder(tmp_path / "photos", per_class=2, splits=("",))
    (tmp_path / "recipe.yaml").write_text("mine\n")
    with pytest.raises(UserError, match=r"recipe\.yaml exists already"):
        init("photos", **LAB)
    assert (tmp_path / "recipe.yaml").read_text() == "mine\n"
    assert loaded(init("photos", force=True, **LAB)).name == "photos-star"


def test_odd_names_of_folders_get_ids_and_resolve_to_their_own_labels(tmp_path: Path) -> None:
    names = [
        "Coffee Mug",
        "coffee mug!",
        "9 lives",
        "café au lait",
        "Ω",
        "日本",
        "a: [b]",
        "no",
        "null",
        "#1",
        "{class}",
    ]
    draw_folder(tmp_path / "photos", names, per_class=2, splits=("",))
    recipe = loaded(init("photos", **LAB))
    order = sorted(names)
    assert [cls.name for cls in recipe.classes] == [name.replace("_", " ") for name in order]
    assert [cls.source_label for cls in recipe.classes] == list(range(len(names)))
    assert len({cls.id for cls in recipe.classes}) == len(names)


def test_what_is_not_read_is_counted_and_reported(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", per_class=2)
    (folder / "train" / "mug" / "000.png").rename(folder / "train" / "mug" / "test_000.png")
    (folder / "train" / "mug" / ".DS_Store").write_bytes(b"x")
    (folder / "train" / "mug" / "notes.txt").write_bytes(b"x")
    (folder / "validation" / "star" / "000.png").write_bytes(b"no image")
    result = init("photos", **LAB)
    # The name of a file is no split.
    assert result.rows["train"] == 6
    assert noted(result, "1 hidden file") and noted(result, "1 file of other kinds")
    assert noted(result, "1 image cannot be read", "would stop there", "validation/star/000.png")
    # What is corrupted is chosen among rows that decode.
    assert noted(
        init("photos", "own.yaml", device="cpu"), "1 image cannot be read", "a build leaves out"
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["1.png", "2.png"], "all images are in one folder"),
        (["mug/1.png"], "all images are in one folder"),
        (["notes.txt"], "holds no image"),
    ],
)
def test_a_folder_without_classes_is_refused_with_what_to_do(
    files: list[str], message: str, tmp_path: Path
) -> None:
    for name in files:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded((9, 9, 9)))
    with pytest.raises(UserError, match=message) as caught:
        init("photos", **LAB)
    assert "folder" in (caught.value.hint or "")


def test_classes_without_validation_images_are_left_out_and_reported(tmp_path: Path) -> None:
    folder = draw_folder(tmp_path / "photos", per_class=2)
    for file in (folder / "validation" / "mug").iterdir():
        file.unlink()
    result = init("photos", **LAB)
    assert [(cls.name, cls.source_label) for cls in loaded(result).classes] == [
        ("ladder", 0),
        ("star", 2),
    ]
    assert noted(result, "left out", "validation", "mug")


def test_parquet_and_saved_datasets_are_read_and_their_columns_found(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    table(["mug", "star", "mug"], "category", "picture").to_parquet(
        str(tmp_path / "rows" / "train.parquet")
    )
    recipe = loaded(init("rows", "rows.yaml", **LAB))
    assert (recipe.source.image_column, recipe.source.label_column) == ("picture", "category")
    assert [cls.name for cls in recipe.classes] == ["mug", "star"]
    table([0, 1, 1], kind=datasets.ClassLabel(names=["star", "mug"])).save_to_disk(
        str(tmp_path / "saved")
    )
    result = init("saved", "saved.yaml", **LAB)
    assert [(cls.name, cls.source_label) for cls in loaded(result).classes] == [
        ("star", 0),
        ("mug", 1),
    ]
    assert result.images == {"star": {"train": 1}, "mug": {"train": 2}}


def test_a_damaged_table_is_reported_as_one(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "train.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(
        UserError, match=r"rows': train\.parquet: is no Parquet file, or is cut off"
    ):
        init("rows", **LAB)


def test_columns_that_cannot_be_told_apart_are_asked_for(tmp_path: Path) -> None:
    two = table(["mug", "star"], "label").add_column("category", ["x", "y"])
    two.save_to_disk(str(tmp_path / "two"))
    with pytest.raises(
        UserError, match="several columns may hold the labels: label, category"
    ) as caught:
        init("two", **LAB)
    assert "--label-column" in (caught.value.hint or "")
    assert [cls.name for cls in loaded(init("two", label_column="category", **LAB)).classes] == [
        "x",
        "y",
    ]
    with pytest.raises(UserError, match="there is no column 'nowhere'"):
        init("two", "other.yaml", image_column="nowhere", **LAB)


def test_numbers_without_names_are_no_classes_to_draw(tmp_path: Path) -> None:
    table([0, 1], kind=datasets.Value("int64")).save_to_disk(str(tmp_path / "numbers"))
    with pytest.raises(UserError, match="numbers without names"):
        init("numbers", **LAB)


def test_a_strangers_names_move_no_cursor_and_fill_no_page(tmp_path: Path) -> None:
    names = ["mug\x1b[2J", "m" * 5000, "star\nrecipe: 2"]
    kind = datasets.ClassLabel(names=[*names, "star"])
    table([0, 1, 2, 3], kind=kind).save_to_disk(str(tmp_path / "odd"))
    problems = problems_of(init, "odd", **LAB)
    assert len(problems) == 3
    assert all(problem.isprintable() and len(problem) < 300 for problem in problems)


def test_more_classes_than_a_recipe_should_hold_are_refused(tmp_path: Path) -> None:
    names = [f"word{number}" for number in range(1001)]
    table(list(range(1001)), kind=datasets.ClassLabel(names=names)).save_to_disk(
        str(tmp_path / "many")
    )
    with pytest.raises(UserError, match="1,001 classes, expected at most 1,000"):
        init("many", **LAB)
    table(list(range(1000)), kind=datasets.ClassLabel(names=names)).save_to_disk(
        str(tmp_path / "all")
    )
    assert len(loaded(init("all", **LAB)).classes) == 1000


def publish_mugs(loopback: LoopbackHub, rows: datasets.Dataset) -> None:
    hub = client(loopback)
    hub.create_repo("someone/mugs", repo_type="dataset")
    stream = io.BytesIO()
    rows.to_parquet(stream)
    hub.upload_file(
        path_or_fileobj=stream.getvalue(),
        path_in_repo="data/train-00000-of-00001.parquet",
        repo_id="someone/mugs",
        repo_type="dataset",
    )


def python(loopback: LoopbackHub, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in this folder, where its Hub is the one on this machine."""
    environment = client_environment(loopback, folder / "home")
    environment["PYTHONPATH"] = ":".join(sys.path)
    return warm.run([sys.executable, *words], environment, cwd=folder)


def test_a_dataset_of_the_hub_is_read_at_its_commit_and_named_as_it_is(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    publish_mugs(loopback, table([0, 1, 1], kind=datasets.ClassLabel(names=["mug", "star"])))
    code = (
        "import counterfoil; counterfoil.init('someone/mugs', 'hub.yaml', generator='lab:sd',"
        " device='cpu')"
    )
    done = python(loopback, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    source = yaml.safe_load((tmp_path / "hub.yaml").read_text())["source"]
    assert (source["dataset"], source["classes"]) == ("someone/mugs", ["mug", "star"])


def test_names_are_spoken_and_refused_together() -> None:
    assert prompt_names(["ankle_boot", " T-shirt "]) == ["ankle boot", "T-shirt"]
    problems = problems_of(prompt_names, ["", "a\u202eb", "mug"])
    assert len(problems) == 2


def test_entries_are_names_alone_where_a_build_finds_the_same_by_them() -> None:
    labels = ["cup", "Cup!", "Ω"]
    assert class_entries(["cup", "Cup!", "Ω"], [0, 1, 2], labels) == [
        "cup",
        {"id": "cup-2", "name": "Cup!", "source_label": 1},
        {"id": "class-2", "name": "Ω", "source_label": 2},
    ]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("my--photos..v2", "my-photos-v2-star"),
        ("日本", "photos-star"),
        ("-._x_", "x-star"),
        ("a" * 200, "a" * 91 + "-star"),
    ],
)
def test_a_dataset_is_called_after_its_folder_as_the_hub_takes_it(
    folder: str, name: str, tmp_path: Path
) -> None:
    draw_folder(tmp_path / folder, per_class=2, splits=("",))
    assert loaded(init(tmp_path / folder, **LAB)).name == name


def test_a_name_that_the_hub_does_not_take_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UserError, match="--name: found 'a--b'"):
        init("nowhere at all", name="a--b", **LAB)


def test_a_long_id_is_cut_and_stays_its_own() -> None:
    names = ["㎏" * 96, "㎏" * 95]
    entries = class_entries(names, [0, 1], names)
    assert [entry["name"] for entry in entries] == names
    assert len({entry["id"] for entry in entries}) == 2 and all(
        len(entry["id"]) <= 96 for entry in entries
    )


def test_models_are_those_that_a_machine_can_run() -> None:
    small = proposed_models("cpu")
    assert "No GPU" in small.reason and LARGE_GENERATOR not in small.reason
    assert (small.screen["model"], small.screen["weights"]) == ("ViT-B-32", "laion2b_s34b_b79k")
    named = proposed_models("cpu", "someone/diffusion", "ViT-L-14/openai")
    assert named.generator["model"] == "someone/diffusion"
    assert named.screen == {"model": "ViT-L-14", "weights": "openai"}
    for clip in ("ViT-L-14", "ViT-L-14/", "a/b/c"):
        with pytest.raises(UserError, match="--clip"):
            proposed_models("cpu", None, clip)
    with pytest.raises(UserError, match="no folder"):
        proposed_models("cpu", "./nowhere")


def test_without_a_gpu_a_first_recipe_is_of_known_changes_and_fits_ten_minutes(
    tmp_path: Path,
) -> None:
    draw_folder(tmp_path / "photos", per_class=2)
    result = counterfoil.init("photos", "own.yaml", device="cpu")
    recipe = loaded(result)
    assert (recipe.name, recipe.kind.name, recipe.generator.get("split")) == (
        "photos-corrupt",
        "corrupt",
        "validation",
    )
    # they are of 96 pixels
    assert recipe.screen.model is None and recipe.generator.get("size") is None
    assert [shift.severity for shift in recipe.all_shifts()] == [0, *[3] * len(KINDS)]
    assert "Without a GPU" in result.models and "--generator" in result.models
    assert not any("threshold" in note for note in result.notes)
    assert [command.split()[1] for command in result.commands] == ["check", "build", "evaluate"]
    drawn = counterfoil.init("photos", "drawn.yaml", **LAB)
    assert loaded(drawn).kind.name == "diffusers"


@pytest.mark.parametrize(
    ("classes", "images"), [(2, 5000), (10, 5000), (10, 12), (100, 5000), (120, 5000), (1000, 50)]
)
def test_the_first_extent_is_worth_measuring_and_small(classes: int, images: int) -> None:
    found_classes = tuple(
        FoundClass(f"c{label}", label, {"test": images}) for label in range(classes)
    )
    extent = extent_of(
        FoundData(
            NamedDataset("x"),
            {"test": classes * images},
            "train",
            "test",
            (),
            found_classes,
            (),
        )
    )
    assert 5 <= extent.a_class <= 50 and len(extent.kinds) >= 3
    most = int(re.findall(r"(\d+) minutes", extent.time.replace("a minute", "1 minutes"))[-1])
    assert most <= 10 or classes > 300  # five images of a class are the least that says anything


def test_large_photographs_are_reduced_and_stored_small(tmp_path: Path) -> None:
    for name in ("mug", "star"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (400, 300), (len(name), 9, 9)).save(tmp_path / "photos" / name / "1.png")
    recipe = loaded(counterfoil.init("photos", device="cpu"))
    assert recipe.generator.get("size") == 256 and recipe.output.image.format == "jpg"
    assert recipe.generator.get("split") == "train" == recipe.source.validation_split


RECIPE = """
extends: wardrobe-mini
source: {dataset: someone/mugs, classes: null, train_split: train, validation_split: train}
tokens: null
screen: {judge: null}
evaluate: {models: []}
"""


def test_labels_that_only_rows_tell_are_a_lack(loopback: LoopbackHub, tmp_path: Path) -> None:
    publish_mugs(loopback, table(["mug", "star"]))
    (tmp_path / "own.yaml").write_text(RECIPE)
    check = ("-m", "counterfoil.cli.main", "check", "own.yaml")
    refused = python(loopback, tmp_path, *check)
    assert refused.returncode == 2, refused.stderr
    assert "someone/mugs" in refused.stderr and "not on this machine" in refused.stderr
    fetched = {path.suffix for path in (tmp_path / "home").rglob("*")}
    assert not fetched & {".parquet", ".arrow"}
    resolve = (
        "import counterfoil as c; print(len(c.resolve_classes(c.load_recipe('own.yaml')).classes))"
    )
    assert python(loopback, tmp_path, "-c", resolve).stdout.strip() == "2"
    assert python(loopback, tmp_path, *check).returncode == 0


@pytest.mark.parametrize("label", ["", ",animal"])
def test_init_says_what_columns_of_0_and_1_are_good_for(tmp_path: Path, label: str) -> None:
    (tmp_path / "faces").mkdir()
    lines = [f"file_name,smiling,hat,age{label}"]
    for number in range(4):
        (tmp_path / "faces" / f"{number}.png").write_bytes(encoded((9 * number, 9, 9)))
        animal = ",cat" if number % 2 else ",dog"
        lines.append(
            f"{number}.png,{number % 2},{number >= 2},{20 + number}{animal if label else ''}"
        )
    (tmp_path / "faces" / "metadata.csv").write_text("\n".join(lines))
    advice = 'source.conditions: {columns: ["smiling", "hat"]}'
    if label:
        assert noted(init("faces", label_column="animal", device="cpu"), advice)
        return
    for column in (None, "smiling"):
        with pytest.raises(UserError) as refused:
            init("faces", label_column=column, device="cpu")
        assert advice in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("metadata", "advice"),
    [
        (b"file_name;label\n0.png;mug\n1.png;star\n", "with commas between them: file_name,label"),
        (
            "file_name,label\n0.png,caf\u00e9\n1.png,star\n".encode("latin-1"),
            "Save it and other tables as UTF-8",
        ),
    ],
)
def test_init_says_how_to_write_a_table_that_cannot_be_read(
    metadata: bytes, advice: str, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(2):
        (tmp_path / "photos" / f"{number}.png").write_bytes(encoded((9 * number, 9, 9)))
    (tmp_path / "photos" / "metadata.csv").write_bytes(metadata)
    with pytest.raises(UserError) as refused:
        init("photos", device="cpu")
    assert advice in (refused.value.hint or "")

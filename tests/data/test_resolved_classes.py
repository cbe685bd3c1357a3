"""Classes that are left to the input dataset: by its own names and numbers, asked once, and never
against them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import counterfoil
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.data.open_source import names_at_hand, open_source
from counterfoil.data.pool import pool_of, rows_of_classes
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.lab.planted import named_world
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.names import disagreements, refuse_disagreements
from support.images import encoded
from support.refusals import problems_of, refuses, states
from support.tables import image_table, parquet_folder

# In the order of their labels, which is not the one in which people think of them.
FOLDERS = ("ladder", "mug", "sea_star")
OWN_ORDER = (
    '[{name: mug, source_label: 0}, {name: "sea star", source_label: 1}, {name: ladder,'
    " source_label: 2}]"
)
RIGHT = (
    '[{name: mug, source_label: 1}, {name: "sea star", source_label: 2}, {name: ladder,'
    " source_label: 0}]"
)


def imagefolder(
    folder: Path, *names: str, splits: tuple[str, ...] = ("train", "validation")
) -> Path:
    for split in splits:
        for shade, name in enumerate(names):
            (folder / split / name).mkdir(parents=True)
            for number in range(2):
                (folder / split / name / f"{number}.png").write_bytes(encoded(60 * shade + number))
    return folder


def parquet(folder: Path, names: list[str] | None = None, **splits: list[Any]) -> Path:
    tables = {
        split: image_table([encoded(n) for n in range(len(labels))], names=names, label=labels)
        for split, labels in splits.items()
    }
    return parquet_folder(folder, **tables)


def recipe_of(dataset: Path | str, classes: str = "null", *more: str) -> Recipe:
    changes = [
        f"source={{dataset: {dataset}, unit_column: null, classes: {classes}}}",
        "tokens=null",
        *more,
    ]
    return load_recipe("wardrobe-mini", changes)


def classes_of(recipe: Recipe) -> list[tuple[str, str, int]]:
    return [(cls.id, cls.name, cls.source_label) for cls in recipe.classes]


def test_a_recipe_that_tells_every_label_is_itself() -> None:
    recipe = load_recipe("wardrobe-mini")
    assert resolve_classes(recipe) is recipe
    assert inspect.unwrap(counterfoil.resolve_classes) is resolve_classes


def test_classes_of_folders_are_found_by_name_in_the_recipe_s_order(tmp_path: Path) -> None:
    folder = imagefolder(tmp_path / "things", *FOLDERS)
    named = resolve_classes(recipe_of(folder, '[mug, "Sea Star", ladder]'))
    assert classes_of(named) == [
        ("mug", "mug", 1),
        ("sea-star", "Sea Star", 2),
        ("ladder", "ladder", 0),
    ]
    assert classes_of(resolve_classes(recipe_of(folder, "[{name: star fish, id: sea_star}]"))) == [
        ("sea_star", "star fish", 2)
    ]
    assert (
        named.recipe_hash
        == resolve_classes(recipe_of(folder, RIGHT.replace("sea star", "Sea Star"))).recipe_hash
    )


def test_classes_that_are_left_out_are_all_of_the_source_in_its_order(tmp_path: Path) -> None:
    folder = imagefolder(tmp_path / "things", *FOLDERS)
    recipe = resolve_classes(recipe_of(folder))
    assert classes_of(recipe) == [
        ("ladder", "ladder", 0),
        ("mug", "mug", 1),
        ("sea-star", "sea star", 2),
    ]
    assert resolve_classes(recipe) is recipe
    # What a dataset directory holds: every class, with its label.
    assert [entry.source_label for entry in recipe.portable.source.classes or ()] == [0, 1, 2]


def test_declared_names_have_their_own_order(tmp_path: Path) -> None:
    folder = parquet(tmp_path / "things", ["star", "mug"], train=[0, 1], validation=[1])
    assert classes_of(resolve_classes(recipe_of(folder))) == [
        ("star", "star", 0),
        ("mug", "mug", 1),
    ]


def test_labels_of_text_are_numbered_as_they_are_sorted_and_read_by_that(tmp_path: Path) -> None:
    folder = parquet(
        tmp_path / "things", train=["mug", "ladder", "mug"], validation=["mug", "ladder"]
    )
    recipe = resolve_classes(recipe_of(folder, "[mug, ladder]"))
    assert classes_of(recipe) == [("mug", "mug", 1), ("ladder", "ladder", 0)]
    assert labelled_split(recipe.source, "train", recipe.classes).labels.tolist() == [0, 1, 0]
    assert open_source(recipe.source).split("train").rows_of(
        recipe.classes[0].source_label
    ).tolist() == [0, 2]


def test_labels_of_text_that_one_split_lacks_mean_no_one_class(tmp_path: Path) -> None:
    folder = parquet(
        tmp_path / "things", train=["ladder", "mug", "star"], validation=["mug", "star"]
    )
    with refuses("unclear-label", "source.classes", "'ladder' in train and 'mug' in validation"):
        resolve_classes(recipe_of(folder))


@pytest.mark.parametrize(
    "listed",
    [
        ("cat", "dog"),
        ("ant", "cat", "dog"),
        ("dog",),
    ],
)
def test_a_split_that_lacks_a_class_of_text_keeps_the_numbers_of_the_others(
    listed: tuple[str, ...], tmp_path: Path
) -> None:
    """`ant` has no row in test, and `bee` none in any other split, so the texts of test alone have
    other positions."""
    test = ["dog", "cat", "bee", "dog", "eel"]
    whole = ["ant", "cat", "dog", "eel"]
    folder = parquet(
        tmp_path / "things",
        train=whole,
        validation=whole,
        test=test,
    )
    document = {
        "recipe": 1,
        "name": "things",
        "license": "other",
        "source": {"dataset": str(folder), "classes": listed},
        "generator": {"kind": "corrupt", "split": "test"},
        "prompts": {"shifts": {"darker": {"corruption": "darker"}}},
        "samples": {"candidates": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(document))
    recipe = resolve_classes(tmp_path / "recipe.yaml")
    pool = open_source(pool_of(recipe)).rows("test")
    of_class = rows_of_classes(recipe, pool)
    images = labelled_split(recipe.source, "test", recipe.classes)
    source_split = open_source(recipe.source).split("test")
    for cls in recipe.classes:
        right = [row for row, text in enumerate(test) if text == cls.name]
        assert of_class(cls).nonzero()[0].tolist() == right
        assert source_split.rows_of(cls.source_label).tolist() == right
        keys = [f"test_{row:08d}" for row in right]
        assert [images.keys[row] for row in (images.labels == cls.label).nonzero()[0]] == keys


def test_written_numbers_are_refused_where_two_splits_number_a_text_differently(
    tmp_path: Path,
) -> None:
    folder = parquet(
        tmp_path / "things",
        train=["ant", "cat", "dog"],
        validation=["cat", "dog"],
    )
    recipe = recipe_of(
        folder, "[{name: one cat, source_label: 1}, {name: one dog, source_label: 2}]"
    )
    with refuses(
        "unclear-label",
        "source",
        "'ant' in train and 'cat' in validation",
    ):
        labelled_split(recipe.source, "validation", recipe.classes)


def test_the_lab_s_datasets_have_names() -> None:
    assert [name for _, name, _ in classes_of(resolve_classes(recipe_of("lab:wardrobe")))] == list(
        CLASSES
    )
    world = named_world("correlation-0")
    assert world is not None
    planted = resolve_classes(recipe_of("lab:planted/correlation-0"))
    assert [cls.name for cls in planted.classes] == list(world.class_names)


@pytest.mark.parametrize(
    ("names", "classes", "message"),
    [
        (
            FOLDERS,
            "[mug, spoon]",
            r"classes\[1\]: no label of .* is called 'spoon' \(its labels: ladder, mug, sea_star\)",
        ),
        (
            ("a mug", "a_mug"),
            "[a mug]",
            r"'a mug' is the name of the labels 0, 1 .*; write source_label",
        ),
        (
            ("a mug", "a_mug"),
            "null",
            r"the names 'a mug' and 'a_mug' would both have the id 'a-mug'",
        ),
        (("a", "杯"), "null", r"no id can be made from the name '杯' \(label 1\)"),
        (
            FOLDERS,
            "[sea-star, sea_star]",
            r"'sea_star' is label 2, which already belongs to 'sea-star'",
        ),
    ],
)
def test_names_that_mean_no_one_label_are_refused(
    names: tuple[str, ...], classes: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message) as refused:
        resolve_classes(recipe_of(imagefolder(tmp_path / "things", *names), classes))
    assert states(refused.value, "unclear-label")


def test_labels_without_names_and_a_missing_source_are_reported_with_what_to_write(
    tmp_path: Path,
) -> None:
    numbers = parquet(tmp_path / "things", train=[0, 1])
    with refuses("unclear-label", "source.classes", "numbers") as refused:
        resolve_classes(recipe_of(numbers, "[mug]"))
    assert "{name: mug, source_label: 0}" in (refused.value.hint or "")
    with refuses("unreadable-data", "source.classes", kind=CounterfoilError):
        resolve_classes(recipe_of(tmp_path / "nowhere"))


def test_a_dataset_of_the_hub_that_cannot_be_asked_says_what_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RunFailure, match=r"source\.classes: .*someone/photos") as failed:
        resolve_classes(recipe_of("someone/photos"))
    assert "Or write each class out" in (failed.value.hint or "")


def test_labels_that_the_source_s_names_contradict_are_refused_together_with_the_right_ones(
    tmp_path: Path,
) -> None:
    """Labels in another order would silently take thresholds and tokens from other classes."""
    folder = imagefolder(tmp_path / "things", *FOLDERS)
    with pytest.raises(UserError) as refused:
        resolve_classes(recipe_of(folder, OWN_ORDER))
    assert refused.value.problems == (
        f"source.classes[0]: 'mug' has the source_label 0, which is 'ladder' in '{folder}'; write 1",
        f"source.classes[1]: 'sea star' has the source_label 1, which is 'mug' in '{folder}'; write"
        " 2",
        f"source.classes[2]: 'ladder' has the source_label 2, which is 'sea_star' in '{folder}';"
        " write 0",
    )
    assert "Leave source_label out" in (refused.value.hint or "")
    assert classes_of(resolve_classes(recipe_of(folder, RIGHT)))[0] == ("mug", "mug", 1)


@pytest.mark.parametrize(
    ("labels", "entry", "refused"),
    [
        (("mug", "star"), ("mug", 0), False),
        (("mug", "star"), ("MUG", 0), False),
        (("mug", "star"), ("mug", 1), True),
        (("mug", "star"), ("ladder", 1), False),  # people's own name for it
        (("mug", "star"), ("ladder", 2), True),  # no such label
        (("crane", "bird", "crane"), ("crane", 2), False),  # one of two of the name
        (("crane", "bird", "crane"), ("crane", 1), True),
        (("maillot", "maillot, tank suit"), ("maillot", 1), False),  # several names of one label
        (("n02", "n01"), ("tench", 0), True),  # the id, n01, is the name of label 1
        (("n02", "n01"), ("tench", 1), False),
    ],
)
def test_names_contradict_a_label_only_where_they_are_those_of_another(
    labels: tuple[str, ...], entry: tuple[str, int], refused: bool
) -> None:
    name, label = entry
    recipe = recipe_of("lab:wardrobe", f"[{{id: n01, name: {name}, source_label: {label}}}]")
    assert bool(disagreements(recipe.classes, labels, "things")) is refused


def test_the_bundled_lists_of_classes_agree_with_the_names_of_their_datasets() -> None:
    """Check the names of the Hub's datasets, although several lists use everyday names."""
    for name in ("pets-star", "imagenet-star"):
        recipe = load_recipe(name)
        assert not disagreements(recipe.classes, [cls.name for cls in recipe.classes], name)
        assert not disagreements(recipe.classes, [cls.id for cls in recipe.classes], name)


def test_many_disagreements_are_reported_in_few_lines() -> None:
    recipe = load_recipe("imagenet-star")
    wrong = [cls.name for cls in reversed(recipe.classes)]
    problems = problems_of(refuse_disagreements, recipe.classes, wrong, "things")
    assert len(problems) == 21
    assert "more" in problems[-1]


def test_what_was_not_looked_at_before_is_refused_where_it_is_read(tmp_path: Path) -> None:
    recipe = recipe_of(imagefolder(tmp_path / "things", *FOLDERS), OWN_ORDER)
    with pytest.raises(UserError, match="'mug' has the source_label 0"):
        labelled_split(recipe.source, "validation", recipe.classes)


def test_a_build_that_was_begun_goes_on_without_its_source(tmp_path: Path) -> None:
    folder = imagefolder(tmp_path / "things", *FOLDERS)
    recipe = recipe_of(folder)
    whole = resolve_classes(recipe)
    out = tmp_path / "out"
    out.mkdir()
    (out / "recipe.yaml").write_text(whole.portable_yaml)
    folder.rename(tmp_path / "gone")
    assert resolve_classes(recipe, out) == whole
    with refuses("unreadable-data", "source.classes", kind=CounterfoilError):
        resolve_classes(recipe_of(folder, "[mug, ladder]"), out)


def test_a_folder_of_too_many_files_is_not_read_for_its_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = recipe_of(imagefolder(tmp_path / "data", *FOLDERS)).source
    assert names_at_hand(source, ("train",)) == FOLDERS
    monkeypatch.setattr("counterfoil.data.open_source._MOST_FILES", 3)
    assert names_at_hand(source, ("train",)) is None

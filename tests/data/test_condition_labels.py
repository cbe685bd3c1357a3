"""Rows of several labels become conditions, whatever form a dataset has them in; what is unclear is
refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import pytest

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.labelled_sources import (
    NamedDataset,
    labelled_conditions,
    labelled_source,
    labelled_split,
)
from counterfoil.data.labels import NONE, ConditionLabels, conditions_of
from counterfoil.data.open_source import open_source
from counterfoil.data.tables import Rows
from counterfoil.errors import UserError
from counterfoil.mining.audited import opened_images
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.schema_mine import Mine
from support.images import encoded
from support.refusals import problems_of, refuses

CONDITIONS = ("Effusion", "Cardiomegaly")
# What four rows have, in ChestX-ray14's own spelling.
TEXTS = ["Cardiomegaly|Effusion", "No Finding", "Effusion", "Cardiomegaly"]
PRESENT = [[True, True], [False, False], [True, False], [False, True]]
PATIENTS = [7, 7, 8, 9]


def saved(folder: Path, feature: Any = None, **columns: list[Any]) -> Path:
    count = len(next(iter(columns.values())))
    table: dict[str, Any] = {
        "image": [{"bytes": encoded((20 * row, 0, 0)), "path": None} for row in range(count)],
        **columns,
    }
    rows = datasets.Dataset.from_dict(table).cast_column("image", datasets.Image())
    if feature is not None:
        rows = rows.cast_column("found", feature)
    folder.mkdir(parents=True)
    rows.to_parquet(str(folder / "validation.parquet"))
    return folder


def recipe_of(folder: Path, conditions: str, *changes: str) -> Recipe:
    classes = (
        "[{id: effusion, name: effusion, source_label: 0}, {id: no_effusion, name: no"
        " effusion, source_label: 1}"
    )
    classes += (
        ", {id: heart, name: large heart, source_label: 2}, {id: no_heart, name: no large"
        " heart, source_label: 3}]"
    )
    source = (f"source.dataset={folder}", "source.label_column=found", f"source.classes={classes}")
    sections = ("tokens=null", "source.unit_column=patient", f"source.conditions={conditions}")
    return load_recipe("wardrobe-mini", [*source, *sections, *changes])


BY_LABELS = "{labels: [Effusion, Cardiomegaly], others: [No Finding]}"
BY_COLUMNS = "{columns: [Effusion, Cardiomegaly]}"


def read(folder: Path, conditions: str) -> tuple[LabelledImages, ConditionLabels]:
    return labelled_conditions(recipe_of(folder, conditions).source, "validation")


def forms(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    names = ["No Finding", "Cardiomegaly", "Effusion"]
    numbers = [[names.index(part) for part in text.split("|")] for text in TEXTS]
    lists = [text.split("|") for text in TEXTS]
    columns = {name: [int(row[k]) for row in PRESENT] for k, name in enumerate(CONDITIONS)}
    named = datasets.Sequence(datasets.ClassLabel(names=names))
    every = {
        "texts": (saved(tmp_path / "texts", found=TEXTS, patient=PATIENTS), BY_LABELS),
        "lists": (saved(tmp_path / "lists", found=lists, patient=PATIENTS), BY_LABELS),
        "numbers": (
            saved(tmp_path / "numbers", found=numbers, patient=PATIENTS),
            "{labels: ['2', '1'], others: ['0']}",
        ),
        "named numbers": (
            saved(tmp_path / "named", named, found=numbers, patient=PATIENTS),
            BY_LABELS,
        ),
        "columns": (saved(tmp_path / "columns", patient=PATIENTS, **columns), BY_COLUMNS),
    }
    truths: dict[str, list[Any]] = {
        "floats": [[float(value) for value in column] for column in columns.values()],
        "truths": [[bool(value) for value in column] for column in columns.values()],
    }
    for name, values in truths.items():
        columns_of_kind = dict(zip(CONDITIONS, values, strict=True))
        every[name] = (saved(tmp_path / name, patient=PATIENTS, **columns_of_kind), BY_COLUMNS)
    return every


def test_every_form_tells_the_same(tmp_path: Path) -> None:
    for name, (folder, conditions) in forms(tmp_path).items():
        images, labels = read(folder, conditions)
        assert labels.present.tolist() == PRESENT, name
        # The units are patients, and every row is kept: a row without a condition is healthy, not
        # unlabelled.
        assert images.units == ("7", "7", "8", "9"), name
        assert images.keys == tuple(f"validation_{row:08d}" for row in range(4)), name
        assert [content for _, content in images.images()] == [
            encoded((20 * row, 0, 0)) for row in range(4)
        ], name
        assert images.left_out == {}, name


def test_the_classes_of_a_condition_are_two_and_part_its_rows(tmp_path: Path) -> None:
    folder = saved(tmp_path / "texts", found=TEXTS, patient=PATIENTS)
    split = open_source(recipe_of(folder, BY_LABELS).source).split("validation")
    assert [split.rows_of(label).tolist() for label in range(4)] == [[0, 2], [1, 3], [0, 3], [1, 2]]


def test_an_empty_list_is_none_of_the_conditions(tmp_path: Path) -> None:
    folder = saved(
        tmp_path / "lists",
        found=[["Effusion"], [], ["Cardiomegaly", "Effusion"]],
        patient=[1, 2, 3],
    )
    images, labels = read(folder, "{labels: [Effusion, Cardiomegaly]}")
    assert labels.present.tolist() == [[True, False], [False, False], [True, True]]
    assert images.class_names is not None
    called = [images.class_names[label] for label in images.labels.tolist()]
    assert called == ["Effusion", NONE, "Effusion, Cardiomegaly"]


def test_a_vector_for_each_row_has_the_labels_by_position(tmp_path: Path) -> None:
    vectors = [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    names = ["Effusion", "No Finding", "Cardiomegaly"]
    named = datasets.Sequence(datasets.ClassLabel(names=names))
    folder = saved(
        tmp_path / "named",
        named,
        found=vectors,
        patient=[1, 2, 3],
    )
    _, labels = read(folder, BY_LABELS)
    assert labels.present.tolist() == [
        [True, True],
        [False, False],
        [False, False],
    ]
    bare = saved(tmp_path / "bare", found=vectors, patient=[1, 2, 3])
    with refuses(
        "unfit-column",
        "source.label_column",
        "'found'",
        "a 0 or a 1 for each label",
    ):
        read(bare, "{labels: ['0', '1']}")
    objects = saved(
        tmp_path / "objects",
        found=[[0, 0, 1], [0], [1]],
        patient=[1, 2, 3],
    )
    _, labels = read(objects, "{labels: ['0', '1']}")
    assert labels.present.tolist() == [
        [True, True],
        [True, False],
        [False, True],
    ]


def test_other_conditions_are_another_content(tmp_path: Path) -> None:
    folder = saved(tmp_path / "columns", patient=[1, 2], a=[0, 1], b=[1, 1])
    contents = {read(folder, f"{{columns: [{names}]}}")[0].content for names in ("a, b", "b, a")}
    assert len(contents) == 2


@pytest.mark.parametrize(
    ("values", "code", "facts"),
    [
        (
            ["Effusion", "Effusion|Hernia", "Hernia"],
            "unknown-label",
            {"row": 1, "others": 1, "found": "Hernia"},
        ),
        (
            ["Effusion", "effusion"],
            "unknown-label",
            {"row": 1, "others": 0, "hint": "; did you mean 'Effusion'?"},
        ),
        (["Effusion", "Effusion||Cardiomegaly"], "unknown-label", {"row": 1, "found": ""}),
        (["Effusion", None, ""], "missing-label", {"found": 2, "row": 1}),
        ([["Effusion"], None], "missing-label", {"found": 1, "row": 1}),
    ],
)
def test_labels_that_are_unclear_are_reported(
    values: list[Any], code: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(tmp_path / "odd", found=values, patient=list(range(len(values))))
    (problem,) = problems_of(read, folder, BY_LABELS)
    assert problem.code == code
    assert dict(problem.values) | facts == problem.values


@pytest.mark.parametrize(
    ("values", "code", "facts"),
    [
        ([0, 1, -1, 2], "unfit-column", {"rows": 2, "found": "-1", "row": 2}),
        ([0.0, 1.0, None, 0.5], "missing-label", {"found": 1, "row": 2}),
        (["0", "1", "yes", "-1.0"], "unfit-column", {"rows": 2, "found": "'yes'", "row": 2}),
        (["0", "1", "", "NaN"], "missing-label", {"found": 2, "row": 2}),
    ],
)
def test_columns_of_anything_else_are_reported(
    values: list[Any], code: str, facts: dict[str, Any], tmp_path: Path
) -> None:
    folder = saved(
        tmp_path / "odd", Effusion=values, Cardiomegaly=[0, 0, 1, 3], patient=[1, 2, 3, 4]
    )
    first, *_, last = problems_of(read, folder, BY_COLUMNS)
    assert first.code == code
    assert dict(first.values) | facts == first.values
    where = f"{folder}, split validation"
    assert first.startswith(f"{where}: column 'Effusion': ")
    assert last == (
        f"{where}: column 'Cardiomegaly': has neither 0 nor 1 in 1 row, such as 3 in row 3"
        " [unfit-column]"
    )


@pytest.mark.parametrize(
    ("names", "present", "noted"),
    [
        (["no", "yes"], 1, False),
        (["yes", "no"], 0, False),
        (["Present", "Absent"], 0, False),
        (["1", "0"], 0, False),
        (["true", "false"], 0, False),
        (["Effusion", "No Effusion"], 0, False),
        (["effusion", "normal"], 0, False),
        (["normal", "effusion"], 1, False),
        (["opaque", "clear"], 1, True),
    ],
)
def test_names_of_numbers_say_which_is_present(
    names: list[str], present: int, noted: bool, tmp_path: Path
) -> None:
    table = datasets.Dataset.from_dict(
        {
            "image": [{"bytes": encoded((20 * row, 0, 0)), "path": None} for row in range(3)],
            "Effusion": [0, 1, 1],
            "Cardiomegaly": [0, 1, 0],
            "patient": [1, 2, 3],
        }
    )
    table = table.cast_column("image", datasets.Image())
    table = table.cast_column("Effusion", datasets.ClassLabel(names=names))
    (tmp_path / "named").mkdir()
    table.to_parquet(str(tmp_path / "named" / "validation.parquet"))
    _, labels = read(tmp_path / "named", BY_COLUMNS)
    assert labels.present[:, 0].tolist() == [number == present for number in (0, 1, 1)]
    assert labels.present[:, 1].tolist() == [False, True, False]
    assert [f"{names[present]!r} counts as present" in note for note in labels.notes] == [
        True
    ] * noted


def test_what_is_not_there_is_reported_with_what_is(tmp_path: Path) -> None:
    columns = saved(tmp_path / "columns", patient=[1, 2], effusion=[0, 1])
    with refuses("missing-column", "source.conditions.columns", "'Effusion'", "'effusion'"):
        read(columns, BY_COLUMNS)
    with refuses("missing-column", "source.label_column", "'found'"):
        read(columns, BY_LABELS)
    named = datasets.Sequence(datasets.ClassLabel(names=["Effusion", "Hernia"]))
    lists = saved(tmp_path / "lists", named, found=[[0], [0, 1]], patient=[1, 2])
    with refuses("unknown-label", "source.conditions.labels", "'Cardiomegaly'"):
        read(lists, "{labels: [Effusion, Cardiomegaly], others: [Hernia]}")


def test_where_a_row_needs_one_label_conditions_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "lists", found=[["Effusion"], ["Cardiomegaly"]], patient=[1, 2])
    recipe = recipe_of(folder, BY_LABELS)
    with refuses("unclear-label", "source.conditions"):
        labelled_split(recipe.source, "validation", recipe.classes)
    with refuses("unfit-column", "source.label_column"):
        labelled_source(NamedDataset(str(folder), label_column="found"), recipe.classes)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ("{}", "found neither labels nor columns"),
        ("{labels: [a], columns: [b]}", "found labels and columns"),
        ("{columns: [a, b], others: [c]}", "found others with columns"),
        ("{labels: [a, b], others: [a]}", "found 'a' again"),
        ("{labels: [a, 'b|c']}", "found 'b|c'"),
        ("{labels: [a]}", "expected two classes a condition, with source labels from 0 to 1"),
        ("{labels: [a, b, c]}", "expected two classes a condition, with source labels from 0 to 5"),
    ],
)
def test_a_recipe_says_its_conditions_once_with_two_classes_each(
    conditions: str, message: str, tmp_path: Path
) -> None:
    problems = problems_of(recipe_of, tmp_path, conditions)
    assert message in "\n".join(problems)


def test_conditions_are_of_the_source_and_change_no_image(tmp_path: Path) -> None:
    by_labels = recipe_of(tmp_path, BY_LABELS)
    by_columns = recipe_of(tmp_path, BY_COLUMNS)
    assert (by_labels.plan_hash, by_labels.screen_hash) == (
        by_columns.plan_hash,
        by_columns.screen_hash,
    )
    assert by_labels.recipe_hash != by_columns.recipe_hash


# Two labels of six rows: 1, 0, blank and -1 (CheXpert's uncertain), in the forms that files have.
_CELLS = [(1, 0), (0, None), (-1, 1), (None, -1), (1, 1), (0, 0)]
_FORMS = {
    "numbers": lambda value: value,
    "fractions": lambda value: None if value is None else float(value),
    "NaN": lambda value: float("nan") if value is None else float(value),
    "text": lambda value: "" if value is None else str(value),
    "text of fractions": lambda value: "NaN" if value is None else f" {value}.0",
}


@pytest.mark.parametrize(
    ("policies", "values"),
    [
        ("unknown: ignore", [[1, 0], [0, -1], [-1, 1], [-1, -1], [1, 1], [0, 0]]),
        ("unknown: absent", [[1, 0], [0, 0], [0, 1], [0, 0], [1, 1], [0, 0]]),
        ("unknown: ignore, blank: absent", [[1, 0], [0, 0], [-1, 1], [0, -1], [1, 1], [0, 0]]),
        ("unknown: absent, blank: ignore", [[1, 0], [0, -1], [0, 1], [-1, 0], [1, 1], [0, 0]]),
    ],
)
def test_unknown_labels_are_what_the_recipe_says_in_every_form(
    policies: str, values: list[list[int]], tmp_path: Path
) -> None:
    recipe = recipe_of(tmp_path, f"{{columns: [Effusion, Cardiomegaly], {policies}}}")
    for name, form in _FORMS.items():
        columns = {label: [form(row[k]) for row in _CELLS] for k, label in enumerate(CONDITIONS)}
        rows = Rows(
            "scans",
            "test",
            6,
            CONDITIONS,
            None,
            columns.__getitem__,
            lambda _: None,
            lambda _: iter(()),
        )
        labels = conditions_of(rows, recipe.source)
        assert labels.values.tolist() == values, name
        blank, uncertain = labels.notes
        assert (
            "2 of 12 labels are blank" in blank and "2 of 12 labels are -1 (uncertain)" in uncertain
        )


def test_a_policy_for_blank_cells_alone_still_refuses_uncertain_ones(tmp_path: Path) -> None:
    folder = saved(
        tmp_path / "odd", Effusion=[1, None, -1], Cardiomegaly=[0, 0, 1], patient=[1, 2, 3]
    )
    for policies, code in (
        ("blank: absent", "unfit-column"),
        ("unknown: ignore, blank: refuse", "missing-label"),
    ):
        with refuses(code, f"{folder}, split validation", "'Effusion'"):
            read(folder, f"{{columns: [Effusion, Cardiomegaly], {policies}}}")


@pytest.mark.parametrize("empty", [None, ""])
def test_all_conditions_of_an_empty_cell_are_unknown(empty: str | None, tmp_path: Path) -> None:
    folder = saved(tmp_path / "texts", found=["Effusion", empty, "No Finding"], patient=[1, 2, 3])
    forms_of = {"ignore": [-1, -1], "absent": [0, 0]}
    for policy, values in forms_of.items():
        _, labels = read(
            folder, f"{{labels: [Effusion, Cardiomegaly], others: [No Finding], unknown: {policy}}}"
        )
        assert labels.values.tolist() == [[1, 0], values, [0, 0]]


def test_a_row_in_which_a_condition_is_unknown_is_of_neither_class(tmp_path: Path) -> None:
    folder = saved(
        tmp_path / "columns", Effusion=[1, 0, -1], Cardiomegaly=[-1, 1, 0], patient=[1, 2, 3]
    )
    conditions = "{columns: [Effusion, Cardiomegaly], unknown: ignore}"
    images, _ = read(folder, conditions)
    assert images.class_names is not None
    called = [images.class_names[label] for label in images.labels.tolist()]
    assert called == [
        "Effusion (Cardiomegaly unknown)",
        "Cardiomegaly",
        f"{NONE} (Effusion unknown)",
    ]
    split = open_source(recipe_of(folder, conditions).source).split("validation")
    assert [split.rows_of(label).tolist() for label in range(4)] == [[0], [1], [1], [2]]


def test_a_policy_at_its_default_enters_no_hash(tmp_path: Path) -> None:
    plain, explicit, other = (
        recipe_of(tmp_path, f"{{columns: [Effusion, Cardiomegaly]{more}}}")
        for more in ("", ", unknown: refuse, blank: null", ", unknown: ignore")
    )
    assert plain.recipe_hash == explicit.recipe_hash != other.recipe_hash
    assert (
        plain.portable_yaml == explicit.portable_yaml and "unknown: ignore" in other.portable_yaml
    )


def test_mining_refuses_labels_that_are_left_out(tmp_path: Path) -> None:
    folder = saved(
        tmp_path / "columns", Effusion=[1, 0, -1], Cardiomegaly=[-1, 1, 0], patient=[1, 2, 3]
    )
    recipe = recipe_of(folder, "{columns: [Effusion, Cardiomegaly], unknown: ignore}")
    with pytest.raises(UserError, match="mining asks for a value of every label"):
        opened_images(recipe, Mine(on=("validation",)), open_source(recipe.source))

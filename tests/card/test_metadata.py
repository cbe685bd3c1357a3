"""Metadata in the forms that the Hub takes, and numbers told as they are."""

from __future__ import annotations

import pytest
from card_cases import plan_of

from counterfoil.card.metadata import (
    classes_are_named,
    configs_of,
    dataset_info_metadata,
    license_metadata,
    pretty_name,
    size_category,
    source_datasets,
    timm_splits,
)
from counterfoil.card.tables import InputRow, input_rows, threshold_text
from counterfoil.recipe import ThresholdSpec
from counterfoil.store import Receipt, StoredFile
from counterfoil.store.layout import Format, What, shard_path


def receipt(group: str, shard: int, of: int, data: int, format: Format = "webdataset") -> Receipt:
    files = [
        StoredFile(shard_path(what, group, "test", shard, of, format), 10 * rows, "ab", rows)
        for what, rows in (("data", data), ("candidates", 5))
        if rows
    ]
    rows: dict[What, int] = {"data": data, "rejected": 0, "candidates": 5}
    return Receipt(group, shard, of, rows, {}, tuple(files), {}, {})


@pytest.mark.parametrize(
    "license, expected",
    [
        ("mit", ("mit", None)),
        ("CC-BY-4.0", ("cc-by-4.0", None)),
        ("other", ("other", None)),
        ("My Licence 2", ("other", "my-licence-2")),
        ("\n---\n", ("other", None)),
    ],
)
def test_a_licence_is_one_that_the_hub_knows_or_other(license: str, expected: tuple[str, str | None]) -> None:
    assert license_metadata(license) == expected


@pytest.mark.parametrize(
    "images, expected",
    [
        (0, "n<1K"),
        (999, "n<1K"),
        (1000, "1K<n<10K"),
        (99_999, "10K<n<100K"),
        (10**6, "1M<n<10M"),
        (10**12, "n>1T"),
    ],
)
def test_size_categories(images: int, expected: str) -> None:
    assert size_category(images) == expected


def test_source_datasets_are_hub_ids_or_original() -> None:
    assert source_datasets("imagenet-1k") == ["imagenet-1k"]
    assert source_datasets("user/name") == ["user/name"]
    for embedded in ("lab:wardrobe", "/data/photos", "./photos"):
        assert source_datasets(embedded) == ["original"]


def test_pretty_names() -> None:
    assert pretty_name("wardrobe-mini") == "Wardrobe mini"
    assert pretty_name("ImageNet_star.v2") == "ImageNet star.v2"


def test_a_group_without_a_row_is_in_no_config_and_counts_add_up() -> None:
    receipts = [
        receipt("base", 0, 1, 3),
        receipt("weather", 0, 2, 2),
        receipt("weather", 1, 2, 4),
        receipt("starry", 0, 1, 0),
    ]
    configs = {config.name: config for config in configs_of(plan_of(), receipts)}
    assert list(configs) == ["default", "base", "weather", "candidates"]
    assert [(split.name, split.rows, split.bytes) for split in configs["default"].splits] == [
        ("base", 3, 30),
        ("weather", 6, 60),
    ]
    (candidates,) = configs["candidates"].splits
    assert candidates.paths == tuple(f"candidates/{group}/test-*.parquet" for group in ("base", "weather", "starry"))
    assert candidates.rows == 20


def test_a_card_of_very_many_names_declares_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("output.format=webdataset")
    configs = configs_of(plan, [receipt("base", 0, 1, 3), receipt("weather", 0, 1, 2)])

    def kinds() -> list[str]:
        infos = dataset_info_metadata(configs, plan.recipe)
        labels = [next(each for each in info["features"] if each["name"] == "cls") for info in infos]
        return ["class_label" if "class_label" in str(label) else label["dtype"] for label in labels]

    assert kinds() == ["class_label"] * len(configs)
    monkeypatch.setattr("counterfoil.card.metadata.MOST_DECLARED_NAMES", 5)
    assert kinds() == ["class_label"] + ["int64"] * (len(configs) - 1)
    assert [classes_are_named(config, configs, plan.recipe) for config in configs] == [True, False, False, False]


def test_timm_is_given_files_where_it_would_misread_the_split() -> None:
    receipts = [
        receipt("base", 0, 1, 3),
        receipt("guitar", 0, 3, 2),
        receipt("guitar", 2, 3, 4),
        receipt("starry", 0, 1, 7),
    ]
    assert timm_splits(receipts) == {
        "guitar": "data/guitar/{test-00000-of-00003,test-00002-of-00003}.tar|6",
        "starry": "data/starry/test-00000-of-00001.tar|7",
    }


def test_thresholds_as_text() -> None:
    def entry(value: float, percentile: float | None = None) -> dict[str, float | None]:
        return {"value": value, "percentile": percentile}

    assert threshold_text({"a": entry(0.2), "b": entry(0.2)}, None) == "0.200"
    assert threshold_text({"a": entry(0.2, 5), "b": entry(0.3, 5)}, None) == "0.200 to 0.300 (percentile 5)"
    assert threshold_text(entry(-0.1, 2.5), None) == "-0.100 (percentile 2.5)"
    assert threshold_text({}, ThresholdSpec(percentile=5)) == "percentile 5"
    assert threshold_text(None, ThresholdSpec(value=0.25)) == "0.250"
    assert threshold_text(None, None) == "–"


def test_tokens_are_an_input_pinned_by_their_files() -> None:
    plan = plan_of("tokens.path=/home/someone/tokens", "screen.model=ViT-H-14", "screen.weights=laion2b_s32b_b79k")
    hashes = {cls.id: "ab" * 32 for cls in plan.recipe.classes}
    _, screen, _, tokens = input_rows(plan.recipe, {"tokens": hashes, "models": {"screen": {"sha256": "cd" * 32}}})
    assert tokens == InputRow("class tokens", "./tokens", "sha256 of 3 files", None)
    assert screen == InputRow("screen", "ViT-H-14 (laion2b_s32b_b79k)", "sha256 cdcdcdcdcdcd…", None)

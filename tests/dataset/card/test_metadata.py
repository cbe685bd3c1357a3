"""The card's metadata: configs, licences, citation, and loading as it says."""

from __future__ import annotations

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import mlcroissant
import numpy as np
import pytest
import yaml
from card_cases import Built, Offline, all_candidates, build, describe, plan_of
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from counterfoil.dataset.card.markdown import address
from counterfoil.dataset.card.metadata import (
    benchmark_file,
    classes_are_named,
    configs_of,
    dataset_entry,
    dataset_info_metadata,
    escaped,
    license_for_people,
    license_metadata,
    pretty_name,
    size_category,
    source_datasets,
    timm_splits,
)
from counterfoil.dataset.card.tables import InputRow, input_rows, threshold_text
from counterfoil.recipe import ThresholdSpec, load_recipe
from counterfoil.store.layout import Format, What, shard_path
from counterfoil.store.reading import read_receipts
from counterfoil.store.receipts import Receipt, StoredFile
from counterfoil.store.rows import Candidate
from timm_readers import HF_READERS


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
def test_a_licence_is_one_that_the_hub_knows_or_other(
    license: str, expected: tuple[str, str | None]
) -> None:
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
    assert list(configs) == ["default", "all", "base", "weather", "candidates"]
    assert [(split.name, split.rows, split.bytes) for split in configs["default"].splits] == [
        ("base", 3, 30),
        ("weather", 6, 60),
    ]
    (whole,) = configs["all"].splits
    assert (whole.name, whole.rows, whole.bytes) == ("test", 9, 90)
    assert whole.paths == ("data/base/test-*.parquet", "data/weather/test-*.parquet")
    (candidates,) = configs["candidates"].splits
    assert candidates.paths == tuple(
        f"candidates/{group}/test-*.parquet" for group in ("base", "weather", "starry")
    )
    assert candidates.rows == 20


def test_a_card_of_very_many_names_declares_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of("output.format=webdataset")
    configs = configs_of(plan, [receipt("base", 0, 1, 3), receipt("weather", 0, 1, 2)])

    def kinds() -> list[str]:
        infos = dataset_info_metadata(configs, plan.recipe)
        labels = [
            next(feature for feature in info["features"] if feature["name"] == "cls")
            for info in infos
        ]
        return [
            "class_label" if "class_label" in str(label) else label["dtype"] for label in labels
        ]

    assert kinds() == ["class_label"] * len(configs)
    monkeypatch.setattr("counterfoil.dataset.card.metadata.MOST_DECLARED_NAMES", 5)
    assert kinds() == ["class_label"] + ["int64"] * (len(configs) - 1)
    assert [classes_are_named(config, configs, plan.recipe) for config in configs] == [
        True,
        *[False] * 4,
    ]


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
    # A class may be called value.
    of_classes = {"value": entry(0.2, 5), "other": entry(0.3, 5)}
    assert threshold_text(of_classes, None) == "0.200 to 0.300 (percentile 5)"
    assert threshold_text(entry(-0.1, 2.5), None) == "-0.100 (percentile 2.5)"
    assert threshold_text({}, ThresholdSpec(percentile=5)) == "percentile 5"
    assert threshold_text(None, ThresholdSpec(value=0.25)) == "0.250"
    assert threshold_text(None, None) == "–"


def test_tokens_are_an_input_pinned_by_their_files() -> None:
    plan = plan_of(
        "tokens.path=/home/someone/tokens",
        "screen.model=ViT-H-14",
        "screen.weights=laion2b_s32b_b79k",
    )
    hashes = {cls.id: "ab" * 32 for cls in plan.recipe.classes}
    _, screen, _, tokens = input_rows(
        plan.recipe, {"tokens": hashes, "models": {"screen": {"sha256": "cd" * 32}}}
    )
    assert tokens == InputRow("class tokens", "./tokens", "sha256 of 3 files", None)
    assert screen == InputRow(
        "screen", "ViT-H-14 (laion2b_s32b_b79k)", "sha256 cdcdcdcdcdcd…", None
    )


TOLD = (
    "publish.authors=['Jane Doe', 'Müller, Jörg', '{Birds & Cranes}', 'Fish and Chips']",
    "publish.year=2026",
    "publish.version='1.2.0'",
    "publish.url=https://example.org/cranes_of?the=world&x=%7B",
    "publish.doi=10.5281/zenodo.1234567",
    "publish.contact='cranes@example.org, or <b>the</b> [desk](x)'",
)
# A BibTeX field of an entry that a program wrote: its name, and its text in balanced braces to the
# line's end.
FIELD = re.compile(r"  (\w+) +=\s\{(.*)\},?")


def fields(entry: str) -> dict[str, str]:
    first, *lines, last = entry.splitlines()
    assert re.fullmatch(r"@misc\{[a-z0-9_]+,", first)
    assert last == "}"
    matches = [FIELD.fullmatch(line) for line in lines]
    assert all(matches)
    return {match[1]: match[2] for match in matches if match}


def balanced(text: str) -> bool:
    """Count every brace as BibTeX does, with or without a backslash before it."""
    depth = 0
    for letter in text:
        depth += (letter == "{") - (letter == "}")
        if depth < 0:
            return False
    return depth == 0


def test_the_entry_has_author_year_version_doi_and_url() -> None:
    entry = dataset_entry(load_recipe("wardrobe-mini", TOLD), "ab" * 32, "0.1")
    assert fields(entry) == {
        "author": r"Jane Doe and Müller, Jörg and {Birds \& Cranes} and {Fish and Chips}",
        "title": "{wardrobe-mini}: a dataset of counterfactual images",
        "year": "2026",
        "version": "1.2.0",
        "doi": "10.5281/zenodo.1234567",
        "url": "https://example.org/cranes_of?the=world&x=%7B",
        "note": "Built with Counterfoil 0.1, plan abababababab",
    }


def test_without_a_word_the_entry_is_what_it_was() -> None:
    assert fields(dataset_entry(load_recipe("wardrobe-mini"), "ab" * 32, "0.1")).keys() == {
        "title",
        "note",
    }


@given(st.text(max_size=200))
def test_escaped_text_ends_no_field_and_keeps_its_letters(text: str) -> None:
    line = escaped(text)
    assert balanced(line)
    assert "\n" not in line
    assert not re.search(r"(?<!\\)[&%$#_]", line)
    # Back again, as LaTeX prints it.
    words = {"textbackslash": "\\", "textbraceleft": "{", "textbraceright": "}"}
    words |= {"textasciitilde": "~", "textasciicircum": "^"}
    printed = re.sub(
        r"\\([a-z]+)\{\}|\\([&%$#_])", lambda match: words[match[1]] if match[1] else match[2], line
    )
    assert printed == " ".join(text.split())


@given(
    st.lists(
        st.text(st.characters(categories=["L", "P", "S", "N"]), min_size=1, max_size=30),
        min_size=1,
        max_size=4,
    )
)
def test_authors_are_as_many_as_are_reported(names: list[str]) -> None:
    shown = [name for name in names if name.strip("{} ") and name.isprintable()]
    if not shown:
        return
    recipe = load_recipe("wardrobe-mini")
    recipe = recipe.model_copy(
        update={"publish": recipe.publish.model_copy(update={"authors": tuple(shown)})}
    )
    author = fields(dataset_entry(recipe, "ab" * 32, "0.1"))["author"]
    assert balanced(author)
    depth = 0
    outside = ""
    for letter in author:
        depth += (letter == "{") - (letter == "}")
        outside += letter if depth == 0 else ""
    assert len(re.findall(r"\band\b", outside, re.IGNORECASE)) == len(shown) - 1


def test_the_card_and_croissant_tell_whose_it_is(tmp_path: Path) -> None:
    card = build(tmp_path, plan_of(*TOLD, "publish.repo=some_one/cranes"))
    citation = card.readme[
        card.readme.index("## Citation") : card.readme.index("## Rebuild and verify it")
    ]
    assert r"{Birds \& Cranes}" in citation
    assert "year  = {2026}" in citation
    assert "More at <https://example.org/cranes_of?the=world&x=%7B>." in citation
    assert r"Contact: cranes@example.org, or \<b\>the\</b\> \[desk\](x)" in citation
    assert "These images are under CC0 1.0.\n" in card.readme
    described = json.loads((tmp_path / "croissant.json").read_bytes())
    assert described["citeAs"] in citation
    assert described["url"] == "https://example.org/cranes_of?the=world&x=%7B"
    assert described["creator"] == [
        {"@type": "sc:Person", "name": "Jane Doe"},
        {"@type": "sc:Person", "name": "Müller, Jörg"},
        {"@type": "sc:Organization", "name": "Birds & Cranes"},
        {"@type": "sc:Person", "name": "Fish and Chips"},
    ]
    dataset = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert not dataset.metadata.ctx.issues.warnings, "with year and version nothing is missed"
    assert dataset.metadata.version == "1.2.0"
    assert dataset.metadata.date_published is not None
    assert dataset.metadata.date_published.year == 2026
    assert [creator.name for creator in dataset.metadata.creators] == [
        "Jane Doe", "Müller, Jörg", "Birds & Cranes", "Fish and Chips",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("license", "shown"),
    [
        ("mit", "MIT"),
        ("MIT License", "MIT"),
        ("cc-by-4.0", "CC BY 4.0"),
        ("cc-by-nc-sa-4.0", "CC BY-NC-SA 4.0"),
        ("cc0-1.0", "CC0 1.0"),
        ("apache-2.0", "Apache License 2.0"),
        ("Terms of the Museum", "Terms of the Museum"),
    ],
)
def test_licences_are_shown_as_people_read_them(license: str, shown: str) -> None:
    assert license_for_people(license) == shown


def test_what_the_card_says_of_the_screen_is_what_was_asked(cranes: Built, tmp_path: Path) -> None:
    both = "high enough for the object and the shift"
    assert both in cranes.card.readme
    assert "both its cosines in CLIP reach their thresholds" in cranes.card.readme
    none = [f"prompts.shifts.{name}.caption=null" for name in cranes.plan.recipe.prompts.shifts]
    nothing = describe(tmp_path, plan_of(*none))
    assert both not in nothing.readme
    assert "high enough for the object; the shift was not checked." in nothing.readme
    assert "both its cosines" not in nothing.readme
    assert "with the object caption reaches its threshold" in nothing.croissant
    some = describe(tmp_path, plan_of(*none[:1]))
    assert f"the object and, in {len(none) - 1} of {len(none)} shifts, the shift." in some.readme
    assert (
        f"in {len(none) - 1} of {len(none)} shifts, that with the shift caption" in some.croissant
    )


def test_an_address_is_a_link_and_nothing_else_is() -> None:
    assert address("https://example.org/a_b?c=*d*&e") == "<https://example.org/a_b?c=*d*&e>"
    for other in (
        "javascript:alert(1)",
        "https://a>b",
        "https://a b",
        "https://a\nb",
        "https://a`b",
    ):
        assert not address(other).startswith("<")


# The identifiers that the Hub takes as `evaluation_framework`: the keys of
# packages/tasks/src/eval.ts in huggingface/huggingface.js at
# fe42e68017ffc76d09922ea8f9b38a6964345710 (21 August 2026), but for inspect-ai, whose tasks have
# three keys more.
Framework = Literal[
    "exgentic", "math-arena", "mteb", "olmocr-bench", "harbor", "ifstruct", "pier", "redline-bench", "archipelago",
    "benchflow", "apex-evals", "screenspot-pro", "swe-bench", "swe-bench-pro", "nemo-evaluator", "yc-bench",
    "open-asr-leaderboard", "mdpbench", "real5-omnidocbench", "parsebench", "video-mme-v2", "claw-eval",
    "researchclawbench", "pbench", "wildclawbench", "wbench", "nanofold", "mmmu", "extractbench",
]  # fmt: skip
Line = Annotated[str, Field(min_length=1, pattern=r"\S")]


class Task(BaseModel):
    """`id` is required; `split` is "test" without one (docs/hub/eval-results.md, see
    `Benchmark`)."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: Line
    config: Line | None = None
    split: Line = "test"


class Benchmark(BaseModel):
    """What the Hub says of eval.yaml: "Eval.yaml specification" of docs/hub/eval-results.md in
    huggingface/hub-docs at 242f4a1eeb867daf4ac3f44026a5df4a68908a3d (22 August 2026).
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    name: Line
    description: Line
    evaluation_framework: Framework
    tasks: Annotated[list[Task], Field(min_length=1)]


def test_a_benchmark_is_described_as_the_hub_asks(tmp_path: Path) -> None:
    plan = plan_of("publish.evaluation_framework=math-arena", "output.split=validation")
    card = build(tmp_path, plan)
    benchmark = Benchmark.model_validate(yaml.safe_load((tmp_path / "eval.yaml").read_bytes()))
    images = sum(receipt.rows["data"] for receipt in read_receipts(tmp_path))
    assert benchmark.name == "Cranes" and f"3 classes, {images:,} images" in benchmark.description
    # Two shifts share one config, and the shift without accepted images has no config.
    assert [(task.id, task.config) for task in benchmark.tasks] == [
        ("base", "base"), ("snow", "weather"), ("rain", "weather"), ("starry", "starry"),
    ]  # fmt: skip
    metadata = yaml.safe_load(card.readme.split("\n---\n")[0])
    splits = {
        config["config_name"]: [data["split"] for data in config["data_files"]]
        for config in metadata["configs"]
    }
    assert all(
        task.config in splits and splits[task.config] == [task.split] for task in benchmark.tasks
    )
    assert "eval.yaml" in {
        entry["path"] for entry in json.loads((tmp_path / "manifest.json").read_bytes())["files"]
    }
    for framework in get_args(Framework):
        taken = plan_of(f"publish.evaluation_framework={framework}").recipe
        assert taken.publish.evaluation_framework == framework
    for wrong in (
        {"tasks": []},
        {"evaluation_framework": "counterfoil"},
        {"metrics": []},
        {"name": ""},
    ):
        with pytest.raises(ValidationError):
            Benchmark.model_validate({**benchmark.model_dump(), **wrong})


def test_without_a_framework_or_an_image_there_is_no_benchmark(cranes: Built) -> None:
    assert not (cranes.directory / "eval.yaml").exists()
    plan = plan_of("publish.evaluation_framework=math-arena")
    assert benchmark_file(plan.recipe, [receipt("base", 0, 1, 0)], 0) is None
    assert benchmark_file(plan.recipe, read_receipts(cranes.directory), 1) is not None


# {config: {split: rows}}, as loaded and as streamed, with the hash of its bytes for an image.
LOAD = """
import hashlib

import numpy as np
from datasets import Image, get_dataset_config_names, load_dataset

def plain(row):
    return {name: shown(value) for name, value in row.items()}

def shown(value):
    if isinstance(value, dict) and "bytes" in value:
        return hashlib.sha256(value["bytes"]).hexdigest()
    if isinstance(value, dict):
        return plain(value)
    # Streamed tar files give the numbers of the JSON text, which are float32 written short.
    return float(np.float32(value)) if isinstance(value, float) else value

def rows(data):
    for name, feature in data.features.items():
        if isinstance(feature, Image):
            data = data.cast_column(name, Image(decode=False))
    return [plain(row) for row in data]

def table(**options):
    names = get_dataset_config_names("cranes")
    loaded = {name: load_dataset("cranes", name, **options) for name in names}
    return {name: {split: rows(data) for split, data in splits.items()} for name, splits in loaded.items()}

def class_names(config):
    features = next(iter(load_dataset("cranes", config).values())).features
    return (features.get("label") or features["cls"]).names

answer = {
    "loaded": table(),
    "streamed": table(streaming=True),
    "splits": list(load_dataset("cranes")),
    "names": {config: class_names(config) for config in get_dataset_config_names("cranes")},
}
"""

# Follows the examples of the card.
EXAMPLES = """
assert next(iter(stream))
found = [[row.get("json", row) for row in pair] for pair in pairs]
answer = {
    "pairs": [[(row["shift"], row["pair"]) for row in pair] for pair in found],
    "rows": [len(shifted), len(candidates), len(rejected), len(list(dataset))],
}
"""

TIMM = """
from timm.data import create_dataset

def pixel(image):
    return list(image.convert("RGB").resize((1, 1)).getpixel((0, 0)))

answer = [[(pixel(image), int(label)) for image, label in create_dataset(**call)] for call in CALLS]
"""


class Read(NamedTuple):
    """A dataset and what other tools read of it."""

    built: Built
    tables: dict[str, Any]
    examples: dict[str, Any]
    calls: list[dict[str, str]]
    timm: list[list[tuple[list[int], int]]]


@pytest.fixture(scope="module")
def read(built: Built, offline: Offline) -> Read:
    blocks = re.findall(r"^```python\n(.*?)^```$", built.card.readme, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5, "load, stream, pair, read without datasets, timm"
    calls = timm_calls(built)
    codes = [LOAD, "\n".join([*blocks, EXAMPLES]), f"CALLS = {calls!r}\n{TIMM}"]
    tables, examples, timm = offline(codes, built.directory.parent)
    return Read(built, tables, examples, calls, timm)


def timm_calls(built: Built) -> list[dict[str, str]]:
    """Return every way that the card names to read every group with timm."""
    webdataset = built.plan.recipe.output.format == "webdataset"
    keys = {"input_key": "png", "target_key": "cls"} if webdataset else {}
    calls = []
    for group in ("base", "weather", "starry"):
        calls += [{"name": f"{reader}/cranes", "split": group, **keys} for reader in HF_READERS]
        if webdataset:
            listed = re.search(rf'^- `{group}`: `split="(.*)"`$', built.card.readme, re.MULTILINE)
            assert bool(listed) == (group == "starry"), (
                "only a name with 'tar' in it needs its files listed"
            )
            calls.append(
                {"name": "wds/", "root": "cranes", "split": listed[1] if listed else group}
            )
    return calls


def expected(candidates: list[Candidate], what: str, webdataset: bool) -> list[dict]:
    """Return the rows of a table as `datasets` shows them."""
    rows = []
    for candidate in candidates:
        if what == "data" and not candidate.accepted:
            continue
        if what == "rejected" and (candidate.accepted or candidate.image is None):
            continue
        sample = candidate.sample
        names = ("key", "shift", "class_id", "index", "pair", "prompt", "seed")
        row = {name: getattr(sample, name) for name in names}
        for name in ("object", "shift"):
            score = candidate.verdict.scores[name]
            threshold = candidate.verdict.thresholds[name]
            row[f"{name}_score"] = None if score is None else float(np.float32(score))
            row[f"{name}_threshold"] = None if threshold is None else float(np.float32(threshold))
        if what != "data":
            row["reason"] = candidate.reason
        image = (
            {}
            if what == "candidates"
            else {"image": hashlib.sha256(candidate.image or b"").hexdigest()}
        )
        if webdataset:
            rows.append(
                {"cls": sample.label, "json": row, **({"png": image["image"]} if image else {})}
            )
        else:
            rows.append({**row, "label": sample.label, **image})
    return rows


def test_every_config_and_split_holds_what_was_written(read: Read) -> None:
    plan = read.built.plan
    webdataset = plan.recipe.output.format == "webdataset"
    for table in (read.tables["loaded"], read.tables["streamed"]):
        for row in [row for splits in table.values() for rows in splits.values() for row in rows]:
            if webdataset:
                assert row.pop("__key__") == row["json"]["key"]
                del row["__url__"]
    candidates = all_candidates(plan)
    of_group = {group: [c for c in candidates if c.sample.group == group] for group in plan.groups}
    data = {group: expected(drawn, "data", webdataset) for group, drawn in of_group.items()}
    seen = {group: rows for group, rows in data.items() if rows}
    assert list(seen) == ["base", "weather", "starry"], "nothing was accepted nowhere"
    wanted = {
        "default": seen,
        "all": {"test": [row for rows in seen.values() for row in rows]},
        **{group: {"test": rows} for group, rows in seen.items()},
        "candidates": {"test": expected(candidates, "candidates", webdataset)},
        "rejected": {"test": expected(candidates, "rejected", webdataset)},
    }
    assert read.tables["loaded"] == wanted
    assert read.tables["streamed"] == wanted
    assert read.tables["splits"] == list(seen), "the base comes first"
    unique = ["crane (n02012849)", "crane (n03126707)", "coot: <b>a | b</b>"]
    assert read.tables["names"] == dict.fromkeys(wanted, unique)


def test_the_examples_of_the_card_run(read: Read) -> None:
    candidates = all_candidates(read.built.plan)
    accepted = {candidate.sample.key for candidate in candidates if candidate.accepted}
    weather = [c.sample for c in candidates if c.accepted and c.sample.group == "weather"]
    rejected = [c for c in candidates if not c.accepted and c.image is not None]
    paired = [sample for sample in weather if f"base_{sample.pair}" in accepted]
    assert paired
    assert read.examples == {
        "pairs": [[["base", sample.pair], [sample.shift, sample.pair]] for sample in paired],
        "rows": [len(weather), len(candidates), len(rejected), len(weather)],
    }


def test_timm_reads_images_and_labels_of_every_group(read: Read) -> None:
    candidates = all_candidates(read.built.plan)
    for call, rows in zip(read.calls, read.timm, strict=True):
        group = next(g for g in ("base", "weather", "starry") if g in call["split"])
        accepted = [c for c in candidates if c.accepted and c.sample.group == group]
        assert rows == [[_mean_pixel(c.image), c.sample.label] for c in accepted], call


def _mean_pixel(image: bytes | None) -> list[int]:
    pixel = Image.open(io.BytesIO(image or b"")).convert("RGB").resize((1, 1)).getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return [int(level) for level in pixel]

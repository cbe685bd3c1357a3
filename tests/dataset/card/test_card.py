"""The card says what the dataset holds, is the same each time, and no text of a recipe breaks
it."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
import yaml
from card_cases import STACK, Built, all_candidates, build, describe, judged, plan_of
from huggingface_hub import DatasetCard
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

import docs_reference
from counterfoil.dataset.card.card import make_card
from counterfoil.dataset.card.contact_sheets import tally_of
from counterfoil.dataset.card.markdown import code, code_cell, fenced, inline, prose
from counterfoil.errors import RunFailure
from counterfoil.generate.screen.thresholds import Thresholds, stored_thresholds
from counterfoil.plan.layout import Plan
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.atomic import atomic_file
from counterfoil.store.layout import What
from counterfoil.store.manifest import verify_files
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import (
    ROW_COLUMNS,
    RowColumn,
    TableForm,
    arrow_schema,
    table_columns,
    unique_names,
)
from counterfoil.store.shard_files import write_parquet, write_tar


def front_matter(readme: str) -> dict:
    return yaml.safe_load(readme.split("\n---\n")[0].removeprefix("---\n"))


def table(readme: str, header: str) -> list[list[str]]:
    """Return the cells of the table whose first header cell is `header`."""
    tokens = MarkdownIt("commonmark").enable("table").parse(readme)
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "table_open":
            rows = []
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level > 2:
            rows[-1].append(token.content.replace("`", ""))
        elif token.type == "table_close" and rows[0][0] == header:
            return rows
    raise AssertionError(f"no table with {header}")


def test_the_metadata_is_what_the_hub_reads(built: Built) -> None:
    card = DatasetCard.load(built.directory / "README.md")
    assert card.data.to_dict() == front_matter(built.card.readme)
    assert card.content == built.card.readme
    data = card.data.to_dict()
    assert data["license"] == "cc0-1.0", "not what the description says"
    assert data["pretty_name"] == "Cranes"
    assert data["tags"] == ["synthetic", "counterfoil", "counterfactual", "robustness"]
    assert data["annotations_creators"] == ["machine-generated"]
    assert data["task_categories"] == ["image-classification"]
    assert data["source_datasets"] == ["original"]
    assert data["size_categories"] == ["n<1K"]
    names = [config["config_name"] for config in data["configs"]]
    assert names == ["default", "all", "base", "weather", "starry", "candidates", "rejected"]
    assert [config.get("default", False) for config in data["configs"]] == [True] + 6 * [False]
    infos = {info["config_name"]: info for info in data["dataset_info"]}
    assert list(infos) == names
    accepted = [c for c in all_candidates(built.plan) if c.accepted]
    for name in ("default", "all"):
        assert sum(split["num_examples"] for split in infos[name]["splits"]) == len(accepted)
    assert ("features" in infos["base"]) == (built.plan.recipe.output.format == "webdataset")


def test_the_same_dataset_has_the_same_card(cranes: Built, tmp_path: Path) -> None:
    again = build(tmp_path / "elsewhere", cranes.plan)
    assert again == cranes.card
    assert again.croissant == (cranes.directory / "croissant.json").read_bytes()
    assert verify_files(cranes.directory) == []
    for text in (str(cranes.directory), str(tmp_path), "elsewhere"):
        assert text not in again.readme and text.encode() not in again.croissant


def test_figures_are_named_in_the_card_and_lie_beside_it(cranes: Built) -> None:
    shown = re.findall(r"\]\(figures/([^)]+)\)", cranes.card.readme)
    assert sorted(shown) == sorted(cranes.card.figures)
    assert shown[0] == "contact-sheet.webp"
    assert set(shown[1:]) == {"shift-snow.webp", "shift-rain.webp", "shift-starry.webp"}
    assert all((cranes.directory / "figures" / name).is_file() for name in shown)


def test_the_yield_table_counts_what_was_screened(cranes: Built) -> None:
    header, *rows = table(cranes.card.readme, "Shift")
    assert header == [
        "Shift", "Prompt", "Caption", "CLIP threshold", "Yield",  # Vendrow 2023, Table 1
        "Candidates", "Accepted", "low_object", "low_shift", "failed", "Pairs", "Classes under 5",
    ]  # fmt: skip
    candidates = all_candidates(cranes.plan)
    pairs_of = {
        shift: {c.sample.pair for c in candidates if c.accepted and c.sample.shift == shift}
        for shift in ("base", "snow", "rain", "starry", "nowhere")
    }
    assert [row[0] for row in rows] == list(pairs_of)
    for (
        name,
        prompt,
        caption,
        threshold,
        share,
        count,
        accepted,
        low_object,
        low_shift,
        failed,
        pairs,
        thin,
    ) in rows:
        shift = cranes.plan.shift(name)
        assert prompt == shift.prompt
        assert caption == (shift.caption or "–").replace("`", "")
        assert threshold == ("–" if name == "base" else "0.200")
        by_class = Counter(
            c.sample.label for c in candidates if c.sample.shift == name and c.accepted
        )
        assert thin == f"{sum(by_class[label] < 5 for label in range(3))} of 3"
        of_shift = [c for c in candidates if c.sample.shift == name]
        kept = sum(c.accepted for c in of_shift)
        assert (count, accepted) == (str(len(of_shift)), str(kept))
        assert share == f"{100 * kept / len(of_shift):.1f} %"
        dropped = [
            sum(c.reason == reason for c in of_shift)
            for reason in ("low_object", "low_shift", "failed")
        ]
        assert [low_object, low_shift, failed] == [str(number) for number in dropped]
        assert pairs == ("–" if name == "base" else str(len(pairs_of[name] & pairs_of["base"])))
    assert (
        "No image was accepted, so there is no config and no split: `nowhere`."
        in cranes.card.readme
    )
    assert "- `nowhere`: every class" in cranes.card.readme


def test_the_thresholds_are_those_that_were_used(cranes: Built) -> None:
    rows = {
        row[0]: row[1:] for row in table(cranes.card.readme.partition("**Screening.**")[2], "Shift")
    }
    percentile = "0.210 to 0.230 (percentile 5)"
    assert rows["base"] == ["a photo of a {class}", percentile, "–", "–"]
    assert rows["starry"][1:] == [percentile, "a photo | by starlight", "0.200"]


def test_inputs_tell_what_pins_them_and_their_licence(cranes: Built) -> None:
    assert table(cranes.card.readme, "Input")[1:] == [
        ["generator", "lab:sd", "sha256 of 1 file", "MIT"],
        ["screen", "lab:clip", "4f2b", "not stated"],
        ["input dataset", "lab:wardrobe", "–", "MIT"],
    ]


def test_hashes_stack_and_commands_are_those_of_the_lock(cranes: Built) -> None:
    lock = json.loads((cranes.directory / "lock.json").read_bytes())
    assert [row[:2] for row in table(cranes.card.readme, "Hash")[1:]] == [
        [name, lock["hashes"][name]] for name in ("plan", "screen", "inputs")
    ]
    assert "device cpu, threads 1, torch 2.15.0." in cranes.card.readme
    blocks = re.findall(r"^```bash\n(.*?)^```$", cranes.card.readme, re.MULTILINE | re.DOTALL)
    assert blocks[-1].splitlines() == [
        "counterfoil build --from cranes --out again",
        "counterfoil verify cranes",
    ]


def test_uses_limits_and_risks_are_reported_as_in_croissant(cranes: Built) -> None:
    document = json.loads(cranes.card.croissant)
    section = cranes.card.readme.partition("\n## Uses and limits\n")[2].partition("\n## Licence\n")[
        0
    ]
    texts = {
        token.content for token in MarkdownIt("commonmark").parse(section) if token.type == "inline"
    }
    plain = {text.replace("\\", "") for text in texts}
    uses = [use.removeprefix("Not for: ") for use in document["rai:dataUseCases"]]
    risks = [document["rai:dataSocialImpact"], document["rai:personalSensitiveInformation"]]
    assert {*uses, *risks, *document["rai:dataBiases"], *document["rai:dataLimitations"]} <= plain
    assert any("synthetic" in text for text in document["rai:dataLimitations"])
    assert any("generator's biases" in text for text in document["rai:dataBiases"])


def test_the_citation_is_bibtex_with_the_owner_where_one_is_known(tmp_path: Path) -> None:
    card = describe(tmp_path, plan_of("publish.repo=some_one/cranes"))
    entries = re.findall(r"^```bibtex\n(.*?)^```$", card.readme, re.MULTILINE | re.DOTALL)
    assert [entry.partition("{")[0] for entry in entries] == ["@misc", "@article"]
    assert r"author = {{some\_one}}," in entries[0]
    assert "url   = {https://huggingface.co/datasets/some_one/cranes}," in entries[0]
    assert all(entry.count("{") == entry.count("}") for entry in entries)


def test_what_prompts_say_of_a_class_beside_its_name_is_explained_where_they_do(
    cranes: Built, tmp_path: Path
) -> None:
    assert "`{parent}`" not in cranes.card.readme
    kinds = "[{id: a, name: crane, source_label: 0, parent: wading bird}]"
    prompt = "a photo of a {class}, a {parent}, in the snow"
    card = describe(
        tmp_path, plan_of(f"source.classes={kinds}", f"prompts.shifts.snow.prompt={prompt}")
    )
    assert (
        "stands for the class’s name. `{parent}` comes from the recipe’s list of classes. "
        in card.readme
    )
    assert "`{category}`" not in card.readme


def test_the_recipe_in_the_card_is_the_recipe(cranes: Built) -> None:
    block = cranes.card.readme.partition("<summary>The recipe</summary>")[2]
    text = re.search(r"```yaml\n(.*?)\n```", block, re.DOTALL)
    assert text
    assert load_recipe_text(text[1]) == cranes.plan.recipe


def test_a_lock_without_inputs_still_makes_a_card(cranes: Built) -> None:
    card = make_card(cranes.directory, cranes.plan, {}, read_receipts(cranes.directory))
    assert table(card.readme, "Input")[1][2:] == ["–", "not stated"]


HOSTILE = (
    '"---\\nlicense: stolen\\n---\\n# Not a title\\n```\\n</details><script>|\\n{{ 7 * 7 }}'
    ' {% x %}"'
)


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    plan = plan_of(
        f"description={HOSTILE}",
        f"license={HOSTILE}",
        f"publish.tags=[{HOSTILE}]",
        f"generator.negative_prompt={HOSTILE}",
        f"generator.options={{true_cfg_scale: 4.0, layers: [9, 18], fast: false, said: {HOSTILE}}}",
        "generator.quantize=torchao-int8",
        f"source.classes=[{{id: a, name: {HOSTILE}, source_label: 0}}]",
        f"prompts.shifts.snow.caption={HOSTILE.replace('{{ 7 * 7 }} {% x %}', '')}",
    )
    card = build(tmp_path, plan)
    data = DatasetCard.load(tmp_path / "README.md").data.to_dict()
    assert data == front_matter(card.readme)
    assert data["license"] == "other"
    assert re.fullmatch(r"[a-z0-9.-]+", data["license_name"])
    assert data["tags"][-1] == json.loads(HOSTILE)
    tokens = MarkdownIt("commonmark").enable("table").parse(card.readme.split("\n---\n", 1)[1])
    # Raw HTML is the template's own alone: the folds around sheets and recipe.
    blocks = [token.content for token in tokens if token.type == "html_block"]
    assert all("script" not in block for block in blocks)
    inline = [child for token in tokens for child in token.children or []]
    assert not [child for child in inline if child.type == "html_inline"]
    headings = [
        tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"
    ]
    assert headings[:3] == ["Cranes", "What is in it", "Are the labels true?"]
    assert "Not a title" not in headings
    assert "{{ 7 * 7 }}" in card.readme, "never run as a template"
    assert 'with the options ````{"fast": false, "layers": [9, 18], "said": ' in card.readme
    assert '"true_cfg_scale": 4.0}' in card.readme
    assert "with quantised weights (`torchao-int8`)" in card.readme


def test_pairs_that_share_more_than_noise_are_reported_with_what_it_does_to_a_drop(
    cranes: Built, tmp_path: Path
) -> None:
    card = describe(tmp_path, plan_of("samples.pairs=attention"))
    readme = card.readme
    shown = (
        "was drawn together with its base image",
        "| `paired_by` | string |",
        "**Pairs.**",
        "a drop may be too small",
        "that the shift changes least are kept from the base",
    )
    assert all(text in readme for text in shown), [text for text in shown if text not in readme]
    assert not any(text in cranes.card.readme for text in shown)
    croissant = card.croissant
    assert (
        "attended to features of the base image of its pair" in croissant
        and "paired_by" in croissant
    )


def test_a_part_that_no_step_holds_is_not_reported_as_held(tmp_path: Path) -> None:
    readme = describe(tmp_path, plan_of("samples.pairs=attention", "generator.steps=1")).readme
    assert "that the shift changes least are kept from the base" not in readme
    assert "**Pairs.**" in readme


def test_a_dataset_without_an_accepted_image_has_candidates_alone(tmp_path: Path) -> None:
    plan = plan_of("screen.keep_rejected=false")
    card = build(tmp_path, plan, judge=lambda sample: "low_both")
    data = front_matter(card.readme)
    assert [config["config_name"] for config in data["configs"]] == ["candidates"]
    assert data["configs"][0]["default"] is True
    assert card.figures == {}
    assert "No candidate was accepted." in card.readme
    assert "`base`, `weather`, `starry`, `nowhere`" in card.readme
    described = mlcroissant.Dataset(jsonld=str(tmp_path / "croissant.json"))
    assert len(list(described.records("candidates"))) == len(all_candidates(plan))


def test_a_column_declared_once_is_stored_and_described_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = RowColumn(
        "string", "Group of the sample.", lambda candidate: candidate.sample.group.upper()
    )
    monkeypatch.setitem(ROW_COLUMNS, "folder", column)
    card = build(tmp_path, plan_of())
    rows = list(read_shard(tmp_path, read_receipts(tmp_path)[0], ["key", "folder"], "data"))
    assert {row["folder"] for row in rows} == {"BASE"}
    assert ["folder", "string", "Group of the sample."] in table(card.readme, "Column")
    croissant = json.loads((tmp_path / "croissant.json").read_bytes())
    for record_set in croissant["recordSet"][1:]:
        fields = {field["name"]: field for field in record_set["field"]}
        assert fields["folder"]["description"] == "Group of the sample."
    assert "| `folder` | string | Group of the sample. |" in docs_reference.columns_table()


def test_a_mixed_stack_is_reported(cranes: Built, tmp_path: Path) -> None:
    assert "Mixed stacks" not in cranes.card.readme
    other = {**STACK, "device": "cuda"}
    card = build(tmp_path, plan_of(), stacks={"weather": other})
    assert "**Mixed stacks.**" in card.readme
    assert '- 3 shards: `device: "cpu" there, "cuda" here`' in card.readme


def test_many_shifts_are_reported_by_group(tmp_path: Path) -> None:
    shifts = {
        f"shift_{number}": {
            "prompt": f"a photo of a {{class}} at place {number}",
            "classes": ["n02012849"],
            "group": f"group_{number % 3}",
        }
        for number in range(102)
    }
    plan = plan_of(
        f"prompts.shifts={json.dumps(shifts)}", "samples.candidates=1", "screen.keep_rejected=false"
    )
    card = build(tmp_path, plan, judge=lambda sample: "accepted")
    _, *rows = table(card.readme, "Group")
    rows = [
        [row[0], row[1], row[3]] for row in rows if row[0] == "base" or row[0].startswith("group_")
    ]
    assert rows == [["base", "1", "3"], *([f"group_{n}", "34", "34"] for n in range(3))]
    assert len(card.figures) <= 33
    assert len(card.readme) < 60_000
    assert "| Shift |" not in card.readme


def test_surplus_counts_for_the_yield(tmp_path: Path) -> None:
    plan = plan_of("samples.candidates=null", "samples.accepted=2", "samples.at_most=6")

    def judge(sample: Any) -> str:
        if sample.index < 2:
            return "accepted"
        return "surplus" if sample.index < 4 else "low_object"

    card = describe(tmp_path, plan, judge=judge)
    row = table(card.readme, "Shift")[1]
    assert [row[0], *row[4:9]] == ["base", "66.7 %", "18", "6", "6", "6"]


def test_an_open_shift_says_so_and_names_the_next_command(cranes: Built, tmp_path: Path) -> None:
    changes = ("prompts.shifts.snow.threshold={percentile: 5}", "screen.keep_rejected=false")
    card = build(
        tmp_path,
        plan_of(*changes),
        judge=lambda sample: "open" if sample.shift == "snow" else judged(sample),
    )
    rows = {row[0]: row for row in table(card.readme, "Shift")}
    assert rows["Shift"][7] == "open"
    assert (rows["snow"][4], rows["snow"][6], rows["snow"][7]) == ("open", "0", "18")
    assert rows["snow"][3] == "open (percentile 5)"
    assert rows["rain"][4].endswith("%")
    assert "**No threshold yet** for 1 shift: `snow`" in card.readme
    assert "counterfoil calibrate cranes --apply cut.yaml --out cranes-cut" in card.readme
    configs = {config["config_name"]: config for config in front_matter(card.readme)["configs"]}
    assert "rejected" in configs, "the images of an open shift are kept whatever the recipe says"
    assert "No threshold yet" not in cranes.card.readme


def test_classes_with_too_few_images_for_their_percentile_are_listed() -> None:
    entry = {"value": 0.2, "percentile": 5.0, "n": 7, "source": "validation"}
    few = Thresholds({"base": {"crane": entry | {"needs": 20}, "coot": entry}}, {}).few_images()
    assert [str(problem) for problem in few] == [
        "class 'crane': percentile 5 of 7 validation images, needs 20"
    ]


Rows = list[dict[str, Any]]
Change = Callable[[Rows], Rows]


@pytest.fixture(params=["cranes", "tars"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Built:
    """Return a copy in each format that a test may damage."""
    sound: Built = request.getfixturevalue(request.param)
    return sound._replace(directory=Path(shutil.copytree(sound.directory, tmp_path / "fresh")))


def rewrite(directory: Path, plan: Plan, what: What, change: Change) -> str:
    """Write other rows into the first shard's table and return its path; leave the receipt as it
    is."""
    receipt = read_receipts(directory)[0]
    form = TableForm.of(plan.recipe)
    file = receipt.file(what)
    assert file is not None
    rows = change(list(read_shard(directory, receipt, list(table_columns(what, form)), what, form)))
    with atomic_file(directory / file.path) as stream:
        if file.path.endswith(".tar"):
            write_tar(stream, rows)
        else:
            names = unique_names(plan.recipe.classes)
            write_parquet(stream, rows, arrow_schema(what, names, form))
    return file.path


def again(built: Built) -> None:
    lock = json.loads((built.directory / "lock.json").read_bytes())
    make_card(built.directory, built.plan, lock, read_receipts(built.directory))


def with_first(**values: Any) -> Change:
    return lambda rows: [{**rows[0], **values}, *rows[1:]]


def with_one_less(rows: Rows) -> Rows:
    """Drop the first accepted candidate for another reason."""
    at = [row["reason"] for row in rows].index("accepted")
    return [*rows[:at], {**rows[at], "reason": "low_object"}, *rows[at + 1 :]]


FORGED: dict[str, Change] = {
    "a label that no class has": with_first(label=10),
    "another class's label": with_first(label=1),
    "a label below all": with_first(label=-1),
    "a shift of another shard": with_first(shift="snow"),
    "a shift that there is not": with_first(shift="x" * 500),
    "an index beyond the cell": with_first(index=2_000_000_000),
    "an index below all": with_first(index=-1),
    "another class id": with_first(class_id="x"),
    "another key": with_first(key="base_n02012849_000005x"),
    "one accepted less": with_one_less,
}


@pytest.mark.parametrize("case", FORGED)
def test_candidates_that_are_not_the_plans_are_reported_with_their_file(
    cranes: Built, tmp_path: Path, case: str
) -> None:
    directory = Path(shutil.copytree(cranes.directory, tmp_path / "forged"))
    path = rewrite(directory, cranes.plan, "candidates", FORGED[case])
    receipts = read_receipts(directory)
    with pytest.raises(RunFailure) as refused:
        tally_of(directory, cranes.plan, receipts)
    assert str(directory / path) in str(refused.value)
    assert str(directory / receipts[0].path) in str(refused.value.hint), (
        "what to remove to have the shard made again"
    )
    assert max(map(len, refused.value.problems)) < 700


def test_an_image_that_candidates_accept_and_data_lacks_is_reported_with_its_file(
    fresh: Built,
) -> None:
    path = rewrite(fresh.directory, fresh.plan, "data", lambda rows: rows[1:])
    with pytest.raises(
        RunFailure, match=r"has no row base_\w+, which the candidates list as accepted"
    ) as refused:
        again(fresh)
    assert str(fresh.directory / path) in str(refused.value)


def test_the_hundreds_of_a_label_are_not_written_with_underscores(
    tars: Built, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(tars.directory, tmp_path / "cranes"))
    receipt = read_receipts(directory)[0]
    path = directory / receipt.files[0].path
    content = path.read_bytes()
    for written in (b"0_1", b" 00", b"+00", b"000", "٣".encode()):
        member = content.index(b".cls")
        start = (member // 512 + 1) * 512
        header = bytearray(content[start - 512 : start])
        header[124:136] = f"{len(written):011o}\0".encode()
        header[148:156] = b" " * 8
        header[148:156] = f"{sum(header):06o}\0 ".encode()
        path.write_bytes(
            content[: start - 512] + header + written.ljust(512, b"\0") + content[start + 512 :]
        )
        with pytest.raises(RunFailure, match="expected the number of a class"):
            list(read_shard(directory, receipt))


ENTRY = '{"value": 0.2, "percentile": 5.0, "n": 7, "source": "validation"}'
OBJECTS = f'{{"base": {{"crane": {ENTRY}}}}}'
SOUND = f'{{"object": {OBJECTS}, "shift": {{}}}}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (ENTRY, '"x"'),
        ("5.0", "[5.0]"),
        ("5.0", '"null"'),
        ("7,", '7, "needs": "20",'),
        ('5.0, "n": 7,', 'null, "n": 7, "needs": 20,'),
        ("0.2", "1" + "0" * 400),
        (OBJECTS, "[]"),
        (', "shift": {}', ""),
        (SOUND, "3"),
        (SOUND, ""),
        (SOUND, "\udcff"),
        (SOUND, "[" * 100_000),
    ],
)
def test_thresholds_of_another_form_are_reported_with_their_file(
    tmp_path: Path, old: str, new: str
) -> None:
    path = tmp_path / "thresholds.json"
    path.write_text(SOUND)
    assert stored_thresholds(tmp_path) is not None
    path.write_bytes(SOUND.replace(old, new).encode("utf-8", "surrogateescape"))
    with pytest.raises(RunFailure, match=r"thresholds\.json is damaged: "):
        stored_thresholds(tmp_path)


PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Letters and marks that mean something to Markdown, so that examples hit them often.
MARKS = st.text(st.sampled_from(list("ab1 \n\\`*_{}[]()<>#+-.!|~&;=:/$\"'^")), max_size=40)
TEXT = MARKS | st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp"]), max_size=20
)


def words(text: str) -> str:
    return " ".join(text.split())


def rendered(markdown: str) -> tuple[set[str], list[str]]:
    """Return (kinds of blocks, the text of each inline block); fail if something inside is not
    plain text."""
    tokens = PARSER.parse(markdown)
    texts = []
    for token in tokens:
        if token.type == "inline":
            children = token.children or []
            assert {child.type for child in children} <= {"text", "softbreak", "text_special"}, (
                markdown
            )
            texts.append("".join("\n" if c.type == "softbreak" else c.content for c in children))
    return {token.type for token in tokens if token.type != "inline"}, texts


@given(TEXT)
def test_inline_text_reads_as_itself_and_stays_in_its_cell(text: str) -> None:
    kinds, texts = rendered(f"{inline(text)}\n")
    if words(text):
        assert kinds == {"paragraph_open", "paragraph_close"}
        assert [words(text)] == texts
    kinds, texts = rendered(f"| one | two |\n|--|--|\n| {inline(text)} | end |\n")
    assert "table_open" in kinds
    assert texts == ["one", "two", words(text), "end"]


@given(TEXT)
def test_prose_reads_as_itself(text: str) -> None:
    kinds, texts = rendered(f"{prose(text)}\n")
    assert kinds <= {"paragraph_open", "paragraph_close"}
    assert words(" ".join(texts)) == words(text)
    assert "---" not in prose(text).splitlines(), "it would end the metadata"


@given(TEXT)
def test_code_reads_as_itself_and_stays_in_its_cell(text: str) -> None:
    tokens = PARSER.parse(f"x {code(text)} y")
    assert spans(tokens[1]) == ([words(text)] if words(text) else [])
    tokens = PARSER.parse(f"| one | two |\n|--|--|\n| {code_cell(text)} | end |\n")
    cells = [token for token in tokens if token.type == "inline"]
    assert [cell.content for cell in cells[:2] + cells[3:]] == ["one", "two", "end"]
    assert spans(cells[2]) == ([words(text)] if words(text) else [])


def spans(token: Token) -> list[str]:
    return [child.content for child in token.children or [] if child.type == "code_inline"]


@given(TEXT)
def test_nothing_inside_a_fence_ends_it(text: str) -> None:
    tokens = PARSER.parse(f"{fenced(text, 'yaml')}\n\nafter\n")
    assert [token.type for token in tokens if token.level == 0][:2] == ["fence", "paragraph_open"]
    assert tokens[0].content.rstrip() == text.rstrip()
    assert tokens[0].info == "yaml"

"""Hashes, the portable form, the JSON Schema and what is published follow from what a recipe
says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, bundled_recipes, load_own_recipe, load_recipe
from counterfoil.recipe.json_schema import recipe_json_schema
from counterfoil.recipe.kinds import KINDS
from counterfoil.recipe.layering import bundled_folder
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.recipe.strict_yaml import read_yaml
from write_schema import printed

NEITHER = [
    "name=other",
    "license=cc0-1.0",
    "description=other",
    "evaluate.models=[resnet50]",
    "tokens.path=./tokens",  # which tokens is an input
    "evaluate.min_images_per_class=1",
    "publish.repo=me/mine",
    "prompts.shifts.red.kind=style",
    "source.validation_split=val",
    "source.revision=abc",
    "generator.offload=sequential",  # weights that wait change no image
]
PLAN = [
    "samples.candidates=21",
    "samples.seed=1",
    "samples.noise=independent",
    "generator.model=other/sd",
    "generator.revision=abc",
    "generator.scheduler=DDIM",
    "generator.steps=21",
    "generator.guidance=4.5",
    "generator.size=64",
    "generator.saved_size=32",
    "generator.dtype=auto",
    "generator.batch_size=10",
    "generator.negative_prompt=blurry",
    "prompts.base.prompt=one {class}",
    "prompts.shifts.red.prompt=one red {class}",
    "prompts.shifts.red.group=colours",
    "prompts.shifts.red.classes=['00']",
    "output.format=webdataset",
    "output.image.format=webp",
    "output.rows_per_shard=99",
    "output.split=heldout",
    "tokens=null",
    "generator.options={max_sequence_length: 256}",
    "generator.quantize=torchao-int8",
    "generator.adapter=lab:decoder",
    "generator.lora.snow={path: user/snow}",
    "samples.pairs=attention",
    "samples.limit=40",
]
SCREEN = [
    "screen.model=ViT-H-14",
    "screen.weights=laion2b_s32b_b79k",
    "screen.object_caption=one {class}",
    "screen.style_object_caption=one {class}",
    "screen.object_threshold=0.3",
    "screen.object_threshold.classes={'04': 0.3}",
    "screen.shift_threshold=0.3",
    "screen.keep_rejected=false",
    "screen.store_embeddings=true",
    "prompts.base.object_threshold=0.3",
    "prompts.base.style=true",
    "prompts.shifts.red.caption=red",
    "prompts.shifts.red.threshold=0.3",
    "prompts.shifts.red.object_threshold=0.3",
    "prompts.shifts.red.object_threshold.classes={'04': 0.3}",
    "prompts.shifts.red.object_caption=one {class}",
    "prompts.shifts.red.object_threshold.classes={'04': 0.21}",
    "prompts.shifts.red.keep=[thresholds]",
    "screen.keep=[thresholds, {top: {k: 2}}]",
    "screen.judge=lab:resnet10t",
]
# Keys at their defaults.
SAME = [
    "generator.options={}",
    "generator.lora={}",
    "samples.limit=null",
    "samples.pairs=noise",
    "samples.held={share: 0.4, until: 0.6}",
    "output.image.format=png",
    "prompts.shifts.red.keep=null",
    *(f"screen.object_threshold.classes={none}" for none in ("null", "{}", "{'04': null}")),
]


@pytest.fixture(scope="module")
def mini() -> Recipe:
    return load_recipe("wardrobe-mini")


@pytest.mark.parametrize(
    ("override", "plan", "screen"),
    [
        *((o, False, False) for o in NEITHER),
        *((o, True, False) for o in PLAN),
        *((o, False, True) for o in SCREEN),
    ],
)
def test_a_change_changes_its_hash_and_no_other(
    mini: Recipe, override: str, plan: bool, screen: bool
) -> None:
    changed = load_recipe("wardrobe-mini", [override])
    assert changed != mini, "the override must change something"
    assert (changed.plan_hash != mini.plan_hash) is plan
    assert (changed.screen_hash != mini.screen_hash) is screen


@pytest.mark.parametrize("override", SAME)
def test_a_default_written_out_changes_nothing(mini: Recipe, override: str) -> None:
    same = load_recipe("wardrobe-mini", [override])
    assert (same.plan_hash, same.screen_hash) == (mini.plan_hash, mini.screen_hash)
    assert same.portable_yaml == mini.portable_yaml


def test_class_ids_names_and_order_enter_and_source_labels_do_not(mini: Recipe) -> None:
    classes = [entry.model_dump() for entry in mini.source.classes or ()]

    def hashed(**first: object) -> str:
        values = mini.model_dump()
        values["source"]["classes"] = [classes[0] | first, *classes[1:]]
        return Recipe.model_validate(values).plan_hash

    assert hashed(id="x") != mini.plan_hash
    assert hashed(name="tee") != mini.plan_hash
    assert hashed(source_label=99, imagenet=[1]) == mini.plan_hash
    values = mini.model_dump()
    values["source"]["classes"] = [classes[1], classes[0], *classes[2:]]
    assert Recipe.model_validate(values).plan_hash != mini.plan_hash


def test_the_order_of_shifts_enters_and_the_order_of_keys_does_not(mini: Recipe) -> None:
    values = mini.model_dump()
    backwards = dict(reversed(values["prompts"]["shifts"].items()))
    values["prompts"]["shifts"] = backwards
    assert Recipe.model_validate(values).plan_hash != mini.plan_hash
    same = dict(reversed(mini.model_dump().items()))
    assert Recipe.model_validate(same).plan_hash == mini.plan_hash


def test_every_class_written_out_is_every_class(mini: Recipe) -> None:
    ids = [cls.id for cls in reversed(mini.classes)]
    spelled = load_recipe("wardrobe-mini", [f"prompts.shifts.red.classes={json.dumps(ids)}"])
    assert spelled.plan_hash == mini.plan_hash


def test_a_default_written_out_is_the_default() -> None:
    webp = ["output.image.format=webp"]
    by_default, written_out = (
        load_recipe("wardrobe-mini", webp + more) for more in ([], ["output.image.quality=90"])
    )
    assert by_default.plan_hash == written_out.plan_hash


def test_hashes_do_not_know_where_on_this_machine_things_are(tmp_path: Path) -> None:
    text = (
        "extends: wardrobe-mini\ntokens: {path: ./mine}\nsource: {dataset: ./photos}\n"
        "generator: {model: ./sd, adapter: ./ip}\n"
        "screen: {model: 'local-dir:./clip', judge: 'local-dir:./judge'}\n"
        "evaluate: {models: ['local-dir:./net', resnet50]}\n"
    )
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.yaml").write_text(text)
    recipe, twin = (load_recipe(tmp_path / name / "mine.yaml") for name in ("here", "there"))
    assert recipe != twin
    for name in ("plan_hash", "screen_hash", "recipe_hash"):
        assert getattr(recipe, name) == getattr(twin, name)
    published = recipe.portable_yaml
    assert str(tmp_path) not in published
    assert published == twin.portable_yaml
    again = load_own_recipe(tmp_path / "out", text=published)
    assert again.tokens is not None and again.tokens.path == str(tmp_path / "out" / "tokens")
    assert (again.plan_hash, again.screen_hash) == (recipe.plan_hash, recipe.screen_hash)


def test_a_changed_copy_has_hashes_of_its_own(mini: Recipe) -> None:
    before = (mini.plan_hash, mini.screen_hash, mini.portable_yaml)
    samples = mini.samples.model_copy(update={"candidates": 99})
    changed = mini.model_copy(update={"samples": samples})
    again = Recipe.model_validate(changed.model_dump(exclude_none=True))
    assert (changed.plan_hash, changed.portable_yaml) == (again.plan_hash, again.portable_yaml)
    assert changed.plan_hash != before[0]
    assert (mini.plan_hash, mini.screen_hash, mini.portable_yaml) == before


def test_the_portable_recipe_is_what_its_text_loads_to(mini: Recipe) -> None:
    assert mini.portable.portable_yaml == mini.portable_yaml
    assert (mini.portable.plan_hash, mini.portable.screen_hash) == (
        mini.plan_hash,
        mini.screen_hash,
    )


def test_the_file_is_current() -> None:
    text = (bundled_folder() / "recipe.schema.json").read_text(encoding="utf-8")
    assert text == printed(recipe_json_schema()), "run: python scripts/write_schema.py"


def sections() -> dict:
    return recipe_json_schema()["$defs"]


def test_every_key_has_a_description() -> None:
    schemas = sections()
    whole = {name: section for name, section in schemas.items() if not name.endswith("InPart")}
    missing = [
        f"{name}.{key}"
        for name, section in whole.items()
        for key, value in section.get("properties", {}).items()
        # A section described in the same words as its key is described once.
        if not (
            value.keys() & {"description"}
            or schemas[value["$ref"].rpartition("/")[2]].get("description")
        )
    ]
    assert not missing


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(recipe_json_schema())
    names = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert names <= sections().keys()


def test_a_whole_recipe_has_required_keys_and_a_part_has_none() -> None:
    whole = sections()["Recipe"]
    part = sections()["RecipeInPart"]
    assert {"recipe", "name", "source", "generator", "prompts", "samples"} <= set(whole["required"])
    assert "required" not in part
    assert {"type": "null"} in part["properties"]["tokens"]["anyOf"]
    assert whole["additionalProperties"] is part["additionalProperties"] is False


def test_it_knows_every_key_of_the_bundled_recipes() -> None:
    schemas = sections()
    for name, path in bundled_recipes().items():
        recipe = read_yaml(path.read_text(encoding="utf-8"), name)
        assert recipe.keys() <= schemas["Recipe"]["properties"].keys()
        settings = recipe.get("generator", {})
        part = "InPart" if "extends" in recipe else ""
        forms = [schemas[kind.__name__ + part]["properties"] for kind in KINDS.values()]
        if "kind" in settings or not part:
            forms = [
                form
                for form in forms
                if settings.get("kind", "diffusers") in json.dumps(form["kind"])
            ]
        assert any(settings.keys() <= form.keys() for form in forms)
        for shift in recipe.get("prompts", {}).get("shifts", {}).values():
            assert shift is None or shift.keys() <= schemas["ShiftSpec"]["properties"].keys()


TOLD = (
    "publish.authors=['Jane Doe', 'Müller, Jörg', '{Institute of Things}']",
    "publish.year=2026",
    "publish.version='1.2.0'",
    "publish.url=https://example.org/cranes?of=birds&x=%7B",
    "publish.doi=10.5281/zenodo.1234567",
    "publish.contact=cranes@example.org",
    "publish.evaluation_framework=math-arena",
)


def test_what_is_said_is_kept_and_enters_no_hash() -> None:
    plain = load_recipe("wardrobe-mini")
    described = load_recipe("wardrobe-mini", TOLD)
    assert described.publish.authors == ("Jane Doe", "Müller, Jörg", "{Institute of Things}")
    assert (described.publish.year, described.publish.version) == (2026, "1.2.0")
    assert (described.plan_hash, described.screen_hash) == (plain.plan_hash, plain.screen_hash)
    assert described.recipe_hash == plain.recipe_hash
    assert load_recipe_text(described.portable_yaml).publish == described.publish


def test_a_recipe_that_tells_nothing_is_written_as_before() -> None:
    written = load_recipe("wardrobe-mini").portable_yaml
    publish = written[written.index("\npublish:") :]
    assert publish.splitlines()[1:] == ["publish:", "  private: true", "  tags: []"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("publish.authors=[]", "publish.authors.*found 0 authors"),
        ("publish.authors=['']", "publish.authors.*found nothing, expected an author"),
        ("publish.authors=['{ }']", "braces without a name"),
        (
            f"publish.authors=['{'a' * 201}']",
            "found 201 characters, expected an author of at most 200",
        ),
        (f"publish.authors=[{', '.join(['a'] * 1001)}]", "found 1,001 authors"),
        ('publish.authors=["Jane\\nDoe"]', "without control characters"),
        ('publish.authors=["Jane\\u202EDoe"]', "without control characters"),
        ("publish.authors=Jane", "publish.authors.*expected a list"),
        ("publish.year=26", "publish.year.*expected a whole number from 1900 to 2999"),
        ("publish.year='2026'", "publish.year.*write it without quotes"),
        ("publish.version=1.0", "publish.version.*put it in quotes"),
        ('publish.version="1\\u00000"', "expected a version without control characters"),
        ("publish.url=ftp://example.org", "publish.url.*expected an address such as https://"),
        ("publish.url=javascript:alert(1)", "publish.url.*expected an address"),
        ("publish.url=https://", "publish.url.*expected an address"),
        ("publish.url='https://example.org/a b'", "publish.url.*expected an address"),
        ("publish.url='https://example.org/<b>'", "publish.url.*expected an address"),
        ("publish.url='https://example.org/{a}'", "publish.url.*expected an address"),
        ("publish.url='https://[::1/'", "publish.url.*expected an address"),
        ("publish.url=https://example.org:99999/", "publish.url.*expected an address"),
        (f"publish.url=https://example.org/{'a' * 500}", "publish.url.*at most 500 characters"),
        ("publish.doi=zenodo.1234", "publish.doi.*expected a DOI such as '10.1234/abc'"),
        ("publish.doi=https://doi.org/10.5281/zenodo.1", "did you mean '10.5281/zenodo.1'"),
        ("publish.doi=10.5281/a}b", "publish.doi.*expected a DOI"),
        (f"publish.doi=10.5281/{'a' * 200}", "publish.doi.*expected a DOI"),
        ("publish.contact=' '", "found nothing, expected a contact"),
        ('publish.contact="a\\tb"', "expected a contact without control characters"),
        ("publish.autors=['Jane']", "did you mean 'authors'"),
        (
            "publish.evaluation_framework='Math Arena'",
            "expected an identifier of the Hub's list, such as 'math-arena'",
        ),
        ("publish.evaluation_framework=''", "expected an identifier of the Hub's list"),
        (f"publish.evaluation_framework={'a' * 201}", "expected an identifier of the Hub's list"),
        ("publish.evaluation_framework=inspect-ai", "questions and scorers for language models"),
    ],
)
def test_what_is_no_such_thing_is_refused(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_recipe("wardrobe-mini", [change])


@pytest.mark.parametrize(
    "address",
    [
        "https://jane:hf_secret@example.org",
        "https://jane:hf_secret@example.org/a//b",
        "https://jane:hf_secret@example.org:99999/",
        "https://jane:hf_secret@exämple.org/",
        "https://jane:hf_secret@example.org/" + "a" * 3000,
        "https://jane:hf_secret/1@example.org",
        "jane:hf_secret@example.org",
    ],
)
def test_a_secret_in_an_address_is_not_shown(address: str) -> None:
    text = load_recipe("wardrobe-mini", TOLD).portable_yaml
    changed = re.sub(r"url: \S+", lambda _: f"url: {json.dumps(address)}", text)
    assert json.dumps(address) in changed
    with pytest.raises(UserError, match=r"found an (unclear )?address") as refused:
        load_recipe_text(changed)
    assert "hf_secret" not in str(refused.value)


def test_a_path_may_have_an_at_sign() -> None:
    recipe = load_recipe("wardrobe-mini", ["publish.url=https://example.org/@jane"])
    assert recipe.publish.url == "https://example.org/@jane"

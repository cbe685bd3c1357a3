"""`mine --method bugs` with real rounds, and the layer of a benchmark."""

from __future__ import annotations

import io
import json
import os
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_search import (
    DRAWN,
    RECIPE,
    SANDAL,
    SEARCHED,
    T_SHIRT,
    TARGET,
    WRITTEN,
    described_images,
    files_of,
    findings_of,
    round_recipes,
    searched,
)

from counterfoil.building import build
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mining.findings import SHORTENED_TO, Findings, findings_json
from counterfoil.mining.findings_layer import layer_of, mined_shift, seed_for, shifts_layer
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.mine_bugs import adversarial_layer
from counterfoil.models.classifiers import load_classifier
from counterfoil.plan import format_quotas, judged_quotas, make_plan
from counterfoil.recipe import Recipe, bundled_recipes, load_recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.store.reading import read_receipts, read_rows, read_shard
from counterfoil.store.rows import TableForm
from tiny_builds import TINY

# (class id, index) → whether the target is wrong, by shift: the base is "base".
Failed = dict[str, dict[tuple[str, int], bool]]


@pytest.fixture(scope="module")
def findings(small_search: Path) -> Findings:
    return findings_of(small_search)


@cache
def answered_independently(folder: Path) -> dict[str, str]:
    """Key of every accepted image of every round → the class that the target takes it for, in no one's code but timm's.

    The lab's classifiers have an output a class, in the order of the source's labels.
    """
    names = [cls.name for cls in load_recipe(RECIPE).classes]
    model = load_classifier(TARGET)
    transform = model.transform()
    found: dict[str, str] = {}
    for dataset in sorted(folder.glob("*/*/dataset")):
        for row in read_rows(dataset, ["key", "image"]):
            with Image.open(io.BytesIO(row["image"]["bytes"])) as image:
                batch = transform(image.convert("RGB")).unsqueeze(0)
            found[f"{dataset.parents[1].name}/{dataset.parent.name}/{row['key']}"] = names[
                int(model.logits(batch, "cpu").argmax())
            ]
    return found


def failed_of(folder: Path, name: str) -> Failed:
    """Every accepted image of a round, whether it fails."""
    names = {cls.id: cls.name for cls in load_recipe(RECIPE).classes}
    found: Failed = {}
    for key, answer in answered_independently(folder).items():
        place, _, sample = key.rpartition("/")
        if place == name:
            shift, class_id, index = sample.rsplit("_", 2)
            found.setdefault(shift, {})[class_id, int(index)] = answer != names[class_id]
    return found


def test_every_round_is_a_dataset_that_is_whole(small_search: Path, findings: Findings) -> None:
    assert [one.purpose for one in findings.rounds][:1] == ["baseline"]
    assert {one.name for one in findings.rounds} == round_recipes(small_search).keys()
    for one in findings.rounds:
        assert verify(small_search / one.name / "dataset").problems == ()


def test_no_two_rounds_and_no_recipe_share_their_noise(small_search: Path, findings: Findings) -> None:
    seeds = {name: recipe.samples.seed for name, recipe in round_recipes(small_search).items()}
    assert seeds == {one.name: one.seed for one in findings.rounds}
    layers = [small_search / name for name in ("recipe.yaml", "adversarial.yaml") if (small_search / name).exists()]
    every = [*seeds.values(), *(load_recipe(one).samples.seed for one in (RECIPE, *layers))]
    assert len(set(every)) == len(every)


def test_rounds_are_drawn_in_pairs_and_screened_for_the_object_alone(small_search: Path, findings: Findings) -> None:
    for one in findings.rounds:
        recipe = round_recipes(small_search)[one.name]
        assert recipe.samples.noise == "paired" and not recipe.judges
        assert all(shift.kind == "mined" and shift.caption is None for shift in recipe.prompts.shifts.values())
        base = recipe.prompts.base.classes or ()
        assert {each for shift in recipe.prompts.shifts.values() for each in shift.classes or ()} <= set(base)
        drawn = list(read_rows(small_search / one.name / "dataset", ["key"], what="candidates"))
        accepted = list(read_rows(small_search / one.name / "dataset", ["key"]))
        assert (one.images, one.accepted) == (len(drawn), len(accepted))


def test_counts_are_those_of_the_rounds_own_images(small_search: Path, findings: Findings) -> None:
    base = failed_of(small_search, "rounds/01")["base"]
    for audit in findings.classes:
        own = [failed for (class_id, _), failed in base.items() if class_id == audit.id]
        assert (audit.rows, audit.errors) == (len(own), sum(own))
        assert audit.drawn == (12 if audit.id in (T_SHIRT, SANDAL) else None)
    estimates = {one.name for one in findings.rounds if one.purpose == "estimate"}
    assert findings.standing and len(estimates) == len(findings.standing)
    for one in findings.findings:
        # Pairs, both, failing, rescued: of the test, and of what was drawn after it.
        of_test, fresh = [0, 0, 0, 0], [0, 0, 0, 0]
        for name, recipe in round_recipes(small_search).items():
            if one.name not in recipe.prompts.shifts:
                continue
            failed, counts = failed_of(small_search, name), fresh if name in estimates else of_test
            for place, fails in failed.get(one.name, {}).items():
                if place in failed["base"]:
                    base_fails = failed["base"][place]
                    each = (True, fails and base_fails, fails and not base_fails, base_fails and not fails)
                    counts[:] = [count + more for count, more in zip(counts, each, strict=True)]
        assert one.pairs is not None
        assert [one.pairs.pairs, one.pairs.both, one.pairs.failing, one.pairs.rescued] == of_test
        assert one.pairs.looks[-1].pairs == of_test[0]
        rates = of_test
        if one in findings.standing:
            assert one.pairs.fresh is not None and one.pairs.fresh.round in estimates
            own = one.pairs.fresh
            assert [own.pairs, own.both, own.failing, own.rescued] == fresh
            rates = fresh
        elif one.confirmed:
            rates = [0, 0, 0, 0]
        assert (one.set.failures, one.rest.failures) == (rates[1] + rates[2], rates[1] + rates[3])


def test_what_is_told_of_single_images_is_what_the_target_answers(small_search: Path, findings: Findings) -> None:
    answers = answered_independently(small_search)
    for finding in findings.findings:
        assert finding.evidence and finding.answers is not None
        for piece in finding.evidence:
            assert answers[piece.key] == piece.answered
            assert piece.failed == (piece.answered != finding.class_names[0])
        for count in (*finding.answers.before, *finding.answers.after):
            assert count.examples and {answers[key] for key in count.examples} == {count.answer}


def test_every_hypothesis_comes_from_failures_of_the_base_or_is_shorter_words_of_one(findings: Findings) -> None:
    by_name = {finding.name: finding for finding in findings.findings}
    base = {cls.name: cls.errors for cls in findings.classes}
    for one in findings.findings:
        if one.origin == "shortened":
            whole = by_name[one.about["shortened_from"]]
            assert whole.origin == "found" and len(one.caption.split()) < len(whole.caption.split())
        else:
            assert one.about["described"] and len(one.about["described"]) <= base[one.class_names[0]]
            assert {key.rpartition("/")[0] for key in one.about["described"]} == {"rounds/01"}
    hypotheses = [finding for finding in findings.findings if finding.origin == "found"]
    reasons = {cls.name: cls.reason for cls in findings.classes}
    # A class that was looked at has a hypothesis, a cluster that nobody could describe, or a reason.
    result = {hypothesis.class_names[0] for hypothesis in hypotheses} | {
        one.words.partition(":")[0] for one in findings.not_tested
    }
    assert all(name in result or reason for name, reason in reasons.items())


def test_findings_read_back_and_fit_the_schema(small_search: Path, findings: Findings) -> None:
    text = (small_search / "findings.json").read_text()
    assert findings_json(findings) == text
    schema = json.loads((bundled_recipes()[RECIPE].parent / "findings.schema.json").read_text())
    assert json.loads(text).keys() <= schema["properties"].keys()
    assert set(schema["required"]) <= json.loads(text).keys()
    assert findings.tested == len(findings.findings) and findings.halves is None


def test_what_was_asked_is_kept_as_a_recipe(small_search: Path) -> None:
    asked, wanted = load_recipe(small_search / "mine.yaml"), load_recipe(RECIPE, [*DRAWN, *SEARCHED])
    assert asked.mine is not None and wanted.mine is not None
    assert asked.recipe_hash == wanted.recipe_hash
    assert (asked.mine.method, asked.mine.target, asked.mine.fdr) == ("bugs", TARGET, 0.9)
    assert BugsSettings.model_validate(asked.mine.settings) == BugsSettings.model_validate(wanted.mine.settings)


def test_the_same_search_again_gives_the_same_bytes_and_draws_nothing(small_search: Path, tmp_path: Path) -> None:
    shutil.copytree(small_search, tmp_path / "again")
    drawn = {path: path.stat().st_mtime_ns for path in (tmp_path / "again").rglob("*.parquet")}
    searched(tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(small_search)
    assert files_of(small_search).keys() <= set(WRITTEN)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "again").rglob("*.parquet")} == drawn


def test_a_search_that_was_killed_goes_on_and_ends_with_the_same_bytes(
    small_search: Path, findings: Findings, tmp_path: Path
) -> None:
    """Amid a round of the test, and amid one that tells the rates of what it confirmed."""
    killed = tmp_path / "killed"
    shutil.copytree(small_search, killed)
    for name in files_of(killed):
        (killed / name).unlink()
    halves = []
    for purpose in ("test", "estimate"):
        half = killed / next(one.name for one in findings.rounds if one.purpose == purpose) / "dataset"
        (half / "manifest.json").unlink()
        receipts = sorted(half.rglob("receipts/*"))
        assert receipts
        receipts[-1].unlink()
        halves.append(half)
    searched(killed)
    assert files_of(killed) == files_of(small_search)
    assert [verify(half).problems for half in halves] == [(), ()]


def test_a_refused_search_leaves_the_folder_as_it_was(small_search: Path, tmp_path: Path) -> None:
    shutil.copytree(small_search, tmp_path / "other")
    with pytest.raises(UserError, match="rounds/01 was rendered for other hypotheses or with other settings"):
        searched(tmp_path / "other", "generator.guidance=4")
    with pytest.raises(UserError, match="rounds/01 was rendered"):
        searched(tmp_path / "other", "mine.settings.baseline=16")
    with pytest.raises(UserError, match=r"holds findings of another target \(wardrobe-bugs, lab:resnet10t\)"):
        searched(tmp_path / "other", target="lab:resnet14t")
    assert files_of(tmp_path / "other") == files_of(small_search)


def test_mined_recipes_hold_what_stands(tried: Path) -> None:
    findings, recipe = findings_of(tried), load_recipe(tried / "recipe.yaml")
    hard = {name: shift for name, shift in recipe.prompts.shifts.items() if shift.group == "hard"}
    assert hard.keys() == {one.name for one in findings.standing} >= {"sandal_at_night"}
    assert {shift.kind for shift in recipe.prompts.shifts.values()} == {"mined"}
    found = hard["sandal_at_night"].mined_from
    assert found is not None and found["origin"] == "tried" and found["pairs"]["failing"] == found["pairs"]["pairs"]
    collected = load_recipe(tried / "adversarial.yaml")
    assert collected.prompts.shifts.keys() == hard.keys()
    assert collected.judges == (TARGET,)
    assert (collected.samples.accepted, collected.samples.at_most) == (4, 100)
    seeds = [recipe.samples.seed, collected.samples.seed, *(one.seed for one in findings.rounds)]
    assert len(set(seeds)) == len(seeds)


def test_what_is_told_in_fewer_words_is_no_shift(tried: Path, tmp_path: Path) -> None:
    shutil.copyfile(tried / "mine.yaml", tmp_path / "mine.yaml")
    findings, recipe = findings_of(tried), load_recipe(tmp_path / "mine.yaml")
    night = next(finding for finding in findings.findings if finding.name == "sandal_at_night")
    short = replace(night, name="sandal_night")
    whole = replace(night, about=dict(night.about) | {SHORTENED_TO: short.name})
    run = MiningRun(recipe, recipe.mine or Mine(), None, tmp_path / "mine.yaml", (), tmp_path)
    text = layer_of(replace(findings, findings=(short, whole), tested=2), run)
    assert text is not None
    (tmp_path / "recipe.yaml").write_text(text)
    shifts = load_recipe(tmp_path / "recipe.yaml").prompts.shifts
    assert "sandal_night" in shifts and whole.name not in shifts


def test_images_that_exist_are_described_where_they_are_named(small_search: Path, tmp_path: Path) -> None:
    shutil.copytree(small_search / "rounds" / "01", tmp_path / "seeded" / "rounds" / "01")
    there = small_search / "rounds" / "02" / "dataset"
    with described_images(fail=True):
        found = searched(tmp_path / "seeded", f"mine.settings.seeds=[{there}]", "mine.settings.shorten=false").findings
    recipe, images = load_recipe(RECIPE), open_dataset(there).labelled()
    assert [(one.content, one.rows) for one in found.on] == [(images.content, len(images))]
    assert found.findings
    label_of = dict(zip(images.keys, images.labels.tolist(), strict=True))
    for one in found.findings:
        keys = one.about["described"]
        assert keys and all(key.startswith("seeds/0/") for key in keys)
        assert {recipe.classes[label_of[key.removeprefix("seeds/0/")]].id for key in keys} == set(one.classes)
    # A base without a failure is no reason to leave a class out whose failures come from elsewhere.
    assert not any("no failure in" in (cls.reason or "") for cls in found.classes)


OTHER = "lab:lcnet_035"
QUOTA: dict[str, Any] = {"accepted": 2, "at_most": 8, "method": "bugs", "seed": 4}


def origin(role: str, rate: float | None = 0.25, failure: str = "top1") -> dict[str, Any]:
    set_rate = {} if rate is None else {"set": {"rate": rate, "rows": 40}}
    return {
        "failure": failure,
        "finding": "f",
        "words": "red things",
        "role": role,
        "target": {"name": TARGET},
        **set_rate,
    }


def write_mined(folder: Path, *, hard: bool = True, failure: str = "top1") -> Path:
    """Mining's layer in `folder`: a failure of two classes, one of a class with numbers of its own, and an easy one."""
    recipe = load_recipe("wardrobe-mini", TINY)
    by_id = {cls.id: cls for cls in recipe.classes}
    shirts, bag = [by_id["00"], by_id["05"]], [by_id["08"]]
    shifts: dict[str, dict[str, Any]] = {
        "red_hard": mined_shift("a photo of a red {class}", None, "hard", shirts, origin("hard", failure=failure)),
        "snow_hard": mined_shift("a photo of a {class} in the snow", None, "hard", bag, origin("hard", None))
        | {"samples": {"candidates": 3}, "keep": ["thresholds"]},
    }
    easy = {"red_easy": mined_shift("a photo of a {class} at night", None, "easy", shirts, origin("easy", None))}
    changes = {"samples": {"seed": 12}, "name": "wardrobe-mini-mined"}
    folder.mkdir(parents=True, exist_ok=True)
    run = MiningRun(recipe, Mine(), None, "wardrobe-mini", TINY, folder)
    text = shifts_layer(shifts | easy if hard else easy, changes, run)
    (folder / "recipe.yaml").write_text(text)
    return folder / "recipe.yaml"


def write_layer(folder: Path, target: str = TARGET, **changes: Any) -> Recipe:
    mined = write_mined(folder, failure=changes.get("failure", "top1"))
    (folder / "adversarial.yaml").write_text(adversarial_layer(mined, target, **QUOTA | changes))
    return load_recipe(folder / "adversarial.yaml")


def test_it_is_a_layer_over_minings_own(tmp_path: Path) -> None:
    recipe = write_layer(tmp_path)
    assert "extends: ./recipe.yaml\n" in (tmp_path / "adversarial.yaml").read_text()
    below = load_recipe(tmp_path / "recipe.yaml")
    assert recipe.name == "wardrobe-mini-mined-adversarial"
    base, *shifts = recipe.all_shifts()
    assert [shift.name for shift in shifts] == ["red_hard", "snow_hard"], "what is easy stays out"
    for shift in shifts:
        assert (shift.accepted, shift.candidates, shift.kind) == (2, 8, "mined"), "whatever a shift said itself"
        judging = [rule for rule in shift.keep if rule.judges()]
        assert [(rule.judges(), rule.model_dump()["at_least"]) for rule in judging] == [((TARGET,), 1)]
        inherited = below.prompts.shifts[shift.name]
        assert recipe.prompts.shifts[shift.name].mined_from == inherited.mined_from
        assert shift.prompt == inherited.prompt
    assert all(not rule.judges() for rule in base.keep) and base.accepted == 2


def test_its_noise_is_its_own(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {"target": OTHER}, {"seed": 5}, {"method": "directions"}]
    seeds = [write_layer(tmp_path, **each).samples.seed for each in changes]
    others = [seed_for(12, purpose, "bugs", TARGET, 4) for purpose in ("layer", "confirm")]
    assert len({12, *seeds, *others}) == len(changes) + 3
    assert write_layer(tmp_path).samples.seed == seeds[0]


@pytest.mark.parametrize("failure", ["top1", "top3", "answered:05"])
def test_it_keeps_and_is_priced_by_the_failure_rule_of_the_run(failure: str, tmp_path: Path) -> None:
    recipe = write_layer(tmp_path, failure=failure)
    rules = [rule for shift in recipe.all_shifts() for rule in shift.keep if rule.judges()]
    assert {rule.model_dump()["failure"] for rule in rules} == {failure}
    assert ("failure" in (tmp_path / "adversarial.yaml").read_text()) == (failure != "top1")
    assert judged_quotas(recipe)[0].rate == 0.25, "found by the same rule"


def test_without_a_failure_nothing_is_collected(tmp_path: Path) -> None:
    mined = write_mined(tmp_path, hard=False)
    with pytest.raises(UserError, match="no mined shift"):
        adversarial_layer(mined, TARGET, **QUOTA)


def test_a_target_in_a_folder_is_found_from_wherever_the_layer_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    recipe = write_layer(tmp_path / "deep" / "out", "local-dir:./model")
    assert recipe.judges == (f"local-dir:{os.path.realpath(tmp_path / 'model')}",)


def test_check_prices_it(tmp_path: Path) -> None:
    recipe = write_layer(tmp_path)
    red, snow = judged_quotas(recipe)
    assert (red.cells, red.rate, red.candidates_each, red.candidates_a_cell) == (2, 0.25, 4, 8)
    assert (snow.cells, snow.rate, snow.candidates_each) == (1, None, None)
    plan = make_plan(recipe)
    assert sum(one.cells * one.at_most for one in (red, snow)) == plan.n_samples - 8 * 3, "the base is drawn besides"
    assert format_quotas((red, snow)) == (
        "at most 8 candidates per cell, 24 in all, until 2 are kept that lab:resnet10t gets wrong; at the failure rates"
        " in mined_from (25 %), a kept image takes about 4 candidates that pass the screen, and a cell about 8;"
        " 1 of 2 shifts give no rate."
    )


def test_it_builds_and_rows_hold_what_the_judge_answered(tmp_path: Path) -> None:
    recipe = write_layer(tmp_path)
    build(tmp_path / "adversarial.yaml", tmp_path / "d", device="cpu", workers=1)
    form = TableForm.of(recipe)
    columns = ["shift", "class_id", "reason", *form.added]
    rows = [
        row
        for receipt in read_receipts(tmp_path / "d")
        for row in read_shard(tmp_path / "d", receipt, columns, "candidates", form)
        if row["shift"] != "base"
    ]
    cells = {(row["shift"], row["class_id"]) for row in rows}
    assert cells == {("red_hard", "00"), ("red_hard", "05"), ("snow_hard", "08")}
    kept = dict.fromkeys(cells, 0)
    for row in rows:
        assert row["resnet10t_answer"] is not None and row["resnet10t_right"] in (True, False)
        assert (row["reason"] in ("accepted", "surplus")) == (row["resnet10t_right"] is False)
        kept[row["shift"], row["class_id"]] += row["reason"] == "accepted"
    assert sum(kept.values()) and max(kept.values()) <= 2
    assert verify(tmp_path / "d").problems == ()
    card = (tmp_path / "d" / "README.md").read_text()
    assert "## Chosen because a model failed" in card and f"**: `{TARGET}`." in card
    [transfer] = evaluate(tmp_path / "d", [TARGET, "lab:resnet14t"], device="cpu", out=tmp_path / "out").transfer
    assert transfer.images == sum(kept.values())

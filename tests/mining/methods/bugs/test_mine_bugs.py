"""`mine --method bugs` with real rounds, and the layer of a benchmark."""

from __future__ import annotations

import csv
import io
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

from bugs_proof.paper_table import recount
from counterfoil.building.build_dataset import build
from counterfoil.dataset.verification import verify
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mining.findings import SHORTENED_TO, Findings
from counterfoil.mining.findings_layer import layer_of, mined_shift, seed_for, shifts_layer
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.mine_bugs import adversarial_layer
from counterfoil.models.classifiers import load_classifier
from counterfoil.plan.estimate import format_quotas, judged_quotas
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import Recipe, load_recipe
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
    """Return the target's answer by key for every accepted image of every round, computed by timm
    alone.

    The lab's classifiers have one output per class, in the order of the source's labels.
    """
    names = [cls.name for cls in load_recipe(RECIPE).classes]
    model = load_classifier(TARGET)
    transform = model.transform()
    answers: dict[str, str] = {}
    for dataset in sorted(folder.glob("*/*/dataset")):
        for row in read_rows(dataset, ["key", "image"]):
            with Image.open(io.BytesIO(row["image"]["bytes"])) as image:
                batch = transform(image.convert("RGB")).unsqueeze(0)
            answers[f"{dataset.parents[1].name}/{dataset.parent.name}/{row['key']}"] = names[
                int(model.logits(batch, "cpu").argmax())
            ]
    return answers


def failed_of(folder: Path, name: str) -> Failed:
    """Return whether each accepted image of a round fails."""
    names = {cls.id: cls.name for cls in load_recipe(RECIPE).classes}
    failed: Failed = {}
    for key, answer in answered_independently(folder).items():
        round_name, _, sample = key.rpartition("/")
        if round_name == name:
            shift, class_id, index = sample.rsplit("_", 2)
            failed.setdefault(shift, {})[class_id, int(index)] = answer != names[class_id]
    return failed


def test_every_round_is_a_dataset_that_is_whole(small_search: Path, findings: Findings) -> None:
    assert [drawn.purpose for drawn in findings.rounds][:1] == ["baseline"]
    assert {drawn.name for drawn in findings.rounds} == round_recipes(small_search).keys()
    for drawn in findings.rounds:
        assert verify(small_search / drawn.name / "dataset").problems == ()


def test_no_two_rounds_and_no_recipe_share_their_noise(
    small_search: Path, findings: Findings
) -> None:
    seeds = {name: recipe.samples.seed for name, recipe in round_recipes(small_search).items()}
    assert seeds == {drawn.name: drawn.seed for drawn in findings.rounds}
    layers = [
        small_search / name
        for name in ("recipe.yaml", "adversarial.yaml")
        if (small_search / name).exists()
    ]
    every = [*seeds.values(), *(load_recipe(path).samples.seed for path in (RECIPE, *layers))]
    assert len(set(every)) == len(every)


def test_rounds_are_drawn_in_pairs_and_screened_for_the_object_alone(
    small_search: Path, findings: Findings
) -> None:
    for drawn in findings.rounds:
        recipe = round_recipes(small_search)[drawn.name]
        assert recipe.samples.noise == "paired" and not recipe.judges
        assert all(
            shift.kind == "mined" and shift.caption is None
            for shift in recipe.prompts.shifts.values()
        )
        base = recipe.prompts.base.classes or ()
        assert {
            class_id for shift in recipe.prompts.shifts.values() for class_id in shift.classes or ()
        } <= set(base)
        candidates = list(
            read_rows(small_search / drawn.name / "dataset", ["key"], what="candidates")
        )
        accepted = list(read_rows(small_search / drawn.name / "dataset", ["key"]))
        assert (drawn.images, drawn.accepted) == (len(candidates), len(accepted))


def test_counts_are_those_of_the_rounds_own_images(small_search: Path, findings: Findings) -> None:
    base = failed_of(small_search, "rounds/01")["base"]
    for audit in findings.classes:
        of_class = [failed for (class_id, _), failed in base.items() if class_id == audit.id]
        assert (audit.rows, audit.errors) == (len(of_class), sum(of_class))
        assert audit.drawn == (12 if audit.id in (T_SHIRT, SANDAL) else None)
    estimates = {drawn.name for drawn in findings.rounds if drawn.purpose == "estimate"}
    assert findings.standing and len(estimates) == len(findings.standing)
    for finding in findings.findings:
        # Pairs, both, failing, rescued: of the test, and of the fresh pairs.
        of_test = [0, 0, 0, 0]
        fresh = [0, 0, 0, 0]
        for name, recipe in round_recipes(small_search).items():
            if finding.name not in recipe.prompts.shifts:
                continue
            failed = failed_of(small_search, name)
            counts = fresh if name in estimates else of_test
            for sample, fails in failed.get(finding.name, {}).items():
                if sample in failed["base"]:
                    base_fails = failed["base"][sample]
                    outcome = (
                        True,
                        fails and base_fails,
                        fails and not base_fails,
                        base_fails and not fails,
                    )
                    counts[:] = [count + more for count, more in zip(counts, outcome, strict=True)]
        assert finding.pairs is not None
        assert [
            finding.pairs.pairs,
            finding.pairs.both,
            finding.pairs.failing,
            finding.pairs.rescued,
        ] == of_test
        assert finding.pairs.looks[-1].pairs == of_test[0]
        rates = of_test
        if finding in findings.standing:
            assert finding.pairs.fresh is not None and finding.pairs.fresh.round in estimates
            fresh_pairs = finding.pairs.fresh
            assert [
                fresh_pairs.pairs,
                fresh_pairs.both,
                fresh_pairs.failing,
                fresh_pairs.rescued,
            ] == fresh
            rates = fresh
        elif finding.confirmed:
            rates = [0, 0, 0, 0]
        assert (finding.set.failures, finding.rest.failures) == (
            rates[1] + rates[2],
            rates[1] + rates[3],
        )


def test_what_is_told_of_single_images_is_what_the_target_answers(
    small_search: Path, findings: Findings
) -> None:
    answers = answered_independently(small_search)
    for finding in findings.findings:
        assert finding.evidence and finding.answers is not None
        for piece in finding.evidence:
            assert answers[piece.key] == piece.answered
            assert piece.failed == (piece.answered != finding.class_names[0])
        for count in (*finding.answers.before, *finding.answers.after):
            assert count.examples and {answers[key] for key in count.examples} == {count.answer}


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_answers_of_every_image_are_in_the_files(small_search: Path, findings: Findings) -> None:
    names = {cls.id: cls.name for cls in load_recipe(RECIPE).classes}
    answers = answered_independently(small_search)
    outputs = list(names.values())
    for drawn in findings.rounds:
        rows = table_of(small_search / drawn.name / "answers.csv")
        assert len(rows) == drawn.accepted
        for row in rows:
            answer = answers[f"{drawn.name}/{row['key']}"]
            assert (
                outputs[int(row["outputs"].split()[0])] == answer
                and 0.1 <= float(row["confidence"]) <= 1
            )
            assert row["failed"] == str(answer != names[row["class_id"]])
            assert row["key"].startswith(f"{row['shift']}_{row['class_id']}_")
            assert len(set(row["outputs"].split())) == 3


def test_counts_and_verdicts_come_out_of_the_files_alone(
    small_search: Path, findings: Findings, tmp_path: Path
) -> None:
    counted = recount(small_search)
    assert [finding["name"] for finding in counted] == [
        finding.name for finding in findings.findings
    ]
    assert any(finding["confirmed"] for finding in counted) and any(
        finding["fresh"] is not None for finding in counted
    )
    # The count sees a single answer that is another.
    shutil.copytree(small_search, tmp_path / "other")
    tested = next(drawn for drawn in findings.rounds if drawn.purpose == "test")
    path = tmp_path / "other" / tested.name / "answers.csv"
    text = path.read_text()
    described = next(
        row
        for row in table_of(path)
        if row["shift"] != "base" and f"base{row['key'][-10:]}" in text
    )
    line = next(line for line in text.splitlines() if line.startswith(described["key"]))
    other = {"True": "False", "False": "True"}[described["failed"]]
    path.write_text(text.replace(line, f"{line.rpartition(',')[0]},{other}"))
    with pytest.raises(ValueError, match="counted"):
        recount(tmp_path / "other")


def test_of_the_descriptions_compared_the_likeliest_was_taken(
    small_search: Path, findings: Findings
) -> None:
    rows = table_of(small_search / "descriptions.csv")

    def score(row: dict[str, str]) -> float:
        return float(row["log_likelihood"]) - float(row["log_likelihood_right"])

    from_clusters = [finding for finding in findings.findings if finding.origin == "found"]
    assert from_clusters
    for finding in from_clusters:
        [taken] = [
            row
            for row in rows
            if row["caption"] == finding.caption
            and score(row) == pytest.approx(finding.about["log_likelihood"])
        ]
        beside = [row for row in rows if row["cluster"] == taken["cluster"]]
        assert len(beside) > 1 and taken["cluster"].partition("_")[0] == finding.classes[0]
        assert max(score(row) for row in beside if row["pieces"] == taken["pieces"]) == score(taken)


def test_every_hypothesis_comes_from_failures_of_the_base_or_is_shorter_words_of_one(
    findings: Findings,
) -> None:
    by_name = {finding.name: finding for finding in findings.findings}
    base = {cls.name: cls.errors for cls in findings.classes}
    for finding in findings.findings:
        if finding.origin == "shortened":
            whole = by_name[finding.about["shortened_from"]]
            assert whole.origin == "found" and len(finding.caption.split()) < len(
                whole.caption.split()
            )
        else:
            assert (
                finding.about["described"]
                and len(finding.about["described"]) <= base[finding.class_names[0]]
            )
            assert {key.rpartition("/")[0] for key in finding.about["described"]} == {"rounds/01"}
    hypotheses = [finding for finding in findings.findings if finding.origin == "found"]
    reasons = {cls.name: cls.reason for cls in findings.classes}
    # Each audited class has a hypothesis, a cluster without a description, or a reason.
    named_classes = {hypothesis.class_names[0] for hypothesis in hypotheses}
    named_classes.update(untested.words.partition(":")[0] for untested in findings.not_tested)
    assert all(name in named_classes or reason for name, reason in reasons.items())


def test_what_was_asked_is_kept_as_a_recipe(small_search: Path) -> None:
    stored = load_recipe(small_search / "mine.yaml")
    wanted = load_recipe(RECIPE, [*DRAWN, *SEARCHED])
    assert stored.mine is not None and wanted.mine is not None
    assert stored.recipe_hash == wanted.recipe_hash
    assert (stored.mine.method, stored.mine.target, stored.mine.fdr) == ("bugs", TARGET, 0.9)
    assert BugsSettings.model_validate(stored.mine.settings) == BugsSettings.model_validate(
        wanted.mine.settings
    )


def test_the_same_search_again_gives_the_same_bytes_and_draws_nothing(
    small_search: Path, tmp_path: Path
) -> None:
    shutil.copytree(small_search, tmp_path / "again")
    drawn = {path: path.stat().st_mtime_ns for path in (tmp_path / "again").rglob("*.parquet")}
    searched(tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(small_search)
    assert files_of(small_search).keys() <= set(WRITTEN)
    assert {
        path: path.stat().st_mtime_ns for path in (tmp_path / "again").rglob("*.parquet")
    } == drawn


def test_a_search_that_was_killed_goes_on_and_ends_with_the_same_bytes(
    small_search: Path, findings: Findings, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    shutil.copytree(small_search, killed)
    for name in files_of(killed):
        (killed / name).unlink()
    halves = []
    for purpose in ("test", "estimate"):
        half = (
            killed
            / next(drawn.name for drawn in findings.rounds if drawn.purpose == purpose)
            / "dataset"
        )
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
    with pytest.raises(
        UserError, match="rounds/01 was rendered for other hypotheses or with other settings"
    ):
        searched(tmp_path / "other", "generator.guidance=4")
    with pytest.raises(
        UserError, match=r"holds findings of another target \(wardrobe-bugs, lab:resnet10t\)"
    ):
        searched(tmp_path / "other", target="lab:resnet14t")
    assert files_of(tmp_path / "other") == files_of(small_search)


def test_mined_recipes_hold_what_stands(tried: Path) -> None:
    findings = findings_of(tried)
    recipe = load_recipe(tried / "recipe.yaml")
    hard = {name: shift for name, shift in recipe.prompts.shifts.items() if shift.group == "hard"}
    assert hard.keys() == {finding.name for finding in findings.standing} >= {"sandal_at_night"}
    assert {shift.kind for shift in recipe.prompts.shifts.values()} == {"mined"}
    record = hard["sandal_at_night"].mined_from
    assert (
        record is not None
        and record["origin"] == "tried"
        and record["pairs"]["failing"] == record["pairs"]["pairs"]
    )
    collected = load_recipe(tried / "adversarial.yaml")
    assert collected.prompts.shifts.keys() == hard.keys()
    assert collected.judges == (TARGET,)
    assert (collected.samples.accepted, collected.samples.at_most) == (4, 100)
    seeds = [
        recipe.samples.seed,
        collected.samples.seed,
        *(drawn.seed for drawn in findings.rounds),
    ]
    assert len(set(seeds)) == len(seeds)


def test_what_is_told_in_fewer_words_is_no_shift(tried: Path, tmp_path: Path) -> None:
    shutil.copyfile(tried / "mine.yaml", tmp_path / "mine.yaml")
    findings = findings_of(tried)
    recipe = load_recipe(tmp_path / "mine.yaml")
    night = next(finding for finding in findings.findings if finding.name == "sandal_at_night")
    short = replace(night, name="sandal_night")
    whole = replace(night, about=dict(night.about) | {SHORTENED_TO: short.name})
    run = MiningRun(recipe, recipe.mine or Mine(), None, tmp_path / "mine.yaml", (), tmp_path)
    text = layer_of(replace(findings, findings=(short, whole), tested=2), run)
    assert text is not None
    (tmp_path / "recipe.yaml").write_text(text)
    shifts = load_recipe(tmp_path / "recipe.yaml").prompts.shifts
    assert "sandal_night" in shifts and whole.name not in shifts


def test_images_that_exist_are_described_where_they_are_named(
    small_search: Path, tmp_path: Path
) -> None:
    shutil.copytree(small_search / "rounds" / "01", tmp_path / "seeded" / "rounds" / "01")
    seeds = small_search / "rounds" / "02" / "dataset"
    with described_images(fail=True):
        mined = searched(
            tmp_path / "seeded", f"mine.settings.seeds=[{seeds}]", "mine.settings.shorten=false"
        ).findings
    recipe = load_recipe(RECIPE)
    images = open_dataset(seeds).labelled()
    assert [(audited.content, audited.rows) for audited in mined.on] == [
        (images.content, len(images))
    ]
    assert mined.findings
    label_of = dict(zip(images.keys, images.labels.tolist(), strict=True))
    for finding in mined.findings:
        keys = finding.about["described"]
        assert keys and all(key.startswith("seeds/0/") for key in keys)
        assert {recipe.classes[label_of[key.removeprefix("seeds/0/")]].id for key in keys} == set(
            finding.classes
        )
    # A class whose failures come from other images is not left out for a base without failures.
    assert not any("no failure in" in (cls.reason or "") for cls in mined.classes)


OTHER = "lab:lcnet_035"
QUOTA: dict[str, Any] = {"accepted": 2, "at_most": 8, "method": "bugs", "seed": 4}


def origin(role: str, rate: float | None = 0.25, failure: str = "top1") -> dict[str, Any]:
    set_rate = {} if rate is None else {"set": {"rate": rate, "rows": 40}}
    facts = {
        "failure": failure,
        "finding": "f",
        "words": "red things",
        "role": role,
        "target": {"name": TARGET},
    }
    return facts | set_rate


def write_mined(folder: Path, *, hard: bool = True, failure: str = "top1") -> Path:
    """Write mining's layer: a failure of two classes, one of a class with its own samples, and an
    easy shift."""
    recipe = load_recipe("wardrobe-mini", TINY)
    by_id = {cls.id: cls for cls in recipe.classes}
    shirts = [by_id["00"], by_id["05"]]
    bag = [by_id["08"]]
    shifts: dict[str, dict[str, Any]] = {
        "red_hard": mined_shift(
            "a photo of a red {class}", None, "hard", shirts, origin("hard", failure=failure)
        ),
        "snow_hard": mined_shift(
            "a photo of a {class} in the snow", None, "hard", bag, origin("hard", None)
        )
        | {"samples": {"candidates": 3}, "keep": ["thresholds"]},
    }
    easy = {
        "red_easy": mined_shift(
            "a photo of a {class} at night", None, "easy", shirts, origin("easy", None)
        )
    }
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
        assert (shift.accepted, shift.candidates, shift.kind) == (2, 8, "mined"), (
            "whatever a shift said itself"
        )
        judging = [rule for rule in shift.keep if rule.judges()]
        assert [(rule.judges(), rule.model_dump()["at_least"]) for rule in judging] == [
            ((TARGET,), 1)
        ]
        inherited = below.prompts.shifts[shift.name]
        assert recipe.prompts.shifts[shift.name].mined_from == inherited.mined_from
        assert shift.prompt == inherited.prompt
    assert all(not rule.judges() for rule in base.keep) and base.accepted == 2


def test_its_noise_is_its_own(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [{}, {"target": OTHER}, {"seed": 5}, {"method": "directions"}]
    seeds = [write_layer(tmp_path, **change).samples.seed for change in changes]
    others = [seed_for(12, purpose, "bugs", TARGET, 4) for purpose in ("layer", "confirm")]
    assert len({12, *seeds, *others}) == len(changes) + 3
    assert write_layer(tmp_path).samples.seed == seeds[0]


@pytest.mark.parametrize("failure", ["top1", "answered:05"])
def test_it_keeps_and_is_priced_by_the_failure_rule_of_the_run(
    failure: str, tmp_path: Path
) -> None:
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
    assert sum(quota.cells * quota.at_most for quota in (red, snow)) == plan.n_samples - 8 * 3, (
        "the base is drawn besides"
    )
    assert format_quotas((red, snow)) == (
        "at most 8 candidates per cell, 24 in all, until 2 are kept that lab:resnet10t gets wrong;"
        " at the failure rates in mined_from (25 %), a kept image takes about 4 candidates that"
        " pass the screen, and a cell about 8; 1 of 2 shifts give no rate."
    )


@pytest.mark.whole
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
    [transfer] = evaluate(
        tmp_path / "d", [TARGET, "lab:resnet14t"], device="cpu", out=tmp_path / "out"
    ).transfer
    assert transfer.images == sum(kept.values())

"""A search for bugs on what the lab draws, captions and answers: its rounds, its documents, and what a kill leaves."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

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
)  # fmt: skip

from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.mining.findings import SHORTENED_TO, Findings, findings_json
from counterfoil.mining.findings_layer import layer_of
from counterfoil.models.classifiers import load_classifier
from counterfoil.recipe import bundled_recipes, load_recipe
from counterfoil.recipe.schema_mine import BugsSettings
from counterfoil.store.reading import read_rows
from counterfoil.verification import verify

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
    for one in findings.findings:
        assert one.evidence and one.answers is not None
        for piece in one.evidence:
            assert answers[piece.key] == piece.answered
            assert piece.failed == (piece.answered != one.class_names[0])
        for count in (*one.answers.before, *one.answers.after):
            assert count.examples and {answers[key] for key in count.examples} == {count.answer}


def test_every_hypothesis_comes_from_failures_of_the_base_or_is_shorter_words_of_one(findings: Findings) -> None:
    by_name = {one.name: one for one in findings.findings}
    base = {one.name: one.errors for one in findings.classes}
    for one in findings.findings:
        if one.origin == "shortened":
            whole = by_name[one.about["shortened_from"]]
            assert whole.origin == "found" and len(one.caption.split()) < len(whole.caption.split())
        else:
            assert one.about["described"] and len(one.about["described"]) <= base[one.class_names[0]]
            assert {key.rpartition("/")[0] for key in one.about["described"]} == {"rounds/01"}
    hypotheses = [one for one in findings.findings if one.origin == "found"]
    reasons = {one.name: one.reason for one in findings.classes}
    # A class that was looked at has a hypothesis, a cluster that nobody could describe, or a reason.
    told = {one.class_names[0] for one in hypotheses} | {one.words.partition(":")[0] for one in findings.not_tested}
    assert all(name in told or reason for name, reason in reasons.items())


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
    with pytest.raises(UserError, match="rounds/01 was rendered for other hypotheses, or by other settings"):
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
    told = hard["sandal_at_night"].mined_from
    assert told is not None and told["origin"] == "tried" and told["pairs"]["failing"] == told["pairs"]["pairs"]
    collected = load_recipe(tried / "adversarial.yaml")
    assert collected.prompts.shifts.keys() == hard.keys()
    assert collected.judges == (TARGET,)
    assert (collected.samples.accepted, collected.samples.at_most) == (4, 100)
    seeds = [recipe.samples.seed, collected.samples.seed, *(one.seed for one in findings.rounds)]
    assert len(set(seeds)) == len(seeds)


def test_what_is_told_in_fewer_words_is_no_shift(tried: Path, tmp_path: Path) -> None:
    shutil.copyfile(tried / "mine.yaml", tmp_path / "mine.yaml")
    findings, recipe = findings_of(tried), load_recipe(tmp_path / "mine.yaml")
    night = next(one for one in findings.findings if one.name == "sandal_at_night")
    short = replace(night, name="sandal_night")
    whole = replace(night, about=dict(night.about) | {SHORTENED_TO: short.name})
    text = layer_of(replace(findings, findings=(short, whole), tested=2), recipe, tmp_path / "mine.yaml", (), tmp_path)
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
    assert not any("no failure in" in (one.reason or "") for one in found.classes)

"""Hypotheses by hand in the folder of a search; findings tested again by another recipe or on
photographs."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
from small_search import (
    DRAWN,
    RECIPE,
    TARGET,
    described_images,
    files_of,
    findings_of,
    round_recipes,
    searched,
)

from counterfoil import mine_again, try_descriptions
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.documents import document_text
from counterfoil.errors import UserError
from counterfoil.mining.audited import Audited
from counterfoil.mining.findings import Finding, Findings
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.descriptions import Description, Piece
from counterfoil.mining.methods.bugs.document import adjusted_together, with_more
from counterfoil.mining.methods.bugs.trials import BugHypothesis
from counterfoil.mining.methods.bugs.trying import find_on_photographs
from counterfoil.mining.mined_files import MineResult
from counterfoil.models.clip import load_clip
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.store.atomic import HashedFile, write_atomically
from counterfoil.store.reading import read_rows

# Another generator: one that takes fewer steps.
OTHER = (*DRAWN, "generator.steps=2", "name=two-steps")


def tried_in(folder: Path, *texts: str, class_name: str = "sandal") -> MineResult:
    return try_descriptions(folder, texts, class_name, device="cpu", workers=1)


def again_in(folder: Path, *sets: str) -> MineResult:
    return mine_again(folder, RECIPE, overrides=[*OTHER, *sets], device="cpu", workers=1)


def keys_of(folder: Path, name: str) -> set[str]:
    return {f"{name}/{row['key']}" for row in read_rows(folder / name / "dataset", ["key"])}


@pytest.fixture(scope="module")
def again(tried: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the folder and draw its confirmed findings by another recipe. Read only."""
    folder = tmp_path_factory.mktemp("again") / "mined"
    shutil.copytree(tried, folder)
    with described_images(fail=True):
        again_in(folder)
    return folder


def test_what_a_person_wrote_joins_the_family_and_every_file_is_written_anew(
    small_search: Path, tried: Path
) -> None:
    before = findings_of(small_search)
    after = findings_of(tried)
    finding = next(finding for finding in after.findings if finding.origin == "tried")
    assert (finding.name, finding.words, finding.caption) == (
        "sandal_at_night", "sandal at night", "a photo of a sandal at night",
    )  # fmt: skip
    assert (
        finding.confirmed
        and finding.pairs is not None
        and finding.pairs.failing == finding.pairs.pairs > 0
    )
    assert after.tested == before.tested + 1 == len(after.findings)
    counts_before, counts_after = (
        {
            entry.name: entry.pairs and replace(entry.pairs, state="futile", fresh=None)
            for entry in findings.findings
        }
        for findings in (before, after)
    )
    assert {name: counts_after[name] for name in counts_before} == counts_before
    assert (
        finding.pairs.fresh is not None
        and finding.set.rows == finding.pairs.fresh.pairs == finding.set.failures > 0
    )
    new = files_of(tried)
    old = files_of(small_search)
    assert all(
        new[name] != old.get(name)
        for name in ("findings.json", "findings.csv", "report.html", "recipe.yaml")
    )
    assert new["mine.yaml"] == old["mine.yaml"]
    assert (
        "sandal at night" in new["report.html"].decode()
        and "sandal at night" in new["findings.csv"].decode()
    )
    assert f"{finding.name}:" in new["recipe.yaml"].decode()


def test_q_values_are_over_all_hypotheses_of_the_folder(tried: Path) -> None:
    findings = findings_of(tried)
    ranked = sorted(findings.findings, key=lambda finding: -(finding.last_log_e or 0.0))
    m = len(ranked)
    bounds = [
        m / ((index + 1) * math.exp(finding.last_log_e or 0.0))
        for index, finding in enumerate(ranked)
    ]
    for index, finding in enumerate(ranked):
        assert finding.q == pytest.approx(min(1.0, *bounds[index:]))
        if finding.q > findings.fdr:
            assert not finding.confirmed


def test_rounds_are_appended_with_noise_that_no_other_has(small_search: Path, tried: Path) -> None:
    before = findings_of(small_search).rounds
    after = findings_of(tried).rounds
    new = after[len(before) :]
    assert after[: len(before)] == before and {drawn.purpose for drawn in new} == {
        "try",
        "try_estimate",
    }
    assert [drawn.name for drawn in new] == [
        f"tries/{number:02d}" for number in range(1, len(new) + 1)
    ]
    recipes = round_recipes(tried)
    seeds = {drawn.name: drawn.seed for drawn in after}
    assert {name: recipe.samples.seed for name, recipe in recipes.items()} == seeds
    assert len({drawn.seed for drawn in after}) == len(after)
    of_purpose = {
        (drawn.purpose, shift) for drawn in new for shift in recipes[drawn.name].prompts.shifts
    }
    assert {shift for purpose, shift in of_purpose if purpose == "try"} == {"sandal_at_night"}
    assert ("try_estimate", "sandal_at_night") in of_purpose


def test_its_evidence_is_of_its_rounds_and_is_shown(tried: Path) -> None:
    findings = findings_of(tried)
    finding = next(finding for finding in findings.findings if finding.origin == "tried")
    keys = {
        key
        for drawn in findings.rounds
        if drawn.purpose == "try"
        for key in keys_of(tried, drawn.name)
    }
    assert finding.evidence and {piece.key for piece in finding.evidence} <= keys
    page = (tried / "report.html").read_text()
    start = next(drawn.name for drawn in findings.rounds if drawn.purpose == "try")
    # An image has its key as title and as alternative text.
    assert page.count(f'title="{start}/') == page.count(f' alt="{start}/') > 0


def test_what_was_tried_survives_a_second_search_of_the_folder(tried: Path, tmp_path: Path) -> None:
    shutil.copytree(tried, tmp_path / "mined")
    searched(tmp_path / "mined")
    assert findings_of(tmp_path / "mined") == findings_of(tried)
    assert files_of(tmp_path / "mined")["report.html"] == files_of(tried)["report.html"]
    first, second = (load_recipe(folder / "recipe.yaml") for folder in (tried, tmp_path / "mined"))
    assert first.recipe_hash == second.recipe_hash


def test_a_try_that_was_killed_amid_its_estimate_and_amid_its_files_goes_on(
    small_search: Path, tried: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mined"
    shutil.copytree(tried, folder)
    for name in files_of(folder):
        (folder / name).unlink()
    for name in files_of(small_search):
        shutil.copyfile(small_search / name, folder / name)
    last = next(
        drawn.name for drawn in findings_of(tried).rounds if drawn.purpose == "try_estimate"
    )
    (folder / last / "dataset" / "manifest.json").unlink()

    def killed(path: Path, content: bytes) -> HashedFile:
        if path.name == "report.html":
            raise KeyboardInterrupt
        return write_atomically(path, content)

    with described_images(fail=True):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("counterfoil.store.atomic.write_atomically", killed)
            tried_in(folder, "a sandal at night")
        tried_in(folder, "a sandal at night")
    assert files_of(folder) == files_of(tried)


def test_words_that_a_search_comes_to_later_stand_beside_those_that_were_tried(tried: Path) -> None:
    findings = findings_of(tried)
    finding = next(finding for finding in findings.findings if finding.origin == "tried")
    merged = with_more(findings, [finding], ())
    names = [{finding.name for finding in document.findings} for document in (merged, findings)]
    assert names[0] - names[1] == {f"{finding.name}_2"}
    assert merged.tested == findings.tested + 1


def test_a_round_that_another_try_left_is_passed_and_no_image_counts_twice(
    tried: Path, tmp_path: Path
) -> None:
    """Each look takes the next free number. The round of the killed try stays."""
    folder = tmp_path / "mined"
    shutil.copytree(tried, folder)
    rounds = findings_of(folder).rounds
    before = len(rounds)
    tries = sum(drawn.name.startswith("tries/") for drawn in rounds)
    left = folder / f"tries/{tries + 1:02d}" / "recipe.yaml"
    left.parent.mkdir()
    left.write_text("extends: wardrobe-bugs\n")
    with described_images(fail=False):
        findings = tried_in(folder, "in the snow").findings
    new = findings.rounds[before:]
    assert [drawn.name for drawn in new] == [f"tries/{tries + 2:02d}", f"tries/{tries + 3:02d}"]
    assert len({drawn.seed for drawn in findings.rounds}) == len(findings.rounds)
    finding = next(finding for finding in findings.findings if finding.name == "sandal_in_the_snow")
    assert (
        finding.pairs is not None
        and [look.pairs for look in finding.pairs.looks][-1] == finding.pairs.pairs
    )
    assert {piece.key for piece in finding.evidence} <= {
        key for drawn in new for key in keys_of(folder, drawn.name)
    }
    page = (folder / "report.html").read_text()
    shown = [piece.key for piece in finding.evidence]
    assert shown and not finding.confirmed
    assert page.count(f'title="{new[0].name}/') == page.count(f' alt="{new[0].name}/')
    assert left.read_text() == "extends: wardrobe-bugs\n"


@pytest.mark.parametrize(
    ("texts", "class_name", "message"),
    [
        (
            ["in the snow"],
            "sandle",
            r"--class: the recipe has no class 'sandle'; did you mean 'sandal'",
        ),
        (["a sandal"], "sandal", r"'a sandal' adds nothing to 'a photo of a sandal'"),
        (["of the"], "sandal", r"'of the' adds nothing"),
        (["in the <snow>"], "sandal", r"adds nothing"),
        (
            ["in the snow", "a sandal in the SNOW."],
            "sandal",
            r"'a sandal in the SNOW\.' says the same as 'in the snow'",
        ),
        (["at night"], "sandal", r"sandal_at_night: was tested in .* already"),
    ],
    ids=[
        "class",
        "class alone",
        "prepositions",
        "brackets",
        "twice",
        "before",
    ],
)
def test_words_that_cannot_be_tried_are_refused(
    tried: Path, texts: list[str], class_name: str, message: str
) -> None:
    files = files_of(tried)
    rounds = sorted((tried / "rounds").iterdir())
    with pytest.raises(UserError, match=message):
        tried_in(tried, *texts, class_name=class_name)
    assert files_of(tried) == files and sorted((tried / "rounds").iterdir()) == rounds


def test_folders_without_a_search_are_refused_and_left_alone(
    small_search: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "findings.json").write_bytes(
        (small_search / "findings.json").read_bytes()
    )
    for name in ("nowhere", "empty", "other"):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(UserError, match="holds no search for bugs"):
            tried_in(tmp_path / name, "in the snow")
        with pytest.raises(UserError, match="holds no search for bugs"):
            again_in(tmp_path / name)
        assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_whose_settings_are_nonsense_is_refused_in_words(
    small_search: Path, tmp_path: Path
) -> None:
    for name in ("findings.json", "mine.yaml"):
        shutil.copyfile(small_search / name, tmp_path / name)
    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("pairs: 8", "pairs: many"))
    with pytest.raises(UserError, match=r"mine\.settings\.pairs"):
        tried_in(tmp_path, "in the snow")
    (tmp_path / "mine.yaml").write_text("extends: wardrobe-star\n")
    with pytest.raises(UserError, match=r"does not match mine\.yaml"):
        tried_in(tmp_path, "in the snow")


def test_findings_are_tested_again_by_another_recipe_in_a_folder_of_their_own(
    tried: Path, again: Path
) -> None:
    first = findings_of(again)
    second = findings_of(again / "again" / "two_steps")
    assert files_of(again) == files_of(tried)
    prompts = {finding.name: finding.prompt for finding in first.standing}
    assert first.standing and {finding.name for finding in second.findings} == prompts.keys()
    assert (second.recipe.name, second.tested, second.target.name) == (
        "two-steps",
        len(first.standing),
        TARGET,
    )
    assert {finding.name: finding.prompt for finding in second.findings} == prompts
    recipes = round_recipes(again / "again" / "two_steps")
    seeds = {name: recipe.samples.seed for name, recipe in recipes.items()}
    assert {drawn.name: drawn.seed for drawn in second.rounds} == seeds
    assert {recipe.drawing.steps for recipe in recipes.values()} == {2}
    assert {drawn.purpose for drawn in second.rounds} == {"again", "again_estimate"}
    assert all(
        finding.pairs is not None and finding.pairs.fresh is not None for finding in second.standing
    )
    assert not {drawn.seed for drawn in second.rounds} & {drawn.seed for drawn in first.rounds}
    keys = {
        key for drawn in second.rounds for key in keys_of(again / "again" / "two_steps", drawn.name)
    }
    assert {piece.key for finding in second.findings for piece in finding.evidence} <= keys
    recipe = load_recipe(again / "again" / "two_steps" / "recipe.yaml")
    hard = {name for name, shift in recipe.prompts.shifts.items() if shift.group == "hard"}
    assert hard == {finding.name for finding in second.standing} != set()
    assert recipe.drawing.steps == 2


def test_the_same_again_gives_the_same_bytes_and_another_recipe_of_its_name_is_refused(
    again: Path, tmp_path: Path
) -> None:
    shutil.copytree(again, tmp_path / "mined")
    inside = tmp_path / "mined" / "again" / "two_steps"
    files = files_of(inside)
    rounds = sorted((inside / "rounds").iterdir())
    with described_images(fail=True):
        again_in(tmp_path / "mined")
    assert files_of(inside) == files and sorted((inside / "rounds").iterdir()) == rounds
    with pytest.raises(UserError, match="holds the results of another recipe named 'two-steps'"):
        again_in(tmp_path / "mined", "generator.guidance=5")
    assert files_of(inside) == files


def test_recipes_that_cannot_test_the_findings_are_refused(tried: Path, tmp_path: Path) -> None:
    classes = [
        {"id": "05", "name": "sandals", "source_label": 5},
        {"id": "00", "name": "t-shirt", "source_label": 0},
    ]
    with pytest.raises(
        UserError, match=r"two-steps has no class 'sandal' \(05\), which the finding sandal"
    ):
        again_in(tried, f"source.classes={json.dumps(classes)}")
    shutil.copytree(tried, tmp_path / "mined")
    findings = findings_of(tried)
    none = replace(findings, fdr=1e-9, findings=adjusted_together(findings.findings, 1e-9, 0.0))
    (tmp_path / "mined" / "findings.json").write_text(document_text(none))
    with pytest.raises(UserError, match="it has no confirmed finding to test again"):
        again_in(tmp_path / "mined")
    assert not (tmp_path / "mined" / "again").exists() and not (tried / "again").exists()


# Planted: sneakers come with the road in training; a third of them are elsewhere in every other
# split.
WORLD = "lab:planted/correlation-0"
SNEAKERS = "source.classes=[{{id: '07', name: sneaker, source_label: {}}}]"
ROWS = 240

ELSEWHERE = "in the grass"
AT_HOME = "on the road"


def hypothesis(words: str) -> BugHypothesis:
    return BugHypothesis(
        f"sneaker_{words.replace(' ', '_')}", 0, Description((Piece(words, "after"),))
    )


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Write the first sneakers of the world's validation split as a dataset without another
    split."""
    world = load_recipe(
        "wardrobe-star", [f"source.dataset={WORLD}", SNEAKERS.format(7), "tokens=null"]
    )
    split = labelled_split(world.source, "validation", world.classes)
    folder = tmp_path_factory.mktemp("photographs") / "data"
    folder.mkdir()
    images = [
        {"bytes": image, "path": None} for _, image in split.images(frozenset(split.keys[:ROWS]))
    ]
    assert split.units is not None
    table = datasets.Dataset.from_dict(
        {
            "image": images,
            "label": [0] * ROWS,
            "garment": [str(unit) for unit in split.units[:ROWS]],
        }
    )
    table.cast_column("image", datasets.Image()).to_parquet(str(folder / "validation.parquet"))
    return load_recipe(
        "wardrobe-star", [f"source.dataset={folder}", SNEAKERS.format(0), "tokens=null"]
    )


@pytest.fixture(scope="module")
def tested(recipe: Recipe) -> tuple[Findings, Audited]:
    mine = Mine(method="bugs", target=WORLD, on=("validation",))
    settings = BugsSettings(captioner="lab:captioner")
    hypotheses = [hypothesis(words) for words in (ELSEWHERE, AT_HOME)]
    run = MiningRun(recipe, mine, settings, "wardrobe-star", (), Path())
    findings, audited, relabel = find_on_photographs(hypotheses, run)
    assert relabel is None, "their labels are right"
    return findings, audited


def finding_of(findings: Findings, words: str) -> Finding:
    return next(finding for finding in findings.findings if finding.name == hypothesis(words).name)


def test_what_was_planted_is_confirmed_and_where_the_class_is_at_home_is_not(
    tested: tuple[Findings, Audited],
) -> None:
    findings, _ = tested
    elsewhere = finding_of(findings, ELSEWHERE)
    home = finding_of(findings, AT_HOME)
    assert elsewhere.confirmed and not home.confirmed and findings.tested == 2
    assert elsewhere.difference.value is not None and elsewhere.difference.value > 0.2
    assert home.difference.value is not None and home.difference.value < 0.05
    assert (elsewhere.words, elsewhere.caption) == (
        "sneaker in the grass",
        "a photo of a sneaker in the grass",
    )
    assert {finding.tested_on for finding in findings.findings} == {
        "rows"
    } and findings.whitened_by is None


def test_its_set_is_the_nearest_rows_of_the_half_that_cut_nothing_off(
    recipe: Recipe, tested: tuple[Findings, Audited]
) -> None:
    findings, audited = tested
    finding = finding_of(findings, ELSEWHERE)
    clip = load_clip(recipe.screen.clip, recipe.screen.weights, "cpu")
    cosines = audited.features @ np.asarray(clip.embed_texts([finding.caption]), np.float32)[0]
    confirm = audited.halves.confirm
    nearest = confirm[np.argsort(-cosines[confirm], kind="stable")]
    assert findings.halves is not None and findings.halves.confirm.rows == len(confirm)
    assert finding.set.rows + finding.rest.rows == len(confirm) and finding.set.rows > 0
    assert finding.set.failures == audited.failed[nearest[: finding.set.rows]].sum()
    assert finding.rest.failures == audited.failed[nearest[finding.set.rows :]].sum()
    keys = {half: {audited.keys[row] for row in rows} for half, rows in (
        ("discover", audited.halves.discover), ("confirm", confirm),
    )}  # fmt: skip
    assert finding.evidence and all(piece.key in keys[piece.half] for piece in finding.evidence)


def test_the_folder_of_a_search_gets_it_beside_what_is_there(
    small_search: Path, tried: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mined"
    rounds = small_search / "rounds"
    shutil.copytree(tried, folder, ignore=shutil.ignore_patterns("rounds", "tries"))
    before = files_of(folder)
    first = str(rounds / "01" / "dataset")
    findings = mine_again(folder, RECIPE, on=[first], overrides=DRAWN, device="cpu").findings
    standing = {finding.name for finding in findings_of(tried).standing}
    assert {finding.name for finding in findings.findings} == standing != set()
    assert [audited.rows for audited in findings.on] == [findings_of(tried).rounds[0].accepted]
    inside = folder / "again" / "wardrobe_bugs_dataset"
    assert files_of(folder) == before and findings_of(inside) == findings
    # Existing images need no recipe.
    assert files_of(inside).keys() == {"findings.json", "findings.csv", "report.html"}
    written = files_of(inside)
    assert not any(str(tmp_path).encode() in content for content in written.values())
    with pytest.raises(UserError, match="holds findings on other images than"):
        mine_again(
            folder, RECIPE, on=[str(rounds / "02" / "dataset")], overrides=DRAWN, device="cpu"
        )
    with pytest.raises(UserError, match="is neither a split of the source nor a built dataset"):
        mine_again(folder, RECIPE, on=[str(tmp_path)], overrides=DRAWN, device="cpu")
    assert files_of(inside) == written

"""`mine` on a sneaker world: findings, files, reruns and resuming; by contexts; and layers over
open classes."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mined_examples import OVERRIDES, WORLD, mine_sneakers
from PIL import Image
from safetensors.numpy import load_file
from scipy.stats import rankdata

from counterfoil.building.build_dataset import build
from counterfoil.cli.mine import _print as print_mined
from counterfoil.data.open_source import open_source
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.documents import parse_document
from counterfoil.errors import RunFailure, UserError
from counterfoil.lab.planted import named_world
from counterfoil.mining.audited import class_map_of, collect_answers, opened_parts
from counterfoil.mining.findings import Findings
from counterfoil.mining.findings_layer import (
    derived_seed,
    laid_over,
    mined_from,
    mined_shifts,
    replacement,
)
from counterfoil.mining.mine_recipe import mine
from counterfoil.mining.mined_files import MineResult
from counterfoil.mining.report import LABELS_WORTH
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import Recipe, layer_text, load_recipe
from counterfoil.recipe.schema_mine import method_settings
from driven import given_up
from shared_datasets import Once

FILES = {"findings.json", "findings.csv", "vectors.safetensors", "report.html", "recipe.yaml"}


@pytest.fixture(scope="module")
def mined(once_a_run: Once) -> Path:
    return once_a_run("mined-sneakers", mine_sneakers)


@pytest.fixture(scope="module")
def findings(mined: Path) -> Findings:
    return parse_document(Findings, (mined / "findings.json").read_bytes(), "findings.json")


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> MineResult:
    out = tmp_path_factory.mktemp("sliced")
    return mine_sneakers(out, "mine.settings.permutations=null", method="slices")


@pytest.fixture(scope="module")
def layer(mined: Path) -> Recipe:
    return load_recipe(mined / "recipe.yaml")


def test_the_planted_failure_is_found_and_named(findings: Findings) -> None:
    sneakers = [finding for finding in findings.confirmed if finding.class_names == ("sneaker",)]
    assert any(
        sneaker.role == "far_from" and "on the road" in sneaker.caption for sneaker in sneakers
    )
    for sneaker in sneakers:
        assert sneaker.difference.value is not None
        assert sneaker.difference.value > 0.3
        assert sneaker.q <= findings.fdr
    # Classes that are nearly always right have no direction, and the document says why.
    reasons = {audit.name: audit.reason for audit in findings.classes if audit.direction is None}
    assert all(reasons.values())
    assert "sneaker" not in reasons


def test_rates_of_what_is_far_from_a_caption_are_of_the_rows_that_were_tested(
    findings: Findings,
) -> None:
    by_name = {finding.name: finding for finding in findings.findings}
    far = [finding for finding in findings.findings if finding.outside]
    assert far
    for finding in far:
        (other,) = (by_name[name] for name in finding.outside)
        assert (finding.role, other.role, other.classes) == ("far_from", "hard", finding.classes)
        # The hard set holds some of the class's confirm rows. Rates of the far set leave these out.
        assert (
            finding.set.rows + finding.rest.rows
            == other.rest.rows
            < other.set.rows + other.rest.rows
        )
        assert finding.discover is not None
        assert other.discover is not None
        assert finding.discover.set.rows + finding.discover.rest.rows == other.discover.rest.rows
        assert finding.nearest_curve[-1].k <= other.rest.rows
        shown = {piece.key for piece in finding.evidence}
        assert shown.isdisjoint(piece.key for piece in other.evidence)


def test_the_set_is_mostly_the_planted_slice(findings: Findings) -> None:
    world = named_world(WORLD.removeprefix("lab:planted/"))
    assert world is not None
    sliced = world.slice("validation")
    far = next(
        far
        for far in findings.confirmed
        if far.role == "far_from" and far.class_names == ("sneaker",)
    )
    rows = [int(piece.key.rpartition("_")[2]) for piece in far.evidence]
    assert np.mean(sliced[rows]) > 0.8  # a third of the class is


def test_the_same_inputs_give_the_same_bytes_and_a_killed_run_goes_on(
    mined: Path, tmp_path: Path
) -> None:
    with given_up(lambda stage: True):  # ends at the first stage
        mine_sneakers(tmp_path)
    assert not FILES & {path.name for path in tmp_path.iterdir()}
    mine_sneakers(tmp_path)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (mined / name).read_bytes(), name


def test_another_target_does_not_overwrite_what_was_found(mined: Path) -> None:
    before = (mined / "findings.json").read_bytes()
    with pytest.raises(UserError, match=r"another target"):
        mine_sneakers(mined, target="lab:resnet10t")
    assert (mined / "findings.json").read_bytes() == before


def test_the_layer_has_few_groups_and_counted_cells(layer: Recipe, findings: Findings) -> None:
    plan = make_plan(layer)
    shifts = layer.prompts.shifts
    assert set(plan.groups) <= {"base", "hard", "easy", "reference"}
    assert {spec.kind for spec in shifts.values()} == {"mined"}
    classes = {class_id for finding in findings.confirmed for class_id in finding.classes}
    assert set(layer.prompts.base.classes or ()) == classes
    assert plan.n_cells == len(classes) + sum(len(spec.classes or ()) for spec in shifts.values())
    # Two shifts of one class that ask for the same picture would draw it twice: they begin with the
    # same noise.
    prompts = [(spec.prompt, spec.classes) for spec in shifts.values() if spec.group == "hard"]
    assert len(set(prompts)) == len(prompts)


def test_the_layer_tells_where_it_comes_from_and_carries_what_was_set(
    layer: Recipe, findings: Findings
) -> None:
    assert layer.source.dataset == WORLD
    assert layer.tokens is None
    assert layer.samples.seed != load_recipe("wardrobe-star").samples.seed
    hard = {
        name: spec
        for name, spec in layer.prompts.shifts.items()
        if spec.group == "hard" and spec.prompt
    }
    assert set(hard) == {
        finding.name for finding in findings.confirmed if finding.prompt is not None
    }
    for name, spec in hard.items():
        finding = next(finding for finding in findings.confirmed if finding.name == name)
        origin = spec.mined_from or {}
        assert (origin["q"], origin["set"]["failures"]) == (finding.q, finding.set.failures)
        assert origin["settings"] == {**findings.method.settings, "captions": "wardrobe"}
        assert origin.get("drawn_by") == (finding.prompt if finding.role == "far_from" else None)
        assert origin["target"] == {"name": WORLD, "sha256": findings.target.sha256}
        assert spec.classes == finding.classes
        assert "{class}" in (spec.prompt or "")


def test_vectors_hold_the_directions_and_the_captions(mined: Path, findings: Findings) -> None:
    vectors = load_file(mined / "vectors.safetensors")
    assert vectors["centre"].shape == vectors["spread"].shape == vectors["07_weights"].shape
    for finding in findings.findings:
        assert np.linalg.norm(vectors[f"caption_{finding.name}"]) == pytest.approx(1, abs=1e-5)


def test_a_direction_is_drawn_without_a_word_where_the_generator_takes_vectors(
    mined: Path, layer: Recipe
) -> None:
    vectors = load_file(mined / "vectors.safetensors")
    decoded = [spec for name, spec in layer.prompts.shifts.items() if name.endswith("_decoded")]
    assert decoded
    for spec in decoded:
        assert (
            spec.embedding is not None
            and Path(spec.embedding.file) == (mined / "vectors.safetensors").resolve()
        )
        assert spec.classes is not None
        assert len(spec.classes) == 1
        class_id = spec.classes[0]
        hard, easy = (vectors[f"{class_id}_{side}"] for side in ("hard", "easy"))
        normal = vectors[f"{class_id}_weights"] / vectors["spread"]
        assert hard @ normal < easy @ normal


def test_a_class_without_a_decoded_vector_has_no_decoded_shift(findings: Findings) -> None:
    """Without a weight, a direction has no decoded vector under the key that the shift would
    name."""
    recipe = load_recipe("wardrobe-star", OVERRIDES)
    every, none = (mined_shifts(findings, recipe, decoded) for decoded in ({"05", "07"}, ()))
    assert {name for name in every if name not in none} == {
        name for name in every if name.endswith("_decoded")
    }
    assert every != none


def test_the_document_tells_how_halves_were_dealt_and_what_whitened(findings: Findings) -> None:
    assert findings.halves is not None
    assert findings.halves.by == "unit"
    assert findings.whitened_by == f"100 rows of {WORLD}/train"


def test_easiest_images_are_of_the_classes_and_seldom_wrong(findings: Findings) -> None:
    for finding in findings.confirmed:
        assert {piece.label for piece in finding.easiest} <= set(finding.class_names)
        assert [piece.score for piece in finding.easiest] == sorted(
            (piece.score for piece in finding.easiest), reverse=True
        )
        assert finding.discover is not None
        assert finding.discover.set.rate is not None
        assert np.mean([piece.failed for piece in finding.easiest]) < finding.discover.set.rate


def test_the_curve_and_the_caption_check_are_about_the_confirm_half(
    mined: Path, findings: Findings
) -> None:
    document = json.loads((mined / "findings.json").read_text())
    assert findings.halves is not None
    for finding, stored in zip(findings.findings, document["findings"], strict=True):
        assert finding.set.rows + finding.rest.rows <= findings.halves.confirm.rows
        assert [point["k"] for point in stored["nearest_curve"]] == sorted(
            {point["k"] for point in stored["nearest_curve"]}
        )
        assert finding.others
        assert {other.model for other in finding.others} == {"lab:resnet10t"}


def test_mining_what_was_mined_leaves_nothing_of_the_shifts_below(layer: Recipe) -> None:
    name, spec = next(
        (name, spec) for name, spec in layer.prompts.shifts.items() if spec.caption is not None
    )
    assert spec.mined_from is not None
    shift = {"prompt": "a photo of a {class}", "classes": ["05"], "mined_from": {"new": 1}}
    replaced = layer.prompts.shifts[name].model_dump(mode="json", exclude_none=True)
    laid = replacement(replaced, shift)
    assert laid["caption"] is None
    assert laid["group"] is None
    assert {key for key, value in laid["mined_from"].items() if value is not None} == {"new"}


def test_a_folders_path_stays_on_this_machine(findings: Findings) -> None:
    at_home = replace(
        findings, target=replace(findings.target, name="local-dir:/home/someone/model")
    )
    finding = at_home.confirmed[0]
    assert mined_from(at_home, finding)["target"]["name"] == "local-dir:./model"
    elsewhere = replace(findings, target=replace(findings.target, name="local-dir:/opt/model"))
    assert derived_seed(0, "layer", at_home) == derived_seed(0, "layer", elsewhere)


def test_without_a_clip_groups_are_tested_that_need_no_words(
    findings: Findings,
    sliced: MineResult,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    outcome = mine_sneakers(tmp_path, "screen.model=ViT-B-32", "screen.weights=openai")
    result = outcome.findings
    answered = findings.answered
    assert result.method.name == "slices"
    assert result.answered is not None
    assert answered is not None
    # Sneakers come with the road in training: elsewhere they fail, and on it sandals do.
    assert {("sneaker",), ("sandal",)} <= {finding.class_names for finding in result.confirmed}
    assert {(finding.prompt, finding.caption_check) for finding in result.findings} == {
        (None, None)
    }
    assert any("look-alikes" in finding.words for finding in result.findings)
    assert replace(result.answered, without_words=None) == answered  # CLIP has no part in it
    assert result.halves == findings.halves
    assert set(outcome.files) == {"findings", "table", "report", "rows"}
    with outcome.files["rows"].open() as file:
        listed = [line["findings"].split() for line in csv.DictReader(file)]
    assert len(listed) == answered.failures
    assert {name for names in listed for name in names} <= {
        finding.name for finding in result.confirmed
    }
    page = outcome.files["report"].read_text()
    assert "groups confirmed</h1>" in page
    assert "Without words" in page
    assert "<h2>Classes, pairs of classes, labels" in page
    print_mined(outcome)
    shown = capsys.readouterr().out
    assert (
        "sneaker, the whole class" in shown
        and "Without words, because no CLIP is available" in shown
    )
    assert replace(sliced.findings, doubts=result.doubts, recipe=result.recipe) == result
    with pytest.raises(UserError, match="renders images of words"):
        mine_sneakers(
            tmp_path / "drawn",
            "mine.settings.permutations=null",
            method="slices",
            confirm="rendered",
        )
    with pytest.raises(UserError, match="gives rows no score"):
        mine_sneakers(
            tmp_path / "weights", "mine.settings.permutations=null", method="slices", weights=True
        )
    # Options that need CLIP are still refused.
    with pytest.raises(RunFailure, match="ViT-B-32"):
        mine_sneakers(tmp_path, "screen.model=ViT-B-32", "screen.weights=openai", weights=True)
    with pytest.raises(UserError, match="lab has no 'clipp'"):
        mine_sneakers(tmp_path / "typo", "screen.model=lab:clipp")


def test_all_classifiers_rank_the_labels_to_check(
    sliced: MineResult, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load_recipe("wardrobe-star", OVERRIDES)
    parts = opened_parts(recipe, ["validation"], open_source(recipe.source))
    models = (WORLD, "lab:resnet10t")
    answers = collect_answers(
        parts, {name: class_map_of(recipe, name) for name in models}, recipe, "cpu"
    )
    ranks = {name: rankdata(answer.predictions.true_confidence) for name, answer in answers.items()}
    row_of = {key: number for number, key in enumerate(parts[0].keys)}
    with sliced.files["rows"].open() as file:
        lines = [line for line in csv.DictReader(file) if line["label_rank"]]
    order = [
        row_of[line["key"]] for line in sorted(lines, key=lambda line: int(line["label_rank"]))
    ]
    assert len(order) > 30
    assert (np.diff(np.sum([*ranks.values()], axis=0)[order]) >= 0).all()
    assert all((np.diff(rank[order]) < 0).any() for rank in ranks.values())  # none of them alone
    listed = [row_of[line["key"]] for line in lines if line["look_at_label"] == "true"]
    assert sorted(listed) == sorted(order[:12])  # of 1,200
    assert sliced.findings.answered is not None
    assert sliced.findings.answered.labels_in_all == 12
    assert LABELS_WORTH in sliced.files["report"].read_text()
    print_mined(sliced)
    assert "12 labels to check" in " ".join(capsys.readouterr().out.split())


def test_labels_of_a_corrupted_dataset_are_checked_on_its_base_alone(tmp_path: Path) -> None:
    """List no corrupted copy, although classifiers fail on these most."""
    keep = {
        name: None
        for name in load_recipe("wardrobe-corrupt").prompts.shifts
        if name != "low_resolution"
    }
    changes = ["samples.candidates=8", f"prompts.shifts={json.dumps(keep)}"]
    dataset = tmp_path / "corrupted"
    build("wardrobe-corrupt", dataset, overrides=changes, device="cpu", workers=1)
    result = mine(
        str(dataset), tmp_path / "mined", target="lab:resnet10t", on=[str(dataset)], device="cpu", workers=1,
        method="slices", overrides=["mine.others=[]", "mine.settings.permutations=null"],
    )  # fmt: skip
    with result.files["rows"].open() as file:
        lines = list(csv.DictReader(file))
    ranked = {line["key"].partition("_")[0] for line in lines if line["label_rank"]}
    assert ranked == {"base"} and {line["key"].partition("_")[0] for line in lines} == {
        "base",
        "low",
    }
    (note,) = [note for note in result.findings.notes if "base images" in note]
    assert result.findings.answered is not None
    assert note.startswith(
        "labels to check are" if result.findings.answered.labels_in_all else "no label to check"
    )


def test_over_rows_that_nothing_draws_there_are_findings_and_rows_and_no_recipe(
    tmp_path: Path,
) -> None:
    words = (
        "screen.model=lab:clip",
        "screen.object_threshold=-1",
        "mine.settings.captions=wardrobe",
    )
    changes = [change for change in OVERRIDES if not change.startswith(("tokens", "generator"))]
    given = {"target": WORLD, "on": ["validation"], "limit": 400, "device": "cpu", "workers": 1}
    result = mine("wardrobe-corrupt", tmp_path, overrides=[*changes, *words], **given)
    confirmed = {finding.name for finding in result.findings.confirmed}
    assert confirmed and "recipe" not in result.files
    (note,) = result.findings.notes
    assert note.startswith(
        "the findings have no recipe, because generator.kind 'corrupt' uses rows of real images"
    )
    page = result.files["report"].read_text()
    assert "The findings have no recipe" in page
    assert "counterfoil build ./recipe.yaml" not in page
    with result.files["rows"].open() as file:
        listed = [line["findings"].split() for line in csv.DictReader(file)]
    assert {name for names in listed for name in names} == confirmed
    assert [] in listed


def test_a_function_and_a_recipe_value_are_mined_too(
    layer: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = (
        "import numpy as np\n\ndef answers(batch):\n    return np.tile(np.eye(10)[5],"
        " (len(batch), 1))\n"
    )
    Path("sandals.py").write_text(code)
    recipe = load_recipe("wardrobe-star", OVERRIDES)
    shapes: set[tuple[int, ...]] = set()

    def always_sandal(batch: np.ndarray) -> np.ndarray:
        shapes.add(batch.shape[1:])
        return np.tile(np.eye(10)[5], (len(batch), 1))

    def small(image: Image.Image) -> np.ndarray:
        return np.asarray(image.resize((4, 4)), dtype=np.float32)

    given = {"on": ["validation"], "device": "cpu", "workers": 1}
    outcome = mine(
        recipe,
        tmp_path / "function",
        target={"mine": always_sandal},
        transform=small,
        limit=100,
        **given,
    )
    result = outcome.findings
    assert (result.target.name, result.target.sha256) == ("python:mine", None) and shapes == {
        (4, 4, 3)
    }
    assert result.answered is not None and [cls.rate for cls in result.answered.classes] == [
        1.0,
        0.0,
    ]
    assert [(pair.name, pair.other_name, pair.share) for pair in result.answered.taken_for] == [
        ("sneaker", "sandal", 1.0)
    ]
    assert (
        repr(outcome).endswith("0 of 0 hypotheses confirmed>>")
        and "sneaker" in outcome._repr_html_()
    )
    # A function has no features. Groups without words need none, and a note says so.
    named = mine(
        recipe,
        tmp_path / "named",
        target="python:sandals:answers",
        method="slices",
        limit=100,
        **given,
    ).findings
    assert named.target.name == "python:sandals:answers" and [
        finding.words for finding in named.confirmed
    ] == ["sneaker, the whole class"]
    assert any("not grouped by the classifier's own features" in note for note in named.notes)
    # A recipe value gives the same as its name and overrides.
    outcome = mine(recipe, tmp_path / "value", target=WORLD, **given)
    assert load_recipe(outcome.files["recipe"]).recipe_hash == layer.recipe_hash
    with pytest.raises(UserError, match=r"expected python:package\.module:function"):
        mine(recipe, tmp_path / "gone", target="python:mine", **given)
    with pytest.raises(UserError, match="runs only in this one"):
        mine(
            recipe, tmp_path / "drawn", target={"mine": always_sandal}, confirm="rendered", **given
        )
    with pytest.raises(UserError, match="overrides go with"):
        mine(recipe, tmp_path / "overrides", target=WORLD, overrides=["name=x"], **given)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ([], {"target": None}, "no classifier to audit"),
        ([], {"method": "direction"}, "did you mean 'directions'"),
        (["mine.settings.fewest_error=3"], {}, "mine.settings.fewest_error"),
        (["mine.settings.captions=my captions.txt"], {}, "neither a bundled name nor a path"),
    ],
)
def test_what_cannot_be_mined_is_refused_in_words(
    changes: list[str], options: dict[str, object], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        mine_sneakers(tmp_path / "out", *changes, **options)
    assert words in " ".join([*refused.value.problems, refused.value.hint or ""])
    assert not (tmp_path / "out" / "findings.json").exists()


CONTEXT_FILES = {
    "findings.json",
    "findings.csv",
    "vectors.safetensors",
    "report.html",
    "recipe.yaml",
    "index.html",
}
CHANGES = (
    "mine.settings.contexts=wardrobe",
    "mine.settings.at_most_images=4",
    "mine.others=[]",
    "mine.train_rows=10",
)


def mine_contexts(folder: Path) -> None:
    overrides = [override for override in OVERRIDES if "permutations" not in override]
    given = {"method": "contexts", "target": WORLD, "on": ["validation"], "device": "cpu"}
    # The recipe's own settings are of another method and left out; the overrides are not.
    mine("wardrobe-star", folder, overrides=[*overrides, *CHANGES], **given)


@pytest.fixture(scope="module")
def contexts_mined(once_a_run: Once) -> Path:
    return once_a_run("mined-contexts", mine_contexts)


def test_the_contexts_that_are_chosen_are_where_the_classifier_fails(contexts_mined: Path) -> None:
    findings = parse_document(
        Findings, (contexts_mined / "findings.json").read_bytes(), "findings.json"
    )
    (sneaker,) = [audit for audit in findings.classes if audit.name == "sneaker"]
    chosen = [context for context in sneaker.contexts if context.rank is not None]
    assert chosen
    assert all(context.words != "on the road" for context in chosen)
    (road,) = [context for context in sneaker.contexts if context.words == "on the road"]
    assert road.lift is not None
    assert road.lift < 0.5
    tested = {finding.caption: finding for finding in findings.findings}
    assert all(context.caption in tested for context in chosen)
    # Every row of the class is in one context: sets and rests add up to the class's confirm rows.
    sizes = {
        tested[context.caption].set.rows + tested[context.caption].rest.rows for context in chosen
    }
    assert len(sizes) == 1


def test_it_leaves_the_files_of_every_method_and_a_recipe_that_loads(contexts_mined: Path) -> None:
    assert {
        path.name for path in contexts_mined.iterdir() if not path.name.startswith(".")
    } == CONTEXT_FILES
    recipe = load_recipe(contexts_mined / "recipe.yaml")
    assert (
        recipe.mine is not None
        and method_settings(recipe.mine).model_dump()["contexts"] == "wardrobe"
    )
    groups = {shift.group for shift in recipe.prompts.shifts.values()}
    assert groups == {"contexts", "class_name", "random_contexts"}
    page = (contexts_mined / "report.html").read_text()
    assert "Contexts by class" in page
    assert "what counts is the ratio" not in page
    # This recipe chooses by number. Recipes that choose by ratio use a smoothed one, not the one on
    # the page.
    assert "chooses the contexts with the most failures, whatever their ratio" in page
    assert "after adding one failure and one right answer" in page


def open_recipe(folder: Path, classes: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(f"extends: wardrobe-mini\nname: mine\nsource: {{classes: {classes}}}\n")
    return path


@pytest.mark.parametrize("classes", ["null", "[bag, sandal]"])
def test_a_layer_is_of_the_classes_that_were_found(classes: str, tmp_path: Path) -> None:
    source = open_recipe(tmp_path, classes)
    below, changes, extends = laid_over(source, ["samples.seed=5"], tmp_path)
    layer = tmp_path / "layer.yaml"
    layer.write_text(layer_text(changes | {"name": "other"}, below, extends))
    loaded = load_recipe(layer)
    assert loaded.names_every_label
    assert loaded.classes == resolve_classes(load_recipe(source)).classes
    assert loaded.samples.seed == 5
    assert (below.recipe_hash in layer.read_text()) and below == resolve_classes(
        load_recipe(source)
    )
    open_recipe(tmp_path, "[bag, coat]")
    with pytest.raises(UserError, match="extends_sha256"):
        load_recipe(layer)


def test_a_recipe_that_tells_its_labels_is_carried_as_it_was() -> None:
    below, changes, extends = laid_over("wardrobe-mini", ["samples.seed=5"], Path.cwd())
    assert (changes, extends) == ({"samples": {"seed": 5}}, "wardrobe-mini")
    assert below == load_recipe("wardrobe-mini")


def test_classes_that_are_changed_over_open_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--set changes the classes"):
        laid_over(open_recipe(tmp_path, "[bag, sandal]"), ["source.classes=[coat]"], tmp_path)

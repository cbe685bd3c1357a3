"""Test descriptions that a person writes, and test the findings of a search again.

Findings are tested again with another recipe, or on existing images. On existing images, a
description's set is the images nearest to it, and the cut-off is chosen on the discover half, as
for any method (Wiles 2022, section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from counterfoil.data.open_source import open_source
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.documents import read_document
from counterfoil.errors import UserError
from counterfoil.mining.audited import Audited, audit_target, class_map_of, clip_doubts
from counterfoil.mining.captions import caption_table
from counterfoil.mining.collected import HypothesisTests, collect_findings, output_names
from counterfoil.mining.findings import Findings, Purpose
from counterfoil.mining.findings_layer import unique_slugs
from counterfoil.mining.hypotheses import (
    CandidateCaptions,
    ClassNote,
    Found,
    Hypothesis,
    MiningRun,
    choose_cutoffs,
)
from counterfoil.mining.label_check import check_labels
from counterfoil.mining.methods.bugs.descriptions import CLASS, Description, pieces_of
from counterfoil.mining.methods.bugs.document import (
    adjusted_together,
    estimate_rates,
    finding_of,
    round_drawn,
    target_of,
    with_more,
)
from counterfoil.mining.methods.bugs.drawing import RoundDrawer
from counterfoil.mining.methods.bugs.mine_bugs import (
    ASKED,
    images_of_rounds,
    refuse_undrawn,
    wordless_problems,
    write_search,
)
from counterfoil.mining.methods.bugs.search import name_of
from counterfoil.mining.methods.bugs.trials import (
    Budget,
    BugHypothesis,
    Draw,
    Trials,
    base_prompt,
    carry_to_test,
    filled_base,
    refuse_small_budget,
)
from counterfoil.mining.mined_files import FINDINGS, MineResult, written_recipe
from counterfoil.mining.options import AgainOptions, TryOptions
from counterfoil.mining.steps import embed_captions
from counterfoil.models.devices import resolve_device
from counterfoil.options import takes
from counterfoil.prediction.failures import refuse_unanswered
from counterfoil.recipe import Recipe, RecipeClass, load_recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import BugsSettings, validate_settings
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder
from counterfoil.store.directory_lock import directory_lock


def find_on_photographs(
    hypotheses: Sequence[BugHypothesis],
    run: MiningRun,
) -> tuple[Findings, Audited, str | None]:
    """Test the hypotheses on the images of `mine.on`. Return the findings, the audit, and the table
    of rows to relabel, if there is one.
    """
    recipe = run.recipe
    # Features of train rows are needed only to whiten others for a direction, and no direction is
    # fitted here.
    few_train_rows = run.mine.model_copy(update={"train_rows": 2})
    source = open_source(recipe.source)
    (audited, *_), clip = audit_target(recipe, few_train_rows, source, run.device)
    audited = replace(audited, whitened_by="")
    texts = []
    for cls in recipe.classes:
        of_class = [_caption(bug, run) for bug in hypotheses if bug.label == cls.label]
        reference = cls.text(base_prompt(run))
        texts.append((reference, of_class))
    captions = embed_captions(caption_table(texts), clip.model)
    on_rows = tuple(_on_rows(bug, audited, captions, run) for bug in hypotheses)
    note = ClassNote(reason="not searched: the findings come from drawn images")
    outcome = Found(on_rows, (note,) * len(recipe.classes))
    tests = HypothesisTests.of(run, [audited], captions, outcome)
    doubts = clip_doubts(recipe, clip.model, [audited], "words")
    checks, relabel = check_labels(tests, clip.model, doubts)
    findings = collect_findings(tests, [{}], checks)
    return findings.doubted(doubts), audited, relabel


def _on_rows(
    bug: BugHypothesis,
    audited: Audited,
    captions: CandidateCaptions,
    run: MiningRun,
) -> Hypothesis:
    """Return a description's set among the rows of its class. The cut-off is chosen on the discover
    half."""
    discover = audited.halves.discover
    rows = discover[audited.labels[discover] == bug.label]
    of_class = audited.labelled.chosen(rows)
    caption = _caption(bug, run)
    vector = captions.vectors[captions.texts.index(caption)]
    cosines = np.asarray(of_class.features, dtype=np.float32) @ vector
    cutoffs: tuple[float, ...] = (float("inf"),)
    order = np.zeros(0, dtype=np.int64)
    if len(rows):
        margin = run.mine.margin
        cutoffs, members, _ = choose_cutoffs(of_class, cosines, (bug.label,), "hard", margin)
        inside = np.flatnonzero(members)
        best_first = np.argsort(-cosines[inside], kind="stable")
        order = inside[best_first]
    return Hypothesis(
        name=bug.name,
        labels=(bug.label,),
        role="hard",
        words=bug.description.words(run.recipe.classes[bug.label].name),
        caption=caption,
        vector=vector,
        cutoffs=cutoffs,
        # A hypothesis counts its evidence in rows of the discover half.
        evidence=np.searchsorted(discover, rows[order]),
        scores=cosines[order].astype(np.float64),
    )


def _caption(bug: BugHypothesis, run: MiningRun) -> str:
    cls = run.recipe.classes[bug.label]
    base = filled_base(run, cls)
    return bug.description.prompt(base, cls.name)


AGAIN = "again"


@takes(TryOptions)
def try_descriptions(options: TryOptions) -> MineResult:
    """Test descriptions that you write, in a folder that `mine` with the method `bugs` left. Update
    its files.

    Each description is rendered in pairs with base images that start from the same noise; no other
    round uses that noise. It counts among all hypotheses of the folder.

    Returns:
        A MineResult.

    Raises:
        UserError: The folder has no such findings, the class is unknown, or a text adds nothing to
            the class.
        RunFailure: The run cannot continue.
    """
    with opened_search(options.folder, options.device, options.workers) as (run, before):
        recipe = run.recipe
        folder = run.folder
        wanted = options.class_name
        named = [cls for cls in recipe.classes if wanted in (cls.id, cls.name)]
        if not named:
            names = [cls.name for cls in recipe.classes]
            raise UserError(
                f"--class: the recipe has no class '{wanted}'{did_you_mean(wanted, names)}",
                f"Known classes: {', '.join(names[:20])}.",
            )
        cls = named[0]
        known = {}
        names = []
        for finding in before.findings:
            known[finding.classes, finding.prompt] = finding.name
            names.append(finding.name)
        again = []
        hypotheses: list[BugHypothesis] = []
        for description in _described(options.texts, cls, run):
            prompt = description.prompt(base_prompt(run))
            key = ((cls.id,), prompt)
            if key in known:
                again.append(known[key])
            name = name_of(cls.name, description, names)
            names.append(name)
            hypotheses.append(BugHypothesis(name, cls.label, description, "tried"))
        if again:
            raise UserError(
                f"{', '.join(again)}: was tested in {folder} already",
                "Repeating a test until it succeeds proves nothing. Mine with more"
                " mine.settings.pairs in another folder.",
            )
        family = before.tested + len(hypotheses)
        drawer = RoundDrawer(run, past_others=True)
        first = 1 + sum(drawn_round.purpose == "try" for drawn_round in before.rounds)
        trials, rounds = _tested(hypotheses, drawer, run, first, family, "try")
        answers = output_names(recipe, class_map_of(recipe, run.target))
        tried = [finding_of(trial, run, answers) for trial in trials]
        drawn = list(map(round_drawn, rounds))
        findings = with_more(before, tried, drawn)
        findings = estimate_rates(findings, drawer, 1, run, answers, "try_estimate")
        images = images_of_rounds(folder, before.rounds) | drawer.images
        asked_text = (folder / ASKED).read_text(encoding="utf-8")
        return write_search(findings, images.items(), run, asked_text)


@takes(AgainOptions)
def mine_again(options: AgainOptions) -> MineResult:
    """Test the confirmed findings of a search again with another recipe: another generator, other
    tokens or another screen.

    The results go to the folder `again/NAME` inside the search's folder, as findings of that
    recipe.

    Returns:
        A MineResult.

    Raises:
        UserError: The folder has no findings confirmed by pairs, or the recipe lacks their classes.
    """
    with opened_search(options.folder, options.device, options.workers) as (searched, before):
        other = resolve_classes(load_recipe(options.recipe, options.overrides))
        mine = searched.mine
        run = replace(searched, recipe=other)
        on = options.on
        if on is None:
            refuse_undrawn(run)
        hypotheses = _same_hypotheses(searched, before, other)
        # Use only the last part of a folder's path. The other parts are long and differ between
        # machines.
        words = [other.name]
        for source in on or ():
            words.append(Path(source).name or source)
        (slug,) = unique_slugs([" ".join(words)])
        inside = searched.folder / AGAIN / slug
        recipe = options.recipe
        if isinstance(recipe, Recipe):
            recipe = written_recipe(recipe, options.overrides, inside)
        _refuse_another(inside, other)
        run = replace(run, source=recipe, overrides=options.overrides, folder=inside)
        if on is not None:
            problems = wordless_problems(run)
            if problems:
                raise UserError(problems)
            changes = {"on": tuple(on), "confirm": "rows"}
            run = replace(run, mine=mine.model_copy(update=changes))
            row_findings, audited, relabel = find_on_photographs(hypotheses, run)
            _refuse_another(inside, other, row_findings)
            make_folder(inside)
            images = [("", part) for part in audited.parts]
            return write_search(row_findings, images, run, relabel=relabel)
        class_map = class_map_of(other, run.target)
        refuse_unanswered(mine.failure, other.classes, class_map)
        make_folder(inside)
        drawer = RoundDrawer(run, past_others=True)
        family = len(hypotheses)
        trials, rounds = _tested(hypotheses, drawer, run, 1, family, "again")
        answers = output_names(other, class_map)
        again = [finding_of(trial, run, answers) for trial in trials]
        findings = replace(
            before,
            recipe=replace(before.recipe, name=other.name, sha256=other.recipe_hash),
            target=target_of(run, class_map),
            findings=adjusted_together(again, mine.fdr, mine.margin),
            tested=len(again),
            smallest_difference=None,
            classes=(),
            not_tested=(),
            rounds=tuple(map(round_drawn, rounds)),
        )
        findings = estimate_rates(findings, drawer, 1, run, answers, "again_estimate")
        return write_search(findings, drawer.images.items(), run)


def _refuse_another(
    inside: Path,
    other: Recipe,
    findings: Findings | None = None,
) -> None:
    """Raise UserError if the folder holds a test of another recipe with the same name, or of other
    images."""
    path = inside / FINDINGS
    if not path.exists():
        return
    before = read_document(path, Findings)
    if before.recipe.sha256 != other.recipe_hash:
        raise UserError(
            f"{inside} holds the results of another recipe named '{other.name}'",
            "Give this one a name of its own (--set name=…), or remove that folder.",
        )
    if findings is not None and before.on != findings.on:
        images = ", ".join(part.name for part in findings.on)
        raise UserError(
            f"{inside} holds findings on other images than {images}",
            "Give the recipe another name (--set name=…), or remove that folder.",
        )


@contextmanager
def opened_search(
    folder: str | Path,
    device: str,
    workers: int | None,
) -> Iterator[tuple[MiningRun, Findings]]:
    """Hold the folder of a search. Yield its run and its findings. Raise UserError if no search
    wrote the folder."""
    path = named_path(folder)
    devices = (resolve_device(device),)
    files = (path / FINDINGS, path / ASKED)
    if not all(file.is_file() for file in files):
        raise UserError(
            f"{path} holds no search for bugs ({FINDINGS} and {ASKED})",
            f"Begin one: counterfoil mine RECIPE --method bugs --target MODEL --out {path}",
        )
    with directory_lock(path):
        findings = read_document(path / FINDINGS, Findings)
        recipe = load_recipe(path / ASKED)
        mine = recipe.mine
        recipe_says = None if mine is None else (mine.method, mine.target, mine.failure)
        document_says = (findings.method.name, findings.target.name, findings.failure)
        of_pairs = all(finding.pairs is not None for finding in findings.findings)
        if mine is None or recipe_says != document_says or not of_pairs:
            raise UserError(
                f"{path}: {FINDINGS} does not match {ASKED}", "Mine again in another folder."
            )
        settings = validate_settings(BugsSettings, mine.settings, "mine.settings")
        run = MiningRun(
            recipe,
            mine,
            settings,
            source=path / ASKED,
            overrides=(),
            folder=path,
            devices=devices,
            workers=workers,
        )
        yield run, findings


def _described(texts: Sequence[str], cls: RecipeClass, run: MiningRun) -> list[Description]:
    base = filled_base(run, cls)
    before, _, after = base.partition(CLASS)
    text_by_description: dict[Description, str] = {}
    wrong = []
    for text in texts:
        # The text is a caption that names the class, or it is the words to add after the class.
        pieces = pieces_of(text, base, cls.name)
        if pieces is None:
            pieces = pieces_of(f"{before}{cls.name} {text}{after}", base, cls.name)
        description = Description(pieces or ())
        if not pieces:
            wrong.append(f"--try: '{text}' adds nothing to '{base.replace(CLASS, cls.name)}'")
        elif description in text_by_description:
            wrong.append(f"--try: '{text}' says the same as '{text_by_description[description]}'")
        else:
            text_by_description[description] = text
    if wrong:
        example = f"--try 'a {cls.name} in the snow'"
        raise UserError(wrong, f"Describe what an image shows, as in: {example}")
    return list(text_by_description)


def _same_hypotheses(
    searched: MiningRun,
    before: Findings,
    other: Recipe,
) -> list[BugHypothesis]:
    """Return the confirmed findings of a search as hypotheses of another recipe."""
    by_id = {cls.id: cls for cls in other.classes}
    searched_classes = {cls.id: cls for cls in searched.recipe.classes}
    hypotheses = []
    wrong = []
    for finding in before.standing:
        class_id = finding.classes[0]
        class_name = finding.class_names[0]
        cls = by_id.get(class_id)
        if cls is None or cls.name != class_name:
            wrong.append(
                f"{other.name} has no class '{class_name}' ({class_id}), which the finding"
                f" {finding.name} needs"
            )
            continue
        base = filled_base(searched, searched_classes[class_id])
        pieces = pieces_of(finding.caption, base, class_name)
        description = Description(pieces or ())
        origin = finding.origin or "found"
        hypothesis = BugHypothesis(finding.name, cls.label, description, origin)
        hypotheses.append(hypothesis)
    if wrong:
        raise UserError(wrong, "Name a recipe of the same classes.")
    if not hypotheses:
        raise UserError(f"{searched.folder}: it has no confirmed finding to test again")
    return hypotheses


def _tested(
    hypotheses: Sequence[BugHypothesis],
    draw: Draw,
    run: MiningRun,
    first: int,
    family: int,
    purpose: Purpose,
) -> Trials:
    refuse_small_budget(family, run)
    budget = Budget(run.settings.images, first)
    return carry_to_test(hypotheses, draw, budget, run, family=family, purpose=purpose)

"""Hypotheses by hand, in the folder of a search: a person's words, drawn in pairs on new noise, tested with the rest.

And the same findings once more: with another recipe, whose generator draws them anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from counterfoil.documents import read_document
from counterfoil.errors import UserError
from counterfoil.mining.audited import class_map_of
from counterfoil.mining.bugs.descriptions import CLASS, Description, pieces_of
from counterfoil.mining.bugs.document import answer_names, finding_of, round_drawn, target_of
from counterfoil.mining.bugs.estimating import estimate_rates
from counterfoil.mining.bugs.family import judged_together, with_more
from counterfoil.mining.bugs.files import (
    ASKED,
    KeptImages,
    images_by_key,
    images_of_rounds,
    refuse_undrawn,
    refuse_wordless,
    written,
)
from counterfoil.mining.bugs.photographs import find_on_photographs
from counterfoil.mining.bugs.rounds import RoundDrawer, base_prompt, spoken_base
from counterfoil.mining.bugs.search import name_of
from counterfoil.mining.bugs.trials import Budget, BugHypothesis, Trials, carry_to_test, refuse_small_budget
from counterfoil.mining.findings import Findings, Purpose
from counterfoil.mining.mined_files import FINDINGS, MineResult, written_recipe
from counterfoil.mining.shift_names import slugs
from counterfoil.models.devices import resolve_device
from counterfoil.prediction.failures import refuse_unanswered
from counterfoil.recipe import Recipe, RecipeClass, load_recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import BugsSettings, Mine, validated
from counterfoil.regular_files import named_path
from counterfoil.sources.resolved_classes import resolve_classes
from counterfoil.store.atomic import make_folder
from counterfoil.store.directory_lock import directory_lock

AGAIN = "again"


@dataclass(frozen=True)
class Searched:
    """A folder in which a search for bugs has been: what was asked, and what was found."""

    folder: Path
    recipe: Recipe
    mine: Mine
    settings: BugsSettings
    findings: Findings


def try_descriptions(
    folder: str | Path, texts: Sequence[str], class_name: str, *, device: str = "auto", workers: int | None = None
) -> MineResult:
    """Test descriptions that a person wrote, in a folder that `mine --method bugs` left, and write its files anew.

    texts: captions ("a sandal in the snow") or what they say beside the class ("in the snow"). class_name: a name or an
    id of the recipe's classes. Each is drawn in pairs with base images of the same noise, which no other round has, and
    counts among all hypotheses of the folder. Raises UserError for a folder without such findings, an unknown class, or
    words that say nothing; RunFailure where the run cannot go on.
    """
    place = named_path(folder)
    used_device = resolve_device(device)
    _refuse_unsearched(place)
    with directory_lock(place):
        searched = opened_search(place)
        recipe, settings = searched.recipe, searched.settings
        cls = class_called(recipe, class_name)
        known = {(one.classes, one.prompt): one.name for one in searched.findings.findings}
        descriptions = _described(texts, cls, recipe, settings)
        base = base_prompt(recipe, settings)
        again = [known[(cls.id,), one.prompt(base)] for one in descriptions if ((cls.id,), one.prompt(base)) in known]
        if again:
            raise UserError(
                f"{', '.join(again)}: was tested in {place} already",
                "A test that is begun anew until it says yes is none: mine with more mine.settings.pairs elsewhere.",
            )
        names = [one.name for one in searched.findings.findings]
        hypotheses: list[BugHypothesis] = []
        for description in descriptions:
            name = name_of(cls.name, description, [*names, *(one.name for one in hypotheses)])
            hypotheses.append(BugHypothesis(name, cls.label, description, "tried"))
        family = searched.findings.tested + len(hypotheses)
        asked = place / ASKED
        drawer = RoundDrawer(recipe, searched.mine, settings, asked, (), place, used_device, workers, past_others=True)
        kept = KeptImages(drawer)
        first = 1 + sum(one.purpose == "try" for one in searched.findings.rounds)
        trials = _tested(hypotheses, kept, searched, first, family, "try")
        answers = answer_names(recipe, class_map_of(recipe, searched.mine.target or ""))
        findings = with_more(
            searched.findings,
            [finding_of(one, recipe, settings, answers) for one in trials.tested],
            [round_drawn(one) for one in trials.rounds],
        )
        findings = estimate_rates(findings, kept.draw, 1, recipe, settings, answers, "try_estimate")
        images = images_of_rounds(place, searched.findings.rounds) | kept.images
        return written(findings, partial(images_by_key, images), recipe, settings, asked, (), place)


def mine_again(
    folder: str | Path,
    recipe: Recipe | str | Path,
    *,
    on: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    device: str = "auto",
    workers: int | None = None,
) -> MineResult:
    """Test what a search confirmed once more, drawn by another recipe: another generator, tokens or screen.

    With `on`, on images that exist: splits of that recipe's source, or one built dataset. The results go to a folder of
    their own, `again/NAME` in the search's, as findings of that recipe. Raises UserError for a folder without confirmed
    findings by pairs, and for a recipe that has not their classes.
    """
    place = named_path(folder)
    used_device = resolve_device(device)
    _refuse_unsearched(place)
    with directory_lock(place):
        searched = opened_search(place)
        other = resolve_classes(load_recipe(recipe, overrides))
        mine, settings = searched.mine, searched.settings
        if on is None:
            refuse_undrawn(other, mine, settings)
        hypotheses = _same_hypotheses(searched, other)
        # Of a folder its own name: what lies above it is this machine's, and long.
        where = [] if on is None else [Path(one).name or one for one in on]
        inside = place / AGAIN / slugs([" ".join([other.name, *where])])[0]
        if isinstance(recipe, Recipe):
            recipe = written_recipe(recipe, overrides, inside)
        _refuse_another_again(inside, other)
        if on is not None:
            refuse_wordless(other, settings)
            rows = mine.model_copy(update={"on": tuple(on), "confirm": "rows"})
            found, audited, relabel = find_on_photographs(hypotheses, other, rows, settings, used_device)
            _refuse_other_images(inside, found)
            make_folder(inside)
            return written(found, audited.images_of, other, settings, recipe, overrides, inside, relabel=relabel)
        class_map = class_map_of(other, mine.target or "")
        refuse_unanswered(mine.failure, other.classes, class_map)
        make_folder(inside)
        drawer = RoundDrawer(other, mine, settings, recipe, overrides, inside, used_device, workers, past_others=True)
        kept = KeptImages(drawer)
        trials = _tested(hypotheses, kept, searched, 1, len(hypotheses), "again")
        answers = answer_names(other, class_map)
        again = [finding_of(one, other, settings, answers) for one in trials.tested]
        findings = replace(
            searched.findings,
            recipe=replace(searched.findings.recipe, name=other.name, sha256=other.recipe_hash),
            target=target_of(other, mine, class_map),
            findings=judged_together(again, mine.fdr, mine.margin),
            tested=len(again),
            smallest_difference=None,
            classes=(),
            not_tested=(),
            rounds=tuple(round_drawn(one) for one in trials.rounds),
        )
        findings = estimate_rates(findings, kept.draw, 1, other, settings, answers, "again_estimate")
        return written(findings, partial(images_by_key, kept.images), other, settings, recipe, overrides, inside)


def _refuse_another_again(inside: Path, other: Recipe) -> None:
    """UserError where another recipe of the same name was tested already: nothing is lost by a change of it."""
    path = inside / FINDINGS
    if path.exists() and Findings.from_json(read_document(path), str(path)).recipe.sha256 != other.recipe_hash:
        raise UserError(
            f"{inside} holds what another recipe of the name '{other.name}' showed",
            "Give this one a name of its own (--set name=…), or remove that folder.",
        )


def _refuse_other_images(inside: Path, found: Findings) -> None:
    """UserError where the same findings were tested on other images, whose name ends alike."""
    path = inside / FINDINGS
    if path.exists() and Findings.from_json(read_document(path), str(path)).on != found.on:
        raise UserError(
            f"{inside} holds what was found on other images than {', '.join(one.name for one in found.on)}",
            "Give the recipe another name (--set name=…), or remove that folder.",
        )


def opened_search(folder: Path) -> Searched:
    """What a search left in a folder. UserError where none did."""
    path = folder / FINDINGS
    _refuse_unsearched(folder)
    findings = Findings.from_json(read_document(path), str(path))
    recipe = load_recipe(folder / ASKED)
    mine = recipe.mine
    asked = None if mine is None else (mine.method, mine.target, mine.failure)
    found = (findings.method.name, findings.target.name, findings.failure)
    if mine is None or asked != found or any(one.pairs is None for one in findings.findings):
        raise UserError(f"{folder}: {FINDINGS} was not found by what {ASKED} asks for", "Mine it again, elsewhere.")
    return Searched(folder, recipe, mine, validated(BugsSettings, mine.settings, "mine.settings"), findings)


def _refuse_unsearched(folder: Path) -> None:
    """UserError where a folder has no findings of a search, before anything is locked or made there."""
    if not (folder / FINDINGS).is_file() or not (folder / ASKED).is_file():
        raise UserError(
            f"{folder} holds no search for bugs ({FINDINGS} and {ASKED})",
            f"Begin one: counterfoil mine RECIPE --method bugs --target MODEL --out {folder}",
        )


def class_called(recipe: Recipe, name: str) -> RecipeClass:
    """The class of an id or a name. UserError where there is none."""
    for cls in recipe.classes:
        if name in (cls.id, cls.name):
            return cls
    known = [cls.name for cls in recipe.classes]
    raise UserError(
        f"--class: the recipe has no class '{name}'{did_you_mean(name, known)}",
        f"There is: {', '.join(known[:20])}.",
    )


def _described(texts: Sequence[str], cls: RecipeClass, recipe: Recipe, settings: BugsSettings) -> list[Description]:
    base = spoken_base(base_prompt(recipe, settings), cls)
    before, _, after = base.partition(CLASS)
    found: dict[Description, str] = {}
    wrong = []
    for text in texts:
        # A caption of the class; or, where it does not name it, what follows the base's own words for it.
        pieces = pieces_of(text, base, cls.name)
        if pieces is None:
            pieces = pieces_of(f"{before}{cls.name} {text}{after}", base, cls.name)
        description = Description(pieces or ())
        if not pieces:
            wrong.append(f"--try: '{text}' says nothing more than '{base.replace(CLASS, cls.name)}'")
        elif description in found:
            wrong.append(f"--try: '{text}' says what '{found[description]}' says")
        else:
            found[description] = text
    if wrong:
        raise UserError(wrong, f"Write what is to be seen, as in: --try 'a {cls.name} in the snow'")
    return list(found)


def _same_hypotheses(searched: Searched, other: Recipe) -> list[BugHypothesis]:
    """The confirmed findings as hypotheses of another recipe."""
    by_id = {cls.id: cls for cls in other.classes}
    own = {cls.id: cls for cls in searched.recipe.classes}
    base = base_prompt(searched.recipe, searched.settings)
    found, wrong = [], []
    for one in searched.findings.standing:
        cls = by_id.get(one.classes[0])
        if cls is None or cls.name != one.class_names[0]:
            wrong.append(
                f"{other.name} has no class '{one.class_names[0]}' ({one.classes[0]}), of which {one.name} was found"
            )
            continue
        pieces = pieces_of(one.caption, spoken_base(base, own[cls.id]), one.class_names[0])
        found.append(BugHypothesis(one.name, cls.label, Description(pieces or ()), one.origin or "found"))
    if wrong:
        raise UserError(wrong, "Name a recipe of the same classes.")
    if not found:
        raise UserError(f"{searched.folder}: nothing was confirmed that could be tested again")
    return found


def _tested(
    hypotheses: Sequence[BugHypothesis],
    kept: KeptImages,
    searched: Searched,
    first: int,
    family: int,
    purpose: Purpose,
) -> Trials:
    settings = searched.settings
    refuse_small_budget(family, searched.mine, settings)
    return carry_to_test(
        hypotheses,
        kept.draw,
        Budget(settings.images, first),
        searched.mine,
        settings,
        family=family,
        purpose=purpose,
    )

"""The search for bugs (Wiles 2022, section 3). It uses no model and no folder itself: the functions
that render and describe images are arguments. Its steps depend only on the answers, so an
interrupted run resumes when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress

import numpy as np

from counterfoil.arrays import Bools, Floats32, Ints
from counterfoil.errors import UserError
from counterfoil.mining.findings import ClassAudit
from counterfoil.mining.findings_layer import unique_slugs
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.methods.bugs.describing import Described, FailureCluster, cluster_failures
from counterfoil.mining.methods.bugs.descriptions import (
    BackgroundCounts,
    Description,
    counts_of_background,
    shortest_kept,
    tried_shorter,
)
from counterfoil.mining.methods.bugs.trials import (
    Budget,
    BugHypothesis,
    Draw,
    DrawnRound,
    RoundAsked,
    Trial,
    carry_to_test,
    refuse_small_budget,
)
from counterfoil.paired_stats import most_pairs_to_decide
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.sequential_stats import StoppedRate, e_bh, stopped_rate
from counterfoil.stats import clopper_pearson

# A class that fails more often than this on the base is left out, because its failures do not show
# a cause.
MOST_FAILING = 0.5
FEWEST_IMAGES = 8
_MOST_SHORTER = 6
_LONGEST_NAME = 56


@dataclass(frozen=True, slots=True)
class FailedImages:
    """n images with the target's answers. The arrays labels, failed and answers are (n,), as in a
    round."""

    keys: tuple[str, ...]
    labels: Ints
    failed: Bools
    answers: Ints


_ByName = dict[str, BugHypothesis]
# A function from keys of n images to their features, unit vectors (n, width).
Features = Callable[[Sequence[str]], Floats32]
Describe = Callable[[Sequence[FailureCluster]], Sequence[Described]]


@dataclass(frozen=True)
class BugSearch:
    """The results of a search."""

    baseline: tuple[ClassAudit, ...]
    rounds: tuple[DrawnRound, ...]
    tested: tuple[Trial, ...] = ()
    confirmed: frozenset[str] = frozenset()
    """Names of hypotheses."""
    shortened_to: Mapping[str, str] = field(default_factory=dict)
    """By the name of a hypothesis, the name of the shorter one that replaces it."""
    estimates: Mapping[str, StoppedRate] = field(default_factory=dict)
    undescribed: tuple[tuple[FailureCluster, str], ...] = ()
    backgrounds: Mapping[str, BackgroundCounts] = field(default_factory=dict)
    """By name, the failures with the background of the description alone and with the rest alone.
    """


def search_bugs(
    classes: Sequence[RecipeClass],
    draw: Draw,
    look: Features,
    describe: Describe,
    run: MiningRun,
    seeds: FailedImages | None = None,
) -> BugSearch:
    """Look for descriptions with which the target fails more often than on the base. The failures
    to describe are those on the base's images, or those among the existing images `seeds`. Raise
    UserError if the budget cannot confirm any hypothesis.
    """
    mine = run.mine
    settings = run.settings
    class_names = {cls.label: cls.name for cls in classes}
    labels = tuple(class_names)
    round_asked = RoundAsked(1, "baseline", settings.baseline, {}, labels)
    base = draw(round_asked)
    images = base if seeds is None else seeds
    clusters: list[FailureCluster] = []
    baseline: list[ClassAudit] = []
    for cls in classes:
        audit = class_baseline(base, cls, seeded=seeds is not None)
        if audit.reason is None:
            of_class = _clusters(images, cls.label, look, run)
            clusters += of_class
            if not of_class:
                failed = images.failed[images.labels == cls.label]
                failures = int(failed.sum())
                kind = "base images" if settings.seeds is None else "images of mine.settings.seeds"
                verb = "fails" if failures == 1 else "fail"
                reason = (
                    f"{failures} of its {kind} {verb}, but a cluster needs"
                    f" {settings.fewest_failures} (mine.settings.fewest_failures)"
                )
                audit = replace(audit, reason=reason)
        baseline.append(audit)
    hypotheses, undescribed = _worded(clusters, describe(clusters), class_names)
    search = BugSearch(tuple(baseline), (base,), undescribed=tuple(undescribed))
    if not hypotheses:
        return search
    family = len(hypotheses)
    refuse_small_budget(family, run)
    if settings.shorten:
        family *= 1 + _MOST_SHORTER
    budget = Budget(settings.images, 1).after(round_asked)
    tested, rounds_of_tests = carry_to_test(hypotheses, draw, budget, run, family=family)
    search = replace(search, rounds=(base, *rounds_of_tests), tested=tested)
    if settings.shorten:
        search = _shortened(search, class_names, draw, run, family=family)
    confirmed = confirmed_names(search.tested, mine)
    shortened_to = {}
    for name, short in search.shortened_to.items():
        if name in confirmed and short in confirmed:
            shortened_to[name] = short
    rounds = list(search.rounds)
    estimates = dict[str, StoppedRate]()
    for trial in search.tested:
        name = trial.hypothesis.name
        if settings.until is None or name not in confirmed or name in shortened_to:
            continue
        drawn = _estimated(trial, draw, _left(rounds, settings), settings)
        if drawn is not None:
            rounds.append(drawn)
            rows = drawn.of(trial.hypothesis.label, name)
            failed = drawn.failed[rows]
            estimates[name] = stopped_rate(failed, settings.until)
    return replace(
        search,
        rounds=tuple(rounds),
        confirmed=confirmed,
        shortened_to=shortened_to,
        estimates=estimates,
    )


def _worded(
    clusters: Sequence[FailureCluster],
    descriptions: Sequence[Described],
    class_names: Mapping[int, str],
) -> tuple[list[BugHypothesis], list[tuple[FailureCluster, str]]]:
    """Return the hypotheses of clusters, and the clusters that give none, each with the reason. Of
    several clusters with the same class and description, the first gives a hypothesis.
    """
    by_words: dict[tuple[int, Description], BugHypothesis] = {}
    undescribed = []
    for cluster, described in zip(clusters, descriptions, strict=True):
        if described.description is None:
            undescribed.append((cluster, described.reason or ""))
            continue
        key = cluster.label, described.description
        if key in by_words:
            undescribed.append((cluster, f"it has the same description as {by_words[key].name}"))
            continue
        taken = [hypothesis.name for hypothesis in by_words.values()]
        name = name_of(class_names[cluster.label], described.description, taken)
        about = {
            "captions": list(described.captions),
            "log_likelihood": described.log_likelihood,
        }
        by_words[key] = BugHypothesis(name, *key, evidence=cluster.keys, about=about)
    return list(by_words.values()), undescribed


def refuse_small_search(classes: int, run: MiningRun) -> None:
    """Raise UserError if the settings could not confirm a hypothesis whose described images all
    fail."""
    refuse_small_budget(1, run)
    settings = run.settings
    base = classes * settings.baseline
    tested = 2 * most_pairs_to_decide(1, run.mine.fdr)
    needed = base + tested
    if needed > settings.images:
        raise UserError(
            f"mine.settings.images: {settings.images:,} images are too few: the base of {classes:,}"
            f" classes takes {base:,} (mine.settings.baseline: {settings.baseline:,} each), and one"
            f" hypothesis {tested:,}",
            f"Set mine.settings.images to {needed:,} or more, or name fewer mine.settings.classes.",
        )


def confirmed_names(tested: Sequence[Trial], mine: Mine) -> frozenset[str]:
    """Return the names of the hypotheses that e-BH over all trials confirms. A futile trial is
    never confirmed. A trial whose difference is below the margin is not confirmed either, because
    with enough pairs an e-value is large for a negligible difference too.
    """
    rejected = e_bh([trial.log_e for trial in tested], mine.fdr)
    confirmed = set()
    for trial in compress(tested, rejected):
        if trial.state != "futile" and trial.count.difference >= mine.margin:
            confirmed.add(trial.hypothesis.name)
    return frozenset(confirmed)


def class_baseline(base: DrawnRound, cls: RecipeClass, *, seeded: bool = False) -> ClassAudit:
    """Return the failure rate of a class on the base. If the class is left out, the result also
    says why."""
    rows = base.of(cls.label)
    images = len(rows)
    failures = int(base.failed[rows].sum())
    drawn = base.asked.candidates
    rate = failures / images if images else None
    audit = ClassAudit(cls.id, cls.name, images, failures, rate, drawn=drawn)
    if images < FEWEST_IMAGES:
        reason = (
            f"the screen accepts {images} of {drawn} base images: the generator does not draw"
            " this class by its name; with class tokens (`tokens`) it may"
        )
        return replace(audit, reason=reason)
    interval = clopper_pearson(failures, images - failures)
    reason = None
    if failures > MOST_FAILING * images:
        reason = (
            f"{failures} of {images} base images fail, too many to find what makes it fail; the"
            " name may draw something else than the class, and class tokens (`tokens`) may help"
        )
    elif not failures and not seeded:
        reason = f"no failure in {images} base images: its rate is at most {interval[1]:.1%} (95 %)"
    return replace(audit, reason=reason, interval=interval)


def name_of(
    class_name: str,
    description: Description,
    taken: Sequence[str],
) -> str:
    """Return a shift's name for a class and a description, unique in a run."""
    pieces = " ".join(piece.words for piece in description.pieces)
    (slug,) = unique_slugs([f"{class_name} {pieces}"])
    return unique_name(slug[:_LONGEST_NAME].strip("_"), taken)


def unique_name(stem: str, taken: Container[str]) -> str:
    """Return the stem, with a number if the name is taken."""
    name = stem
    number = 2
    while name in taken:
        name = f"{stem}_{number}"
        number += 1
    return name


def _clusters(
    images: FailedImages | DrawnRound,
    label: int,
    look: Features,
    run: MiningRun,
) -> list[FailureCluster]:
    settings = run.settings
    of_class = images.labels == label
    rows = np.flatnonzero(of_class & images.failed)
    if len(rows) < settings.fewest_failures:
        return []
    keys = [images.keys[row] for row in rows.tolist()]
    clusters = cluster_failures(
        look(keys),
        images.answers[rows],
        most=settings.clusters,
        least=settings.fewest_failures,
        seed=run.mine.seed,
    )
    right = np.flatnonzero(of_class & ~images.failed)
    right = right[: settings.described]
    beside = tuple(images.keys[row] for row in right.tolist())
    described = []
    for cluster, answered in clusters:
        of_cluster = tuple(keys[index] for index in cluster.tolist())
        described.append(FailureCluster(label, of_cluster, answered, beside))
    return described


def _plan_shorter(
    tested: Sequence[Trial],
    class_names: Mapping[int, str],
    mine: Mine,
) -> tuple[_ByName, _ByName, dict[str, list[str]]]:
    """Return three mappings: hypotheses to render again, new shorter hypotheses, and for each
    confirmed hypothesis the names of its shorter ones. If a hypothesis was not confirmed, each of
    its pieces is tested alone, because one piece ("green") can prevent as many failures as another
    ("in the snow") causes.
    """
    names = [trial.hypothesis.name for trial in tested]
    known = {}
    for trial in tested:
        hypothesis = trial.hypothesis
        known[hypothesis.label, hypothesis.description] = hypothesis
    shorter_names: dict[str, list[str]] = {}
    fresh: _ByName = {}
    repeated: _ByName = {}

    def repeat(hypothesis: BugHypothesis) -> None:
        if hypothesis.name not in repeated and hypothesis.name not in fresh:
            name = name_of(f"{hypothesis.name} again", Description(()), names)
            names.append(name)
            repeated[hypothesis.name] = replace(hypothesis, name=name)

    def add_shorter(whole: BugHypothesis, description: Description) -> BugHypothesis:
        key = whole.label, description
        if key not in known:
            name = name_of(class_names[whole.label], description, names)
            names.append(name)
            short = BugHypothesis(name, *key, "shortened", whole.name)
            fresh[name] = known[key] = short
        return known[key]

    confirmed = confirmed_names(tested, mine)
    others = []
    for trial in tested:
        whole = trial.hypothesis
        if whole.name not in confirmed:
            others.append(whole)
            continue
        descriptions = tried_shorter(whole.description, _MOST_SHORTER)
        descriptions = [shorter for shorter in descriptions if shorter.pieces]
        if not descriptions:
            continue
        repeat(whole)
        shorts = [add_shorter(whole, description) for description in descriptions]
        shorter_names[whole.name] = [short.name for short in shorts]
        for short in shorts:
            repeat(short)
    for whole in others:
        pieces = whole.description.pieces
        if len(pieces) > 1:
            for piece in pieces[:_MOST_SHORTER]:
                add_shorter(whole, Description((piece,)))
    return repeated, fresh, shorter_names


def _shortened(
    search: BugSearch,
    class_names: Mapping[int, str],
    draw: Draw,
    run: MiningRun,
    *,
    family: int,
) -> BugSearch:
    """Test shorter descriptions on new noise, as hypotheses of their own. The longer descriptions
    are rendered again for the comparison, because their earlier tests stopped when rates were high.
    """
    tested = search.tested
    repeated, fresh, shorter_names = _plan_shorter(tested, class_names, run.mine)
    hypotheses = [*repeated.values(), *fresh.values()]
    if not hypotheses:
        return search
    budget = _left(search.rounds, run.settings)
    drawn, rounds = carry_to_test(hypotheses, draw, budget, run, family=family, purpose="shorten")
    new = drawn[len(repeated) :]
    state = {trial.hypothesis.name: trial.state for trial in (*tested, *new)}
    count = {trial.hypothesis.name: trial.count for trial in new}
    for name, trial in zip(repeated, drawn, strict=False):
        count[name] = trial.count
    known = [trial.hypothesis for trial in (*tested, *new)]
    described = {hypothesis.name: hypothesis.description for hypothesis in known}
    replaced_by: dict[str, str] = {}
    for name, shorts in shorter_names.items():
        candidates = [short for short in shorts if count[short].pairs]
        confirmed = [short for short in candidates if state[short] == "confirmed"]
        counted = [(described[short], count[short]) for short in confirmed]
        shortest = shortest_kept(counted, count[name])
        if shortest is None:
            continue
        # The shortest description also replaces descriptions of middle length. "striped" replaces
        # the whole description and also "striped on a floor".
        best = confirmed[shortest]
        length = described[best].length
        longer = [short for short in candidates if described[short].length > length]
        for longer_name in (name, *longer):
            replaced_by.setdefault(longer_name, best)
    count_of = {}
    for hypothesis in known:
        if hypothesis.name in count:
            count_of[hypothesis.label, hypothesis.description] = count[hypothesis.name]
    backgrounds = {}
    for hypothesis in known:
        counts = counts_of_background(hypothesis.label, hypothesis.description, count_of)
        if counts is not None:
            backgrounds[hypothesis.name] = counts
    return replace(
        search,
        rounds=(*search.rounds, *rounds),
        tested=(*tested, *new),
        shortened_to=replaced_by,
        backgrounds=backgrounds,
    )


def _estimated(
    trial: Trial,
    draw: Draw,
    budget: Budget,
    settings: BugsSettings,
) -> DrawnRound | None:
    """Render so many new images of a description that `until` failures are expected. Return None if
    the budget has too few images left.
    """
    until = settings.until
    assert until is not None
    # The round has 1.5 times the number of candidates that are needed on average, at the observed
    # failure rate and the screen's observed acceptance rate.
    count = trial.count
    accepted = count.pairs / max(trial.drawn, 1)
    rate = max(count.rate, 0.5 / count.pairs)
    rate *= max(accepted, 0.05)
    needed = int(np.ceil(1.5 * until / rate))
    candidates = min(needed, budget.images - FEWEST_IMAGES)
    if candidates < until:
        return None
    hypothesis = trial.hypothesis
    round_asked = RoundAsked(
        number=budget.number,
        purpose="until",
        candidates=candidates,
        cells={hypothesis.name: hypothesis},
        labels=(hypothesis.label,),
        base_candidates=FEWEST_IMAGES,
    )
    return draw(round_asked)


def _left(rounds: Sequence[DrawnRound], settings: BugsSettings) -> Budget:
    drawn = sum(drawn_round.asked.images for drawn_round in rounds)
    return Budget(settings.images - drawn, len(rounds) + 1)

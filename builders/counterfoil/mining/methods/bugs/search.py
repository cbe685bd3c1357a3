"""The search for bugs (Wiles 2022, section 3): render, cluster failures, describe them, test and shorten descriptions.

Functions that render and describe are arguments; the search itself loads no model and uses no folder. It depends only
on the answers, so an interrupted run resumes when it is started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mining.findings import ClassAudit
from counterfoil.mining.findings_layer import unique_slugs
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
    confirmed_among,
    refuse_small_budget,
)
from counterfoil.paired_stats import PairCount, most_pairs_to_decide
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.schema_mine import BugsSettings, Mine
from counterfoil.stats import StoppedRate, clopper_pearson, stopped_rate

# A class that fails more often than it is right says nothing about what makes it fail.
MOST_FAILING = 0.5
FEWEST_IMAGES = 8
_MOST_SHORTER = 6
_LONGEST_NAME = 56


@dataclass(frozen=True, slots=True)
class FailedImages:
    """Answered images by class: keys, labels (n,), failed (n,), answers (n,), as of a round."""

    keys: tuple[str, ...]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    answers: NDArray[np.int64]


# Keys of images → features (n, width), unit vectors.
Features = Callable[[Sequence[str]], NDArray[np.float32]]
Describe = Callable[[Sequence[FailureCluster]], Sequence[Described]]


@dataclass(frozen=True)
class BugSearch:
    """The rounds and results of a search.

    baseline: one per searched class. confirmed: names. shortened_to: name → name of the shorter description that
    replaces it. drawn_again: name → pairs used for comparison only, not in its test. backgrounds: name → failures with
    its background alone and with the rest alone, for descriptions with both.
    """

    baseline: tuple[ClassAudit, ...]
    rounds: tuple[DrawnRound, ...]
    tested: tuple[Trial, ...] = ()
    confirmed: frozenset[str] = frozenset()
    shortened_to: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, StoppedRate] = field(default_factory=dict)
    undescribed: tuple[tuple[FailureCluster, str], ...] = ()
    drawn_again: Mapping[str, PairCount] = field(default_factory=dict)
    backgrounds: Mapping[str, BackgroundCounts] = field(default_factory=dict)


def search_bugs(
    classes: Sequence[RecipeClass],
    draw: Draw,
    look: Features,
    describe: Describe,
    mine: Mine,
    settings: BugsSettings,
    seeds: FailedImages | None = None,
) -> BugSearch:
    """Look for descriptions under which the target fails more often than on the base.

    seeds: existing images, whose failures replace those of the base. Raise UserError if the budget cannot confirm any
    hypothesis.
    """
    budget = Budget(settings.images, 1)
    round_asked = RoundAsked(1, "baseline", settings.baseline, {}, tuple(cls.label for cls in classes))
    base = draw(round_asked)
    budget = budget.after(round_asked)
    where = FailedImages(base.keys, base.labels, base.failed, base.answers) if seeds is None else seeds
    clusters: list[FailureCluster] = []
    baseline: list[ClassAudit] = []
    for cls in classes:
        class_base = class_baseline(base, cls, seeded=seeds is not None)
        class_clusters = [] if class_base.reason is not None else _clusters(where, cls.label, look, mine, settings)
        clusters += class_clusters
        baseline.append(
            class_base
            if class_clusters or class_base.reason is not None
            else _too_few(class_base, cls.label, where, settings)
        )
    class_names = {cls.label: cls.name for cls in classes}
    outcomes = describe(clusters)
    # Each pair of class and description once, from its first cluster.
    by_words: dict[tuple[int, Description], BugHypothesis] = {}
    for cluster, described in zip(clusters, outcomes, strict=True):
        if described.description is None or (cluster.label, described.description) in by_words:
            continue
        name = name_of(
            class_names[cluster.label], described.description, [by_word.name for by_word in by_words.values()]
        )
        about = {"captions": list(described.captions), "log_likelihood": described.log_likelihood}
        by_words[cluster.label, described.description] = BugHypothesis(
            name, cluster.label, described.description, evidence=cluster.keys, about=about
        )
    hypotheses = list(by_words.values())
    undescribed = []  # clusters without a hypothesis of their own, with the reason
    for cluster, outcome in zip(clusters, outcomes, strict=True):
        same = None if outcome.description is None else by_words[cluster.label, outcome.description]
        if outcome.reason is not None:
            undescribed.append((cluster, outcome.reason))
        elif same is not None and same.evidence != cluster.keys:
            undescribed.append((cluster, f"it has the same description as {same.name}"))
    search = BugSearch(tuple(baseline), (base,), undescribed=tuple(undescribed))
    if not hypotheses:
        return search
    family = len(hypotheses) * (1 + (_MOST_SHORTER if settings.shorten else 0))
    refuse_small_budget(len(hypotheses), mine, settings)
    trials = carry_to_test(hypotheses, draw, budget, mine, settings, family=family)
    search = replace(search, rounds=(base, *trials.rounds), tested=trials.tested)
    if settings.shorten:
        search = _shortened(search, class_names, draw, mine, settings, family=family)
    confirmed = confirmed_names(search.tested, mine)
    shortened_to = {name: short for name, short in search.shortened_to.items() if {name, short} <= confirmed}
    rounds, estimates = list(search.rounds), dict[str, StoppedRate]()
    if settings.until is not None:
        standing = [trial for trial in search.tested if trial.hypothesis.name in confirmed - shortened_to.keys()]
        for class_base in standing:
            drawn = _estimated(class_base, draw, _left(rounds, settings), settings)
            if drawn is not None:
                rounds.append(drawn)
                name = class_base.hypothesis.name
                estimates[name] = stopped_rate(
                    drawn.failed[drawn.of(class_base.hypothesis.label, name)], settings.until
                )
    return replace(search, rounds=tuple(rounds), confirmed=confirmed, shortened_to=shortened_to, estimates=estimates)


def refuse_small_search(classes: int, mine: Mine, settings: BugsSettings) -> None:
    """Raise UserError, before anything is drawn, if even one hypothesis that always fails could not be confirmed."""
    refuse_small_budget(1, mine, settings)
    base, needed = classes * settings.baseline, 2 * most_pairs_to_decide(1, mine.fdr)
    if base + needed > settings.images:
        raise UserError(
            f"mine.settings.images: {settings.images:,} images are too few: the base of {classes:,} classes takes"
            f" {base:,} (mine.settings.baseline: {settings.baseline:,} each), and one hypothesis {needed:,}",
            f"Set mine.settings.images to {base + needed:,} or more, or name fewer mine.settings.classes.",
        )


def confirmed_names(tested: Sequence[Trial], mine: Mine) -> frozenset[str]:
    """Return the names of the hypotheses that e-BH confirms over all tested ones."""
    yes_by_trial = confirmed_among(tested, mine)
    return frozenset(trial.hypothesis.name for trial, yes in zip(tested, yes_by_trial, strict=True) if yes)


def class_baseline(base: DrawnRound, cls: RecipeClass, *, seeded: bool = False) -> ClassAudit:
    """Return a class's failure rate on the base, with the reason if the class is left out.

    seeded: failures come from existing images, so a base without failures does not exclude a class.
    """
    rows = base.of(cls.label)
    images, failures = len(rows), int(base.failed[rows].sum())
    drawn = base.asked.candidates
    audit = ClassAudit(cls.id, cls.name, images, failures, failures / images if images else None, drawn=drawn)
    if images < FEWEST_IMAGES:
        reason = (
            f"the screen accepts {images} of {drawn} base images: the generator does not draw this class by its name"
        )
        return replace(audit, reason=f"{reason}; with class tokens (`tokens`) it may")
    interval = clopper_pearson(failures, images - failures)
    reason = None
    if failures > MOST_FAILING * images:
        reason = (
            f"{failures} of {images} base images fail, too many to find what makes it fail; the name may draw something"
            " else than the class, and class tokens (`tokens`) may help"
        )
    elif not failures and not seeded:
        reason = f"no failure in {images} base images: its rate is at most {interval[1]:.1%} (95 %)"
    return replace(audit, reason=reason, interval=interval)


def name_of(class_name: str, description: Description, taken: Sequence[str]) -> str:
    """Return a shift's name for a class and a description, unique in a run."""
    words = f"{class_name} {' '.join(piece.words for piece in description.pieces)}"
    stem = unique_slugs([words])[0][:_LONGEST_NAME].strip("_")
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem}_{number}", number + 1
    return name


def _too_few(class_audit: ClassAudit, label: int, where: FailedImages, settings: BugsSettings) -> ClassAudit:
    failures = int(((where.labels == label) & where.failed).sum())
    kind = "base images" if settings.seeds is None else "images of mine.settings.seeds"
    fail = "fails" if failures == 1 else "fail"
    needed = f"a cluster needs {settings.fewest_failures} (mine.settings.fewest_failures)"
    return replace(class_audit, reason=f"{failures} of its {kind} {fail}, but {needed}")


def _clusters(
    where: FailedImages, label: int, look: Features, mine: Mine, settings: BugsSettings
) -> list[FailureCluster]:
    rows = np.flatnonzero((where.labels == label) & where.failed)
    if len(rows) < settings.fewest_failures:
        return []
    features = look([where.keys[row] for row in rows.tolist()])
    found_clusters = cluster_failures(
        features, where.answers[rows], most=settings.clusters, least=settings.fewest_failures, seed=mine.seed
    )
    right = np.flatnonzero((where.labels == label) & ~where.failed)[: settings.described]
    beside = tuple(where.keys[row] for row in right.tolist())
    return [
        FailureCluster(label, tuple(where.keys[row] for row in rows[cluster.rows].tolist()), cluster.answered, beside)
        for cluster in found_clusters
    ]


def _shortened(
    search: BugSearch, class_names: Mapping[int, str], draw: Draw, mine: Mine, settings: BugsSettings, *, family: int
) -> BugSearch:
    """Test shorter descriptions on new noise. For a confirmed description, they include its background and its rest.

    A shorter description is a hypothesis of its own; its words are fixed before its images are rendered. Descriptions
    tested before are rendered again with it, and only these new images compare the two, because earlier tests stopped
    when rates were high. For an unconfirmed description, each piece is tested alone: "green" can prevent as many
    failures as "in the snow" causes.
    """
    tested = search.tested
    names = [trial.hypothesis.name for trial in tested]
    known = {(trial.hypothesis.label, trial.hypothesis.description): trial.hypothesis for trial in tested}
    tried: dict[str, list[str]] = {}
    fresh: dict[str, BugHypothesis] = {}
    repeated: dict[str, BugHypothesis] = {}

    def once_more(whole: BugHypothesis) -> None:
        if whole.name not in repeated and whole.name not in fresh:
            name = name_of(f"{whole.name} again", Description(()), names)
            names.append(name)
            repeated[whole.name] = replace(whole, name=name)

    def of_fewer_words(whole: BugHypothesis, description: Description) -> BugHypothesis:
        if (whole.label, description) not in known:
            name = name_of(class_names[whole.label], description, names)
            names.append(name)
            fresh[name] = BugHypothesis(name, whole.label, description, "shortened", whole.name)
            known[whole.label, description] = fresh[name]
        return known[whole.label, description]

    judged = list(zip(tested, confirmed_among(tested, mine), strict=True))
    for whole in (trial.hypothesis for trial, yes in judged if yes):
        others = [shorter_one for shorter_one in tried_shorter(whole.description, _MOST_SHORTER) if shorter_one.pieces]
        if others:
            once_more(whole)
            shorts = [of_fewer_words(whole, description) for description in others]
            tried[whole.name] = [short.name for short in shorts]
            for short in shorts:
                once_more(short)
    for whole in (trial.hypothesis for trial, yes in judged if not yes):
        pieces = whole.description.pieces
        for piece in pieces[:_MOST_SHORTER] if len(pieces) > 1 else ():
            of_fewer_words(whole, Description((piece,)))
    hypotheses = [*repeated.values(), *fresh.values()]
    if not hypotheses:
        return search
    budget = _left(search.rounds, settings)
    trials = carry_to_test(hypotheses, draw, budget, mine, settings, family=family, purpose="shorten")
    again, new = dict(zip(repeated, trials.tested, strict=False)), trials.tested[len(repeated) :]
    state = {trial.hypothesis.name: trial.state for trial in (*tested, *new)}
    count = {trial.hypothesis.name: trial.count for trial in new} | {name: trial.count for name, trial in again.items()}
    described = {hypothesis.name: hypothesis.description for hypothesis in known.values()}
    stands: dict[str, str] = {}
    for name, shorts in tried.items():
        candidates = [short for short in shorts if count[short].pairs]
        confirmed = [short for short in candidates if state[short] == "confirmed"]
        shortest = shortest_kept([(described[short], count[short]) for short in confirmed], count[name])
        if shortest is None:
            continue
        # It also replaces descriptions in between: "striped on a floor" between "striped" and the whole.
        best = confirmed[shortest]
        longer = [
            name_of_candidate
            for name_of_candidate in candidates
            if described[name_of_candidate].length > described[best].length
        ]
        stands |= {longer_name: best for longer_name in (name, *longer) if longer_name not in stands}
    drawn = {
        (hypothesis.label, hypothesis.description): count[hypothesis.name]
        for hypothesis in known.values()
        if hypothesis.name in count
    }
    backgrounds = {
        hypothesis.name: counts
        for hypothesis in known.values()
        if (counts := counts_of_background(hypothesis.label, hypothesis.description, drawn)) is not None
    }
    return replace(
        search,
        rounds=(*search.rounds, *trials.rounds),
        tested=(*tested, *new),
        shortened_to=stands,
        drawn_again={name: trial.count for name, trial in again.items()},
        backgrounds=backgrounds,
    )


def _estimated(trial: Trial, draw: Draw, budget: Budget, settings: BugsSettings) -> DrawnRound | None:
    """Render enough new images of a description to expect `until` failures; None if too few images are left.

    The images of the test cannot be used: the test stopped when their rate was high.
    """
    assert settings.until is not None
    # Half as many again as it should take, at the rate that was seen (of one half, where none was), past the screen.
    accepted = trial.count.pairs / max(sum(pair.drawn.asked.candidates for pair in trial.pairs), 1)
    rate = max(trial.count.rate, 0.5 / trial.count.pairs) * max(accepted, 0.05)
    candidates = min(int(np.ceil(1.5 * settings.until / rate)), budget.images - FEWEST_IMAGES)
    if candidates < settings.until:
        return None
    hypothesis = trial.hypothesis
    cells = {hypothesis.name: hypothesis}
    round_asked = RoundAsked(budget.number, "until", candidates, cells, (hypothesis.label,), FEWEST_IMAGES)
    return draw(round_asked)


def _left(rounds: Sequence[DrawnRound], settings: BugsSettings) -> Budget:
    return Budget(settings.images - sum(drawn_round.asked.images for drawn_round in rounds), len(rounds) + 1)

"""How often the screen is wrong, by people's answers on a page of `review --screen`: false accepts
and false rejects of each keep rule, and of all rules together.

The page shows kept and rejected images of each shift, drawn at random. A shift with N rejected
images may show n of them; each then represents N / n. For a rule, the images of a shift are split
by what the screen did and by what the rule does alone. In such a stratum of N images, of which
people looked at n, they say that the share p is right. With K, the strata that the rule keeps, and
D, those that it drops,

    false accepts = 1 - Σ_K N·p / Σ_K N        false rejects = Σ_D N·p / (Σ_D N·p + Σ_K N·p).

Each of the two sums has a Wilson interval (`_weighted_share`), and `mover_share` joins these to the
interval of the false rejects. The intervals are about what the generator draws, not about these
images alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, product
from typing import Any

from counterfoil.dataset.label_checks import TASKS, ReviewTask
from counterfoil.dataset.reading import SoundDataset
from counterfoil.documents import csv_text
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.keep.cells import ACCEPTED, FAILED, OPEN, SURPLUS
from counterfoil.recipe.keep.rule import CLIP_SCORES
from counterfoil.report.labels import CheckedShare
from counterfoil.reviewing.answers import Asked, RaterAnswers, mean_frequency
from counterfoil.reviewing.grids import CandidateImage
from counterfoil.stats import Estimate, mover_share, wilson_interval
from counterfoil.store.reading import planned_rows
from counterfoil.store.rows import TableForm, verdict_of

ALL = "all"
TABLE = "screen.csv"
_THRESHOLDS = tuple(f"{name}_threshold" for name in CLIP_SCORES)
_SCORES = tuple(f"{name}_score" for name in CLIP_SCORES)
_READ = (*_SCORES, *_THRESHOLDS, "reason")
_COLUMNS = (
    "rule",
    "shift",
    "tasks",
    "kept",
    "kept_answered",
    "false_accepts",
    "false_accepts_low",
    "false_accepts_high",
    "dropped",
    "dropped_answered",
    "false_rejects",
    "false_rejects_low",
    "false_rejects_high",
)


@dataclass(frozen=True, slots=True)
class ScreenedImage:
    """A candidate that the screen decided. shown: whether its image is stored. dropped_by: the keep
    rules that drop it, each alone, and `ALL` if any did.
    """

    image: CandidateImage
    shown: bool
    dropped_by: frozenset[str]


def screened_images(dataset: SoundDataset) -> list[ScreenedImage]:
    """Return the candidates that keep rules decided, in the plan's order, without reading an image.

    A surplus candidate passed every rule, and has no image among the kept: the kept ones represent
    it. A rule that asks a classifier only asks about what earlier rules kept, so what it drops is
    taken from the rows. Candidates that failed, or wait for a threshold, are left out.
    """
    recipe = dataset.recipe
    plan = dataset.plan
    names = {rule: name for name, rule in KEEP_RULES.items()}
    form = TableForm.of(recipe)
    columns = [*_READ, *form.added]
    directory = dataset.directory
    images = []
    for at, (shard, receipt) in enumerate(zip(plan.shards, dataset.receipts, strict=True)):
        cells: dict[tuple[str, int], list[dict[str, Any]]] = {}
        for row in planned_rows(directory, plan, shard, receipt, "candidates", columns, form):
            if row["reason"] not in (FAILED, OPEN):
                cells.setdefault((row["shift"], row["label"]), []).append(row)
        for (name, label), rows in cells.items():
            shift = plan.shift(name)
            added = recipe.columns_of(shift)
            verdicts = []
            for row in rows:
                thresholds = {name: row[f"{name}_threshold"] for name in CLIP_SCORES}
                verdicts.append(verdict_of(row, thresholds, added))
            dropped_by: list[set[str]] = [set() for _ in rows]
            for rule in shift.keep:
                reasons: Sequence[str | None]
                if rule.judges():
                    given = {reason: reason for reason in rule.reasons}
                    reasons = [given.get(row["reason"]) for row in rows]
                else:
                    reasons = rule.dropped(verdicts)
                for dropped, reason in zip(dropped_by, reasons, strict=True):
                    if reason is not None:
                        dropped.add(names[type(rule)])
            for row, dropped in zip(rows, dropped_by, strict=True):
                kept = row["reason"] in (ACCEPTED, SURPLUS)
                if not kept:
                    dropped.add(ALL)
                image = CandidateImage(row["key"], name, label, at, kept)
                shown = row["reason"] != SURPLUS
                images.append(ScreenedImage(image, shown, frozenset(dropped)))
    return images


@dataclass(frozen=True, slots=True)
class Stratum:
    """Some images of a shift: whether the rule drops them, how many there are, and for each image
    that people looked at, how often it was right and how many people were asked."""

    dropped: bool
    images: int
    right: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ScreenErrors:
    """The false accepts and the false rejects of a rule. kept, dropped: the numbers of images.
    answered: those among them that people looked at. A share is None without an answer.
    """

    kept: int
    kept_answered: int
    false_accepts: CheckedShare | None
    dropped: int
    dropped_answered: int
    false_rejects: CheckedShare | None


def screen_errors(strata: Sequence[Stratum]) -> ScreenErrors:
    """Return the errors of a rule over the strata of one or more shifts."""
    kept = [stratum for stratum in strata if not stratum.dropped]
    dropped = [stratum for stratum in strata if stratum.dropped]
    kept_images = sum(stratum.images for stratum in kept)
    dropped_images = sum(stratum.images for stratum in dropped)
    kept_right = _right_share(kept)
    false_accepts = None
    if kept_right is not None:
        false_accepts = CheckedShare(
            value=1 - kept_right.value,
            low=1 - kept_right.high,
            high=1 - kept_right.low,
        )
    amounts = []
    for share, images in ((_right_share(dropped), dropped_images), (kept_right, kept_images)):
        if share is not None:
            amounts.append(Estimate(share.value * images, share.low * images, share.high * images))
        elif not images:
            amounts.append(Estimate(0.0, 0.0, 0.0))
    false_rejects = None
    right = sum(amount.value for amount in amounts)
    if len(amounts) == 2 and right:
        value = amounts[0].value / right
        low, high = mover_share(*amounts)
        false_rejects = CheckedShare(value, min(low, value), max(high, value))
    return ScreenErrors(
        kept=kept_images,
        kept_answered=sum(len(stratum.right) for stratum in kept),
        false_accepts=false_accepts,
        dropped=dropped_images,
        dropped_answered=sum(len(stratum.right) for stratum in dropped),
        false_rejects=false_rejects,
    )


def _right_share(strata: Sequence[Stratum]) -> CheckedShare | None:
    """Return the share of right images in strata, with its interval, or None if no image of them
    has an answer.

    A stratum without an answer has the share of the others. The interval then reaches from none of
    its images to all of them.
    """
    seen = [stratum for stratum in strata if stratum.right]
    if not seen:
        return None
    share = mean_frequency(seen[0].right) if len(seen) == 1 else _weighted_share(seen)
    assert share is not None
    images = sum(stratum.images for stratum in strata)
    answered = sum(stratum.images for stratum in seen) / images
    return CheckedShare(share.value, share.low * answered, share.high * answered + 1 - answered)


def _weighted_share(strata: Sequence[Stratum]) -> CheckedShare:
    """Return the share of right images over strata, each image weighted by the number that it
    represents.

    The interval is Wilson's on the effective number of images: that of the variance of the weighted
    mean without strata, or of the weights alone (Kish 1965) if that is smaller.
    """
    import numpy as np

    weights: list[float] = []
    shares: list[float] = []
    for stratum in strata:
        seen = len(stratum.right)
        weights += [stratum.images / seen] * seen
        shares += [right / answers for right, answers in stratum.right]
    weight = np.array(weights) / sum(weights)
    share_of_image = np.array(shares)
    share = float(weight @ share_of_image)
    effective = 1 / float(weight @ weight)
    distance = share_of_image - share
    variance = float(weight**2 @ distance**2)
    if variance:
        by_variance = share * (1 - share) / variance
        effective = min(effective, by_variance)
    low, high = wilson_interval(share * effective, effective)
    return CheckedShare(share, min(low, share), max(high, share))


@dataclass(frozen=True, slots=True)
class RuleErrors:
    """The errors of a rule alone (`all`: of all rules together) in a shift (`all`: in all shifts
    that people were asked about). tasks: what an image must show to be right."""

    rule: str
    shift: str
    tasks: Sequence[ReviewTask]
    errors: ScreenErrors

    def to_json(self) -> dict[str, Any]:
        tasks = list(self.tasks)
        return {"rule": self.rule, "shift": self.shift, "tasks": tasks, **asdict(self.errors)}


def rule_errors(
    raters: Sequence[RaterAnswers],
    questions: Asked,
    screened: Sequence[ScreenedImage],
) -> tuple[RuleErrors, ...]:
    """Return a row for every rule that drops an image and every shift that people were asked about,
    the rules together last. Empty if no answer is of a page of `--screen`.
    """
    pages: set[tuple[str, ReviewTask]] = set()
    for rater in raters:
        for grid in rater.grids:
            own = questions.own_images(grid)
            pages |= {(own[id].shift, grid.task) for id in own.keys() & rater.sampled}
    tasks: dict[str, list[ReviewTask]] = {}
    for shift, task in product(questions.shifts, TASKS):
        if (shift, task) in pages:
            tasks.setdefault(shift, []).append(task)
    answers = _right_answers(raters, questions, tasks)
    of_shifts = [each for each in screened if each.image.shift in tasks]
    dropping: set[str] = set()
    for each in of_shifts:
        dropping |= each.dropped_by
    rows = []
    for rule in (*KEEP_RULES, ALL):
        if rule not in dropping:
            continue
        images: dict[tuple[str, bool, bool], list[CandidateImage]] = {}
        for each in of_shifts:
            image = each.image
            stratum = (image.shift, image.kept, rule in each.dropped_by)
            images.setdefault(stratum, []).append(image)
        strata: dict[str, list[Stratum]] = {}
        for (shift, _, dropped), of_stratum in images.items():
            right = [answers[image] for image in of_stratum if image in answers]
            strata.setdefault(shift, []).append(Stratum(dropped, len(of_stratum), right))
        every_stratum = []
        for shift, of_shift in strata.items():
            every_stratum += of_shift
            rows.append(RuleErrors(rule, shift, tasks[shift], screen_errors(of_shift)))
        asked_tasks = set(chain.from_iterable(tasks.values()))
        every_task = [task for task in TASKS if task in asked_tasks]
        rows.append(RuleErrors(rule, ALL, every_task, screen_errors(every_stratum)))
    return tuple(rows)


def _right_answers(
    raters: Sequence[RaterAnswers],
    questions: Asked,
    tasks: Mapping[str, Collection[ReviewTask]],
) -> Mapping[CandidateImage, tuple[int, int]]:
    """Return for each image how many people say that it is right, and how many were asked.

    It is right if it shows all that was asked about its shift: the class, the shift, or both. A
    person who was not asked everything about an image does not count.
    """
    selected: dict[CandidateImage, dict[int, dict[ReviewTask, bool]]] = {}
    for index, rater in enumerate(raters):
        for grid in rater.grids:
            for id, image in questions.own_images(grid).items():
                if id in rater.sampled:
                    of_image = selected.setdefault(image, {})
                    of_image.setdefault(index, {})[grid.task] = id in grid.selected
    counts = {}
    for image, by_rater in selected.items():
        needed = set(tasks[image.shift])
        complete = [given for given in by_rater.values() if given.keys() == needed]
        right = sum(all(given.values()) for given in complete)
        if complete:
            counts[image] = (right, len(complete))
    return counts


def errors_csv(rows: Sequence[RuleErrors]) -> str:
    """Return the table, an empty cell for a share without an answer."""
    cells = []
    for row in rows:
        values: dict[str, Any] = row.to_json()
        values["tasks"] = " ".join(row.tasks)
        for name in ("false_accepts", "false_rejects"):
            share = values.pop(name)
            if share is not None:
                values[name] = f"{share['value']:.6g}"
                values[f"{name}_low"] = f"{share['low']:.6g}"
                values[f"{name}_high"] = f"{share['high']:.6g}"
        cells.append(values)
    return csv_text(cells, _COLUMNS)

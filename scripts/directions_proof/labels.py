"""Part *wrong labels*: are findings that rest on wrong labels marked, and are no others?

Labels of rows are flipped: of any class at random, of one class to another, or within a slice (half
of the rows of a class that show one colour or place get another class's label). Answers are the
truth's, or those of a real classifier, which never saw the flipped labels. Where nothing is flipped
failures are the classifier's own: of a correlation, of a scarce subtype, of labels that were wrong
in training alone; and those of two classifiers that err as CLIP does, for they are CLIP: by its
captions, or by a line through its features that was fitted where the world is biased. A *noisy*
world of odd seed has wrong labels in all splits, and its classifier learned them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Floats32, Ints
from counterfoil.generate.screen.known_classes import known_classes
from counterfoil.mining.label_check import SeenLabels
from directions_proof.captions import captions_of, vector_of
from directions_proof.honesty import mined_rows
from directions_proof.plan import kind_of
from directions_proof.worlds import Attributes, AuditedWardrobe, AuditedWorld, Rows
from proof_files import Facts, Results

PERFECT = "the truth"
OWN = "a classifier"
ZERO_SHOT = "CLIP by captions"
LINEAR = "a line through CLIP"
RUNS = 4  # draws of flips, a way of flipping and classifier
_SEED = 100  # of flips: 0 to 3 chose the settings
# of the rows of a class, and of a slice of one
_PAIR = 0.15
_SLICE = 0.5
_LEAST_SLICE = 0.05  # of a class

Flip = Callable[[Ints, Attributes, np.random.Generator], Ints]


def _uniform(share: float) -> Flip:
    def flip(truth: Ints, scenes: Attributes, rng: np.random.Generator) -> Ints:
        classes = int(truth.max()) + 1
        others = (truth + rng.integers(1, classes, len(truth))) % classes
        return np.where(rng.random(len(truth)) < share, others, truth)

    return flip


def _class_to_class(truth: Ints, scenes: Attributes, rng: np.random.Generator) -> Ints:
    first, second = rng.choice(int(truth.max()) + 1, 2, replace=False)
    return np.where((truth == first) & (rng.random(len(truth)) < _PAIR), second, truth)


def _in_slice(truth: Ints, scenes: Attributes, rng: np.random.Generator) -> Ints:
    first, second = rng.choice(int(truth.max()) + 1, 2, replace=False)
    of_class = truth == first
    slices = [
        of_class & (scenes[name] == value)
        for name in ("background", "colour")
        for value in np.unique(scenes[name])
    ]
    slices = [
        members for members in slices if _LEAST_SLICE <= members.sum() / of_class.sum() <= 1 / 2
    ]
    chosen = slices[int(rng.integers(len(slices)))]
    return np.where(chosen & (rng.random(len(truth)) < _SLICE), second, truth)


FLIPS: Mapping[str, Flip] = {
    "8 % of all": _uniform(0.08),
    "4 % of all": _uniform(0.04),
    "2 % of all": _uniform(0.02),
    "class to class": _class_to_class,
    "within a slice": _in_slice,
}
UNFLIPPED = "none"
PLANTED = "planted in all splits"


def measure(audited: AuditedWorld) -> Facts:
    """Return every confirmed finding of every run, how many of its failing rows are flipped, and
    its mark."""
    rows = audited.validation
    world = audited.world
    wardrobe = isinstance(audited, AuditedWardrobe)
    truth = rows.labels if wardrobe else world.true_classes("validation")
    captions = np.stack([vector_of(f"a photo of a {name}") for name in world.class_names])
    answers = {PERFECT: truth, OWN: rows.answers[:, 0].astype(np.int64)}
    noisy = not wardrobe and "validation" in world.noisy_splits
    if noisy:
        runs = [(PLANTED, target, rows.labels) for target in (PERFECT, OWN)]
    else:
        answers[ZERO_SHOT] = (rows.features @ captions.T).argmax(axis=1)
        answers[LINEAR] = _linear(*audited.train, rows.features)
        runs = [(UNFLIPPED, target, truth) for target in (OWN, ZERO_SHOT, LINEAR)]
        runs += _flipped(truth, audited.attributes, audited.name)
    return {
        "kind": "wardrobe" if wardrobe else kind_of(world.name),
        "runs": [
            {
                "flips": flips,
                "target": target,
                "findings": _findings(audited, rows, labels, truth, answers[target], captions),
            }
            for flips, target, labels in runs
        ],
    }


def _flipped(truth: Ints, scenes: Attributes, name: str) -> Iterator[tuple[str, str, Ints]]:
    for flips, flip in FLIPS.items():
        for run in range(RUNS):
            labels = flip(
                truth, scenes, np.random.default_rng([_SEED, run, *name.encode(), *flips.encode()])
            )
            yield from ((flips, target, labels) for target in (PERFECT, OWN))


def _linear(train: Floats32, labels: Ints, features: Floats32) -> Ints:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000).fit(train, labels).predict(features).astype(np.int64)


def _findings(
    audited: AuditedWorld,
    rows: Rows,
    labels: Ints,
    truth: Ints,
    answers: Ints,
    captions: Floats32,
) -> list[Facts]:
    """Return what mining confirms with these labels and answers."""
    rows = replace(
        rows, labels=labels, failed=answers != labels, answers=answers[:, None].astype(np.int32)
    )
    names = audited.world.class_names
    seen = SeenLabels(
        rows.features, labels, rows.units, ~rows.failed, captions, _known(rows, captions)
    )
    findings = []
    for outcome in mined_rows(rows, audited.whitening, captions_of(audited), names, permutations=0):
        if not outcome.after.confirmed:
            continue
        hypothesis = outcome.hypothesis
        inside = hypothesis.members(rows.features, labels) & hypothesis.tested_on(
            rows.features, labels
        )
        inside = np.flatnonzero(inside & rows.failed)
        check, looked = seen.check(inside, answers[inside])
        listed = looked.rows[looked.mislabelled] if check.suspected else inside[:0]
        findings.append(
            {
                "words": hypothesis.words,
                "rows": len(inside),
                "flipped": int((labels != truth)[inside].sum()),
                "checked": check.reason is None,
                "share": check.share,
                "right_share": check.right_share,
                "marked": check.suspected,
                "listed": len(listed),
                "listed_flipped": int((labels != truth)[listed].sum()),
            }
        )
    return findings


def _known(rows: Rows, captions: Floats32) -> Bools:
    """Return (classes,) which of them CLIP knows, by the check that mining makes."""
    ids = [str(label) for label in range(len(captions))]
    images = {class_id: rows.features[rows.labels == int(class_id)] for class_id in ids}
    known = known_classes("{class}", {class_id: class_id for class_id in ids}, captions, images)
    if known is None or known.is_near_chance(known.right, known.n):
        return np.zeros(len(ids), dtype=bool)
    classes = [known.classes[class_id] for class_id in ids]
    return np.asarray(
        [cls.margin >= 0 and not known.is_near_chance(cls.right, cls.n) for cls in classes]
    )


def table(results: Results) -> list[str]:
    """Return Markdown: what is marked where over half of a finding's failing rows are flipped, and
    where fewer are."""
    lines = [
        "*Flipped*: confirmed findings with over half of their failing rows flipped. *Marked*:"
        " those said to be perhaps"
        " wrong labels, of findings whose labels were checked. *Precision*, *recall*: of the rows"
        " listed to relabel,"
        " those that are flipped; of flipped rows in confirmed findings, those that are listed.",
        "",
        "| images | flipped | answers | findings | not checked | over half flipped | marked |"
        " others | marked |"
        " precision | recall |",
        "| -- | -- | -- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    groups: dict[tuple[str, str, str], list[Facts]] = {}
    for world in results.values():
        for run in world["runs"]:
            key = world["kind"], run["flips"], run["target"]
            groups.setdefault(key, []).extend(run["findings"])
    groups = dict(sorted(groups.items(), key=_order))
    lines += [_row(key, findings) for key, findings in groups.items() if findings]
    unflipped = [
        finding
        for (_, flips, _), findings in groups.items()
        if flips == UNFLIPPED
        for finding in findings
    ]
    every = [finding for findings in groups.values() for finding in findings]
    return [*lines, _row(("all", UNFLIPPED, ""), unflipped), _row(("all", "", ""), every)]


def _order(row: tuple[tuple[str, str, str], Any]) -> tuple[int, str, str, str]:
    kind, flips, target = row[0]
    sources = [*FLIPS, PLANTED, UNFLIPPED]
    return sources.index(flips), kind, flips, target


def _row(key: tuple[str, str, str], findings: Sequence[Facts]) -> str:
    checked = [finding for finding in findings if finding["checked"]]
    flipped = [finding for finding in checked if finding["flipped"] > finding["rows"] / 2]
    others = [finding for finding in checked if finding["flipped"] <= finding["rows"] / 2]
    listed = sum(finding["listed"] for finding in findings)
    right = sum(finding["listed_flipped"] for finding in findings)
    cells = [
        *key,
        str(len(findings)),
        str(len(findings) - len(checked)),
        str(len(flipped)),
        _percent(sum(finding["marked"] for finding in flipped), len(flipped)),
        str(len(others)),
        _percent(sum(other["marked"] for other in others), len(others)),
        _percent(right, listed),
        _percent(right, sum(finding["flipped"] for finding in findings)),
    ]
    return f"| {' | '.join(cells)} |"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "–"

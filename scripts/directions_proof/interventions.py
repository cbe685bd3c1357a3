"""Part *interventions*: does what a direction finds mend the classifier, more than what others
would do (Jain, 2.3)?

Every arm fine-tunes the same classifier for the same steps. *filter* adds pictures of a pool of the
planted class: those that the direction calls hardest, the least confident, or any. The pool is the
first rows of `proof`; scores are of test. *upweight* doubles the weight of training rows that the
direction calls hard; the oracle doubles the true slice's. *synthetic* adds pictures drawn by the
lab's Stable Diffusion: by the hard caption, by the class's name, by the easy caption (the control
that should not help). *nothing* is fine-tuning alone. In a corruption world, where no caption says
what is wrong, nothing should help (Jain, B.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from counterfoil.arrays import Bools
from counterfoil.mending.baselines import unsureness
from counterfoil.mining.methods.svm import Direction
from counterfoil.mining.pools import FACTOR, hardest_rows
from directions_proof.captions import captions_of, scores_of
from directions_proof.intervals import mean_of, mean_percent
from directions_proof.painting import painted
from directions_proof.plan import kind_of
from directions_proof.ranking import planted_labels
from directions_proof.tuning import Lesson, accuracies, tuned
from directions_proof.worlds import AuditedWorld, Rows
from proof_files import Facts, Results
from proof_pictures import Pixels

ADDED = 100  # pictures a class, Jain 2023, A.5 and A.8
POOL = 6000
PLAIN = "nothing"
_CONTROLS = {
    "filter: directions": ("filter: confidence", "filter: random"),
    "upweight: directions": ("upweight: the true slice",),
    "synthetic: hard caption": ("synthetic: class name", "synthetic: easy caption"),
}


def measure(audited: AuditedWorld) -> Facts:
    """Return accuracies on test by arm."""
    labels = planted_labels(audited)
    # A slice across classes is measured in one class: the arms change one class at a time.
    label = labels[0] if audited.world.planted is None else audited.world.planted
    direction = audited.direction(audited.validation.of_class(label))
    if direction is None:
        return {}
    lessons = _lessons(audited, label, direction)
    test = audited.test
    pixels = _pictures(audited, "test", range(len(test.labels)))
    outputs = len(audited.classes)
    measured = {}
    for name, lesson in lessons.items():
        model = tuned(audited.folder, outputs, lesson(), audited.world.seed)
        measured[name] = accuracies(model, pixels, test.labels, test.members, label)
    return {"arms": measured}


def _lessons(
    audited: AuditedWorld, label: int, direction: Direction
) -> Mapping[str, Callable[[], Lesson]]:
    """Return by arm the lesson to learn from, made only when it is needed."""
    train = audited.rows("train")
    pool = audited.rows("proof", POOL)
    count = len(train.labels)
    pixels = _pictures(audited, "train", range(count))
    plain = Lesson(pixels, train.labels, np.ones(count))
    of_class = pool.of_class(label)
    decisions = direction.decision(audited.whitened(of_class))
    least = -unsureness(of_class.true_confidence)
    anyhow = np.random.default_rng(audited.world.seed).random(len(least))
    weigh = _upweighted(audited, train, label, direction)
    lessons: dict[str, Callable[[], Lesson]] = {PLAIN: lambda: plain}
    for name, order in (("directions", decisions), ("confidence", least), ("random", anyhow)):
        chosen = hardest_rows(order, of_class.labels, ADDED, of_class.numbers).rows[label]
        lessons[f"filter: {name}"] = lambda chosen=chosen: plain.with_more(
            _pictures(audited, "proof", chosen.tolist()), label
        )
    for name, rows in weigh.items():
        lessons[f"upweight: {name}"] = lambda rows=rows: plain.weighted(rows, FACTOR)
    for name, caption in _prompts(audited, label, direction).items():
        lessons[f"synthetic: {name}"] = lambda caption=caption: plain.with_more(
            painted(caption, ADDED, audited.world.seed), label
        )
    return lessons


def _upweighted(
    audited: AuditedWorld, train: Rows, label: int, direction: Direction
) -> Mapping[str, Bools]:
    of_class = train.labels == label
    return {
        "directions": of_class & (direction.decision(audited.whitened(train)) < 0),
        "the true slice": of_class & train.members,
    }


def _prompts(audited: AuditedWorld, label: int, direction: Direction) -> Mapping[str, str]:
    captions = captions_of(audited)
    candidates = captions.candidates[label]
    scores = scores_of(audited, captions, direction, label)
    return {
        "hard caption": captions.texts[candidates[int(scores.argmin())]],
        "class name": captions.texts[captions.references[label]],
        "easy caption": captions.texts[candidates[int(scores.argmax())]],
    }


def _pictures(audited: AuditedWorld, split: str, rows: Iterable[int]) -> Pixels:
    """Return some pictures of a split."""
    return np.stack([audited.world.pixels(split, row) for row in rows])


def table(results: Results) -> list[str]:
    """Return Markdown: accuracies by arm, and how much more an arm gains in the slice than its
    controls, by world."""
    lines = [
        f"Accuracies on test after fine-tuning; where pictures are added, {ADDED}. The last columns"
        " are paired.",
        "",
        "| worlds | arm | slice | rest of the class | all rows | slice, less nothing | slice, less"
        " |",
        "| -- | -- | --: | --: | --: | --: | --: |",
    ]
    for group in ("planted", "corruption"):
        measured = [
            world["arms"]
            for name, world in results.items()
            if world and (kind_of(name) == "corruption") == (group == "corruption")
        ]
        for arm in measured[0] if measured else ():
            cells = [
                mean_percent([world[arm][which] for world in measured])
                for which in ("slice", "rest", "all")
            ]
            cells.append("" if arm == PLAIN else _gain(measured, arm, PLAIN))
            cells.append(
                "; ".join(
                    f"{other}: {_gain(measured, arm, other)}" for other in _CONTROLS.get(arm, ())
                )
            )
            lines.append(
                f"| {f'{group} ({len(measured)})' if arm == PLAIN else ''} | {arm} |"
                f" {' | '.join(cells)} |"
            )
    return lines


def _gain(worlds: list[Facts], arm: str, other: str) -> str:
    return mean_of([world[arm]["slice"] - world[other]["slice"] for world in worlds]).text()

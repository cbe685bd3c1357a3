"""The ways to failures that are compared at equal images: each names classes and descriptions, one
test judges all.

- *bugs*: the method itself, as `mine` runs it.
- *keywords* (Bias-to-Text): words and phrases of the captioner's captions of a class's failures on
  the baseline, by how much closer CLIP finds them to its failures than to what is right.
- *domino*: slices of the baseline's images, which the captioner describes as the method has it
  describe clusters.
- *random*: contexts of the world's vocabulary, for any class; it needs no baseline, so that all
  images are for tests.

All but the method test as many hypotheses as it tested, its shorter words included, on as many
images as it drew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import special

from bugs_proof.audits import Audit
from bugs_proof.drawing import ProofDrawer
from bugs_proof.plan import Arm
from bugs_proof.runs import Carried, Run, carried_of, kept_run
from bugs_proof.words import contexts
from counterfoil.arrays import AnyFloats, Bools, Floats
from counterfoil.mending.domino import DominoSettings, fit_domino
from counterfoil.mining.methods.bugs.describing import ClusterDescriber, FailureCluster, pieces_said
from counterfoil.mining.methods.bugs.descriptions import CLASS, Description, Piece
from counterfoil.mining.methods.bugs.search import (
    class_baseline,
    confirmed_names,
    name_of,
    search_bugs,
)
from counterfoil.mining.methods.bugs.trials import (
    Budget,
    BugHypothesis,
    DrawnRound,
    RoundAsked,
    carry_to_test,
    filled_base,
)
from counterfoil.models.captioners import Captioner
from counterfoil.prediction.captioning import caption_images
from counterfoil.progress import Stage, listening
from counterfoil.store.layout import user_cache

_A_PHOTO = "a photo of a {}"
_TELL_EVERY = 30.0


def run_of_arm(audit: Audit, arm: Arm, captioner: Captioner, folder: Path) -> Run:
    """Return an arm's run for a target, and keep it; `folder` is the captioner's."""
    if arm == "bugs":
        return kept_run(audit, arm, folder, lambda: _bugs(audit, captioner))
    like = run_of_arm(audit, "bugs", captioner, folder)
    named = {"keywords": _keywords, "domino": _domino, "random": random_contexts}[arm]
    return kept_run(audit, arm, folder, lambda: _other(audit, arm, named, captioner, like))


def _bugs(audit: Audit, captioner: Captioner) -> Run:
    drawer = audit.drawer("bugs")
    describer = ClusterDescriber(drawer.drawer.run, captioner, (), drawer.images)
    classes = audit.recipe.classes
    with progress_printed(f"{audit.target} bugs"):
        search = search_bugs(classes, drawer, drawer.look, describer, drawer.drawer.run)
    tested = carried_of(
        search.tested, search.confirmed, search.shortened_to, drawer, audit.class_names
    )
    left_out = {
        hypothesis.id: hypothesis.reason for hypothesis in search.baseline if hypothesis.reason
    }
    return _run(audit, "bugs", search.rounds, tested, left_out, len(search.undescribed))


def _run(
    audit: Audit,
    arm: Arm,
    rounds: Sequence[DrawnRound],
    tested: tuple[Carried, ...],
    left_out: Mapping[str, str],
    undescribed: int,
) -> Run:
    images = tuple((drawn.asked.purpose, drawn.asked.images) for drawn in rounds)
    total = sum(count for _, count in images)
    return Run(audit.target, arm, total, images, tested, left_out, undescribed)


def _other(
    audit: Audit,
    arm: Arm,
    named: Callable[..., Iterator[tuple[int, Description]]],
    captioner: Captioner,
    like: Run,
) -> Run:
    drawer = audit.drawer(arm)
    wanted = max(1, len(like.tested))
    budget = Budget(like.images, 1)
    rounds = []
    base = None
    if arm != "random":
        labels = tuple(cls.label for cls in audit.recipe.classes)
        round_asked = RoundAsked(1, "baseline", audit.settings.baseline, {}, labels)
        base = drawer(round_asked)
        budget = budget.after(round_asked)
        rounds.append(base)
    chosen: dict[tuple[int, Description], None] = {}
    for each in named(audit, drawer, base, captioner):
        if len(chosen) == wanted:
            break
        chosen[each] = None
    hypotheses: list[BugHypothesis] = []
    for label, description in chosen:
        known = [hypothesis.name for hypothesis in hypotheses]
        name = name_of(audit.class_names[label], description, known)
        hypotheses.append(BugHypothesis(name, label, description))
    with progress_printed(f"{audit.target} {arm}"):
        trials, drawn_rounds = carry_to_test(
            hypotheses, drawer, budget, drawer.drawer.run, family=max(1, len(hypotheses))
        )
    confirmed = confirmed_names(trials, audit.mine)
    tested = carried_of(trials, confirmed, {}, drawer, audit.class_names)
    return _run(audit, arm, [*rounds, *drawn_rounds], tested, {}, 0)


def random_contexts(audit: Audit, *_: object) -> Iterator[tuple[int, Description]]:
    """Yield every context of every class once, in an order that the seed decides."""
    every = [
        (cls.label, context)
        for cls in audit.recipe.classes
        for context in contexts(cls.label).values()
    ]
    order = np.random.default_rng([audit.recipe.samples.seed, audit.mine.seed]).permutation(
        len(every)
    )
    for index in order.tolist():
        yield every[index]


def _keywords(
    audit: Audit, drawer: ProofDrawer, base: DrawnRound, captioner: Captioner
) -> Iterator[tuple[int, Description]]:
    """Yield keywords of all classes, best first; a keyword must be closer to failures than to the
    rest."""
    scored: list[tuple[float, int, Piece]] = []
    for label in _looked_at(audit, base):
        cls = audit.recipe.classes[label]
        rows = base.of(label)
        failed = rows[base.failed[rows]]
        start = f"{base.asked.name}/"
        keys = [base.keys[row].removeprefix(start) for row in failed.tolist()]
        filled = filled_base(drawer.drawer.run, cls)
        captions: list[str] = []
        for prefix in (filled.replace(CLASS, cls.name), filled.partition(CLASS)[0].strip()):
            made = caption_images(
                base.images, captioner, user_cache() / "captions", keys=keys, prefix=prefix,
                number=audit.settings.captions, seed=audit.mine.seed,
            )  # fmt: skip
            captions += [text for texts in made.values() for text in texts or ()]
        features = drawer.look([base.keys[row] for row in rows.tolist()])
        pieces = list(pieces_said(captions, filled, cls))
        texts = [audit.store.embed_text(_A_PHOTO.format(piece.words)) for piece in pieces]
        if texts:
            scores = keyword_scores(features, base.failed[rows], np.stack(texts))
            scored += [
                (float(score), label, piece)
                for score, piece in zip(scores, pieces, strict=True)
                if score > 0
            ]
    for _, label, piece in sorted(scored, key=lambda entry: (-entry[0], entry[1], entry[2].words)):
        yield label, Description((piece,))


def keyword_scores(features: AnyFloats, failed: Bools, texts: AnyFloats) -> Floats:
    """Return Bias-to-Text's score (k,): the mean of 100·cos over what failed, less that over what
    is right.

    features (n, width) of images of one class, failed (n,), texts (k, width), unit vectors. Zeros
    where nothing failed, or nothing else.
    """
    if failed.all() or not failed.any():
        return np.zeros(len(texts))
    close = 100 * np.asarray(features, np.float64) @ np.asarray(texts, np.float64).T
    return close[failed].mean(axis=0) - close[~failed].mean(axis=0)


def _domino(
    audit: Audit, drawer: ProofDrawer, base: DrawnRound, captioner: Captioner
) -> Iterator[tuple[int, Description]]:
    """Fit slices of "this class or another" on the baseline, class by class, and describe each
    slice's failures."""
    features = drawer.look(base.keys)
    shares = _shares(audit, drawer, base)
    clusters: list[list[FailureCluster]] = []
    for label in _looked_at(audit, base):
        share_right = shares[:, list(audit.panel.right_of(audit.target)[label])].sum(axis=1)
        arguments = (
            features,
            (base.labels == label).astype(np.int64),
            np.stack([1 - share_right, share_right], axis=1),
        )
        slices = fit_domino(*arguments, DominoSettings(), seed=audit.mine.seed)
        members = slices.scores(*arguments)
        failed = np.flatnonzero((base.labels == label) & base.failed)
        right = np.flatnonzero((base.labels == label) & ~base.failed)[: audit.settings.described]
        beside = tuple(base.keys[row] for row in right.tolist())
        of_class = []
        for index in range(members.shape[1]):
            # Failures that are more likely in the slice than outside, the surest first.
            inside = failed[members[failed, index] > 0]
            inside = inside[np.argsort(-members[inside, index], kind="stable")]
            if len(inside) >= audit.settings.fewest_failures:
                answered = np.bincount(base.answers[inside]).argmax()
                keys = tuple(base.keys[row] for row in inside.tolist())
                of_class.append(FailureCluster(label, keys, int(answered), beside))
        clusters.append(of_class)
    describer = ClusterDescriber(drawer.drawer.run, captioner, (), drawer.images)
    for index in range(max((len(cluster) for cluster in clusters), default=0)):
        for of_class in clusters:
            if index < len(of_class):
                with progress_printed("domino"):
                    (described,) = describer([of_class[index]])
                if described.description is not None:
                    yield of_class[index].label, described.description


def _shares(audit: Audit, drawer: ProofDrawer, base: DrawnRound) -> Floats:
    """Return the target's softmax (n, outputs) on the rows of the baseline."""
    parts = []
    for cell in drawer.cells[f"{base.asked.name}/"]:
        logits = audit.panel.logits(audit.store, cell.cell, audit.target)[cell.indices]
        parts.append(special.softmax(logits.astype(np.float64), axis=1))
    return np.concatenate(parts)


def _looked_at(audit: Audit, base: DrawnRound) -> Sequence[int]:
    """Return the classes that the method looks at."""
    return [cls.label for cls in audit.recipe.classes if class_baseline(base, cls).reason is None]


@contextmanager
def progress_printed(what: str) -> Iterator[None]:
    """Print now and then how far the work within is."""
    last = [time.monotonic()]

    def draw(stage: Stage) -> None:
        if time.monotonic() - last[0] > _TELL_EVERY:
            last[0] = time.monotonic()
            print(f"{what}: {stage.name} {stage.done}/{stage.total}", file=sys.stderr, flush=True)

    with listening(draw):
        yield

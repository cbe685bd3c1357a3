"""Part *screen*: what the CLIP screen does to the rates, on the same candidates with it and without
it.

Contexts are chosen by the seed and not by failures, of classes that the generator draws by their
names as the input dataset has them. Each is drawn as a round of `mine` draws it, with its base on
the same noise: behind the recipe's screen, and with `screen.object_threshold=-1`. The truth is of
renders, which all show their class. Wiles 2022 has no screen; its authors remove odd images by
hand.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
from scipy import stats

from bugs_proof.arms import progress_printed, random_contexts
from bugs_proof.audits import Audit
from bugs_proof.plan import MARGIN
from bugs_proof.proof import Proof, seen_with
from bugs_proof.words import named
from counterfoil.arrays import Floats, Ints
from counterfoil.lab.vocabulary import CLASSES, MARKS
from counterfoil.mining.methods.bugs.trials import BugHypothesis, RoundAsked
from directions_proof.intervals import (
    ANY,
    mean_of,
    mean_percent,
    percent_of,
    share_percent,
)
from proof_files import Facts, Results

WAYS: dict[str, tuple[str, ...]] = {"with": (), "without": ("screen.object_threshold=-1",)}
CONTEXTS = 24
CANDIDATES = 32


def measure(proof: Proof) -> Facts:
    """Return by way, for each context and then its base, [images, of these failed, of these of the
    class]; and both true rates.
    """
    likely = (each for each in random_contexts(proof.audit) if CLASSES[each[0]] not in MARKS)
    chosen = {f"context_{index:02d}": each for index, each in enumerate(islice(likely, CONTEXTS))}
    cells = {name: BugHypothesis(name, *each) for name, each in chosen.items()}
    labels = tuple(sorted({label for label, _ in chosen.values()}))
    measured: Facts = {}
    for way, overrides in WAYS.items():
        audit = Audit(
            proof.target,
            replace(proof.asked, overrides=(*proof.asked.overrides, *overrides)),
            proof.kept,
        )
        drawer = audit.drawer(f"screen-{way}")
        with progress_printed(f"{proof.target} {way} the screen"):
            # The number and purpose of the baseline, whose images are drawn already.
            drawn = drawer(
                RoundAsked(1, "baseline", CANDIDATES, cells, labels, audit.settings.baseline)
            )
        counts = {}
        for cell in drawer.cells[f"{drawn.asked.name}/"]:
            failed = drawn.failed[drawn.of(cell.label, cell.shift if cell.shift in cells else None)]
            shows = seen_with(audit, cell.cell, cell.label, ())[cell.indices]
            counts[cell.shift, cell.label] = [len(failed), int(failed.sum()), int(shows.sum())]
        measured[way] = [
            [counts[name, label], counts[drawn.shift_names[0], label]]
            for name, (label, _) in chosen.items()
        ]
    true = [
        proof.truth.rate(proof.target, label, named(description))
        for label, description in chosen.values()
    ]
    return measured | {"true": [[rate.rate, rate.base] for rate in true]}


def table(results: Results) -> list[str]:
    """Return Markdown: what is kept and what fails with the screen, without it and in truth; means
    over classifiers."""
    lines = [
        f"The same candidates in both lines: {CANDIDATES} of each of {CONTEXTS} contexts, and the"
        " base images of their"
        " classes. *of the class*: of the images that are kept, by the oracle. *difference*: the"
        " context's failure rate"
        " less that of its base. *error*: how far that is from the difference of renders, in the"
        " mean. *right*: of"
        f" differences above {100 * MARGIN:.0f} points, those whose true difference is above it."
        " *order*: Spearman's"
        " correlation of differences with true ones.",
        "",
        "| screen | kept | of the class | base fails | context fails | difference | error | right |"
        " order |",
        "| -- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for way in WAYS:
        measured = [
            of_target(np.array(result[way]), np.array(result["true"]))
            for result in results.values()
        ]
        # All classifiers see the same images.
        images = [percent_of(measured[0][what]) for what in ("kept", "of the class")]
        rates = [mean_percent([each[what] for each in measured]) for what in ("base", "context")]
        points = [
            mean_of([each[what] for each in measured]).points() for what in ("difference", "error")
        ]
        right = share_percent([each["right"] for each in measured])
        order = mean_of([each["order"] for each in measured], ANY).text()
        lines.append(f"| {way} | {' | '.join([*images, *rates, *points, right, order])} |")
    true = [np.mean(result["true"], axis=0) for result in results.values()]
    rates = [mean_percent([each[index] for each in true]) for index in (1, 0)]
    difference = mean_of([each[0] - each[1] for each in true]).points()
    return [*lines, f"| renders |  | 100 % | {' | '.join([*rates, difference])} |  |  |  |"]


def of_target(counts: Ints, true: Floats) -> Facts:
    """Return a target's numbers over the contexts of which an image is kept; counts: (contexts, 2,
    3)."""
    kept, _, of_class = counts[:, 0].sum(axis=0)
    some = (counts[..., 0] > 0).all(axis=1)
    rates = counts[some, :, 1] / counts[some, :, 0]
    differences, true_differences = (each[:, 0] - each[:, 1] for each in (rates, true[some]))
    above = differences > MARGIN
    return {
        "kept": kept / (CANDIDATES * len(counts)),
        "of the class": of_class / kept,
        "base": rates[:, 1].mean(),
        "context": rates[:, 0].mean(),
        "difference": differences.mean(),
        "error": np.abs(differences - true_differences).mean(),
        "right": (int((true_differences[above] > MARGIN).sum()), int(above.sum())),
        "order": stats.spearmanr(differences, true_differences).statistic,
    }

"""The tables of Wiles et al. 2022 by the shipped commands: rates, an adversarial set, and transfer
(Table 1, Figure 4).

Each number is counted again from the files that the commands wrote, without the code that counted
first; if one differs, the proof stops. Beside each rate stands the truth: renders of the world with
the attributes that are named.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import special

import results_page
from bugs_proof.answering import Panel
from bugs_proof.plan import LAB, RECIPE
from bugs_proof.truth import Truth, attributes_read
from bugs_proof.words import named, renderable
from counterfoil.arrays import Ints
from counterfoil.mining.methods.bugs.descriptions import Description, pieces_of
from counterfoil.recipe import load_recipe
from counterfoil.stats import wilson_interval
from counterfoil.store.reading import read_rows
from lab_training.oracle import Oracle
from proof_files import Facts
from proof_pictures import pixels_of

# Three classes, as in the paper, of the seven that the recipe draws by name:
# `random.Random(0).sample`. The other settings make a run of minutes: fewer descriptions a class,
# fewer pairs, wider intervals.
SHORT = (
    'mine.settings.classes=["03", "07", "09"]',
    "mine.settings.clusters=4",
    "mine.settings.images=1500",
    "mine.settings.pairs=64",
    "mine.settings.half_width=0.1",
    "mine.settings.estimate_pairs=96",
    "mine.settings.adversarial=40",
    "mine.settings.at_most=200",
)
_RENDERS = 60
_BASE = "base"
_COUNTED = ("pairs", "both", "failing", "rescued")
# (class id, index) → (output, whether it fails), by shift.
RoundAnswers = dict[str, dict[tuple[str, int], tuple[int, bool]]]


def run_commands(folder: Path, target: str, seed: int, workers: int | None = None) -> float:
    """Run `mine`, `build` and `evaluate` into a folder, and return their seconds; what is finished
    is not repeated."""
    mined = folder / "bugs"
    built = folder / "adversarial"
    changes = [part for change in (f"samples.seed={seed}", *SHORT) for part in ("--set", change)]
    at_once = [] if workers is None else ["--workers", str(workers)]
    began = time.monotonic()
    for command in (
        ["mine", RECIPE, "--target", target, "--out", str(mined), *changes, *at_once],
        ["build", str(mined / "adversarial.yaml"), "--out", str(built), *at_once],
        ["evaluate", str(built), "--out", str(folder / "evaluation")],
    ):
        subprocess.run(
            [sys.executable, "-m", "counterfoil.cli.entry", *command], check=True, stdout=sys.stderr
        )
    return time.monotonic() - began


def answers_of(folder: Path) -> RoundAnswers:
    """Read what the target answered to the accepted images of a round."""
    answers: RoundAnswers = {}
    for row in _csv(folder / "answers.csv"):
        sample = row["class_id"], int(row["index"])
        answers.setdefault(row["shift"], {})[sample] = (
            int(row["outputs"].split()[0]),
            row["failed"] == "True",
        )
    return answers


def pair_counts(answers: RoundAnswers, name: str) -> Ints:
    """Return (4,) of the pairs of a shift in a round: all, both fail, only the described fails,
    only the base fails."""
    pairs = [
        (failed, answers[_BASE][at][1])
        for at, (_, failed) in answers.get(name, {}).items()
        if at in answers[_BASE]
    ]
    described, base = np.array(pairs, dtype=bool).reshape(-1, 2).T
    alone = (described & ~base).sum()
    rescued = (~described & base).sum()
    return np.array([len(described), (described & base).sum(), alone, rescued])


def log_e(failing: int, rescued: int) -> float:
    """Return the logarithm of the e-value: θ is the chance that the description fails where the two
    disagree, mixed over Beta(½, ½) on (½, 1], against ½.
    """
    a = failing + 0.5
    b = rescued + 0.5
    return math.log(2 * special.beta(a, b) * special.betaincc(a, b, 0.5) / math.pi) + (
        failing + rescued
    ) * math.log(2)


def recount(folder: Path) -> list[Facts]:
    """Count every hypothesis of a search again from its rounds' answers, and judge all together by
    e-BH.

    Return the findings of `findings.json`, each with `tested` and `fresh` counts (4,) and its
    rounds' answers. ValueError where a count, an e-value or a verdict differs from the document's.
    """
    document = _json(folder / "findings.json")
    answers = {
        drawn["name"]: answers_of(folder / drawn["name"])
        for drawn in document["rounds"]
        if drawn["accepted"]
    }
    later = {
        drawn["name"]
        for drawn in document["rounds"]
        if drawn["purpose"] in ("estimate", "try_estimate", "until")
    }
    counted = []
    for finding in document["findings"]:
        name = finding["name"]
        test = finding["pairs"]
        rounds = [at for at, answer in answers.items() if at not in later and name in answer]
        looks = np.cumsum(
            [np.zeros(4, np.int64), *(pair_counts(answers[at], name) for at in rounds)], axis=0
        )[1:]
        _same(name, [[int(look[0]), log_e(look[2], look[3])] for look in looks], [
            [look["pairs"], look["log_e"]] for look in test["looks"]
        ])  # fmt: skip
        tested = looks[-1] if len(looks) else np.zeros(4, np.int64)
        _same(name, tested, [test[key] for key in _COUNTED])
        fresh = None
        of_fresh = {}
        if test["fresh"] is not None:
            fresh = pair_counts(answers[test["fresh"]["round"]], name)
            _same(name, fresh, [test["fresh"][key] for key in _COUNTED])
            failures = [finding["set"]["failures"], finding["rest"]["failures"]]
            _same(name, fresh[1] + fresh[[2, 3]], failures)
            of_fresh = {"fresh_answers": answers[test["fresh"]["round"]]}
        of_test = {"tested": tested, "fresh": fresh, "answers": [answers[at] for at in rounds]}
        counted.append(finding | of_test | of_fresh)
    values = np.array([log_e(finding["tested"][2], finding["tested"][3]) for finding in counted])
    m = len(values)
    # e-BH: the largest k of which k e-values reach m / (α k).
    reached = [
        k for k in range(1, m + 1) if (values >= math.log(m / (document["fdr"] * k))).sum() >= k
    ]
    least = math.log(m / (document["fdr"] * max(reached))) if reached else math.inf
    for finding, value in zip(counted, values, strict=True):
        pairs, _, failing, rescued = finding["tested"].tolist()
        large = pairs and (failing - rescued) / pairs >= document["margin"]
        verdict = bool(value >= least and large and finding["pairs"]["state"] != "futile")
        _same(finding["name"], verdict, finding["confirmed"])
    return counted


def standing(counted: Sequence[Facts]) -> list[Facts]:
    """Return the findings: confirmed ones that no shorter confirmed one replaces."""
    confirmed = {finding["name"] for finding in counted if finding["confirmed"]}
    return [
        finding
        for finding in counted
        if finding["confirmed"]
        and finding["about"].get("shortened_to") not in confirmed
        and finding["fresh"] is not None
    ]


def rates(folder: Path) -> Iterator[list[Any]]:
    """Yield the lines of Table 1, with the truth behind each."""
    recipe = load_recipe(RECIPE)
    names = [cls.name for cls in recipe.classes]
    truth = Truth(Panel(LAB, recipe), _mix(folder / "bugs"), folder / "truth", _RENDERS)
    target = _json(folder / "bugs" / "findings.json")["target"]["name"]
    for finding in standing(recount(folder / "bugs")):
        pairs, both, failing, rescued = finding["fresh"].tolist()
        # The answer that is most frequent in the test, so that the fresh images choose nothing.
        wrong = [
            output
            for answers in finding["answers"]
            for output, fails in answers[finding["name"]].values()
            if fails
        ]
        answer = Counter(wrong).most_common(1)[0][0]
        fresh = finding["fresh_answers"]
        shared = [at for at in fresh[finding["name"]] if at in fresh[_BASE]]
        towards = [
            sum(fresh[shift][at][0] == answer for at in shared)
            for shift in (_BASE, finding["name"])
        ]
        label = names.index(finding["class_names"][0])
        claims = named(
            Description(pieces_of(finding["caption"], "a photo of a {class}", names[label]) or ())
        )
        true = truth.rate(target, label, claims) if renderable(claims) else None
        yield [
            finding["caption"],
            pairs,
            _share(both + rescued, pairs),
            _share(both + failing, pairs),
            names[answer],
            _share(towards[0], pairs),
            _share(towards[1], pairs),
            "" if true is None else f"{true.base:.0%} → {true.rate:.0%}",
        ]


def collected(folder: Path, target: str) -> Iterator[list[Any]]:
    """Yield by description how many images were drawn, passed the screen, and were kept because
    they fail."""
    column = target.rpartition(":")[2]
    counts: dict[str, Counter[str]] = {}
    shards = (
        path
        for path in (folder / "adversarial" / "candidates").glob("*/*.parquet")
        if path.parent.name != _BASE
    )
    columns = ["shift", "reason", f"{column}_right"]
    for row in (
        row for shard in shards for row in pq.read_table(shard, columns=columns).to_pylist()
    ):
        of_shift = counts.setdefault(row["shift"], Counter())
        wrong = row["reason"] in ("accepted", "surplus")
        of_shift["drawn"] += 1
        of_shift["passed"] += wrong or row["reason"] == "answered_right"
        of_shift["wrong"] += wrong and row[f"{column}_right"] is False
        of_shift["kept"] += row["reason"] == "accepted"
    for shift, count in counts.items():
        yield [
            shift,
            count["drawn"],
            count["passed"],
            _share(count["wrong"], count["passed"]),
            count["kept"],
        ]


def transferred(folder: Path) -> Iterator[list[Any]]:
    """Yield by model how often it fails on the set, and on base images in the set's mixture of
    classes.

    ValueError if `transfer.csv` says otherwise.
    """
    evaluation = folder / "evaluation"
    table = pq.read_table(evaluation / "predictions.parquet").to_pydict()
    results = _json(evaluation / "results.json")
    (judged,) = results["transfer"]
    near = set(judged["classes_near_chance"])
    shifts = np.array(table["shift"])
    classes = np.array(table["class"])
    rows = np.flatnonzero((shifts != _BASE) & ~np.isin(classes, list(near)))
    measured = {
        line["model"]: line for line in _csv(evaluation / "transfer.csv") if not line["shift"]
    }
    for model in judged["models"]:
        failed = ~np.array(table[f"right.{model['name']}"], dtype=bool)
        of_class = {
            name: failed[(shifts == _BASE) & (classes == name)].mean()
            for name in set(classes[rows])
        }
        base = float(np.mean([of_class[name] for name in classes[rows]]))
        line = measured[model["name"]]
        _same(
            model["name"],
            [100 * failed[rows].mean(), 100 * base],
            [line["rate.top1"], line["base_rate.top1"]],
            0.06,
        )
        by_top3 = [f"{float(line[column]):.0f} %" for column in ("rate.top3", "base_rate.top3")]
        rates = [f"{failed[rows].mean():.0%}", f"{base:.0%}"]
        yield [model["name"], model["relation"], *rates, *by_top3]


def lines(folder: Path, target: str) -> list[str]:
    """Return all tables as Markdown."""
    return [
        "Failure rates of fresh pairs, in % (95 %), in all and towards one answer; *renders*: of"
        " the world itself.",
        "",
        *results_page.table(
            [
                "description",
                "pairs",
                "base",
                "described",
                "towards",
                "base",
                "described",
                "renders",
            ],
            rates(folder),
        ),
        "",
        f"The adversarial set: what {target} gets wrong of new images.",
        "",
        *results_page.table(
            ["description", "drawn", "pass the screen", "wrong, %", "kept"],
            collected(folder, target),
        ),
        "",
        "Transfer: how often each classifier fails on that set, and on base images in its mixture"
        " of classes; by top-3",
        "as the paper counts.",
        "",
        *results_page.table(
            ["classifier", "kinship", "fails", "on the base", "top-3", "on the base"],
            transferred(folder),
            words=2,
        ),
    ]


def _mix(folder: Path) -> dict[int, list[dict[str, str]]]:
    """Return by label what the oracle reads of each accepted base image of the first round, without
    its class."""
    rows = list(read_rows(folder / "rounds" / "01" / "dataset", ["label", "image"]))
    pixels = np.stack([pixels_of(row["image"]["bytes"]) for row in rows])
    seen = Oracle().answers(pixels)
    mix: dict[int, list[dict[str, str]]] = {}
    for index, row in enumerate(rows):
        mix.setdefault(row["label"], []).append(attributes_read(seen, index))
    return mix


def _share(count: int, of: int) -> str:
    low, high = wilson_interval(count, of)
    return f"{100 * count / of:.0f} ({100 * low:.0f} to {100 * high:.0f})"


def _json(path: Path) -> Facts:
    return json.loads(path.read_text(encoding="utf-8"))


def _csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _same(name: str, counted: Any, expected: Any, tolerance: float = 1e-9) -> None:
    counted = np.asarray(counted, dtype=float)
    expected = np.asarray(expected, dtype=float)
    if counted.shape != expected.shape or not np.allclose(
        counted, expected, rtol=tolerance, atol=tolerance
    ):
        raise ValueError(
            f"{name}: counted {counted.tolist()} from the files, and the command says"
            f" {expected.tolist()}"
        )

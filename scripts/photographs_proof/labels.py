"""Part *labels*: have the images whose label `mine` says to check a wrong label? People were asked
(Northcutt 2021).

A label counts as an error where at most two of five people chose it alone: 27 of 5,000. People saw
only 149 of the photographs, those that confident learning picked with another network. All others
count as right here, so a precision is at least what is printed, and what resembles confident
learning has an advantage.

The photographs are dealt into halves by a hash of their file names. On one half, two networks
choose: the way with the most errors in one image of a hundred, of equal ways the simplest; a list
twice as long held no more. The other half, with the four other networks, was not untouched: before
it was set apart, all ways were looked at on all photographs. Each half is a dataset of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.mining.answered import LISTED_SHARE, AnsweredRows
from counterfoil.stats import clustered_interval
from photographs_proof.networks import CLASSES, load_network, transform

CHOOSING = ("resnet20", "resnet44")
# Each a share of all images: how many a person looks at.
LENGTHS = (0.0025, 0.005, 0.01, 0.02, 0.04)
NEIGHBOURS = 10
DRAWS = 2000
BEFORE = "`mine` before: as confident in another class as usual"
NOW = "`mine` now: least confidence in the label"
TOGETHER = "`mine` now, all networks together"
ANSWER = "wrong answers, the most confident first"
_BATCH = 250
_ALL = "all"


def label_answers(
    weights: Path, photographs: Path, paths: Sequence[str], kept: Path
) -> dict[str, Floats]:
    """Return a network's probabilities [n, 10], and what its last layer reads [n, 64], kept in a
    file."""
    import torch
    from PIL import Image

    if not kept.exists():
        network = load_network(weights)
        prepare = transform()
        read: list[torch.Tensor] = []
        network.linear.register_forward_pre_hook(lambda _, given: read.append(given[0]))
        logits = []
        with torch.inference_mode():
            for start in range(0, len(paths), _BATCH):
                images = [
                    Image.open(photographs / path).convert("RGB")
                    for path in paths[start : start + _BATCH]
                ]
                logits.append(network(torch.stack([prepare(image) for image in images])))
        p = softmax(torch.cat(logits).numpy().astype(np.float64), axis=1)
        np.savez(kept, p=p, features=torch.cat(read).numpy().astype(np.float64))
    with np.load(kept) as file:
        return {name: file[name] for name in ("p", "features")}


def measured_labels(
    data: Path, photographs: Path, work: Path, networks: Sequence[str]
) -> dict[str, Any]:
    """Count for each half, way and network how many images each length lists, and how many of them
    are errors."""
    paths = sorted(path.relative_to(photographs).as_posix() for path in photographs.rglob("*.jpg"))
    votes = json.loads((data / "cifar10-label-errors-even.json").read_text(encoding="utf-8"))
    errors = np.isin(paths, [vote["path"] for vote in votes if vote["votes"]["given"] < 3])
    labels = np.array([CLASSES.index(path.split("/")[0]) for path in paths])
    judging = np.array([hashlib.sha256(path.encode()).digest()[0] % 2 == 1 for path in paths])
    counts: dict[str, Any] = {
        "asked": len(votes),
        "errors": int(errors.sum()),
        "images": len(paths),
    }
    choose = [name for name in networks if name in CHOOSING]
    judge = [name for name in networks if name not in CHOOSING]
    for half, chosen, listing_networks in (
        ("choosing", ~judging, choose),
        ("judging", judging, judge),
        ("both", judging | ~judging, networks),
    ):
        rows = np.flatnonzero(chosen)
        answers = {
            name: label_answers(
                data / "cifar10-resnets" / f"{name}.safetensors",
                photographs,
                paths,
                work / f"label-answers-{name}.npz",
            )
            for name in listing_networks
        }
        p = np.stack([answer["p"][rows] for answer in answers.values()])
        listed = {
            name: dict(_ways(answer["p"][rows], answer["features"][rows], labels[rows]))
            for name, answer in answers.items()
        }
        listed["together"] = dict(_ways_together(p, labels[rows]))
        now, before = (
            np.bincount(
                np.concatenate([listed[name][way][:most] for name in listing_networks]),
                minlength=len(rows),
            )
            for way, most in ((NOW, _length(LISTED_SHARE, rows)), (BEFORE, None))
        )
        counts[half] = {
            "images": len(rows),
            "errors": int(errors[rows].sum()),
            "ways": {name: _counts(ways, errors[rows], rows) for name, ways in listed.items()},
            "interval": clustered_interval((now * errors[rows])[now > 0], now[now > 0]),
            "gain": _gain(now, before, errors[rows]),
        }
    return counts


def _gain(now: Ints, before: Ints, errors: Bools) -> list[float]:
    """Return the difference of two precisions in points and its 95 % interval, by drawing
    photographs with replacement.

    now, before: (n,) how many networks list a photograph.
    """
    rng = np.random.default_rng(0)
    drawn = np.concatenate(
        [
            np.ones((1, len(errors))),
            rng.multinomial(len(errors), np.full(len(errors), 1 / len(errors)), DRAWS),
        ]
    )
    points = [100 * (drawn @ (each * errors)) / (drawn @ each) for each in (now, before)]
    difference = points[0] - points[1]
    return [float(difference[0]), *np.quantile(difference[1:], (0.025, 0.975)).tolist()]


def _length(share: float, rows: Ints) -> int:
    return int(np.ceil(share * len(rows)))


def _counts(ways: Mapping[str, Ints], errors: Bools, rows: Ints) -> dict[str, dict[str, list[int]]]:
    """Count by way and length the images listed and errors among them; `all` is the way's own
    length."""
    counts = {}
    for way, listed in ways.items():
        lengths = {_ALL: len(listed), **{str(share): _length(share, rows) for share in LENGTHS}}
        counts[way] = {
            name: [len(listed[:most]), int(errors[listed[:most]].sum())]
            for name, most in lengths.items()
        }
    return counts


def _rows(p: Floats, labels: Ints) -> AnsweredRows:
    """Return what `mine` knows of these answers, [networks, n, 10]; the first network is the
    audited one."""
    answers = p[0].argmax(axis=1)
    places = np.arange(len(labels))
    keys = [str(row) for row in places]
    return AnsweredRows(
        keys, labels, answers != labels, places, answers, p[0].max(axis=1), p[:, places, labels]
    )


def _ways(p: Floats, features: Floats, labels: Ints) -> Iterator[tuple[str, Ints]]:
    """Yield each way's list of one network, the first to look at first. p: [n, 10], features: [n,
    64]."""
    n = len(labels)
    places = np.arange(len(labels))
    answers = p.argmax(axis=1)
    confidence = p.max(axis=1)
    in_label = p[places, labels]
    wrong = answers != labels
    classes = range(len(CLASSES))
    usual = np.array([confidence[~wrong & (labels == label)].mean() for label in classes])
    other = np.where(np.arange(len(CLASSES)) == labels[:, None], -1, p).max(axis=1)
    yield BEFORE, _first(confidence, wrong & (confidence >= usual[answers]))
    yield NOW, _rows(p[None], labels).by_label_doubt()
    yield ANSWER, _first(other, wrong)
    yield "normalised margin", _first(other - in_label, np.full(n, True))
    # Northcutt 2021, equations 1 and 2.
    above = p >= np.array([in_label[labels == label].mean() for label in classes])
    most = np.where(above, p, -1).argmax(axis=1)
    off = above.any(axis=1) & (most != labels)
    yield "confident learning, by confidence in the label", _first(-in_label, off)
    yield "confident learning, by normalised margin", _first(other - in_label, off)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    nearest = np.argsort(-cosines, axis=1)[:, :NEIGHBOURS]
    shares = np.stack([(labels[nearest] == label).mean(axis=1) for label in classes], axis=1)
    against = (
        np.where(np.arange(len(CLASSES)) == labels[:, None], -1, shares).max(axis=1)
        - shares[places, labels]
    )
    # Equal votes are ordered by the nearness of their neighbours.
    near = (
        np.take_along_axis(cosines, nearest, axis=1)
        * np.where(labels[nearest] == labels[:, None], -1, 1)
    ).mean(1)
    yield (
        f"{NEIGHBOURS} nearest neighbours in its features",
        _first(against + 1e-3 * near, np.full(n, True)),
    )
    both = (1 - shares[places, labels]) * (1 - in_label)
    yield "neighbours × confidence in the label", _first(both, np.full(n, True))


def _ways_together(p: Floats, labels: Ints) -> Iterator[tuple[str, Ints]]:
    """Yield each way's list of several networks, [networks, n, 10]; the images may be wrong for any
    of them."""
    answers = p.argmax(axis=2)
    in_label = p[:, np.arange(len(labels)), labels]
    alike = (answers == answers[0]).all(axis=0) & (answers[0] != labels)
    yield TOGETHER, _rows(p, labels).by_label_doubt()
    yield (
        "the same wrong answer of all, by mean confidence",
        _first(p.max(axis=2).mean(axis=0), alike),
    )
    yield (
        "the same wrong answer of all, by confidence in the label",
        _first(-in_label.mean(axis=0), alike),
    )
    yield (
        "least mean confidence in the label",
        _first(-in_label.mean(axis=0), np.full(len(labels), True)),
    )


def _first(scores: Floats, listed: Bools) -> Ints:
    """Return the listed images, the highest score first."""
    places = np.flatnonzero(listed)
    return places[np.argsort(-scores[places], kind="stable")]


def labels_table(counts: Mapping[str, Any]) -> list[str]:
    judged = counts["judging"]
    networks = [name for name in judged["ways"] if name != "together"]
    low, high = (100 * bound for bound in judged["interval"])
    gains = [
        "{:+.1f} points ({:+.1f} to {:+.1f})".format(*counts[half]["gain"])
        for half in ("judging", "both")
    ]
    lines = [
        "### Are these labels right?",
        "",
        f"{counts['errors']} of {counts['images']:,} labels are errors: at most two of five people"
        " chose them alone."
        f" People saw {counts['asked']} of the photographs, picked by confident learning with"
        " another network. The rest"
        " count as right, so each precision is a lower bound.",
        "",
        "A cell: images to look at for each error; in brackets errors / images listed, summed over"
        " networks. Lengths"
        " are shares of all images. *Own*: the way's own length; – where it ranks every image.",
    ]
    for half, opening in (
        ("choosing", "The half that chose the rule"),
        ("judging", "**The other half, with the other networks**"),
    ):
        counted = counts[half]
        own_networks = [name for name in counted["ways"] if name != "together"]
        lines += [
            "",
            f"{opening}: {', '.join(own_networks)}; {counted['images']:,} photographs,"
            f" {counted['errors']} errors.",
            "",
            f"| way | {' | '.join(f'{100 * share:g} %' for share in LENGTHS)} | own |",
            "| :-- |" + " --: |" * (len(LENGTHS) + 1),
        ]
        together = counted["ways"]["together"]
        for way in (*counted["ways"][own_networks[0]], *together):
            each = (
                [together] if way in together else [counted["ways"][name] for name in own_networks]
            )
            cells = [_cell([ways[way][length] for ways in each]) for length in map(str, LENGTHS)]
            cells.append(
                _cell([ways[way][_ALL] for ways in each])
                if each[0][way][_ALL][0] < counted["images"]
                else "–"
            )
            lines.append(f"| {way} | {' | '.join(cells)} |")
    lines += [
        "",
        f"The list of `mine` has {100 * LISTED_SHARE:g} % of all images. On the other half its"
        " precision is"
        f" {low:.1f} to {high:.1f} % (95 %, clustered by image: four networks share photographs),"
        " and"
        f" {gains[0]} from what was marked before; with all photographs and networks, those that"
        " chose included,"
        f" {gains[1]}. All ways had been looked at on all photographs before this half was set"
        " apart.",
        "",
        "Each network on the other half: before, its own length; now, as `mine` lists.",
        "",
        "| network | answered wrong | errors | marked before | errors | recall, % | marked now |"
        " errors | recall, % |",
        "| :-- |" + " --: |" * 8,
    ]
    for name in networks:
        cells = [str(count) for count in judged["ways"][name][ANSWER][_ALL]]
        for marked, right in (
            judged["ways"][name][BEFORE][_ALL],
            judged["ways"][name][NOW][str(LISTED_SHARE)],
        ):
            cells += [str(marked), str(right), f"{100 * right / judged['errors']:.0f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _cell(each: Sequence[Sequence[int]]) -> str:
    images, right = (sum(pair[column] for pair in each) for column in (0, 1))
    return f"{images / right:.0f} ({right}/{images:,})" if right else f"– (0/{images:,})"

"""Pairs by noise against pairs by attention: what a pair keeps, how wide its drop's interval is,
how far it is off.

Settings were chosen on the seeds 0 to 3; what is printed is of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from counterfoil.building.build_dataset import build
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import CLASSES
from counterfoil.lab.world import render
from counterfoil.plan.layout import RowTable
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.store.layout import ROWS
from interface_proof.builds import PROOF_GUIDANCE, build_folder
from interface_proof.comparison import (
    GROUPS,
    accuracies,
    drop_errors,
    drops_of,
    interval,
    mean_over_shifts,
    rank_correlation,
    resampled,
    share,
    shown,
    without_interval,
)
from interface_proof.looks import SHIFT_NAMES, Answers, Cell, Images, dataset_images
from proof_files import Arrays, Facts

SEED = 101
# Of what is resampled.
_OF_PAIRS = 17
_OF_EDITS = 23
WAYS = ("noise", "attention")
MORE_HELD = "attention, more held"
_SAMPLES = {
    "noise": "pairs: noise",
    "attention": "pairs: attention",  # as it is by default
    MORE_HELD: "pairs: attention, held: {share: 0.6, until: 0.75}",
}
_KINDS = ("background", "weather", "light")


def pair_shifts() -> tuple[str, ...]:
    """Return the shifts that leave the object as it is: background, weather and light."""
    shifts = load_recipe("wardrobe-star").prompts.shifts
    return tuple(name for name, shift in shifts.items() if shift.kind in _KINDS)


def pair_recipe(way: str, candidates: int, guidance: float = PROOF_GUIDANCE) -> Recipe:
    """Return `wardrobe-star` with one way of pairing, over these shifts."""
    others = [
        name for name in load_recipe("wardrobe-star").prompts.shifts if name not in pair_shifts()
    ]
    changes = [
        f"samples={{candidates: {candidates}, seed: {SEED}, noise: paired, {_SAMPLES[way]}}}",
        f"generator.guidance={guidance}", "generator.batch_size=20", "screen.keep_rejected=true",
        "output.rows_per_shard=200", *(f"prompts.shifts.{name}=null" for name in others),
    ]  # fmt: skip
    return load_recipe("wardrobe-star", changes)


def pairs_folder(work: Path, way: str, candidates: int, guidance: float = PROOF_GUIDANCE) -> Path:
    """Return the folder of a build with one way of pairing."""
    return build_folder(
        work, f"pairs-{way.replace(', ', '-').replace(' ', '-')}", candidates, guidance
    )


def build_pairs(
    work: Path, way: str, candidates: int, workers: int | None, guidance: float = PROOF_GUIDANCE
) -> Path:
    """Return the benchmark with one way of pairing; build it if it does not exist."""
    directory = pairs_folder(work, way, candidates, guidance)
    build(pair_recipe(way, candidates, guidance), directory, workers=workers)
    return directory


def compare_pairs(ways: dict[str, Answers], truth: Answers) -> Facts:
    """Return for every way, and for true pairs, what the oracle sees kept; drops, their intervals
    and their errors."""
    table: Facts = {}
    figures: Facts = {}
    every = {**ways, "truth": truth}
    weights = {}
    measured = {}
    for name, answers in every.items():
        weights[name] = resampled(answers.looks, _OF_PAIRS + (name == "truth"))
        measured[name] = accuracies(answers.looks, weights[name])
    for name, answers in every.items():
        flags = {
            "class right": answers.looks.object,
            "class kept": answers.kept_in_pairs(answers.seen),
            "colour kept": answers.kept_in_pairs(answers.colour),
            "shift there": answers.looks.shift,
        }
        kept = {}
        for what, seen in flags.items():
            shares = share(seen, answers.pairs, weights[name])
            kept[what] = np.nanmean(shares, 2)[:, 1:]
        drops = drops_of(measured[name], measured[name].counted)[2]
        figures[name] = {"kept": kept, "drops": drops, "width": _widths(drops)}
        table[name] = {what: interval(mean_over_shifts(values)) for what, values in kept.items()}
        table[name]["right and wrong alike"] = without_interval(_within_pairs(answers))
        if name != "truth":
            errors = drop_errors(measured[name], measured["truth"])
            figures[name]["errors"] = errors
            table[name] |= {
                f"error, {group}": interval(mean_over_shifts(values))
                for group, values in errors.items()
            }
    noise = figures["noise"]
    width = {}
    less = {}
    for name in ways:
        if name != "noise":
            width[name] = float(np.nanmean(figures[name]["width"]) / np.nanmean(noise["width"]))
            less[name] = {
                group: interval(
                    mean_over_shifts(figures[name]["errors"][group] - noise["errors"][group])
                )
                for group in GROUPS
            }
    by_shift = {
        SHIFT_NAMES[s + 1]: {
            name: {what: float(values[0, s]) for what, values in figure["kept"].items()}
            | {"drop": float(np.nanmean(figure["drops"][0, s]))}
            for name, figure in figures.items()
        }
        for s in range(len(SHIFT_NAMES) - 1)
        if np.isfinite(figures["noise"]["drops"][0, s]).any()
    }
    drawn = next(iter(ways.values())).pairs.shape[2]
    return {
        "drawn": drawn,
        "ways": table,
        "width": width,
        "error_change": less,
        "by_shift": by_shift,
    }


def _widths(drops: NDArray) -> NDArray:
    """Return the width of the 95 % interval of each drop [shift, model]; NaN without an
    interval."""
    low, high = np.percentile(drops[1:], [2.5, 97.5], axis=0)
    return high - low


def _within_pairs(answers: Answers) -> float:
    """Return how right answers on a shifted image correlate with those on its base, in cells,
    averaged over models."""
    right = answers.looks.correct.astype(float)
    correlations = []
    for s in range(1, len(right)):
        for c in range(right.shape[1]):
            pair = answers.pairs[s, c]
            for m in range(right.shape[3]):
                base = right[0, c, pair, m]
                shifted = right[s, c, pair, m]
                if len(base) > 2 and base.std() and shifted.std():
                    correlations.append(np.corrcoef(base, shifted)[0, 1])
    return float(np.mean(correlations)) if correlations else float("nan")


def pair_tables(report: Facts, guidance: float = PROOF_GUIDANCE) -> list[str]:
    """Return the result of `compare_pairs` as Markdown."""
    ways = report["ways"]
    lines = [
        f"### Pairs by noise and by attention, guidance {guidance:g}",
        "",
        f"Seed {SEED}, {report['drawn']} pairs a class and shift, class tokens, unscreened;"
        " background, weather and"
        " light shifts, averaged.",
        "Shares and errors in points, with 95 % intervals over pairs. The last column holds true"
        " renders of one scene,"
        " and says what the oracle itself reads.",
        "",
    ]
    rows = []
    for what in dict.fromkeys(name for row in ways.values() for name in row):
        rows.append((what, [shown(row.get(what)) for row in ways.values()]))
    lines += [*_table("", ways, rows), ""]
    for way, less in report["error_change"].items():
        lines.append(
            f"Intervals of the drops of single classifiers are {report['width'][way]:.2f} as wide"
            f" with {way}. Its error"
            " less that of noise, in points: "
            + ", ".join(f"{group} classes {shown(value)}" for group, value in less.items())
            + "."
        )
    columns = [(what, way) for what in _SHOWN for way in ways]
    rows = []
    for shift, row in report["by_shift"].items():
        rows.append((shift, [f"{100 * row[way][what]:.0f}" for what, way in columns]))
    titles = [f"{what}, {way}" for what, way in columns]
    return [*lines, "", *_table(" shift", titles, rows)]


def _table(
    first: str, titles: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]
) -> list[str]:
    names = list(titles)
    lines = [f"|{first} | {' | '.join(names)} |", "| --- |" + " ---: |" * len(names)]
    return [*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)]


_SHOWN = ("class kept", "colour kept", "shift there", "drop")


_SPLIT = "validation"
EDIT_SEED = 100  # which rows: way and guidance were chosen on those of the seeds 0 to 3
REPLICATES = 1000


def edit_recipe(candidates: int, guidance: float) -> Recipe:
    """Return `wardrobe-star`'s base and the shifts of the pairs, as edits of validation images."""
    drawn = pair_recipe("noise", candidates)
    left = [
        name
        for name in load_recipe("wardrobe-star").prompts.shifts
        if name not in drawn.prompts.shifts
    ]
    changes = [
        "generator.kind=edit", f"generator.split={_SPLIT}", f"generator.guidance={guidance}", "generator.batch_size=20",
        f"samples={{candidates: {candidates}, seed: {EDIT_SEED}}}", "screen.keep_rejected=true",
        "screen.keep=[{same_image: {}}, thresholds]", "output.rows_per_shard=200",
        *(f"prompts.shifts.{name}=null" for name in left),
    ]  # fmt: skip
    return load_recipe("wardrobe-star", changes)


def build_edits(work: Path, candidates: int, guidance: float, workers: int | None) -> Path:
    """Return the folder of the edits; build them if they do not exist."""
    directory = build_folder(work, "edits", candidates, guidance)
    build(edit_recipe(candidates, guidance), directory, workers=workers)
    return directory


def rows_of(directory: Path) -> dict[tuple[int, int], int]:
    """Return (label, index) → the row that is edited."""
    table = RowTable.read((directory / ROWS).read_bytes(), ROWS, "edited")
    labels = {cls.id: cls.label for cls in load_recipe("wardrobe-star").classes}
    return {
        (labels[name], index): entry.row
        for (_, name), entries in table.rows.items()
        for index, entry in enumerate(entries)
    }


def true_edits(rows: dict[tuple[int, int], int]) -> Images:
    """Return the same rows, and the same scenes rendered under each shift."""

    def images(shift: int, label: int) -> Cell:
        for (row_label, index), row in sorted(rows.items()):
            if row_label == label:
                scene = wardrobe_scene(_SPLIT, row)
                yield (
                    index,
                    True,
                    render(scene if shift == 0 else scene.shifted(SHIFT_NAMES[shift])),
                )

    return images


def compare_edits(ways: dict[str, Answers], scenes: Answers, truth: Answers) -> Facts:
    """Compare edits with `scenes`, answers to the true counterfactuals of the edited rows, and
    `truth`, to many rows.

    Flips are compared pair by pair, in the cells that all have; drops with `truth`.
    """
    complete = np.all([answers.pairs for answers in (*ways.values(), scenes)], axis=0)[1:]
    true_flips = _flips(scenes)
    of_truth = resampled(truth.looks, _OF_EDITS + 1)
    right = accuracies(truth.looks, of_truth)
    rng = np.random.default_rng(_OF_EDITS)
    draws = _draws(rng, complete.shape[1], complete.shape[2])
    table: Facts = {}
    resampled_rates: Arrays = {}
    for name, answers in ways.items():
        flips = _flips(answers)
        rates = np.stack([_rates(flips, true_flips, complete, draw) for draw in draws])
        resampled_rates[name] = rates
        looks = answers.looks
        seen = accuracies(looks, resampled(looks, _OF_EDITS))
        counted = seen.counted & right.counted
        errors = drop_errors(seen, right)
        estimated, true = (drops_of(each, counted)[2].mean(-1)[0] for each in (seen, right))
        measured = np.isfinite(estimated) & np.isfinite(true)
        alike = rank_correlation(estimated[measured][None], true[measured][None])
        table[name] = {
            **{what: interval(rates[:, index]) for index, what in enumerate(_RATES)},
            "class kept": _kept(answers, answers.seen, draws),
            "colour kept": _kept(answers, answers.colour, draws),
            "shift there": _share(answers.looks.shift[1:], answers.pairs[1:], draws),
            **{f"error of the drop, {group}": interval(mean_over_shifts(values)) for group, values in errors.items()},
            "rank correlation": without_interval(float(alike[0])),
        }  # fmt: skip
    edits = resampled_rates["edits"]
    others = {name: rates for name, rates in resampled_rates.items() if name != "edits"}
    more = {}
    for name, rates in others.items():
        less = edits - rates
        columns = {"agreement": 0, "kappa": 2, "F1": 3}
        more[name] = {what: interval(less[:, column]) for what, column in columns.items()}
    by_shift = {}
    for s in range(complete.shape[0]):
        if complete[s].any():
            by_shift[SHIFT_NAMES[s + 1]] = {
                name: {
                    "agree": float((_flips(answers)[s] == true_flips[s])[complete[s]].mean()),
                    "drop": _drop(answers, s + 1),
                }
                for name, answers in {**ways, "true": scenes}.items()
            }
    rows = scenes.pairs.shape[2]
    true_rate = float(true_flips[complete].mean())
    return {"rows": rows, "ways": table, "more": more, "by_shift": by_shift, "true_rate": true_rate}


_RATES = ("flips agree", "flips agree by chance", "kappa of flips", "F1 of flips")


def _flips(answers: Answers) -> NDArray:
    """Return where a classifier answers a shifted image unlike its base: bool (shift - 1, class,
    unit, model)."""
    return answers.said[1:] != answers.said[:1]


def _draws(rng: np.random.Generator, classes: int, units: int) -> NDArray:
    """Draw units of each class with replacement; the first draw is each once: (1 + replicates,
    class, unit)."""
    drawn = rng.integers(0, units, (REPLICATES, classes, units))
    return np.concatenate([np.broadcast_to(np.arange(units), (1, classes, units)), drawn])


def _rates(flips: NDArray, true: NDArray, complete: NDArray, draw: NDArray) -> tuple[float, ...]:
    """Return agreement, that by chance, kappa and F1 of flips, over all shifts, classes, models and
    these units."""
    at = np.arange(draw.shape[0])[:, None], draw
    mask = complete[:, *at]
    estimated = flips[:, *at]
    right = true[:, *at]
    assert mask.any()
    chance = _chance(estimated, right, mask)
    estimated = estimated[mask]
    right = right[mask]
    agree = float((estimated == right).mean())
    both = (estimated & right).sum()
    kappa = (agree - chance) / (1 - chance) if chance < 1 else 0.0
    return agree, chance, kappa, float(2 * both / max(1, estimated.sum() + right.sum()))


def _chance(flips: NDArray, true: NDArray, complete: NDArray) -> float:
    """Return the agreement of pairs dealt anew within a cell: class, shift and classifier are
    right, the image is another."""
    rows = complete.sum(2)  # (shift - 1, class)
    p, q = (
        (each & complete[..., None]).sum(2) / np.maximum(rows, 1)[..., None]
        for each in (flips, true)
    )
    return float(((p * q + (1 - p) * (1 - q)).mean(2) * rows).sum() / rows.sum())


def _kept(answers: Answers, what: NDArray, draws: NDArray) -> Facts:
    return _share(answers.kept_in_pairs(what)[1:], answers.pairs[1:], draws)


def _share(flags: NDArray, complete: NDArray, draws: NDArray) -> Facts:
    at = np.arange(complete.shape[1])[:, None]
    units = complete.shape[2]
    values = [flags[:, at, draw % units][complete[:, at, draw % units]].mean() for draw in draws]
    return interval(np.array(values))


def _drop(answers: Answers, shift: int) -> float:
    right = answers.looks.correct
    pairs = answers.pairs[shift]
    return float(right[0][pairs].mean() - right[shift][pairs].mean())


def edit_tables(report: Facts) -> list[str]:
    """Return the result of `compare_edits` as Markdown."""
    ways = report["ways"]
    lines = [
        "### Edits of real images",
        "",
        f"{report['rows']} validation images a class, edited by inversion with class tokens,"
        " unscreened; background,"
        " weather and light shifts.",
        f"Answers of eight classifiers truly flip in {100 * report['true_rate']:.1f} % of pairs."
        " *By chance*: the"
        " images of a class under a shift are dealt anew. *Kappa*: agreement beyond chance, of what"
        " is possible beyond"
        " it. All but the rank correlation in %.",
        "",
    ]
    rows = []
    for what in next(iter(ways.values())):
        rows.append((what, [shown(row[what]) for row in ways.values()]))
    lines += _table("", ways, rows)
    more = (
        f"{name}: " + ", ".join(f"{what} {shown(value)}" for what, value in row.items())
        for name, row in report["more"].items()
    )
    lines += ["", f"More than pairs drawn from text, in points: {'; '.join(more)}.", ""]
    names = [*ways, "true"]
    titles = [f"flips agree, {way}" for way in ways] + [f"drop, {name}" for name in names]
    rows = []
    for shift, row in report["by_shift"].items():
        cells = [f"{100 * row[way]['agree']:.0f}" for way in ways]
        cells += [f"{100 * row[name]['drop']:.0f}" for name in names]
        rows.append((shift, cells))
    return [*lines, *_table(" shift", titles, rows)]


SHOWN = ("base", "in_the_grass", "in_the_snow", "in_the_rain", "at_dusk", "at_night")
_LABELS = (0, 3, 5, 8)  # of each band: the first image of these classes
_SIDE = 64
_GAP = 2
_HEAD = 14

Row = Sequence[NDArray]


def pair_sheet(noise: Path, attention: Path) -> Image.Image:
    """Draw the same noise in pairs of either kind, side by side."""
    return _beside(
        _sheet("pairs: noise", _images(noise)), _sheet("pairs: attention", _images(attention))
    )


def edit_sheet(edits: Path) -> Image.Image:
    """Draw edits of rows, and the same scenes rendered under each shift."""
    rows = rows_of(edits)
    scenes = [wardrobe_scene("validation", rows[label, 0]) for label in _LABELS]
    true = [
        [render(scene if shift == "base" else scene.shifted(shift)) for shift in SHOWN]
        for scene in scenes
    ]
    return _beside(
        _sheet("edits of real images", _images(edits)),
        _sheet("the truth", true),
    )


def _images(directory: Path) -> list[Row]:
    """Return the first image of each class under each of the shifts, rejected or not."""
    _, images = dataset_images(directory)
    rows: list[Row] = []
    for label in _LABELS:
        cells = [images(SHIFT_NAMES.index(shift), label) for shift in SHOWN]
        rows.append([next(pixels for index, _, pixels in cell if index == 0) for cell in cells])
    return rows


def _sheet(title: str, rows: Sequence[Row]) -> Image.Image:
    step = _SIDE + _GAP
    sheet = Image.new("RGB", (step * len(SHOWN), 2 * _HEAD + step * len(rows)), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    draw.text((0, 0), title, "black", font)
    for column, shift in enumerate(SHOWN):
        draw.text(
            (column * step, _HEAD), shift.replace("_", " ").removeprefix("in the "), "#444444", font
        )
        for index, row in enumerate(rows):
            sheet.paste(Image.fromarray(row[column]), (column * step, 2 * _HEAD + index * step))
    return sheet


def _beside(left: Image.Image, right: Image.Image) -> Image.Image:
    both = Image.new(
        "RGB", (left.width + 12 + right.width, max(left.height, right.height)), "white"
    )
    both.paste(left, (0, 0))
    both.paste(right, (left.width + 12, 0))
    return both.resize((both.width * 3 // 2, both.height * 3 // 2), Image.Resampling.LANCZOS)


def write_sheets(folder: Path, noise: Path, attention: Path, edits: Path) -> None:
    """Write `pairs.webp` and `edits.webp`, of the classes t-shirt, dress, sandal and bag."""
    assert [CLASSES[label] for label in _LABELS] == ["t-shirt", "dress", "sandal", "bag"]
    pair_sheet(noise, attention).save(folder / "pairs.webp", quality=80, method=6)
    edit_sheet(edits).save(folder / "edits.webp", quality=80, method=6)

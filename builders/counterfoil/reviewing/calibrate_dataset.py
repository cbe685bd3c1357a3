"""`calibrate`: the scores and images of a dataset's shifts and objects on one HTML page, and the
cut that it gives."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil import __version__
from counterfoil.dataset.card.contact_sheets import decode_reduced, encoded_images
from counterfoil.dataset.card.index_page import write_index
from counterfoil.dataset.reading import read_dataset
from counterfoil.errors import UserError, warn
from counterfoil.generate.screen.doubts import ScreenDoubts, screen_doubts
from counterfoil.options import takes
from counterfoil.plan.layout import sample_key
from counterfoil.recipe import layer_text
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.loader import layer_head
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.strict_yaml import dump_yaml
from counterfoil.regular_files import named_path
from counterfoil.report.pictures import data_uri, encode_webp
from counterfoil.report.templates import template_environment
from counterfoil.report.words import in_words, preview_sentence
from counterfoil.reviewing.model_answers import MOST_AN_ANSWER, answered_shifts, spread_ranks
from counterfoil.reviewing.options import CalibrateOptions
from counterfoil.reviewing.screen_scores import (
    DECIMALS,
    ObjectGroup,
    ShiftScores,
    has_threshold,
    object_groups,
    refuse_other_shifts,
    scores_of,
    shown_groups,
    steps_of,
    thresholds_over,
)
from counterfoil.store.atomic import try_folder, write_atomically
from counterfoil.store.layout import PRIVATE
from counterfoil.store.receipts import preview_images

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe
    from counterfoil.store.receipts import Receipt

AS_IT_IS = "current threshold"
SIDE = 96
_QUALITY = 75
# The most pictures on a page. A picture has about 4 kB, so all have about 8 MB at most.
MOST_PICTURES = 2000
MOST_A_SHIFT = 60
MOST_A_CLASS = 40
MOST_A_CONTRAST = 30
# How many pictures of a slider are next to its starting threshold, half of them on either side, and
# how many are at each end of the scores.
_NEXT_TO_THE_LINE = 16
_AT_THE_ENDS = 4

# Thresholds to start from, as percentiles of the shift's scores.
CANDIDATE_PERCENTILES = (5.0, 10.0, 25.0, 50.0)
TEMPLATE = "calibrate.html.j2"
# With at most this many candidates, the page holds every score, in about 3 MB. With more, it holds
# only counts at the steps of each shift's slider.
MOST_CANDIDATES = 200_000
# Keep rules that the page's counts follow.
_KNOWN = ("thresholds", "visible", "same_image", "question", "detected")
# In the private folder, because the page is not part of the dataset.
PAGE = f"{PRIVATE}/calibrate.html"
MOST_SHIFTS = 100


@dataclass(frozen=True, slots=True)
class Picture:
    """One candidate on the page: the index of its shift's scores, and its rank there."""

    unit: int
    rank: int
    key: str
    class_name: str
    shift: str
    score: float | None
    object_score: float
    contrast: float | None
    uri: str


def choose_pictures(scored: ScoredShifts) -> set[tuple[int, int]]:
    """Return the candidates whose pictures go beside the sliders of shifts, contrasts and classes,
    and beside the answers of models: the index of the shift's scores, and the rank there."""
    scores = scored.scores
    objects = [class_scores for group in scored.shown_groups for class_scores in group.objects]
    answers: list[tuple[int, np.ndarray]] = []
    for unit, score in enumerate(scores):
        answers += [(unit, values) for values in score.answers.values()]
    contrasts = [unit for unit in scored.shown if scores[unit].contrast is not None]
    wanted = MOST_A_SHIFT * len(scored.shown)
    wanted += MOST_A_CLASS * len(objects)
    wanted += MOST_A_CONTRAST * len(contrasts)
    wanted += MOST_AN_ANSWER * len(answers)
    share = min(1.0, MOST_PICTURES / max(1, wanted))
    chosen: set[tuple[int, int]] = set()
    for unit in scored.shown:
        score = scores[unit]
        most = int(share * MOST_A_SHIFT)
        ranks = chosen_places(score.scores, score.has_image, score.threshold, most)
        chosen |= {(unit, rank) for rank in ranks}
        if score.contrast is not None:
            order = np.argsort(score.contrast, kind="stable")
            contrast = score.contrast[order]
            images = score.has_image[order]
            most = int(share * MOST_A_CONTRAST)
            indices = chosen_places(contrast, images, score.least_contrast, most)
            chosen |= {(unit, int(order[index])) for index in indices}
    for unit, values in answers:
        most = int(share * MOST_AN_ANSWER)
        ranks = spread_ranks(values, scores[unit].has_image, most)
        chosen |= {(unit, rank) for rank in ranks}
    for class_scores in objects:
        most = int(share * MOST_A_CLASS)
        line = class_scores.threshold
        indices = chosen_places(class_scores.scores, class_scores.has_image, line, most)
        units = class_scores.units[indices].tolist()
        ranks = class_scores.ranks[indices].tolist()
        chosen |= set(zip(units, ranks, strict=True))
    return chosen


def read_pictures(
    directory: Path,
    receipts: Sequence[Receipt],
    scored: ScoredShifts,
) -> list[Picture]:
    """Return the pictures that `choose_pictures` chooses, by shift and ascending score."""
    classes = scored.recipe.classes
    wanted: dict[int, dict[str, tuple[int, int]]] = {}
    for unit, rank in choose_pictures(scored):
        score = scored.scores[unit]
        cls = classes[score.labels[rank]]
        key = sample_key(score.shift.name, cls.id, int(score.indices[rank]))
        of_shard = wanted.setdefault(int(score.shards[rank]), {})
        of_shard[key] = (unit, rank)
    pictures = []
    for shard, left in sorted(wanted.items()):
        for what in ("data", "rejected"):
            file = receipts[shard].file(what)
            if file is None or not left:
                continue
            for key, encoded in encoded_images(directory / file.path, set(left)):
                image = decode_reduced(encoded, f"{file.path}: {key}", SIDE)
                uri = data_uri(encode_webp(image, _QUALITY, method=6))
                unit, rank = left.pop(key)
                score = scored.scores[unit]
                shift_score = contrast = None
                if has_threshold(score.shift):
                    shift_score = float(score.scores[rank])
                if score.contrast is not None:
                    contrast = float(score.contrast[rank])
                picture = Picture(
                    unit=unit,
                    rank=rank,
                    key=key,
                    class_name=classes[score.labels[rank]].name,
                    shift=score.shift.name,
                    score=shift_score,
                    object_score=float(score.object_scores[rank]),
                    contrast=contrast,
                    uri=uri,
                )
                pictures.append(picture)
    pictures.sort(key=lambda picture: (picture.unit, picture.rank))
    return pictures


def chosen_places(
    scores: np.ndarray,
    has_image: np.ndarray,
    line: float | None,
    most: int,
) -> list[int]:
    """Choose at most `most` images and return their indices in the ascending scores [n]. The images
    are at both ends, next to the threshold `line`, and evenly spread over the rest.
    """
    available = np.flatnonzero(has_image)
    if available.size <= most:
        return available.tolist()
    ends = min(_AT_THE_ENDS, most // 6)
    chosen = {*range(ends), *range(available.size - ends, available.size)}
    if line is not None:
        at = int(np.searchsorted(scores[available], np.float32(line), side="left"))
        half = min(_NEXT_TO_THE_LINE, most // 3) // 2
        first = max(0, at - half)
        chosen.update(range(first, min(available.size, at + half)))
    spread = np.linspace(0, available.size - 1, most - len(chosen))
    chosen.update(spread.round().astype(int).tolist())
    return available[sorted(chosen)].tolist()


@dataclass(frozen=True)
class ScoredShifts:
    """The content of the page."""

    recipe: Recipe
    directory: str
    scores: Sequence[ShiftScores]
    shown: Sequence[int]
    """Indices in `scores` of the shifts that have a slider."""
    groups: Sequence[ObjectGroup]
    shown_groups: Sequence[ObjectGroup]
    """The groups with the objects that have a slider."""
    candidates: int
    """The number in the whole dataset."""
    n_shifts: int
    """The number in the whole dataset."""
    doubts: Sequence[str]
    """Why CLIP may not know the classes."""
    exact: bool
    """Whether the page holds the scores of all candidates, and has sliders of objects too."""
    preview: str
    """The sentence of a preview, or empty."""


def calibration_page(
    scored: ScoredShifts,
    pictures: Sequence[Picture],
) -> str:
    """Return the page; equal datasets give equal bytes."""
    recipe = scored.recipe
    scores = scored.scores
    groups = scored.groups
    places: list[dict[int, int]] = [{} for _ in scores]
    stores: dict[str, list[tuple[int, Picture]]] = {}
    for at, picture in enumerate(pictures):
        places[picture.unit][picture.rank] = at
        stores.setdefault(picture.shift, []).append((at, picture))
    names_of = []
    for group in groups:
        names_of.append([scores[unit].shift.name for unit in group.units])
    shifts = recipe.all_shifts()
    used_kinds = {type(rule) for shift in shifts for rule in shift.keep}
    others = sorted(KEEP_RULES.keys() - set(_KNOWN))
    quotas = {shift.accepted for shift in shifts if shift.accepted is not None}
    filters = {"in_words": in_words, "number": "{:,}".format}
    environment = template_environment(TEMPLATE, filters)
    return environment.get_template(TEMPLATE).render(
        name=recipe.name,
        preview=scored.preview,
        directory=scored.directory,
        shifts=[scores[unit] for unit in scored.shown],
        shown=scored.shown,
        groups=scored.shown_groups,
        names_of=names_of,
        data=_page_data(scored, pictures),
        stores=stores,
        exact=scored.exact,
        kept=recipe.screen.keep_rejected,
        candidates=scored.candidates,
        most_candidates=MOST_CANDIDATES,
        n_shifts=scored.n_shifts,
        n_objects=sum(len(group.objects) for group in groups),
        n_shown_objects=sum(len(group.objects) for group in scored.shown_groups),
        answered=answered_shifts(scores[:MOST_SHIFTS], places),
        pictures=pictures,
        other_rules=[name for name in others if KEEP_RULES[name] in used_kinds],
        quotas=sorted(quotas),
        doubts=scored.doubts,
        version=__version__,
    )


def _page_data(
    scored: ScoredShifts,
    pictures: Sequence[Picture],
) -> dict[str, Any]:
    """Return what the page's script reads."""
    scores = scored.scores
    exact = scored.exact
    contrasts = []
    rows = None
    if exact:
        rows = _rows(scores)
        for unit in scored.shown:
            if scores[unit].contrast is not None:
                slider = _contrast(scored.recipe, scores[unit])
                contrasts.append({"unit": unit, **slider})
    sizes = [score.scores.size for score in scores]
    first_rows = [0, *itertools.accumulate(sizes)]
    picture_data = []
    for picture in pictures:
        rank = picture.rank
        score = scores[picture.unit]
        row_data = {
            "unit": picture.unit,
            "row": first_rows[picture.unit] + rank,
            "label": int(score.labels[rank]),
            "shift": picture.score,
            "object": picture.object_score,
            "contrast": picture.contrast,
            "passes": bool(score.others_pass[rank]),
        }
        picture_data.append(row_data)
    return {
        "exact": exact,
        "units": [_unit(score) for score in scores],
        "rows": rows,
        "shifts": [{"unit": unit, **_shift(scores[unit], exact)} for unit in scored.shown],
        "contrasts": contrasts,
        "groups": _groups(scored),
        "pictures": picture_data,
        "head": layer_head(scored.recipe),
    }


def _unit(score: ShiftScores) -> dict[str, Any]:
    """Return a shift with its current thresholds."""
    threshold = score.threshold
    if not has_threshold(score.shift):
        threshold = None
    elif threshold is None:
        threshold = 2.0  # which no score reaches
    contrast = None
    if score.contrast is not None:
        contrast = score.least_contrast
    return {
        "name": score.shift.name,
        "key": _yaml_key(score.shift.of),
        "top": score.shift.top,
        "base": score.shift.name == BASE,
        "candidates": score.candidates,
        "scored": int(score.scores.size),
        "threshold": threshold,
        "contrast": contrast,
    }


def _contrast(recipe: Recipe, score: ShiftScores) -> dict[str, Any]:
    """Return the slider of a shift's least contrast, and the keep rules that it becomes one of."""
    keep = recipe.prompts.shifts[score.shift.of].keep
    if keep is None:
        keep = recipe.screen.keep
    return {
        "starts": [{"text": AS_IT_IS, "value": score.least_contrast or 0}],
        "thresholds": list(range(256)),
        "keep": [rule.model_dump(mode="json") for rule in keep],
    }


def _groups(scored: ScoredShifts) -> list[dict[str, Any]]:
    """Return the sliders of objects by group, and the current thresholds of all objects."""
    prompts = scored.recipe.prompts
    specs = {BASE: prompts.base} | dict(prompts.shifts)
    of_shifts = [specs[score.shift.of].object_threshold for score in scored.scores]
    everywhere = len(scored.groups) == 1 and all(spec is None for spec in of_shifts)
    groups = []
    for group, shown in zip(scored.groups, scored.shown_groups, strict=True):
        thresholds = {each.cls.label: each.threshold for each in group.objects}
        sliders = []
        for class_scores in shown.objects:
            cls = class_scores.cls
            slider = {
                "id": cls.id,
                "key": _yaml_key(cls.id),
                "label": cls.label,
                "starts": [{"text": AS_IT_IS, "value": class_scores.threshold}],
                "thresholds": thresholds_over(class_scores.scores),
            }
            sliders.append(slider)
        group_data = {
            "units": list(group.units),
            "screen": everywhere,
            # Thresholds by label, also of classes without a slider.
            "values": [thresholds.get(cls.label, -1.0) for cls in scored.recipe.classes],
            "objects": sliders,
        }
        groups.append(group_data)
    return groups


def _rows(scores: Sequence[ShiftScores]) -> dict[str, str]:
    """Return the scores of all candidates, shift after shift, as little-endian arrays in base64."""
    contrasts = []
    for score in scores:
        if score.contrast is not None:
            contrasts.append(score.contrast)
        else:
            contrasts.append(np.full(score.scores.size, np.inf))
    measured = any(score.contrast is not None for score in scores)
    flags = [score.has_image + 2 * score.visible for score in scores]
    return {
        "shift": _packed([score.scores for score in scores], "<f4"),
        "object": _packed([score.object_scores for score in scores], "<f4"),
        "label": _packed([score.labels for score in scores], "<u2"),
        "flags": _packed(flags, "u1"),
        "contrast": _packed(contrasts, "<f4") if measured else "",
    }


def _packed(
    arrays: Sequence[np.ndarray],
    form: str,
) -> str:
    values = np.concatenate(arrays).astype(form)
    return base64.b64encode(values.tobytes()).decode()


def _shift(
    score: ShiftScores,
    exact: bool,
) -> dict[str, Any]:
    """Return the slider of a shift: its steps and its starting values. If the page holds no scores,
    also return how many candidates each step accepts.
    """
    spec = score.shift.threshold
    text = AS_IT_IS
    if spec is not None and spec.percentile is not None:
        text = f"the recipe’s percentile {spec.percentile:g}"
    starts: list[dict[str, Any]] = []
    if score.threshold is not None:
        starts.append({"text": text, "value": score.threshold})
    for percentile in CANDIDATE_PERCENTILES:
        value = score.at_percentile(percentile)
        if value is not None:
            # With the slider's decimals, as a person would write it.
            starts.append({"text": f"percentile {percentile:g}", "value": round(value, DECIMALS)})
    if exact:
        return {"starts": starts, "thresholds": thresholds_over(score.scores)}
    for start in starts:
        start["accepted"] = score.accepted_at(start["value"])
    return {"starts": starts, **steps_of(score.scores, score.others_pass, score.has_image)}


def _yaml_key(name: str) -> str:
    """Return a name as a YAML key, quoted if necessary."""
    return dump_yaml({name: 0}).partition(": 0")[0]


@dataclass(frozen=True, slots=True)
class ShiftCut:
    """The threshold of a shift and what it accepts. A percentile is resolved to a threshold, or to
    None if there is no scored candidate.
    """

    shift: str
    caption: str
    open: bool
    percentile: float | None
    threshold: float | None
    candidates: int
    accepted: int

    @property
    def passed(self) -> float | None:
        """The yield; None without a candidate or a threshold."""
        if self.candidates and self.threshold is not None:
            return self.accepted / self.candidates
        return None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The written page, and the cut of all thresholds as YAML (a layer for `recut`)."""

    directory: Path
    page: Path
    shifts: tuple[ShiftCut, ...]
    shown: int
    cut: str
    screen_doubts: ScreenDoubts | None = None


@takes(CalibrateOptions)
def calibrate(given: CalibrateOptions) -> Calibration:
    """Write a page that shows the screened shifts of a finished dataset, and resolve open
    thresholds.

    The page shows at most 100 shifts, 100 objects and about 2,000 images. The cut holds every
    requested shift, and leaves object thresholds as they are. If the dataset has more than 200,000
    candidates, the page shows only shifts.

    Returns:
        A Calibration with the path of the page and the cut as YAML, which `recut` takes.

    Raises:
        UserError: The directory is not a finished dataset, or a shift is not screened.
    """
    directory = named_path(given.directory)
    page_path = directory / PAGE
    if given.page is not None:
        page_path = named_path(given.page)
    dataset = read_dataset(directory, "thresholds", "receipts").finished()
    try_folder(page_path.parent)
    recipe = dataset.recipe
    receipts = dataset.receipts
    selected = _selected(recipe, given.shifts)
    candidates = 0
    for receipt in receipts:
        for reasons in receipt.counts.values():
            candidates += sum(reasons.values())
    exact = candidates <= MOST_CANDIDATES
    names = selected
    if exact:
        names = [shift.name for shift in recipe.all_shifts()]
    scores = scores_of(directory, recipe, receipts, names)
    with_slider = [unit for unit, score in enumerate(scores) if score.shift.name in selected]
    groups = object_groups(recipe, scores) if exact else ()
    doubts = screen_doubts(recipe, dataset.thresholds)
    lines = () if doubts is None else doubts.lines()
    if lines:
        warn("\n".join(lines))
    scored = ScoredShifts(
        recipe=recipe,
        directory=directory.resolve().name,
        scores=scores,
        shown=with_slider[:MOST_SHIFTS],
        groups=groups,
        shown_groups=shown_groups(groups),
        candidates=candidates,
        n_shifts=len(with_slider),
        doubts=lines,
        exact=exact,
        preview=preview_sentence(preview_images(recipe, receipts)),
    )
    pictures = read_pictures(directory, receipts, scored)
    write_atomically(page_path, calibration_page(scored, pictures).encode())
    if given.page is None:
        write_index(directory)
    cuts = tuple(_cut(scores[unit]) for unit in with_slider)
    layer = {}
    for cut in cuts:
        if cut.threshold is not None:
            layer[cut.shift] = {"threshold": cut.threshold}
    text = layer_text({"prompts": {"shifts": layer}}, recipe)
    return Calibration(directory, page_path, cuts, len(scored.shown), text, doubts)


def _selected(
    recipe: Recipe,
    requested: Sequence[str] | None,
) -> list[str]:
    """Return the requested shifts, by default all screened ones. Raise UserError if one is not
    screened."""
    screened = [shift.name for shift in recipe.all_shifts() if has_threshold(shift)]
    if not screened:
        raise UserError(
            "no shift of this dataset has a threshold: levels have none, and others need a caption",
            "Set object thresholds in a file: `screen: {object_threshold: 0.2}`; then `calibrate"
            " --apply` it.",
        )
    if not requested:
        return screened
    refuse_other_shifts(requested, screened, "screened shift")
    return [name for name in screened if name in requested]


def _cut(score: ShiftScores) -> ShiftCut:
    spec = score.shift.threshold
    threshold = score.threshold
    accepted = 0
    if threshold is not None:
        accepted = score.accepted_at(threshold)
    return ShiftCut(
        shift=score.shift.name,
        caption=score.shift.caption or "",
        open=score.is_open,
        percentile=spec.percentile if spec else None,
        threshold=threshold,
        candidates=score.candidates,
        accepted=accepted,
    )

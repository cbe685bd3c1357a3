"""`calibrate`: the scores and images of a built dataset's shifts and objects on one page, and the cut by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.calibration.page import MOST_CANDIDATES, calibration_page
from counterfoil.calibration.pictures import pictures_of
from counterfoil.calibration.scores import object_groups, scores_of, shown_groups
from counterfoil.card.index_page import write_index
from counterfoil.dataset import read_dataset
from counterfoil.errors import UserError
from counterfoil.recipe import Recipe, layer_text
from counterfoil.recipe.names import did_you_mean
from counterfoil.regular_files import named_path
from counterfoil.screen import ScreenDoubts, screen_doubts
from counterfoil.store.atomic import try_folder, write_atomically
from counterfoil.store.inside import refuse_written_inside
from counterfoil.store.layout import PRIVATE

# In the private folder, for the page is not part of the dataset.
PAGE = f"{PRIVATE}/calibrate.html"
MOST_SHIFTS = 100


@dataclass(frozen=True, slots=True)
class ShiftCut:
    """A shift as it stands: its threshold (or the one that its percentile comes to) and what that accepts.

    `threshold` is None for an open shift none of whose candidates has a score.
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
        return self.accepted / self.candidates if self.candidates and self.threshold is not None else None


@dataclass(frozen=True, slots=True)
class Calibration:
    """The page that was written, and the cut of all thresholds as YAML (a layer for `recut`).

    `screen_doubts` says where CLIP does not know the classes, as it was measured when the dataset was built.
    """

    directory: Path
    page: Path
    shifts: tuple[ShiftCut, ...]
    shown: int
    cut: str
    screen_doubts: ScreenDoubts | None = None


def calibrate(
    directory: str | Path, page: str | Path | None = None, shifts: Sequence[str] | None = None
) -> Calibration:
    """Write the page of a finished dataset's screened shifts, or of those named; resolve open thresholds.

    The page shows at most 100 shifts, 100 objects and some 2,000 images; the cut holds every shift that was asked for,
    and objects as they are. Of more than 200,000 candidates it shows the shifts alone.
    UserError for a directory that is no finished dataset, or a shift that is not screened.
    """
    directory = named_path(directory)
    place = directory / PAGE if page is None else named_path(page)
    refuse_written_inside(place, directory, directory / PRIVATE)
    finished = read_dataset(directory, "thresholds", "receipts").finished()
    try_folder(place.parent)
    recipe, receipts = finished.recipe, finished.receipts
    doubts = screen_doubts(recipe, finished.thresholds)
    screened = [s.name for s in recipe.all_shifts() if s.caption is not None]
    _refuse_unscreened(screened, shifts)
    asked = [name for name in screened if not shifts or name in shifts]
    candidates = sum(sum(reasons.values()) for receipt in receipts for reasons in receipt.counts.values())
    exact = candidates <= MOST_CANDIDATES
    every = [s.name for s in recipe.all_shifts()] if exact else asked
    units = scores_of(directory, recipe, receipts, every)
    scores = [each for each in units if each.shift.name in asked]
    shown = [unit for unit, each in enumerate(units) if each.shift.name in asked][:MOST_SHIFTS]
    groups = object_groups(recipe, units) if exact else ()
    html = calibration_page(
        recipe,
        directory.resolve().name,
        units,
        shown,
        groups,
        pictures_of(directory, recipe, receipts, units, shown, shown_groups(groups)),
        exact=exact,
        candidates=candidates,
        n_shifts=len(scores),
        doubts=() if doubts is None else doubts.lines(),
    )
    write_atomically(place, html.encode())
    if page is None:
        write_index(directory)
    cuts = tuple(
        ShiftCut(
            shift=each.shift.name,
            caption=each.shift.caption or "",
            open=each.is_open,
            percentile=each.shift.threshold.percentile if each.shift.threshold else None,
            threshold=each.threshold,
            candidates=each.candidates,
            accepted=0 if each.threshold is None else each.accepted_at(each.threshold),
        )
        for each in scores
    )
    return Calibration(directory, place, cuts, len(shown), cut_yaml(recipe, cuts), doubts)


def cut_yaml(recipe: Recipe, cuts: Sequence[ShiftCut]) -> str:
    """The layer that sets each shift's threshold by value; shifts without a number are left out."""
    layer = {cut.shift: {"threshold": cut.threshold} for cut in cuts if cut.threshold is not None}
    return layer_text({"prompts": {"shifts": layer}}, recipe)


def _refuse_unscreened(screened: Sequence[str], asked: Sequence[str] | None) -> None:
    if not screened:
        raise UserError("no shift of this dataset is screened: none has a caption", hint="There is nothing to choose.")
    unknown = [name for name in asked or () if name not in screened]
    if unknown:
        raise UserError(
            [f"found '{name}', expected a screened shift{did_you_mean(name, screened)}" for name in unknown],
            hint=f"The screened shifts: {', '.join(screened[:20])}{' …' if len(screened) > 20 else ''}",
        )

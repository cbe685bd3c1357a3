"""What must be said of synthetic, screened images: origin, use, biases, limits, risks. Card and Croissant say the same.

Plain text without marks. Every sentence follows from the recipe and from what lock.json pins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from counterfoil.card.tables import InputRow
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.prompts import MATCH

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe
    from counterfoil.screen import ScreenDoubts

_MOST_JUDGES = 12


@dataclass(frozen=True, slots=True)
class Statements:
    """Sentences by subject, each subject in the order in which it is read."""

    summary: str
    collection: str
    source: str
    preprocessing: tuple[str, ...]
    annotation: str
    annotation_tools: tuple[str, ...]
    missing: str
    intended: tuple[str, ...]
    unintended: tuple[str, ...]
    biases: tuple[str, ...]
    limits: tuple[str, ...]
    personal: str
    social_impact: str
    maintenance: str


def statements_of(
    recipe: Recipe,
    inputs: Sequence[InputRow],
    images: int,
    candidates: int,
    doubts: ScreenDoubts | None = None,
    *,
    looked_at: bool = False,
) -> Statements:
    """`inputs` are those of `input_rows`; `images` were accepted of so many `candidates`, by a screen with `doubts`;
    `looked_at`: by people, of whose review the dataset tells."""
    row_of = {row.role: row for row in inputs}
    drawn = recipe.generator.draws
    made_by = "generator" if drawn else "pool"
    screens = (row_of["screen"],) if "screen" in row_of else ()
    screen = "none" if not screens else _named(screens[0])
    generator, source = (_named(row_of[role]) for role in (made_by, "input dataset"))
    shifts = len(recipe.prompts.shifts)
    statements = Statements(
        summary=(
            f"{images:,} synthetic images of {_count(len(recipe.classes), 'class', 'classes')} under a base prompt and"
            f" {_count(shifts, 'shift', 'shifts')}, for measuring where image classifiers fail."
        ),
        collection=(
            f"Nothing was collected: every image was drawn by a diffusion model from {_drawn_from(recipe)} and a seed"
            f"{_beside(recipe)}."
            f" Generator: {generator}. Of {candidates:,} candidates {images:,} were accepted by CLIP: {screen}."
        ),
        source=(
            f"None of the images comes from the input dataset, {source}. It gives the classes"
            f"{', the images that class tokens were learned from' if recipe.tokens and not recipe.tokens.path else ''}"
            " and the validation images over which percentiles of object scores are taken, where the recipe asks so."
        ),
        preprocessing=(
            f"An image is accepted when {_screened(recipe)}; lock.json, thresholds.json and every row hold these.",
            f"Images are stored as {recipe.output.image.format.upper()} at the generator's size.",
        ),
        annotation=(
            "A label is the class that the prompt asked for. "
            + _checked(recipe, looked_at, "No person has labelled the images; CLIP's screening is their only check.")
        ),
        annotation_tools=(f"CLIP, {screen}",),
        missing=(
            f"{candidates - images:,} candidates are not among the images; the config candidates has the scores of"
            " all and the reason of each."
        ),
        intended=(
            "Comparing a classifier's accuracy under a shift with its accuracy on the base images of the same classes.",
            "Comparing classifiers, and finding the shifts and classes that deserve a test on real photographs.",
        ),
        unintended=(
            "Certifying that a model is safe, fair or robust in the world: a small drop here proves nothing there.",
            "Training a model and then evaluating it here, or learning what real objects look like.",
            "Statements about people or groups of people.",
        ),
        biases=(
            "The images carry the generator's biases: what it draws for a prompt may differ from the input dataset in"
            " more than the shift" + _by_name(recipe) + ".",
            "CLIP decided what is here, so its blind spots are in the selection, and models that resemble it may be"
            " favoured.",
            *_borrowed(recipe),
            *_chosen_against(recipe),
        ),
        limits=(
            "The images are synthetic, not photographs. What a model does on them estimates, and does not prove, what"
            " it does on real images of the shift.",
            "Some accepted images lack the object or the shift, so some labels are wrong.",
            *((f"{doubts.headline} {doubts.meaning}",) if doubts is not None else ()),
            "Yields differ between classes and shifts. Compare a shift with the base over the same classes, or over"
            " pairs.",
        ),
        personal=(
            "No image is of a real person on purpose. A generator can draw faces, marks or works that resemble those"
            " it was trained on; the images were not searched for them."
        ),
        social_impact=(
            "Failures that are found before a model is used can be mended. The risk is the reverse: to read a small"
            " drop on generated images as a proof of robustness, above all for what generators draw badly."
        ),
        maintenance=(
            "A dataset is fixed by its recipe and lock.json, from which the same stack makes the same images again, and"
            " manifest.json lists every file with its sha256. Corrections are new versions with other hashes; none is"
            " scheduled."
        ),
    )
    if recipe.generator.kind == "corrupt":
        return _corrupted(recipe, statements, source, images, candidates, looked_at=looked_at)
    if recipe.generator.kind == "edit":
        return _edited(recipe, statements, generator, screen, source, images, candidates, looked_at=looked_at)
    if drawn:
        return statements
    of_rows = _of_rows(recipe, statements, generator, screen, source, images, candidates, looked_at=looked_at)
    if recipe.generator.kind == "rows":
        return of_rows
    ranking = _named(row_of["retrieval"])
    return _retrieved(recipe, of_rows, generator, ranking, screen, images, candidates, looked_at=looked_at)


def _of_rows(
    recipe: Recipe,
    said: Statements,
    pool: str,
    screen: str,
    source: str,
    images: int,
    candidates: int,
    *,
    looked_at: bool,
) -> Statements:
    """What is otherwise for images that were taken from a pool, and not drawn."""
    return replace(
        said,
        summary=said.summary.replace("synthetic images", "images, rows of a pool,"),
        collection=(
            f"Nothing was made: every image is a row of a pool, and the column source_row says which. Pool: {pool}. Of"
            f" {candidates:,} chosen rows {images:,} were accepted by CLIP: {screen}."
        ),
        source=(
            f"The input dataset, {source}, gives the classes and the validation images over which percentiles of object"
            " scores are taken, where the recipe asks so."
        ),
        preprocessing=(
            said.preprocessing[0],
            "Images are decoded and encoded again, as the recipe's output says; the pool holds the originals.",
        ),
        annotation=(
            "A label is the pool's own, matched with the recipe's classes. "
            + _checked(recipe, looked_at, "CLIP's screening is the only other check.")
        ),
        biases=(
            "The images carry the pool's biases, and those of whatever chose the rows: which those are, the recipe does"
            " not tell.",
            *said.biases[1:],
        ),
        limits=(
            "Rows of a shift and of the base are different photographs, which differ in more than the shift.",
            *said.limits[1:],
        ),
        personal="The images are the pool's: what it says of the people on them holds here too.",
        social_impact=(
            "Failures that are found before a model is used can be mended. The risk is the reverse: to read a small"
            " drop on chosen images as a proof of robustness."
        ),
    )


def _retrieved(
    recipe: Recipe,
    said: Statements,
    pool: str,
    ranking: str,
    screen: str,
    images: int,
    candidates: int,
    *,
    looked_at: bool,
) -> Statements:
    """What is otherwise where CLIP found the rows, by prompts and not by the pool's labels."""
    return replace(
        said,
        summary=said.summary.replace("images, rows of a pool,", "real images, retrieved from a pool by CLIP,"),
        collection=(
            "Nothing was made: every image is a real one, a row of a pool, which CLIP found near to a prompt. The"
            " columns source_row, retrieval_rank and retrieval_score say which it is, the how-manieth of the pool by"
            f" nearness, and how near; none is used twice. Pool: {pool}. Ranked by {ranking}. Of {candidates:,}"
            f" retrieved rows {images:,} were accepted by CLIP: {screen}."
        ),
        annotation=(
            "A label is the class whose name the prompt held: the pool's own labels, if it has any, were not asked. "
            + _checked(recipe, looked_at, "CLIP found the images and CLIP screened them; nobody else has checked them.")
        ),
        unintended=(
            *said.unintended,
            "Measuring a classifier that has learned from the pool: it has seen the images.",
        ),
        biases=(
            "The images carry the pool's biases, and those of the CLIP that ranked it: it finds what is typical of the"
            " words of a prompt, which may differ from the input dataset in more than the shift.",
            *said.biases[1:],
        ),
        limits=(
            "Where a pool holds no image of a class under a shift, the nearest are of something else. The further down"
            " an image comes (retrieval_rank), the likelier that is; only the screen rejects it.",
            *said.limits,
        ),
        social_impact=(
            "Failures that are found before a model is used can be mended. The risk is the reverse: to read a small"
            " drop on retrieved images as a proof of robustness."
        ),
    )


def _edited(
    recipe: Recipe,
    said: Statements,
    generator: str,
    screen: str,
    source: str,
    images: int,
    candidates: int,
    *,
    looked_at: bool,
) -> Statements:
    """What is otherwise for edits of real images: whose they are, that the base is one too, and who is on them."""
    split, name = recipe.generator.split, without_folders(recipe.source.dataset)
    each = "that of each row" if recipe.generator.license_column else "its licence, where one is known"
    licences = f"the column license tells {each}"
    same = ""
    if _over_the_edited(recipe):
        same = " That is the split that was edited: percentiles are over the very images that these are edits of."
    return replace(
        said,
        summary=said.summary.replace("synthetic images", f"edits of real images of {name}, split {split},"),
        collection=(
            f"Every image is an edit of a real one: a row of the input dataset, split {split}, which a diffusion model"
            " drew anew under the base's prompt and under each shift's. The column source_row says which row it is."
            f" Generator: {generator}. Of {candidates:,} candidates {images:,} were accepted by CLIP: {screen}."
        ),
        source=(
            f"The images that were edited are those of the input dataset, {source}, split {split}: what it says of"
            f" their use holds for edits of them; {licences}. It also gives the classes and the validation images over"
            f" which percentiles of object scores are taken, where the recipe asks so.{same}"
        ),
        annotation=(
            "A label is the input dataset's own for the row that was edited. "
            + _checked(recipe, looked_at, "Whether an edit still shows it, CLIP's screening is the only check.")
        ),
        unintended=(
            *said.unintended,
            f"Measuring a classifier that has learned from the split {split} of the input dataset: it has seen what"
            " these are edits of.",
        ),
        biases=(
            "The images carry the input dataset's biases, and those of the generator: an edit may change more than the"
            " shift says.",
            *((_captions_told(recipe),) if recipe.generator.captioned else ()),
            *said.biases[1:],
        ),
        limits=(
            "The base is an edit too, and no untouched photograph: it went the same way under its own prompt, so that"
            " what the way itself costs is not mistaken for the shift. Compare a shift with it, not with the rows.",
            *said.limits,
        ),
        personal=(
            "The images are edits of real ones. Whoever is on those may be on these, changed or unchanged, and as they"
            " never were; what the input dataset says of people holds here too. The images were not searched for them."
        ),
        social_impact=(
            "Failures that are found before a model is used can be mended. The risk is the reverse: to read a small"
            " drop on edited images as a proof of robustness, or to take an edit for a photograph."
        ),
    )


def _corrupted(
    recipe: Recipe, said: Statements, source: str, images: int, candidates: int, *, looked_at: bool
) -> Statements:
    """What is otherwise for real images that were changed in a known way, and that no model drew."""
    split, name = recipe.generator.split, without_folders(recipe.source.dataset)
    side = recipe.generator.size
    each = "that of each row" if recipe.generator.license_column else "its licence, where one is known"
    screens = recipe.screen.model is not None
    kept = f"Of {candidates:,} candidates {images:,} were accepted{' by CLIP' if screens else ''}."
    matched = {shift.corruption == MATCH for shift in recipe.all_shifts()[1:]}
    named = (
        "one named change was computed from it (noise, blur, weather, digital and camera faults, after Hendrycks and"
        " Dietterich 2019) at a severity from 1 to 5"
    )
    partnered = "it was given the brightness and contrast of its partner of that shift"
    changed = partnered if matched == {True} else f"{named}, or {partnered}" if True in matched else named
    reduced = f", reduced to a shorter side of {side} pixels where it is larger" if side else ""
    return replace(
        said,
        summary=said.summary.replace(
            "synthetic images", f"images of {name}, split {split}, as they are and corrupted,"
        ).replace("under a base prompt and", "under the base and"),
        collection=(
            f"Every image is a real one: a row of the input dataset, split {split}{reduced}. On the base it is"
            f" untouched; under each shift {changed}. The columns source_row and severity say which row and how much."
            f" {kept}"
        ),
        source=(
            f"The images are those of the input dataset, {source}, split {split}: what it says of their use holds here"
            f" too; the column license tells {each}. It also gives the classes."
        ),
        preprocessing=(
            said.preprocessing[0] if screens else "Nothing was screened: no score decided what is here.",
            "Images are decoded and encoded again, as the recipe's output says; the input dataset holds the originals.",
        ),
        annotation="A label is the input dataset's own. "
        + (
            _checked(recipe, looked_at, "CLIP's screening is the only other check.")
            if screens
            else _looked_at(looked_at)
        ),
        annotation_tools=said.annotation_tools if screens else (),
        missing=said.missing if images < candidates else "No candidate is missing.",
        unintended=(
            *said.unintended,
            f"Measuring a classifier that has learned from the split {split} of the input dataset: it has seen these"
            " images.",
        ),
        biases=("The images carry the input dataset's biases.", *(said.biases[1:] if screens else ())),
        limits=(
            "A corruption imitates a fault of cameras, weather or pipelines. What a model does on computed fog"
            " estimates, and does not prove, what it does in fog.",
            "At high severity some images may no longer show their class, so that no model can be right on them.",
        ),
        personal="The images are the input dataset's: what it says of the people on them holds here too.",
        social_impact=(
            "Failures that are found before a model is used can be mended. The risk is the reverse: to read a small"
            " drop on these corruptions as a proof of robustness to others."
        ),
    )


def _looked_at(looked_at: bool) -> str:
    return "People looked at some of them, which changed none." if looked_at else "Nobody has checked it again."


def _over_the_edited(recipe: Recipe) -> bool:
    """Whether thresholds are percentiles over the split that is edited."""
    percentiles = any(shift.object_threshold.percentile is not None for shift in recipe.all_shifts())
    return percentiles and recipe.generator.split == recipe.source.validation_split


def _captions_told(recipe: Recipe) -> str:
    column = recipe.generator.caption_column
    by = f"of its column {column}" if column else f"written by {without_folders(recipe.generator.captioner or '')}"
    return f"Prompts hold captions of the rows, {by}: they may say what is not there, and an edit then shows it."


@dataclass(frozen=True, slots=True)
class ScreenedShifts:
    """Of how many shifts a threshold of the shift score decides; the others are screened for the object alone."""

    screened: int
    shifts: int


def screened_shifts(recipe: Recipe) -> ScreenedShifts:
    """The base is no shift."""
    shifts = recipe.all_shifts()[1:]
    return ScreenedShifts(sum(shift.threshold is not None for shift in shifts), len(shifts))


def _screened(recipe: Recipe) -> str:
    of = screened_shifts(recipe)
    if of.screened == 0:
        return "its cosine in CLIP with the object caption reaches its threshold"
    if of.screened == of.shifts:
        return "its cosines in CLIP with the object caption and with the shift caption reach their thresholds"
    return (
        f"its cosine in CLIP with the object caption and, in {of.screened:,} of {of.shifts:,} shifts, that with the"
        " shift caption reach their thresholds"
    )


def _checked(recipe: Recipe, looked_at: bool, alone: str) -> str:
    """Who has checked the labels besides the CLIP that screened: `alone`, a second judge, people, or both of these."""
    judge = "a second judge was then asked about each" if recipe.screen.judge is not None else None
    people = "people then looked at some of them" if looked_at else None
    others = " and ".join(one for one in (judge, people) if one is not None)
    if not others:
        return alone
    told = "" if looked_at else " No person has looked at them."
    return f"CLIP's screening decided which images are here; {others}, which changed none.{told}"


def _named(row: InputRow) -> str:
    pinned = f", pinned at {row.pinned}" if row.pinned else ""
    return f"{row.name}{pinned}, licence {row.license or 'not stated'}"


def _by_name(recipe: Recipe) -> str:
    if recipe.tokens:
        return ""
    return ", and prompts name classes by their names, which may mean something else to it"


def _chosen_against(recipe: Recipe) -> tuple[str, ...]:
    """That classifiers chose images by their own failures, where a rule asks any."""
    rules = [rule for shift in recipe.all_shifts() for rule in shift.keep]
    judges = [without_folders(judge) for judge in dict.fromkeys(name for rule in rules for name in rule.judges())]
    if not judges:
        return ()
    more = f" and {len(judges) - _MOST_JUDGES} more" if len(judges) > _MOST_JUDGES else ""
    return (
        f"Images are here because classifiers answered them wrongly: {', '.join(judges[:_MOST_JUDGES])}{more}. Their"
        " accuracy on these means nothing, and models that resemble them are put at a disadvantage.",
    )


def _drawn_from(recipe: Recipe) -> str:
    shifts = recipe.all_shifts()
    if all(shift.embedding is None for shift in shifts):
        return "a prompt"
    if all(shift.prompt is None for shift in shifts):
        return "a CLIP image embedding"
    return "a prompt or a CLIP image embedding, or both,"


def _beside(recipe: Recipe) -> str:
    """That images of shifts saw their base, where the recipe asks for it."""
    if recipe.samples.pairs == "noise":
        return ""
    return ", those of a shift beside the base image of their pair, whose features the model attended to"


def _borrowed(recipe: Recipe) -> tuple[str, ...]:
    """What pairs that share attention do to a measured drop."""
    if recipe.samples.pairs == "noise":
        return ()
    return (
        "A pair keeps its object as far as the model can (column paired_by). What an image of a shift borrows from its"
        " base may make it easier to recognise than one that was drawn alone, so that a drop may be too small.",
    )


def _count(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"

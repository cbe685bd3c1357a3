"""Rows of pools: checked, retrieved by CLIP, or chosen to be edited or corrupted, before the first image is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from counterfoil.data.drawn_elsewhere import given_rows
from counterfoil.data.labelled_sources import every_row
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import licences_of_rows, partners, pool_of, pool_rows, rows_of_classes
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.generate import PoolRows
from counterfoil.generate.corruptions import SMALLEST_SIDE
from counterfoil.generate.nearest_rows import nearest_rows
from counterfoil.models.captioners import describe_captioner, load_captioner
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import one_thread
from counterfoil.models.diffusion import prompt_length
from counterfoil.models.names import Pin
from counterfoil.plan import RowTable, captions_asked, make_plan, rows_wanted
from counterfoil.prediction.captioning import caption_images
from counterfoil.prediction.embedding import clip_embedder, contents_of, embed, first_of_content
from counterfoil.progress import report
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.prompts import asks_caption, prompt_for
from counterfoil.recipe.rows_table import LONGEST_CAPTION, MOST_BYTES, ChosenKind, PoolRow, one_line, rows_csv
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import ROWS, user_cache
from counterfoil.store.lock import Lock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.data.tables import Rows
    from counterfoil.recipe import Recipe


_MOST_PROBLEMS = 20


def check_rows(recipe: Recipe, pin: SourcePin) -> None:
    """UserError, collected, for rows that the pool does not have, or whose label is not their class's.

    Labels are compared unless the recipe says that they are predicted. Rows that a build chooses, to retrieve or to
    edit them, are of the pool by the way they are found.
    """
    if recipe.generator.rows is None:
        return
    rows = pool_rows(recipe, pin)
    of_class = rows_of_classes(recipe, rows) if recipe.generator.labels == "column" else None
    problems = [problem for _, problem in zip(range(_MOST_PROBLEMS), _wrong_rows(recipe, rows, of_class), strict=False)]
    if problems:
        raise UserError(problems, "Correct generator.rows: each row of a cell must be an image of its class.")


def rows_of_pool(recipe: Recipe, pin: SourcePin, retrieved: RowTable | None = None) -> PoolRows:
    """The pool as what gives samples their images; `retrieved` are the rows that a plan of a retrieval takes.

    UserError, collected, for rows that the pool does not have: a table may be a stranger's.
    """
    rows = pool_rows(recipe, pin)
    beyond = _retrieved_beyond(retrieved, rows) if retrieved is not None else _wrong_rows(recipe, rows, None)
    if problems := [problem for _, problem in zip(range(_MOST_PROBLEMS), beyond, strict=False)]:
        raise UserError(problems, "Name the pool that the rows were chosen from, at the same revision.")
    return PoolRows(rows.image, licences_of_rows(recipe, rows, pin))


def rows_file(recipe: Recipe) -> bytes | None:
    """The rows as a file that travels with the dataset; None where images are rendered."""
    return None if recipe.generator.rows is None else rows_csv(recipe.generator.rows)


def _retrieved_beyond(retrieved: RowTable, pool: Rows) -> Iterator[str]:
    for (shift, class_id), own in retrieved.rows.items():
        if beyond := [one.row for one in own if one.row >= pool.count]:
            where = f"{ROWS}: '{shift}' of class '{class_id}'"
            yield f"{where}: found row {beyond[0]}, and {pool.place} has {pool.count:,} rows"


def _wrong_rows(
    recipe: Recipe, pool: Rows, of_class: Callable[[RecipeClass], NDArray[np.bool_]] | None
) -> Iterator[str]:
    classes = {cls.id: cls for cls in recipe.classes}
    for shift, cells in (recipe.generator.rows or {}).items():
        for class_id, own in cells.items():
            where = f"generator.rows.{shift}.{class_id}"
            beyond = [row for row in own if row >= pool.count]
            if beyond:
                yield f"{where}: found row {beyond[0]}, and {pool.place} has {pool.count:,} rows"
                continue
            right = None if of_class is None else of_class(classes[class_id])
            others = [row for row in own if right is not None and not right[row]]
            if others:
                many = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
                yield f"{where}: row {others[0]}{many} of {pool.place} has the label of another class"


class ChosenTable(NamedTuple):
    """The rows that a build chose, what the lock says of them, and what people must know of it."""

    table: RowTable
    pin: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def known_rows(recipe: Recipe, kind: ChosenKind, out: Path, lock: Lock | None) -> ChosenTable | None:
    """The rows of a directory that was begun, where they are those that its lock pins; else None."""
    pin = None if lock is None else lock.inputs.get(kind)
    if not isinstance(pin, Mapping):
        return None
    try:
        found = RowTable.read(read_inside(out, ROWS, MOST_BYTES), ROWS, kind)
    except (OSError, CounterfoilError):
        return None  # they are chosen again, and refused where they do not come out the same
    same = found.sha256 == pin.get("sha256") and not any(found.problems(recipe))
    return ChosenTable(found, pin) if same else None


def retrieve(recipe: Recipe, pool: SourcePin, clip: Pin, device: str) -> ChosenTable:
    """The rows of a pool that are nearest to each prompt, none of them twice."""
    images, rows = every_row(pool_of(recipe), pool)
    rows.need(license_column=recipe.generator.license_column)
    wanted = make_plan(recipe).n_samples
    if len(images) < wanted:
        raise _too_few(recipe, rows.place, wanted, f"{len(images):,} rows")
    cache = user_cache() / "embeddings"
    ranking = recipe.ranking_clip
    with one_thread():
        loaded = load_clip(ranking.model, ranking.weights, device, revision=clip.revision)
        features = embed(images, clip_embedder(loaded, clip), cache)
        contents = contents_of(images, cache)
        readable, first = _readable(features), first_of_content(contents)
        usable = readable & first
        copies = int((readable & ~first).sum())
        if usable.sum() < wanted:
            left = (
                f"{int(usable.sum()):,} usable images ({len(images):,} rows: {int((~readable).sum()):,} cannot be read,"
            )
            raise _too_few(recipe, rows.place, wanted, f"{left} {copies:,} are copies)")
        cells = [(shift, recipe.classes[label]) for shift in recipe.all_shifts() for label in shift.class_labels]
        prompts = [prompt_for(shift, cls) or "" for shift, cls in cells]
        texts = loaded.embed_texts(prompts)
    report(f"{images.name}: finding nearest rows", 0, wanted)
    found = nearest_rows(features, texts, [shift.candidates for shift, _ in cells], usable)
    table: dict[tuple[str | None, str], list[PoolRow]] = {}
    for (shift, cls), near in zip(cells, found, strict=True):
        scores = near.scores.astype("float32").tolist()
        table[shift.name, cls.id] = list(map(PoolRow, near.rows.tolist(), near.ranks.tolist(), scores))
    retrieved = RowTable.of(table, "retrieved")
    if len(retrieved.content) > MOST_BYTES:
        raise UserError(
            f"samples: {wanted:,} rows of a pool are too many for one dataset: their table takes"
            f" {len(retrieved.content):,} bytes, expected at most {MOST_BYTES:,}",
            "Build fewer candidates, classes or shifts.",
        )
    report(f"{images.name}: finding nearest rows", wanted, wanted)
    notes = _not_retrieved(rows.place, int((~readable).sum()), copies)
    return ChosenTable(retrieved, {"sha256": retrieved.sha256}, tuple(notes))


def shared_with_source(recipe: Recipe) -> tuple[str, ...]:
    """What must be said of a pool that is a split of the input dataset itself."""
    generator, source = recipe.generator, recipe.source
    own = generator.dataset is None
    if not own and (generator.dataset, generator.config) != (source.dataset, source.config):
        return ()
    if generator.split == source.validation_split:
        return (
            f"The pool is {source.dataset}, split {generator.split}, the input dataset's own validation images: object"
            " thresholds that are percentiles come from the same images that they screen",
        )
    if generator.split == source.train_split:
        return (
            f"The pool is {source.dataset}, split {generator.split}: classifiers that learned from the input dataset"
            " have seen these images, so their accuracy here means nothing",
        )
    return ()


def _not_retrieved(place: str, unreadable: int, copies: int) -> list[str]:
    parts = [
        f"{unreadable:,} cannot be read" if unreadable else None,
        f"{copies:,} {'is a copy' if copies == 1 else 'are copies'} of an earlier one" if copies else None,
    ]
    joined = " and ".join(one for one in parts if one is not None)
    return [f"{place}: {joined}; these rows are not retrieved"] if joined else []


def _too_few(recipe: Recipe, place: str, wanted: int, found: str) -> UserError:
    cells = sum(len(shift.class_labels) for shift in recipe.all_shifts())
    return UserError(
        f"generator: the pool {place} has {found}, but {wanted:,} samples are needed ({cells:,} cells), each a"
        f" different image",
        "Name a larger pool, or fewer samples.candidates, shifts or classes.",
    )


def _readable(features: NDArray[Any]) -> NDArray[np.bool_]:
    import numpy as np

    # The whole row is NaN where there is no image, and a pool may be larger than memory.
    return np.isfinite(np.asarray(features[:, 0]))


def rows_drawn_elsewhere(recipe: Recipe, pool: SourcePin) -> ChosenTable:
    """The table of images that were drawn elsewhere. Raises as `given_rows`."""
    found = given_rows(recipe, pool)
    return ChosenTable(found.table, {"sha256": found.table.sha256}, found.notes)


_MOST_NAMED = 10


def choose_rows_to_edit(recipe: Recipe, pool: SourcePin, device: str) -> ChosenTable:
    """The table of a recipe; captions, where prompts ask for them, by the column or the captioner that it names.

    Rows without a caption that can be used are left out, and those with whose caption a prompt is longer than the model
    reads; of rows that are corrupted those that do not decode. A note counts each. UserError, with every such class,
    where one has fewer rows than candidates, or no row to corrupt; raises what reading and captioning raise.
    """
    if recipe.generator.kind == "corrupt":
        return _rows_to_corrupt(recipe, pool)
    rows = pool_rows(recipe, pool)
    of_class, wanted = rows_of_classes(recipe, rows), rows_wanted(recipe)
    own = [cls for cls in recipe.classes if cls.id in wanted]
    ordered = {cls.id: _ordered(of_class(cls), recipe.samples.seed) for cls in own}
    captions: Mapping[int, str | None] | None = None  # by row; None where no row needs one
    captioner: Mapping[str, Any] = {}
    without, cut, prompts = 0, 0, _Prompts(recipe)
    column = recipe.generator.caption_column
    if column is not None:
        captions = {row: _usable(value) for row, value in enumerate(rows.column(column))}
    elif captions_asked(recipe):
        captions, captioner = _captions_of_captioner(recipe, pool, ordered, wanted, prompts, device)
    table: dict[tuple[str | None, str], list[PoolRow]] = {}
    problems: list[str] = []
    for cls in own:
        chosen, wordless, too_long = list[PoolRow](), 0, 0
        for row in ordered[cls.id]:
            if len(chosen) == wanted[cls.id]:
                break
            caption = None if captions is None else captions.get(row)
            if captions is not None and caption is None:
                wordless += 1
            elif not prompts.read_whole(cls, caption):
                too_long += 1
            else:
                chosen.append(PoolRow(row, caption=caption))
        without, cut = without + wordless, cut + too_long
        table[None, cls.id] = chosen
        if len(chosen) < wanted[cls.id]:
            lack = f", {wordless:,} more without a caption" if wordless else ""
            lack += (
                f", {too_long:,} more with one too long for the {prompts.most} tokens of a prompt" if too_long else ""
            )
            problems.append(
                f"samples: class '{cls.id}' ({cls.name}) has {len(chosen):,} rows in {rows.place}{lack}, expected"
                f" {wanted[cls.id]:,}, one for each candidate"
            )
    if problems:
        raise UserError(problems, "Lower samples.candidates (or at_most), or name a larger split: generator.split.")
    edited = RowTable.of(table, "edited")
    if len(edited.content) > MOST_BYTES:
        raise UserError(
            f"samples: the table of rows takes {len(edited.content):,} bytes, expected at most {MOST_BYTES:,}",
            "Build fewer candidates or classes.",
        )
    no_words = f"no usable caption in {rows.place}"
    long = f"a caption too long for the {prompts.most} prompt tokens that {recipe.generator.model} reads"
    notes = tuple(_left_out(count, what) for count, what in ((without, no_words), (cut, long)) if count)
    return ChosenTable(edited, {"sha256": edited.sha256, **captioner}, notes)


def _left_out(count: int, what: str) -> str:
    rows = "1 of the first rows has" if count == 1 else f"{count:,} of the first rows have"
    return f"{rows} {what}; other rows replace {'it' if count == 1 else 'them'}"


def _rows_to_corrupt(recipe: Recipe, pool: SourcePin) -> ChosenTable:
    """Rows that decode, so that none fails later. A class that has fewer of them than are asked for gives all."""
    rows = pool_rows(recipe, pool)
    of_class, wanted, image = rows_of_classes(recipe, rows), rows_wanted(recipe), rows.image
    matched = partners(recipe, pool, rows)
    labels_of = {shift.name: shift.class_labels for shift in recipe.all_shifts()}
    table: dict[str, list[PoolRow]] = {}
    unreadable, done, most = 0, 0, sum(wanted.values())
    for cls in recipe.classes:
        chosen = table[cls.id] = []
        paired = [partner for name, partner in matched.items() if cls.label in labels_of[name]]
        for row in _ordered(of_class(cls), recipe.samples.seed):
            if len(chosen) == wanted.get(cls.id, 0):
                break
            if any(row not in partner.row_of for partner in paired):
                continue
            try:
                pictures = [image(row), *(partner.image(row) for partner in paired)]
            except UserError:
                pictures = []
            if pictures and min(pictures[0].size) >= SMALLEST_SIDE:
                chosen.append(PoolRow(row))
            else:
                unreadable += 1
        done += wanted.get(cls.id, 0)
        report("reading rows", done, most)
    if empty := [cls for cls in recipe.classes if cls.id in wanted and not table[cls.id]]:
        lacks = " that decodes" + (" and has a partner under every shift" if matched else "")
        named = [f"source: class '{cls.id}' ({cls.name}) has no image in {rows.place}{lacks}" for cls in empty]
        raise UserError(named, "Drop the class from source.classes, or name another split: generator.split.")
    edited = RowTable.of({(None, class_id): own for class_id, own in table.items() if own}, "edited")
    few = [cls.name for cls in recipe.classes if len(table[cls.id]) < wanted.get(cls.id, 0)]
    notes: list[str] = []
    if unreadable:
        what = f"an image that does not decode, or with a side of less than {SMALLEST_SIDE} pixels"
        notes.append(_left_out(unreadable, what))
    if few:
        more = f" and {len(few) - _MOST_NAMED} more" if len(few) > _MOST_NAMED else ""
        names = f"{', '.join(few[:_MOST_NAMED])}{more} {'has' if len(few) == 1 else 'have'}"
        notes.append(f"{names} fewer images than the recipe asks for, and the dataset has all of them")
    return ChosenTable(edited, {"sha256": edited.sha256}, tuple(notes))


class _Prompts:
    """The prompts that hold a row's caption, and how much of one the model reads, where captions are asked for.

    A class token counts as the name of its class.
    """

    def __init__(self, recipe: Recipe) -> None:
        self._shifts = [shift for shift in recipe.all_shifts() if asks_caption(shift.prompt)]
        asked = captions_asked(recipe)
        self._length = prompt_length(recipe.generator.model, recipe.generator.revision) if asked else None
        self.most = 0 if self._length is None else self._length.most

    def read_whole(self, cls: RecipeClass, caption: str | None) -> bool:
        """Whether the model reads every prompt of a row to its end."""
        if self._length is None or caption is None:
            return True
        own = [prompt_for(shift, cls, None, caption) for shift in self._shifts if cls.label in shift.class_labels]
        prompts = [prompt for prompt in own if prompt is not None]
        return not prompts or self._length.fits(prompts)


def _captions_of_captioner(
    recipe: Recipe,
    pool: SourcePin,
    ordered: Mapping[str, Sequence[int]],
    wanted: Mapping[str, int],
    prompts: _Prompts,
    device: str,
) -> tuple[Mapping[int, str | None], Mapping[str, Any]]:
    """The likeliest caption, by row, of as many rows of each class as are needed; and the pin of what wrote them.

    Images that do not decode have none.
    """
    name = recipe.generator.captioner
    assert name is not None  # the recipe says what captions its rows
    images, _ = every_row(pool_of(recipe), pool)
    captioner = load_captioner(name, device)
    found: dict[int, str | None] = {}
    with one_thread():
        classes = {cls.id: cls for cls in recipe.classes}

        def chosen(class_id: str, row: int) -> bool:
            return (own := found.get(row)) is not None and prompts.read_whole(classes[class_id], own)

        def missing() -> list[int]:
            """The rows that are to be captioned next: of each class as many as are still lacking."""
            rows: list[int] = []
            for class_id, own in ordered.items():
                lacking = wanted[class_id] - sum(chosen(class_id, row) for row in own)
                rows += [row for row in own if row not in found][: max(lacking, 0)]
            return rows

        while rows := missing():
            keys = {images.keys[row]: row for row in sorted(set(rows))}
            captions = caption_images(images, captioner, user_cache() / "captions", keys=tuple(keys), number=1)
            found |= {row: _usable((captions[key] or (None,))[0]) for key, row in keys.items()}
    pin = {"name": without_folders(name), "revision": describe_captioner(name).revision, "sha256": captioner.sha256}
    return found, {"captioner": pin}


def _usable(value: Any) -> str | None:
    """A caption as prompts hold it: in one line, without the full stop at its end; None for what is none."""
    if not isinstance(value, str):
        return None
    text = one_line(value).rstrip(". ")
    return text[:LONGEST_CAPTION].rstrip() or None


def _ordered(of_class: NDArray[np.bool_], seed: int) -> list[int]:
    """The rows of a class by a hash of seed and row."""
    import numpy as np

    rows = np.flatnonzero(of_class).tolist()
    return sorted(rows, key=lambda row: hashlib.sha256(f"{seed}\n{row}".encode()).digest())

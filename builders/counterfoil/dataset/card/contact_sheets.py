"""Draw contact sheets: an overview of classes by shifts, and for each shift base and shifted images
in pairs.

The number of sheets, their size and the number of images that are read are bounded. Images are left
out evenly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from PIL import Image, ImageDraw, ImageFont

from counterfoil.errors import some_of
from counterfoil.plan.layout import Plan, Shard, sample_key
from counterfoil.recipe import Shift
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.keep.misclassified import RIGHT
from counterfoil.recipe.names import judge_column
from counterfoil.recipe.prompts import BASE
from counterfoil.report.pictures import encode_webp
from counterfoil.report.words import in_words
from counterfoil.store.decoding import UnreadableImage, rgb_image
from counterfoil.store.messages import failure
from counterfoil.store.reading import planned_rows, read_file
from counterfoil.store.receipts import Receipt
from counterfoil.store.rows import TableForm, unique_names


@dataclass(frozen=True, slots=True)
class Tally:
    """The accepted and the judged candidates of a dataset, by cell."""

    accepted: Mapping[tuple[str, int], int]
    """(shift, label) → the accepted indices as bits."""
    judged: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(shift, class id) → the number of images that the judge answered, and how many labels of
    these it contradicted."""

    def count(self, shift: str, label: int) -> int:
        return self._bits(shift, label).bit_count()

    def pairs(self, shift: str, label: int) -> int:
        """Return how many indices of a class are accepted both on the base and under the shift."""
        return (self._bits(shift, label) & self._bits(BASE, label)).bit_count()

    def has(self, shift: str, label: int, index: int) -> bool:
        return bool(self._bits(shift, label) >> index & 1)

    def indices(self, shift: str, label: int) -> Iterator[int]:
        for index, bit in enumerate(reversed(f"{self._bits(shift, label):b}")):
            if bit == "1":
                yield index

    def _bits(self, shift: str, label: int) -> int:
        return self.accepted.get((shift, label), 0)


def tally_of(directory: Path, plan: Plan, receipts: Sequence[Receipt]) -> Tally:
    """Read every candidate's reason and second judge's answer once. RunFailure if they do not match
    plan and `data`."""
    indices = defaultdict[tuple[str, int], int](int)
    judged: dict[tuple[str, str], tuple[int, int]] = {}
    judge = plan.recipe.screen.judge
    form = TableForm.of(plan.recipe)
    right = None if judge is None else judge_column(judge, RIGHT)
    columns = ["reason"] if right is None else ["reason", right]
    for shard, receipt in _with_receipt(plan, receipts):
        file = receipt.file("candidates")
        if file is None:
            continue
        accepted = 0
        for row in planned_rows(directory, plan, shard, receipt, "candidates", columns, form):
            if row["reason"] != ACCEPTED:
                continue
            cell = row["shift"], row["label"]
            indices[cell] |= 1 << row["index"]
            accepted += 1
            if right is not None and row[right] is not None:
                judged_cell = row["shift"], row["class_id"]
                answered, disagreed = judged.get(judged_cell, (0, 0))
                if not row[right]:
                    disagreed += 1
                judged[judged_cell] = (answered + 1, disagreed)
        images = receipt.file("data")
        rows = 0 if images is None else images.rows
        if accepted != rows:
            raise failure(
                "unplanned-shard.accepted",
                directory / file.path,
                accepted,
                rows,
                receipt=receipt.path,
                directory=directory,
            )
    return Tally(indices, judged)


def _with_receipt(plan: Plan, receipts: Sequence[Receipt]) -> Iterator[tuple[Shard, Receipt]]:
    by_shard = {(receipt.group, receipt.shard): receipt for receipt in receipts}
    for shard in plan.shards:
        if receipt := by_shard.get((shard.group, shard.number)):
            yield shard, receipt


# The side of the largest picture on a contact sheet; what is larger is reduced when it is read.
LARGEST = 128


class SampleId(NamedTuple):
    shift: str
    label: int
    index: int


@dataclass(frozen=True)
class Pictures:
    """Reads accepted images of a dataset."""

    plan: Plan
    directory: Path
    files: Mapping[tuple[str, int], str]
    """(shift, label) → the data file, for cells with accepted images."""
    receipts: Mapping[str, str]
    """Data file → its receipt."""

    def read(self, samples: Iterable[SampleId]) -> dict[SampleId, Image.Image]:
        """Read accepted images as RGB, at most `LARGEST` pixels a side. RunFailure for a missing
        one."""
        wanted = defaultdict[str, dict[str, SampleId]](dict)
        for sample in sorted(set(samples)):
            class_id = self.plan.class_of(sample.label).id
            key = sample_key(sample.shift, class_id, sample.index)
            path = self.files[sample.shift, sample.label]
            wanted[path][key] = sample
        pictures = {}
        for path, keys in wanted.items():
            for key, encoded in encoded_images(self.directory / path, set(keys)):
                pictures[keys[key]] = decode_reduced(encoded, f"{path}: {key}", LARGEST)
            missing = [key for key, sample in keys.items() if sample not in pictures]
            if missing:
                raise failure(
                    "unplanned-shard.missing",
                    self.directory / path,
                    some_of(missing, 1),
                    receipt=self.receipts[path],
                    directory=self.directory,
                )
        return pictures


def locate_pictures(
    directory: Path,
    plan: Plan,
    receipts: Sequence[Receipt],
    cells: Iterable[tuple[str, int]],
) -> Pictures:
    wanted = set(cells)
    files = {}
    receipt_of = {}
    for shard, receipt in _with_receipt(plan, receipts):
        file = receipt.file("data")
        of_shard = wanted.intersection((cell.shift, cell.label) for cell in shard.cells)
        if file is not None and of_shard:
            receipt_of[file.path] = receipt.path
            files |= dict.fromkeys(of_shard, file.path)
    return Pictures(plan, directory, files, receipt_of)


def encoded_images(path: Path, keys: set[str]) -> Iterator[tuple[str, bytes]]:
    """Yield (key, encoded image) of these rows of a shard, up to the last of them."""
    left = set(keys)
    for rows in read_file(path, "data", ["key", "image"], only=frozenset(keys)):
        for row in rows:
            if row["key"] in left:
                left.remove(row["key"])
                image = row["image"] or {}
                yield row["key"], image.get("bytes") or b""
            if not left:
                return


def decode_reduced(encoded: bytes, where: str, side: int) -> Image.Image:
    """Return an encoded image as RGB, at most `side` pixels a side. RunFailure if it does not
    open."""
    try:
        image = rgb_image(encoded)
    except UnreadableImage as error:
        raise failure("wrong-image.open", where, error) from error
    image.thumbnail((side, side))
    return image


PAPER = "#ffffff"
INK = "#1f2328"
FAINT = "#59636e"
EMPTY = "#eef0f2"
QUALITY = 88


@lru_cache
def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans, which comes with matplotlib and so is the same on every machine."""
    from matplotlib import get_data_path

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    path = Path(get_data_path(), "fonts/ttf", name)
    # The basic layout engine is part of Pillow; the other one is there on some machines only.
    return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)


def wrapped(
    text: str,
    size: int,
    width: int,
    most_lines: int,
    bold: bool = False,
) -> list[str]:
    """Return the text in lines no wider than `width` pixels; what does not fit ends in "…"."""
    measure = font(size, bold).getlength
    lines = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and measure(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most_lines:
        lines[most_lines - 1 :] = [" ".join(lines[most_lines - 1 :])]
    fitted = []
    for line in lines:
        if measure(line) > width:
            while line and measure(f"{line}…") > width:
                line = line[:-1].rstrip()
            line = f"{line}…"
        fitted.append(line)
    return fitted


@dataclass(frozen=True)
class Sheet:
    image: Image.Image
    draw: ImageDraw.ImageDraw

    @classmethod
    def blank(cls, width: int, height: int) -> Sheet:
        image = Image.new("RGB", (width, height), PAPER)
        return cls(image, ImageDraw.Draw(image))

    def picture(
        self,
        picture: Image.Image | None,
        x: int,
        y: int,
        side: int,
    ) -> None:
        if picture is None:
            self.draw.rectangle((x, y, x + side - 1, y + side - 1), fill=EMPTY)
            return
        scale = side / max(picture.size)
        width, height = (max(1, round(length * scale)) for length in picture.size)
        fitted = picture.resize((width, height), Image.Resampling.LANCZOS)
        left = x + (side - width) // 2
        top = y + (side - height) // 2
        self.image.paste(fitted, (left, top))

    def text(
        self,
        lines: list[str],
        x: int,
        y: int,
        size: int,
        *,
        anchor: str = "la",
        faint: bool = False,
        bold=False,
    ) -> None:
        """Draw lines of text; `anchor` is the point of the first line that is at (x, y), as in
        Pillow."""
        fill = FAINT if faint else INK
        letters = font(size, bold)
        for line in lines:
            self.draw.text((x, y), line, fill=fill, font=letters, anchor=anchor)
            y += line_height(size)

    def encoded(self) -> bytes:
        return encode_webp(self.image, QUALITY)


def line_height(size: int) -> int:
    return round(size * 1.25)


OVERVIEW = "contact-sheet.webp"

MOST_CLASSES = 12
MOST_COLUMNS = 24  # the base and the 23 shifts of Vendrow 2023, Table 1
MOST_SHEETS = 32
PAIRS_A_CLASS = 6

# Pixels; a page shows about half of it, screens of high density all.
WIDEST = 1680
TALLEST = 1080
_MARGIN = 16
_GAP = 3
_TEXT = 13
_LABEL_WIDTH = 96
_PAIR_SIDE = 80

T = TypeVar("T")
Images = Mapping[SampleId, "Image.Image"]
# (base, shifted) images of a class on a shift's sheet; None for a rejected base.
ShownPairs = tuple[tuple[SampleId | None, SampleId], ...]


def sheet_name(shift: str) -> str:
    return f"shift-{shift}.webp"


def contact_sheets(
    directory: Path,
    plan: Plan,
    receipts: Sequence[Receipt],
    tally: Tally,
) -> Iterator[tuple[str, bytes]]:
    classes = plan.recipe.classes
    names = unique_names(classes)
    seen = {label for _, label in tally.accepted}
    shown_labels = evenly_spaced(sorted(seen), MOST_CLASSES)
    shifts = []
    for shift in plan.recipe.all_shifts():
        if any(tally.count(shift.name, label) for label in shift.class_labels):
            shifts.append(shift)
    if not shifts:
        return
    columns = [*shifts[:1], *evenly_spaced(shifts[1:], MOST_COLUMNS - 1)]
    heads = [shift.name for shift in columns]
    grid = {names[label]: overview_row(tally, label, heads) for label in shown_labels}
    on_overview = {sample for row in grid.values() for sample in row if sample is not None}
    shown_cells = {(sample.shift, sample.label) for sample in on_overview}
    sheets = {}
    bases = []
    without_base = [shift for shift in shifts if shift.name != BASE]
    for shift in evenly_spaced(without_base, MOST_SHEETS):
        with_images = [label for label in shift.class_labels if tally.count(shift.name, label)]
        sheets[shift.name] = {}
        for label in evenly_spaced(with_images, MOST_CLASSES):
            pairs = pairs_first(tally, shift.name, label)
            sheets[shift.name][names[label]] = pairs
            bases += [base for base, _ in pairs if base is not None]
            shown_cells |= {(BASE, label), (shift.name, label)}
    pictures = locate_pictures(directory, plan, receipts, shown_cells)
    yield OVERVIEW, _overview(grid, columns, pictures.read(on_overview))
    base_images = pictures.read(bases)  # the same ones mostly, so they are read once
    for shift in shifts:
        if shift.name in sheets:
            sheet = _shift_sheet(shift, sheets[shift.name], base_images, pictures)
            yield sheet_name(shift.name), sheet


def evenly_spaced(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` of the items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[0]]
    last = len(items) - 1
    return [items[round(number * last / (most - 1))] for number in range(most)]


def overview_row(
    tally: Tally,
    label: int,
    shifts: Sequence[str],
) -> list[SampleId | None]:
    """Return one image of a class per column. Prefer the index that has a base image and is in the
    most columns."""
    times = Counter[int]()
    for shift in shifts:
        times.update(tally.indices(shift, label))

    def rank(index: int) -> tuple[bool, int, int]:
        return not tally.has(BASE, label, index), -times[index], index

    common = min(times, key=rank, default=0)
    row: list[SampleId | None] = []
    for shift in shifts:
        index = common
        if not tally.has(shift, label, common):
            index = next(tally.indices(shift, label), None)
        row.append(None if index is None else SampleId(shift, label, index))
    return row


def pairs_first(tally: Tally, shift: str, label: int) -> ShownPairs:
    """Return the images of a cell to show: those whose base is accepted too, then others, by
    index."""
    pairs = []
    alone = []
    for index in tally.indices(shift, label):
        shifted = SampleId(shift, label, index)
        if tally.has(BASE, label, index):
            pairs.append((SampleId(BASE, label, index), shifted))
        else:
            alone.append((None, shifted))
        if len(pairs) == PAIRS_A_CLASS:
            break
    return (*pairs, *alone)[:PAIRS_A_CLASS]


def _overview(
    rows: Mapping[str, Sequence[SampleId | None]],
    columns: Sequence[Shift],
    images: Images,
) -> bytes:
    """Draw classes (name → its samples) as rows, the base and the shifts as columns."""
    left = _MARGIN + _LABEL_WIDTH
    across = (WIDEST - left - _MARGIN) // len(columns)
    down = (TALLEST - 4 * _MARGIN) // len(rows)
    side = min(LARGEST, across - _GAP, down - _GAP)
    size = _TEXT if side > 80 else 10
    titles = [wrapped(in_words(shift.name), size, side, 3) for shift in columns]
    most_lines = max(map(len, titles))
    top = _MARGIN + most_lines * line_height(size) + 4
    step = side + _GAP
    width = left + len(columns) * step + _MARGIN
    height = top + len(rows) * step + _MARGIN
    sheet = Sheet.blank(width, height)
    for column, lines in enumerate(titles):
        x = left + column * step + side // 2
        y = top - 4 - len(lines) * line_height(size)
        is_base = columns[column].name == BASE
        sheet.text(lines, x, y, size, anchor="ma", bold=is_base)
    for row, (name, samples) in enumerate(rows.items()):
        y = top + row * step
        lines = wrapped(name, _TEXT, _LABEL_WIDTH - 10, 3)
        space = side - len(lines) * line_height(_TEXT)
        middle = y + space // 2
        sheet.text(lines, left - 10, middle, _TEXT, anchor="ra")
        for column, sample in enumerate(samples):
            picture = None if sample is None else images[sample]
            sheet.picture(picture, left + column * step, y, side)
    return sheet.encoded()


def _shift_sheet(
    shift: Shift,
    cells: Mapping[str, ShownPairs],
    base_images: Images,
    pictures: Pictures,
) -> bytes:
    """Draw a block per class (name → its pairs), two side by side: the base above, the shift
    below."""
    images = pictures.read(sample for pairs in cells.values() for _, sample in pairs)
    across = min(2, len(cells))
    block_width = PAIRS_A_CLASS * (_PAIR_SIDE + _GAP) - _GAP
    title = line_height(_TEXT) + 4
    block_height = title + 2 * _PAIR_SIDE + _GAP
    head = line_height(_TEXT) + 10
    down = -(-len(cells) // across)
    step = block_width + 2 * _MARGIN  # between blocks, from left to left
    drop = block_height + _MARGIN  # from top to top
    width = across * step
    sheet = Sheet.blank(width, _MARGIN + head + down * drop)
    heading = f"above: base · below: {in_words(shift.name)}"
    lines = wrapped(heading, _TEXT, width - 2 * _MARGIN, 1)
    sheet.text(lines, _MARGIN, _MARGIN, _TEXT, faint=True)
    for number, (name, pairs) in enumerate(cells.items()):
        row, position = divmod(number, across)
        x = _MARGIN + position * step
        y = _MARGIN + head + row * drop
        lines = wrapped(name, _TEXT, block_width, 1, bold=True)
        sheet.text(lines, x, y, _TEXT, bold=True)
        for column, (base, shifted) in enumerate(pairs):
            left = x + column * (_PAIR_SIDE + _GAP)
            above = y + title
            base_image = None if base is None else base_images[base]
            sheet.picture(base_image, left, above, _PAIR_SIDE)
            sheet.picture(images[shifted], left, above + _PAIR_SIDE + _GAP, _PAIR_SIDE)
    return sheet.encoded()

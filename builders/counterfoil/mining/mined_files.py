"""Write the files of a mining run. The findings are written last, so a folder that has findings has
every file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.data.labelled_images import LabelledImages
from counterfoil.dataset.card.index_page import write_index
from counterfoil.documents import document_text, read_document
from counterfoil.errors import UserError, warn
from counterfoil.mining.audited import parts_with
from counterfoil.mining.findings import Findings, findings_csv_text
from counterfoil.mining.findings_layer import VECTORS
from counterfoil.mining.hypotheses import MiningRun
from counterfoil.mining.pools import POOL_LAYER, WEIGHTS, FilteredPool
from counterfoil.mining.report import mining_html, page_thumbnail, pictures_wanted
from counterfoil.recipe import Recipe, dump_recipe, load_recipe
from counterfoil.store.atomic import (
    make_folder,
    remove_durably,
    replace_files,
    try_folder,
    write_atomically,
)

FINDINGS = "findings.json"
TABLE = "findings.csv"
REPORT = "report.html"
LAYER = "recipe.yaml"
RELABEL = "relabel.csv"
ROWS = "rows.csv"
ADVERSARIAL = "adversarial.yaml"
_NAMED = {
    "findings": FINDINGS, "table": TABLE, "vectors": VECTORS, "report": REPORT, "relabel": RELABEL, "rows": ROWS,
    "recipe": LAYER, "adversarial": ADVERSARIAL, "pool": POOL_LAYER, "weights": WEIGHTS,
}  # fmt: skip


@dataclass(frozen=True)
class MineResult:
    """The findings and their files."""

    directory: Path
    findings: Findings
    files: Mapping[str, Path]
    """By name. `recipe` exists only if a finding was confirmed, `rows` only if there is no recipe,
    and `relabel` only if wrong labels may explain a finding."""
    pool: FilteredPool | None = None

    def __repr__(self) -> str:
        return f"<MineResult in {self.directory}: {self.findings!r}>"

    def _repr_html_(self) -> str:
        return self.findings._repr_html_()


def written_recipe(
    recipe: Recipe,
    overrides: Sequence[str],
    folder: Path,
) -> Path:
    """Write a Recipe object to a file that layers can extend, and return its path."""
    load_recipe(recipe, overrides)
    try_folder(folder)
    make_folder(folder)
    path = folder / f"given-{recipe.recipe_hash[:12]}.yaml"
    write_atomically(path, dump_recipe(recipe).encode())
    return path


def image_notes(
    recipe: Recipe,
    on: Sequence[str],
    *,
    in_words: bool,
) -> tuple[str, ...]:
    """Return notes about the images, and why the findings have no recipe. in_words: whether words
    could draw them."""
    notes = []
    train = recipe.source.train_split
    if train in on:
        notes.append(
            f"the source has one split, '{train}', and a classifier fails less on images that it"
            " learned from: on new images it may fail in other ways"
        )
    if not in_words:
        notes.append(
            "the findings have no recipe: no words draw them, and what was measured of a group may"
            " not be what makes it fail. Known changes of your own photographs (generator.kind:"
            " corrupt) show what darkness, blur or compression does alone."
            f" {ROWS} lists the rows that fail, and their findings"
        )
    elif not recipe.kind.from_noise:
        does = "edits rows of real images and cannot draw from words alone"
        if not recipe.kind.draws:
            does = "uses rows of real images and draws none"
        notes.append(
            f"the findings have no recipe, because generator.kind '{recipe.kind.name}' {does}."
            f" {ROWS} lists the rows that fail, and their findings. A recipe that draws"
            " (generator.kind: diffusers) gets a recipe of its findings"
        )
    return tuple(notes)


def refuse_others(run: MiningRun, parts: Sequence[LabelledImages]) -> None:
    """Raise UserError if the run's folder holds findings of another recipe, target, method or other
    images."""
    folder = run.folder
    path = folder / FINDINGS
    if not path.exists():
        return
    known = read_document(path, Findings)
    contents = [images.content for images in known.on]
    same = {
        "recipe": known.recipe.name == run.recipe.name,
        "target": known.target.name == run.target,
        "method": known.method.name == run.mine.method,
        "images": contents == [part.content for part in parts],
    }
    other = [name for name, is_same in same.items() if not is_same]
    if other:
        raise UserError(
            f"{folder} holds findings of another {' and '.join(other)} ({known.recipe.name},"
            f" {known.target.name})",
            "Name another folder with --out, or remove that one.",
        )


def write_mined(
    folder: Path,
    findings: Findings,
    images: Iterable[tuple[str, LabelledImages]],
    files: Mapping[str, bytes],
    pool: FilteredPool | None = None,
) -> MineResult:
    """Write the findings, their table, their page and other `files`. images: those that the page
    may show, each part with the prefix of its keys.
    """
    pictures: dict[str, bytes] = {}
    for start, part, keys in parts_with(pictures_wanted(findings), images):
        shown = frozenset(keys).intersection(part.keys)
        for key, encoded in part.images(shown) if shown else ():
            image = part.decoded(encoded)
            if image is not None:
                pictures[f"{start}{key}"] = page_thumbnail(image)
    page = mining_html(findings, pictures, has_recipe=LAYER in files)
    whole = dict(files)
    whole[TABLE] = findings_csv_text(findings).encode()
    whole[REPORT] = page.encode()
    whole[FINDINGS] = document_text(findings).encode()
    # a killed try goes on with the findings before
    if not any(drawn.purpose == "try" for drawn in findings.rounds):
        remove_durably(folder / FINDINGS)  # a folder that has findings has every file
    replace_files(folder, whole)
    write_index(folder)
    files_written = {}
    for what, name in _NAMED.items():
        path = folder / name
        if path.exists():
            files_written[what] = path.resolve()
    if findings.doubts:
        warn("\n".join(findings.doubts))
    return MineResult(folder, findings, files_written, pool)

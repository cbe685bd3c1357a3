"""The index page: one file in a directory that leads to every page there, each with what it says in a line.

It lies at the top as `index.html`, where a person looks, and is of this copy alone: `store.layout` lists it beside
`.counterfoil/`, so that no manifest has it, nothing publishes it and verification passes over it. Every command that
writes a page writes it anew from what then lies there.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from counterfoil import __version__
from counterfoil.dataset.card.contact_sheets import OVERVIEW, sheet_name
from counterfoil.errors import CounterfoilError
from counterfoil.generate.screen import open_shifts
from counterfoil.recipe import load_own_recipe
from counterfoil.recipe.keep import ACCEPTED
from counterfoil.report.results import results_from
from counterfoil.report.templates import template_environment
from counterfoil.report.words import between, counted, in_words, listed, percent, points
from counterfoil.store.atomic import disk_errors, write_atomically
from counterfoil.store.inside import MOST_DOCUMENT, read_inside
from counterfoil.store.layout import CARD, FIGURES, INDEX, LOCK, PRIVATE, REVIEW
from counterfoil.store.reading import read_receipts

TEMPLATE = "index.html.j2"
CALIBRATE, ANSWER = f"{PRIVATE}/calibrate.html", f"{PRIVATE}/review.html"
FINDINGS, MENDED = "findings.json", "mend.json"
# What distinguishes a page of ours from somebody's own, which is left alone; within so many bytes.
_OURS, _HEAD = b'<meta name="generator" content="Counterfoil', 500
_MOST_LINE = 300
_MOST_FOLDERS = 100


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A page of a directory: where it lies there, what it is called, what it says, and (name, path) of more like it."""

    path: str
    title: str
    line: str = ""
    more: tuple[tuple[str, str], ...] = ()


def write_index(directory: Path) -> None:
    """Write the index page of a directory, unless a page of somebody's own lies there. Raises as `write_atomically`."""
    place, content = directory / INDEX, index_html(directory, index_entries(directory)).encode()
    try:
        there = read_inside(directory, INDEX)
        if there == content or _OURS not in there[:_HEAD]:
            return
    except FileNotFoundError:
        pass
    except OSError:
        return  # a link, or too large to be ours
    # A killed run leaves nothing half-written among the files that a manifest lists.
    private = directory / PRIVATE
    if not private.is_dir():
        write_atomically(place, content)
        return
    write_atomically(private / INDEX, content)
    with disk_errors(place):
        (private / INDEX).replace(place)


def index_html(
    directory: Path,
    entries: Sequence[IndexEntry],
    served: Mapping[str, str] | None = None,
    saved: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page as text. served: path → address of served pages. saved: what is saved, and its command."""
    environment = template_environment(TEMPLATE, {"quoted": quote})
    return environment.get_template(TEMPLATE).render(
        name=directory.resolve().name.encode(errors="replace").decode(),
        entries=entries,
        served=served,
        saved=saved,
        version=__version__,
    )


def index_entries(directory: Path, served: Collection[str] = ()) -> list[IndexEntry]:
    """List the pages that lie in a directory now, and those that are `served` whether or not they do, by path."""
    found = [*_dataset(directory), *_reports(directory)]
    for name in _folders(directory / "rounds"):  # the datasets that rounds of mining drew
        page = f"rounds/{name}/dataset/{INDEX}"
        found.append(IndexEntry(page, f"Round {name}", "The images that test the descriptions."))
    return [one for one in found if one.path in served or _is_there(directory, one.path)]


def _dataset(directory: Path) -> Iterator[IndexEntry]:
    if not (directory / LOCK).is_file():
        return
    recipe, counts = None, ""
    with contextlib.suppress(CounterfoilError, OSError):  # a directory that is damaged has pages all the same
        recipe = load_own_recipe(directory)
        reasons = [reasons for receipt in read_receipts(directory) for reasons in receipt.counts.values()]
        accepted = sum(each.get(ACCEPTED, 0) for each in reasons)
        candidates = counted(sum(sum(each.values()) for each in reasons), "candidate")
        classes = counted(len(recipe.classes), "class", "classes")
        shifts = counted(len(recipe.prompts.shifts), "shift")
        counts = f"{recipe.name}: {accepted:,} of {candidates} accepted, {classes}, {shifts}."
    yield IndexEntry(CARD, "Dataset card", counts)
    every = recipe.all_shifts() if recipe else ()
    sheets = [(in_words(shift.name), f"{FIGURES}/{sheet_name(shift.name)}") for shift in every]
    yield IndexEntry(
        f"{FIGURES}/{OVERVIEW}",
        "Contact sheets",
        "Images of all classes and shifts, and of each shift next to the base:",
        tuple(sheet for sheet in sheets if _is_there(directory, sheet[1])),
    )
    waiting = open_shifts(recipe) if recipe else ()
    line = f"Without a threshold: {listed([in_words(name) for name in waiting])}." if waiting else ""
    yield IndexEntry(CALIBRATE, "Thresholds", line or "Choose thresholds by looking at the images.")
    raters = _document(directory, f"{REVIEW}/selection.json").get("raters")
    line = f"Answered by {counted(len(raters), 'person', 'people')}." if isinstance(raters, list) else ""
    yield IndexEntry(ANSWER, "Review", line or "Say what the images show. The answers go on the card.")
    yield from _evaluation(directory, f"{PRIVATE}/evaluation/")


def _reports(directory: Path) -> Iterator[IndexEntry]:
    """Yield the `report.html` of folders, named by their documents."""
    if _is_there(directory, MENDED):
        yield IndexEntry("report.html", "Mended", _said(_document(directory, MENDED).get("headline")))
        models = [f"models/{name}/{CARD}" for name in _folders(directory / "models")]
        cards = [one for one in (f"model/{CARD}", *models) if _is_there(directory, one)]
        for path in cards:
            yield IndexEntry(path, "Model card", _said(path.rpartition("/")[0]))
    elif _is_there(directory, FINDINGS):
        yield IndexEntry("report.html", "Findings", _found(_document(directory, FINDINGS)))
        yield IndexEntry("recipe.yaml", "Recipe of the findings", "Builds a dataset of these failures.")
    else:
        yield from _evaluation(directory, "")


def _found(document: Mapping[str, Any]) -> str:
    """Return what findings.json comes to, in words."""
    try:
        confirmed = [one for one in document["findings"] if one["confirmed"]]
        words = listed([f"“{one['words']}”" for one in confirmed], most=3)
        tested = counted(int(document["tested"]), "hypothesis", "hypotheses")
        if not confirmed:
            return _said(f"{document['target']['name']}: none of {tested} confirmed.")
        return _said(f"{document['target']['name']}: {len(confirmed)} of {tested} confirmed: {words}.")
    except (KeyError, TypeError, ValueError):
        return ""


def _evaluation(directory: Path, below: str) -> Iterator[IndexEntry]:
    line, path = "", f"{below}results.json"
    with contextlib.suppress(CounterfoilError, OSError):  # a page is there all the same
        results = results_from(read_inside(directory, path, MOST_DOCUMENT), path)
        line = f"{counted(len(results.models), 'model')}: "
        right = {
            model.name: results.rows.value("top1", model=model.name, group=results.base or "")
            for model in results.models
        }
        best = max(right, key=lambda name: right[name] or 0.0, default="")
        if results.by_impact and (impact := results.rows.estimate("impact", group=results.by_impact[0].name)):
            most = in_words(results.by_impact[0].name)
            line += f"accuracy falls most under “{most}”, by {points(impact.value)} points ({between(impact)})."
        elif best:
            line += f"{best} is right about {percent(right[best])} of images."
    yield IndexEntry(f"{below}report.html", "Evaluation", _said(line))
    yield IndexEntry(f"{below}failures.html", "Failures", "The images that models get wrong, by model and shift.")


def _folders(folder: Path) -> list[str]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(one.name for one in folder.iterdir() if one.is_dir() and not one.is_symlink())[:_MOST_FOLDERS]


def _is_there(directory: Path, path: str) -> bool:
    return (directory / path).is_file() and not (directory / path).is_symlink()


def _document(directory: Path, path: str) -> dict[str, Any]:
    try:
        document = json.loads(read_inside(directory, path))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _said(line: Any) -> str:
    """Return a line that a document says, as plain text of a bounded length."""
    text = " ".join(line.encode(errors="replace").decode().split()) if isinstance(line, str) else ""
    return text if len(text) <= _MOST_LINE else f"{text[: _MOST_LINE - 1]}…"

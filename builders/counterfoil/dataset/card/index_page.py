"""Write a directory's index page, `index.html`: a link to every page in it, each with a line about
its content.

It belongs to this copy alone: manifests, publishing and verification ignore it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from counterfoil import __version__
from counterfoil.dataset.card.contact_sheets import OVERVIEW, sheet_name
from counterfoil.dataset.card.markdown import without_marks
from counterfoil.documents import parse_json
from counterfoil.errors import CounterfoilError
from counterfoil.generate.screen.thresholds import open_shifts
from counterfoil.recipe import load_own_recipe
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.schema_mine import WORDS_UNTRUSTED
from counterfoil.report.headline import loss_sentence
from counterfoil.report.results import results_from
from counterfoil.report.templates import template_environment
from counterfoil.report.words import (
    format_count,
    format_list,
    format_percent,
    in_words,
    preview_sentence,
)
from counterfoil.store.atomic import disk_errors, write_atomically
from counterfoil.store.inside import MOST_DOCUMENT, read_inside
from counterfoil.store.layout import (
    CARD,
    EVALUATION,
    FIGURES,
    INDEX,
    LOCK,
    PREVIEW,
    PRIVATE,
    REVIEW,
)
from counterfoil.store.reading import read_receipts
from counterfoil.store.receipts import preview_images

TEMPLATE = "index.html.j2"
CARD_PAGE = f"{PRIVATE}/card.html"
_MOST_CARD = 500_000
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_FOLDED = re.compile(r"^</?details>\n|^<summary>(.*)</summary>$", re.MULTILINE)
CALIBRATE = f"{PRIVATE}/calibrate.html"
ANSWER = f"{PRIVATE}/review.html"
FINDINGS = "findings.json"
MENDED = "mend.json"
# A marker in the first bytes of our page; a user's own index.html lacks it and is left alone.
_OURS = b'<meta name="generator" content="Counterfoil'
_HEAD = 500
_MOST_LINE = 300
_MOST_FOLDERS = 100


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A page of a directory."""

    path: str
    title: str
    line: str = ""
    """A line about its content."""
    more: tuple[tuple[str, str], ...] = ()
    """The name and the path of each related page."""


def card_html(directory: Path, home: str = ".", above: str = "") -> str:
    """Return the card as a page. home: the link to all pages. above: the way from the page to the
    directory."""
    from markdown_it import MarkdownIt

    text = read_inside(directory, CARD, _MOST_CARD).decode(errors="replace")
    text = without_marks(_FRONT_MATTER.sub("", text))
    text = _FOLDED.sub(lambda match: f"**{match[1]}**" if match[1] else "", text)
    # HTML in the Markdown is shown as text, and no link leads to a script.
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    body = re.sub(r'(src|href)="(?![a-z]+:|[#/])', rf'\1="{above}', body)
    page = template_environment("opened-card.html.j2").get_template("opened-card.html.j2")
    return page.render(name=directory.name, body=body, home=home)


def write_index(directory: Path) -> None:
    """Write the index page of a directory, unless it has a user's own. Raises as
    `write_atomically`."""
    if (directory / PRIVATE).is_dir() and _is_there(directory, CARD):
        with contextlib.suppress(OSError):  # a link, or too large
            page = card_html(directory, f"../{INDEX}", "../")
            write_atomically(directory / CARD_PAGE, page.encode())
    path = directory / INDEX
    content = index_html(directory, index_entries(directory)).encode()
    try:
        existing = read_inside(directory, INDEX)
        if existing == content or _OURS not in existing[:_HEAD]:
            return
    except FileNotFoundError:
        pass
    except OSError:
        return  # a link, or too large for a page of ours
    # Write in the private folder first, so that a killed run leaves nothing half-written beside
    # listed files.
    private = directory / PRIVATE
    if not private.is_dir():
        write_atomically(path, content)
        return
    write_atomically(private / INDEX, content)
    with disk_errors(path):
        (private / INDEX).replace(path)


def index_html(
    directory: Path,
    entries: Sequence[IndexEntry],
    served: Mapping[str, str] | None = None,
    saved: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page as text. served: path → address of served pages. saved: what is saved, and
    its command."""
    environment = template_environment(TEMPLATE, {"quoted": quote})
    return environment.get_template(TEMPLATE).render(
        name=directory.resolve().name.encode(errors="replace").decode(),
        entries=entries,
        served=served,
        saved=saved,
        version=__version__,
    )


def index_entries(directory: Path, served: Collection[str] = ()) -> list[IndexEntry]:
    """List the pages that exist in a directory, and the `served` pages even if they do not
    exist."""
    card = CARD if CARD in served or not _is_there(directory, CARD_PAGE) else CARD_PAGE
    entries = [*_dataset(directory, card), *_reports(directory)]
    for name in _folders(directory / "rounds"):  # the datasets that rounds of mining drew
        page = f"rounds/{name}/dataset/{INDEX}"
        entries.append(IndexEntry(page, f"Round {name}", "The images that test the descriptions."))
    return [entry for entry in entries if entry.path in served or _is_there(directory, entry.path)]


def _dataset(directory: Path, card: str) -> Iterator[IndexEntry]:
    if not (directory / LOCK).is_file():
        return
    recipe = None
    counts = ""
    # list the pages of a damaged directory too
    with contextlib.suppress(CounterfoilError, OSError):
        recipe = load_own_recipe(directory)
        receipts = read_receipts(directory)
        accepted = 0
        drawn = 0
        for receipt in receipts:
            for reasons in receipt.counts.values():
                accepted += reasons.get(ACCEPTED, 0)
                drawn += sum(reasons.values())
        candidates = format_count(drawn, "candidate")
        classes = format_count(len(recipe.task.names(recipe.source)), *recipe.task.nouns)
        shifts = format_count(len(recipe.prompts.shifts), "shift")
        counts = f"{recipe.name}: {accepted:,} of {candidates} accepted, {classes}, {shifts}."
        preview = preview_sentence(preview_images(recipe, receipts))
        if preview:
            counts = f"{preview} {counts}"
    yield IndexEntry(card, "Dataset card", counts)
    every = recipe.all_shifts() if recipe else ()
    sheets = []
    for shift in every:
        sheet = f"{FIGURES}/{sheet_name(shift.name)}"
        if _is_there(directory, sheet):
            sheets.append((in_words(shift.name), sheet))
    yield IndexEntry(
        f"{FIGURES}/{OVERVIEW}",
        "Contact sheets",
        "Images of all classes and shifts, and of each shift next to the base:",
        tuple(sheets),
    )
    line = "Choose thresholds by looking at the images."
    waiting = open_shifts(recipe) if recipe else ()
    if waiting:
        line = f"Without a threshold: {format_list([in_words(name) for name in waiting])}."
    yield IndexEntry(CALIBRATE, "Thresholds", line)
    line = "Say what the images show. The answers go on the card."
    raters = _document(directory, f"{REVIEW}/selection.json").get("raters")
    if isinstance(raters, list):
        line = f"Answered by {format_count(len(raters), 'person', 'people')}."
    yield IndexEntry(ANSWER, "Review", line)
    full = _is_there(directory, f"{PRIVATE}/{EVALUATION}/report.html")
    yield from _evaluation(directory, f"{PRIVATE}/{EVALUATION if full else PREVIEW}/")


def _reports(directory: Path) -> Iterator[IndexEntry]:
    if _is_there(directory, MENDED):
        headline = _document(directory, MENDED).get("headline")
        yield IndexEntry("report.html", "Mended", _said(headline))
        models = [f"models/{name}/{CARD}" for name in _folders(directory / "models")]
        cards = [path for path in (f"model/{CARD}", *models) if _is_there(directory, path)]
        for path in cards:
            yield IndexEntry(path, "Model card", _said(path.rpartition("/")[0]))
    elif _is_there(directory, FINDINGS):
        document = _document(directory, FINDINGS)
        limit = document.get("preview")
        preview = preview_sentence(limit, "part") if isinstance(limit, int) else ""
        line = " ".join(filter(None, (preview, _found(document))))
        yield IndexEntry("report.html", "Findings", line)
        yield IndexEntry(
            "recipe.yaml",
            "Recipe of the findings",
            "Builds a dataset of these failures.",
        )
    else:
        yield from _evaluation(directory, "")


def _found(document: Mapping[str, Any]) -> str:
    try:
        confirmed = [finding for finding in document["findings"] if finding["confirmed"]]
        trusted = []
        for finding in confirmed:
            if not finding.get("words_untrusted"):
                trusted.append(f"“{finding['words']}”")
        rest = len(confirmed) - len(trusted)
        parts = [format_list(trusted, most=3)] if trusted else []
        if rest:
            parts.append(f"{rest} with {WORDS_UNTRUSTED}")
        tested = format_count(int(document["tested"]), "hypothesis", "hypotheses")
        target = document["target"]["name"]
        if not confirmed:
            return _said(f"{target}: none of {tested} confirmed.")
        words = "; ".join(parts)
        return _said(f"{target}: {len(confirmed)} of {tested} confirmed: {words}.")
    except (KeyError, TypeError, ValueError):
        return ""


def _evaluation(directory: Path, below: str) -> Iterator[IndexEntry]:
    line = ""
    path = f"{below}results.json"
    with contextlib.suppress(CounterfoilError, OSError):  # the page exists anyway
        results = results_from(read_inside(directory, path, MOST_DOCUMENT), path)
        line = f"{results.preview_sentence} " if results.preview else ""
        line += f"{format_count(len(results.models), 'model')}: "
        best = next((model.name for model in results.best_first), "")
        base = results.base_number(best)
        if base is not None:
            line += f"{best} has an {results.lead} of {format_percent(base.value)} on the base."
            at = "" if results.lead == "accuracy" else results.lead
            if any(model.name == best and model.near_chance for model in results.models):
                line += " It is near chance there, so drops say nothing."
            elif drops := results.rows.where("drop", model=best, class_id="", at=at):
                line += f" {loss_sentence(results, 'It', results.lead, drops)}"
        elif best:
            right = results.rows.value("top1", model=best)
            line += f"{best} is right about {format_percent(right)} of images."
    yield IndexEntry(f"{below}report.html", "Evaluation", _said(line))
    yield IndexEntry(
        f"{below}failures.html",
        "Failures",
        "The images that models get wrong, by model and shift.",
    )


def _folders(folder: Path) -> list[str]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    folders = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    return sorted(path.name for path in folders)[:_MOST_FOLDERS]


def _is_there(directory: Path, path: str) -> bool:
    return (directory / path).is_file() and not (directory / path).is_symlink()


def _document(directory: Path, path: str) -> dict[str, Any]:
    try:
        document = parse_json(read_inside(directory, path))
    except (OSError, ValueError):
        return {}
    if isinstance(document, dict):
        return document
    return {}


def _said(line: Any) -> str:
    if not isinstance(line, str):
        return ""
    text = " ".join(line.encode(errors="replace").decode().split())
    if len(text) <= _MOST_LINE:
        return text
    # Whole sentences, else whole words, else a part of a word.
    for end in (r"(?<=[.!?])(?= )", r"(?= )"):
        begin = re.match(rf".{{1,{_MOST_LINE - 2}}}{end}", text)
        if begin is not None:
            return f"{begin[0]} …"
    return f"{text[: _MOST_LINE - 2]} …"

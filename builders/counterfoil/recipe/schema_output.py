"""Sections of a recipe: how many samples, and how they are stored, scored and published."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from counterfoil.errors import quoted
from counterfoil.recipe.corrupted import CorruptedSpec, computed_clash
from counterfoil.recipe.keep.rule import FIRST_ROWS, NEWEST_ROWS, Column
from counterfoil.recipe.names import (
    GROUP_NAME,
    LONGEST_NAME,
    REPOSITORY,
    did_you_mean,
    group_name_problem,
)
from counterfoil.recipe.preprocessing import EVERY, PREPROCESSING, preprocessing_names
from counterfoil.recipe.section import Section, field_check, raise_problem

PAIRED_BY = "paired_by"


def pair_columns(pairs: str) -> dict[str, Column]:
    """Return the columns that `samples.pairs` adds."""
    if pairs == "noise":
        return {}
    what = (
        "What the image shares with its base image in addition to noise: attention; empty for"
        " the base."
    )
    return {PAIRED_BY: Column("string", what)}


_CHANGES: list[Any] = [EVERY, *PREPROCESSING]
MOST_AUTHORS = 1000
MOST_LIMITED = 1_000_000  # images a shift of a preview
LONGEST_LINE = 200  # of an author, a version, a contact, a DOI
LONGEST_ADDRESS = 500
# The characters of an address (RFC 3986) except braces and angles, which Markdown and BibTeX
# interpret.
ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
FRAMEWORK = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")  # the spelling of all that the Hub lists
DOI = re.compile(r"10\.\d{4,9}/[-._;()/:A-Za-z0-9]+")  # as Crossref finds nearly all of them


class CellSamples(Section):
    """Samples per cell (one class under one shift): a fixed number of candidates, or a quota of
    accepted samples."""

    candidates: int | None = Field(default=None, ge=1, le=1_000_000)
    """Candidates per cell."""
    accepted: int | None = Field(default=None, ge=1, le=1_000_000)
    """Accepted samples wanted per cell."""
    at_most: int | None = Field(default=None, ge=1, le=1_000_000)
    """Maximum number of candidates per cell."""

    def problem(self) -> str | None:
        quota = self.accepted is not None or self.at_most is not None
        if self.candidates is not None and quota:
            return (
                "found candidates with accepted or at_most, expected either candidates or both of"
                " the others (null drops an inherited one)"
            )
        if self.candidates is None and (self.accepted is None or self.at_most is None):
            return "expected either candidates, or accepted and at_most"
        if self.accepted is not None and self.at_most is not None and self.at_most < self.accepted:
            return f"at_most is {self.at_most}, expected at least accepted ({self.accepted})"
        return None

    @property
    def most_candidates(self) -> int:
        """Return the most candidates that a cell can have."""
        return self.candidates or self.at_most or 0


class HeldFromBase(Section):
    """How much of a shifted image is kept from its base, and for how long, if pairs share
    attention."""

    share: float = Field(default=0.4, ge=0, le=1)
    """Share of the image, where the shift changes least, that is kept from the base; 0: none."""
    until: float = Field(default=0.6, ge=0, le=1)
    """Share of the steps during which it is kept. In the remaining steps nothing is kept."""

    def holds(self, steps: int) -> bool:
        """Return whether any of these steps ends with a held part."""
        return self.share > 0 and first_compared(steps) <= self.until * steps + 1e-6


# Base and shifted image are first compared after a sixth of the steps.
_COMPARED = 6


def first_compared(steps: int) -> int:
    """Return the first step, from 1, at whose end base and shifted image are compared."""
    return math.ceil(steps / _COMPARED)


class Samples(CellSamples):
    """Samples per cell, unless the shift says otherwise, and their noise."""

    seed: int = Field(default=0, ge=0, lt=2**53)
    """Seed of the recipe."""
    noise: Literal["paired", "independent"] = "paired"
    """`paired`: a sample of a shift starts from the noise of its base sample."""
    pairs: Literal["noise", "attention"] = "noise"
    """What a sample of a shift shares with its base sample. `noise`: only the noise. `attention`:
    also what the model attends to while it renders both, so that the object stays."""
    held: HeldFromBase = HeldFromBase()
    """How much of a shifted image is kept from its base, if pairs share attention."""
    limit: int | None = Field(default=None, ge=1, le=MOST_LIMITED)
    """Make a preview: at most so many images of each shift. Every page says so; gates and publish
    refuse it.

    A preview needs a directory of its own, and its images are the first of the whole dataset. Fewer
    than the classes take classes that are evenly spaced. Shifts are scored on the rows of the base
    first. Classes count from one image on, none is near chance, and rates of mined shifts are left
    out."""


# Image libraries call it high quality: close to lossless to the eye.
DEFAULT_QUALITY = {"jpg": 95, "webp": 90}


class ImageOutput(Section):
    """How an image is encoded."""

    format: Literal["png", "jpg", "webp"] = "png"
    """Image format; png is lossless."""
    quality: int | None = Field(default=None, ge=1, le=100)
    """Quality of jpg (null: 95) or webp (null: 90). png has no quality setting."""

    def problem(self) -> str | None:
        if self.format == "png" and self.quality is not None:
            return f"quality is {self.quality}, expected none with png, which is lossless"
        return None

    @property
    def encoding_quality(self) -> int | None:
        """Return the quality to encode at, with the default filled in; None for png."""
        return self.quality if self.quality is not None else DEFAULT_QUALITY.get(self.format)


def _rows_problem(version: int) -> str | None:
    if version <= NEWEST_ROWS:
        return None
    return f"found {version}, expected at most {NEWEST_ROWS}: later rows need a newer Counterfoil"


def _split_problem(name: str) -> str | None:
    if GROUP_NAME.fullmatch(name) and name != "all" and len(name) <= LONGEST_NAME:
        return None
    return (
        f"found {quoted(name)}, expected a split name of a-z, 0-9 and '_', other than 'all', of at"
        f" most {LONGEST_NAME} characters"
    )


class Output(Section):
    """How the dataset is stored."""

    format: Literal["parquet", "webdataset"] = "parquet"
    """Format of the shards."""
    image: ImageOutput = ImageOutput()
    """How images are encoded."""
    rows_per_shard: int = Field(default=1000, ge=1)
    """Target number of candidates per shard. A cell is never split across shards."""
    split: str = "test"
    """Split name inside the configs of the groups."""
    row_version: int | None = Field(default=None, ge=FIRST_ROWS)
    """Version of the rows' columns. A dataset's own recipe keeps it, so that a newer release reads
    and builds its rows as they are. null: the newest."""

    _known_rows = field_check("row_version", by=_rows_problem)
    _split = field_check("split", by=_split_problem)


def _changes_problem(names: tuple[str, ...]) -> str | None:
    for name in names:
        if name not in _CHANGES:
            known = did_you_mean(name, _CHANGES) or f" ({', '.join(PREPROCESSING)})"
            return f"found {quoted(name)}, expected the name of a change{known}"
    return None


class Evaluate(Section):
    """How models are scored on the dataset."""

    models: tuple[str, ...] = ()
    """Models to evaluate: names of timm, or names that begin with one of {prefixes of classifiers and
    detectors}, as in open_clip:ARCH/TAG (zero-shot), predictions:FILE (.csv or .parquet),
    chat:MODEL@ADDRESS (a chat model on a server) and python:PACKAGE.MODULE:FUNCTION (your own code;
    not in a recipe)."""
    min_images_per_class: int = Field(default=5, ge=1)
    """Leave classes with fewer accepted images out of drops (Vendrow 2023: 5)."""
    outputs: Literal["all", "classes"] | None = None
    """Whether models answer over `all` their outputs (the default), or over those of the dataset's
    `classes` alone. Both accuracies are computed; this one leads, and drops follow it."""
    preprocessing: tuple[Annotated[str, Field(json_schema_extra={"enum": _CHANGES})], ...] = ()
    """Also prepare the base images otherwise than each model does, as a deployment may: `bilinear`,
    `squash`, `bgr` and others, or `all`. Each is a shift, whose images are computed and not stored."""
    corrupted: dict[str, CorruptedSpec] = Field(default_factory=dict)
    """Shifts by name that corrupt the base images at each model's own size and crop. They are
    computed when models are evaluated, and not stored."""

    _known_changes = field_check("preprocessing", by=_changes_problem)

    @field_validator("corrupted")
    @classmethod
    def _shift_names(
        cls, values: dict[str, CorruptedSpec], info: ValidationInfo
    ) -> dict[str, CorruptedSpec]:
        for name in values:
            raise_problem(group_name_problem(name, "shift"))
        changes = preprocessing_names(info.data.get("preprocessing", ()))
        clash = computed_clash(values, changes)
        if clash is not None:
            raise_problem(f"found two computed shifts {quoted(clash)}, expected different names")
        return values


def _line_problem(text: str, expected: str) -> str | None:
    """Return a problem with a line of text for people, or None."""
    if not text.strip():
        return f"found nothing, expected {expected}"
    if len(text) > LONGEST_LINE:
        return f"found {len(text):,} characters, expected {expected} of at most {LONGEST_LINE}"
    # line breaks, and marks that reverse the direction of writing, among others
    if not text.isprintable():
        return f"found {text[:80]!r}, expected {expected} without control characters"
    return None


def _address_problem(address: str) -> str | None:
    """Return a problem with a public address, or None; a name or password in it is not shown."""
    _, _, after_scheme = address.partition("//")
    host, *_ = re.split(r"[/?#]", after_scheme)
    if "@" in host:
        return "found an address with a name or a password in it, expected the plain one"
    if len(address) <= LONGEST_ADDRESS and ADDRESS.fullmatch(address):
        with suppress(ValueError):
            parts = urlsplit(address)
            if parts.hostname and parts.port != 0:
                return None
    # The text before an @ may be a password.
    found = "an unclear address with @" if "@" in address else repr(address[:80])
    form = f"http or https, ASCII, at most {LONGEST_ADDRESS} characters"
    return f"found {found}, expected an address such as https://example.org/cranes ({form})"


def _repository_problem(name: str) -> str | None:
    if not name or REPOSITORY.fullmatch(name):
        return None
    return f"found {quoted(name)}, expected user/name"


def _authors_problem(authors: tuple[str, ...]) -> str | None:
    if not 1 <= len(authors) <= MOST_AUTHORS:
        expected = f"from 1 to {MOST_AUTHORS:,} (null: the owner of the repository)"
        return f"found {len(authors):,} authors, expected {expected}"
    for author in authors:
        problem = _line_problem(author, "an author")
        if problem is not None:
            return problem
        if not author.strip("{} "):
            return "found braces without a name in them"
    return None


def _framework_problem(name: str) -> str | None:
    if len(name) > LONGEST_LINE or not FRAMEWORK.fullmatch(name):
        return (
            f"found {name[:80]!r}, expected an identifier of the Hub's list, such as 'math-arena'"
        )
    if name == "inspect-ai":
        return (
            "found 'inspect-ai', whose tasks hold questions and scorers for language models; for"
            " these, write eval.yaml yourself"
        )
    return None


def _doi_problem(doi: str) -> str | None:
    if len(doi) <= LONGEST_LINE and DOI.fullmatch(doi):
        return None
    inside = re.search(rf"{DOI.pattern}$", doi[:LONGEST_LINE])
    meant = f"; did you mean '{inside[0]}'?" if inside else ""
    return f"found {doi[:80]!r}, expected a DOI such as '10.1234/abc', and no address{meant}"


class Publish(Section):
    """Where the dataset is published, who made it, and how to cite it."""

    repo: str | None = None
    """The dataset's repository on the Hub, `user/name`."""
    private: bool = True
    """Whether the repository is private."""
    tags: tuple[str, ...] = ()
    """Tags added to the card."""
    authors: tuple[str, ...] | None = None
    """Authors of the dataset, in citation order: `Jane Doe` or `Doe, Jane`. Put an organisation in
    braces, as in BibTeX: `{Institute of Things}`. null: the owner of the repository."""
    year: int | None = Field(default=None, ge=1900, le=2999)
    """Year of the citation."""
    version: str | None = None
    """Version of the dataset, as in `1.0.0`."""
    url: str | None = None
    """Address of the dataset or its paper. null: its repository on the Hub."""
    doi: str | None = None
    """DOI of the dataset, `10.NNNN/…`, without the resolver's address."""
    contact: str | None = None
    """Contact: an email address or the address of a page."""
    evaluation_framework: str | None = None
    """Describes the dataset as a benchmark for the Hub: writes `eval.yaml` with this framework, an
    identifier of the Hub's list, and with a task for the base and each shift. null: no such file is
    written."""

    _repository = field_check("repo", by=_repository_problem)
    _address = field_check("url", by=_address_problem)
    _version = field_check("version", by=partial(_line_problem, expected="a version"))
    _contact = field_check("contact", by=partial(_line_problem, expected="a contact"))
    _names = field_check("authors", by=_authors_problem)
    _framework = field_check("evaluation_framework", by=_framework_problem)
    _identifier = field_check("doi", by=_doi_problem)

"""The findings document: all that mining found, tried and could not try, as typed values, JSON, CSV and a schema.

Rates, differences and accuracies are fractions and are never rounded here; pages and cards round. All intervals are
two-sided, at 95 % unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from counterfoil.documents import (
    STRICT,
    Count,
    File,
    Interval,
    Share,
    document_text,
    parse_document,
    plain,
    schema_text,
)
from counterfoil.mining.answered import AnswersTold
from counterfoil.mining.class_audits import ClassAudit
from counterfoil.mining.drawn_findings import PairedTest, RoundDrawn, WrongAnswers
from counterfoil.mining.label_check import LabelCheck
from counterfoil.notebook import shown_table
from counterfoil.recipe.mined_facts import PERHAPS_WRONG_LABELS, WORDS_UNTRUSTED

if TYPE_CHECKING:
    from counterfoil.screen import ScreenDoubts

FINDINGS_VERSION = 1
# What a finding says in `about` where a shorter description stands for it: that one's name.
SHORTENED_TO = "shortened_to"


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a set of rows fails. `rate` is None where the set has no row."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    rows: Annotated[Count, Field(description="Rows of the set.")]
    units: Annotated[Count, Field(description="Units among them: rows that share one are not independent.")]
    failures: Annotated[Count, Field(description="Rows that the failure rule calls wrong.")]
    rate: Annotated[Share | None, Field(description="The failure rate; null where there is no row.")]
    interval: Annotated[
        Interval | None, Field(description="Its interval, clustered by unit; null where none is given.")
    ]

    def __post_init__(self) -> None:
        if self.failures > self.rows or self.units > self.rows:
            raise ValueError(f"{self.failures} failures and {self.units} units of {self.rows} rows")
        if (self.rate is None) != (self.rows == 0):
            raise ValueError(f"{self.rows} rows with the rate {self.rate}: a rate is None exactly where no row is")


@dataclass(frozen=True, slots=True)
class Difference:
    """The set's failure rate minus the rest's."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    value: Annotated[float | None, Field(description="Null where the set or the rest has no row.")]
    interval: Annotated[Interval | None, Field(description="95 %, as if this hypothesis were the only one.")]
    reported_interval: Annotated[
        Interval | None,
        Field(
            description="Widened for being one of those reported: so that 95 % of these are true on average (FCR), or,"
            " of fresh pairs, that all are at once in 95 % of runs. Null where not confirmed."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Compared:
    """A set against the rest of its classes on one half."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    set: Rate
    rest: Rate
    difference: Difference


@dataclass(frozen=True, slots=True)
class Evidence:
    """One image of a finding's set."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    key: Annotated[str, Field(description="The row's key among the labelled images.")]
    score: Annotated[float, Field(description="What evidence is ordered by: high is more in the set.")]
    failed: bool
    half: Literal["discover", "confirm", "rendered"]
    label: Annotated[str | None, Field(description="The name of its class.")] = None
    answered: Annotated[str | None, Field(description="What the target answered, as a name.")] = None
    path: File = None


@dataclass(frozen=True, slots=True)
class NearestImage:
    """One of the images nearest to a finding's caption, and the caption of the grammar that is nearest to it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    key: str
    caption: Annotated[str, Field(description="The best caption for this image among the grammar's for its class.")]
    matches: Annotated[bool, Field(description="Whether that says what the finding's own caption adds.")]
    failed: bool
    path: File = None


@dataclass(frozen=True, slots=True)
class CaptionCheck:
    """Whether the images nearest to a caption are what it says, as far as CLIP tells among the grammar's captions."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    images: Annotated[Count, Field(description="How many of the nearest images were looked at.")]
    matching: Annotated[Count, Field(description="Those whose best caption says what the finding's adds.")]
    share: Share
    class_share: Annotated[
        Share | None, Field(description="The same share among all images of the classes; null where not computed.")
    ] = None
    nearest: Annotated[tuple[NearestImage, ...], Field(description="The first of them, nearest first.")] = ()


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The target's accuracy on the k images of the classes that belong most to the set."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    k: Annotated[int, Field(ge=1)]
    accuracy: Share


@dataclass(frozen=True, slots=True)
class OtherClassifier:
    """The same set and rest under another classifier, or another training run of the target."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: str
    set: Rate
    rest: Rate


@dataclass(frozen=True, slots=True)
class RenderedTest:
    """The test on images that were rendered after the hypothesis was named: its own against its base."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    set: Annotated[Rate, Field(description="Accepted images of what the hypothesis says.")]
    rest: Annotated[Rate, Field(description="Accepted images of the base, of the same classes.")]
    difference: Difference
    p: Annotated[Share, Field(description="One-sided p of 'the difference is at most the margin'.")]


@dataclass(frozen=True, slots=True)
class NotTested:
    """A hypothesis that was named and could not be tested, so that it counts for no q-value."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    classes: Annotated[tuple[str, ...], Field(description="Ids of the classes.", min_length=1)]
    words: Annotated[str, Field(description="For people: 'sandal not on a beach'.")]
    reason: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A hypothesis that was carried to the test, confirmed or not, with its evidence."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: Annotated[str, Field(description="Unique in the document: the shift of the recipe that was written.")]
    classes: Annotated[tuple[str, ...], Field(description="Ids of the classes.", min_length=1)]
    class_names: tuple[str, ...]
    role: Annotated[
        Literal["hard", "far_from"],
        Field(description="hard: the images nearest to the caption; far_from: those with the least of what it adds."),
    ]
    words: Annotated[str, Field(description="For people: 'sandal not on a beach'.")]
    caption: Annotated[str, Field(description="The caption whose cosine makes the set.")]
    prompt: Annotated[str | None, Field(description="What renders it; null where only an embedding does.")]
    confirmed: bool
    set: Annotated[
        Rate,
        Field(
            description="The set, on what the hypothesis was tested on. Tested in pairs, what is confirmed has rates of"
            " its fresh pairs alone, and none without them."
        ),
    ]
    rest: Annotated[Rate, Field(description="All other rows of the classes there, or the base of the same noise.")]
    difference: Difference
    p: Annotated[
        Share,
        Field(
            description="One-sided p of 'the difference is at most the margin', clustered by unit; in pairs, 1 over the"
            " largest e-value against 'no worse than the base'."
        ),
    ]
    q: Annotated[
        Share,
        Field(description="p adjusted for all hypotheses tested (Benjamini, Hochberg): of the set, not of its words."),
    ]
    discover: Annotated[
        Compared | None,
        Field(description="The same on the discover half: selected, so it flatters. Null where images were drawn."),
    ]
    evidence: Annotated[tuple[Evidence, ...], Field(description="Images of the set, best first.")]
    caption_check: CaptionCheck | None = None
    nearest_curve: Annotated[tuple[CurvePoint, ...], Field(description="Descriptive: by ascending k.")] = ()
    others: tuple[OtherClassifier, ...] = ()
    tested_on: Annotated[
        Literal["rows", "rendered", "both", "pairs"],
        Field(description="Rows of the confirm half, images rendered for it, or pairs drawn one after the other."),
    ] = "rows"
    rendered: Annotated[
        RenderedTest | None, Field(description="The test on rendered images; null where none were rendered for it.")
    ] = None
    pairs: Annotated[
        PairedTest | None, Field(description="The sequential test on pairs; null where rows were tested.")
    ] = None
    answers: Annotated[WrongAnswers | None, Field(description="Wrong answers before and after.")] = None
    origin: Annotated[
        Literal["found", "shortened", "tried"] | None,
        Field(description="Whether a cluster of failures was described so, that was shortened, or a person wrote it."),
    ] = None
    about: Annotated[Mapping[str, Any], Field(description="The method's own numbers.")] = field(default_factory=dict)
    outside: Annotated[
        tuple[str, ...],
        Field(description="Names of hypotheses whose sets' rows were left out of the test: rates are of the others."),
    ] = ()
    words_untrusted: Annotated[
        bool, Field(description="Whether CLIP may not know one of the classes, so that its words prove nothing.")
    ] = False
    easiest: Annotated[
        tuple[Evidence, ...],
        Field(description="Images of the classes that the method expects to be right, easiest first; a high score is."),
    ] = ()
    labels: Annotated[LabelCheck | None, Field(description="Whether its failures look like wrong labels.")] = None

    @property
    def marks(self) -> tuple[str, ...]:
        """What people read beside its words wherever these stand."""
        wrong = (PERHAPS_WRONG_LABELS,) if self.labels is not None and self.labels.suspected else ()
        return (*wrong, WORDS_UNTRUSTED) if self.words_untrusted else wrong

    def __post_init__(self) -> None:
        if len(self.classes) != len(self.class_names):
            raise ValueError(f"{self.name}: {len(self.classes)} classes with {len(self.class_names)} names")
        if (self.rendered is None) != (self.tested_on in ("rows", "pairs")):
            raise ValueError(f"{self.name}: tested on {self.tested_on}, with rendered = {self.rendered}")
        if (self.pairs is None) != (self.tested_on != "pairs"):
            raise ValueError(f"{self.name}: tested on {self.tested_on}, with pairs = {self.pairs}")

    def perhaps_under(self, margin: float) -> bool:
        """Whether fresh pairs of a confirmed finding leave a smaller difference open: the test only denies none."""
        reported = self.difference.reported_interval
        return self.pairs is not None and reported is not None and reported[0] < margin


@dataclass(frozen=True, slots=True)
class MinedRecipe:
    """The recipe that named source, classes and CLIP."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class MethodUsed:
    """A mining method and all its settings, defaults included."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """The classifier that was audited. `sha256` is of its weights, or of the file of predictions; None if not known."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    sha256: str | None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditedImages:
    """Labelled images that the target was audited on."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    content: Annotated[str, Field(description="sha256 over the images and their order.")]
    rows: Count


@dataclass(frozen=True, slots=True)
class Half:
    """One half of the labelled images; `sha256` is over its keys."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    rows: Count
    units: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class DealtHalves:
    """The halves that share no unit: names are found on one and tested on the other."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    seed: int
    discover: Half
    confirm: Half
    by: Annotated[
        Literal["unit", "content"] | None,
        Field(description="unit: the dataset's own, and equal images; content: equal images; null where not told."),
    ] = None


@dataclass(frozen=True, slots=True)
class SmallestDifference:
    """The smallest difference that this run would have confirmed, for a typical set of its size."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    difference: Annotated[Share | None, Field(description="Null where none at all would have been seen.")]
    power: Annotated[Share, Field(description="How often it would have been seen: .8 is usual.")]
    set_rows: Annotated[Count, Field(description="Confirm rows of a typical set.")]
    rest_rows: Annotated[Count, Field(description="Confirm rows of the rest of its classes.")]
    rest_rate: Annotated[Share, Field(description="The failure rate of the rest that was assumed.")]


@dataclass(frozen=True, slots=True)
class Findings:
    """A whole run of mining. `findings` holds every hypothesis that was tested, confirmed or not."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    recipe: MinedRecipe
    method: MethodUsed
    target: Target
    on: tuple[AuditedImages, ...]
    failure: Annotated[str, Field(description="The failure rule: what counts as wrong.")]
    halves: Annotated[
        DealtHalves | None, Field(description="Null where hypotheses were tested on images drawn for them.")
    ]
    margin: Annotated[Share, Field(description="A difference up to this is no finding.")]
    fdr: Annotated[Share, Field(description="Confirmed are those with q at most this.")]
    tested: Annotated[Count, Field(description="Hypotheses carried to the test: what q-values are adjusted for.")]
    smallest_difference: SmallestDifference | None
    classes: tuple[ClassAudit, ...]
    findings: tuple[Finding, ...]
    unreadable: Annotated[
        Count, Field(description="Images of `on` that were left out of everything: they could not be decoded.")
    ] = 0
    not_tested: Annotated[
        tuple[NotTested, ...], Field(description="Named, but nothing could be rendered that would test them.")
    ] = ()
    seed: Annotated[int | None, Field(description="Of the run, where no halves were dealt that name it.")] = None
    rounds: Annotated[tuple[RoundDrawn, ...], Field(description="What was drawn, in order.")] = ()
    whitened_by: Annotated[
        str | None,
        Field(description="The rows that told centre and spread of features: of the train split, or of discover."),
    ] = None
    notes: Annotated[tuple[str, ...], Field(description="What is odd about what was proposed, for people.")] = ()
    doubts: Annotated[
        tuple[str, ...],
        Field(description="Why CLIP may not know the classes, for people, a line each; none if it does."),
    ] = ()
    answered: Annotated[
        AnswersTold | None, Field(description="What answers alone tell, without words; null where images were drawn.")
    ] = None
    findings_version: Literal[1] = FINDINGS_VERSION

    def __post_init__(self) -> None:
        names = [one.name for one in self.findings]
        if len(set(names)) < len(names):
            raise ValueError(f"findings of one name: {sorted({name for name in names if names.count(name) > 1})}")
        if self.tested != len(names):
            raise ValueError(f"{self.tested} hypotheses were tested and {len(names)} are listed")
        for one in self.findings:
            if one.confirmed and one.q > self.fdr:
                raise ValueError(f"{one.name} is confirmed with q = {one.q}, above {self.fdr}")

    def __repr__(self) -> str:
        found = f"{len(self.confirmed)} of {self.tested} hypotheses confirmed"
        return f"<Findings of {self.target.name} on {self.recipe.name}: {found}>"

    def _repr_html_(self) -> str:
        from counterfoil.mining.report import classes_table, table

        if self.standing or self.answered is None:
            columns, found = table(self, self.standing)
            columns, rows = ["finding", *columns], [[one.words, *(cell.text for cell in row)] for one, row in found]
        else:
            columns, rows = classes_table(self.answered)
        return shown_table(repr(self)[1:-1], columns, rows, " ".join(self.doubts))

    @property
    def run_seed(self) -> int:
        """The seed that the run had, with or without halves."""
        return self.halves.seed if self.halves is not None else self.seed or 0

    @property
    def confirmed(self) -> tuple[Finding, ...]:
        """The confirmed findings, in the document's order."""
        return tuple(one for one in self.findings if one.confirmed)

    @property
    def standing(self) -> tuple[Finding, ...]:
        """The confirmed findings that no shorter words stand for."""
        confirmed = {one.name for one in self.confirmed}
        return tuple(one for one in self.confirmed if one.about.get(SHORTENED_TO) not in confirmed)

    @property
    def doubt(self) -> str:
        """What speaks against words, in a few: there is no CLIP, or it may not know classes; else nothing."""
        if self.answered is not None and self.answered.without_words is not None:
            return "without words: no CLIP is available"
        return self.doubts[0].partition(":")[0] if self.doubts else ""

    def doubted(self, doubts: ScreenDoubts | None) -> Findings:
        """The same with what speaks against CLIP, and its findings of doubted classes marked."""
        if doubts is None:
            return self
        marked = (replace(one, words_untrusted=doubts.of_any(one.classes)) for one in self.findings)
        return replace(self, doubts=tuple(doubts.lines()), findings=tuple(marked))

    def to_json(self) -> dict[str, Any]:
        """The document as JSON values; what methods add in their own words is sorted by key."""
        document = plain(self)
        return {"findings_version": document.pop("findings_version"), **document}

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "findings.json") -> Findings:
        """The document that a text holds. UserError, with every problem, for one that is not of this version's form."""
        return parse_document(
            cls, text, where, version=FINDINGS_VERSION, hint="Run counterfoil mine again: it writes the file anew."
        )


def findings_json(findings: Findings) -> str:
    """The text of findings.json; equal findings give equal text. ValueError for a number that is not finite, or a value
    of another type than the document's."""
    return document_text(findings)


def findings_json_schema_text() -> str:
    """The text of `recipes/findings.schema.json`."""
    return schema_text(Findings, "Counterfoil findings")

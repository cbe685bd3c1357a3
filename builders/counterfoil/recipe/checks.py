"""Checks across the sections of a recipe.

The checks read plain mappings instead of models, so that a value of a wrong type does not hide
other problems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from counterfoil.errors import some_of
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.keep.misclassified import PARENTS, answered_class
from counterfoil.recipe.kinds import kind_of
from counterfoil.recipe.layering import KEEP_JUDGES, class_slug, texts_at
from counterfoil.recipe.names import (
    ELSEWHERE,
    LOCAL,
    OPEN_CLIP,
    did_you_mean,
    group_name_problem,
    judge_column,
    without_folders,
)
from counterfoil.recipe.parts import RecipeParts, RecipePath, RecipeProblem, mapping, sequence
from counterfoil.recipe.prompts import ABOUT_CLASS, CLASS, asks_caption, template_problem, uses
from counterfoil.recipe.schema_output import PAIRS_SHARE, HeldFromBase
from counterfoil.recipe.severity import MOST_SEVERE, level_name
from counterfoil.recipe.tasks import task_problems

_FILLED = (
    "the rule '{}' ranks a whole cell, but a quota (samples.accepted) stops before the cell is"
    " complete; expected"
    " samples.candidates instead of the quota"
)
_MOST_SUGGESTIONS = 20


def cross_section_problems(recipe: Mapping[str, Any]) -> list[RecipeProblem]:
    """Return every problem as a pair of its path in the recipe and a message."""
    parts = RecipeParts(recipe, kind_of(mapping(recipe.get("generator"))))
    return [problem for check in _CHECKS for problem in check(parts)]


def _duplicate_ids(parts: RecipeParts) -> Iterator[RecipeProblem]:
    first: dict[str, int] = {}
    for index, class_id in parts.ids.items():
        if class_id in first:
            message = (
                f"found '{class_id}' again, expected unique ids (first at"
                f" classes[{first[class_id]}])"
            )
            name, other = (
                mapping(parts.classes[position]).get("name")
                for position in (index, first[class_id])
            )
            if isinstance(name, str) and isinstance(other, str) and class_slug(name) == class_id:
                message += (
                    f"; the names '{name[:80]}' and '{other[:80]}' give the same id: write"
                    " an id for one of them"
                )
            yield ("source", "classes", index, "id"), message
        first.setdefault(class_id, index)


def _shift_names(parts: RecipeParts) -> Iterator[RecipeProblem]:
    for name in parts.shifts:
        problem = group_name_problem(name, "shift")
        if problem is not None:
            yield ("prompts", "shifts", name), problem


def _unknown_classes(parts: RecipeParts) -> Iterator[RecipeProblem]:
    unknown = 0
    for section, spec in parts.specs:
        seen: set[str] = set()
        for index, class_id in enumerate(sequence(spec.get("classes"))):
            path = (*section, "classes", index)
            if not isinstance(class_id, str):
                continue
            if parts.every and class_id not in parts.every:
                unknown += 1
                # Finding the nearest of thousands of names is slow.
                close = did_you_mean(class_id, parts.known) if unknown <= _MOST_SUGGESTIONS else ""
                yield path, f"found '{class_id}', expected the id of a class{close}"
            elif class_id in seen:
                yield path, f"found '{class_id}' again, expected each class once"
            seen.add(class_id)


def _unknown_thresholds(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find object thresholds of unknown classes, or of classes that are not in the base or
    shift."""
    for section, spec in [(("screen",), parts.screen), *parts.specs]:
        chosen = parts.every if section == ("screen",) else parts.ids_of(spec)
        for class_id, value in mapping(
            mapping(spec.get("object_threshold")).get("classes")
        ).items():
            path = (*section, "object_threshold", "classes", class_id)
            if value is None or not parts.every or class_id in chosen:
                continue
            if class_id in parts.every:
                yield path, f"found '{class_id}', expected a class that is listed here in `classes`"
            else:
                yield (
                    path,
                    f"found '{class_id}', expected the id of a"
                    f" class{did_you_mean(str(class_id), parts.known)}",
                )


def _shifts_without_base(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find shifts of classes that are not in the base. Their images could not be compared with any
    base image."""
    base = parts.specs[0][1]
    if base.get("classes") is None:
        return
    has = parts.ids_of(base)
    for section, spec in parts.of_shifts:
        lacking = sorted(parts.ids_of(spec) & parts.every - has)
        if lacking:
            shown = some_of([f"'{class_id}'" for class_id in lacking], 1)
            path = (*section, *(() if spec.get("classes") is None else ("classes",)))
            yield (
                path,
                f"has the class {shown}, expected classes that prompts.base.classes lists too",
            )


def _without_a_class(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find texts without `{class}`; mined prompts for named classes may use another word, such as
    "pullover"."""
    reported: set[RecipePath] = set()
    for path, template, spec in parts.templates():
        named = spec.get("kind") == "mined" and bool(spec.get("classes")) and path[0] == "prompts"
        captioned = path[-1] == "prompt"  # another check reports missing captions
        problem = template_problem(
            template, with_class=not named or None, about_class=True, captioned=captioned
        )
        if (
            problem is not None
            and f"expected it to contain '{{{CLASS}}}'" in problem
            and path not in reported
        ):
            reported.add(path)
            yield path, problem


def _words_of_classes(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find classes that lack the parent or category that their texts use. Each missing word is one
    problem."""
    for word in ABOUT_CLASS:
        without = [
            class_id
            for index, class_id in parts.ids.items()
            if parts.classes[index].get(word) is None
        ]
        users: dict[RecipePath, None] = {}
        lacking: dict[str, None] = {}
        for path, template, spec in parts.templates() if without else ():
            chosen = parts.ids_of(spec) if word in uses(template) else ()
            if chosen_without := [class_id for class_id in without if class_id in chosen]:
                users[path] = None
                lacking |= dict.fromkeys(chosen_without)
        if lacking:
            named = some_of(list(lacking), _MOST_SUGGESTIONS)
            which = (
                f"1 class ({named}) does"
                if len(lacking) == 1
                else f"{len(lacking):,} classes ({named}) do"
            )
            places = f" (as {len(users):,} texts do)" if len(users) > 1 else ""
            message = (
                f"uses '{{{word}}}'{places}, which {which} not have; expected `{word}` in"
                " the"
                " list of classes"
            )
            yield next(iter(users)), message


def _nothing_to_draw(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find shifts with neither prompt nor embedding."""
    if not parts.kind.prompted or not isinstance(parts.recipe.get("prompts"), Mapping):
        return
    specs = {("prompts", "base"): parts.prompts.get("base") or {}}
    specs |= {("prompts", "shifts", name): spec for name, spec in parts.shifts.items()}
    for path, spec in specs.items():
        if (
            isinstance(spec, Mapping)
            and spec.get("prompt") is None
            and spec.get("embedding") is None
        ):
            yield (
                (*path, "prompt"),
                "missing, expected a prompt with '{class}', or an `embedding` to draw from",
            )


def _thresholds(parts: RecipeParts) -> Iterator[RecipeProblem]:
    default = parts.screen.get("shift_threshold")
    for section, spec in parts.of_shifts:
        caption = spec.get("caption")
        threshold = spec.get("threshold")
        path = (*section, "threshold")
        levels = mapping(spec.get("severity")).get("levels")
        if caption is not None and threshold is None and default is None and levels is None:
            yield (
                path,
                "missing; the shift has a caption, expected a threshold here or"
                " screen.shift_threshold",
            )
        if caption is None and threshold is not None:
            yield path, "a threshold without a caption; expected a `caption` to compare images with"


def _has_quota(spec: Mapping[str, Any], samples: Mapping[str, Any]) -> bool:
    """Return whether a shift's cells have a quota, set by the shift's own samples or by the
    recipe's samples."""
    of_shift = spec.get("samples")
    return mapping(samples if of_shift is None else of_shift).get("accepted") is not None


def _open_quotas(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find quotas with a threshold that is a percentile over all candidates. It is known only after
    all are rendered.
    """
    message = (
        "a percentile over all candidates, but a quota (samples.accepted) stops before all are"
        " rendered;"
        " expected a value here, or samples.candidates instead of the quota"
    )
    default = mapping(parts.screen.get("shift_threshold")).get("percentile")
    inherits = False
    for section, spec in parts.of_shifts:
        threshold = spec.get("threshold")
        if spec.get("caption") is None or not _has_quota(spec, parts.samples):
            continue
        inherits = inherits or threshold is None
        if mapping(threshold).get("percentile") is not None:
            yield (*section, "threshold"), message
    if default is not None and inherits:
        yield ("screen", "shift_threshold"), message


def _whole_cells(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find rules that rank a whole cell, if the cell has a quota or an open threshold."""
    default = _ranking(parts.screen.get("keep"))
    if default and parts.samples.get("accepted") is not None:
        yield ("screen", "keep"), _FILLED.format(default)
    for section, spec in parts.of_shifts:
        keep = spec.get("keep")
        threshold = spec.get("threshold")
        rule = default if keep is None else _ranking(keep)
        if rule is None:
            continue
        reported = keep is None and spec.get("samples") is None
        if _has_quota(spec, parts.samples) and not reported:
            yield (*section, "samples" if keep is None else "keep"), _FILLED.format(rule)
        resolved = parts.screen.get("shift_threshold") if threshold is None else threshold
        if spec.get("caption") is not None and mapping(resolved).get("percentile") is not None:
            message = (
                f"a percentile over all candidates with the keep rule '{rule}', which ranks what"
                " passes the threshold;"
                " expected a value"
            )
            yield (*section, "keep" if threshold is None else "threshold"), message


def _compared_with_nothing(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find `same_image` in a recipe without edits, and `top` in a recipe without a screening
    CLIP."""
    unscreened = not parts.kind.needs_screen and parts.screen.get("model") is None
    for section, spec in [(("screen",), parts.screen), *parts.of_shifts]:
        path = (*section, "keep")
        rules = _rule_names(spec.get("keep"))
        if "same_image" in rules and not parts.kind.edits:
            yield (
                path,
                "'same_image' compares an edit with its row, expected it with generator.kind edit"
                " alone",
            )
        if "top" in rules and unscreened:
            yield path, "'top' ranks by a score of CLIP, expected one that screens (screen.model)"


def _captions_of_rows(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find prompts with `{caption}` in a recipe without captions, and captions that no prompt
    uses."""
    edits = parts.kind.edits
    templates = [
        (path, template) for path, template, _ in parts.templates() if path[-1] == "prompt"
    ]
    asking = [path for path, template in templates if asks_caption(template)]
    captions_from = [
        key
        for key in ("caption_column", "captioner")
        if edits and parts.generator.get(key) is not None
    ]
    if captions_from and not asking:
        yield ("generator", captions_from[0]), "no prompt asks for '{caption}', expected null"
    if captions_from:
        return
    message = (
        "no row has a caption, expected generator.caption_column or generator.captioner"
        if edits
        else "only images that are edited have one, expected '{class}', or generator.kind edit"
    )
    if asking:
        more = f" (as {len(asking):,} prompts do)" if len(asking) > 1 else ""
        yield asking[0], f"uses '{{caption}}'{more}: {message}"


def _judges_apart(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find different judges whose columns would have the same names."""
    owners: dict[str, str] = {}
    sections = [
        (("screen", "keep"), parts.screen, KEEP_JUDGES),
        (("screen", "judge"), parts.screen, ("judge",)),
    ]
    sections += [((*path, "keep"), spec, KEEP_JUDGES) for path, spec in parts.of_shifts]
    for path, spec, keys in sections:
        for values, key in texts_at(spec, *keys):
            judge = values[key]
            other = owners.setdefault(judge_column(judge, ""), judge)
            if without_folders(other) != without_folders(judge):
                shared = f"the judges '{other}' and '{judge}' would share columns"
                yield path, f"{shared}, expected judges whose names end differently"


def _second_opinion(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find a second judge with the name of the screening CLIP. Of a folder on another machine only
    the last part is known.
    """
    model, weights, judge = (parts.screen.get(key) for key in ("model", "weights", "judge"))
    if not isinstance(model, str) or not isinstance(judge, str) or model.startswith(ELSEWHERE):
        return
    clip_name = f"{model}/{weights}" if weights is not None else model.removeprefix(LOCAL)
    if (
        judge.startswith(OPEN_CLIP)
        and judge.removeprefix(OPEN_CLIP).removeprefix(LOCAL) == clip_name
    ):
        message = f"found '{judge}', the screening model (screen.model), expected another one"
        yield ("screen", "judge"), f"{message}: it would agree with itself"


def _unknown_failures(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find failure rules with unknown classes, and failure rules that need parents if classes have
    none."""
    without = [
        mapping(entry).get("id") for entry in parts.classes if mapping(entry).get("parent") is None
    ]
    for section, spec in [(("screen",), parts.screen), *parts.of_shifts]:
        for index, step in enumerate(sequence(spec.get("keep"))):
            rule = mapping(mapping(step).get("misclassified")).get("failure")
            where = (*section, "keep", index, "misclassified", "failure")
            answered = answered_class(rule) if isinstance(rule, str) else None
            if answered is not None and parts.known and answered not in parts.every:
                yield (
                    where,
                    f"found '{rule}', expected the id of a"
                    f" class{did_you_mean(answered, parts.known)}",
                )
            elif rule in PARENTS and without:
                shown = some_of([f"'{class_id}'" for class_id in without], 1)
                yield (
                    where,
                    f"found '{rule}', but the class {shown} has no `parent` in the list of classes",
                )


def _ranking(keep: Any) -> str | None:
    """Return the first keep rule whose decision about a candidate depends on the other candidates
    of the cell."""
    return next(
        (name for name in _rule_names(keep) if name in KEEP_RULES and KEEP_RULES[name].whole_cell),
        None,
    )


def _rule_names(keep: Any) -> list[str]:
    """Return the names of some keep rules, in order."""
    steps = [keep] if isinstance(keep, str | Mapping) else sequence(keep)
    return [name for step in steps for name in ([step] if isinstance(step, str) else mapping(step))]


def _ambiguous_keys(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find equal keys `{shift}_{class id}_{index}`. For example, shift a_b with class c and shift a
    with class b_c have one key.
    """
    ids = parts.every
    # For each b, the pairs (c, b_c) in which both are class ids. Most recipes have no such pair.
    meeting: dict[str, list[tuple[str, str]]] = {}
    for longer in sorted(ids):
        for before, after in _cut_at_underscores(longer):
            if after in ids:
                meeting.setdefault(before, []).append((after, longer))
    if not meeting:
        return
    cells = {"base": ids}
    for name, spec in parts.shifts.items():
        for level in _level_values(mapping(mapping(spec).get("severity"))) or [1]:
            cells[level_name(str(name), level, corrupts=parts.kind.corrupts)] = parts.ids_of(
                mapping(spec)
            )
    for name, class_ids in cells.items():
        for before, after in _cut_at_underscores(name):
            pairs = [
                pair
                for pair in meeting.get(after, ())
                if pair[0] in class_ids and pair[1] in cells.get(before, ())
            ]
            if pairs:
                message = (
                    f"the keys of class '{pairs[0][0]}' would clash with those of shift '{before}'"
                    " and class"
                    f" '{pairs[0][1]}', expected another shift name or class id"
                )
                yield ("prompts", "shifts", name), message


def _cut_at_underscores(text: str) -> list[tuple[str, str]]:
    return [(text[:index], text[index + 1 :]) for index, letter in enumerate(text) if letter == "_"]


def _of_its_kind(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find settings that the generator's kind refuses, and corruptions in a recipe of another
    kind."""
    yield from parts.kind.problems(parts)
    for path, spec in () if parts.kind.corrupts else parts.of_shifts:
        if spec.get("corruption") is not None:
            yield (*path, "corruption"), "only generator.kind corrupt corrupts rows, expected null"


def _levels(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find levels that the generator cannot draw, levels whose scenes differ, and invalid
    levels."""
    kind = parts.kind
    for path, spec in parts.of_shifts:
        severity = spec.get("severity")
        settings = severity if isinstance(severity, Mapping) else {"fixed": severity}
        at = (*path, "severity")
        if severity is None:
            continue
        if settings.get("fixed") is not None:
            if not kind.corrupts:
                yield at, "only generator.kind corrupt takes a number, expected `levels`"
        elif not kind.levels:
            yield (
                at,
                f"generator.kind {parts.kind_name} draws nothing, so it has no levels; expected"
                " null",
            )
        else:
            yield from _way_to_levels(parts, path, spec, settings)
            # These settings give each level other scenes.
            if parts.samples.get("noise", "paired") != "paired":
                yield (
                    at,
                    "samples.noise is independent, so levels would show other scenes; expected"
                    " noise: paired",
                )
            if _has_quota(spec, parts.samples):
                yield (
                    at,
                    "a quota (samples.accepted) draws other scenes at each level, expected"
                    " samples.candidates",
                )
            if "misclassified" in _rule_names(
                parts.screen.get("keep") if spec.get("keep") is None else spec["keep"]
            ):
                yield (
                    (*path, "keep"),
                    "'misclassified' keeps other scenes at each level, expected rules without it",
                )
            if spec.get("threshold") is not None:
                yield (
                    (*path, "threshold"),
                    "mild levels would fail it, expected null: levels have no shift threshold",
                )
            levels = _level_values(settings)
            shift = str(at[-2])
            steps = parts.generator.get("steps")
            if (
                settings.get("by") == "steps"
                and isinstance(steps, int)
                and not isinstance(steps, bool)
                and steps > 0
            ):
                with_shift = [math.floor(level * steps + 1e-6) for level in levels]
                # Two levels that begin at the same step, or that have no step, would have equal
                # images.
                if 0 in with_shift or len(set(with_shift)) < len(with_shift):
                    message = (
                        f"of {steps} steps, these levels have the shift's prompt in"
                        f" {', '.join(map(str, with_shift))};"
                        " expected 1 or more, and other numbers for other levels"
                    )
                    yield (*at, "levels"), message
            if kind.corrupts and any(round(value * MOST_SEVERE, 6) % 1 for value in levels):
                fifths = ", ".join(f"{step / MOST_SEVERE:g}" for step in range(1, MOST_SEVERE + 1))
                yield (
                    (*at, "levels"),
                    f"a corruption has five severities, expected some of 1 to 5, or of {fifths}",
                )
            for name in (level_name(shift, value, corrupts=kind.corrupts) for value in levels):
                if name != shift and name in parts.shifts:
                    yield (
                        at,
                        f"a level would be named '{name}', as another shift is; expected another"
                        " name for one",
                    )


def _way_to_levels(
    parts: RecipeParts, path: RecipePath, spec: Mapping[str, Any], severity: Mapping[str, Any]
) -> Iterator[RecipeProblem]:
    """Check that the generator's kind and LoRA weights support the levels of a shift."""
    kind = parts.kind
    at = (*path, "severity")
    by = severity.get("by")
    lora = severity.get("lora")
    if by is not None and by not in kind.levels:
        yield (
            (*at, "by"),
            f"found '{by}', expected {' or '.join(kind.levels)} with generator.kind"
            f" {parts.kind_name}",
        )
    named = mapping(parts.generator.get("lora"))
    if (by == "lora") != (lora is not None):
        yield (
            (*at, "lora"),
            f"found {lora or 'null'}, expected one of generator.lora with by: lora, else null",
        )
    elif isinstance(lora, str):
        if lora not in named:
            yield (*at, "lora"), f"generator.lora has no '{lora[:80]}'{did_you_mean(lora, named)}"
        if parts.samples.get("pairs") == "attention":
            yield (
                at,
                f"{PAIRS_SHARE}: a base and its level are one call, with one scale; expected"
                " another way",
            )
    if mapping(severity.get("levels")).get("realised") is not None:
        if not kind.from_noise or by == "lora":
            what = "by: lora" if by == "lora" else f"generator.kind {parts.kind_name}"
            yield (*at, "levels"), f"{what} takes no `realised:`, expected a list of levels"
        elif spec.get("caption") is None:
            yield (
                (*path, "caption"),
                "missing, expected the caption whose score `realised:` is measured by",
            )
    if not kind.corrupts:
        for where, drawn in (
            (("prompts", "base"), mapping(parts.prompts.get("base"))),
            (path, spec),
        ):
            if drawn.get("embedding") is not None:
                yield (
                    at,
                    f"{'.'.join(map(str, where))} is drawn from an embedding, expected a prompt"
                    " alone",
                )


def _level_values(severity: Mapping[str, Any]) -> list[float]:
    """Return the valid levels in a severity."""
    levels = severity.get("levels")
    listed = levels if isinstance(levels, list | tuple) else mapping(levels).get("raw", ())
    listed = listed or mapping(levels).get("realised") or ()
    return [
        value for value in sequence(listed) if isinstance(value, int | float) and 0 < value <= 1
    ]


def _unscreened(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find a missing CLIP, and screen settings that need a CLIP."""
    screen = parts.recipe.get("screen", {})
    if not isinstance(screen, Mapping) or screen.get("model") is not None:
        return
    if parts.kind.needs_screen:
        yield ("screen", "model"), "missing, expected the CLIP that screens, such as lab:clip"
        if screen.get("object_threshold") is None:
            yield ("screen", "object_threshold"), "missing, expected a number or `percentile:`"
        return
    message = "without screen.model nothing is screened, expected null"
    least = mapping(screen.get("object_threshold"))
    if least.get("percentile") is not None or least.get("classes") or least.get("value", -1) != -1:
        yield ("screen", "object_threshold"), message
    for key in ("weights", "shift_threshold"):
        if screen.get(key) is not None:
            yield ("screen", key), message
    if screen.get("store_embeddings") is True:
        yield (
            ("screen", "store_embeddings"),
            "without screen.model there is no embedding to store, expected false",
        )
    for path, spec in parts.specs:
        for key in ("caption", "threshold", "object_caption", "object_threshold"):
            if spec.get(key) is not None:
                yield (*path, key), message


def _pairs(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find pairs by attention with a kind that draws no noise, and `held` without pairs by
    attention."""
    if parts.samples.get("pairs") == "attention":
        if not parts.kind.from_noise:
            message = (
                f"images of generator.kind {parts.kind_name} cannot see their base, expected noise"
            )
            yield ("samples", "pairs"), message
        return
    default = HeldFromBase().model_dump()
    if default | dict(mapping(parts.samples.get("held"))) != default:
        yield (
            ("samples", "held"),
            "found with pairs that share only noise, expected none (null drops an inherited one)",
        )


_CHECKS: tuple[Callable[[RecipeParts], Iterator[RecipeProblem]], ...] = (
    _duplicate_ids, _shift_names, _unknown_classes, _unknown_thresholds, _shifts_without_base, _without_a_class,
    _words_of_classes, _nothing_to_draw, _of_its_kind, _levels, _unscreened, _thresholds, _open_quotas, _whole_cells,
    _compared_with_nothing, _judges_apart, _second_opinion, _unknown_failures, _captions_of_rows, _pairs,
    _ambiguous_keys, task_problems,
)  # fmt: skip

"""Checks across the sections of a recipe.

The checks read plain mappings instead of models, so that a value of a wrong type does not hide
other problems.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from counterfoil.errors import some_of
from counterfoil.recipe.keep import KEEP_RULES
from counterfoil.recipe.keep.misclassified import PARENTS, answered_class
from counterfoil.recipe.keep.rule import AskingRule
from counterfoil.recipe.kinds import kind_of
from counterfoil.recipe.layering import KEEP_JUDGES, class_slug, texts_at
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import (
    ELSEWHERE,
    LOCAL,
    OPEN_CLIP,
    did_you_mean,
    group_name_problem,
    judge_column,
    without_folders,
)
from counterfoil.recipe.parts import (
    RecipePart,
    RecipeParts,
    RecipePath,
    RecipeProblem,
    as_mapping,
    as_sequence,
)
from counterfoil.recipe.prompts import (
    ABOUT_CLASS,
    asks_caption,
    template_problem,
    words_in_template,
)
from counterfoil.recipe.schema_output import HeldFromBase
from counterfoil.recipe.severity import MOST_SEVERE, level_name
from counterfoil.recipe.tasks import derive_task, task_problems

_MOST_SUGGESTIONS = 20


def cross_section_problems(recipe: Mapping[str, Any]) -> list[RecipeProblem]:
    """Return every problem as a pair of its path in the recipe and a message."""
    parts = RecipeParts(recipe, kind_of(as_mapping(recipe.get("generator"))))
    return [problem for check in _CHECKS for problem in check(parts)]


def _duplicate_ids(parts: RecipeParts) -> Iterator[RecipeProblem]:
    first: dict[str, int] = {}
    for index, class_id in parts.ids.items():
        earlier = first.setdefault(class_id, index)
        if earlier == index:
            continue
        problem = message("duplicate.id", found=class_id, first=earlier)
        name = as_mapping(parts.classes[index]).name
        other = as_mapping(parts.classes[earlier]).name
        if isinstance(name, str) and isinstance(other, str) and class_slug(name) == class_id:
            problem = message(
                "duplicate.slug",
                found=class_id,
                first=earlier,
                name=name[:80],
                other=other[:80],
            )
        yield ("source", "classes", index, "id"), problem


def _shift_names(parts: RecipeParts) -> Iterator[RecipeProblem]:
    for name in parts.shifts:
        problem = group_name_problem(name, "shift")
        if problem is not None:
            yield ("prompts", "shifts", name), problem


def _unknown_classes(parts: RecipeParts) -> Iterator[RecipeProblem]:
    unknown = 0
    for section, spec in parts.specs:
        seen: set[str] = set()
        for index, class_id in enumerate(as_sequence(spec.classes)):
            path = (*section, "classes", index)
            if not isinstance(class_id, str):
                continue
            if parts.every and class_id not in parts.every:
                unknown += 1
                # Finding the nearest of thousands of names is slow.
                hint = did_you_mean(class_id, parts.known) if unknown <= _MOST_SUGGESTIONS else ""
                yield path, message("unknown-class", found=class_id, hint=hint)
            elif class_id in seen:
                yield path, message("duplicate.class", found=class_id)
            seen.add(class_id)


def _unknown_thresholds(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find object thresholds of unknown classes, or of classes that are not in the base or
    shift."""
    if not parts.every:
        return
    for section, spec in [parts.of_screen, *parts.specs]:
        chosen = parts.every if section == ("screen",) else parts.ids_of(spec)
        of_classes = as_mapping(as_mapping(spec.object_threshold).classes)
        for class_id, value in of_classes.items():
            path = (*section, "object_threshold", "classes", class_id)
            if value is None or class_id in chosen:
                continue
            if class_id in parts.every:
                yield path, message("unknown-class.section", found=class_id)
            else:
                hint = did_you_mean(str(class_id), parts.known)
                yield path, message("unknown-class", found=class_id, hint=hint)


def _shifts_without_base(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find shifts of classes that are not in the base. Their images could not be compared with any
    base image."""
    _, base = parts.of_base
    if base.classes is None:
        return
    of_base = parts.ids_of(base)
    for section, spec in parts.of_shifts:
        lacking = sorted(parts.ids_of(spec) & parts.every - of_base)
        if lacking:
            path = section if spec.classes is None else (*section, "classes")
            yield path, message("unknown-class.base", found=_quoted_some(lacking))


def _quoted_some(class_ids: Sequence[Any]) -> str:
    """Return the first of some class ids, and how many more there are."""
    return some_of([f"'{class_id}'" for class_id in class_ids], 1)


def _without_a_class(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find texts without `{class}`; mined prompts for named classes may use another word, such as
    "pullover"."""
    reported: set[RecipePath] = set()
    for path, template, spec in parts.templates():
        named = spec.kind == "mined" and bool(spec.classes) and path[0] == "prompts"
        captioned = path[-1] == "prompt"  # another check reports missing captions
        problem = template_problem(
            template,
            with_class=not named or None,
            about_class=True,
            captioned=captioned,
        )
        # The sections report other problems of their texts.
        if problem is None or problem.code != "missing-class" or path in reported:
            continue
        reported.add(path)
        yield path, problem


def _words_of_classes(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find classes that lack the parent or category that their texts use. Each missing word is one
    problem."""
    for word in ABOUT_CLASS:
        without = []
        for index, class_id in parts.ids.items():
            if parts.classes[index].get(word) is None:
                without.append(class_id)
        if not without:
            continue
        # Each text and each class once, in order.
        users: dict[RecipePath, None] = {}
        lacking: dict[str, None] = {}
        for path, template, spec in parts.templates():
            if word not in words_in_template(template):
                continue
            chosen = parts.ids_of(spec)
            for class_id in without:
                if class_id in chosen:
                    users[path] = None
                    lacking[class_id] = None
        if lacking:
            named = some_of(list(lacking), _MOST_SUGGESTIONS)
            classes = f"{len(lacking):,} classes ({named}) do"
            if len(lacking) == 1:
                classes = f"1 class ({named}) does"
            places = f" (as {len(users):,} texts do)" if len(users) > 1 else ""
            problem = message(
                "missing-word",
                word=word,
                places=places,
                classes=classes,
            )
            yield next(iter(users)), problem


def _nothing_to_draw(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find shifts with neither prompt nor embedding."""
    if not parts.kind.prompted or not isinstance(parts.recipe.prompts, Mapping):
        return
    written = [parts.prompts.base or {}, *parts.shifts.values()]
    for (path, spec), value in zip(parts.specs, written, strict=True):
        drawn_from_nothing = spec.prompt is None and spec.embedding is None
        if isinstance(value, Mapping) and drawn_from_nothing:
            yield (*path, "prompt"), message("missing-key.prompt")


def _thresholds(parts: RecipeParts) -> Iterator[RecipeProblem]:
    default = parts.screen.shift_threshold
    for section, spec in parts.of_shifts:
        path = (*section, "threshold")
        levels = as_mapping(spec.severity).levels
        has_none = default is None and spec.threshold is None and levels is None
        if spec.caption is None and spec.threshold is not None:
            yield path, message("conflicting-keys.threshold")
        if spec.caption is not None and has_none:
            yield path, message("missing-key.threshold")


def _open_quotas(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find quotas with a threshold that is a percentile over all candidates. It is known only after
    all are rendered.
    """
    problem = message("quota-conflict.percentile")
    default = as_mapping(parts.screen.shift_threshold).percentile
    inherits = False
    for section, spec in parts.of_shifts:
        if spec.caption is None or not parts.has_quota(spec):
            continue
        inherits = inherits or spec.threshold is None
        if as_mapping(spec.threshold).percentile is not None:
            yield (*section, "threshold"), problem
    if default is not None and inherits:
        yield ("screen", "shift_threshold"), problem


def _whole_cells(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find rules that rank a whole cell, if the cell has a quota or an open threshold."""
    default = _ranking(parts.screen.keep)
    if default and parts.samples.accepted is not None:
        yield ("screen", "keep"), message("quota-conflict.rule", rule=default)
    for section, spec in parts.of_shifts:
        rule = _ranking(parts.keep_of(spec))
        if rule is None:
            continue
        reported = spec.keep is None and spec.samples is None
        if parts.has_quota(spec) and not reported:
            key = "samples" if spec.keep is None else "keep"
            yield (*section, key), message("quota-conflict.rule", rule=rule)
        inherits = spec.threshold is None
        threshold = parts.screen.shift_threshold if inherits else spec.threshold
        if spec.caption is not None and as_mapping(threshold).percentile is not None:
            key = "keep" if inherits else "threshold"
            yield (*section, key), message("open-threshold", rule=rule)


def _compared_with_nothing(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find rules that compare edits in a recipe without edits, and `top` in a recipe without a
    screening CLIP."""
    unscreened = not _needs_screen(parts) and parts.screen.model is None
    for section, spec in parts.with_keep:
        path = (*section, "keep")
        rules = _rule_names(spec.keep)
        for rule in rules:
            if rule in KEEP_RULES and KEEP_RULES[rule].compares and not parts.kind.edits:
                yield path, message("wrong-kind.compared", rule=rule)
        if "top" in rules and unscreened:
            yield path, message("screen-needed.top")


def _captions_of_rows(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find prompts with `{caption}` in a recipe without captions, and captions that no prompt
    uses."""
    asking = []
    for path, template, _ in parts.templates():
        if path[-1] == "prompt" and asks_caption(template):
            asking.append(path)
    if parts.kind.edits:
        for key in ("caption_column", "captioner"):
            if parts.generator.get(key) is None:
                continue
            if not asking:
                yield ("generator", key), message("conflicting-keys.caption")
            return
    if asking:
        name = "missing-word.caption" if parts.kind.edits else "wrong-kind.caption"
        places = f" (as {len(asking):,} prompts do)" if len(asking) > 1 else ""
        yield asking[0], message(name, places=places)


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
                yield path, message("name-clash.judges", first=other, second=judge)


def _second_opinion(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find a second judge with the name of the screening CLIP. Of a folder on another machine only
    the last part is known.
    """
    model = parts.screen.model
    weights = parts.screen.weights
    judge = parts.screen.judge
    if not isinstance(model, str) or not isinstance(judge, str) or model.startswith(ELSEWHERE):
        return
    clip_name = f"{model}/{weights}" if weights is not None else model.removeprefix(LOCAL)
    judge_name = judge.removeprefix(OPEN_CLIP).removeprefix(LOCAL)
    if judge.startswith(OPEN_CLIP) and judge_name == clip_name:
        yield ("screen", "judge"), message("conflicting-keys.judge", found=judge)


def _unknown_failures(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find failure rules with unknown classes, and failure rules that need parents if classes have
    none."""
    entries = [as_mapping(entry) for entry in parts.classes]
    without = [entry.id for entry in entries if entry.parent is None]
    for section, step in parts.keep_steps():
        rule = as_mapping(step.misclassified).failure
        path = (*section, "misclassified", "failure")
        answered = answered_class(rule) if isinstance(rule, str) else None
        if answered is not None and parts.known and answered not in parts.every:
            hint = did_you_mean(answered, parts.known)
            yield path, message("unknown-class", found=rule, hint=hint)
        elif rule in PARENTS and without:
            classes = _quoted_some(without)
            yield path, message("missing-word.parent", found=rule, classes=classes)


def _asked_texts(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find texts of keep rules that do not say what is asked."""
    for section, step in parts.keep_steps():
        for name, settings in step.items():
            rule = KEEP_RULES.get(name)
            if rule is None or not issubclass(rule, AskingRule):
                continue
            for key, about_shift in rule.texts.items():
                text = as_mapping(settings).get(key)
                if not isinstance(text, str):
                    continue
                with_class = None if about_shift else True
                problem = template_problem(text, with_class=with_class, about_shift=about_shift)
                if problem is not None:
                    yield (*section, name, key), problem


def _ranking(keep: Any) -> str | None:
    """Return the first keep rule whose decision about a candidate depends on the other candidates
    of the cell."""
    for name in _rule_names(keep):
        if name in KEEP_RULES and KEEP_RULES[name].whole_cell:
            return name
    return None


def _rule_names(keep: Any) -> list[str]:
    """Return the names of some keep rules, in order."""
    steps = [keep] if isinstance(keep, str | Mapping) else as_sequence(keep)
    names: list[str] = []
    for step in steps:
        names += [step] if isinstance(step, str) else as_mapping(step)
    return names


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
    for path, spec in parts.of_shifts:
        levels = _level_values(as_mapping(spec.severity))
        for level in levels or [1]:
            name = level_name(str(path[-1]), level, corrupts=parts.kind.corrupts)
            cells[name] = parts.ids_of(spec)
    for name, class_ids in cells.items():
        for shift, after in _cut_at_underscores(name):
            for first, second in meeting.get(after, ()):
                if first in class_ids and second in cells.get(shift, ()):
                    problem = message(
                        "name-clash.keys",
                        first=first,
                        shift=shift,
                        second=second,
                    )
                    yield ("prompts", "shifts", name), problem
                    break


def _cut_at_underscores(text: str) -> list[tuple[str, str]]:
    return [(text[:index], text[index + 1 :]) for index, letter in enumerate(text) if letter == "_"]


def _of_its_kind(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find settings that the generator's kind refuses, and corruptions in a recipe of another
    kind."""
    yield from parts.kind.problems(parts)
    if parts.kind.corrupts:
        return
    for path, spec in parts.of_shifts:
        if spec.corruption is not None:
            yield (*path, "corruption"), message("wrong-kind.corruption")


def _levels(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find levels that the generator cannot draw, levels whose scenes differ, and invalid
    levels."""
    for path, spec in parts.of_shifts:
        severity = spec.severity
        if severity is None:
            continue
        settings = as_mapping(severity if isinstance(severity, Mapping) else {"fixed": severity})
        at = (*path, "severity")
        if settings.fixed is not None:
            if not parts.kind.corrupts:
                yield at, message("wrong-kind.number")
        elif not parts.kind.levels:
            yield at, message("wrong-kind.levels", kind=parts.kind_name)
        else:
            yield from _way_to_levels(
                parts,
                path,
                spec,
                settings,
            )
            yield from _scenes_of_levels(parts, path, spec)
            yield from _level_numbers(parts, path, settings)


def _scenes_of_levels(
    parts: RecipeParts,
    path: RecipePath,
    spec: RecipePart,
) -> Iterator[RecipeProblem]:
    """Find settings that give each level other scenes."""
    at = (*path, "severity")
    if parts.samples.get("noise", "paired") != "paired":
        yield at, message("levels-conflict.noise")
    if parts.has_quota(spec):
        yield at, message("quota-conflict.levels")
    if "misclassified" in _rule_names(parts.keep_of(spec)):
        yield (*path, "keep"), message("levels-conflict.misclassified")
    if spec.threshold is not None:
        yield (*path, "threshold"), message("levels-conflict.threshold")


def _level_numbers(
    parts: RecipeParts,
    path: RecipePath,
    severity: RecipePart,
) -> Iterator[RecipeProblem]:
    """Find levels with equal images, levels between severities, and levels named as a shift."""
    at = (*path, "severity")
    levels = _level_values(severity)
    steps = parts.generator.steps
    # `True` is an int.
    if severity.by == "steps" and type(steps) is int and steps > 0:
        with_shift = [math.floor(level * steps + 1e-6) for level in levels]
        # Two levels that begin at the same step, or that have no step, would have equal images.
        if 0 in with_shift or len(set(with_shift)) < len(with_shift):
            shown = ", ".join(map(str, with_shift))
            yield (*at, "levels"), message("invalid-levels.steps", steps=steps, found=shown)
    corrupts = parts.kind.corrupts
    if corrupts and any(round(value * MOST_SEVERE, 6) % 1 for value in levels):
        fifths = ", ".join(f"{step / MOST_SEVERE:g}" for step in range(1, MOST_SEVERE + 1))
        yield (*at, "levels"), message("invalid-levels.severities", expected=fifths)
    shift = str(path[-1])
    for level in levels:
        name = level_name(shift, level, corrupts=corrupts)
        if name != shift and name in parts.shifts:
            yield at, message("name-clash.level", name=name)


def _way_to_levels(
    parts: RecipeParts,
    path: RecipePath,
    spec: RecipePart,
    severity: RecipePart,
) -> Iterator[RecipeProblem]:
    """Check that the generator's kind and LoRA weights support the levels of a shift."""
    kind = parts.kind
    at = (*path, "severity")
    by = severity.by
    lora = severity.lora
    if by is not None and by not in kind.levels:
        expected = " or ".join(kind.levels)
        problem = message(
            "wrong-kind.way",
            found=by,
            expected=expected,
            kind=parts.kind_name,
        )
        yield (*at, "by"), problem
    known = as_mapping(parts.generator.lora)
    if (by == "lora") != (lora is not None):
        yield (*at, "lora"), message("conflicting-keys.lora", found=lora or "null")
    elif isinstance(lora, str):
        if lora not in known:
            hint = did_you_mean(lora, known)
            yield (*at, "lora"), message("unknown-name.lora", found=lora[:80], hint=hint)
        if parts.samples.pairs == "attention":
            yield at, message("pairs-conflict.levels")
    if as_mapping(severity.levels).realised is not None:
        if not kind.from_noise or by == "lora":
            way = "by: lora" if by == "lora" else f"generator.kind {parts.kind_name}"
            yield (*at, "levels"), message("wrong-kind.realised", way=way)
        elif spec.caption is None:
            yield (*path, "caption"), message("missing-key.realised")
    if kind.corrupts:
        return
    for section, drawn in (parts.of_base, (path, spec)):
        if drawn.embedding is not None:
            shown = ".".join(map(str, section))
            yield at, message("levels-conflict.embedding", section=shown)


def _level_values(severity: RecipePart) -> list[float]:
    """Return the valid levels in a severity."""
    levels = severity.levels
    if isinstance(levels, Mapping):
        levels = as_mapping(levels).raw or as_mapping(levels).realised
    return [
        value for value in as_sequence(levels) if isinstance(value, int | float) and 0 < value <= 1
    ]


def _needs_screen(parts: RecipeParts) -> bool:
    """Return whether a CLIP must screen the images: those that a kind draws, by their class."""
    return parts.kind.needs_screen and derive_task(parts.source).by_class


def _unscreened(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find a missing CLIP, and screen settings that need a CLIP."""
    screen = parts.screen
    if not isinstance(parts.recipe.get("screen", {}), Mapping) or screen.model is not None:
        return
    if _needs_screen(parts):
        yield ("screen", "model"), message("missing-key.clip")
        if screen.object_threshold is None:
            yield ("screen", "object_threshold"), message("missing-key.object-threshold")
        return
    problem = message("screen-needed")
    least = as_mapping(screen.object_threshold)
    if least.percentile is not None or least.classes or least.get("value", -1) != -1:
        yield ("screen", "object_threshold"), problem
    for key in ("weights", "shift_threshold"):
        if screen.get(key) is not None:
            yield ("screen", key), problem
    if screen.store_embeddings is True:
        yield ("screen", "store_embeddings"), message("screen-needed.embeddings")
    for path, spec in parts.specs:
        for key in ("caption", "threshold", "object_caption", "object_threshold"):
            if spec.get(key) is not None:
                yield (*path, key), problem


def _pairs(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Find pairs by attention with a kind that draws no noise, and `held` without pairs by
    attention."""
    if parts.samples.pairs == "attention":
        if not parts.kind.from_noise:
            yield ("samples", "pairs"), message("wrong-kind.pairs", kind=parts.kind_name)
        return
    default = HeldFromBase().model_dump()
    if default | as_mapping(parts.samples.held) != default:
        yield ("samples", "held"), message("conflicting-keys.held")


_CHECKS: tuple[Callable[[RecipeParts], Iterator[RecipeProblem]], ...] = (
    _duplicate_ids,
    _shift_names,
    _unknown_classes,
    _unknown_thresholds,
    _shifts_without_base,
    _without_a_class,
    _words_of_classes,
    _nothing_to_draw,
    _of_its_kind,
    _levels,
    _unscreened,
    _thresholds,
    _open_quotas,
    _whole_cells,
    _compared_with_nothing,
    _judges_apart,
    _second_opinion,
    _unknown_failures,
    _asked_texts,
    _captions_of_rows,
    _pairs,
    _ambiguous_keys,
    task_problems,
)

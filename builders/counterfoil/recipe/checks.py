"""Checks across the sections of a recipe, tolerant of parts that are themselves wrong.

They read plain mappings, not models, so that a recipe with a wrong type in one place still hears about
everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from counterfoil.keep import KEEP_RULES
from counterfoil.keep.failure_names import PARENT, answered_class
from counterfoil.keep.misclassified import judge_column
from counterfoil.recipe.corruptions import corrupted_row_problems, corrupts, screening_problems
from counterfoil.recipe.layering import embedding_specs, model_lists, without_folders
from counterfoil.recipe.names import ELSEWHERE, did_you_mean, group_name_problem
from counterfoil.recipe.pairs import pair_problems
from counterfoil.recipe.short_forms import class_slug
from counterfoil.recipe.templates import ABOUT_CLASS, CLASS, asks_caption, template_problem, uses

Path = tuple[str | int, ...]
RecipeProblem = tuple[Path, str]

_FILLED = (
    "the rule '{}' ranks a whole cell, which is unknown while a quota (samples.accepted) is being filled; expected"
    " samples.candidates instead of the quota"
)
_MOST_SUGGESTIONS = 20


def cross_section_problems(recipe: Mapping[str, Any]) -> list[RecipeProblem]:
    """Every problem as (path in the recipe, message)."""
    shifts = _mapping(_mapping(recipe.get("prompts")).get("shifts"))
    class_ids = [(index, class_id) for index, class_id in _class_ids(recipe)]
    known = [class_id for _, class_id in class_ids]
    return [
        *_duplicate_ids(class_ids, _sequence(_mapping(recipe.get("source")).get("classes"))),
        *_shift_names(shifts),
        *_unknown_classes(_mapping(recipe.get("prompts")), known),
        *_unknown_thresholds(recipe, shifts, known),
        *_shifts_without_base(_mapping(recipe.get("prompts")), known),
        *_without_a_class(recipe, shifts),
        *_words_of_classes(recipe, shifts),
        *_nothing_to_draw(recipe, shifts),
        *corrupted_row_problems(recipe, shifts),
        *screening_problems(recipe, shifts),
        *_thresholds(shifts, _mapping(recipe.get("screen"))),
        *_open_quotas(shifts, _mapping(recipe.get("screen")), _mapping(recipe.get("samples"))),
        *_whole_cells(shifts, _mapping(recipe.get("screen")), _mapping(recipe.get("samples"))),
        *_compared_with_nothing(recipe, shifts),
        *_judges_apart(shifts, _mapping(recipe.get("screen"))),
        *_second_opinion(_mapping(recipe.get("screen"))),
        *_unknown_failures(recipe, shifts, known),
        *_rows_of_a_pool(recipe, shifts, known),
        *_edited_rows(recipe),
        *_captions_of_rows(recipe, shifts),
        *pair_problems(recipe, _mapping(recipe.get("samples")), _mapping(recipe.get("generator"))),
        *_ambiguous_keys(shifts, known),
    ]


def _duplicate_ids(class_ids: Sequence[tuple[int, str]], classes: Sequence[Any]) -> Iterator[RecipeProblem]:
    first: dict[str, int] = {}
    for index, class_id in class_ids:
        if class_id in first:
            message = f"found '{class_id}' again, expected unique ids (first at classes[{first[class_id]}])"
            name, other = (_mapping(classes[place]).get("name") for place in (index, first[class_id]))
            if isinstance(name, str) and isinstance(other, str) and class_slug(name) == class_id:
                message += (
                    f"; it is that of the name '{name[:80]}', and the first is '{other[:80]}': write an id for one"
                )
            yield ("source", "classes", index, "id"), message
        first.setdefault(class_id, index)


def _shift_names(shifts: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    for name in shifts:
        problem = group_name_problem(name, "shift")
        if problem is not None:
            yield ("prompts", "shifts", name), problem


def _unknown_classes(prompts: Mapping[str, Any], known: Sequence[str]) -> Iterator[RecipeProblem]:
    ids = set(known)
    unknown = 0
    shifts = _mapping(prompts.get("shifts"))
    places: list[tuple[Path, Any]] = [(("prompts", "base"), prompts.get("base"))]
    for place, spec in places + [(("prompts", "shifts", name), spec) for name, spec in shifts.items()]:
        seen: set[str] = set()
        for index, class_id in enumerate(_sequence(_mapping(spec).get("classes"))):
            path = (*place, "classes", index)
            if not isinstance(class_id, str):
                continue
            if ids and class_id not in ids:
                unknown += 1
                # Looking for the nearest of thousands takes long; nobody reads thousands of suggestions.
                close = did_you_mean(class_id, known) if unknown <= _MOST_SUGGESTIONS else ""
                yield path, f"found '{class_id}', expected the id of a class{close}"
            elif class_id in seen:
                yield path, f"found '{class_id}' again, expected each class once"
            seen.add(class_id)


def _unknown_thresholds(
    recipe: Mapping[str, Any], shifts: Mapping[str, Any], known: Sequence[str]
) -> Iterator[RecipeProblem]:
    """Object thresholds of classes that there are not, or that the base or the shift does not have."""
    ids = set(known)
    specs: list[tuple[Path, Any]] = [
        (("screen",), {}),
        (("prompts", "base"), _mapping(recipe.get("prompts")).get("base")),
    ]
    for place, spec in specs + [(("prompts", "shifts", name), own) for name, own in shifts.items()]:
        chosen = _ids_of(spec, ids)
        own = recipe.get("screen") if place == ("screen",) else spec
        for class_id, value in _mapping(_mapping(_mapping(own).get("object_threshold")).get("classes")).items():
            path = (*place, "object_threshold", "classes", class_id)
            if value is None or not ids or class_id in chosen:
                continue
            if class_id in ids:
                yield path, f"found '{class_id}', expected a class that is listed here in `classes`"
            else:
                yield path, f"found '{class_id}', expected the id of a class{did_you_mean(str(class_id), known)}"


def _shifts_without_base(prompts: Mapping[str, Any], known: Sequence[str]) -> Iterator[RecipeProblem]:
    """Shifts of classes that the base does not have, so that there is nothing to compare them with."""
    base = _mapping(prompts.get("base")).get("classes")
    if base is None:
        return
    has = {item for item in _sequence(base) if isinstance(item, str)}
    for name, spec in _mapping(prompts.get("shifts")).items():
        lacking = sorted(_ids_of(spec, set(known)) & set(known) - has)
        if lacking:
            more = f" and {len(lacking) - 1:,} more" if len(lacking) > 1 else ""
            path = ("prompts", "shifts", name, *(() if _mapping(spec).get("classes") is None else ("classes",)))
            yield path, f"has the class '{lacking[0]}'{more}, expected classes that prompts.base.classes lists too"


def _without_a_class(recipe: Mapping[str, Any], shifts: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Prompts and object captions that do not say `{class}`.

    What was mined for named classes may call them otherwise: a top by the pullover that it is.
    """
    told: set[Path] = set()
    for path, template, spec in _templates(recipe, shifts):
        named = spec.get("kind") == "mined" and bool(spec.get("classes")) and path[0] == "prompts"
        captioned = path[-1] == "prompt"  # whether there are captions is asked elsewhere
        problem = template_problem(template, with_class=not named or None, about_class=True, captioned=captioned)
        if problem is not None and f"expected '{{{CLASS}}}'" in problem and path not in told:
            told.add(path)
            yield path, problem


def _words_of_classes(recipe: Mapping[str, Any], shifts: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Classes without the parent or category that prompts and captions of theirs use: one problem a word."""
    classes = _sequence(_mapping(recipe.get("source")).get("classes"))
    ids = dict(_class_ids(recipe))
    every = set(ids.values())
    for word in ABOUT_CLASS:
        without = [class_id for index, class_id in ids.items() if classes[index].get(word) is None]
        users: dict[Path, None] = {}
        lacking: dict[str, None] = {}
        for path, template, spec in _templates(recipe, shifts) if without else ():
            chosen = _ids_of(spec, every) if word in uses(template) else ()
            if own := [class_id for class_id in without if class_id in chosen]:
                users[path] = None
                lacking |= dict.fromkeys(own)
        if lacking:
            named = ", ".join(list(lacking)[:_MOST_SUGGESTIONS])
            more = f" and {len(lacking) - _MOST_SUGGESTIONS:,} more" if len(lacking) > _MOST_SUGGESTIONS else ""
            which = f"1 class ({named}) does" if len(lacking) == 1 else f"{len(lacking):,} classes ({named}{more}) do"
            places = f" (as {len(users):,} texts do)" if len(users) > 1 else ""
            message = f"uses '{{{word}}}'{places}, which {which} not have; expected `{word}` in the list of classes"
            yield next(iter(users)), message


def _templates(recipe: Mapping[str, Any], shifts: Mapping[str, Any]) -> Iterator[tuple[Path, str, Any]]:
    """Every text that is filled with classes: where it stands, and the base or shift whose classes those are."""
    screen, base = _mapping(recipe.get("screen")), _mapping(_mapping(recipe.get("prompts")).get("base"))
    specs: list[tuple[Path, Any]] = [(("prompts", "base"), base)]
    for path, spec in specs + [(("prompts", "shifts", name), spec) for name, spec in shifts.items()]:
        own = _mapping(spec)
        default = "style_object_caption" if own.get("style") is True else "object_caption"
        used = [((*path, "prompt"), own.get("prompt")), ((*path, "object_caption"), own.get("object_caption"))]
        if own.get("object_caption") is None:
            used.append((("screen", default), screen.get(default)))
        yield from ((place, text, own) for place, text in used if isinstance(text, str))


def _nothing_to_draw(recipe: Mapping[str, Any], shifts: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Neither prompt nor embedding. What stands there and is no mapping is told by its own check."""
    if corrupts(recipe):
        return
    prompts = recipe.get("prompts")
    base = (prompts.get("base") or {}) if isinstance(prompts, Mapping) else None
    specs: list[tuple[Path, Any]] = [(("prompts", "base"), base)]
    for path, spec in specs + [(("prompts", "shifts", name), spec) for name, spec in shifts.items()]:
        if isinstance(spec, Mapping) and spec.get("prompt") is None and spec.get("embedding") is None:
            yield (*path, "prompt"), "missing, expected a prompt with '{class}', or an `embedding` to draw from"


def _thresholds(shifts: Mapping[str, Any], screen: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    default = screen.get("shift_threshold")
    for name, spec in shifts.items():
        caption, own = _mapping(spec).get("caption"), _mapping(spec).get("threshold")
        path = ("prompts", "shifts", name, "threshold")
        if caption is not None and own is None and default is None:
            yield (
                path,
                "missing; the shift has a caption, expected a threshold here or screen.shift_threshold",
            )
        if caption is None and own is not None:
            yield path, "a threshold without a caption; expected a `caption` to compare images with"


def _has_quota(spec: Mapping[str, Any], samples: Mapping[str, Any]) -> bool:
    """Whether a shift's cells have a quota: by its own samples where it has some, else by those of all."""
    own = spec.get("samples")
    return _mapping(samples if own is None else own).get("accepted") is not None


def _open_quotas(
    shifts: Mapping[str, Any], screen: Mapping[str, Any], samples: Mapping[str, Any]
) -> Iterator[RecipeProblem]:
    """A quota stops rendering by what passes, which a percentile over all candidates tells only afterwards."""
    message = (
        "a percentile over all candidates, which is unknown while a quota (samples.accepted) is being filled;"
        " expected a value here, or samples.candidates instead of the quota"
    )
    default = _mapping(screen.get("shift_threshold")).get("percentile")
    inherits = False
    for name, spec in shifts.items():
        own = _mapping(spec).get("threshold")
        if _mapping(spec).get("caption") is None or not _has_quota(_mapping(spec), samples):
            continue
        inherits = inherits or own is None
        if _mapping(own).get("percentile") is not None:
            yield ("prompts", "shifts", name, "threshold"), message
    if default is not None and inherits:
        yield ("screen", "shift_threshold"), message


def _whole_cells(
    shifts: Mapping[str, Any], screen: Mapping[str, Any], samples: Mapping[str, Any]
) -> Iterator[RecipeProblem]:
    """A rule that ranks a whole cell knows nothing while a quota is being filled, or a threshold is still open."""
    default = _ranking(screen.get("keep"))
    if default and samples.get("accepted") is not None:
        yield ("screen", "keep"), _FILLED.format(default)
    for name, spec in shifts.items():
        own = _mapping(spec)
        rule = _ranking(own.get("keep")) if own.get("keep") is not None else default
        told = own.get("keep") is None and own.get("samples") is None
        if rule and _has_quota(own, samples) and not told:
            yield (
                ("prompts", "shifts", name, "keep" if own.get("keep") is not None else "samples"),
                _FILLED.format(rule),
            )
        threshold = own.get("threshold") if own.get("threshold") is not None else screen.get("shift_threshold")
        if rule and own.get("caption") is not None and _mapping(threshold).get("percentile") is not None:
            where = "threshold" if own.get("threshold") is not None else "keep"
            message = (
                f"a percentile over all candidates with the keep rule '{rule}', which ranks what passes the threshold;"
                " expected a value"
            )
            yield ("prompts", "shifts", name, where), message


def _rows_of_a_pool(
    recipe: Mapping[str, Any], shifts: Mapping[str, Any], known: Sequence[str]
) -> Iterator[RecipeProblem]:
    """Rows that are taken from a pool: of shifts and classes that there are, each once in its cell."""
    generator = _mapping(recipe.get("generator"))
    kind = generator.get("kind")
    if kind not in ("rows", "retrieve"):
        return
    if _mapping(recipe.get("samples")).get("noise") != "independent":
        yield ("samples", "noise"), "rows of a pool share no noise, expected independent"
    if recipe.get("tokens") is not None:
        told = {
            "rows": "rows of a pool are not drawn from prompts, expected null",
            "retrieve": "a pool is searched by class names, and a CLIP knows no class token, expected null",
        }
        yield ("tokens",), told[kind]
    for path, _ in embedding_specs(recipe):
        yield path, "rows of a pool are not drawn from embeddings, expected null"
    names, ids = ("base", *shifts), set(known)
    for name, classes in _mapping(generator.get("rows")).items():
        where = ("generator", "rows", name)
        if name not in names:
            yield where, f"found '{name}', expected base or a shift{did_you_mean(str(name), list(names))}"
            continue
        chosen = _ids_of(_mapping(shifts.get(name)), ids)
        for class_id, rows in _mapping(classes).items():
            own = [row for row in _sequence(rows) if isinstance(row, int)]
            if ids and class_id not in chosen:
                yield (
                    (*where, class_id),
                    f"found '{class_id}', expected a class of the shift{did_you_mean(str(class_id), list(chosen))}",
                )
            elif any(row < 0 for row in own):
                yield (*where, class_id), f"found {min(own)}, expected rows from 0"
            elif len(set(own)) < len(own):
                yield (*where, class_id), "found a row again, expected each once"


def _compared_with_nothing(recipe: Mapping[str, Any], shifts: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Keep rules that compare an image with the row that it was edited from, where nothing is edited, and such as rank
    by a score of CLIP, where nothing is screened."""
    screen = _mapping(recipe.get("screen"))
    edits = _mapping(recipe.get("generator")).get("kind") == "edit"
    unscreened = corrupts(recipe) and screen.get("model") is None
    specs: list[tuple[Path, Any]] = [(("screen", "keep"), screen.get("keep"))]
    specs += [(("prompts", "shifts", name, "keep"), _mapping(own).get("keep")) for name, own in shifts.items()]
    for place, keep in specs:
        rules = _rule_names(keep)
        if "same_image" in rules and not edits:
            yield place, "'same_image' compares an edit with its row, expected it with generator.kind edit alone"
        if "top" in rules and unscreened:
            yield place, "'top' ranks by a score of CLIP, expected one that screens (screen.model)"


def _edited_rows(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Rows that are edited or corrupted: of images that no model has learned from, each with noise of its own."""
    generator, source = _mapping(recipe.get("generator")), _mapping(recipe.get("source"))
    if generator.get("kind") not in ("edit", "corrupt"):
        return
    split, train = generator.get("split", "train"), source.get("train_split", "train")
    # One's own photographs in a folder without splits may all be new to the model: `init` says so, and goes on.
    alone = corrupts(recipe) and source.get("validation_split", "validation") == train
    if split == train and not alone:
        yield (
            ("generator", "split"),
            f"found '{split}', which classifiers learn from (source.train_split), expected a split that they have not"
            f" seen, such as '{source.get('validation_split', 'validation')}'",
        )
    if _mapping(recipe.get("samples")).get("noise", "paired") != "paired":
        yield ("samples", "noise"), "all samples of a row begin with that row, expected paired"
    for path, _ in () if corrupts(recipe) else embedding_specs(recipe):
        yield path, "an edit is drawn from a row and a prompt, and from no embedding, expected null"


def _captions_of_rows(recipe: Mapping[str, Any], shifts: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Prompts with `{caption}`, where nothing has captions of rows, or captions that no prompt asks for."""
    generator = _mapping(recipe.get("generator"))
    edits = generator.get("kind") == "edit"
    templates = [(path, template) for path, template, _ in _templates(recipe, shifts) if path[-1] == "prompt"]
    asking = [path for path, template in templates if asks_caption(template)]
    told_by = [key for key in ("caption_column", "captioner") if edits and generator.get(key) is not None]
    if told_by and not asking:
        yield ("generator", told_by[0]), "no prompt asks for '{caption}', expected null"
    if told_by:
        return
    told = (
        "no row has a caption, expected generator.caption_column or generator.captioner"
        if edits
        else "only images that are edited have one, expected '{class}', or generator.kind edit"
    )
    if asking:
        more = f" (as {len(asking):,} prompts do)" if len(asking) > 1 else ""
        yield asking[0], f"uses '{{caption}}'{more}: {told}"


def _judges_apart(shifts: Mapping[str, Any], screen: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Judges of other names that would share their columns."""
    owners: dict[str, str] = {}
    second = {"evaluate": {"models": [screen.get("judge")]}}
    places: list[tuple[Path, Any]] = [(("screen", "keep"), {"screen": screen}), (("screen", "judge"), second)]
    places += [
        (("prompts", "shifts", name, "keep"), {"prompts": {"shifts": {name: own}}}) for name, own in shifts.items()
    ]
    for place, part in places:
        for judge in (name for models in model_lists(part) for name in models if isinstance(name, str)):
            other = owners.setdefault(judge_column(judge, ""), judge)
            if without_folders(other) != without_folders(judge):
                yield (
                    place,
                    f"the judges '{other}' and '{judge}' would share their columns, expected names that end otherwise",
                )


def _second_opinion(screen: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """A second judge that is the screening CLIP by name: it would agree with itself.

    Of folders elsewhere only the last names are known, which two may share.
    """
    model, weights, judge = (screen.get(key) for key in ("model", "weights", "judge"))
    if not isinstance(model, str) or not isinstance(judge, str) or model.startswith(ELSEWHERE):
        return
    own = f"{model}/{weights}" if weights is not None else model.removeprefix("local-dir:")
    if judge.startswith("open_clip:") and judge.removeprefix("open_clip:").removeprefix("local-dir:") == own:
        yield (
            ("screen", "judge"),
            f"found '{judge}', the model that screens (screen.model), expected another one: it would agree with itself",
        )


def _unknown_failures(
    recipe: Mapping[str, Any], shifts: Mapping[str, Any], known: Sequence[str]
) -> Iterator[RecipeProblem]:
    """Failure rules of judges that name a class that there is not, or need parents that classes do not have."""
    entries = _sequence(_mapping(recipe.get("source")).get("classes"))
    without = [_mapping(entry).get("id") for entry in entries if _mapping(entry).get("parent") is None]
    specs: list[tuple[Path, Any]] = [(("screen",), recipe.get("screen"))]
    for place, spec in specs + [(("prompts", "shifts", name), own) for name, own in shifts.items()]:
        for index, step in enumerate(_sequence(_mapping(spec).get("keep"))):
            rule = _mapping(_mapping(step).get("misclassified")).get("failure")
            where = (*place, "keep", index, "misclassified", "failure")
            asked = answered_class(rule) if isinstance(rule, str) else None
            if asked is not None and known and asked not in known:
                yield where, f"found '{rule}', expected the id of a class{did_you_mean(asked, known)}"
            elif rule == PARENT and without:
                more = f" and {len(without) - 1:,} more" if len(without) > 1 else ""
                yield (
                    where,
                    f"found 'parent', but the class '{without[0]}'{more} has no `parent` in the list of classes",
                )


def _ranking(keep: Any) -> str | None:
    """The first of some keep rules that decides a candidate by the others of its cell."""
    return next((name for name in _rule_names(keep) if name in KEEP_RULES and KEEP_RULES[name].whole_cell), None)


def _rule_names(keep: Any) -> list[str]:
    """The names of some keep rules, in order."""
    steps = [keep] if isinstance(keep, str | Mapping) else _sequence(keep)
    return [name for step in steps for name in ([step] if isinstance(step, str) else _mapping(step))]


def _ambiguous_keys(shifts: Mapping[str, Any], known: Sequence[str]) -> Iterator[RecipeProblem]:
    """Keys are `{shift}_{class id}_{index}`: shift a_b of class c must not meet shift a of class b_c."""
    ids = set(known)
    # By b: the pairs of c and b_c that are both class ids. Most recipes have none.
    meeting: dict[str, list[tuple[str, str]]] = {}
    for longer in sorted(ids):
        for at in (place for place, letter in enumerate(longer) if letter == "_"):
            if longer[at + 1 :] in ids:
                meeting.setdefault(longer[:at], []).append((longer[at + 1 :], longer))
    if not meeting:
        return
    cells = {"base": ids} | {name: _ids_of(spec, ids) for name, spec in shifts.items()}
    for name, own in cells.items():
        for at in (place for place, letter in enumerate(name) if letter == "_"):
            other = cells.get(name[:at])
            pairs = meeting.get(name[at + 1 :], ())
            clash = next(((c, longer) for c, longer in pairs if c in own and longer in other), None) if other else None
            if clash is not None:
                message = (
                    f"the keys of class '{clash[0]}' would meet those of shift '{name[:at]}' and class"
                    f" '{clash[1]}', expected another shift name or class id"
                )
                yield ("prompts", "shifts", name), message


def _ids_of(spec: Any, every: set[str]) -> set[str]:
    chosen = _mapping(spec).get("classes")
    return every if chosen is None else {item for item in _sequence(chosen) if isinstance(item, str)}


def _class_ids(recipe: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    for index, entry in enumerate(_sequence(_mapping(recipe.get("source")).get("classes"))):
        class_id = _mapping(entry).get("id")
        if isinstance(class_id, str):
            yield index, class_id


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()

"""Choose the models to score and their names: from names, files that list names, and models in
Python.

A list of models has one name on each line; text after a `#` is ignored. A class order says which
class each output is. It overrides the names of a model's own outputs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from counterfoil.arrays import Bools
from counterfoil.data.folders import placed_source
from counterfoil.data.open_source import trained_names
from counterfoil.errors import (
    CounterfoilError,
    ProblemLine,
    Problems,
    UserError,
    collected_in,
    first_of,
    raise_together,
)
from counterfoil.evaluation.dataset import Subject, edits_of
from counterfoil.evaluation.messages import failure, message, refusal
from counterfoil.evaluation.options import ClassOrder, EvaluationOptions
from counterfoil.foreign_tables import TEXT, TRUTH, read_foreign_parquet
from counterfoil.models.classifiers import (
    Classifier,
    ClassifierFacts,
    describe_classifier,
    load_classifier,
)
from counterfoil.models.classifiers.classifier import with_score_scale
from counterfoil.models.classifiers.of_python import Transform, classifier_of, import_model
from counterfoil.models.config_files import MOST_CLASSES
from counterfoil.models.mended import MendedNote, mended_of
from counterfoil.models.score_scale import SCALES, Scale
from counterfoil.prediction.class_map import ClassMap, Order, Outputs, map_classes
from counterfoil.progress import track
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.layering import is_local, without_folders
from counterfoil.recipe.names import CHAT, OPEN_CLIP, PREDICTIONS, PYTHON, chat_parts
from counterfoil.regular_files import UnfitFile, named_path, open_regular, read_regular
from counterfoil.report.reference import OVER_ALL
from counterfoil.report.results import NESTED, ModelFacts, ResultRows, Results, results_from
from counterfoil.report.words import format_list
from counterfoil.store.decoding import pixels_sha256

if TYPE_CHECKING:
    from PIL.Image import Image

# The largest list. A list of all models takes about 50 kB; a larger file is probably weights, named
# by mistake.
LARGEST_LIST = 1_000_000
_SOURCE = re.compile(r"[a-z][a-z_-]+:")
_COMMENT = re.compile(r"(^|\s)#.*")


# The name of a model → the line that lists it; None for a model named directly.
NamedModels = dict[str, str | None]


def named_models(
    words: Sequence[str | Path], against: Sequence[str] = ()
) -> tuple[NamedModels, Problems]:
    """Return the models that the words name, in order, and the problems of the lists.

    against: further models, which a gate names. None of them is a list.
    """
    models: NamedModels = {}
    problems = Problems(message)
    for word in words:
        file = _list_file(word)
        listed: NamedModels = {str(word): None}
        if file is not None:
            listed = _read_list(file, problems)
        for name, line in listed.items():
            models.setdefault(name, line)
    for name in against:
        models.setdefault(name)
    return models, problems


def models_by_name(
    noun: str,
    models: Any,
    of_recipe: Sequence[str],
    against: Sequence[str],
    hint: str,
) -> dict[str, Any]:
    """Return name → model of a task whose models are functions or names: those that a person names,
    of a recipe, and of a gate.

    noun: what a model is called. Raise UserError if there is none.
    """
    if isinstance(models, Mapping):
        chosen = dict(models)
        problems = Problems(message)
        _add_unlisted(against, models, problems)
    else:
        named, problems = named_models(_words(models))
        # Names only: the recipe of a published dataset must not make this machine read files.
        models = {name: name for name in named}
        chosen = {name: name for name in (*of_recipe, *models, *against)}
    problems.refuse(hint)
    # a name that a recipe or a gate brings is not imported
    for name, model in models.items():
        if isinstance(model, str) and model.startswith(PYTHON):
            chosen[name], _ = import_model(model)
    if not chosen:
        raise refusal("missing-model.task", None, noun, how=hint)
    return chosen


def _words(models: Any) -> list[str | Path]:
    """Return what a person named, who may name one model, several or none."""
    return [models] if isinstance(models, str | Path) else list(models or ())


def _add_unlisted(against: Iterable[str], models: Mapping[str, Any], problems: Problems) -> None:
    """Add a problem for each model that a gate compares with and that is not among these."""
    for name in against:
        if name not in models:
            problems.add("unlisted-model", "gate", name, models)


def _list_file(word: str | Path) -> Path | None:
    """Return the file that a word means, or None for a model's name.

    A word is a file if it begins with `@`, ends in `.txt`, or names a file and no timm model.
    """
    if isinstance(word, Path):
        return named_path(word)
    if word.startswith("@"):
        return named_path(word[1:])
    if _SOURCE.match(word):
        return None
    file = named_path(word)
    if file.suffix == ".txt":
        return file
    if not file.is_file():
        return None
    import timm

    return None if timm.is_model(word.partition(".")[0]) else file


def _read_list(file: Path, problems: Problems) -> NamedModels:
    before = problems.count
    try:
        text = read_regular(file, LARGEST_LIST).decode("utf-8-sig")
    except FileNotFoundError:
        problems.add("model-list.missing", file)
        return {}
    except UnicodeDecodeError:
        problems.add("model-list.text", file)
        return {}
    except OSError as error:
        problems.add("model-list.read", file, error)
        return {}
    models: NamedModels = {}
    for number, line in enumerate(text.splitlines(), start=1):
        name = _COMMENT.sub("", line).strip()
        if not name:
            continue
        where = f"{file}, line {number}"
        # Only names of folders and files may contain these characters.
        separated = re.search(r"[\s,;]", name) and not (_SOURCE.match(name) and is_local(name))
        if not name.isprintable():
            problems.add("model-list.unprintable", where, repr(name[:60]))
        elif name.startswith("@"):
            problems.add("model-list.list", where, name)
        elif separated:
            problems.add("model-list.name", where, name)
        else:
            models.setdefault(name, where)
    if not models and problems.count == before:
        problems.add("model-list.empty", file)
    return models


@dataclass(frozen=True)
class GivenModel:
    """A model under a name that a person chose, its description, and how it is loaded."""

    facts: ClassifierFacts
    load: Callable[[], Classifier]


def given_models(
    models: Any,
    subject: Subject,
    options: EvaluationOptions,
) -> dict[str, GivenModel]:
    """Return name → model for a mapping of callables or names, or for the names of a person's code.

    `models` are what the person named: names of a recipe or gate are never imported. Raise
    UserError with all problems, RunFailure for a callable that fails.
    """
    transform = options.transform
    version = options.version
    if not isinstance(models, Mapping):
        if transform is not None:
            raise refusal("unfit-option.transform", "transform")
        named, _ = named_models(models)
        models = {name: name for name in named if name.startswith(PYTHON)}
    called = []
    versioned = []
    for name, model in models.items():
        if not isinstance(model, str):
            called.append(name)
            versioned.append(name)
        elif model.startswith(PYTHON):
            versioned.append(name)
    errors: list[CounterfoilError] = []
    for what, by_model, known in (
        ("transform", transform, called),
        ("version", version, versioned),
    ):
        for name in by_model if isinstance(by_model, Mapping) else ():
            if name not in known:
                errors.append(refusal("unlisted-model.callable", what, name, known))
    given: dict[str, GivenModel] = {}
    for name, model in models.items():
        own_transform = transform.get(name) if isinstance(transform, Mapping) else transform
        own_version = version.get(name) if isinstance(version, Mapping) else version
        with collected_in(errors):
            given[name] = _given(
                name,
                model,
                own_transform,
                own_version,
                subject,
            )
    raise_together(errors)
    return given


def _given(
    name: Any,
    model: Any,
    transform: Transform | None,
    version: str | None,
    subject: Subject,
) -> GivenModel:
    if not isinstance(name, str) or not name.isprintable() or not name.strip():
        raise refusal("unusable-model.name", f"model {str(name)[:80]!r}")
    if version is not None and (not isinstance(version, str) or not version.strip()):
        raise refusal("unusable-model.version", f"version of model {name!r}", str(version))
    if isinstance(model, str) and model.startswith(PYTHON):
        model, imported_transform = import_model(model)
        transform = imported_transform or transform
    if isinstance(model, str):
        classes = subject.classes
        facts = replace(describe_classifier(model, classes), name=name)

        def load() -> Classifier:
            return replace(load_classifier(model, classes=classes), name=name)

        return GivenModel(facts, load)
    images = subject.parts[0].images
    decoded = (images.decoded(encoded) for _, encoded in images.images())
    shown = (image for image in decoded if image is not None)
    first = next(shown, None)
    if first is None:
        raise failure("nothing-to-measure.decoded", images.name, "image")
    facts, classifier = classifier_of(
        name,
        model,
        transform,
        first,
        version,
        shown,
    )
    return GivenModel(facts, lambda: classifier)


_LARGEST_ORDER = 16_000_000
_CLASS_ORDER = "class_order"
_SCORES_ARE = "scores_are"
# Their answers come with the names of classes.
_NAME_CLASSES = (PREDICTIONS, OPEN_CLIP, CHAT)


def _class_orders(
    requested: ClassOrder | Mapping[str, ClassOrder] | None, stands_for: Mapping[str, Any]
) -> dict[str, Order]:
    """Return the order of each model that has one. Raise UserError with all that is wrong."""
    if requested is None:
        return {}
    named = set()
    for name, model in stands_for.items():
        if isinstance(model, str) and model.startswith(_NAME_CLASSES):
            named.add(name)
    if not isinstance(requested, Mapping):
        order = _order(requested)
        return {name: order for name in stands_for if name not in named}
    orders: dict[str, Order] = {}
    problems = Problems(message)
    for name, value in requested.items():
        if name not in stands_for:
            problems.add("unlisted-model.order", _CLASS_ORDER, name, stands_for)
        elif name in named:
            problems.add("class-order.named", _CLASS_ORDER, name)
        else:
            try:
                orders[name] = _order(value)
            except UserError as error:
                problems.add_all(error)
    problems.refuse(message.advice["class-order.named"])
    return orders


def _order(value: ClassOrder) -> Order:
    if value in ("position", "timm"):
        return value  # type: ignore[return-value]
    if not isinstance(value, str | Path):
        names = tuple(value)
        if not names or not all(isinstance(name, str) for name in names):
            raise refusal("class-order.value", _CLASS_ORDER)
        return names
    file = named_path(value)
    try:
        text = read_regular(file, _LARGEST_ORDER).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise refusal("class-order.missing", _CLASS_ORDER, file) from error
    except UnicodeDecodeError as error:
        raise refusal("class-order.text", _CLASS_ORDER, file) from error
    except OSError as error:
        raise refusal("class-order.read", _CLASS_ORDER, file, reason=error) from error
    lines = text.rstrip().splitlines()
    names = tuple(line.strip() for line in lines)
    if not 0 < len(names) <= MOST_CLASSES:
        raise refusal("class-order.lines", _CLASS_ORDER, file, MOST_CLASSES, lines=len(names))
    if "" in names:
        line = names.index("") + 1
        raise refusal("class-order.empty", _CLASS_ORDER, file, line=line)
    return names


@dataclass(frozen=True)
class ChosenModels:
    """The models to score, in order, with the class map of each."""

    classes: Sequence[RecipeClass]
    """The classes of the images."""
    names: tuple[str, ...] = ()
    """The names of the models, in order."""
    maps: Mapping[str, ClassMap] = field(default_factory=dict)
    """The class map of each model, by name."""
    given: Mapping[str, GivenModel] = field(default_factory=dict)
    """Models of a person's code, by name."""
    stands_for: Mapping[str, object] = field(default_factory=dict)
    """Name → the given model or its name."""
    mended: Mapping[str, MendedNote] = field(default_factory=dict)
    """The notes of mended models, by name."""
    outputs: Outputs = "all"
    """Which outputs an answer is chosen among."""
    scales: Mapping[str, Scale] = field(default_factory=dict)
    """What the scores of a model are, if a person says so."""

    def load(self, name: str) -> Classifier:
        given = self.given.get(name)
        classifier = given.load() if given else load_classifier(name, classes=self.classes)
        return with_score_scale(classifier, self.scales.get(name))


def choose_models(
    subject: Subject,
    models: Any,
    options: EvaluationOptions,
    against: Sequence[str],
) -> ChosenModels:
    """Return the models to score, before any weight is loaded; `against` are those that a gate
    compares with.

    Raise UserError for names, class orders and classes that do not fit, and for a model that was
    mended on these images; RunFailure for a callable that fails on a first image.
    """
    recipe = subject.recipe
    compare = options.compare
    way = options.outputs or (recipe and recipe.evaluate.outputs) or "all"
    if way not in get_args(Outputs):
        raise refusal("invalid-option", "outputs", way, " or ".join(get_args(Outputs)))
    if way == "classes" and subject.judged.shifts:
        raise refusal("unfit-option.outputs", "outputs")
    if compare is not None and (len(compare) != 2 or compare[0] == compare[1]):
        given_names = " and ".join(map(repr, compare))
        raise refusal("invalid-option.compare", "compare", given_names)
    named, given, errors = _named_and_given(subject, models, options, against)
    names = tuple(named)
    stands_for: dict[str, Any] = {name: name for name in names}
    if isinstance(models, Mapping):
        stands_for = dict(models)
    orders = _class_orders(options.class_order, stands_for)
    maps = dict[str, ClassMap]()
    classes = subject.classes
    if subject.directory is None and recipe is None:
        # Without a recipe, ids of classes are numbers, which may equal names of outputs by chance.
        classes = tuple(replace(cls, id=cls.name) for cls in classes)
    # labels of an image are no folders
    folders = recipe is None or recipe.task.folders
    trained: Sequence[str] | None = subject.parts[0].images.label_names
    if trained is None and recipe is not None:
        source = placed_source(recipe.source, subject.pins.get("source"))
        trained = trained_names(source, subject.classes)
    for name, line in named.items():
        order = orders.get(name)
        try:
            own = given.get(name)
            facts = own.facts if own else describe_classifier(name, subject.classes)
            maps[name] = map_classes(classes, facts, order, folders=folders, trained=trained)
        except CounterfoilError as error:
            errors.append(error.at(line) if line else error)
    scales = _scales(options.scores_are, names, maps, errors)
    raise_together(errors)
    problems = Problems(message)
    if way == "classes":
        for name, class_map in maps.items():
            if class_map.most_ranked is not None:
                problems.add("unusable-model.classes", f"model {name!r}")
        problems.refuse()
    maps = {name: class_map.answered_both_ways(way) for name, class_map in maps.items()}
    for name in compare or ():
        if name not in names:
            problems.add("unlisted-model.compare", "compare", name, names)
    problems.refuse()
    mended = mended_notes(stands_for)
    refuse_trained_on(subject, mended)
    # If no model has other outputs, there is no choice to report.
    has_others = any(class_map.class_outputs is not None for class_map in maps.values())
    chosen = way if has_others else "all"
    return ChosenModels(
        subject.classes,
        names,
        maps,
        given,
        stands_for,
        mended,
        chosen,
        scales,
    )


def _scales(
    requested: Scale | Mapping[str, Scale] | None,
    names: Sequence[str],
    maps: Mapping[str, ClassMap],
    errors: list[CounterfoilError],
) -> dict[str, Scale]:
    """Return what the scores of each model are, where a person says so. Add what is wrong to
    `errors`."""
    given: Mapping[str, Scale] = {}
    if isinstance(requested, Mapping):
        given = requested
    elif requested:
        given = dict.fromkeys(names, requested)
    without_scores = {name for name, class_map in maps.items() if class_map.most_ranked == 1}
    known = f"{', '.join(SCALES[:-1])} or {SCALES[-1]}"
    problems = []
    for name in given:
        if name not in names:
            problems.append(message("unlisted-model", _SCORES_ARE, name, names))
    for scale in sorted({*given.values()} - {*SCALES}, key=str):
        problems.append(message("invalid-option", _SCORES_ARE, str(scale)[:60], known))
    for name in given:
        if name in without_scores and isinstance(requested, Mapping):
            problems.append(message("unusable-model.scores", _SCORES_ARE, name))
    if problems:
        errors.append(UserError(problems, f"Scores are {known}."))
    with_scores = maps.keys() - without_scores
    return {name: scale for name, scale in given.items() if name in with_scores}


def _named_and_given(
    subject: Subject,
    models: Any,
    options: EvaluationOptions,
    against: Sequence[str],
) -> tuple[NamedModels, dict[str, GivenModel], list[CounterfoilError]]:
    """Return the models to score, those of a person's code, and an error for each problem of a
    list.

    The compared models come first; without other models, they are the only ones.
    """
    compare = options.compare
    if isinstance(models, Mapping):
        problems = Problems(message)
        for name in compare or ():
            if name not in models:
                problems.add("unlisted-model.compare", "compare", name, models)
        _add_unlisted(against, models, problems)
        problems.refuse()
        given = given_models(models, subject, options)
        named: NamedModels = dict.fromkeys(given)
    else:
        words: list[str | Path] = list(compare or ())
        words += [word for word in _words(models) if word not in words]
        given = given_models(words, subject, options)
        named, problems = named_models(words, against)
        if not words and models is None:
            # Names only: the recipe of a published dataset must not make this machine read files.
            named = dict.fromkeys((*subject.models, *named))
    if not named and not problems.count:
        raise refusal("missing-model.recipe")
    lines = first_of(problems.lines, count=problems.count)
    return named, given, [UserError(line) for line in lines]


def short_name(name: str) -> str:
    """Return the name without its source: of a folder or file the last part, of timm's repositories
    timm's name."""
    if is_local(name) and not name.startswith((".", "/", "~")):
        return Path(without_folders(name)).name
    if name.startswith(CHAT):
        return chat_parts(name)[0]
    source, _, rest = name.partition(":")
    if rest and source in ("lab", "hf-hub"):
        return rest.removeprefix("timm/")
    return name


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return the short name of each model. A short name that several would have is not used: they
    keep their names."""
    short = {name: short_name(name) for name in names}
    times = Counter(short.values())
    for name in names:
        if times[short[name]] > 1:
            short[name] = name
    return short


def with_distinct_short_names(models: Iterable[ModelFacts]) -> tuple[ModelFacts, ...]:
    """Return the models, of which no two have the same short name."""
    facts = list(models)
    short = short_names([model.name for model in facts])
    distinct = []
    for model in facts:
        distinct.append(replace(model, short_name=short[model.name]))
    return tuple(distinct)


def classifier_facts(classifier: Classifier, **measured: Any) -> ModelFacts:
    """Return what results say of a classifier; `measured` are the fields that its answers
    decide."""
    return ModelFacts(
        name=classifier.name,
        short_name=short_name(classifier.name),
        architecture=classifier.architecture,
        num_classes=classifier.num_classes,
        img_size=classifier.input_size[-1] if classifier.input_size else None,
        crop_pct=classifier.crop_pct,
        interpolation=classifier.interpolation,
        param_count=classifier.param_count,
        sha256=classifier.sha256 or "",
        unsteady=classifier.unsteady,
        **measured,
    )


def with_public_names(results: Results) -> Results:
    """Return the results that a card may show. The hash of the weights distinguishes folders of the
    same name."""
    names = _public_names({model.name: model.sha256 for model in results.models})

    def called(name: str) -> str:
        # A judge that was not scored has its name in the published recipe.
        return names.get(name, name)

    nested: dict[str, Any] = {}
    unshown: set[str] = set()
    for name, shown in NESTED.items():
        facts = getattr(results, name)
        if shown.private:
            nested[name] = None
            unshown.update(measure.name for measure in shown.measures)
        elif facts:
            for feature in shown.features(facts):
                names.setdefault(feature, without_folders(feature))
            nested[name] = shown.public(facts, called)
    models = []
    for model in results.models:
        public = names[model.name]
        models.append(replace(model, name=public, short_name=short_name(public)))
    rows = []
    for row in results.rows:
        if row.measure not in unshown:
            against = called(row.against)
            rows.append(replace(row, model=called(row.model), against=against))
    measures = [facts for facts in results.measures if facts.name not in unshown]
    nested["models"] = tuple(models)
    nested["measures"] = tuple(measures)
    nested["rows"] = ResultRows(rows)
    return replace(results, **nested)


def _public_names(sha256: Mapping[str, str]) -> dict[str, str]:
    """Return name → public name. sha256: name → hash of the model's weights."""
    times = Counter(map(without_folders, sha256))
    names: dict[str, str] = {}
    taken: Counter[str] = Counter()
    for name in sha256:
        public = without_folders(name)
        if times[public] > 1:
            public = f"{public}-{sha256[name][:8]}"
        taken[public] += 1
        names[name] = public
        if taken[public] > 1:  # the same weights in two folders
            names[name] += f"-{taken[public]}"
    return names


_REPORTED_EVERY = 1000  # images between two reports of progress


def mended_notes(models: Mapping[str, Any]) -> dict[str, MendedNote]:
    """Return the notes of those models that were mended. models: name → model; a callable has no
    note. Raise UserError for unreadable notes."""
    notes: dict[str, MendedNote] = {}
    errors: list[CounterfoilError] = []
    for name, model in models.items():
        if not isinstance(model, str):
            continue
        with collected_in(errors):
            note = mended_of(model)
            if note is not None:
                notes[name] = note
    raise_together(errors)
    return notes


def refuse_trained_on(subject: Subject, notes: Mapping[str, MendedNote]) -> None:
    """Raise UserError with every model that was mended on some of these images, or with a common
    seed."""
    problems: list[ProblemLine] = []
    scored = {part.images.content: part.images.name for part in subject.parts}
    seed = None
    recipe = subject.recipe
    if recipe is not None and subject.directory is not None and not recipe.kind.takes_rows:
        seed = recipe.samples.seed
    for name, note in notes.items():
        model = f"model {name!r}"
        for trained in (*note.on, *note.datasets):
            if trained.content in scored:
                images = scored[trained.content]
                problems.append(message("trained-on.mended", model, trained.name, images))
        for content in dict.fromkeys(note.train_content):
            if content in scored:
                problems.append(message("trained-on.fitted", model, scored[content]))
        for dataset in note.datasets:
            if seed is not None and dataset.seed == seed and dataset.content not in scored:
                problem = message(
                    "trained-on.seed",
                    model,
                    dataset.name,
                    subject.source,
                    recipe=dataset.recipe or "unknown",
                    seed=seed,
                )
                problems.append(problem)
    problems += _common_rows(subject, notes)
    if not problems:
        problems = _fitted_images(subject, notes)
    if problems:
        raise UserError(problems)


def _fitted_images(subject: Subject, notes: Mapping[str, MendedNote]) -> list[ProblemLine]:
    """Return a problem for each model that was fitted to some of the scored images."""
    fitted_to = {}
    for name, note in notes.items():
        if note.train_content:
            fitted_to[name] = frozenset(note.train_content)
    if not fitted_to:
        return []
    counts = dict.fromkeys(fitted_to, 0)
    total = sum(len(part.images) for part in subject.stored_parts)

    def pictures() -> Iterator[Image | None]:
        for part in subject.stored_parts:
            for _, encoded in part.images.images():
                yield part.images.decoded(encoded)

    what = "checking for training images of the models"
    for picture in track(pictures(), what, total, _REPORTED_EVERY):
        if picture is not None:
            content = pixels_sha256(picture)
            for name, contents in fitted_to.items():
                counts[name] += content in contents
    problems = []
    for name, count in counts.items():
        if count:
            problem = message(
                "trained-on.images",
                f"model {name!r}",
                expected=subject.source,
                images=count,
                total=total,
            )
            problems.append(problem)
    return problems


def _common_rows(subject: Subject, notes: Mapping[str, MendedNote]) -> list[ProblemLine]:
    """Return a problem for each dataset of edits that a model was mended with, if it shares rows with
    the scored edits."""
    if subject.recipe is None or subject.directory is None:
        return []
    edited = []
    for name, note in notes.items():
        for dataset in note.datasets:
            if dataset.edits is not None:
                edited.append((name, dataset, dataset.edits))
    if not edited:
        return []
    keys = subject.parts[0].images.keys
    scored = edits_of(subject.directory, subject.recipe, subject.pins, keys)
    if scored is None:
        return []
    contents = {part.images.content for part in subject.parts}
    problems = []
    for name, dataset, edits in edited:
        if (edits.pool, edits.split) != (scored.pool, scored.split):
            continue
        common = sorted(set(edits.rows) & set(scored.rows))
        if common and dataset.content not in contents:
            problem = message(
                "trained-on.rows",
                f"model {name!r}",
                dataset.name,
                subject.source,
                rows=len(common),
                row=common[0],
                split=scored.split,
            )
            problems.append(problem)
    return problems


_MOST_BYTES = 1 << 28
# 17 ways to prepare images and 35 corruptions at 5 severities are 192.
_MOST_COMPUTED = 200


@dataclass(frozen=True, eq=False)
class StoredAnswers:
    """A model of an earlier evaluation."""

    name: str
    """File and model, for people."""
    keys: tuple[str, ...]
    right: Bools
    """(images,)"""
    unreadable: Bools
    """(images,), also where an image has no answer."""
    near_chance: bool
    sha256: str

    def to_images(self, keys: Sequence[str]) -> StoredAnswers:
        """Return the answers to the images of these keys. An image that has none is unreadable."""
        known = {key: row for row, key in enumerate(self.keys)}
        rows = np.array([known.get(key, -1) for key in keys])
        absent = rows < 0
        return replace(
            self,
            keys=tuple(keys),
            right=self.right[rows] & ~absent,
            unreadable=self.unreadable[rows] | absent,
        )


def is_stored(name: str) -> bool:
    """Return whether a line compares with an earlier evaluation, not with a model."""
    return name.endswith(".json") and not name.startswith(PREDICTIONS)


def read_stored(
    files: Iterable[str],
    models: Sequence[str],
    subject: Subject,
    chosen: ChosenModels | None,
) -> dict[tuple[str, str], StoredAnswers]:
    """Read the answers for each file and judged model: of the model with that name, or of the
    file's only model.

    A file is results.json, with predictions.parquet beside it. Its computed shifts may be others
    than those of the subject. Raise UserError with every file that cannot be read, is of other
    images, leaves open which model is meant, or has answers over other outputs.
    """
    problems = Problems(message)
    stored = {}
    for file in dict.fromkeys(files):
        try:
            of_file = _read_answers(file, models, subject, chosen)
        except UserError as error:
            problems.add_all(error.at("gate"))
            continue
        for model, answers in of_file.items():
            stored[file, model] = answers
    problems.refuse(message.advice["unfit-results"])
    return stored


def _read_answers(
    file: str,
    models: Sequence[str],
    subject: Subject,
    chosen: ChosenModels | None,
) -> dict[str, StoredAnswers]:
    import pyarrow as pa

    path = named_path(file)
    try:
        results = results_from(read_regular(path, _MOST_BYTES), file)
    except OSError as error:
        raise refusal("unfit-results.read", file, error) from error
    if results.content != subject.content:
        raise refusal(
            "unfit-results.images",
            file,
            results.content,
            subject.content,
            dataset=results.dataset,
            images=subject.name,
        )
    facts = {model_facts.name: model_facts for model_facts in results.models}
    meant = {}
    for model in models:
        if model in facts:
            meant[model] = model
        elif len(facts) == 1:
            meant[model] = results.models[0].name
        else:
            known = format_list(list(facts)) or "no model"
            raise refusal("unfit-results.model", file, model, models=known)
        assert chosen is not None  # of which these models are
        # The answers of models without other outputs are the same either way.
        has_others = chosen.maps[model].class_outputs is not None
        had_others = results.rows.where(OVER_ALL, model=meant[model])
        if results.outputs != chosen.outputs and has_others and had_others:
            raise refusal("unfit-results.outputs", file, results.outputs, chosen.outputs)
    table_path = path.with_name("predictions.parquet")
    columns = {name: f"right.{name}" for name in meant.values()}
    kinds = {"key": (TEXT,)}
    kinds |= dict.fromkeys(columns.values(), (TRUTH,))
    # Computed shifts come last.
    expected = sum(len(part.images) for part in subject.stored_parts)
    most_rows = expected * _MOST_COMPUTED
    try:
        with open_regular(table_path) as handle:
            batches = list(read_foreign_parquet(handle, kinds, most_rows=most_rows))
    except UnfitFile as error:
        raise refusal("unfit-results.file", table_path, error) from error
    except OSError as error:
        raise refusal("unfit-results.read", table_path, error) from error
    except pa.ArrowException as error:
        raise refusal("unfit-results.table", table_path, error) from error
    rows = sum(batch.num_rows for batch in batches)
    if rows < expected:
        raise refusal("unfit-results.rows", table_path, rows, expected)
    answers = pa.Table.from_batches(batches)
    keys = tuple(answers["key"].to_pylist())
    if keys[:expected] != subject.keys[:expected]:
        raise refusal("unfit-results.keys", table_path, subject.name)
    stored = {}
    for model, name in meant.items():
        of_model = answers[columns[name]].cast(pa.bool_())
        right = of_model.fill_null(False)
        stored[model] = StoredAnswers(
            name=file if len(facts) == 1 else f"{file} ({name})",
            keys=keys,
            right=np.array(right),
            unreadable=np.array(of_model.is_null()),
            near_chance=facts[name].near_chance,
            sha256=facts[name].sha256,
        )
    return stored

"""Learn the class tokens of a recipe into a folder, or resume there.

A class counts as learned when its file exists.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from counterfoil.data.folders import refuse_among_inputs
from counterfoil.data.open_source import SourceSplit, open_source
from counterfoil.data.pins import SourcePin
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.documents import document_bytes, document_differences
from counterfoil.engines import Advanced, Delivered, Doing, Engine, Lost, engine_and_device
from counterfoil.engines.local import stack_where_done
from counterfoil.errors import RunFailure, UserError, first_of
from counterfoil.generate.tokens.class_tokens import (
    TOKENS_MANIFEST,
    ClassTokens,
    TokenFile,
    placeholder_of,
    read_class_tokens,
    read_token_file,
    read_token_folder,
    token_bytes,
    token_file_name,
)
from counterfoil.generate.tokens.options import TokenOptions
from counterfoil.models.arithmetic import computing_on
from counterfoil.models.diffusion import load_pipeline, load_tokenizers, pipeline_family
from counterfoil.models.names import pin_model
from counterfoil.models.stack import stack_of
from counterfoil.options import takes
from counterfoil.progress import report_event
from counterfoil.recipe import LearnSettings, Recipe, RecipeClass, load_recipe
from counterfoil.recipe.names import refuse_disagreements
from counterfoil.regular_files import named_path
from counterfoil.store.atomic import make_folder, remove_half_written, try_folder, write_atomically
from counterfoil.store.directory_lock import FolderMark, directory_lock, marked_folder
from counterfoil.store.layout import PRIVATE, TOKENS
from counterfoil.store.lock import read_lock

_LEARNING = f"{PRIVATE}/tokens"


@dataclass(frozen=True, slots=True)
class TokenProgress:
    """The progress of a run, in classes and in optimisation steps of groups of classes."""

    classes_done: int
    classes: int
    steps_done: int
    steps: int
    lost: tuple[str, ...] = ()
    """Sentences about workers and devices that failed although the run continues."""


@dataclass(frozen=True, slots=True)
class TokenResult:
    """The tokens in a folder after a run.

    The result has the loss by class id, the classes that this run learned, and why other classes
    failed.
    """

    folder: Path
    losses: Mapping[str, float | None]
    learned: tuple[str, ...]
    failed: Mapping[str, str]
    manifest_sha256: str


# `_Learned` has the losses of learned tokens, and the reasons why others failed, both by class id
# of a group.
_Learned = tuple[dict[str, float], dict[str, str]]


@dataclass(frozen=True, slots=True)
class LearningTask:
    """Everything that a worker needs to learn groups of classes, as plain data that can be pickled
    (an `engines.Work`)."""

    recipe: Recipe
    folder: Path
    device: str
    identity: Mapping[str, Any]
    mark: FolderMark | None = None
    """Proves that the worker sees the same folder."""
    deliver: bool = False
    """Whether the worker sends the name and the content of each file to the main process instead of
    writing the file."""

    def on(self, device: str) -> LearningTask:
        return replace(self, device=device)

    @property
    def less_memory(self) -> str:
        return (
            "Fewer tokens.learn.classes_in_flight need less memory (this changes the tokens, so"
            " use another folder)."
        )

    @property
    def imports(self) -> Sequence[str]:
        return (__name__, "diffusers.pipelines.auto_pipeline")

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Sequence[str]], Doing[Any, _Learned]]]:
        """Load the pipeline and the input dataset, and yield a function that learns a group of
        class ids step by step.

        Raise UserError if the tokens in the folder were made with another stack than this worker
        has, or if the worker sees another folder.
        """
        if self.mark is not None:
            self.mark.refuse_unseen()
        with computing_on(self.device):
            yield self._loaded()

    def _loaded(self) -> Callable[[Sequence[str]], Doing[Any, _Learned]]:
        from counterfoil.generate.tokens.inversion import ClassToLearn, Inversion, TrainingImages

        recipe = self.recipe
        settings = _settings(recipe)
        generator = recipe.drawing
        stack = stack_of(self.device, generator.dtype, _together(settings))
        identity = {**self.identity, "stack": stack}
        if lines := document_differences(self.identity, identity):
            raise _other_settings(
                f"{self.folder}: its tokens come from another stack than this worker's:", lines
            )
        pipeline = load_pipeline(
            generator.model,
            revision=self.identity["generator"]["revision"] or generator.revision,
            dtype=generator.dtype,
            device=self.device,
        )
        inversion = Inversion(pipeline, settings, generator.size)
        pin = SourcePin.of(self.identity["source"])
        split = open_source(recipe.source, pin=pin).split(recipe.source.train_split)
        classes = {cls.id: cls for cls in recipe.classes}

        def to_learn(cls: RecipeClass) -> ClassToLearn:
            rows = split.rows_of(cls.source_label)
            images = TrainingImages(len(rows), lambda index: split.image(int(rows[index])))
            return ClassToLearn(cls.id, settings.initial_word or cls.name, images)

        def learn(group: Sequence[str]) -> Doing[Any, _Learned]:
            chosen = [to_learn(classes[class_id]) for class_id in group]
            tokens = yield from inversion.learn(chosen)
            losses: dict[str, float] = {}
            failed: dict[str, str] = {}
            for learned, token in zip(chosen, tokens, strict=True):
                cls = classes[learned.class_id]
                if token.failure is not None:
                    failed[cls.id] = token.failure
                    continue
                losses[cls.id] = token.loss
                notes = {
                    **identity,
                    "class_id": cls.id,
                    "initial_words": learned.initial_words,
                    "images": learned.images.count,
                    "loss": token.loss,
                }
                placeholder = placeholder_of(cls.id, cls.name)
                content = token_bytes(TokenFile(placeholder, token.vectors, notes))
                if self.deliver:
                    yield Delivered((token_file_name(cls.id), content))
                else:
                    write_atomically(self.folder / token_file_name(cls.id), content)
            return losses, failed

        return learn


@takes(TokenOptions)
def learn_tokens(options: TokenOptions) -> TokenResult:
    """Learn a token for every class of a recipe with `tokens.learn`, or resume in a folder that has
    some.

    This function writes `CLASS_ID.safetensors` for each class, and manifest.json last.

    Returns:
        A TokenResult with the loss of each class.

    Raises:
        UserError: A class has too few images or a name without sub-tokens, or the folder was made
            with other settings.
        RunFailure: The loss of a class stopped being a number. All other classes are learned first.
    """
    recipe = load_recipe(options.recipe, options.overrides)
    _settings(recipe)  # refuse a recipe that learns no tokens before anything else
    recipe = resolve_classes(recipe)
    resolved_engine, first_device = engine_and_device(options)
    return _learn(recipe, named_path(options.out), first_device, resolved_engine)


def _learn(recipe: Recipe, folder: Path, device: str, engine: Engine) -> TokenResult:
    settings = _settings(recipe)
    try_folder(folder)
    refuse_among_inputs(folder, recipe.source.dataset)
    measure = partial(stack_of, dtype=recipe.generator.dtype, batch_size=_together(settings))
    stack = stack_where_done(engine, device, measure)
    identity = _identity(recipe, folder) | {"stack": stack}
    make_folder(folder)
    with directory_lock(folder):
        known = _known(recipe, folder, identity)
        pending = [cls for cls in recipe.classes if cls.id not in known]
        failed: dict[str, str] = {}
        learned: list[str] = []
        if pending:
            pin = SourcePin.of(identity["source"])
            split = open_source(recipe.source, pin=pin).split(recipe.source.train_split)
            _check(recipe, pending, split)
            size = settings.classes_in_flight
            groups = []
            for start in range(0, len(pending), size):
                groups.append([cls.id for cls in pending[start : start + size]])
            names = {token_file_name(cls.id) for cls in pending}
            steps = 0
            all_steps = len(groups) * settings.steps
            lost: list[str] = []
            report_event(TokenProgress(0, len(pending), 0, all_steps))
            with contextlib.ExitStack() as contexts:
                mark = None if engine.collects else contexts.enter_context(marked_folder(folder))
                work = LearningTask(recipe, folder, device, identity, mark, deliver=engine.collects)
                events = contexts.enter_context(contextlib.closing(engine.run(work, groups)))
                for event in events:
                    if isinstance(event, Advanced):
                        steps += event.count
                    elif isinstance(event, Delivered):
                        name, content = event.part
                        if name not in names:
                            raise RunFailure(
                                f"a worker sent '{name[:80]}', which is not a token of these"
                                " classes",
                                "The file was not written.",
                            )
                        write_atomically(folder / name, content)
                    elif isinstance(event, Lost):
                        lost.append(event.message)
                    else:
                        losses_of_group, failed_of_group = event.result
                        learned.extend(losses_of_group)
                        failed.update(failed_of_group)
                    done = len(learned) + len(failed)
                    report_event(TokenProgress(done, len(pending), steps, all_steps, tuple(lost)))
            if lost:
                remove_half_written(folder)
        losses, manifest = _write_manifest(recipe, folder, identity, failed)
    if failed:
        raise RunFailure(
            [f"class '{class_id}' has no token: {reason}" for class_id, reason in failed.items()],
            "The other classes are learned and kept. Lower tokens.learn.learning_rate, and run into"
            " a new folder.",
        )
    return TokenResult(folder, losses, tuple(learned), failed, manifest)


def class_tokens(
    recipe: Recipe,
    out: Path,
    device: str,
    engine: Engine,
    *,
    learn: bool = True,
) -> ClassTokens | None:
    """Return the class tokens of a build in `out`, or None if the recipe uses no tokens.

    The tokens come from a folder or the Hub, or they are learned. Tokens that the directory already
    has are never learned again, but their settings must agree with the recipe. Without `learn`,
    read the tokens that were `learned_before`.
    """
    if recipe.tokens is None or recipe.tokens.learn is None:
        return read_class_tokens(recipe)
    folder = None
    if not learn or _has_tokens(recipe, out):
        folder = learned_before(recipe, out)
    if folder is None:
        folder = learning_folder(out)
        _learn(recipe, folder, device, engine)
    else:
        _known(recipe, folder, _identity(recipe, folder))
    return read_token_folder(recipe, folder)


def learning_folder(out: Path) -> Path:
    """Return the folder in which a build in `out` learns class tokens."""
    return out / _LEARNING


def learned_before(recipe: Recipe, out: Path) -> Path | None:
    """Return the folder with all class tokens that were learned for a dataset, or None if some are
    missing."""
    if _has_tokens(recipe, out):
        return out / TOKENS
    return learning_folder(out) if _is_whole(recipe, learning_folder(out)) else None


def _has_tokens(recipe: Recipe, out: Path) -> bool:
    """Return whether a dataset has all its tokens. A killed build may have copied only some of
    them."""
    lock = read_lock(out)
    if lock is None or not lock.inputs.get("tokens"):
        return False
    return _is_whole(recipe, out / TOKENS)


def _is_whole(recipe: Recipe, folder: Path) -> bool:
    files = [TOKENS_MANIFEST, *(token_file_name(cls.id) for cls in recipe.classes)]
    return all((folder / file).is_file() for file in files)


def _settings(recipe: Recipe) -> LearnSettings:
    if recipe.tokens is not None and recipe.tokens.learn is not None:
        return recipe.tokens.learn
    does = "does not say how to learn them"
    how = "{learn: {}}"
    if recipe.tokens is not None:
        does = f"takes those of {recipe.tokens.path}"
        how = "{path: null, learn: {}}"
    hint = f"Give it `tokens: {how}`, for example by --set 'tokens={how}'."
    raise UserError(f"tokens: this recipe {does}", hint)


def _identity(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Return the inputs on which a token depends, apart from its class and the stack.

    The pin of the input dataset is the pin that the tokens in the folder have.
    """
    files = [folder / token_file_name(cls.id) for cls in recipe.classes]
    first = next((path for path in files if path.is_file()), None)
    recorded = None if first is None else read_token_file(first).notes.get("source")
    generator = recipe.drawing
    model = pin_model(generator.model, generator.revision)
    source = open_source(recipe.source, recorded).pin
    settings = _settings(recipe).model_dump(mode="json")
    identity = {
        "method": "textual inversion",
        "generator": model.document(),
        "source": source.document() | {"split": recipe.source.train_split},
        "settings": settings | {"rendered_size": generator.size},
    }
    return json.loads(json.dumps(identity))


def _together(settings: LearnSettings) -> int:
    """Return the number of images of all classes in flight, which the stack records as the batch
    size."""
    return settings.batch_size * settings.classes_in_flight


def _known(
    recipe: Recipe,
    folder: Path,
    identity: Mapping[str, Any],
) -> dict[str, Mapping[str, Any]]:
    """Return class id → notes of the tokens in a folder. Raise UserError for tokens of another
    identity."""
    known: dict[str, Mapping[str, Any]] = {}
    for cls in recipe.classes:
        path = folder / token_file_name(cls.id)
        if not path.is_file():
            continue
        notes = read_token_file(path).notes
        recorded = {key: notes.get(key) for key in identity}
        if lines := document_differences(recorded, identity):
            raise _other_settings(
                f"{folder} holds tokens that were made with other settings ({path.name}):", lines
            )
        known[cls.id] = notes
    return known


def _other_settings(problem: str, lines: Sequence[str]) -> UserError:
    hint = "Learn into another folder, or restore the settings that these were learned with."
    return UserError([problem, *(f"  {line}" for line in lines)], hint)


def _check(recipe: Recipe, pending: Sequence[RecipeClass], split: SourceSplit) -> None:
    """Raise UserError, before any model loads, with all classes that cannot be learned."""
    names = split.rows.class_names(recipe.source.label_column)
    if names is not None and split.conditions is None:
        refuse_disagreements(pending, names, split.name)
    settings = _settings(recipe)
    model = recipe.drawing.model
    revision = recipe.drawing.revision
    family, _ = pipeline_family(model, revision)
    if not family.learns_tokens:
        hint = "Prompt by class name, with `tokens: null`"
        if family.takes_tokens:
            hint += ", or name tokens that were learned for its CLIP"
        raise UserError(
            f"tokens.learn: '{model}' is {family.name}, for which class tokens cannot be learned",
            f"{hint}.",
        )
    problems = []
    for cls in pending:
        count = len(split.rows_of(cls.source_label))
        if count < settings.min_images:
            expected = f"expected at least {settings.min_images} (tokens.learn.min_images)"
            problems.append(
                f"class '{cls.id}' ({cls.name}): {count} training images in {split.name},"
                f" {expected}"
            )
    if problems:
        hint = "Drop these classes, give them images, or lower tokens.learn.min_images."
        raise UserError(first_of(problems), hint)
    words = {cls.id: cls.name for cls in pending}
    if settings.initial_word:
        words = {"tokens.learn.initial_word": settings.initial_word}
    tokenizers = load_tokenizers(model, revision)
    for key, text in words.items():
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for tokenizer in tokenizers]
        if not all(ids):
            problems.append(f"{key}: '{text}' tokenises to nothing that {model} knows")
    if problems:
        hint = (
            "Set tokens.learn.initial_word, or write the name in letters that the tokenizer knows."
        )
        raise UserError(first_of(problems), hint)


def _write_manifest(
    recipe: Recipe,
    folder: Path,
    identity: Mapping[str, Any],
    failed: Mapping[str, str],
) -> tuple[dict[str, float], str]:
    """Write manifest.json with the hash and the loss of each token, or the reason why the token
    failed.

    Return the losses, and the hash of the manifest.
    """
    classes: dict[str, dict[str, Any]] = {}
    for cls in recipe.classes:
        path = folder / token_file_name(cls.id)
        if path.is_file():
            token = read_token_file(path)
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            notes = {key: token.notes.get(key) for key in ("initial_words", "images", "loss")}
            classes[cls.id] = {"placeholder": token.placeholder, "sha256": sha256, **notes}
        elif cls.id in failed:
            classes[cls.id] = {"failed": failed[cls.id]}
    content = document_bytes({**identity, "classes": classes})
    digest = write_atomically(folder / TOKENS_MANIFEST, content).sha256
    losses = {}
    for class_id, entry in classes.items():
        if "loss" in entry:
            losses[class_id] = entry["loss"]
    return losses, digest

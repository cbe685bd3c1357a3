"""Let models answer images in one pass, which decodes each image once for all its models.

Images are transformed once for each input key. Answers are kept in parts of whole batches, so after
a kill each model continues where it stopped. With an engine, workers load the models, and each
worker takes stretches of images.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.data import messages as data_messages
from counterfoil.data.labelled_images import Chunk, Chunks, LabelledImages, stretch_rows
from counterfoil.engines import Advanced, Doing, Engine, Finished, LocalEngine, Lost, Work
from counterfoil.errors import CounterfoilError
from counterfoil.models.messages import failure, refusal
from counterfoil.prediction.answer_cache import AnswerCache, Columns, join_stretches
from counterfoil.progress import report_progress
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.store.decoding import decoded_batches, readable_image

# For fewer images, one process finishes before worker processes have started.
_WORTH_WORKERS = 2000


@dataclass(frozen=True)
class Batch:
    """A batch of b images."""

    inputs: Any
    """The inputs of the readable images: tensors as one batch, or a list; None if no image is
    readable."""
    readable: Bools
    """Which images are readable (b,)."""
    at: Ints
    """The rows of the images (b,)."""
    labels: Ints
    """The labels of all images of the dataset."""


class Model:
    """A model in a pass. Models with the same input key get the same input for an image: by
    default, the image.

    key: the model has another one if its answers may differ, as on a worker with other files.
    """

    name: str
    key: Any
    input_key: str = ""
    of_files: bool = False
    """Whether its transform takes an image, the image's file and a seed, and not the image alone."""

    def transform(self) -> Callable[..., Any]:
        """Return a function that turns an RGB image into an input, and raises UserError if that
        fails."""
        return lambda image: image

    def answers(self, batch: Batch) -> Columns:
        """Return the answers to a batch. Any CounterfoilError ends only this model's pass."""
        raise NotImplementedError


@dataclass
class AskedFunction(Model):
    """A function in a pass, from RGB images to an answer for each. columns: those of the answer to
    the image of a row."""

    name: str
    function: Callable[[list[Any]], Iterable[Any]]
    images: LabelledImages
    columns: Callable[[Any, int], Columns]

    def answers(self, batch: Batch) -> Columns:
        if not batch.readable.all():
            key = self.images.keys[batch.at[~batch.readable][0]]
            raise failure("unfit-input.undecodable", self.images.name, key)
        answers = list(self.function(batch.inputs))
        if len(answers) != len(batch.at):
            raise refusal("invalid-callable.answers", self.name, len(answers), len(batch.at))
        parts = []
        for row, answer in zip(batch.at.tolist(), answers, strict=True):
            parts.append(self.columns(answer, row))
        return join_stretches(parts)


@dataclass
class AskedModel:
    """A model with its answers so far."""

    model: Any
    cache: AnswerCache | None = None
    parts: list[Columns] = field(default_factory=list)
    """The saved answers."""
    saved: int = 0
    """The number of images that the saved answers are to."""
    done: int = 0
    """The number of images that the model has answered."""
    fresh: list[Columns] = field(default_factory=list)
    """The answers that are not saved yet."""
    failure: CounterfoilError | None = None

    def __post_init__(self) -> None:
        if self.cache is not None:
            self.parts, self.saved = self.cache.load_parts()
            self.done = self.saved

    def add(self, answers: Sequence[Columns], done: int) -> None:
        """Take the next answers, to the images up to row `done`. Save fresh answers if there are
        enough for a part."""
        self.fresh += answers
        self.done = done
        if self.cache is not None and done - self.saved >= self.cache.part_rows:
            part = join_stretches(self.fresh)
            self.parts.append(part)
            self.cache.save_part(part, self.saved, done)
            self.saved = done
            self.fresh = []

    def finished(self) -> Columns:
        """Return all answers, and save them as one entry. Raise the failure if there is one."""
        if self.failure is not None:
            raise self.failure
        stretches = [*self.parts, *self.fresh]
        if not stretches:  # there is no image; an empty batch gives the columns
            none: Any = np.zeros(0, dtype=np.int64)
            stretches = [self.model.answers(Batch(None, none, none, none))]
        answers = join_stretches(stretches)
        if self.cache is not None:
            self.cache.save(answers)
        return answers


@dataclass(frozen=True, slots=True)
class Placement:
    """The engine whose workers run models, and the models that only this process can load."""

    engine: Engine
    device: str
    classes: tuple[RecipeClass, ...] = ()
    """The classes of the dataset, for models whose answers depend on classes."""
    of_this_process: frozenset[str] = frozenset()
    """Model names that refer to an object in this process, such as a function or a module."""

    def worth_for(self, images: int) -> Placement | None:
        """Return this placement, or None if this process alone answers so many images as fast on
        its only device."""
        alone = isinstance(self.engine, LocalEngine) and len(self.engine.devices) == 1
        if alone and (self.engine.at_once == 1 or images < _WORTH_WORKERS):
            return None
        return self

    def threads(self, stretches: int) -> int:
        """Return the number of threads of each process: local CPU workers share those of this
        process."""
        import torch

        if not isinstance(self.engine, LocalEngine) or self.device != "cpu":
            return 1
        processes = max(1, min(self.engine.at_once, stretches))
        return max(1, torch.get_num_threads() // processes)


@dataclass(frozen=True)
class Pass:
    """A pass over images, which is a stage of progress."""

    images: LabelledImages
    stage: str
    batch_size: int
    device: str
    placement: Placement | None = None
    """Where workers answer. Without it, this process answers, and decodes images as suits its
    `device`."""
    load: Callable[[str], Sequence[Model]] = lambda _: ()
    """A function that gives the models on a worker's device; it pickles."""
    imports: tuple[str, ...] = ()
    """The heavy modules of workers."""

    def answers_of(self, model: Model, cache: AnswerCache | None) -> Columns:
        """Return a model's answers to all images: those of the cache, or new ones, which are then
        kept there.

        Raise the model's failure, and RunFailure if there are fewer images than keys.
        """
        known = None if cache is None else cache.load()
        if known is not None:
            report_progress(self.stage, len(self.images), len(self.images))
            return known
        answering = AskedModel(model, cache)
        self.ask([answering])
        return answering.finished()

    def ask(self, models: Sequence[AskedModel]) -> None:
        """Let models answer all images, and save the answers in parts. They have answered as many
        images before."""
        images = self.images
        done = models[0].done
        if self.placement is None:
            encoded = (image for _, image in islice(images.images(), done, None))
            events = ask(
                encoded,
                images.labels,
                models,
                self.batch_size,
                self.device,
                images.photographs,
                images.seeds,
            )
        else:
            events = self._ask_on(self.placement, models)
        with closing(events):  # so that its decoders end with the pass
            for event in events:
                lost = event.message if isinstance(event, Lost) else None
                done = event if isinstance(event, int) else done
                report_progress(self.stage, done, len(images), lost)

    def _ask_on(self, placement: Placement, models: Sequence[AskedModel]) -> Generator[int | Lost]:
        """Do the work of `ask` on the workers of an engine. Also yield lost workers."""
        images = self.images
        batch_size = self.batch_size
        through = done = models[0].done
        rows = stretch_rows(len(images) - done, batch_size, placement.engine.at_once)
        chunks = Chunks(images, rows, done)
        threads = placement.threads(len(chunks))
        keys = tuple(answering.model.key for answering in models)
        work: Work[Chunk, _Answers] = _Asking(
            self.load,
            self.imports,
            keys,
            placement.device,
            batch_size,
            images.photographs,
            threads,
        )
        # by start: finished stretches that wait for an earlier one
        waiting: dict[int, Finished] = {}
        with closing(placement.engine.run(work, chunks)) as events:
            for event in events:
                if isinstance(event, Advanced):
                    done += event.count
                elif isinstance(event, Finished):
                    chunks.release(event.item)
                    waiting[event.item.start] = event
                    while (finished := waiting.pop(through, None)) is not None:
                        through = finished.item.stop
                        for answering, answers in zip(models, finished.result, strict=True):
                            if isinstance(answers, CounterfoilError):
                                answering.failure = answering.failure or answers
                            elif answering.failure is None:
                                answering.add(answers, through)
                yield event if isinstance(event, Lost) else min(done, len(images))


def ask(
    images: Iterable[bytes | None],
    labels: Ints,
    models: Sequence[AskedModel],
    batch_size: int,
    device: str,
    photographs: bool = False,
    seeds: Ints | None = None,
) -> Generator[int]:
    """Add every model's answers to the images that are left, in one pass. labels, seeds: of all n
    images.

    After each batch, the generator yields the number of finished images, and the caller may save
    answers. If a model cannot compute, the generator stores the error in its `failure` and
    continues with the other models. If no model is left, the pass ends.
    """
    position = models[0].done
    asked_models = [answering.model for answering in models]
    seeds_left = repeat(0) if seeds is None else seeds[position:].tolist()
    batches = prepared_batches(
        images,
        asked_models,
        batch_size,
        device,
        photographs,
        seeds_left,
    )
    for readable, inputs in batches:
        at = np.arange(position, position + len(readable))
        position += len(readable)
        for answering in models:
            if answering.failure is not None:
                continue
            given = inputs.get(answering.model.input_key)
            try:
                if isinstance(given, CounterfoilError):
                    raise given
                answers = answering.model.answers(Batch(given, readable, at, labels))
                answering.add([answers], position)
            except CounterfoilError as error:
                answering.failure = error
        if all(answering.failure is not None for answering in models):
            return
        yield position
    if position != len(labels):
        raise data_messages.failure("changed-data.meanwhile", None, position, len(labels))


def prepared_batches(
    images: Iterable[bytes | None],
    models: Sequence[Any],
    batch_size: int,
    device: str,
    photographs: bool = False,
    seeds: Iterable[int] = repeat(0),
) -> Generator[tuple[Bools, Mapping[str, Any]]]:
    """Yield for each batch which images are readable (b,), and the inputs of `Model.answers` by
    input key. seeds: of the images.

    If preparing an image fails for an input key, the error takes the place of the inputs.
    """
    models_of = {model.input_key: model for model in models}
    transforms = {key: model.transform() for key, model in models_of.items()}
    of_files = set()
    for key, model in models_of.items():
        if isinstance(model, Model) and model.of_files:
            of_files.add(key)

    def prepare(given: tuple[bytes | None, int]) -> list[Any] | None:
        encoded, seed = given
        image = readable_image(encoded, photograph=photographs)
        if image is None:
            return None
        inputs: list[Any] = []
        for input_key, transform in transforms.items():
            try:
                if input_key in of_files:
                    inputs.append(transform(image, encoded, seed))
                else:
                    inputs.append(transform(image))
            except CounterfoilError as error:
                inputs.append(error)
        return inputs

    for batch in decoded_batches(zip(images, seeds), prepare, batch_size, device):  # noqa: B905
        rows = [row for row in batch if row is not None]
        inputs = {}
        for index, (input_key, model) in enumerate(models_of.items()):
            if rows:
                of_key = [row[index] for row in rows]
                inputs[input_key] = _batch(of_key, model.name)
        readable = np.array([row is not None for row in batch])
        yield readable, inputs


def _batch(inputs: list[Any], name: str) -> Any:
    import torch

    for given in inputs:
        if isinstance(given, CounterfoilError):
            return given
    if not isinstance(inputs[0], torch.Tensor):
        return inputs
    shapes = {tuple(tensor.shape) for tensor in inputs}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        where = f"model {name!r}"
        return refusal("invalid-callable.shapes", where, list(first), list(second))
    return torch.stack(inputs)


# Each model's answers to a stretch, in batches.
_Answers = list[list[Columns] | CounterfoilError]


@dataclass(frozen=True, slots=True)
class _Asking:
    """The `engines.Work` that lets models answer stretches."""

    load: Callable[[str], Sequence[Model]]
    imports: tuple[str, ...]
    keys: tuple[str | None, ...]
    device: str
    batch_size: int
    photographs: bool
    threads: int

    def on(self, device: str) -> _Asking:
        return replace(self, device=device)

    @contextmanager
    def ready(self) -> Iterator[Callable[[Chunk], Doing[int, _Answers]]]:
        """Load the models. RunFailure if a model differs from the model at the start of the run."""
        import torch

        if self.device == "cpu":
            torch.set_num_threads(self.threads)
        models = self.load(self.device)
        for model, key in zip(models, self.keys, strict=True):
            if model.key != key:
                where = f"model {model.name!r}"
                raise failure("failed-model.other", where)

        def answer(chunk: Chunk) -> Doing[int, _Answers]:
            in_pass = [AskedModel(model) for model in models]
            before = 0
            batches = ask(
                chunk.encoded,
                chunk.labels,
                in_pass,
                self.batch_size,
                self.device,
                self.photographs,
                chunk.seeds,
            )
            with closing(batches):
                for done in batches:
                    yield done - before
                    before = done
            return [answering.failure or answering.fresh for answering in in_pass]

        yield answer

"""A pass of classifiers over many images, dealt to the workers of an engine: each loads the models and takes stretches.

Batches are cut where a pass in this process would cut them, so that what a batch holds is the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from counterfoil.engines import Advanced, Doing, Engine, Finished, LocalEngine, Lost, Work
from counterfoil.errors import CounterfoilError, RunFailure
from counterfoil.models.classifiers import load_classifier
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import ModelInPass, predict
from counterfoil.prediction.predictions import Predictions
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.sources import LabelledImages
from counterfoil.sources.image_chunks import Chunk, Chunks
from counterfoil.store.decoding import readable_image

# Fewer images are answered by one process before others have begun.
_WORTH_WORKERS = 2000
# Batches of a stretch: enough that sending costs little beside answering, few enough that all workers end together.
_BATCHES = 8


@dataclass(frozen=True, slots=True)
class Spread:
    """Where models answer, and which of them can be loaded there by their name.

    engine: whose workers load the models. classes: the dataset's, for models whose answers depend on them. here: names
    that stand for something in this process (a function, a module), which no other can load.
    """

    engine: Engine
    device: str
    classes: tuple[RecipeClass, ...]
    here: frozenset[str] = frozenset()

    def worth_for(self, images: int) -> Spread | None:
        """The same for so many images; None where this process alone, on the one device that there is, is as quick."""
        alone = isinstance(self.engine, LocalEngine) and len(self.engine.devices) == 1
        return None if alone and (self.engine.at_once == 1 or images < _WORTH_WORKERS) else self


@dataclass(frozen=True, slots=True)
class _Asked:
    """A model as a worker loads it: its name, its outputs, what is kept of its answers, and rows known already."""

    name: str
    class_map: ClassMap
    sha256: str | None
    ranked: int
    logits: bool
    done: int


@dataclass(frozen=True, slots=True)
class _Answering:
    """What a worker does with a stretch (an `engines.Work`): the answers of each model, or why it failed."""

    asked: tuple[_Asked, ...]
    classes: tuple[RecipeClass, ...]
    device: str
    batch_size: int
    photographs: bool

    def on(self, device: str) -> _Answering:
        return replace(self, device=device)

    @property
    def imports(self) -> Sequence[str]:
        return (__name__, "timm")

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Chunk], Doing[int, list[Predictions | CounterfoilError]]]]:
        """Load the models. RunFailure for one that is another here than where the run was begun."""
        models = []
        for one in self.asked:
            classifier = load_classifier(one.name, classes=self.classes)
            if classifier.sha256 != one.sha256:
                raise RunFailure(
                    f"model {one.name!r} is another one where it answers than where the run began",
                    "Give every machine the same files, or name a commit.",
                )
            models.append(classifier.placed(self.device))

        def answer(chunk: Chunk) -> Doing[int, list[Predictions | CounterfoilError]]:
            count = len(chunk.encoded)
            asked = [
                ModelInPass(
                    classifier,
                    one.class_map,
                    Predictions.empty(count, one.ranked, one.class_map.num_classes if one.logits else None),
                    done=min(max(one.done - chunk.start, 0), count),
                )
                for classifier, one in zip(models, self.asked, strict=True)
            ]
            before = 0
            batches = predict(
                chunk.encoded,
                chunk.labels,
                asked,
                device=self.device,
                batch_size=self.batch_size,
                decode=lambda encoded: readable_image(encoded, photograph=self.photographs),
            )
            with contextlib.closing(batches):
                for done in batches:
                    yield done - before
                    before = done
            return [one.failure or one.answers for one in asked]

        yield answer


def predict_on_engine(
    images: LabelledImages, models: Sequence[ModelInPass], spread: Spread, batch_size: int
) -> Generator[int | Lost]:
    """`prediction.inference.predict` by an engine's workers: fills in what each model has not answered yet.

    Yields what is lost on the way, and how many images are done, of which the models have answered all that come before
    their `done`. A model that cannot compute keeps its `failure`, and its answers up to there.
    """
    first = min(model.done for model in models) // batch_size * batch_size
    asked = tuple(
        _Asked(
            model.classifier.name,
            model.class_map,
            model.classifier.sha256,
            model.answers.answers.shape[1],
            model.answers.logits is not None,
            model.done,
        )
        for model in models
    )
    work: Work[Chunk, list[Predictions | CounterfoilError]] = _Answering(
        asked, spread.classes, spread.device, batch_size, images.photographs
    )
    chunks = Chunks(images, _BATCHES * batch_size, first)
    ends: dict[int, int] = {}  # of stretches that are done: where they begin, and end
    through = done = first
    with contextlib.closing(spread.engine.run(work, chunks)) as events:
        for event in events:
            if isinstance(event, Lost):
                yield event
            elif isinstance(event, Advanced):
                done += event.count
            elif isinstance(event, Finished):
                chunk: Chunk = event.item
                _take(models, chunk, event.result)
                chunks.release(chunk)
                ends[chunk.start] = chunk.stop
                while through in ends:
                    through = ends.pop(through)
                for model in models:
                    if model.failure is None:
                        model.done = max(model.done, through)
            yield min(done, len(images))


def _take(models: Sequence[ModelInPass], chunk: Chunk, results: Sequence[Predictions | CounterfoilError]) -> None:
    for model, result in zip(models, results, strict=True):
        if isinstance(result, CounterfoilError):
            model.failure = model.failure or result
            continue
        start = max(model.done, chunk.start)  # rows that were known before stay as they are, to the bit
        into = model.answers.columns()
        for name, values in result.columns().items():
            into[name][start : chunk.stop] = values[start - chunk.start :]

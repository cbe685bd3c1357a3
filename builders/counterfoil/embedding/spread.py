"""Features of many images by the workers of an engine: each loads the embedder and takes stretches of whole batches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding.embedders import Embedder
from counterfoil.embedding.rows import embedded_batches
from counterfoil.engines import Doing, Engine, Finished, Lost
from counterfoil.errors import RunFailure
from counterfoil.sources import LabelledImages
from counterfoil.sources.image_chunks import Chunk, Chunks
from counterfoil.store.decoding import readable_image

# Batches of a stretch, as for predictions.
_BATCHES = 8


@dataclass(frozen=True, slots=True)
class _Embedding:
    """What a worker does with a stretch (an `engines.Work`): its features, float32 (n, width)."""

    embedder: Callable[[str], Embedder]
    key: str
    device: str
    batch_size: int
    photographs: bool

    def on(self, device: str) -> _Embedding:
        return replace(self, device=device)

    @property
    def imports(self) -> Sequence[str]:
        return (__name__, "open_clip")

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Chunk], Doing[int, NDArray[np.float32]]]]:
        """Load the embedder. RunFailure where it is another here than where the run was begun."""
        embedder = self.embedder(self.device)
        if embedder.key != self.key:
            raise RunFailure(
                f"{embedder.name} is another one, or of other versions, where it embeds than where the run began",
                "Give every machine the same files and libraries.",
            )

        def features(chunk: Chunk) -> Doing[int, NDArray[np.float32]]:
            rows = []
            for part in embedded_batches(
                chunk.encoded,
                embedder,
                self.batch_size,
                self.device,
                lambda encoded: readable_image(encoded, photograph=self.photographs),
            ):
                rows.append(part)
                yield len(part)
            return np.concatenate(rows)

        yield features


def embedded_on_engine(
    images: LabelledImages, embedder: Embedder, engine: Engine, device: str, batch_size: int, done: int
) -> Iterator[NDArray[np.float32] | Lost]:
    """Features of the rows from `done` on, a whole batch after another, in order; and what is lost on the way."""
    assert embedder.on is not None
    work = _Embedding(embedder.on, embedder.key, device, batch_size, images.photographs)
    chunks = Chunks(images, _BATCHES * batch_size, done)
    waiting: dict[int, NDArray[np.float32]] = {}
    through = done
    with contextlib.closing(engine.run(work, chunks)) as events:
        for event in events:
            if isinstance(event, Lost):
                yield event
            if not isinstance(event, Finished):
                continue
            waiting[event.item.start] = event.result
            chunks.release(event.item)
            while through in waiting:
                rows = waiting.pop(through)
                for start in range(0, len(rows), batch_size):
                    yield rows[start : start + batch_size]
                through += len(rows)

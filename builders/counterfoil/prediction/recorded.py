"""Take over answers that were computed elsewhere: judged like any other, and refused where they leave images out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.classifiers.classifier import Recorded
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.inference import answer_columns
from counterfoil.prediction.predictions import Predictions, ranked_of
from counterfoil.sources import LabelledImages

_MOST_SHOWN = 5


def take_over(images: LabelledImages, name: str, recorded: Recorded, class_map: ClassMap) -> Predictions:
    """Every image's answer among the recorded ones of the classifier called `name`. Raises as `each_once`."""
    answers = Predictions.empty(len(images), ranked_of(class_map))
    wanted = answers.columns()
    for at, scores in each_once(images, name, recorded, class_map.num_classes):
        for column, values in answer_columns(scores, images.labels[at], class_map, answers.answers.shape[1]).items():
            if column in wanted:
                wanted[column][at] = values
        answers.readable[at] = True
    return answers


def each_once(images: LabelledImages, name: str, recorded: Recorded, outputs: int) -> Recorded:
    """The recorded scores as they come, of every image once.

    An image that no model could decode needs none. UserError for images without an answer, with how many they are and
    the first keys, and for one with two.
    """
    answered = np.zeros(len(images), dtype=bool)
    for at, scores in recorded:
        if scores.shape[1] != outputs:
            raise RunFailure(f"model {name!r}: its file changed while it was read")
        twice = _repeated(at, answered)
        if twice is not None:
            [told] = images.told([images.keys[twice]])
            raise UserError(f"model {name!r} has more than one answer to {told}", "Keep one of them.")
        answered[at] = True
        yield at, scores
    missing = [images.keys[place] for place in np.flatnonzero(~answered)]
    if missing:
        _refuse_missing(name, images, missing)


def _repeated(at: NDArray[np.int64], known: NDArray[np.bool_]) -> int | None:
    """A position that is known already, or that stands twice among these."""
    if known[at].any():
        return int(at[known[at]][0])
    places, times = np.unique(at, return_counts=True)
    return int(places[times > 1][0]) if (times > 1).any() else None


def _refuse_missing(name: str, images: LabelledImages, missing: Sequence[str]) -> None:
    unseen = [key for key, image in images.images(frozenset(missing)) if images.decoded(image) is not None]
    if unseen:
        more = f" and {len(unseen) - _MOST_SHOWN:,} more" if len(unseen) > _MOST_SHOWN else ""
        raise UserError(
            f"model {name!r} has no answer to {len(unseen):,} of {len(images):,} images: "
            f"{', '.join(images.told(unseen[:_MOST_SHOWN]))}{more}",
            "A file of predictions cannot score images that it has not seen: score them, and add their rows.",
        )

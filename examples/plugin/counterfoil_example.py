"""An example of a plugin: a corruption, a measure and `mean-colour:./means.json`, a classifier."""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch

from counterfoil.errors import UserError
from counterfoil.plugins import EVERYWHERE, Classifier, ClassifierFacts, Corruption, Measure


def draw_dead_pixels(rng, picture, share):
    return (rng.random(picture.shape[:2]),)


def dead_pixels(picture, share, drawn):
    return np.where(drawn[..., None] < share, 0.0, picture)


DEAD_PIXELS = Corruption(
    kind="camera",
    says="Sets some pixels to black, as a sensor with dead cells does.",
    large=(0.01, 0.02, 0.05, 0.1, 0.2),
    apply=dead_pixels,
    draw=draw_dead_pixels,
)


def confident_errors(images, weights):
    wrong = ~images.correct & (images.confidence >= 0.9)
    return weights @ wrong / weights.sum(axis=1)


CONFIDENT_ERRORS = Measure(
    rows=None,
    title="Confident errors",
    unit="percent",
    reading="The share of images that the model gets wrong with a confidence of 90 % or more.",
    shown=EVERYWHERE,
    lower_is_better=True,
    resampled=confident_errors,
)


class MeanColour(Classifier):
    """Scores images by how near their mean colour is to that of each class, which `module` holds."""

    def transform(self):
        return lambda image: torch.tensor(np.asarray(image.convert("RGB")).mean((0, 1)) / 255)

    def logits(self, batch, device):
        return -10 * torch.cdist(batch.float(), self.module)


def describe(name, classes):
    labels = tuple(_read(name))
    return ClassifierFacts(name, name, "mean colour", len(labels), labels)


def load(name, device, classes):
    colours = _read(name)
    return MeanColour(
        name=name,
        architecture="mean colour",
        num_classes=len(colours),
        label_names=tuple(colours),
        sha256=hashlib.sha256(json.dumps(colours).encode()).hexdigest(),
        input_key="mean colour",
        module=torch.tensor(list(colours.values())),
    )


def _read(name):
    path = Path(name.removeprefix("mean-colour:"))
    try:
        colours = json.loads(path.read_text())
        return {str(label): [float(level) for level in colour] for label, colour in colours.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f'{path}: {error}, expected {{"cat": [0.5, 0.4, 0.3]}}') from error

"""Floor 4: features of labelled images, by CLIP or a classifier, cached by content and resumed where a run stopped."""

from counterfoil.embedding.embedders import Embedder, classifier_embedder, clip_embedder
from counterfoil.embedding.features import embed

__all__ = ["Embedder", "classifier_embedder", "clip_embedder", "embed"]

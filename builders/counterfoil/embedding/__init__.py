"""Floor 4: features of labelled images, by CLIP or a classifier, cached by content and resumed where a run stopped."""

from counterfoil.embedding.embedders import Embedder, clip_embedder
from counterfoil.embedding.features import embed

__all__ = ["Embedder", "clip_embedder", "embed"]

"""Floor 6: what captioners write about labelled images, and how likely they find given captions; cached by content."""

from counterfoil.captioning.captions import caption_images
from counterfoil.captioning.likelihoods import Likelihoods, likelihoods_of

__all__ = ["Likelihoods", "caption_images", "likelihoods_of"]

"""Floor 6: what captioners write about labelled images, and how likely they find given captions; cached by content."""

from counterfoil.captioning.captions import caption_steps
from counterfoil.captioning.likelihoods import Likelihoods, likelihood_steps

__all__ = ["Likelihoods", "caption_steps", "likelihood_steps"]

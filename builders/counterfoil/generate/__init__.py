"""Floor 4: rendering samples with a diffusion pipeline, and the class tokens it may use."""

from counterfoil.generate.encoding import encode_image
from counterfoil.generate.render import Renderer

__all__ = ["Renderer", "encode_image"]

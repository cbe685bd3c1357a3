"""Floor 4: rendering samples with a diffusion pipeline, and the class tokens it may use; rows of a pool, or edited."""

from counterfoil.generate.edited_rows import EditRenderer
from counterfoil.generate.encoding import encode_image, encoding_threads
from counterfoil.generate.pool_rows import PoolRows
from counterfoil.generate.render import Renderer

__all__ = ["EditRenderer", "PoolRows", "Renderer", "encode_image", "encoding_threads"]

"""Floor 6: rendering samples with a diffusion pipeline; rows of a pool instead, or edits of rows."""

from counterfoil.generate.edited_rows import EditRenderer
from counterfoil.generate.encoding import encode_image, encoding_threads
from counterfoil.generate.pool_rows import PoolRows
from counterfoil.generate.render import Renderer

__all__ = ["EditRenderer", "PoolRows", "Renderer", "encode_image", "encoding_threads"]

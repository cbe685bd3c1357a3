"""Floor 6: rendering samples with a diffusion pipeline; rows of a pool instead, corrupted rows, or edits of rows."""

from counterfoil.generate.edited_rows import EditRenderer
from counterfoil.generate.encoding import encode_image, encoding_threads
from counterfoil.generate.pool_rows import CorruptedRows, PoolRows
from counterfoil.generate.render import Renderer

__all__ = ["CorruptedRows", "EditRenderer", "PoolRows", "Renderer", "encode_image", "encoding_threads"]

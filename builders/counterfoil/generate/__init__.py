"""Rendering samples with a diffusion pipeline; rows of a pool instead, corrupted rows, or edits of rows."""

from counterfoil.generate.pictures import encode_image, encoding_threads
from counterfoil.generate.render import Renderer
from counterfoil.generate.rows import CorruptedRows, EditRenderer, PoolRows

__all__ = ["CorruptedRows", "EditRenderer", "PoolRows", "Renderer", "encode_image", "encoding_threads"]

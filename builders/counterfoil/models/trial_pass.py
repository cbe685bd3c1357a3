"""Run a model without numbers: how much memory one batch would take inside it, before any is taken."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def largest_tensor_bytes(module: Any, shape: tuple[int, ...]) -> int:
    """Bytes of the largest tensor that the module makes of a float32 input [n, C, H, W]; 0 where that cannot be told.

    torch's fake tensors have a shape and a device and no memory, so the operators chosen are those of the real pass.
    """
    with torch.inference_mode(), FakeTensorMode(allow_non_fake_inputs=True), _Largest() as seen:
        try:
            module(torch.empty(shape))
        except Exception:
            # An operator without a fake form, or a model that cannot take this input: the real pass will tell.
            return seen.most
    return seen.most


class _Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.most = max(self.most, tensor.numel() * tensor.element_size())
        return made

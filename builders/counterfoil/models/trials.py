"""Check a model's size and its largest tensor before the model takes memory, and the token ids that
it gets.

A configuration of 200 bytes may ask for a layer of 10**15 numbers. So the model is first built on
torch's meta device, which stores no numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensorMode
from torch.nn.modules import module as modules
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from counterfoil.errors import CounterfoilError
from counterfoil.models.loading_errors import error_line
from counterfoil.models.messages import failure, refusal

if TYPE_CHECKING:
    from torch import nn

# A model may have so many numbers in buffers and tables that no weights file contains: 256 MB as
# float32.
_SPARE = 1 << 26
# The largest model of timm 1.0.31 has some 4,000 modules. With this limit, a model that adds
# modules without end is stopped within seconds.
_MOST_MODULES = 50_000
# A model may build layers and then replace them, such as a head of 1000 classes by a head of ten.
# So the number of parameters that are built may exceed the bytes of the weights files by this
# factor.
_REBUILT = 4

# Initial weights are drawn in place. On the meta device that draws nothing, and takes most of the
# time of a build.
_DRAWN = {
    torch.ops.aten.normal_.default,
    torch.ops.aten.uniform_.default,
}


class _Overgrown(Exception):
    """The model became larger than its file."""


def refuse_overgrown(
    model: str, files: Sequence[Path], build: Callable[[], nn.Module]
) -> nn.Module:
    """Build a model without its weights, and return it.

    Raise UserError if `build()` fails, or makes more parameters than the model's weights files have
    bytes.
    """
    where = f"model {model!r}"
    try:
        held = sum(file.stat().st_size for file in files)
    except OSError as error:
        raise failure("unreadable-model.weights", where, error) from error
    names = ", ".join(sorted(file.name for file in files)[:3])
    try:
        try:
            with torch.device("meta"), _watched(held):
                built = build()
        except NotImplementedError:
            # timm before 1.0.30 computes the widths of some models with tensors, which fails on the
            # meta device. `_watched` checks a tensor's size before it is allocated, so a build on
            # the CPU cannot fill the memory.
            with _watched(held):
                built = build()
        numbers = sum(parameter.numel() for parameter in built.parameters())
    except _Overgrown as error:
        raise refusal("misfit-weights.larger", where, error, held, files=names) from error
    except CounterfoilError:
        raise
    except Exception as error:  # an odd configuration may raise anything
        raise refusal("invalid-config.built", where, error_line(error)) from error
    if numbers > held:
        asked = f"{numbers:,} parameters"
        raise refusal("misfit-weights.larger", where, asked, held, files=names)
    return built


@contextlib.contextmanager
def _watched(held: int) -> Iterator[None]:
    """Raise `_Overgrown` inside the block when a tensor is too large, or when parameters or modules
    are too many."""
    numbers = count = 0
    most = _REBUILT * held + _SPARE

    def on_tensor(size: int, _: int) -> None:
        if size > most:
            raise _Overgrown(f"a tensor of {size:,} numbers")

    def on_parameter(_: Any, name: str, parameter: Any) -> None:
        nonlocal numbers
        numbers += parameter.numel() if parameter is not None else 0
        if numbers > most:
            raise _Overgrown(f"more than {most:,} parameters")

    def on_module(_: Any, name: str, module: Any) -> None:
        nonlocal count
        count += 1
        if count > _MOST_MODULES:
            raise _Overgrown(f"more than {_MOST_MODULES:,} layers")

    hooks = [
        modules.register_module_parameter_registration_hook(on_parameter),
        modules.register_module_module_registration_hook(on_module),
    ]
    try:
        with _Tensors(on_tensor):
            yield
    finally:
        for hook in hooks:
            hook.remove()


class _Tensors(TorchDispatchMode):
    """Call `check` with the size of each new tensor and its bytes for each number.

    If an operator gets the size as an argument, `check` is also called before the tensor is made,
    with 0 bytes.
    """

    def __init__(self, check: Callable[[int, int], None]) -> None:
        super().__init__()
        self.check = check

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.name == "size" and isinstance(value, list | tuple):
                self.check(math.prod(abs(int(side)) for side in value), 0)
        if func in _DRAWN and args[0].is_meta:
            return args[0]
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.check(tensor.numel(), tensor.element_size())
        return made


def largest_tensor_bytes(run: Callable[[torch.Tensor], Any], shape: tuple[int, ...]) -> int:
    """Return the bytes of the largest tensor that `run` makes from a float32 input [n, C, H, W], or
    0 if unknown."""
    # Errors are ignored: an operator may have no fake form. If a model cannot take this input, the
    # real pass raises the error again.
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    most = 0

    def measure(numbers: int, bytes_each: int) -> None:
        nonlocal most
        most = max(most, numbers * bytes_each)

    with torch.inference_mode(), fake, _Tensors(measure), contextlib.suppress(Exception):
        run(torch.empty(shape))
    return most


def refuse_unknown_ids(model: str, ids: torch.Tensor, rows: int) -> None:
    """Raise RunFailure if an id is not a row of the embedding table. `ids` are whole numbers in any
    shape."""
    if not ids.numel():
        return
    low, high = (int(bound) for bound in torch.aminmax(ids))
    if low < 0 or high >= rows:
        unknown = low if low < 0 else high
        where = f"model {model!r}"
        raise failure("misfit-weights.ids", where, unknown, rows)


@contextlib.contextmanager
def ids_in_bounds(model: str, *modules: Any) -> Iterator[None]:
    """Let every embedding table in the modules refuse unknown ids inside the block, by
    `refuse_unknown_ids`."""

    def check(table: torch.nn.Embedding, arguments: tuple[Any, ...]) -> None:
        if arguments and isinstance(arguments[0], torch.Tensor):
            refuse_unknown_ids(model, arguments[0], table.num_embeddings)

    tables = {
        part
        for module in modules
        for part in module.modules()
        if isinstance(part, torch.nn.Embedding)
    }
    hooks = [table.register_forward_pre_hook(check) for table in tables]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

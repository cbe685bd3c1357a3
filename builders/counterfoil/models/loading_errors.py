"""What goes wrong while something is fetched, read or computed, in words: no such repository, a full disk, a lost GPU.

Libraries wrap what they meet, so the cause is looked for behind the error. Who loads does it within `loading`, or asks
`known_cause` first: what is known must never come as an error of the program.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from counterfoil.errors import CounterfoilError, RunFailure, UserError

_LONGEST = 300


def one_line(error: BaseException) -> str:
    """The text of an error without its line breaks, shortened, and its kind."""
    words = " ".join(str(error).split())
    kind = type(error).__name__
    return f"{words[:_LONGEST]} ({kind})" if words else kind


_DEEPEST = 12
_OF_THE_MACHINE = {
    errno.ENOSPC: "Make room on the disk, then run the same command again.",
    errno.EDQUOT: "Make room within the disk quota, then run the same command again.",
    errno.EACCES: "Give yourself permission for that path, or choose another.",
    errno.EPERM: "Give yourself permission for that path, or choose another.",
    errno.EROFS: "That file system is read-only: choose another path.",
}
# How torch words it where it has no error of its own: on a CPU, and as CUDA and its libraries say it.
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "cannot allocate memory",
    "cuda out of memory",
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)
_CONNECT = "Connect once to fetch it, or name what is here: lab:… or a folder."


def while_loading(name: str, load: Callable[[], Any]) -> Any:
    """`load()` of the model called `name`, as within `loading`."""
    with loading(name):
        return load()


@contextlib.contextmanager
def loading(name: str) -> Iterator[None]:
    """While a model is fetched and read: what goes wrong (network, disk, memory, file format), said in one line."""
    import safetensors

    try:
        yield
    except CounterfoilError:
        raise
    except Exception as error:
        known = known_cause(f"model {name!r}", error)
        if known is not None:
            raise known from error
        if isinstance(error, safetensors.SafetensorError | EOFError):
            raise RunFailure(f"model {name!r}: its weights file is damaged: {error}") from error
        # Weights and configurations that do not belong together end in whatever a library meets first.
        raise RunFailure(f"model {name!r} could not be loaded: {one_line(error)}") from error


@contextlib.contextmanager
def computing(
    who: str,
    doing: str,
    device: str,
    hint: str = "Check its configuration, or name another model.",
    less_memory: str | None = None,
) -> Iterator[None]:
    """While a loaded model, called `who`, works on a device: RunFailure for whatever it cannot do.

    hint, less_memory: what to do about a model that cannot, and about one that finds too little memory.
    """
    import torch

    try:
        yield
    except CounterfoilError:
        raise
    except torch.OutOfMemoryError as error:
        raise RunFailure(f"out of memory on {device}: {who} cannot {doing}", less_memory) from error
    except Exception as error:
        # A tokenizer, a configuration, a template and weights that do not belong together meet here first.
        raise RunFailure(f"{who} cannot {doing}: {one_line(error)}", hint) from error


def reading_errors() -> tuple[type[Exception], ...]:
    """Return what reading an input dataset raises where it is not at hand: errors in words, of disks, networks, files.

    Anything else is an error of the program or of the machine, and no reason to go on without.
    """
    import httpx2
    import pyarrow
    from huggingface_hub import errors as hub

    of_the_hub = (hub.HfHubHTTPError, hub.HFValidationError, hub.OfflineModeIsEnabled)
    return (CounterfoilError, OSError, httpx2.HTTPError, pyarrow.ArrowException, *of_the_hub)


def skipped_reason(what: str, error: Exception) -> CounterfoilError:
    """Return why something is skipped that can be done without: its cause where that is known, else its own words.

    Raise what no run can go on after: too little memory.
    """
    if isinstance(error, MemoryError):
        raise error
    return known_cause(what, error) or RunFailure(f"{what} cannot be read: {one_line(error)}")


def known_cause(what: str, error: BaseException) -> CounterfoilError | None:
    """What an error of a library means for people, by the first cause behind it that is known; None for any other.

    `what` is what was being fetched or read: `model 'user/name'`.
    """
    return next((known for each in causes(error) if (known := meaning(what, each)) is not None), None)


def meaning(what: str, error: BaseException) -> CounterfoilError | None:
    """Return `known_cause`, by the error alone, whatever is behind it."""
    import httpx2
    from huggingface_hub import errors as hub

    match error:
        case CounterfoilError():
            return error
        case hub.HFValidationError():
            return UserError(f"{what}: {one_line(error)}")
        case hub.GatedRepoError():
            return UserError(
                f"{what} is gated: the Hub gives it only to people with access",
                "Ask for access on its page, and log in: `hf auth login`.",
            )
        case hub.RepositoryNotFoundError() | hub.RevisionNotFoundError():
            return UserError(
                f"{what} is not on the Hub, or is private", "Check the name and revision, or run `hf auth login`."
            )
        case hub.LocalEntryNotFoundError() | hub.OfflineModeIsEnabled():
            return RunFailure(f"{what} is not in the local cache and the Hub cannot be reached", _CONNECT)
        case hub.HfHubHTTPError():
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status in (401, 403):
                return UserError(
                    f"{what}: the Hub denies this login access ({status})",
                    "Run `hf auth login`, or ask its owner for access.",
                )
            answer = "gave an invalid answer" if status is None else f"answered {status}"
            return RunFailure(f"{what} could not be fetched: the Hub {answer}", "Run the same command again later.")
        case httpx2.TransportError() | ConnectionError() | TimeoutError():
            return RunFailure(f"{what} is not in the local cache and the Hub cannot be reached", _CONNECT)
        case OSError() if error.errno in _OF_THE_MACHINE:
            place = f"{error.filename}: " if error.filename else ""
            return RunFailure(f"{what}: {place}{error.strerror}", _OF_THE_MACHINE[error.errno])
        case MemoryError():
            return _out_of_memory(what)
        case RuntimeError() if is_of_memory(error):
            return _out_of_memory(what)
    return None


def _out_of_memory(what: str) -> RunFailure:
    return RunFailure(f"{what}: out of memory", "End other programs there, or choose something smaller.")


def is_of_memory(error: RuntimeError) -> bool:
    """Whether torch says by this that there is too little memory, of the machine or of a GPU."""
    torch = sys.modules.get("torch")  # what was not loaded has raised nothing
    of_a_gpu = torch is not None and isinstance(error, torch.OutOfMemoryError)
    return of_a_gpu or any(words in str(error).lower() for words in _NO_MEMORY)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from, or while."""

    def behind() -> Iterator[BaseException]:
        at: BaseException | None = error
        while at is not None:
            yield at
            at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)

    return itertools.islice(behind(), _DEEPEST)


# torch wraps what CUDA and its libraries answer in a RuntimeError whose kind does not say what is lost. After most of
# them a process cannot use the device again: https://docs.nvidia.com/cuda/cuda-runtime-api, “cudaError_t”.
_FAILED = (
    "cuda error",
    "cuda driver error",
    "cublas_status_",
    "cudnn_status_",
    "cusolver_status_",
    "found no nvidia driver",
    "no cuda gpus are available",
    "cuda-capable device",
    "invalid device ordinal",
    "torch not compiled with cuda enabled",
)


def memory_error(error: BaseException) -> str | None:
    """What is said of too little memory, of the machine or of a GPU, by the error or what is behind it; None if not."""
    for each in causes(error):
        if isinstance(each, MemoryError) or (isinstance(each, RuntimeError) and is_of_memory(each)):
            return one_line(each)
    return None


def device_error(error: BaseException) -> str | None:
    """What CUDA says of a device that failed or is not there, by the error or what is behind it; None if nothing."""
    for each in causes(error):
        # AssertionError: a torch without CUDA.
        if isinstance(each, RuntimeError | AssertionError) and any(words in str(each).lower() for words in _FAILED):
            return one_line(each)
    return None

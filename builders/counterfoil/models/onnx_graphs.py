"""Open and run graphs of ONNX Runtime that may come from anyone.

A graph may compute without end or take all memory while it loads, at its first image or at any
later one, and ONNX Runtime cannot be interrupted. So each graph runs in a process of its own
(`graph_process.py`), within limits of memory and time. Its process ends with Ctrl-C and with the
process that started it.

A message in either direction is 8 bytes with the length of a JSON object, the object, and the bytes
of the arrays that its key `arrays` lists as [name, dtype, shape]. The first request is followed by
the file instead. The answers are not trusted either: sizes are checked before they take memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.messages import failure, refusal
from counterfoil.regular_files import read_regular

# protobuf's limit for a message.
MOST_BYTES = (1 << 31) - 1
FLOAT_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16}

# Settings: how long one image may take, and how much memory a graph may take beside its weights and
# its images.
SECONDS = "COUNTERFOIL_GRAPH_SECONDS"
MEMORY = "COUNTERFOIL_GRAPH_GIB"
_SECONDS = 60
_GIB = 1
# Loading and the first batch of a graph of a fixed batch size take at most so many times the
# seconds of an image.
_MOST_OF_FIRST = 10
_MOST_SECONDS = 1 << 30
# The process ends itself this long after its parent should have ended it.
_GRACE = 10
# Measured: loading takes 3.1 times the file (ViT-B), and images 57 times their bytes as float32
# (EfficientNet-B0).
_OF_FILE = 4
_OF_IMAGES = 128
# Images of one call: 400 of 224 pixels a side, or one of 4,096.
_MOST_INPUT_BYTES = 1 << 28
_MOST_OUTPUT_BYTES = 1 << 28
_MOST_JSON_BYTES = 1 << 20
_MOST_SIDES = 16
_HEAD = 8
_SCRIPT = Path(__file__).with_name("graph_process.py")
# Variables that Python, ONNX Runtime and GPUs need. Others may contain secrets.
_ENVIRONMENT = (
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "HOME",
    "TMPDIR",
    "SYSTEMROOT",
    "APPDATA",
)
_FAMILIES = ("CUDA_", "NVIDIA_", "OMP_", "OPENBLAS_", "MKL_", "ORT_")


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """An input or output of a graph. type: such as "tensor(float)". shape: numbers, and texts or
    None where free."""

    name: str
    type: str
    shape: list[Any]


class Graph:
    """A graph in its own process.

    metadata: texts that the exporter stored in the graph, such as Ultralytics' `names`. They are
    not trusted.
    """

    def __init__(self, model: str, content: bytes, device: str) -> None:
        import torch

        self._where = f"model {model!r}"
        self._seconds, self._memory = _limits()
        self._memory += _OF_FILE * len(content)
        self._called = False
        self._asking = threading.Lock()
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _ENVIRONMENT or name.startswith(_FAMILIES)
        }
        # In a session of its own, Ctrl-C reaches this process alone, which then ends the other.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept,
            start_new_session=True,
        )
        self.close = weakref.finalize(self, _end, self._process, os.getpid())
        provider = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
        opening = {
            "bytes": len(content),
            "provider": provider,
            "threads": torch.get_num_threads(),
        }
        answer, _ = self._ask(
            "be loaded", opening, [content], self._seconds * _MOST_OF_FIRST, self._memory
        )
        self.inputs = [GraphEntry(*entry) for entry in answer["inputs"]]
        self.outputs = [GraphEntry(*entry) for entry in answer["outputs"]]
        self.metadata = {str(name): str(text) for name, text in answer["metadata"].items()}

    def run(self, names: Sequence[str], given: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the outputs of these names for inputs by name, whose first dimension is images.

        RunFailure if the graph fails or exceeds a limit.
        """
        arrays = [np.ascontiguousarray(array) for array in given.values()]
        size = sum(array.nbytes for array in arrays)
        images = max(len(array) for array in arrays)
        seconds = self._seconds * (images if self._called else min(images, _MOST_OF_FIRST))
        self._called = True
        request = {
            "outputs": [*names],
            "arrays": [
                (name, array.dtype.str, array.shape)
                for name, array in zip(given, arrays, strict=True)
            ],
            "most_bytes": _MOST_OUTPUT_BYTES,
        }
        contents = [array.reshape(-1).view(np.uint8).data for array in arrays]
        doing = f"answer {images:,} images" if images > 1 else "answer an image"
        with self._asking:
            return self._ask(doing, request, contents, seconds, self._memory + _OF_IMAGES * size)[1]

    def _ask(
        self,
        doing: str,
        request: dict[str, Any],
        contents: Sequence[Any],
        seconds: float,
        memory: int,
    ) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """Send a request and return the answer. The graph's process ends after any failure and any
        interruption."""
        seconds = min(seconds, _MOST_SECONDS)
        request |= {"seconds": math.ceil(seconds) + _GRACE, "memory": memory}
        late = threading.Event()
        # The clock's thread must not keep the graph alive.
        process = self._process

        def end_late() -> None:
            late.set()
            process.kill()

        clock = threading.Timer(seconds, end_late)
        clock.daemon = True
        clock.start()
        try:
            _send(self._process.stdin, request, contents)
            answer, arrays = _received(self._process.stdout)
        except BaseException as error:
            self.close()
            if late.is_set():
                raise failure(
                    "failed-model.late", self._where, seconds, doing=doing, more=self._seconds * 4
                ) from None
            if not isinstance(error, OSError | EOFError | ValueError):
                raise
            ended = self._process.returncode
            raise failure("failed-model.ended", self._where, ended, doing=doing) from error
        finally:
            clock.cancel()
        if "problem" in answer:
            self.close()
            raise self._failure(doing, answer, memory)
        return answer, arrays

    def _failure(
        self, doing: str, answer: Mapping[str, Any], memory: int
    ) -> RunFailure | UserError:
        problem = str(answer["problem"])
        if answer.get("missing"):
            return refusal("missing-package.onnx", self._where, problem)
        if answer.get("memory"):
            return failure(
                "out-of-memory.graph",
                self._where,
                problem,
                memory / (1 << 30),
                doing=doing,
                more=4 * _limits()[1] >> 30,
            )
        if "ExecutionProvider" in problem and doing == "be loaded":
            return refusal("unusable-device.provider", self._where, problem)
        return failure("failed-model.graph", self._where, problem, doing=doing)


def open_graph(name: str, file: Path, device: str) -> tuple[Graph, str]:
    """Start a graph's process. Return the graph, and a hash of the file and the version of ONNX
    Runtime."""
    try:
        content = read_regular(file, MOST_BYTES)
    except OSError as error:
        who = f"model {name!r}: {file}"
        raise refusal("unreadable-model.file", who, error) from error
    try:
        graph = Graph(name, content, device)
    except RunFailure as error:
        if "External data" not in str(error):
            raise
        where = f"model {name!r}"
        raise failure("unreadable-model.external", where, file=file.name) from error
    digest = hashlib.sha256(content)
    digest.update(f"onnxruntime {_version()}".encode())
    return graph, digest.hexdigest()


def refuse_vast_input(name: str, batch: int | None, sides: Sequence[int]) -> None:
    """Raise UserError if one call of the graph takes too many pixels. batch: its fixed number of
    images, or None."""
    images = 1 if batch is None else batch
    size = math.prod([images, *sides]) * np.dtype(np.float32).itemsize
    if images < 0 or size > _MOST_INPUT_BYTES:
        where = f"model {name!r}"
        raise refusal(
            "unfit-model.vast", where, size, _MOST_INPUT_BYTES, images=images, sides=list(sides)
        )


def _version() -> str:
    for name in ("onnxruntime", "onnxruntime-gpu"):
        with contextlib.suppress(PackageNotFoundError):
            return version(name)
    return ""


def _limits() -> tuple[float, int]:
    """Return the seconds of an image, and the bytes of a graph beside its weights and images.
    UserError if odd."""
    numbers = []
    for setting, usual in ((SECONDS, _SECONDS), (MEMORY, _GIB)):
        text = os.environ.get(setting) or str(usual)
        if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
            raise refusal("unusable-device.setting", setting, text)
        numbers.append(int(text))
    return numbers[0], numbers[1] << 30


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:  # a fork, which does not own the process
        return
    process.kill()
    for stream in (process.stdin, process.stdout):
        # Closing a stream writes its buffer, and the other end is closed.
        with contextlib.suppress(OSError, AttributeError):
            stream.close()  # pyrefly: ignore[missing-attribute]
    process.wait()


def _send(stream: Any, request: Mapping[str, Any], contents: Sequence[Any]) -> None:
    text = json.dumps(request).encode()
    stream.write(len(text).to_bytes(_HEAD, "little") + text)
    for content in contents:
        stream.write(content)
    stream.flush()


def _received(stream: Any) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Read an answer. Raise EOFError if it is cut off, ValueError if it has another form."""
    length = int.from_bytes(_exactly(stream, _HEAD), "little")
    if length > _MOST_JSON_BYTES:
        raise ValueError(f"its answer begins with {length:,} bytes")
    answer = json.loads(_exactly(stream, length))
    left = _MOST_OUTPUT_BYTES
    arrays = []
    for _, kind, shape in answer.get("arrays", ()):
        type = np.dtype(kind)
        if type.kind not in "biuf" or len(shape) > _MOST_SIDES or min(shape, default=0) < 0:
            raise ValueError("its answer is no tensor of numbers")
        size = math.prod(shape) * type.itemsize
        if size > left:
            raise ValueError(f"its answer has {size:,} bytes")
        left -= size
        arrays.append(np.frombuffer(_exactly(stream, size), type).reshape(shape))
    return answer, arrays


def _exactly(stream: Any, size: int) -> bytearray:
    content = bytearray(size)
    if stream.readinto(content) != size:
        raise EOFError("its answer is cut off")
    return content

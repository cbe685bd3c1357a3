"""A graph that computes without end or takes all memory ends within its limits, and with the
process that loads it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from counterfoil.errors import RunFailure, UserError
from counterfoil.models import onnx_graphs
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.onnx_graphs import Graph

SIDE = 8
NAMES = ["bowl", "mug"]


def save_graph(folder: Path, nodes: Sequence[Any], tensors: dict[str, Any], **more: Any) -> str:
    """Save a classifier of the input `images` and the output `scores`. more: batch, functions,
    domains."""
    batch = more.get("batch", "n")
    graph = helper.make_graph(
        nodes,
        "hostile",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()],
    )
    domains = [
        helper.make_opsetid(domain, version)
        for domain, version in {"": 17, **more.get("domains", {})}.items()
    ]
    model = helper.make_model(
        graph, opset_imports=domains, ir_version=8, functions=more.get("functions", [])
    )
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    form = {
        "input_size": [3, SIDE, SIDE],
        "crop_pct": 1.0,
        "interpolation": "bilinear",
        "mean": [0.5] * 3,
    }
    document: dict[str, Any] = {"architecture": "mine", "num_classes": 2, "label_names": NAMES}
    document["pretrained_cfg"] = {**form, "std": [0.5] * 3}
    (folder / "config.json").write_text(json.dumps(document))
    return f"onnx:{folder}"


# Two scores an image: the means of its first two channels.
MEANS = [
    helper.make_node("ReduceMean", ["images"], ["means"], axes=[2, 3], keepdims=0),
    helper.make_node("Slice", ["means", "zero", "two", "one"], ["pair"]),
]
NUMBERS = {"zero": np.array([0]), "two": np.array([2]), "one": np.array([1])}


def harmless(folder: Path, batch: int | str = "n") -> str:
    return save_graph(
        folder, [*MEANS, helper.make_node("Identity", ["pair"], ["scores"])], NUMBERS, batch=batch
    )


def amount(most: int, only_bright: bool) -> list[Any]:
    """Return nodes that compute the number `amount` from the images. only_bright: 0 unless an image
    is very bright."""
    nodes = [
        helper.make_node("ReduceMax", ["images"], ["largest"], keepdims=0),
        helper.make_node("Greater", ["largest", "bright"], ["is_bright"]),
        helper.make_node("Where", ["is_bright", "most", "none"], ["amount"]),
    ]
    return (
        nodes if only_bright else [*nodes[:1], helper.make_node("Identity", ["most"], ["amount"])]
    )


def amount_numbers(most: int) -> dict[str, Any]:
    return {**NUMBERS, "bright": np.float32(50), "most": np.int64(most), "none": np.int64(0)}


def looping(folder: Path, turns: int = 1 << 62, only_bright: bool = False) -> str:
    """Save a graph that adds to its scores so many times."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes"]),
            helper.make_node("Add", ["sum", "pair"], ["more"]),
        ],
        "turn",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("more", TensorProto.FLOAT, None),
        ],
    )
    loop = helper.make_node("Loop", ["amount", "true", "pair"], ["scores"], body=body)
    numbers = {**amount_numbers(turns), "true": np.bool_(True)}
    return save_graph(folder, [*MEANS, *amount(turns, only_bright), loop], numbers)


def filling(folder: Path, size: int = 1 << 33, only_bright: bool = False) -> str:
    """Save a graph that adds the mean of so many zeros to its scores."""
    nodes = [
        helper.make_node("Add", ["amount", "one"], ["size"]),
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("ReduceMean", ["zeros"], ["nothing"], keepdims=0),
        helper.make_node("Add", ["pair", "nothing"], ["scores"]),
    ]
    return save_graph(folder, [*MEANS, *amount(size, only_bright), *nodes], amount_numbers(size))


def folded(folder: Path) -> str:
    """Save a graph of zeros that ONNX Runtime may compute while it loads."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("ReduceMean", ["zeros"], ["nothing"], keepdims=0),
        helper.make_node("Add", ["pair", "nothing"], ["scores"]),
    ]
    return save_graph(folder, [*MEANS, *nodes], {**NUMBERS, "size": np.array([1 << 33])})


def doubling(folder: Path, levels: int = 40) -> str:
    """Save a graph of functions, each of which calls the one before it twice."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", "f0", ["x"], ["y"], [helper.make_node("Identity", ["x"], ["y"])], opset
        )
    ]
    for level in range(1, levels):
        calls = [
            helper.make_node(f"f{level - 1}", ["x"], ["between"], domain="own"),
            helper.make_node(f"f{level - 1}", ["between"], ["y"], domain="own"),
        ]
        functions.append(helper.make_function("own", f"f{level}", ["x"], ["y"], calls, opset))
    last = helper.make_node(f"f{levels - 1}", ["pair"], ["scores"], domain="own")
    return save_graph(folder, [*MEANS, last], NUMBERS, functions=functions, domains={"own": 1})


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a graph little memory and time."""
    monkeypatch.setattr(onnx_graphs, "_limits", lambda: (0.2, 1 << 28))


ENDLESS: list[tuple[Callable[[Path], str], str]] = [
    (looping, r"could not answer 2 images within 0.4 seconds[^$]*COUNTERFOIL_GRAPH_SECONDS="),
    (filling, r"could not answer 2 images within 0.3 GiB of memory[^$]*COUNTERFOIL_GRAPH_GIB="),
    (folded, r"could not (be loaded|answer 2 images) within 0.3 GiB"),
    (doubling, r"could not be loaded"),
]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(("save", "says"), ENDLESS, ids=[save.__name__ for save, _ in ENDLESS])
def test_a_graph_without_end_is_refused_as_it_loads(
    tmp_path: Path, save: Callable[[Path], str], says: str
) -> None:
    with pytest.raises(RunFailure, match=says):
        load_classifier(save(tmp_path / "graph"))


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    ("save", "says"), [(looping, "within 0.2 seconds"), (filling, "within 0.3 GiB")]
)
def test_so_is_one_that_waits_for_a_certain_image(tmp_path: Path, save: Any, says: str) -> None:
    classifier = load_classifier(save(tmp_path / "graph", only_bright=True))
    dark = torch.zeros(1, 3, SIDE, SIDE)
    assert classifier.logits(dark, "cpu").tolist() == [[0, 0]]
    with pytest.raises(RunFailure, match=f"could not answer an image {says}"):
        classifier.logits(dark + 100, "cpu")


@pytest.mark.parametrize("batch", [3_000_000, 1 << 40])
def test_a_vast_batch_is_refused_before_an_image_is_made(tmp_path: Path, batch: int) -> None:
    with pytest.raises(
        UserError, match=rf"takes {batch:,} images of \[3, 8, 8\] at once, .* at most 268,435,456"
    ):
        load_classifier(harmless(tmp_path / "graph", batch))


def test_an_answer_of_too_many_bytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_graphs, "_MOST_OUTPUT_BYTES", 15)
    with pytest.raises(RunFailure, match="its outputs have 16 bytes, expected at most 15"):
        load_classifier(harmless(tmp_path / "graph"))


def test_a_process_that_dies_is_told(tmp_path: Path) -> None:
    classifier: Any = load_classifier(harmless(tmp_path / "graph"))
    os.kill(classifier.session._process.pid, signal.SIGSEGV)
    with pytest.raises(RunFailure, match="its process ended with -11"):
        classifier.logits(torch.zeros(1, 3, SIDE, SIDE), "cpu")


def test_a_released_graph_has_no_process(tmp_path: Path) -> None:
    classifier: Any = load_classifier(harmless(tmp_path / "graph"))
    process = classifier.session._process
    assert process.poll() is None
    classifier = classifier.released()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("value", ["0", "-1", "1e3", "9" * 400, "½"])
def test_a_limit_is_a_whole_number(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(onnx_graphs.SECONDS, value)
    with pytest.raises(UserError, match="COUNTERFOIL_GRAPH_SECONDS: found"):
        Graph("mine", b"", "cpu")


ANSWERS = {
    "another dtype": ({"arrays": [["", "|O", [1]]]}, 8),
    "a negative side": ({"arrays": [["", "<f4", [-1, -4]]]}, 16),
    "many sides": ({"arrays": [["", "<f4", [1] * 40]]}, 4),
    "a vast array": ({"arrays": [["", "<f4", [1 << 40]]]}, 4),
    "several vast arrays": ({"arrays": [["", "<f4", [1 << 25]]] * 3}, 1 << 28),
    "a short array": ({"arrays": [["", "<f4", [4]]]}, 4),
    "a long head": ({"problem": "x" * (1 << 20)}, 0),
}


@pytest.mark.parametrize(("answer", "size"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_of_another_form_takes_no_memory(answer: Any, size: int) -> None:
    class Stream:
        """Give the bytes of an answer, and zeros after its head."""

        def __init__(self) -> None:
            text = json.dumps(answer).encode()
            self.head, self.left = len(text).to_bytes(8, "little") + text, size

        def readinto(self, into: bytearray) -> int:
            assert len(into) <= 1 << 28
            taken, self.head = self.head[: len(into)], self.head[len(into) :]
            count = len(taken) or min(self.left, len(into))
            self.left -= 0 if taken else count
            return (
                count if not taken else (into.__setitem__(slice(len(taken)), taken) or len(taken))
            )

    with pytest.raises((ValueError, EOFError)):
        onnx_graphs._received(Stream())


# torch is large, and only counts threads here.
LOADS = """
import sys, types
sys.modules["torch"] = types.SimpleNamespace(get_num_threads=lambda: 1)
import numpy as np
from pathlib import Path
from counterfoil.models import onnx_graphs
send = onnx_graphs._send
def told(stream, request, contents):
    send(stream, request, contents)
    if "outputs" in request:
        print("running", flush=True)
onnx_graphs._send = told
graph = onnx_graphs.Graph("mine", Path(sys.argv[1]).read_bytes(), "cpu")
graph.run(["scores"], {"images": np.zeros((1, 3, 8, 8), np.float32)})
"""


def _children(parent: int) -> list[int]:
    text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(child) for child in text.split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists children by /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_its_process_ends_with_the_one_that_loads_it(tmp_path: Path, how: signal.Signals) -> None:
    looping(tmp_path / "graph")
    with subprocess.Popen(
        [sys.executable, "-c", LOADS, str(tmp_path / "graph" / "model.onnx")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as loading:
        assert loading.stdout is not None
        assert loading.stdout.readline() == "running\n"
        (child,) = _children(loading.pid)
        loading.send_signal(how)
        loading.communicate()
    while Path(f"/proc/{child}").exists():
        time.sleep(0.01)

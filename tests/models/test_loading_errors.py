"""What goes wrong in a library while something is fetched or read comes in words, with what to do: at every edge.

The edges run in a process of their own, with a client of the Hub that is set to work offline, or whose Hub is a port of
this machine where nobody listens.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import httpx2
import pytest
import torch
from huggingface_hub import errors as hub

import warm
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.loading_errors import known_cause, skipped_reason, told_in_words

MODES = {
    "offline": {"HF_HUB_OFFLINE": "1"},
    "nobody there": {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"},
}
EDGES = """
import json, types
import huggingface_hub.utils._http as client

client.time = types.SimpleNamespace(sleep=lambda seconds: None)  # between tries that all fail

import warm
from counterfoil.errors import CounterfoilError
from counterfoil.evaluation.opening import open_subject
from counterfoil.hub import locate_dataset
from counterfoil.models.adapters import load_adapter, pin_adapter
from counterfoil.models.captioners import describe_captioner, load_captioner
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.diffusion import load_pipeline, load_tokenizers, pipeline_family, text_widths
from counterfoil.models.mended import mended_of
from counterfoil.models.names import pin_model
from counterfoil.recipe import load_recipe
from counterfoil.sources import labelled_source
from counterfoil.sources.input_datasets import load_source, source_configs, source_splits
from counterfoil.sources.pins import pin_source
from counterfoil.tokens.class_tokens import token_folder

classes = load_recipe("wardrobe-mini").classes
photos = load_recipe("wardrobe-mini", ["source={dataset: someone/photos}"]).source
EDGES = {
    "pin of a generator": lambda: pin_model("someone/model"),
    "pin of an adapter": lambda: pin_adapter("someone/adapter/models/a.safetensors"),
    "pin of a clip": lambda: pin_clip("hf-hub:someone/clip", None),
    "generator": lambda: load_pipeline("someone/model", dtype="float32"),
    "generator of a commit": lambda: load_pipeline("someone/model", revision="a" * 40, dtype="float32"),
    "its family": lambda: pipeline_family("someone/model"),
    "its tokenizers": lambda: load_tokenizers("someone/model"),
    "its widths": lambda: text_widths("someone/model"),
    "adapter": lambda: load_adapter(None, "someone/adapter/models/a.safetensors"),
    "clip": lambda: load_clip("hf-hub:someone/clip"),
    "clip of a commit": lambda: load_clip("hf-hub:someone/clip", revision="a" * 40),
    "clip by a tag": lambda: load_clip("ViT-B-32", "laion2b_s34b_b79k"),
    "clip by a tag, of a commit": lambda: load_clip("ViT-B-32", "laion2b_s34b_b79k", revision="a" * 40),
    "classifier of timm": lambda: load_classifier("resnet10t.c3_in1k", classes=classes),
    "classifier of the hub": lambda: load_classifier("hf-hub:someone/model", classes=classes),
    "its facts": lambda: describe_classifier("hf-hub:someone/model", classes),
    "its note of mending": lambda: mended_of("hf-hub:someone/model"),
    "classifier of transformers": lambda: load_classifier("transformers:someone/model", classes=classes),
    "facts of transformers": lambda: describe_classifier("transformers:someone/model", classes),
    "classifier of open_clip": lambda: load_classifier("open_clip:ViT-B-32/laion2b_s34b_b79k", classes=classes),
    "captioner": lambda: load_captioner("someone/captioner"),
    "facts of a captioner": lambda: describe_captioner("someone/captioner"),
    "input dataset": lambda: load_source(photos, "train"),
    "its splits": lambda: source_splits(photos, pin_source(photos)),
    "its configs": lambda: source_configs(photos, pin_source(photos)),
    "labelled images": lambda: labelled_source("someone/photos:train", classes),
    "tokens": lambda: token_folder("someone/tokens", None),
    "tokens of a commit": lambda: token_folder("someone/tokens", "a" * 40),
    "dataset": lambda: locate_dataset("someone/dataset"),
    "dataset to evaluate": lambda: open_subject("someone/dataset", None, None, None, {}),
}
told = {}
for name, edge in EDGES.items():
    try:
        edge()
        told[name] = ["nothing", 0, "", ""]
    except CounterfoilError as error:
        told[name] = [type(error).__name__, error.exit_code, " ".join(error.problems), error.hint or ""]
    except Exception as error:
        told[name] = [type(error).__name__, -1, str(error), ""]
print(json.dumps(told))
"""


@pytest.fixture(scope="module", params=["offline", pytest.param("nobody there", marks=pytest.mark.whole)])
def edges(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list]:
    """Edge → kind of the error, its exit code, its words and its hint."""
    here = tmp_path_factory.mktemp("home")
    environment = os.environ | {"HF_HOME": str(here), "XDG_CACHE_HOME": str(here), "OMP_NUM_THREADS": "1"}
    environment.pop("HF_HUB_CACHE", None)
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | MODES[request.param]
    run = warm.run([sys.executable, "-c", EDGES], environment, cwd=here)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_without_the_hub_every_edge_says_which_name_that_it_cannot_be_reached_and_what_to_do(
    edges: dict[str, list],
) -> None:
    wrong = {
        name: told
        for name, told in edges.items()
        if told[:2] != ["RunFailure", 1]
        or "cannot be reached" not in told[2]
        or not ("someone/" in told[2] or "ViT-B-32" in told[2] or "resnet10t" in told[2])
        or not told[3]
        or len(told[2]) > 300
    }
    assert not wrong


def _answer(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "http://127.0.0.1:9"))


ERRORS: dict[str, tuple[BaseException, type[CounterfoilError], str]] = {
    "no network": (hub.OfflineModeIsEnabled("off"), RunFailure, "the Hub cannot be reached"),
    "not in the cache": (hub.LocalEntryNotFoundError("gone"), RunFailure, "the Hub cannot be reached"),
    "no answer": (httpx2.ConnectError("[Errno 111] Connection refused"), RunFailure, "the Hub cannot be reached"),
    "connection": (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), RunFailure, "the Hub cannot be reached"),
    "too slow": (TimeoutError("slow"), RunFailure, "the Hub cannot be reached"),
    "gated": (hub.GatedRepoError("no", response=_answer(403)), UserError, "only to those who asked for it"),
    "not there": (hub.RepositoryNotFoundError("no", response=_answer(404)), UserError, "is not on the Hub"),
    "no such commit": (hub.RevisionNotFoundError("no", response=_answer(404)), UserError, "is not on the Hub"),
    "login": (hub.HfHubHTTPError("no", response=_answer(401)), UserError, "the Hub refuses it to this login (401)"),
    "overloaded": (hub.HfHubHTTPError("no", response=_answer(503)), RunFailure, "the Hub answered 503"),
    "disk": (OSError(errno.ENOSPC, "No space left on device", "/out/x"), RunFailure, "/out/x: No space left"),
    "permission": (PermissionError(errno.EACCES, "Permission denied", "/x"), RunFailure, "/x: Permission denied"),
    "memory": (MemoryError(), RunFailure, "out of memory"),
    "memory of a GPU": (torch.OutOfMemoryError("CUDA out of memory"), RunFailure, "out of memory"),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("case", ERRORS)
def test_a_known_cause_is_told_also_behind_another_error(case: str, wrapped: bool) -> None:
    error, kind, said = ERRORS[case]

    def load() -> None:
        if not wrapped:
            raise error
        try:
            raise error
        except type(error) as cause:
            raise RuntimeError("it did not work") from cause

    with pytest.raises(kind) as told:
        told_in_words("someone/model", load)
    assert type(told.value) is kind
    assert "someone/model" in told.value.problems[0] and said in told.value.problems[0]
    assert told.value.hint


def test_a_tensor_that_does_not_fit_into_memory_is_told() -> None:
    with pytest.raises(RunFailure, match="out of memory"):
        told_in_words("someone/model", lambda: torch.empty(10**15))


def test_what_is_not_known_is_no_cause() -> None:
    assert known_cause("model", KeyError("x")) is None
    assert known_cause("model", OSError(errno.ENOENT, "No such file", "/x")) is None
    ours = UserError("ours")
    assert known_cause("model", ours) is ours


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"train.csv": b'a,b\n"1'}, "cannot be read"),
        ({"things.py": b"print(1)"}, "cannot be read"),
        ({}, "cannot be read"),
    ],
    ids=["damaged", "a script", "nothing"],
)
def test_a_folder_that_is_no_dataset_is_told_in_words(content: dict[str, bytes], said: str, tmp_path: Path) -> None:
    from counterfoil.recipe import load_recipe
    from counterfoil.sources.input_datasets import load_source

    place = tmp_path / "things"
    place.mkdir()
    for name, data in content.items():
        (place / name).write_bytes(data)
    source = load_recipe("wardrobe-mini", [f"source={{dataset: {place}}}"]).source
    with pytest.raises(CounterfoilError, match=said) as told:
        load_source(source, "train")
    assert told.value.hint and "\n" not in told.value.problems[0]


def test_what_is_skipped_has_a_reason_in_words() -> None:
    """Of any error of a library; only a machine without memory goes on no further."""
    stale = skipped_reason("the input dataset", OSError(errno.ESTALE, "Stale file handle", "/photos/1.png"))
    assert stale.problems[0].startswith("the input dataset cannot be read: ") and "/photos/1.png" in stale.problems[0]
    assert "\n" not in skipped_reason("x", ValueError("one\ntwo")).problems[0]
    assert skipped_reason("x", ConnectionError()).problems[0].startswith("x is not in the local cache")
    known = UserError("said before")
    assert skipped_reason("x", known) is known
    with pytest.raises(MemoryError):
        skipped_reason("x", MemoryError())

"""Models by name: what a name means and pins, and what goes wrong while one loads, in words."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch
from huggingface_hub import errors as hub
from numpy.typing import NDArray
from safetensors.torch import load_file

import warm
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.open_source import open_source
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.lab.planted import PlantedWorld, named_world
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.clip import load_clip
from counterfoil.models.diffusion import load_pipeline, native_size
from counterfoil.models.loading_errors import known_cause, skipped_reason, while_loading
from counterfoil.models.names import (
    LAB_WEIGHTS,
    folder_sha256,
    lab_models,
    local_folder,
    pin_model,
    resolve_name,
)
from counterfoil.models.stack import stack_of
from support.refusals import problems_of


def test_lab_names_are_folders_of_weights() -> None:
    assert {"sd", "clip"} <= set(lab_models())
    for name in lab_models():
        assert resolve_name(f"lab:{name}") == f"local-dir:{LAB_WEIGHTS / name}"
        assert local_folder(f"lab:{name}") == LAB_WEIGHTS / name


@pytest.mark.parametrize("name", ["resnet50", "local-dir:/x", "./here", "user/model", "ViT-B-32"])
def test_other_names_pass_through(name: str) -> None:
    assert resolve_name(name) == name


def test_an_unknown_lab_model_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no 'clib'; did you mean 'clip'\?") as refused:
        resolve_name("lab:clib")
    assert "lab:sd" in (refused.value.hint or "")
    with pytest.raises(UserError):
        resolve_name("lab:../weights/sd")


def test_a_planted_worlds_classifier_is_named_within_its_folder() -> None:
    planted = [name for name in lab_models() if "/" in name]
    assert {"planted/null-0", "planted/rare-0", "planted/noisy-0"} <= set(planted)
    assert all(name.startswith("planted/") for name in planted)
    assert local_folder("lab:planted/rare-0") == LAB_WEIGHTS / "planted" / "rare-0"
    assert pin_model("lab:planted/rare-0").name == "lab:planted/rare-0"


@pytest.mark.parametrize(
    "name",
    ["planted", "planted/../clip", "planted//rare-0", "planted/rare-0/..", "./clip", "/planted/rare-0", "sd/unet"],
)  # fmt: skip
def test_no_other_name_under_the_lab_becomes_a_path(name: str) -> None:
    for look in (resolve_name, local_folder, pin_model):
        with pytest.raises(UserError, match="the lab has no"):
            look(f"lab:{name}")


def test_a_world_without_weights_here_says_where_they_come_from() -> None:
    with pytest.raises(
        UserError, match=r"no 'planted/rare-7'; did you mean 'planted/rare-0'\?"
    ) as refused:
        resolve_name("lab:planted/rare-7")
    assert "scripts/train_planted.py" in (refused.value.hint or "")
    assert "local-dir:" in (refused.value.hint or "")


@pytest.mark.parametrize("name", ["local-dir:/nowhere/at/all", "./nowhere"])
def test_a_missing_folder_is_reported(name: str) -> None:
    with pytest.raises(UserError, match="nowhere"):
        local_folder(name)


def test_a_pin_follows_every_byte_of_the_weights_and_no_measurement(tmp_path: Path) -> None:
    folder = tmp_path / "clip"
    shutil.copytree(LAB_WEIGHTS / "clip", folder)
    before = folder_sha256(folder)
    assert before == folder_sha256(LAB_WEIGHTS / "clip")
    for name in ("metrics.json", "training.json", "README.md"):
        (folder / name).write_text("other")
    assert folder_sha256(folder) == before
    weights = folder / "open_clip_model.safetensors"
    content = bytearray(weights.read_bytes())
    seen = {before}
    for index in (0, len(content) // 2, len(content) - 1):
        content[index] ^= 1
        weights.write_bytes(content)
        seen.add(folder_sha256(folder))
        content[index] ^= 1
    assert len(seen) == 4
    weights.write_bytes(content)
    assert folder_sha256(folder) == before
    weights.rename(folder / "other.safetensors")
    assert folder_sha256(folder) not in seen


def test_the_same_files_elsewhere_are_the_same_model(tmp_path: Path) -> None:
    for parent in ("one", "two"):
        shutil.copytree(LAB_WEIGHTS / "clip", tmp_path / parent / "clip")
    pin, other = (pin_model(f"local-dir:{tmp_path / parent / 'clip'}") for parent in ("one", "two"))
    assert pin == other
    assert str(tmp_path) not in str(pin.document())
    assert pin.sha256 == pin_model("lab:clip").sha256


@pytest.fixture(scope="module")
def pipeline() -> Any:
    return load_pipeline("lab:sd", dtype="float32")


def _assert_same(loaded: dict[str, torch.Tensor], file: Path) -> None:
    stored = load_file(file)
    # Libraries differ in what they put before a name (`text_model.`), never in its end.
    short = {name.removeprefix("text_model."): tensor for name, tensor in loaded.items()}
    wanted = {name.removeprefix("text_model."): tensor for name, tensor in stored.items()}
    wanted = {name: tensor for name, tensor in wanted.items() if not name.endswith("position_ids")}
    assert wanted
    assert set(wanted) <= set(short)
    assert {name for name in short if not name.endswith("position_ids")} == set(wanted)
    for name, tensor in wanted.items():
        assert short[name].dtype == torch.float32 or not tensor.is_floating_point(), name
        assert torch.equal(short[name], tensor.to(short[name].dtype)), name


@pytest.mark.parametrize(
    ("part", "file"),
    [
        ("unet", "diffusion_pytorch_model.safetensors"),
        ("vae", "diffusion_pytorch_model.safetensors"),
        ("text_encoder", "model.safetensors"),
    ],
)
def test_the_generator_holds_the_numbers_of_its_files(pipeline: Any, part: str, file: str) -> None:
    module = getattr(pipeline, part)
    assert not module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())
    _assert_same(module.state_dict(), LAB_WEIGHTS / "sd" / part / file)


def test_the_generator_is_an_ordinary_pipeline_without_a_filter(pipeline: Any) -> None:
    assert type(pipeline).__name__ == "StableDiffusionPipeline"
    assert pipeline.safety_checker is None
    assert native_size(pipeline) == 64


def test_the_screen_holds_the_numbers_of_its_file() -> None:
    clip = load_clip("lab:clip")
    assert not clip.module.training
    stored = load_file(LAB_WEIGHTS / "clip" / "open_clip_model.safetensors")
    loaded = clip.module.state_dict()
    assert {name for name in loaded if loaded[name].is_floating_point()} == {
        name for name in stored if stored[name].is_floating_point()
    }
    for name, tensor in stored.items():
        assert torch.equal(loaded[name], tensor.to(loaded[name].dtype)), name
        assert loaded[name].dtype in (torch.float32, torch.int64), name


def test_a_scheduler_takes_the_place_of_the_models_own(pipeline: Any) -> None:
    other = load_pipeline("lab:sd", dtype="bfloat16", scheduler="EulerDiscrete")
    assert type(other.scheduler).__name__ == "EulerDiscreteScheduler"
    for key in ("prediction_type", "beta_schedule", "num_train_timesteps"):
        assert other.scheduler.config[key] == pipeline.scheduler.config[key]
    # Number types reach every part.
    assert {other.unet.dtype, other.vae.dtype, other.text_encoder.dtype} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("EulerDiscret", "EulerDiscrete"), ("ddim", "DDIM"), ("zzz", None)],
)
def test_an_unknown_scheduler_suggests_the_nearest(name: str, nearest: str | None) -> None:
    problems = problems_of(load_pipeline, "lab:sd", scheduler=name)
    assert f"no '{name}'" in problems[0]
    assert (f"did you mean '{nearest}'?" in problems[0]) == (nearest is not None)


def test_a_folder_of_another_kind_is_refused() -> None:
    with pytest.raises(UserError, match=r"no model_index\.json"):
        load_pipeline("lab:clip")
    with pytest.raises(UserError, match=r"no open_clip_config\.json"):
        load_clip("lab:sd")


@pytest.mark.parametrize(
    ("model", "file"),
    [("sd", "unet/diffusion_pytorch_model.safetensors"), ("clip", "open_clip_model.safetensors")],
)
def test_damaged_weights_are_a_failure_in_one_line(model: str, file: str, tmp_path: Path) -> None:
    folder = tmp_path / model
    shutil.copytree(LAB_WEIGHTS / model, folder)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    load = load_pipeline if model == "sd" else load_clip
    with pytest.raises(RunFailure) as failed:
        load(f"local-dir:{folder}")
    assert len(failed.value.problems) == 1
    assert "\n" not in failed.value.problems[0]


@pytest.mark.parametrize(
    ("name", "weights", "hint"),
    [("ViT-B-33", None, "ViT-B-32"), ("ViT-B-32", "laion3b", "laion2b_s34b_b79k")],
)
def test_an_unknown_open_clip_model_is_reported_with_what_there_is(
    name: str, weights: str | None, hint: str
) -> None:
    with pytest.raises(UserError, match=hint):
        load_clip(name, weights)


def test_the_stack_is_plain_data_without_clock_or_host() -> None:
    stack = stack_of("cpu", "auto", 4)
    assert stack == stack_of("cpu", "float32", 4)
    assert (stack["dtype"], stack["batch_size"], stack["threads"]) == ("float32", 4, 1)
    assert (
        stack["versions"]["torch"] == torch.__version__.split("+")[0] or stack["versions"]["torch"]
    )


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
from counterfoil.evaluation.dataset import open_subject
from counterfoil.data.hub import locate_dataset
from counterfoil.models.adapters import load_adapter, pin_adapter
from counterfoil.models.captioners import describe_captioner, load_captioner
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.diffusion import load_pipeline, load_tokenizers, pipeline_family, text_widths
from counterfoil.models.mended import mended_of
from counterfoil.models.names import pin_model
from counterfoil.recipe import load_recipe
from counterfoil.data.labelled_sources import labelled_source
from counterfoil.data.open_source import open_source
from counterfoil.generate.tokens.class_tokens import token_folder

classes = load_recipe("wardrobe-mini").classes
photos = load_recipe("wardrobe-mini", ["source={dataset: someone/photos}"]).source
EDGES = {
    "pin of a generator": lambda: pin_model("someone/model"),
    "pin of an adapter": lambda: pin_adapter("someone/adapter/models/a.safetensors", None),
    "pin of a clip": lambda: pin_clip("hf-hub:someone/clip", None),
    "generator": lambda: load_pipeline("someone/model", dtype="float32"),
    "generator of a commit": lambda: load_pipeline("someone/model", revision="a" * 40, dtype="float32"),
    "its family": lambda: pipeline_family("someone/model"),
    "its tokenizers": lambda: load_tokenizers("someone/model", None),
    "its widths": lambda: text_widths("someone/model", None),
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
    "input dataset": lambda: open_source(photos).split("train"),
    "its splits": lambda: open_source(photos).splits,
    "its configs": lambda: open_source(photos).configs,
    "labelled images": lambda: labelled_source("someone/photos:train", classes),
    "tokens": lambda: token_folder("someone/tokens", None),
    "tokens of a commit": lambda: token_folder("someone/tokens", "a" * 40),
    "dataset": lambda: locate_dataset("someone/dataset"),
    "dataset to evaluate": lambda: open_subject("someone/dataset", None, None, None, {}),
}
found = {}
for name, edge in EDGES.items():
    try:
        edge()
        found[name] = ["nothing", 0, "", ""]
    except CounterfoilError as error:
        found[name] = [type(error).__name__, error.exit_code, " ".join(error.problems), error.hint or ""]
    except Exception as error:
        found[name] = [type(error).__name__, -1, str(error), ""]
print(json.dumps(found))
"""


@pytest.fixture(
    scope="module", params=["offline", pytest.param("nobody there", marks=pytest.mark.whole)]
)
def edges(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list]:
    """Return the error of each edge: kind, exit code, message and hint."""
    home = tmp_path_factory.mktemp("home")
    environment = os.environ | {
        "HF_HOME": str(home),
        "XDG_CACHE_HOME": str(home),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("HF_HUB_CACHE", None)
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | MODES[
        request.param
    ]
    run = warm.run([sys.executable, "-c", EDGES], environment, cwd=home)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_without_the_hub_every_edge_says_which_name_that_it_cannot_be_reached_and_what_to_do(
    edges: dict[str, list],
) -> None:
    wrong = {
        name: message
        for name, message in edges.items()
        if message[:2] != ["RunFailure", 1]
        or "cannot be reached" not in message[2]
        or not ("someone/" in message[2] or "ViT-B-32" in message[2] or "resnet10t" in message[2])
        or not message[3]
        or len(message[2]) > 300
    }
    assert not wrong


def _answer(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "http://127.0.0.1:9"))


ERRORS: dict[str, tuple[BaseException, type[CounterfoilError], str]] = {
    "no network": (hub.OfflineModeIsEnabled("off"), RunFailure, "the Hub cannot be reached"),
    "not in the cache": (
        hub.LocalEntryNotFoundError("gone"),
        RunFailure,
        "the Hub cannot be reached",
    ),
    "no answer": (
        httpx2.ConnectError("[Errno 111] Connection refused"),
        RunFailure,
        "the Hub cannot be reached",
    ),
    "connection": (
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        RunFailure,
        "the Hub cannot be reached",
    ),
    "too slow": (TimeoutError("slow"), RunFailure, "the Hub cannot be reached"),
    "gated": (
        hub.GatedRepoError("no", response=_answer(403)),
        UserError,
        "only to people with access",
    ),
    "not there": (
        hub.RepositoryNotFoundError("no", response=_answer(404)),
        UserError,
        "is not on the Hub",
    ),
    "no such commit": (
        hub.RevisionNotFoundError("no", response=_answer(404)),
        UserError,
        "is not on the Hub",
    ),
    "login": (
        hub.HfHubHTTPError("no", response=_answer(401)),
        UserError,
        "the Hub denies this login access (401)",
    ),
    "overloaded": (
        hub.HfHubHTTPError("no", response=_answer(503)),
        RunFailure,
        "the Hub answered 503",
    ),
    "disk": (
        OSError(errno.ENOSPC, "No space left on device", "/out/x"),
        RunFailure,
        "/out/x: No space left",
    ),
    "permission": (
        PermissionError(errno.EACCES, "Permission denied", "/x"),
        RunFailure,
        "/x: Permission denied",
    ),
    "memory": (MemoryError(), RunFailure, "out of memory"),
    "address space": (
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RunFailure,
        "out of memory",
    ),
    "threads": (RuntimeError("can't start new thread"), RunFailure, "out of memory"),
    "memory of a GPU": (torch.OutOfMemoryError("CUDA out of memory"), RunFailure, "out of memory"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_a_known_cause_is_reported_also_behind_another_error(case: str) -> None:
    error, kind, message = ERRORS[case]
    behind = RuntimeError("it did not work")
    behind.__cause__ = error

    def load(raised: BaseException) -> None:
        raise raised

    for raised in (error, behind):
        with pytest.raises(kind) as caught:
            while_loading("someone/model", partial(load, raised))
        assert type(caught.value) is kind
        assert "someone/model" in caught.value.problems[0] and message in caught.value.problems[0]
        assert caught.value.hint


def test_a_tensor_that_does_not_fit_into_memory_is_reported() -> None:
    with pytest.raises(RunFailure, match="out of memory"):
        while_loading("someone/model", lambda: torch.empty(10**15))


def test_what_is_not_known_is_no_cause() -> None:
    assert known_cause("model", KeyError("x")) is None
    assert known_cause("model", OSError(errno.ENOENT, "No such file", "/x")) is None
    ours = UserError("ours")
    assert known_cause("model", ours) is ours


def test_what_is_skipped_has_a_reason_in_words() -> None:
    """Every error of a library becomes a reason, except a lack of memory, which is raised."""
    stale = skipped_reason(
        "the input dataset", OSError(errno.ESTALE, "Stale file handle", "/photos/1.png")
    )
    assert (
        stale.problems[0].startswith("the input dataset cannot be read: ")
        and "/photos/1.png" in stale.problems[0]
    )
    assert "\n" not in skipped_reason("x", ValueError("one\ntwo")).problems[0]
    assert (
        skipped_reason("x", ConnectionError())
        .problems[0]
        .startswith("x: is not in the local cache")
    )
    error = UserError("said before")
    assert skipped_reason("x", error) is error
    with pytest.raises(MemoryError):
        skipped_reason("x", MemoryError())


NAMES = [name for name in lab_models() if name.startswith("planted/")]
# Of the planted class alone where there is one: 60 of its rows, about 20 of them in the slice.
ROWS = 60
PARAMETERS = 160_000


def _world(name: str) -> PlantedWorld:
    world = named_world(name.removeprefix("planted/"))
    assert world is not None
    return world


@cache
def _right(name: str) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return masks of rows of `test`, as the package reads them: the classifier is right; the row
    is in the slice."""
    import torch

    world = _world(name)
    split = open_source(NamedDataset(f"lab:{name}")).split("test")
    mine = (
        np.arange(len(split.labels))
        if world.planted is None
        else world.true_classes("test") == world.planted
    )
    rows = (mine if world.planted is None else np.flatnonzero(mine))[:ROWS]
    model = load_classifier(f"lab:{name}")
    transform = model.transform()
    with torch.inference_mode():
        batch = torch.stack([transform(split.image(int(row))) for row in rows])
        answers = model.logits(batch, "cpu").argmax(1).numpy()
    inside = np.asarray([world.in_slice("test", int(row)) for row in rows])
    return answers == split.labels[rows], inside


@pytest.mark.parametrize("name", NAMES)
def test_it_is_small_and_names_its_worlds_classes(name: str) -> None:
    model = load_classifier(f"lab:{name}")
    assert model.label_names == _world(name).class_names
    assert model.param_count is not None
    assert model.param_count <= PARAMETERS
    assert (LAB_WEIGHTS / name / "model.safetensors").stat().st_size < 350_000
    training = json.loads((LAB_WEIGHTS / name / "training.json").read_text())
    assert training["world"] == _world(name).name
    assert training["command"].endswith(_world(name).name)


@pytest.mark.parametrize("name", [name for name in NAMES if _world(name).planted is not None])
def test_it_fails_more_in_the_slice_than_in_the_rest(name: str) -> None:
    right, inside = _right(name)
    measured = json.loads((LAB_WEIGHTS / name / "metrics.json").read_text())
    slice_accuracy = float(right[inside].mean())
    rest_accuracy = float(right[~inside].mean())
    assert rest_accuracy - slice_accuracy >= 0.2
    # On other rows: within four standard errors of the stored accuracy.
    for accuracy, stored, count in (
        (slice_accuracy, measured["slice_accuracy"], inside.sum()),
        (rest_accuracy, measured["rest_accuracy"], (~inside).sum()),
    ):
        assert abs(accuracy - stored) <= 4 * np.sqrt(max(stored * (1 - stored), 0.02) / count)
    assert measured["gap"] == pytest.approx(
        measured["rest_accuracy"] - measured["slice_accuracy"], abs=2e-4
    )


def test_where_nothing_is_planted_it_is_right_on_most() -> None:
    right, inside = _right("planted/null-0")
    assert not inside.any()
    assert right.mean() >= 0.6


def test_every_kind_with_a_slice_is_there() -> None:
    assert len(NAMES) >= 6
    assert {_world(name).kind for name in NAMES} == {"correlation", "rare", "noisy", "null"}
    # Only those that settings are chosen on: tables are printed of others.
    assert all(_world(name).seed <= 3 for name in NAMES)

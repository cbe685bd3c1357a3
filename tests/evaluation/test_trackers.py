"""Each tracker's run, read back with the tracker's own reader, in its mode without a network."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.errors import RunFailure
from counterfoil.evaluation import trackers
from counterfoil.evaluation.gate import GateLine, GateResult, Judged
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.trackers import TRACKERS, TrackedRun, check_trackers, tracked_run
from counterfoil.registry import Registry, uncallable
from support.refusals import problems_of


@pytest.fixture
def judged(evaluation: Evaluation) -> Evaluation:
    """Return an evaluation with a gate: one line fails, and an advisory line too."""
    line = GateLine("drop(swap) <= 1", "drop", "swap", 0.01)
    lines = (
        Judged(line, "m", "swap", "fail"),
        Judged(replace(line, advisory=True), "m", "swap", "fail"),
    )
    return replace(evaluation, gate=GateResult(evaluation.name, ("m",), lines))


def test_a_run_has_every_accuracy_and_drop_with_its_interval(judged: Evaluation) -> None:
    run = tracked_run(judged.results, judged.files, judged.gate, None)
    for score in judged.scores:
        model = next(facts.short_name for facts in judged.models if facts.name == score.model)
        key = f"{model}/{score.shift}"
        assert run.metrics[f"{key}/accuracy"] == score.accuracy
        drop = score.drop
        assert drop is not None
        shown = [run.metrics.get(f"{key}/drop{end}") for end in ("", "_low", "_high")]
        assert shown == [drop.value, drop.low, drop.high]
    assert (
        run.parameters["dataset_content"] == judged.results.content
        and run.parameters["gate"] == "fail"
    )
    assert [run.metrics[f"gate/{verdict}"] for verdict in ("pass", "fail", "undecided")] == [
        0,
        1,
        0,
    ]
    assert {"report.html", "results.json"} <= {file.name for file in run.files}
    folders = [
        model.name.partition(":")[2].rpartition("/")[0]
        for model in judged.models
        if "/" in model.name
    ]
    assert not [
        folder
        for folder in folders
        if any(folder in str(key) for key in (*run.metrics, *run.parameters))
    ]


def test_names_are_checked_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    problems = problems_of(check_trackers, ["wandbb", "mlflow", "trackio"])
    assert "no tracker 'wandbb'; did you mean 'wandb'?" in problems[0]
    assert [problem.path for problem in problems[1:]] == ["mlflow", "trackio"]


def test_one_tracker_that_fails_stops_no_other_and_tells_no_password(
    judged: Evaluation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(run: TrackedRun) -> None:
        print("on its way")
        raise ConnectionError("cannot reach https://me:secret@host.example/api")

    taken: list[TrackedRun] = []
    bundled = {"wandb": refuse, "mlflow": taken.append}
    monkeypatch.setattr(trackers, "TRACKERS", Registry("counterfoil.trackers", bundled, uncallable))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    with pytest.raises(RunFailure) as failed:
        judged.report_to("wandb", "mlflow")
    assert list(failed.value.problems) == [
        "wandb: did not take the run: cannot reach https://host.example/api [tracker]"
    ]
    assert len(taken) == 1 and "report.html" in (failed.value.hint or "")
    assert capsys.readouterr().out == ""


@pytest.fixture
def run(tmp_path: Path) -> TrackedRun:
    report = tmp_path / "report.html"
    report.write_text("<p>fog</p>")
    metrics = {
        "resnet50.a1_in1k/base/accuracy": 0.75,
        "resnet50.a1_in1k/fog_3/drop": -0.125,
        "gate/pass": 1.0,
    }
    return TrackedRun(
        "photos",
        {"dataset_content": "0f" * 32, "dataset_commit": "", "seed": 3},
        metrics,
        (report,),
    )


def test_wandb_writes_a_run_offline(
    run: TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "WANDB_SILENT": "true",
    }.items():
        monkeypatch.setenv(name, value)
    TRACKERS["wandb"](run)
    [written] = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    items = _wandb_records(written)
    # another process writes it
    while not any(record.WhichOneof("record_type") == "exit" for record in items):
        time.sleep(0.1)
        items = _wandb_records(written)
    summary = {
        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
        for record in items
        if record.WhichOneof("record_type") == "history"
        for item in record.history.item
    }
    assert {key: value for key, value in summary.items() if not key.startswith("_")} == run.metrics
    config = {
        item.key: json.loads(item.value_json)
        for record in items
        if record.WhichOneof("record_type") == "run"
        for item in record.run.config.update
    }
    assert {key: config[key] for key in run.parameters} == run.parameters
    [artifact] = [
        record.artifact for record in items if record.WhichOneof("record_type") == "artifact"
    ]
    assert "report.html" in {content.path for content in artifact.manifest.contents}


def _wandb_records(path: Path) -> list[Any]:
    """Read a file of wandb: seven bytes, then LevelDB's log format with records of Protocol
    Buffers."""
    wandb_internal_pb2 = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    content = path.read_bytes()
    offset = 7
    parts = b""
    records = []
    while offset < len(content):
        left = 32768 - offset % 32768
        if left < 7:  # too little for a header
            offset += left
            continue
        length, kind = struct.unpack("<HB", content[offset + 4 : offset + 7])
        parts += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # full, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            records.append(record)
            parts = b""
    return records


def test_mlflow_writes_a_run_to_its_database(
    run: TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'runs.db'}")
    monkeypatch.chdir(tmp_path)
    TRACKERS["mlflow"](run)
    TRACKERS["mlflow"](run)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("counterfoil")
    stored = client.search_runs([experiment.experiment_id])
    assert [entry.info.status for entry in stored] == ["FINISHED", "FINISHED"]
    assert stored[0].data.metrics == run.metrics
    assert stored[0].data.params == {key: str(value) for key, value in run.parameters.items()}
    assert [artifact.path for artifact in client.list_artifacts(stored[0].info.run_id)] == [
        "report.html"
    ]


def test_trackio_writes_a_run_below_the_cache_of_the_hub(run: TrackedRun) -> None:
    utils = pytest.importorskip("trackio.utils")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    TRACKERS["trackio"](run)
    [name] = storage.get_runs("counterfoil")
    [logged] = storage.get_logs("counterfoil", name)
    assert {key: logged[key] for key in run.metrics} == run.metrics
    config = storage.get_run_config("counterfoil", name)
    assert config is not None and {key: config[key] for key in run.parameters} == run.parameters
    contents = [
        path.read_bytes() for path in Path(utils.ARTIFACTS_DIR).rglob("*") if path.is_file()
    ]
    assert run.files[0].read_bytes() in contents


def test_tensorboard_writes_a_run_to_a_folder(
    run: TrackedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.chdir(tmp_path)
    TRACKERS["tensorboard"](run)
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-photos")
    stored = accumulators.EventAccumulator(str(folder)).Reload()
    assert {tag: stored.Scalars(tag)[0].value for tag in stored.Tags()["scalars"]} == run.metrics
    [text] = stored.Tensors("dataset_content/text_summary")
    assert str(run.parameters["dataset_content"]).encode() in text.tensor_proto.string_val[0]


def test_every_tracker_that_fits_beside_pillow_13_is_an_extra_of_the_package() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert TRACKERS.keys() - project["optional-dependencies"].keys() == {"trackio"}
    assert "pillow>=13" in project["dependencies"]

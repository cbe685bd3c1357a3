"""Runs over many models decode an image once for all, outlive a kill, and never score a finished
model again."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from counted_pictures import counted, decoded, register

import warm
from colour_world import CANDIDATES, build_colours, png_of, save_colour_model
from counterfoil.errors import RunFailure
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.results import Evaluation
from counterfoil.prediction import answer_cache, passes
from counterfoil.progress import Stage, listening
from driven import given_up
from results_examples import top1
from support.measured import measured
from tiny_builds import command

IMAGES = 3 * 3 * CANDIDATES


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """Build a dataset whose pictures count how often they are decoded."""
    register()
    dataset = build_colours(tmp_path / "counting", image=lambda sample: counted(png_of(sample)))
    decoded.clear()
    return dataset


def scored_in_two_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave room for one model's weights a pass."""
    monkeypatch.setattr(passes, "_free_for_a_pass", lambda device: 0.0)


def predictions_of(dataset: Path) -> dict[str, bytes]:
    folder = dataset / ".counterfoil" / "predictions"
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def evaluated(dataset: Path, models: list[str], **options: Any) -> tuple[Evaluation, int]:
    """Return the evaluation and the number of images that it decoded."""
    scored: list[int] = []

    def count(stage: Stage) -> None:
        # Thumbnails are decoded after scoring, so the count is read when measuring begins.
        if stage.name == "measuring" and stage.done == 1:
            scored.append(len(decoded))

    with listening(count):
        evaluation = measured(dataset, models, **options)
    assert len(scored) == 1
    return evaluation, scored[0]


def test_models_of_two_inputs_decode_each_image_once(
    counting: Path, models: dict[str, str], tmp_path: Path
) -> None:
    larger = f"local-dir:{save_colour_model(tmp_path / 'larger', size=48)}"
    # Two share an input; the third sees a larger one, made from the same decoded image.
    names = [*list(models.values())[:2], larger]
    assert evaluated(counting, names, batch_size=7)[1] == IMAGES
    decoded.clear()
    assert evaluated(counting, names, batch_size=7)[1] == 0


def test_models_that_do_not_fit_together_are_scored_in_passes(
    counting: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [models["sharp"], models["no_red"]]
    together = measured(counting, names)
    first = predictions_of(counting)
    for path in (counting / ".counterfoil" / "predictions").iterdir():
        path.unlink()
    scored_in_two_passes(monkeypatch)
    decoded.clear()
    apart, scored = evaluated(counting, names)
    assert scored == 2 * IMAGES
    assert apart.scores == together.scores
    assert predictions_of(counting) == first


# Runs an evaluation and kills itself, as `kill -9` does, at a given image of a given pass.
KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from counted_pictures import register
from counterfoil.evaluation import evaluate
from counterfoil.prediction import answer_cache, passes
from counterfoil.progress import listening
register()
answer_cache.PART_ROWS = 16
if {apart}:
    passes._free_for_a_pass = lambda device: 0.0
stages = []
def hear(stage):
    if stage.name not in stages:
        stages.append(stage.name)
    if len(stages) == {stage} and stage.done >= {image}:
        os.kill(os.getpid(), signal.SIGKILL)
with listening(hear):
    evaluate({dataset!r}, {models!r}, device="cpu", batch_size=8)
"""


def killed_run(
    dataset: Path, models: list[str], *, stage: int, image: int, apart: bool = False
) -> None:
    script = KILLED.format(
        tests=str(Path(__file__).parent),
        dataset=str(dataset),
        models=models,
        stage=stage,
        image=image,
        apart=apart,
    )
    _, environment = command()
    done = warm.run([sys.executable, "-c", script], environment)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_run_killed_after_its_first_model_does_not_score_it_again(
    counting: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [models["sharp"], models["no_red"]]
    killed_run(counting, names, stage=2, image=8, apart=True)
    [(name, entry)] = predictions_of(counting).items()
    assert "sharp" in name
    monkeypatch.setattr(answer_cache, "PART_ROWS", 16)
    # Only the second model needs images: all of them, because the kill came before its first part.
    assert evaluated(counting, names, batch_size=8)[1] == IMAGES
    assert predictions_of(counting)[name] == entry
    assert len(predictions_of(counting)) == 2


@pytest.mark.parametrize(
    "image", [*(pytest.param(n, marks=pytest.mark.whole) for n in (32, IMAGES)), 56]
)
def test_a_run_killed_within_a_pass_goes_on_where_it_stood_and_ends_the_same(
    counting: Path,
    models: dict[str, str],
    image: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [models["sharp"], models["no_red"]]
    killed_run(counting, names, stage=1, image=image)
    assert predictions_of(counting) == {}
    monkeypatch.setattr(answer_cache, "PART_ROWS", 16)
    resumed, scored = evaluated(counting, names, batch_size=8)
    # Parts hold 16 images, so both models resume after the last whole part before the kill.
    assert scored == IMAGES - image // 16 * 16
    assert not list((counting / ".counterfoil" / "predictions").glob("*.parts"))
    entries = predictions_of(counting)
    for path in (counting / ".counterfoil" / "predictions").iterdir():
        path.unlink()
    fresh = measured(counting, names, batch_size=8)
    assert predictions_of(counting) == entries
    assert fresh.results == resumed.results


def test_a_model_added_to_a_killed_run_starts_from_the_first_image(
    counting: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_run(counting, [models["sharp"]], stage=1, image=64)
    monkeypatch.setattr(answer_cache, "PART_ROWS", 16)
    # Another batch size than the killed run: parts are rows, not batches.
    result = measured(counting, [models["sharp"], models["no_blue"]], batch_size=25)
    assert [top1(result, index).value for index in range(2)] == [1.0, pytest.approx(2 / 3)]


def test_a_damaged_part_is_scored_again(
    counting: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_run(counting, [models["sharp"]], stage=1, image=64)
    folder = min((counting / ".counterfoil" / "predictions").glob("*.parts"))
    files = sorted(folder.iterdir())
    assert len(files) == 4
    files[1].write_bytes(files[1].read_bytes()[:100])
    monkeypatch.setattr(answer_cache, "PART_ROWS", 16)
    result, scored = evaluated(counting, [models["sharp"]], batch_size=8)
    assert (scored, top1(result).value) == (IMAGES - 16, 1.0)


def test_a_model_that_fails_ends_the_run_when_the_others_are_kept(
    counting: Path, models: dict[str, str], tmp_path: Path
) -> None:
    folder = save_colour_model(tmp_path / "cut")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    names = [models["sharp"], f"local-dir:{folder}", models["no_red"]]
    with pytest.raises(RunFailure, match="weights file is damaged") as caught:
        measured(counting, names)
    assert "other 2 are kept" in (caught.value.hint or "")
    decoded.clear()
    assert evaluated(counting, [names[0], names[2]])[1] == 0


def test_what_is_reported_goes_forward_stage_by_stage_and_ends_with_everything_done(
    counting: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored_in_two_passes(monkeypatch)
    names = [models["sharp"], models["no_red"]]
    shown: list[Stage] = []
    with listening(shown.append):
        evaluate(counting, names, device="cpu", batch_size=25, reference=False)
    assert [stage.name for stage in shown if stage.done == stage.total] == [
        *names,
        "measuring",
        "pictures of failures",
    ]
    stage_names = dict.fromkeys(stage.name for stage in shown)
    by_stage = {name: [stage for stage in shown if stage.name == name] for name in stage_names}
    # each stage comes once
    assert shown == [stage for stages in by_stage.values() for stage in stages]
    for name, stages in by_stage.items():
        done = [stage.done for stage in stages]
        assert done == sorted(set(done)) and done[0] > 0
        assert {stage.total for stage in stages} == {
            {"measuring": 2, "pictures of failures": 1}.get(name, IMAGES)
        }
    repeated: list[Stage] = []
    with listening(repeated.append):
        evaluate(counting, names, device="cpu", batch_size=25, reference=False)
    assert {stage.name for stage in repeated} == {"measuring", "pictures of failures"}


def test_an_evaluation_that_is_given_up_half_way_goes_on_with_what_it_had(
    counting: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [models["sharp"], models["no_red"]]
    monkeypatch.setattr(answer_cache, "PART_ROWS", 16)
    threads = set(threading.enumerate())
    with given_up(lambda stage: stage.done == 56):
        evaluate(counting, names, device="cpu", batch_size=8)
    assert not set(threading.enumerate()) - threads  # its decoders ended too
    decoded.clear()
    assert evaluated(counting, names, batch_size=8)[1] == IMAGES - 48

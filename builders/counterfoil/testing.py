"""Check what plugins promise. Each function raises AssertionError with the promise that is broken.

    from counterfoil.testing import check_corruption

    def test_dead_pixels():
        check_corruption("dead_pixels")

The same functions check our own corruptions, measures, classifiers, detectors, tasks, kinds of
generator, keep rules, exports and engines.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from counterfoil.corrupting.corrupt import SMALLEST_SIDE, constants_of, corrupt, random_arrays
from counterfoil.corrupting.corruption_kinds import plasma
from counterfoil.corrupting.corruptions import SEVERITIES
from counterfoil.engines.engine import Advanced, Delivered, Finished, Lost
from counterfoil.errors import UserError

if TYPE_CHECKING:
    from counterfoil.engines.engine import Doing, Engine, Event
    from counterfoil.generate.pictures import ImageRenderer
    from counterfoil.recipe import Recipe
    from counterfoil.recipe.keep.rule import KeepRule, Verdict
    from counterfoil.recipe.prompts import RecipeClass

_SIZES = ((SMALLEST_SIDE, SMALLEST_SIDE), (33, 32), (90, 101))
_LEVELS = range(1, SEVERITIES + 1)


def check_corruption(name: str, *, farther: bool = True) -> None:
    """Check that a corruption keeps the shape, and that arguments decide every byte, also without
    AVX and FMA.

    farther: whether a higher severity must change the picture more. Several published corruptions
    do not.
    """
    for size in _SIZES:
        picture = _photograph(*size)
        for severity in _LEVELS:
            where = f"{name} at severity {severity}, {size[0]} x {size[1]} pixels"
            images = []
            for seed in (0, 0, 1, 2, 2**53 - 1):
                image = corrupt(picture, name, severity, seed=seed)
                assert image.shape == picture.shape, f"{where}: the shape changes"
                images.append(image.tobytes())
            assert images[0] == images[1], f"{where}: the same seed gives other bytes"
            rng = np.random.default_rng(0)
            constants = constants_of(name, severity, *size)
            arrays = random_arrays(name, rng, picture / 255.0, constants)
            is_random = len(set(images)) > 1
            assert arrays or not is_random, f"{where}: it is random without `draw`"
    if farther:
        pictures = np.stack([_photograph(96, 96, seed) for seed in range(6)])
        far = []
        for level in _LEVELS:
            change = corrupt(pictures, name, level) - pictures.astype(float)
            far.append(float(np.abs(change).mean()))
        assert far == sorted(far), f"{name}: a higher severity changes less: {far}"
    digest = corrupted_digest(name)
    on_older = _digest_on_old_processor(name)
    assert digest == on_older, f"{name}: an older processor gives other bytes"


def corrupted_digest(name: str) -> str:
    """Hash pictures under all severities of a corruption."""
    digest = sha256()
    for size in _SIZES:
        for level in _LEVELS:
            corrupted = corrupt(_photograph(*size), name, level)
            digest.update(corrupted.tobytes())
    return digest.hexdigest()


def check_measure(name: str, images: int = 60) -> None:
    """Check that a measure's values are finite, one a resample, and count an image drawn twice as
    two images.

    Only measures with `resampled` are checked. images: the number of made-up answers.
    """
    from counterfoil.evaluation.tasks.classes.answers import AnsweredGroup
    from counterfoil.evaluation.tasks.classes.measures import MEASURES

    resampled = MEASURES[name].resampled
    assert resampled is not None, f"{name} has no `resampled`"
    rng = np.random.default_rng(0)
    correct = rng.random(images) < 0.7
    columns: list[Any] = [
        rng.integers(0, 5, images),
        correct,
        correct | (rng.random(images) < 0.2),
        rng.random(images),
    ]
    shares = np.full(images, 1 / images)
    times = rng.multinomial(images, shares, size=7)
    values = np.asarray(resampled(AnsweredGroup(*columns), times.astype(np.float64)))
    assert values.shape == (7,), f"{name}: 7 resamples give an array of shape {values.shape}"
    assert np.isfinite(values).all(), f"{name}: not all values are finite: {values}"
    for row, value in zip(times, values, strict=True):
        drawn = AnsweredGroup(*(np.repeat(column, row) for column in columns))
        alone = resampled(drawn, np.ones((1, images)))
        assert np.allclose(alone, value, atol=1e-9), (
            f"{name}: weights give {value}, the drawn images {alone[0]}"
        )


def check_classifier(
    name: str,
    classes: Sequence[RecipeClass] = (),
    images: Sequence[Image.Image] = (),
) -> None:
    """Check that a model is what its description says, and that an image's scores do not depend on
    its batch.

    images: photographs that the model takes; made-up ones of 64 x 64 pixels by default.
    """
    import torch

    from counterfoil.models.classifiers import describe_classifier, load_classifier

    described = describe_classifier(name, classes)
    classifier = load_classifier(name, "cpu", classes)
    for fact in ("architecture", "num_classes", "label_names"):
        before = getattr(described, fact)
        after = getattr(classifier, fact)
        assert before == after, f"{name}: {fact} is described as {before!r} and loaded as {after!r}"
    transform = classifier.transform()
    tensors = []
    for picture in _pictures(images):
        tensor = transform(picture)
        again = transform(picture)
        assert torch.equal(tensor, again), f"{name}: its transform is random"
        tensors.append(tensor)
    together = classifier.logits(torch.stack(tensors), "cpu")
    shape = tuple(together.shape)
    expected = (len(tensors), classifier.num_classes)
    assert shape == expected, f"{name}: scores are {shape}, expected {expected}"
    assert torch.isfinite(together).all(), f"{name}: not all scores are finite"
    alone = torch.cat([classifier.logits(tensor[None], "cpu") for tensor in tensors])
    alike = torch.allclose(together, alone, rtol=1e-4, atol=1e-4)
    assert alike, f"{name}: an image's scores depend on its batch"


def check_keep_rule(rule: KeepRule, cell: Sequence[Verdict]) -> None:
    """Check that a rule gives a reason of its own or None for each candidate, the same twice, and
    leaves them alone."""
    reasons = rule.dropped(cell)
    assert len(reasons) == len(cell), f"{len(reasons)} reasons for {len(cell)} candidates"
    unknown = {reason for reason in reasons if reason is not None} - set(rule.reasons)
    assert not unknown, f"{sorted(unknown)} are not among `reasons`, {list(rule.reasons)}"
    assert rule.dropped(cell) == reasons, "the same candidates are decided differently"
    if not rule.whole_cell:
        alone: list[Any] = [rule.dropped([verdict])[0] for verdict in cell]
        assert alone == reasons, (
            "a candidate's decision depends on others, which `whole_cell` must say"
        )


def check_detector(name: str, images: Sequence[Image.Image] = ()) -> None:
    """Check that a detector's answers have the form of `Detector`, and that an image's do not
    depend on its batch.

    images: photographs that the model takes; made-up ones of 64 x 64 pixels by default.
    """
    import torch

    from counterfoil.models.detectors import load_detector

    detector = load_detector(name)
    names = len(detector.label_names)
    pictures = _pictures(images)
    together = detector(pictures)
    answers = len(together)
    assert answers == len(pictures), f"{name}: {answers} answers for {len(pictures)} images"
    for answer, picture in zip(together, pictures, strict=True):
        boxes = answer["boxes"]
        scores = answer["scores"]
        labels = answer["labels"]
        shapes = tuple(boxes.shape), tuple(scores.shape), tuple(labels.shape)
        count = len(scores)
        fit = shapes == ((count, 4), (count,), (count,))
        assert fit, f"{name}: boxes, scores, labels: {shapes}"
        assert torch.isfinite(boxes).all(), f"{name}: not all boxes are finite"
        assert (boxes[:, 2:] >= boxes[:, :2]).all(), f"{name}: a box ends before it begins"
        in_range = (scores > 0) & (scores <= 1)
        assert in_range.all(), f"{name}: a score is not above 0 and at most 1"
        named = (labels >= 0) & (labels < names)
        assert named.all(), f"{name}: a label is not a place in the {names} names"
        [alone] = load_detector(name)([picture])
        for part in ("boxes", "scores", "labels"):
            same_shape = alone[part].shape == answer[part].shape
            alike = same_shape and torch.allclose(alone[part], answer[part], 1e-4, 1e-3)
            assert alike, f"{name}: the {part} of an image depend on its batch"


def check_generator(recipe: Recipe, images: int = 6) -> None:
    """Check that a recipe's images are pictures that nothing but their sample decides: no batch,
    order or time.

    Rows have the columns that the kind says. images: how many are made, each of another cell.
    """
    from counterfoil.data.pool import pin_pool
    from counterfoil.generate.kinds import Materials, maker_of
    from counterfoil.plan.layout import make_plan

    kind = recipe.kind.name
    maker = maker_of(recipe)
    maker.check(recipe, "cpu")
    pool = pin_pool(recipe, None) if recipe.kind.takes_rows else None
    table = None
    if pool is not None and recipe.kind.table is not None:
        table = maker.choose_rows(recipe, pool, maker.pins(recipe), "cpu").table
    plan = make_plan(recipe, edited=table)
    count = min(images, recipe.generator.batch_size)
    cells = islice(plan.cells(), count)
    samples = [next(plan.samples(cell)) for cell in cells]

    def renderer() -> ImageRenderer:
        return maker.renderer(Materials(recipe, pool=pool, table=table))

    together = renderer().render(samples)
    backwards = renderer().render(samples[::-1])[::-1]
    for sample, picture, again in zip(samples, together, backwards, strict=True):
        assert picture is not None, f"{kind}: no image of {sample.key}"
        form = f"{picture.dtype} {picture.shape}"
        fits = picture.dtype == np.uint8 and picture.ndim == 3 and picture.shape[2] == 3
        assert fits, f"{kind}: {sample.key} is {form}, expected uint8 (height, width, 3)"
        [alone] = renderer().render([sample])
        for other in (again, alone):
            same = np.array_equal(picture, np.asarray(other))
            assert same, f"{kind}: the bytes of {sample.key} are others in another batch"
    columns = recipe.generator.columns().keys()
    for sample, values in zip(samples, renderer().values(samples), strict=True):
        given = values.keys()
        wrong = (columns - given) | (given - recipe.added_columns.keys())
        names = ", ".join(sorted(wrong))
        assert not wrong, f"{kind}: {sample.key} has other columns than the kind says: {names}"


def check_task(name: str) -> None:
    """Check that a task has the parts that it names, and that these agree on its name, table and
    models."""
    from counterfoil.evaluation.task import Task
    from counterfoil.recipe.tasks import TASKS
    from counterfoil.recipe.tasks.task import WholeImages
    from counterfoil.registry import part_named

    source = TASKS[name]
    assert source.name == name, f"{name}: its `name` is {source.name!r}"
    for word in ("reader", "row_fault"):
        part = getattr(source, word)
        assert part is None or callable(part_named(part)), f"{name}: `{word}` is no function"
    task = part_named(source.measured_by)
    assert isinstance(task, type) and issubclass(task, Task), f"{name}: {task!r} is no `Task`"
    left = sorted(getattr(task, "__abstractmethods__", ()))
    assert not left, f"{name}: {task.__name__} is without {', '.join(left)}"
    assert task.name == name, f"{name}: the name of {task.__name__} is {task.name!r}"
    for word in ("of_dataset", "table", "truth_columns", "answer_columns"):
        assert hasattr(task, word), f"{name}: {task.__name__} does not say its {word}"
    for word in ("table", "noun"):
        if word == "noun" and not isinstance(source, WholeImages):
            continue
        ours = getattr(source, word)
        its = getattr(task, word)
        assert ours == its, f"{name}: its {word} is {ours!r}, that of {task.__name__} {its!r}"


def check_export(name: str) -> None:
    """Check that an export gives texts of plain file names, the same twice, that name every image
    and every model."""
    from counterfoil.evaluation.failure_folder import (
        EXPORTS,
        ExportedFailures,
        ExportedImage,
        Failure,
        ModelAnswer,
    )

    models = {"timm/one": "timm_one", 'the "second", 二': "the_second"}
    images = []
    for row, (label, right) in enumerate([("cat", False), ("dog", True), ("dog", False)]):
        annotations = [{"category_id": row % 2}]
        answers = []
        for correct in (right, not right):
            answer = {"_cls": "Classification", "label": label, "confidence": 0.5}
            answers.append(ModelAnswer(answer, correct, {"predicted": label}, annotations))
        origin = {"shift": "fog", "key": f"fog/{row}", "base_key": None, "source_path": None}
        failure = Failure(
            row, label, {"_cls": "Classification", "label": label}, annotations, answers
        )
        images.append(ExportedImage(f"images/{label}/{row}.png", (64, 48), failure, origin))
    failures = ExportedFailures("pets", "0" * 64, models, ("cat", "dog"), images)
    texts = EXPORTS[name](failures)
    again = EXPORTS[name](failures)
    assert dict(texts) == dict(again), f"{name}: the same failures give other texts"
    assert texts, f"{name}: it writes no file"
    taken = set()
    for other in EXPORTS:
        if other != name:
            taken.update(EXPORTS[other](failures))
    for file in texts:
        assert file == PurePosixPath(file).name, f"{name}: {file!r} is not a plain file name"
        assert file not in taken, f"{name}: another export writes {file!r}"
    every = "".join(texts.values())
    absent = [image.path for image in images if image.path not in every]
    assert not absent, f"{name}: no file names {', '.join(absent)}"


def check_engine(engine: Engine, folder: Path) -> None:
    """Check that an engine does every item once, whatever happens to its workers, and raises a
    refusal as it is.

    folder: an empty folder that its workers share. Deaths are not checked of an engine that works
    in this process.
    """
    items = list(range(1, 9))
    work = _Squares(folder)
    assert not list(engine.run(work, [])), "no items give events"
    assert engine.at_once >= 1, f"at_once is {engine.at_once}"
    processes = _check_events(list(engine.run(work, items)), items)
    try:
        list(engine.run(work, [3, -1, 2]))
    except UserError as refused:
        assert str(refused) == str(_REFUSED), f"a refusal became {refused}"
    else:
        raise AssertionError("a refused item is not raised")
    closed = engine.run(work, items)
    while not isinstance(next(closed), Finished):
        continue
    closed.close()
    _check_events(list(engine.run(work, items)), items)
    if os.getpid() not in processes:
        fatal = replace(work, fatal=items[-2])
        events = list(engine.run(fatal, items))
        _check_events(events, items)
        lost = [event for event in events if isinstance(event, Lost)]
        assert lost, "no event tells of a worker that died"


def _check_events(
    events: Sequence[Event[int, tuple[int, int]]],
    items: Sequence[int],
) -> set[int]:
    """Check that each item is finished once, and return the processes that did them."""
    done = []
    processes = set()
    steps = 0
    for event in events:
        if isinstance(event, Finished):
            result, process = event.result
            assert result == event.item**2, f"item {event.item} has another's result, {result}"
            done.append(event.item)
            processes.add(process)
        elif isinstance(event, Advanced):
            steps += event.count
        elif isinstance(event, Delivered):
            assert event.part not in done, (
                f"a part of item {event.part} comes after the item is finished"
            )
    assert sorted(done) == sorted(items), f"the items {list(items)} are finished as {done}"
    assert steps == sum(items), f"{steps} steps are counted, {sum(items)} were done"
    return processes


_REFUSED = UserError(["the item is below 0", "items count from 1"], "Leave it out.")


@dataclass(frozen=True)
class _Squares:
    """Work whose item n counts to n and gives n². An item below 0 is refused; `fatal` kills its
    process once."""

    folder: Path
    device: str = "cpu"
    fatal: int | None = None
    models = False

    def on(self, device: str) -> _Squares:
        return replace(self, device=device)

    @contextmanager
    def ready(self) -> Iterator[Callable[[int], Doing[Any, tuple[int, int]]]]:
        yield self._square

    def _square(self, item: int) -> Doing[Any, tuple[int, int]]:
        if item < 0:
            raise _REFUSED
        for step in range(item):
            died = self.folder / "died"
            if item == self.fatal and step == item // 2 and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield 1
        yield Delivered(item)
        return item**2, os.getpid()


def _pictures(images: Sequence[Image.Image]) -> list[Image.Image]:
    made_up = [Image.fromarray(_photograph(64, 64, seed)) for seed in range(5)]
    return list(images) or made_up


def _photograph(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Return a picture whose details, as in photographs, are weaker the finer they are, uint8
    [height, width, 3]."""
    side = 2 ** (max(height, width) - 1).bit_length()
    rng = np.random.default_rng(seed)
    noise = rng.uniform(-1, 1, (3, side**2 - 1))
    channels = [plasma(side, 1.7, channel) for channel in noise]
    picture = np.stack(channels, axis=2)[:height, :width]
    return np.rint(picture * 255).astype(np.uint8)


# How numpy's names of what processors before 2013 lack begin.
_WIDE = ("X86_V3", "X86_V4", "AVX", "FMA3", "F16C")


def _digest_on_old_processor(name: str) -> str:
    """Hash as `corrupted_digest` does, where numpy and the C library compute without AVX and
    FMA."""
    code = f"import counterfoil.testing; print(counterfoil.testing.corrupted_digest({name!r}))"
    configuration: Any = np.show_config(mode="dicts")
    groups = configuration["SIMD Extensions"].get("found", [])
    # By numpy's own names for groups of instructions, which change between its releases; others are
    # ignored.
    wide = [group for group in groups if group.startswith(_WIDE)]
    environment = os.environ | {
        "NPY_DISABLE_CPU_FEATURES": " ".join(wide),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()

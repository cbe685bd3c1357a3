"""Show progress of builds and stages on stderr: a live display on a terminal, plain lines
elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from counterfoil.cli.terminal import make_console, plain_text, print_note
from counterfoil.progress import Stage, listening

if TYPE_CHECKING:
    from counterfoil.building.build_dataset import BuildProgress

_PLAIN_EVERY = 10.0  # seconds between plain lines
# A stage's line on a terminal: its name, a bar, "5,500/5,500" and the time left, all uncut.
_BAR = 40
_MOST_NAME = 44
_COUNT_AND_TIME = 29
_NARROW = 100
_RATE_WINDOW = 30.0  # seconds over which the speed is measured
# least seconds between two marks, because a thousand workers report hundreds of batches a second
_RATE_STEP = 0.1


class Display:
    """A context manager that draws progress. live: the display that rich keeps on the screen."""

    live: Any = None

    def __enter__(self) -> Self:
        self._listening = listening(self.draw)
        self._listening.__enter__()
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()
        self._listening.__exit__(kind, error, trace)

    def draw(self, event: Any, /) -> None:
        raise NotImplementedError


class BuildDisplay(Display):
    def __init__(self) -> None:
        self.console = make_console(stderr=True)
        if self.console.is_terminal:
            from rich.live import Live

            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.history: deque[tuple[float, int]] = deque()
        self.printed = 0.0
        self.lost = 0
        self.reported_there = False
        self.tokens = TokenLines()

    def draw(self, event: Any) -> None:
        """Draw the progress of images, of tokens and of stages before them. Ignore unknown
        events."""
        from counterfoil.building.build_dataset import BuildProgress

        match event:
            case BuildProgress():
                self.update(event)
            case Stage():
                self.stage(event)
            case _:
                self.tokens.draw(event)

    def update(self, progress: BuildProgress) -> None:
        now = time.monotonic()
        for sentence in progress.lost[self.lost :]:
            self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)
        self.lost = len(progress.lost)
        if progress.there and not self.reported_there:
            self.reported_there = True
            whole = progress.there + progress.images
            self.console.print(
                f"{progress.there:,} of {whole:,} images are rendered already", highlight=False
            )
        # The first mark is the first batch, because the time to load models does not depend on the
        # number of images. The newest mark moves until it is a step ahead of the mark before it.
        history = self.history
        if history and not history[-1][1]:
            history.clear()
        if len(history) > 1 and history[-1][0] - history[-2][0] < _RATE_STEP:
            history.pop()
        history.append((now, progress.images_done))
        while len(history) > 1 and now - history[0][0] > _RATE_WINDOW:
            history.popleft()
        rate = self._rate()
        left = (progress.images - progress.images_done) / rate if rate else None
        if self.live is not None:
            self.live.update(_panel(progress, rate, left))
        elif now - self.printed >= _PLAIN_EVERY or progress.shards_done == progress.shards:
            self.printed = now
            print_note(_line(progress, rate, left))

    def stage(self, stage: Stage) -> None:
        line = f"{stage.name}: {stage.done:,} of {stage.total:,}"
        now = time.monotonic()
        if self.live is not None:
            from rich.text import Text

            self.live.update(Text(plain_text(line)))
        elif now - self.printed >= _PLAIN_EVERY or stage.done == stage.total:
            # After a finished stage, the next line is printed at once.
            self.printed = 0.0 if stage.done == stage.total else now
            print_note(line)

    def _rate(self) -> float | None:
        first, few = self.history[0]
        last, many = self.history[-1]
        if last <= first or many <= few:
            return None
        return (many - few) / (last - first)


class TokenLines:
    """Prints the progress of learning tokens on stderr, at most one line in ten seconds."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.printed = 0.0
        self.lost = 0

    def draw(self, event: Any) -> None:
        from counterfoil.generate.tokens.learn_tokens import TokenProgress

        if not isinstance(event, TokenProgress):
            return
        for sentence in event.lost[self.lost :]:
            print_note(sentence)
        self.lost = len(event.lost)
        now = time.monotonic()
        if now - self.printed < _PLAIN_EVERY and event.classes_done < event.classes:
            return
        self.printed = now
        text = (
            f"tokens: {event.classes_done}/{event.classes} classes,"
            f" {event.steps_done}/{event.steps} steps"
        )
        if event.steps_done and event.steps_done < event.steps:
            a_step = (now - self.started) / event.steps_done
            left = a_step * (event.steps - event.steps_done)
            text += f", {left / 60:.0f} min left" if left >= 90 else f", {left:.0f} s left"
        print_note(text)


class StageProgress(Display):
    """Shows a bar for each stage on a terminal. Elsewhere, prints a line for each finished
    stage."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        console = make_console(stderr=True)
        bar = _BAR if console.width > _NARROW else _BAR // 2
        self._most_name = min(_MOST_NAME, console.width - bar - _COUNT_AND_TIME)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=bar),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self.live = Progress(*columns, console=console, disable=not console.is_terminal)
        self._tasks: dict[str, Any] = {}

    def draw(self, stage: Any) -> None:
        if not isinstance(stage, Stage):
            return
        if stage.lost is not None:
            self.live.console.print(stage.lost, markup=False, highlight=False, soft_wrap=True)
        name = stage.name
        if name not in self._tasks:
            label = name
            if len(name) > self._most_name:
                label = f"{name[: self._most_name - 2]} …"
            self._tasks[name] = self.live.add_task(plain_text(label), total=stage.total)
        self.live.update(self._tasks[name], completed=stage.done)
        if stage.done == stage.total and not self.live.console.is_terminal:
            print_note(f"{name}: {stage.total:,} done")


def _line(progress: BuildProgress, rate: float | None, left: float | None) -> str:
    parts = [
        f"{progress.images_done}/{progress.images} images",
        f"{progress.shards_done}/{progress.shards} shards",
    ]
    if rate:
        parts.append(f"{rate:.1f} images/s")
    if left is not None and progress.images_done < progress.images:
        parts.append(f"{_duration(left)} left")
    total = 0
    kept = 0
    for counts in progress.counts.values():
        total += sum(counts.values())
        kept += _accepted(counts)
    if total:
        parts.append(f"yield {kept / total:.1%}")
    return ", ".join(parts)


def _panel(progress: BuildProgress, rate: float | None, left: float | None) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    from counterfoil.recipe.keep.cells import OPEN

    table = Table.grid(padding=(0, 2))
    for shift, counts in list(progress.counts.items())[-24:]:
        total = sum(counts.values())
        kept = _accepted(counts)
        if total:
            name = Text(plain_text(shift), style="dim")
            share = "no threshold yet" if counts.get(OPEN) else f"{kept / total:.0%}"
            table.add_row(name, f"{kept}/{total}", share)
    bar = ProgressBar(total=progress.images, completed=progress.images_done, width=40)
    line = Text(_line(progress, rate, left))
    return Group(table, bar, line)


def _accepted(counts: Mapping[str, int]) -> int:
    # here, because --help must not wait for the recipe's schema
    from counterfoil.recipe.keep.cells import ACCEPTED

    return counts.get(ACCEPTED, 0)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

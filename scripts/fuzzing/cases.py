"""What a case is: its name, which gives all its chances, what is prepared for it, and what is run
on that."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzzing import trees
from fuzzing.canaries import Canaries
from fuzzing.values import as_bytes, damaged_bytes, hostile_path

NAME = "dataset"


@dataclass(frozen=True, slots=True)
class Case:
    """One case; the three together are its identity."""

    kind: str
    number: int
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"

    def chance(self) -> Random:
        """Return the same draws for the same case, on every machine."""
        return Random(f"{self.seed}/{self.kind}/{self.number}")


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is run: words of the command line, or a function that raises what it
    raises."""

    name: str
    words: Sequence[str] = ()
    function: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was made of a case: what is odd in it, in words, and what is run on it.

    `named` are paths that a person named, in a recipe of their own: reading these is what was asked
    for.
    """

    told: Sequence[str]
    steps: Sequence[Step]
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and with what a case is prepared: its chances, its empty folder (the working
    directory), and what is there.

    `templates` are built datasets by name; `shared` keeps what is costly to make and the same for
    every case.
    """

    chance: Random
    folder: Path
    canaries: Canaries
    templates: Mapping[str, Path]
    shared: Path
    told: list[str] = field(default_factory=list)

    def tell(self, *texts: str) -> None:
        """Tell what is odd in the case, a line each."""
        self.told.extend(plain(text)[:200] for text in texts)

    def mutate(self, tree: Any, fragment: trees.FragmentOf, *times: int) -> Any:
        """Return a tree with as many changes as one of `times`, and tell them."""
        tree, changes = trees.mutated(tree, self.chance, fragment, self.chance.choice(times))
        self.tell(*changes)
        return tree

    def replace(self, tree: Any, paths: Sequence[trees.Path], value: Callable[[], Any]) -> None:
        """Put values at these paths, and tell them."""
        self.tell(*trees.replace_leaves(tree, paths, value))

    def damage(self, content: bytes, other: bytes, what: str = "") -> bytes:
        """Return damaged bytes, and tell how."""
        how, content = damaged_bytes(content, other, self.chance)
        self.tell(f"{what}{how}")
        return content

    def hostile_path(self, folder: Path | None = None, traps: Path | None = None) -> str:
        """Return a path for a file in `folder` that leads away."""
        return hostile_path(self.chance, self.canaries, folder or self.folder, traps)

    def copy(self, template: str) -> Path:
        """Copy a built dataset to where the commands look for it; return that directory."""
        return Path(shutil.copytree(self.templates[template], self.folder / NAME))

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file that the commands read."""
        content = as_bytes(content) if isinstance(content, str) else content
        (self.folder / name).write_bytes(content)

    def prepared(self, *steps: Step, named: frozenset[str] = frozenset()) -> Prepared:
        """Return the case, on which these steps are run."""
        return Prepared(self.told, steps, named)


def plain(text: str) -> str:
    """Return the text as one line that any terminal can show."""
    return "".join(letter if letter.isprintable() else "·" for letter in " ".join(text.split()))


def command(*words: str) -> Step:
    """Return a step that is a line of the command line."""
    return Step(words[0], words)


def words_of(step: Step) -> str:
    """Return a step as people would type it, shortened."""
    if not step.words:
        return step.name
    shown = (word if len(word) <= 60 else f"{word[:50]}…({len(word)})" for word in step.words)
    return plain(" ".join(shown))

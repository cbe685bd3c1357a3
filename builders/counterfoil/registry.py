"""Look objects up by name: this package's own, and those that installed packages register as entry
points.

A package of your own registers a corruption, for example, with these lines of its `pyproject.toml`:

    [project.entry-points."counterfoil.corruptions"]
    dead_pixels = "my_package:DEAD_PIXELS"

An installed package is trusted as this package is. A recipe or a dataset may name what a plugin
registers, and never installs one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Registered = TypeVar("Registered")
# The groups of entry points, each with what its objects are called.
GROUPS = {
    "counterfoil.corruptions": "corruption",
    "counterfoil.measures": "measure",
    "counterfoil.classifiers": "kind of classifier",
    "counterfoil.detectors": "kind of detector",
    "counterfoil.engines": "engine",
    "counterfoil.exports": "export",
    "counterfoil.generators": "kind of generator",
    "counterfoil.keep_rules": "keep rule",
    "counterfoil.methods": "mining method",
    "counterfoil.tasks": "task",
    "counterfoil.trackers": "tracker",
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """The installed package that registers a name.

    package, version: its name and version in the package index.
    """

    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


class Registry(Mapping[str, Registered]):
    """The objects of one kind by name: our own first, in their order, then those of installed
    packages by name.

    A plugin is imported when its name is first looked up. Looking up an unknown name raises
    KeyError. A name that two packages register, one that cannot be imported, and one of another
    kind raise UserError.

    group: the entry points' group, one of `GROUPS`. bundled: our own objects. problem: what is
    wrong with a plugin's object, as words after "is", or None.
    """

    def __init__(
        self, group: str, bundled: Mapping[str, Registered], problem: Callable[[Any], str | None]
    ) -> None:
        self.group = group
        self.bundled = bundled
        self.problem = problem

    def __getitem__(self, name: str) -> Registered:
        points = _points_of(self.group, name)
        claimed = [str(_plugin_of(point)) for point in points]
        if name in self.bundled:
            claimed.insert(0, "counterfoil")
        what = GROUPS[self.group]
        if len(claimed) > 1:
            raise UserError(
                f"the {what} '{name}' is registered by {' and by '.join(claimed)}",
                "Uninstall all but one of them.",
            )
        if not points:
            return self.bundled[name]
        [point] = points
        [package] = claimed
        try:
            loaded = point.load()
        except Exception as error:
            raise UserError(
                f"the {what} '{name}' cannot be imported from {package}: {type(error).__name__}:"
                f" {error}",
                f"Repair or uninstall that package. It registers {point.value}.",
            ) from error
        if (problem := self.problem(loaded)) is not None:
            raise UserError(
                f"{package} registers '{name}' as a {what}, but {point.value} is {problem}",
                "Repair or uninstall that package. docs/how-to/plugins.md says what each kind of"
                " plugin is.",
            )
        return loaded

    def __iter__(self) -> Iterator[str]:
        yield from self.bundled
        yield from (name for name in plugin_names(self.group) if name not in self.bundled)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self.bundled or name in plugin_names(self.group)


def part_named(reference: str) -> Any:
    """Return what `package.module:name` names. So a lower layer, or a plugin, names a part that
    only a higher layer imports, and when it is used."""
    try:
        return resolve_name(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"{reference} cannot be imported: {type(error).__name__}: {error}",
            "Repair or uninstall the package that names it.",
        ) from error


def uncallable(registered: Any) -> str | None:
    """Return what is wrong with an object that should be a function, or None."""
    return None if callable(registered) else "no function"


def extending(base: type) -> Callable[[Any], str | None]:
    """Return a check that an object is a class that extends `base`."""

    def problem(registered: Any) -> str | None:
        if isinstance(registered, type) and issubclass(registered, base):
            return None
        return f"no class that extends `{base.__name__}`"

    return problem


def with_functions(*functions: str) -> Callable[[Any], str | None]:
    """Return a check that an object has these functions."""

    def problem(registered: Any) -> str | None:
        absent = []
        for name in functions:
            if not callable(getattr(registered, name, None)):
                absent.append(f"`{name}`")
        return f"without a function {' and '.join(absent)}" if absent else None

    return problem


def plugin_names(group: str) -> list[str]:
    """Return the names that installed packages register in a group, sorted."""
    return sorted({point.name for point in _points()[group]})


def plugin_of(group: str, name: str) -> Plugin | None:
    """Return an installed package that registers a name in a group, or None."""
    points = _points_of(group, name)
    return _plugin_of(points[0]) if points else None


def _points_of(group: str, name: str) -> list[EntryPoint]:
    return [point for point in _points()[group] if point.name == name]


@functools.cache
def _points() -> dict[str, tuple[EntryPoint, ...]]:
    from importlib.metadata import entry_points

    every = entry_points()
    return {group: tuple(every.select(group=group)) for group in GROUPS}


def _plugin_of(point: EntryPoint) -> Plugin:
    assert point.dist is not None
    return Plugin(point.dist.name, point.dist.version)

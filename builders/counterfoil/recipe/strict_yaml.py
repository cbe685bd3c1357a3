"""Read strict YAML: a safe loader, YAML 1.2 scalars, no duplicate or non-string keys, and a line
number for every value.

PyYAML's safe loader keeps the last of two equal keys, and reads `5e-4` as text and `on` as true.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

import yaml

from counterfoil.errors import ProblemLine, UserError
from counterfoil.recipe.messages import message

# The largest bundled recipe, with a thousand ImageNet classes, has 120 kB, 14,000 values and a
# depth of 6.
MOST_CHARACTERS = 1_000_000
MOST_VALUES = 200_000  # keys count too; the values of an alias count each time it is used
DEEPEST = 40


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: a file and line, or an option of the command line (line 0)."""

    place: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place


class LocatedMapping(dict[str, Any]):
    """A mapping that remembers where each of its keys was written."""

    def __init__(self, items: Any = (), origins: dict[str, Origin] | None = None) -> None:
        super().__init__(items)
        self.origins: dict[str, Origin] = dict(origins or {})

    def section(self, key: str) -> LocatedMapping:
        """Return the mapping at a key. Without one, return a new empty mapping, and store nothing."""
        value = self.get(key)
        return value if isinstance(value, LocatedMapping) else LocatedMapping()


class LocatedList(list[Any]):
    """A list that remembers where each of its items was written."""

    def __init__(self, items: Any = (), origins: list[Origin] | None = None) -> None:
        super().__init__(items)
        self.origins: list[Origin] = list(origins or [])


def copied(value: Any) -> Any:
    """Return a copy of a located value that shares no list and no mapping with it."""
    if isinstance(value, LocatedMapping):
        entries = {key: copied(entry) for key, entry in value.items()}
        return LocatedMapping(entries, value.origins)
    if isinstance(value, LocatedList):
        return LocatedList([copied(item) for item in value], value.origins)
    return value


# The scalars of YAML 1.2's core schema. PyYAML reads the scalars of YAML 1.1.
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
_INT = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"""^(?:
        [-+]? (?: \.[0-9]+ | [0-9]+(?:\.[0-9]*)? ) (?:[eE][-+]?[0-9]+)?
        | [-+]? \.(?:inf|Inf|INF)
        | \.(?:nan|NaN|NAN)
    )$""",
    re.VERBOSE,
)
_SCALARS = (("bool", _BOOL), ("null", _NULL), ("int", _INT), ("float", _FLOAT))
_TAG = "tag:yaml.org,2002:"


# libyaml's parser is missing from some builds of PyYAML.
_FASTEST: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FASTEST):  # pyrefly: ignore[invalid-inheritance]
    """PyYAML's safe loader with the scalars of YAML 1.2, and with libyaml's parser if it is
    installed."""

    yaml_implicit_resolvers: ClassVar[dict[Any, Any]] = {}  # pyrefly: ignore[bad-override]


class _Dumper(yaml.SafeDumper):
    """A writer that quotes every text that a YAML 1.1 or 1.2 reader would read as something
    else."""


for _name, _pattern in _SCALARS:
    _Loader.add_implicit_resolver(_TAG + _name, _pattern, None)
    _Dumper.add_implicit_resolver(_TAG + _name, _pattern, None)


_ODD_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")  # line breaks to YAML 1.1, unless escaped


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if _ODD_BREAKS.search(text) else None
    return dumper.represent_scalar(_TAG + "str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(value: Any, *, entries_on_lines: bool = False) -> str:
    """Write YAML that `read_yaml` reads back as the same value. entries_on_lines: write each
    mapping of scalars in one line.
    """
    return yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=MOST_CHARACTERS if entries_on_lines else 110,
        default_flow_style=None if entries_on_lines else False,
    )


@dataclass
class _Reader:
    """A reader that turns nodes into located values and collects every problem."""

    place: str
    problems: list[ProblemLine] = field(default_factory=list)
    open_nodes: set[int] = field(default_factory=set)

    def read(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self.open_nodes:
            self._report(node, message("invalid-yaml.alias"))
            return None
        self.open_nodes.add(id(node))
        value = self._mapping(node) if isinstance(node, yaml.MappingNode) else self._list(node)
        self.open_nodes.discard(id(node))
        return value

    def origin(self, node: yaml.Node) -> Origin:
        return Origin(self.place, node.start_mark.line + 1)

    def _report(self, node: yaml.Node, problem: ProblemLine) -> None:
        self.problems.append(problem.at(str(self.origin(node))))

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        tag = node.tag.removeprefix(_TAG)
        text = node.value
        match tag:
            case "str":
                return text
            case "bool":
                return text.lower() == "true"
            case "null":
                return None
            case "int" if _INT.match(text) and len(text) <= 1000:
                return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
            case "float" if _FLOAT.match(text):
                plain = text.lower().replace(".inf", "inf").replace(".nan", "nan")
                return float(plain)
        self._report(node, message("invalid-yaml.scalar", tag=node.tag[:60], found=text[:60]))
        return None

    def _list(self, node: yaml.Node) -> LocatedList:
        if node.tag != _TAG + "seq":
            self._report(node, message("invalid-yaml.tag", found=node.tag[:60], expected="list"))
        items = [self.read(item) for item in node.value]
        return LocatedList(items, [self.origin(item) for item in node.value])

    def _mapping(self, node: yaml.MappingNode) -> LocatedMapping:
        if node.tag != _TAG + "map":
            self._report(node, message("invalid-yaml.tag", found=node.tag[:60], expected="mapping"))
        mapping = LocatedMapping()
        for key_node, value_node in node.value:
            value = self.read(value_node)
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                shown = "a list or mapping"
                if isinstance(key_node, yaml.ScalarNode):
                    shown = key_node.value[:60]
                self._report(key_node, message("invalid-yaml.key", found=shown))
                continue
            key = key_node.value
            if key in mapping:
                line = mapping.origins[key].line
                self._report(key_node, message("duplicate.key", found=key[:60], line=line))
                continue
            mapping[key] = value
            mapping.origins[key] = self.origin(key_node)
        return mapping


def refuse_unbounded(text: str, place: str) -> None:
    """Raise UserError for a text that is too long or too deep, or that has too many values. Values
    count again for each alias.

    The check reads the parser's events, which needs no recursion. PyYAML's composer recurses
    without limit, and expands every alias.
    """
    if len(text) > MOST_CHARACTERS:
        raise UserError(message("too-large.text", found=len(text), most=MOST_CHARACTERS).at(place))
    loader = _Loader(text)
    try:
        # The number of values so far in the document, and in each open collection.
        values = [0]
        # The anchor of each open collection.
        anchors: list[str | None] = []
        anchored: dict[str, int] = {}
        while loader.check_event():
            event: Any = loader.get_event()
            where = f"{place}:{event.start_mark.line + 1}"
            size = 0
            match event:
                case yaml.CollectionStartEvent():
                    values.append(1)
                    anchors.append(event.anchor)
                    if len(anchors) > DEEPEST:
                        raise UserError(message("too-large.depth", most=DEEPEST).at(where))
                    continue
                case yaml.CollectionEndEvent():
                    size = values.pop()
                    anchor = anchors.pop()
                    if anchor is not None:
                        anchored[anchor] = size
                case yaml.ScalarEvent():
                    size = 1
                    if event.anchor is not None:
                        anchored[event.anchor] = 1
                case yaml.AliasEvent():
                    # a value that contains itself is reported later
                    size = anchored.get(str(event.anchor), 1)
                case _:
                    continue
            values[-1] += size
            if values[-1] > MOST_VALUES:
                raise UserError(message("too-large.values", most=MOST_VALUES).at(where))
    finally:
        loader.dispose()


def read_yaml(text: str, place: str) -> Any:
    """Return the located value of a YAML document. Raise UserError with every problem and its
    line."""
    loader = None
    try:
        refuse_unbounded(text, place)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            raise UserError(message("invalid-yaml.empty").at(place))
        reader = _Reader(place)
        value = reader.read(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{place}:{mark.line + 1}" if mark is not None else place
        what = " ".join(part for part in (error.context, error.problem) if part)
        if "nesting depth" in what:  # libyaml's own limit
            raise UserError(message("too-large.depth", most=DEEPEST).at(where)) from error
        raise UserError(message("invalid-yaml", reason=what).at(where)) from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UserError(message("invalid-yaml", reason=reason).at(place)) from error
    except UnicodeEncodeError as error:
        problem = message("invalid-yaml.characters", position=error.start)
        raise UserError(problem.at(place)) from error
    finally:
        if loader is not None:
            loader.dispose()
    if reader.problems:
        raise UserError(reader.problems)
    return value

"""Values that programs stumble over: odd scalars, YAML and JSON that a tree cannot hold, and paths
that lead away."""

from __future__ import annotations

import contextlib
import copy
import os
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.canaries import Canaries

TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    "\r\n",
    "\t",
    "x" * 300,
    "x" * 5_000,
    "é" * 3_000,
    "-",
    "--help",
    "-rf",
    ".",
    "..",
    "a.b",
    "a/b",
    "a\\b",
    "%s%n",
    "{class}",
    "{class!r}",
    "{class.__init__}",
    "{0}",
    "{",
    "}",
    "{{class}}",
    "{}",
    "{class:>999999999}",
    "{other}",
    "$HOME",
    "~",
    "~nosuchuser",
    "~root",
    "true",
    "null",
    "NaN",
    "1e5",
    "0x10",
    "1_0",
    "2020-01-01",
    "00",
    "日本語",
    "\u202eevil",
    "\u200b",
    "\ufeff",
    "\x85",
    "\u2028",
    "🦜",
    "e\u0301",
    "ﷺ" * 200,
    "İ",
    "\x1b[31mred",
    "\x07",
    "[bold]x",
    "[/]",
    "[/bold]",
    "[link=x",
    "\\[",
    "</script><script>x",
    "{{7*7}}",
    "{% raw %}",
    "{% include '/etc/passwd' %}",
    "| x | y |",
    "```",
    "---",
    "# x",
    "&a",
    "*a",
    "!!x",
    "internal error: x",
    "lab:",
    "lab:nope",
    "lab:../../x",
    "hf-hub:",
    "hf-hub:a/b",
    "local-dir:",
    "a/b@main",
    "a/b@../x",
    "base",
    "all",
    "test",
    "con",
    "a" * 255,
    "a" * 256,
    "...",
    "x" * 100_000,
)

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    100,
    255,
    256,
    1_000,
    65_536,
    999_999,
    1_000_000,
    2**31 - 1,
    2**31,
    2**32,
    2**53 - 1,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    -(2**31),
    10**30,
    -(10**30),
    10**400,
    0.0,
    -0.0,
    0.1,
    -0.1,
    0.5,
    1.0,
    1.5,
    -1.000001,
    1e-320,
    1e-9,
    1e9,
    1e15,
    1e308,
    -1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
)

OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [{}],
    [None],
    {"": ""},
    {"a": {"b": [1]}},
    ["x"],
    [0],
)

# What a tree cannot hold is written in place of a marker.
_MARK = "zqfragment{}zq"


class Fragment(str):
    """Text that is written as it stands, where the value would be."""

    __slots__ = ()


def _alias_bomb(depth: int, width: int, item: str = "x") -> str:
    """Return a few hundred bytes that stand for width**depth values."""
    lists = [f"&a0 [{', '.join([item] * width)}]"]
    lists += [f"&a{level} [{', '.join([f'*a{level - 1}'] * width)}]" for level in range(1, depth)]
    return f"[{', '.join(lists)}]"


def _deep(opening: str, closing: str, depth: int) -> str:
    return f"{opening * depth}{closing * depth}"


def _keys(chance: Random, pair: str, comma: str) -> str:
    """Return a mapping of many keys."""
    count = chance.choice((2_000, 40_000))
    return f"{{{comma.join(pair.format(index) for index in range(count))}}}"


def yaml_fragment(chance: Random) -> Fragment:
    """Return a flow value of YAML that no tree of plain values becomes."""
    depth = chance.choice((20, 90, 500, 3_000, 20_000, 60_000))
    text = chance.choice(
        (
            lambda: _deep("[", "]", depth),
            lambda: _deep("{a: ", "}", depth),
            lambda: "[" * depth,
            lambda: _deep("[{a: ", "}]", depth // 2),
            lambda: _alias_bomb(chance.choice((4, 7, 9, 12)), chance.choice((4, 9, 30))),
            lambda: _alias_bomb(chance.choice((5, 8)), 9, "{a: 1}"),
            "&self [*self]",
            "&self {a: *self}",
            "*nowhere",
            lambda: f"[{', '.join(f'&n{index} x' for index in range(chance.choice((10, 5_000))))}]",
            "!!python/object/apply:os.system ['true']",
            "!!python/name:os.system",
            "!!python/tuple [1, 2]",
            "!!binary aGFsbG8=",
            "!!binary '*'",
            "!!set {a, b}",
            "!!omap [a: 1]",
            "!!timestamp 2020-01-01",
            "!!int x",
            "!!float x",
            "!!str [a]",
            "!!map [a]",
            "!!seq {a: b}",
            "!!null x",
            "!local x",
            "!<tag:example.com,2000:x> y",
            "{? [a, b] : c}",
            "{? {a: b} : c}",
            "{1: a, 2.5: b, true: c, null: d}",
            "{a: 1, a: 2}",
            "{<<: {a: 1}, b: 2}",
            "{<<: [1, 2]}",
            "2020-01-01",
            "12:30:45",
            lambda: "1" + "0" * chance.choice((400, 4_400, 50_000)),
            lambda: "0x" + "f" * chance.choice((20, 5_000, 50_000)),
            lambda: "0o" + "7" * chance.choice((30, 9_000)),
            lambda: "1e" + "9" * chance.choice((3, 50)),
            lambda: "0." + "1" * 5_000,
            '"\\uD800"',
            '"\\uDFFF\\uD800"',
            '"\\0"',
            '"\\x85\\u2028\\ufeff"',
            lambda: '"' + "x" * chance.choice((70_000, 900_000, 1_100_000)) + '"',
            lambda: "[" + "1, " * chance.choice((2_000, 60_000, 300_000)) + "1]",
            lambda: _keys(chance, "k{0}: {0}", ", "),
            "|\n  text",
            "'unclosed",
            '"unclosed',
            "}",
        )
    )
    return Fragment(text() if callable(text) else text)


def json_fragment(chance: Random) -> Fragment:
    """Return JSON that no tree of plain values becomes, or what readers of JSON take besides."""
    depth = chance.choice((50, 500, 900, 3_000, 20_000, 200_000))
    text = chance.choice(
        (
            lambda: _deep("[", "]", depth),
            lambda: _deep('{"a":', "}", depth).replace("}", "1}", 1),
            lambda: "[" * depth,
            lambda: "1" + "0" * chance.choice((30, 400, 4_400, 50_000)),
            "-1e999",
            "1e-999",
            "NaN",
            "Infinity",
            "-0",
            '{"a": 1, "a": 2}',
            '"\\ud800"',
            '"\\udc00\\ud800x"',
            '"\\u0000"',
            lambda: '"' + "x" * chance.choice((70_000, 1_100_000)) + '"',
            lambda: "[" + "1," * chance.choice((2_000, 300_000)) + "1]",
            lambda: _keys(chance, '"k{0}":{0}', ","),
            "tru",
            "[1,]",
            "'x'",
        )
    )
    return Fragment(text() if callable(text) else text)


def odd_value(chance: Random) -> Any:
    """Return a new plain value that is seldom what was expected; a change may change it further."""
    drawn = [chance.choice(values) for values in (TEXTS, TEXTS, NUMBERS, OTHERS)]
    return copy.deepcopy(chance.choice(drawn))


def hostile_path(
    chance: Random, canaries: Canaries, folder: Path, traps: Path | None = None
) -> str:
    """Return a path for a file in `folder`: to a canary, to the machine's files, to what never
    ends, or to nowhere.

    `traps` is a folder with a FIFO, a link to itself and links that lead away (see `set_traps`).
    """
    canary = chance.choice(
        [*canaries.paths(), canaries.folder, canaries.folder / "model", canaries.folder / "tokens"]
    )
    relative = os.path.relpath(canary, folder)
    away = [
        str(canary),
        relative,
        f"./{relative}",
        f"x/../{relative}",
        f"~/{os.path.relpath(canary, folder / 'home')}",
        "/dev/zero",
        "/dev/random",
        "/dev/stdin",
        "/dev/tty",
        "/proc/self/environ",
        "/proc/self/mem",
        "/proc/kmsg",
        "/etc/passwd",
        "/etc",
        "/",
        "//",
        "/root",
        "/proc/self/fd/0",
        "/proc/self/cwd/recipe.yaml",
        "~",
        "~nosuchuser",
        "~nosuchuser/x",
        "~root",
        "~/x",
        "./nosuch.yaml",
        "../nosuch",
        "x" * 300,
        "./" + "x/" * 2_500,
        "/" + "x" * 5_000,
        "./" + "../" * 2_000 + "etc/passwd",
        "./a\0b",
        "./\ud800",
        "file:///etc/passwd",
        "http://127.0.0.1:9/x",
        ".",
        "..",
        "./",
        "../",
        "C:\\x",
        "./日本語",
        "./-x",
        "./a\nb",
        "//etc/passwd",
        "\\\\host\\share",
        "./recipe.yaml",
    ]
    if traps is not None:
        inside = os.path.relpath(traps, folder)
        away += [f"./{inside}/{name}" for name in TRAPS] * 2
    path = chance.choice([*away, str(canary), relative])
    return chance.choice(("", "", "", "local-dir:", "hf-hub:")) + path


TRAPS = (
    "fifo",
    "loop",
    "to_canary",
    "to_folder",
    "to_zero",
    "empty",
    "folder",
    "binary",
    "socket",
    "sparse.yaml",
)


def set_traps(folder: Path, canaries: Canaries) -> Path:
    """Make a folder of files that are not what a reader takes them for; return its path."""
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "to_canary").symlink_to(canaries.paths()[1])
    (folder / "to_folder").symlink_to(canaries.folder)
    (folder / "to_zero").symlink_to("/dev/zero")
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    (folder / "binary").write_bytes(bytes(range(256)) * 20)
    with (folder / "sparse.yaml").open("wb") as file:
        file.truncate(3 << 30)
    make_socket(folder / "socket")
    return folder


def make_socket(path: Path) -> None:
    """Make a socket, by a short name: its path has room for 108 characters."""
    import socket

    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):
        listener.bind(path.name)


def damaged_bytes(content: bytes, other: bytes, chance: Random) -> tuple[str, bytes]:
    """Return how the bytes are damaged, in words, and the bytes."""
    how = chance.choice(
        ("random", *["flipped"] * 3, "cut", "doubled", "empty", "zeros", "other", "spliced", "head")
    )
    position = chance.randrange(len(content) + 1)
    match how:
        case "random":
            return how, chance.randbytes(chance.choice((1, 7, 8, 100, 5_000, 200_000)))
        case "flipped":
            changed = bytearray(content or b"\0")
            for _ in range(chance.choice((1, 2, 5, 50))):
                index = chance.randrange(len(changed))
                changed[index] ^= chance.choice((1, 2, 4, 8, 16, 32, 64, 128, 255))
            return how, bytes(changed)
        case "cut":
            return how, content[:position]
        case "doubled":
            return how, content * 2
        case "empty":
            return how, b""
        case "zeros":
            size = min(chance.choice((1, 8, 100)), len(content) - position)
            return how, content[:position] + b"\0" * size + content[position + size :]
        case "other":
            return how, other
        case "spliced":
            inserted = other[len(other) // 3 : len(other) // 2]
            return how, content[:position] + inserted + content[position:]
    return how, content[: chance.choice((4, 8, 16))] + chance.randbytes(chance.choice((10, 5_000)))


def as_bytes(text: str) -> bytes:
    """Return the text as UTF-8, halves of characters too."""
    return text.encode("utf-8", "surrogatepass")


def marker(number: int) -> str:
    return _MARK.format(number)

"""SECURITY.md: each promise names tests, and they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_each_promise_names_tests_that_exist() -> None:
    lines = (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("|")][2:]
    assert len(rows) >= 10 and {len(cells) for cells in rows} == {3}
    for promise, _, tests in rows:
        named = NAMED.findall(tests)
        assert named and not NAMED.sub("", tests).replace(",", "").strip(), promise
        for file, name in named:
            tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
            assert name in {
                node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
            }, (file, name)

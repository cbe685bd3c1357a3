"""What a notebook shows of results and of work under way: escaped, small, and one line."""

from __future__ import annotations

import ast
import json
import pydoc
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import counterfoil
from counterfoil.progress import report_event, report_progress
from counterfoil.report.words import _MOST_SHOWN, shown_table

HOSTILE = "<script>alert(1)</script>"


def work() -> str:
    report_progress(f"{HOSTILE}\x1b[31m", 1, 3)
    report_event(SimpleNamespace(nothing="that it could say"))
    report_progress("images", 3, 3)
    return "done"


def test_a_table_is_escaped_and_small() -> None:
    html = shown_table(HOSTILE, [HOSTILE], [[HOSTILE]] * 100, HOSTILE)
    assert "<script" not in html and html.count("&lt;script&gt;") == 3 + _MOST_SHOWN
    assert html.count("<tr>") == 1 + _MOST_SHOWN and "88 more rows" in html


def test_a_notebook_is_reported_in_one_line_and_a_script_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work() == "done" and capsys.readouterr().err == ""
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", kernel)  # as a kernel has it
    assert work() == "done"
    shown = capsys.readouterr().err
    assert "\n" not in shown and "\x1b" not in shown and "1 of 3" in shown
    assert shown.rpartition("\r")[2] == ""  # the line is gone


def test_help_has_every_verb_with_its_arguments_and_what_it_does() -> None:
    text = pydoc.plain(pydoc.render_doc(counterfoil))
    for name in counterfoil.__all__:
        assert name == "__version__" or f"\n    {name}(" in text or f"class {name}(" in text, name
        assert name in dir(counterfoil)
        assert getattr(counterfoil, name).__doc__ if name != "__version__" else True
    assert "transform: 'Transform | Mapping[str, Transform] | None' = None" in text
    assert "find and test what a classifier gets wrong" in text


@pytest.mark.release(of="printed")
def test_the_notebook_of_the_first_hour_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code cells run in order, in one namespace and an empty folder; the value of a last line is
    shown."""
    notebook = json.loads(
        (Path(__file__).parents[2] / "docs" / "tutorial.ipynb").read_text(encoding="utf-8")
    )
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    shown: list[Any] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None
        *statements, last = ast.parse("".join(cell["source"])).body
        if not isinstance(last, ast.Expr):
            statements = [*statements, last]
            last = None
        exec(compile(ast.Module(statements, []), cell["id"], "exec"), space)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), cell["id"], "eval"), space))
    scores, drops, mined = (space[name] for name in ("scores", "drops", "mined"))
    assert 50 < 100 * scores.score("lab:resnet10t", "all").top1.value <= 100
    assert len(drops.shifts) == 9 and all(
        score.drop is not None for score in drops.scores if score.shift != "base"
    )
    assert "largest drop" in repr(drops) and "% right on base" in repr(drops)
    assert mined.findings.answered.rows == 100 and mined.files["rows"].is_file()
    htmls = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(htmls) >= 4 and all("<table" in html for html in htmls)


def test_a_plan_of_a_bundled_name_tells_its_size_and_shifts() -> None:
    plan = counterfoil.make_plan("wardrobe-mini")
    assert (
        repr(plan)
        == f"<Plan of wardrobe-mini: 1,200 samples, {plan.n_cells:,} cells, {plan.n_shards:,}"
        " shards>"
    )
    html = plan._repr_html_()
    assert all(f"<td>{shift.name}</td>" in html for shift in plan.recipe.all_shifts())

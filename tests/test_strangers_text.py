"""Text of strangers: whatever prints or writes it escapes what acts on a terminal, a page or a
spreadsheet."""

from __future__ import annotations

import ast
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import counterfoil
from counterfoil.cli.progress import BuildDisplay, StageProgress
from counterfoil.cli.terminal import (
    make_console,
    print_json,
    print_line,
    print_note,
    print_rows,
    show_error,
)
from counterfoil.documents import csv_text, document_bytes
from counterfoil.errors import UserError
from counterfoil.evaluation import evaluate
from counterfoil.progress import Stage
from counterfoil.regular_files import on_a_line, visible_text
from counterfoil.report import templates
from counterfoil.report.terminal_tables import print_table
from counterfoil.report.words import Table, TableCell, TableColumn, TableRow
from support.images import encoded, noise
from support.strangers_text import ACTING, HOSTILE, refuse_acting
from support.tables import image_table, parquet_folder

# What is neither printed nor shown, but hashed, or read back by us alone.
WRITTEN_FOR_US = {
    "documents.py", "prediction/captioning.py", "recipe/schema.py", "recipe/json_schema.py", "starting/found_data.py",
    "models/rendering.py", "mining/pools.py", "mining/methods/context_proposals.py", "store/shard_files.py",
    "generate/tokens/class_tokens.py",
}  # fmt: skip


def table_of(name: str) -> Table:
    row = TableRow((TableCell(name, below=name), TableCell("1")))
    return Table(name, (TableColumn(name, "text", note=name), TableColumn("rows")), (row,))


PRINTERS: dict[str, Callable[[str], object]] = {
    "a line": print_line,
    "a note": print_note,
    "JSON": lambda name: print_json({name: [name]}),
    "a table": lambda name: print_table(make_console(), table_of(name)),
    "rows": lambda name: print_rows(make_console(), [name], [[name.replace("[", "")]], name),
    "an error": lambda name: show_error(UserError([name, name], hint=name)),
    "an unexpected error": lambda name: show_error(KeyError(name)),
    "an error of the disk": lambda name: show_error(OSError(28, "No space left on device", name)),
    "progress": lambda name: StageProgress().draw(Stage(name, 1, 1, lost=name)),
    "progress of a build": lambda name: BuildDisplay().draw(Stage(name, 1, 1)),
}


@pytest.mark.parametrize("printer", PRINTERS)
def test_what_is_printed_acts_on_no_terminal(
    printer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    PRINTERS[printer](HOSTILE)
    out = "".join(capsys.readouterr())
    assert "owned" in out and "\\u202e" in out and not ACTING.search(out)


def test_a_json_text_keeps_its_values() -> None:
    text = visible_text(json.dumps({HOSTILE: "\udcff\x00 😀"}, ensure_ascii=False))
    assert not ACTING.search(text) and json.loads(text) == {HOSTILE: "\udcff\x00 😀"}
    assert json.loads(document_bytes([HOSTILE])) == [HOSTILE] and not ACTING.search(
        document_bytes([HOSTILE]).decode()
    )


def test_cells_and_columns_are_texts_without_what_acts() -> None:
    for text in (csv_text([{HOSTILE: HOSTILE}]), csv_text([{"a": HOSTILE}], ["a", HOSTILE])):
        assert not ACTING.search(text)
        cells = [cell for line in csv.reader(io.StringIO(text)) for cell in line]
        assert (
            not [cell for cell in cells if cell.startswith("=")]
            and f"'{visible_text(HOSTILE)}" in cells
        )


def test_a_line_has_no_break_and_no_tab() -> None:
    assert on_a_line("a\n\tb\u202e") == "a\\n\\tb\\u202e"


def test_a_pages_script_reads_no_acting_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.j2").write_text("{{ data | tojson }}")
    monkeypatch.setattr(templates, "templates_folder", lambda template: tmp_path)
    page = (
        templates.template_environment("t.j2")
        .get_template("t.j2")
        .render(data={HOSTILE: [HOSTILE, (1, None)]})
    )
    assert json.loads(page) == {visible_text(HOSTILE): [visible_text(HOSTILE), [1, None]]}


def test_a_hostile_class_and_a_hostile_shift_act_nowhere(tmp_path: Path) -> None:
    classes, shifts = ([f"{HOSTILE}{number}" for number in kind] for kind in ("01", "23"))
    columns = {
        "label": [classes[row % 2] for row in range(12)],
        "weather": [shifts[row // 6] for row in range(12)],
    }
    images = image_table([encoded(noise(row)) for row in range(12)], **columns)
    folder = parquet_folder(tmp_path / "photos", test=images)
    models = {
        name: lambda batch, row=row: np.tile(row, (len(batch), 1))
        for name, row in (("a", (1, 0)), ("b", (0, 1)))
    }
    done = evaluate(
        folder,
        models,
        groups="weather",
        base=shifts[0],
        out=tmp_path / "out",
        gate=["drop(any) <= 3"],
    )
    refuse_acting(
        done,
        tmp_path / "out",
        {"report.html", "failures.html", "failures.html 0", "results.json", "classes.csv"},
    )


def test_texts_are_written_by_what_escapes_them() -> None:
    """Check that JSON for people, and CSV, is written in one place each."""
    package = Path(counterfoil.__file__).parent
    raw = set()
    tables = set()
    for path in package.rglob("*.py"):
        text = path.read_text()
        name = path.relative_to(package).as_posix()
        if "csv.writer" in text or "csv.DictWriter" in text:
            tables.add(name)
        if "ensure_ascii=False" in text and name not in WRITTEN_FOR_US:
            tree = ast.parse(text)
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            escaped = {
                id(given)
                for call in calls
                if isinstance(call.func, ast.Name) and call.func.id == "visible_text"
                for given in call.args
            }
            raw |= {
                name
                for call in calls
                if any(word.arg == "ensure_ascii" for word in call.keywords)
                and id(call) not in escaped
            }
    assert tables == {"documents.py", "recipe/rows_table.py"}
    assert raw <= {"cli/terminal.py"}  # `print_json` escapes the text that it prints

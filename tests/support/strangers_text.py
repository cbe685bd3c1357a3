"""A text of strangers that acts wherever it is shown as it is, and a look into all that an
evaluation writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from counterfoil.evaluation.results import Evaluation
from support.tables import csv_rows

HOSTILE = "=cmd|'/C calc'!A0 \x1b]0;owned\x07\x9b31m\u202egpj.\u2066exe\u2028 <b>&"
ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def shown_by(folder: Path) -> dict[str, str]:
    """Return the text of every file of an evaluation, and what scripts of its pages read."""
    files = [
        path
        for path in folder.rglob("*")
        if path.suffix in (".html", ".csv", ".json", ".md", ".xml")
    ]
    shown = {path.name: path.read_text() for path in files}
    for name in [name for name in shown if name.endswith(".html")]:
        for number, data in enumerate(
            re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', shown[name])
        ):
            shown[f"{name} {number}"] = json.dumps(json.loads(data), ensure_ascii=False)
    return shown


def refuse_acting(evaluation: Evaluation, folder: Path, within: set[str]) -> None:
    shown = shown_by(folder) | {"repr": repr(evaluation), "notebook": evaluation._repr_html_()}
    assert {name: ACTING.findall(text) for name, text in shown.items() if ACTING.search(text)} == {}
    assert within <= {name for name, text in shown.items() if "\\u202e" in text}
    for path in folder.glob("*.csv"):
        assert not [
            row for row in csv_rows(path) if any(str(cell).startswith("=") for cell in row.values())
        ], path

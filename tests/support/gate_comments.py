"""The comment that a gate writes, as tests read it."""

from __future__ import annotations

import re

from counterfoil.evaluation.results import Evaluation


def table_rows(text: str) -> list[list[str]]:
    """Return the rows of the first table of a text, without its head."""
    table = re.search(r"^\|[^\n]*\n\|[:|-]+\n((?:\|[^\n]*\n?)+)", text, re.MULTILINE)
    assert table is not None
    return [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in table[1].splitlines()]


def check_worst_images(evaluation: Evaluation, model: str, most: int = 20) -> list[str]:
    """Check that each group of gate.md lists the images that `failures` has first, beside their
    sheet; return the answers."""
    file = evaluation.files["gate"]
    parts = re.split(r"^\*\*", file.read_text().partition("#### Worst images")[2], flags=re.M)[1:]
    wrong = evaluation.failures(model)
    answers = []
    for part in parts:
        rows = table_rows(part)
        keys = [row[1].strip("`") for row in rows]
        assert len(keys) <= most
        of_group = wrong[wrong["shift"] == wrong.set_index("key")["shift"][keys[0]]]
        assert keys == of_group["key"].tolist()[:most]
        sheet = re.findall(r"^!\[.*\]\((gate/.*)\)$", part, re.MULTILINE)
        assert len(sheet) == 1 and (file.parent / sheet[0]).is_file()
        answers += [row[3] for row in rows]
    assert answers
    return answers

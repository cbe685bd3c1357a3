"""Numbers of two recorded outputs are compared whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare_outputs import missing, numbers


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("a.csv", "1,2\n100,200\n", {1, 2, 100, 200}),
        ("a.csv", '"1,234",5\n-3,4e-2\n', {1234, 5, -3, 0.04}),
        ("a.md", "1,234,567 of 12,34 and 1,2345; 7, 8", {1234567, 12, 34, 1, 2345, 7, 8}),
        ("a.md", "1,234.5 points, −2.5, v1.2, 1000", {1234.5, -2.5, 1000}),
        ("a.json", "[1, 100]", {1, 100}),
        ("a.html", "<p style='1,5'>1,234</p>", {1234}),
    ],
)
def test_a_comma_belongs_to_a_number_only_between_thousands(
    file: str, text: str, expected: set[float], tmp_path: Path
) -> None:
    path = tmp_path / file
    path.write_text(text)
    assert numbers(path) == expected
    assert missing(expected, numbers(path)) == []

"""Tables of README and documentation that a command or a file makes are what these make today."""

from __future__ import annotations

import pytest

from write_tables import FROM_COMMANDS, FROM_FILES, made_anew, printed, tables

# The demo draws 1,200 images, and the others read 12,000.
TAKE_LONG = ("wardrobe_mini", "mine", "contexts")


def test_every_table_that_is_made_stands_on_a_page() -> None:
    assert tables().keys() == {*FROM_FILES, *FROM_COMMANDS}


@pytest.mark.parametrize("name", FROM_FILES)
def test_a_table_of_a_file_is_made_again(name: str) -> None:
    assert tables()[name][1] == made_anew(name)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.whole if name in TAKE_LONG else ())
        for name in FROM_COMMANDS
    ],
)
def test_a_table_of_a_command_is_made_again(name: str) -> None:
    """Run the command, for minutes, and compare what it prints with the page."""
    assert tables()[name][1] == made_anew(name)


def test_a_printed_table_is_read_without_some_of_its_columns() -> None:
    text = (
        "said\n\n name   wrong (%)  p\n ──────────────────\n a, not b    2 (1 to 3)  .1\n\nmore\n"
    )
    assert printed(text, ["p"]) == [["name", "wrong (%)"], ["a, not b", "2 (1 to 3)"]]

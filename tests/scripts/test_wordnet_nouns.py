"""WordNet's file of nouns, read into parents, categories and hyponyms; another file or version is
reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from wordnet_nouns import Nouns, read_nouns, read_senses
from write_hyponyms import common_names

NOTICE = (
    '  1 A notice, as "it" is.  \n  2   \n  3 WordNet 3.0 Copyright 2006 by Princeton'
    " University.  \n"
)
# Pointers that lead elsewhere than up: a hyponym, an instance's class, a verb. A gloss may hold
# anything.
LINES = """\
00000001 03 n 01 entity 0 001 ~ 00000002 n 0000 | what is | perceived
00000002 03 n 02 fruit 0 yield 0 001 @ 00000001 n 0000 | the ripened body
00000003 03 n 01 Old_World_food 0 002 + 00000009 v 0101 @ 00000001 n 0000 | any
00000004 03 n 01 food 0 001 @ 00000001 n 0000 | eaten
00000005 03 n 01 produce 0 001 @ 00000004 n 0000 | sold
00000006 13 n 02 edible_fruit 0 fruit 1 003 ~ 00000008 n 0000 @ 00000005 n 0000 @ 00000002 n 0000 | eaten raw @ 00000001 n 0000
00000007 03 n 01 goods 0 001 @i 00000001 n 0000 | apart
00000008 13 n 0a pippin 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 j 0 001 @ 00000006 n 0000 | an apple
"""  # noqa: E501


def written(folder: Path, lines: str = LINES, notice: str = NOTICE) -> Path:
    (folder / "data.noun").write_text(notice + lines, encoding="latin-1")
    return folder


@pytest.fixture
def nouns(tmp_path: Path) -> Nouns:
    return read_nouns(written(tmp_path))


def test_a_parent_is_two_steps_up_the_shortest_way(nouns: Nouns) -> None:
    # From an edible fruit, the way by fruit is shorter than the one by produce and food, which the
    # file names first.
    parents = {noun[-1]: nouns.parent(noun)[-1] for noun in nouns.by_id}
    assert parents == {
        "1": "1",
        "2": "1",
        "3": "1",
        "4": "1",
        "5": "1",
        "6": "1",
        "7": "7",
        "8": "2",
    }
    assert {kind[-1] for kind in nouns.above("00000008")} == {"1", "2", "4", "5", "6"}
    assert nouns.by_id["00000003"].word == "Old World food"


def test_a_category_is_the_nearest_on_the_first_way_up_by_name(nouns: Nouns) -> None:
    # By the file's order an edible fruit would be food, by way of produce; by name "fruit" comes
    # first.
    categories = {noun[-1]: nouns.category(noun) for noun in nouns.by_id}
    assert categories["6"] == categories["8"] == categories["2"] == "fruit"
    assert categories["5"] == categories["4"] == "food"
    assert categories["1"] == categories["3"] == "entity"
    assert categories["7"] is None


def test_the_notice_is_kept_without_its_numbers(nouns: Nouns) -> None:
    assert nouns.notice == (
        'A notice, as "it" is.',
        "",
        "WordNet 3.0 Copyright 2006 by Princeton University.",
    )


def test_another_folder_or_version_or_a_cut_file_ends_in_words(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no such file; expected WordNet 3\.0"):
        read_nouns(tmp_path / "nowhere")
    with pytest.raises(SystemExit, match=r"not of WordNet 3\.0"):
        read_nouns(written(tmp_path, notice=NOTICE.replace("3.0", "3.1")))
    with pytest.raises(SystemExit, match="00000001 has 1 pointers, expected 2"):
        read_nouns(written(tmp_path, "00000001 03 n 01 entity 0 002 ~ 00000002 n 0000 | cut\n"))


def test_kinds_are_found_once_and_the_nearest_first(nouns: Nouns) -> None:
    assert [noun[-1] for noun in nouns.kinds(["00000001"])] == ["1", "2", "3", "4", "6", "5", "8"]
    assert [noun[-1] for noun in nouns.kinds(["00000005", "00000008"])] == ["5", "8", "6"]


# A lemma, its part of speech, the number of senses, two counts, and the senses. Here "food" is
# mostly another sense.
INDEX = """\
  1 A notice
entity n 1 0 1 0 00000001
edible_fruit n 1 1 @ 1 0 00000006
food n 2 1 @ 2 1 00000009 00000004
fruit n 2 1 @ 2 1 00000002 00000006
old_world_food n 1 0 1 0 00000003
pippin n 1 0 1 0 00000008
produce n 1 1 @ 1 0 00000005
world n 1 0 1 0 00000099
"""


def test_common_names_mean_nothing_else_more_often_and_have_common_words(
    nouns: Nouns, tmp_path: Path
) -> None:
    (tmp_path / "index.noun").write_text(INDEX, encoding="latin-1")
    senses = read_senses(tmp_path, "noun")
    assert senses["food"] == "00000009"
    words = {*senses, "old", "edible"}
    names = ["entity", "fruit", "Old World food", "edible fruit", "produce", "pippin"]
    assert list(common_names(nouns, senses, words, ("entity",))) == names
    # A part that is no word by itself keeps a name out.
    names = [name for name in names if name != "Old World food"]
    assert list(common_names(nouns, senses, words - {"world"}, ("entity",))) == names


def test_a_folder_without_an_index_ends_in_words(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"index\.adj: no such file; expected WordNet 3\.0"):
        read_senses(tmp_path, "adj")

"""Contexts from lists and chat models: reading, refusals, questions and records."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import warm
from chat_server import KEY, ChatServer, chat_server, contexts, refused, said
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.lab.vocabulary import BACKGROUNDS, COLOURS, PATTERNS
from counterfoil.mining.methods.context_proposals import (
    ANSWERS,
    ContextList,
    parse_answer,
    proposed_contexts,
    same_words,
    without_duplicates,
)
from counterfoil.progress import Stage, listening
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.prompts import RecipeClass
from counterfoil.recipe.schema_mine import ContextsSettings
from lab_training.captions import caption_of
from support.refusals import problems_of
from tiny_builds import command
from tiny_chats import llama

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def called(name: str, category: str | None = None) -> RecipeClass:
    return RecipeClass("00", name, 0, 0, (), category=category)


def written(folder: Path, text: str, name: str = "contexts.yaml") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def proposed(recipe: str, **settings: object) -> tuple[tuple[str, ...], ...]:
    chosen = ContextsSettings.model_validate(settings)
    return proposed_contexts(load_recipe(recipe), chosen, Path("nowhere"), "cpu")[0]


@pytest.mark.parametrize(
    "name", ["wardrobe", "wardrobe-colours", "cifar10", "cifar100", "imagenet"]
)
def test_bundled_lists_give_each_class_eight_to_twenty_contexts_that_differ(name: str) -> None:
    listed = ContextList.load(name)
    for texts in (listed.contexts, *listed.by_name.values()):
        assert not texts or 8 <= len(texts) <= 20
        assert len({same_words(text) for text in texts}) == len(texts)
    assert set(listed.covers) == set(listed.by_name)


@pytest.mark.release(of="recipes")
def test_bundled_lists_know_every_class_of_their_dataset() -> None:
    imagenet = load_recipe("imagenet-star").classes
    for name, classes in (("cifar10", list(map(called, CIFAR10))), ("imagenet", list(imagenet))):
        listed = ContextList.load(name)
        assert all(listed.of(cls) for cls in classes)
    by_name = ContextList.load("cifar100").by_name
    assert by_name["palm_tree"] == by_name["palm tree"] == by_name["trees"]
    # 100 classes and 20 superclasses
    assert len([name for name in by_name if "_" not in name]) == 120


def test_the_wardrobes_contexts_are_words_that_its_clip_has_read() -> None:
    places = proposed("wardrobe-star", contexts="wardrobe")[9]
    settings = ContextsSettings(contexts="wardrobe")
    expected = [
        caption_of({"style": "photo", "class": "ankle boot", "background": words})
        for words in BACKGROUNDS
    ]
    assert [settings.caption("ankle boot", context) for context in places] == expected
    colours = ContextsSettings(contexts="wardrobe-colours", axis="colour")
    words = proposed("wardrobe-star", contexts="wardrobe-colours", axis="colour")[9]
    expected = [
        caption_of({"style": "photo", "class": "ankle boot", "colour": colour})
        for colour in COLOURS
    ]
    expected += [
        caption_of({"style": "photo", "class": "ankle boot", "pattern": pattern})
        for pattern in PATTERNS[1:]
    ]
    assert [colours.caption("ankle boot", word) for word in words] == expected


def test_a_class_has_the_contexts_of_all_of_its_category_and_its_own_each_once(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path,
        "contexts: [in the snow, in fog]\nby_name:\n  pet: [on a sofa]\n  cat: [In Snow, in a"
        " box]\n",
    )
    listed = ContextList.load(path)
    assert listed.of(called("cat", "pet")) == (
        "in the snow",
        "in fog",
        "on a sofa",
        "In Snow",
        "in a box",
    )
    assert listed.of(called("dog")) == ("in the snow", "in fog")
    with_bag = written(
        tmp_path, "contexts: [in the snow, in fog]\nby_name: {bag: [in snow, in a box]}\n"
    )
    result = proposed("wardrobe-mini", contexts=str(with_bag))
    assert result[8] == ("in the snow", "in fog", "in a box") and result[0] == (
        "in the snow",
        "in fog",
    )


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", "- in fog\n- at sea\n"), ("a.txt", "# mine\nin fog\n\nat sea\n")]
)
def test_a_plain_list_is_of_all_classes(tmp_path: Path, name: str, text: str) -> None:
    assert ContextList.load(written(tmp_path, text, name)).contexts == ("in fog", "at sea")


def test_what_is_wrong_with_a_list_is_told_together_with_its_lines(tmp_path: Path) -> None:
    text = (
        "contexts:\n  - in fog\n  - ''\n  - 3\n  - 'in {class}'\n  - '!!!'\nby_name: {cat:"
        " []}\nmore: 1\n"
    )
    with pytest.raises(UserError) as error:
        ContextList.load(written(tmp_path, text))
    lines = [
        problem.rpartition("contexts.yaml:")[2].partition(")")[0]
        for problem in error.value.problems
    ]
    assert lines == ["3", "4", "5", "6", "7", "8"], error.value.problems


@pytest.mark.parametrize("text", [
    "contexts: [" + "x" * 201 + "]", "contexts:\n" + "  - in fog\n" * 2001, "contexts: []", "3", "",
    'contexts: ["in\\u0007fog"]', 'contexts: ["two\\nlines"]', "by_name: {cat: {}}", "- [in fog]",
    "covers: [dog]\nby_name: {cat: [in fog]}", "a: &a [x, *a]", "contexts:"
        " !!python/object/apply:os.getcwd []",
    "contexts: [in fog]\ncontexts: [at sea]",
])  # fmt: skip
def test_hostile_and_odd_files_are_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError):
        ContextList.load(written(tmp_path, text))


def test_a_name_of_no_class_another_axis_and_an_uncovered_class_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "axis: light\nby_name: {bags: [in fog]}\n")
    problems = problems_of(proposed, "wardrobe-mini", contexts=str(path))
    assert "--set mine.settings.axis=light" in problems[0]
    assert "did you mean 'bag'?" in problems[1]
    some = written(tmp_path, "by_name: {bag: [in fog]}\n")
    with pytest.raises(
        UserError, match=r"the list has no context for 't-shirt', 'trouser'.* and 4 more"
    ):
        proposed("wardrobe-mini", contexts=str(some))


def test_an_unknown_name_and_a_file_of_another_machine_are_refused() -> None:
    with pytest.raises(
        UserError, match="there are no bundled contexts named 'cifar1O'; did you mean 'cifar10'"
    ):
        ContextList.load("cifar1O")
    with pytest.raises(UserError, match="on the machine that built the dataset"):
        ContextList.load("elsewhere:./contexts.yaml")


def at(*degrees: float) -> np.ndarray:
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.mark.parametrize(
    "other", ["in snow", "In the Snow.", "in  THE snow", "“in the snow”", "in-snow", "ｉｎ snow"]
)
def test_case_articles_and_punctuation_make_no_other_context(other: str) -> None:
    assert same_words(other) == same_words("in the snow")


@pytest.mark.parametrize("other", ["on the snow", "in snows", "the", "снег", ""])
def test_other_words_are_others(other: str) -> None:
    assert same_words(other) != same_words("in the snow")


def test_chains_of_neighbours_do_not_fall_together() -> None:
    # At .98, 10 degrees repeats 0, and 20 repeats 10. 20 stays because 10 was dropped.
    assert without_duplicates(["a1", "b1", "c1", "d1"], at(0, 10, 20, 90), 0.98) == [0, 2, 3]


def test_equal_words_are_one_whatever_their_vectors_and_a_threshold_of_one_drops_nothing_else() -> (
    None
):
    assert without_duplicates(["in snow", "at sea", "in the snow"], at(0, 0.5, 90), 1.0) == [0, 1]


def test_what_repeats_one_that_was_dropped_is_dropped() -> None:
    assert without_duplicates(["at sea", "on the ocean", "on ocean"], at(0, 1, 80), 0.97) == [0]


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 359)), max_size=12),
    st.floats(0.5, 1),
)
def test_what_stays_is_distinct_and_what_is_dropped_says_what_an_earlier_one_says(
    drawn: list[tuple[str, int]], similarity: float
) -> None:
    names = [name for name, _ in drawn]
    vectors = at(*(degree for _, degree in drawn)).reshape(-1, 2)
    kept = without_duplicates(names, vectors, similarity)
    for row in set(range(len(names))) - set(kept):
        near = [
            old
            for old in kept
            if old < row and vectors[old].astype(float) @ vectors[row] > similarity - 1e-6
        ]
        assert near or same_words(names[row]) in map(same_words, names[:row])
    assert len({same_words(names[row]) for row in kept}) == len(kept)
    cosines = vectors[list(kept)].astype(np.float64) @ vectors[list(kept)].astype(np.float64).T
    assert np.all(cosines[~np.eye(len(kept), dtype=bool)] <= similarity)


THREE = ("bag", "sandal", "ankle boot")
SETTINGS = ContextsSettings(contexts="x")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HF_TOKEN", "hf_" + "loginlogin" * 3)


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    classes = [
        {"id": f"{label:02d}", "name": name, "source_label": label}
        for label, name in enumerate(THREE)
    ]
    return load_recipe("wardrobe-mini", [f"source.classes={json.dumps(classes)}"])


def asked(address: str | None, **changed: Any) -> ContextsSettings:
    listed = changed.pop("contexts", None)
    chat = {"model": "small", "base_url": address} | changed
    values = {
        "chat": {key: value for key, value in chat.items() if value is not None},
        "contexts": listed,
    }
    return ContextsSettings.model_validate(values)


def asked_contexts(
    recipe: Recipe, settings: ContextsSettings, folder: Path
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    return proposed_contexts(recipe, settings, folder, "cpu")


def failure(recipe: Recipe, settings: ContextsSettings, folder: Path) -> CounterfoilError:
    with pytest.raises(CounterfoilError) as error:
        asked_contexts(recipe, settings, folder)
    return error.value


def class_in(body: dict[str, Any]) -> str:
    question = body["messages"][0]["content"]
    return next(name for name in THREE if f"a {name} can" in question)


def by_class(body: dict[str, Any]):
    return contexts(f"beside a {class_in(body)} shop", "in fog")


def recorded(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / ANSWERS).read_text())["answers"]


GOOD = '{"contexts": ["in fog", "at sea"]}'


@pytest.mark.parametrize("text", [
    GOOD, f"\n {GOOD}\n", f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```", "<think>bags?"
        f" {{}}\n</think>\n{GOOD}",
])  # fmt: skip
def test_the_json_that_was_asked_for_is_understood(text: str) -> None:
    assert parse_answer(text, "bag", SETTINGS, 8).contexts == ("in fog", "at sea")


@pytest.mark.parametrize(("text", "problem"), [
    ("", "not JSON"),
    ("I am sorry, I cannot help with that.", "not JSON"),
    (GOOD[:-3], "not JSON"),
    (f"Sure! {GOOD}", "not JSON"),
    (f"{GOOD}\n{GOOD}", "not JSON"),
    (f"<think>{GOOD}", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ('{"contexts": ["a"], "contexts": ["b"]}', "not JSON"),
    ('["in fog"]', "expected one key"),
    ("null", "expected one key"),
    ('{"contexts": ["in fog"], "note": "!"}', "expected one key"),
    ('{"contexts": "in fog"}', "expected one key"),
    ('{"contexts": []}', "found 0 contexts, expected 8"),
    (json.dumps({"contexts": [f"place {n}" for n in range(9)]}), "found 9 contexts, expected 8"),
    ('{"contexts": ["in fog", 3]}', "found int among the contexts"),
    ('{"contexts": ["in fog", " "]}', "found empty text"),
    ('{"contexts": ["in {class}"]}', "without braces"),
    ('{"contexts": ["one\\ntwo"]}', "in one line"),
    ('{"contexts": ["a bag in the snow"]}', "expected it without 'bag'"),
    (json.dumps({"contexts": ["x" * 201]}), "201 characters"),
])  # fmt: skip
def test_anything_else_is_not_half_understood(text: str, problem: str) -> None:
    answer = parse_answer(text, "bag", SETTINGS, 8)
    assert answer.contexts == () and problem in answer.problems[0]


def test_each_class_is_asked_once_and_a_lists_contexts_come_first(
    recipe: Recipe, tmp_path: Path
) -> None:
    stages: list[Stage] = []
    (tmp_path / "own.yaml").write_text("contexts: [in the fog, at sea]\n")
    with chat_server(by_class) as server, listening(stages.append):
        proposals, notes = asked_contexts(
            recipe, asked(server.address, contexts=str(tmp_path / "own.yaml")), tmp_path
        )
    assert proposals[2] == ("in the fog", "at sea", "beside a ankle boot shop") and notes == ()
    assert [class_in(body) for body in server.requests] == [*THREE]
    assert [(stage.done, stage.total) for stage in stages] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    question = server.requests[0]["messages"][0]["content"]
    assert question.startswith("What are uncommon backgrounds that a bag can appear in? Give 8,")
    assert '"a photo of a bag ..."' in question


def test_a_bad_answer_is_asked_again_with_what_was_wrong(recipe: Recipe, tmp_path: Path) -> None:
    def reply(body: dict[str, Any]):
        return said("Certainly! Bags.") if len(body["messages"]) == 1 else by_class(body)

    with chat_server(reply) as server:
        proposals, _ = asked_contexts(recipe, asked(server.address), tmp_path)
    assert proposals[0] == ("beside a bag shop", "in fog") and len(server.requests) == 6
    first, bad, again = server.requests[1]["messages"]
    assert [first] == server.requests[0]["messages"]
    assert bad == {"role": "assistant", "content": "Certainly! Bags."}
    assert again["content"].startswith("That cannot be used: it is not JSON.")
    assert [(answer["text"] == "Certainly! Bags.", answer["taken"]) for answer in recorded(tmp_path)] == [
        (True, False), (False, True),
    ] * 3  # fmt: skip


def test_no_more_than_the_tries_and_other_classes_are_asked_all_the_same(
    recipe: Recipe, tmp_path: Path
) -> None:
    def reply(body: dict[str, Any]):
        return said("I'm sorry, no.") if class_in(body) == "bag" else by_class(body)

    with chat_server(reply) as server:
        error = failure(recipe, asked(server.address, tries=2), tmp_path)
        assert isinstance(error, RunFailure) and len(error.problems) == 1
        assert (
            "class 'bag' can be used after 2 tries: it is not JSON; it said 'I'm sorry, no.'"
            in str(error)
        )
        assert [class_in(body) for body in server.requests] == [
            "bag",
            "bag",
            "sandal",
            "ankle boot",
        ]
        # A second run asks only about the class that failed, from the first message.
        server.requests.clear()
        server.reply = by_class
        proposals, _ = asked_contexts(recipe, asked(server.address, tries=2), tmp_path)
        assert proposals[0] == ("beside a bag shop", "in fog")
    assert [(class_in(body), len(body["messages"])) for body in server.requests] == [("bag", 1)]


def test_a_model_that_talks_nonsense_is_not_asked_about_all_classes(tmp_path: Path) -> None:
    with chat_server(lambda _: said("\x1b[2J blub")) as server:
        error = failure(load_recipe("wardrobe-mini"), asked(server.address, tries=1), tmp_path)
    assert "blub" in str(error) and "\x1b" not in str(error)
    assert len(error.problems) == len(server.requests) == 5


def test_what_is_recorded_is_replayed_without_the_model_and_with_the_same_bytes(
    recipe: Recipe, tmp_path: Path
) -> None:
    with chat_server(by_class) as server:
        settings = asked(server.address)
        first = asked_contexts(recipe, settings, tmp_path / "one")
        answers = tmp_path / "one" / ANSWERS
        bytes_then = answers.read_bytes()
        assert (
            asked_contexts(recipe, settings, tmp_path / "one") == first
            and len(server.requests) == 3
        )
    # Without the server, the file answers in another folder, with the model's name and without.
    for folder, model in (("two", "small"), ("three", None)):
        settings = asked(None, model=model, answers=str(answers))
        assert asked_contexts(recipe, settings, tmp_path / folder) == first
        assert (tmp_path / folder / ANSWERS).read_bytes() == bytes_then


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"temperature": 0.5}, {"most": 7}, {"most_tokens": 100}, {"model": "another"}],
)
def test_another_question_is_not_answered_from_the_record(
    recipe: Recipe, tmp_path: Path, change: dict
) -> None:
    with chat_server(by_class) as server:
        asked_contexts(recipe, asked(server.address), tmp_path)
        asked_contexts(recipe, asked(server.address, **change), tmp_path)
        assert len(server.requests) == 6
        # The first answers are kept.
        asked_contexts(recipe, asked(server.address), tmp_path)
    assert len(server.requests) == len(recorded(tmp_path)) == 6


def test_without_a_model_what_is_not_recorded_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    with chat_server(by_class) as server:
        asked_contexts(recipe, asked(server.address), tmp_path)
    settings = asked(None, model=None, answers=str(tmp_path / ANSWERS), seed=4)
    error = failure(recipe, settings, tmp_path / "other")
    assert isinstance(error, UserError) and "has no usable answer to the question 'What are" in str(
        error
    )


def test_no_key_stands_in_any_file(recipe: Recipe, tmp_path: Path) -> None:
    with chat_server(by_class) as server:
        asked_contexts(recipe, asked(server.address), tmp_path)
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(texts) == 1
    for secret in ("s3cret", "loginlogin", "127.0.0.1"):
        assert not any(secret in text for text in texts)


@pytest.mark.parametrize(
    "fault", [lambda _: refused(401), lambda _: refused(429, Retry_After="0"), lambda _: None]
)
def test_what_was_answered_before_a_server_failed_is_kept(
    recipe: Recipe, tmp_path: Path, fault: Callable
) -> None:
    def reply(body: dict[str, Any]):
        return fault(body) if class_in(body) == "ankle boot" else by_class(body)

    with chat_server(reply) as server, pytest.MonkeyPatch.context() as patched:
        patched.setattr("counterfoil.mining.methods.context_proposals.load_chat", _impatient)
        failure(recipe, asked(server.address), tmp_path)
        assert len(recorded(tmp_path)) == 2
        server.requests.clear()
        server.reply = by_class
        assert len(asked_contexts(recipe, asked(server.address), tmp_path)[0]) == 3
    assert [class_in(body) for body in server.requests] == ["ankle boot"]


def _impatient(name: str, **options: Any):
    from counterfoil.models.chat import load_chat

    chat: Any = load_chat(name, **options)
    chat.silence = 0.5
    return chat


def test_a_run_that_was_killed_goes_on_and_ends_with_the_bytes_of_one_that_was_not(
    tmp_path: Path,
) -> None:
    pids: list[int] = []

    def reply(body: dict[str, Any]):
        if pids and len(server.requests) == 4:
            os.kill(pids.pop(), signal.SIGKILL)
        return (
            said("no")
            if len(body["messages"]) == 1
            else contexts("in fog", f"place {len(str(body))}")
        )

    with chat_server(reply) as server:
        words = [sys.executable, "-c", RUN, server.address, str(tmp_path / "a")]
        with warm.start(words, command()[1] | {"HF_HUB_OFFLINE": "0"}) as process:
            pids.append(process.pid)
            assert process.wait() == -signal.SIGKILL
        assert len(recorded(tmp_path / "a")) == 3  # the fourth answer was lost
        assert not [path for path in (tmp_path / "a").iterdir() if path.name != ANSWERS]
        for folder in ("a", "b"):
            _run_here(server, tmp_path / folder)
    assert (tmp_path / "a" / ANSWERS).read_bytes() == (tmp_path / "b" / ANSWERS).read_bytes()
    assert len(server.requests) == 4 + 17 + 20


RUN = """
import sys
from pathlib import Path
from counterfoil.mining.methods.context_proposals import proposed_contexts
from counterfoil.recipe import load_recipe
from counterfoil.recipe.schema_mine import ContextsSettings
chat = {"model": "small", "base_url": sys.argv[1]}
proposed_contexts(load_recipe("wardrobe-mini"), ContextsSettings(chat=chat), Path(sys.argv[2]), "cpu")
"""


def _run_here(server: ChatServer, folder: Path) -> None:
    asked_contexts(load_recipe("wardrobe-mini"), asked(server.address), folder)


def test_the_same_contexts_for_all_classes_are_noted(recipe: Recipe, tmp_path: Path) -> None:
    with chat_server(
        lambda body: contexts(*(("In fog", "at sea")[:: 1 if class_in(body) == "bag" else -1]))
    ) as server:
        _, notes = asked_contexts(recipe, asked(server.address), tmp_path)
    assert notes == (
        "the chat model names the same 2 contexts for all 3 classes: it may not have understood the"
        " question",
    )


@pytest.mark.parametrize("content", [
    b"", b"[]", b"{", b'{"format": 2, "answers": []}', b'{"format": 1, "answers": [{}]}', b"[" * 100_000, b"\xff",
    b'{"format": 1, "answers": [], "key": "s"}', b'{"format": 1, "answers": [{"model": 3}]}',
])  # fmt: skip
def test_files_that_are_no_recorded_answers_are_refused(
    recipe: Recipe, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "odd.json").write_bytes(content)
    error = failure(recipe, asked(None, answers=str(tmp_path / "odd.json")), tmp_path / "out")
    assert isinstance(error, UserError) and "odd.json" in str(error) and len(str(error)) < 500


def test_answers_of_another_machine_of_nobody_and_of_several_are_refused(
    recipe: Recipe, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="is a file on another machine"):
        asked_contexts(recipe, asked(None, answers="elsewhere:./answers.json"), tmp_path)
    with pytest.raises(UserError, match="No such file"):
        asked_contexts(recipe, asked(None, answers=str(tmp_path / "none.json")), tmp_path)
    with chat_server(by_class) as server:
        for model in ("small", "large"):
            asked_contexts(recipe, asked(server.address, model=model), tmp_path)
    with pytest.raises(
        UserError, match=r"come from 2 models \(large, small\), and no model is named"
    ):
        asked_contexts(
            recipe, asked(None, model=None, answers=str(tmp_path / ANSWERS)), tmp_path / "out"
        )


def test_hostile_text_is_bounded_kept_and_replayed(recipe: Recipe, tmp_path: Path) -> None:
    texts: Sequence[str] = ("x" * 300_000, "\ud800 \x00 \x1b[2J", GOOD)
    with chat_server(lambda body: said(texts[len(body["messages"]) // 2])) as server:
        first = asked_contexts(recipe, asked(server.address), tmp_path)
        assert asked_contexts(recipe, asked(server.address), tmp_path) == first
    assert len(server.requests) == 9 and {len(row["text"]) for row in recorded(tmp_path)} == {
        100_000,
        8,
        len(GOOD),
    }


def test_a_model_in_this_process_is_asked_and_known_by_its_folders_name(
    recipe: Recipe, tmp_path: Path
) -> None:
    folder = llama(tmp_path / "tiny")
    error = failure(
        recipe, asked(None, model=str(folder), tries=2, most_tokens=16), tmp_path / "out"
    )
    assert len(error.problems) == 3 and "it is not JSON" in str(error)  # its weights are random
    answers = recorded(tmp_path / "out")
    assert {answer["model"] for answer in answers} == {"./tiny"} and len(answers) == 6
    assert str(tmp_path) not in (tmp_path / "out" / ANSWERS).read_text()

"""A server that lies, stalls, repeats the key or answers without end: a judge's answer is one of the
options, outside the list, or an error for people."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chat_server import KEY, Reply, chat_server, refused, said
from counterfoil.errors import CounterfoilError, RunFailure
from counterfoil.models.chat.judge import Choice, ServedJudge, load_judge

OPTIONS = ["yes", "no"]
IMAGE = Image.new("RGB", (8, 8), "grey")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HF_TOKEN", "hf_" + "loginlogin" * 3)


def choose(address: str) -> Choice:
    judge = load_judge("small", base_url=address)
    assert isinstance(judge, ServedJudge)
    return judge.choose(IMAGE, "Is it grey? Answer yes or no.", OPTIONS)


def chosen(reply: Reply) -> Choice:
    with chat_server(lambda _: reply) as server:
        return choose(server.address)


def failed(reply: Callable[[dict[str, Any]], Reply | None]) -> CounterfoilError:
    with chat_server(reply) as server, pytest.raises(CounterfoilError) as caught:
        choose(server.address)
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"
    return caught.value


def with_logprobs(value: str, text: str = "yes") -> Reply:
    """Return the answer `text` whose logprobs are this JSON."""
    status, headers, body = said(text)
    return status, headers, body.replace(b'"index": 0', f'"logprobs": {value}, "index": 0'.encode())


def top(*entries: str) -> str:
    return f'{{"content": [{{"top_logprobs": [{", ".join(entries)}]}}]}}'


def entry(token: str, logprob: str) -> str:
    return json.dumps({"token": token, "logprob": "?"}).replace('"?"', logprob)


LIES = {
    "null": "null",
    "a text": '"likely"',
    "a list": "[1]",
    "no content": "{}",
    "empty content": '{"content": []}',
    "content of numbers": '{"content": [3]}',
    "no likeliest": '{"content": [{"token": "yes", "logprob": -1}]}',
    "likeliest is a text": '{"content": [{"top_logprobs": "yes"}]}',
    "not a number": top(entry("yes", "NaN")),
    "infinite": top(entry("yes", "Infinity")),
    "more than all": top(entry("yes", "0.5")),
    "a text for a number": top(entry("yes", '"-0.1"')),
    "true": top(entry("yes", "true")),
    "no logprob": top('{"token": "yes"}'),
    "a list for a token": top('{"token": ["yes"], "logprob": -1}'),
    "adds up to 2": top(entry("yes", "0"), entry("no", "0")),
    "never": top(entry("yes", "-Infinity")),
    "a thousand digits": top(entry("yes", "-" + "9" * 1000)),
    "another token": top(entry("maybe", "-0.1")),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_likelihoods_leave_the_answer(lie: str) -> None:
    choice = chosen(with_logprobs(LIES[lie]))
    assert choice.answer == 0 and choice.likelihoods is None
    assert choice.probabilities() == pytest.approx([1, 0])


def test_a_lie_that_may_be_true_is_a_likelihood() -> None:
    said_no = with_logprobs(top(entry("yes", "-0.2"), entry("no", "-3")), text="no")
    choice = chosen(said_no)
    assert choice.answer == 1 and choice.likelihoods is not None
    expected = np.exp([-0.2, -3.0])
    assert choice.likelihoods == pytest.approx(expected / expected.sum())


@pytest.mark.parametrize("text", ["<html>yes</html>", "\x00", "\ud800", "9" * 100_000])
def test_an_answer_of_another_form_is_outside_the_list(text: str) -> None:
    choice = chosen(said(text))
    assert choice.answer is None and choice.probabilities() is None


@pytest.mark.parametrize("body", [
    b"yes", b'{"a":' * 1_000_000, b'{"choices": [{"message": {"content": ' + b"9" * 5000 + b"}}]}",
])  # fmt: skip
def test_what_is_not_the_protocol_is_an_error(body: bytes) -> None:
    error = failed(lambda _: (200, {"Content-Type": "application/json"}, body))
    assert isinstance(error, RunFailure)
    assert len(str(error)) < 1000


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_without_likelihoods_is_asked_for_the_answer_alone(status: int) -> None:
    def reply(body: dict[str, Any]) -> Reply:
        return refused(status, "what is logprobs?") if "logprobs" in body else said("no")

    with chat_server(reply) as server:
        judge = load_judge("small", base_url=server.address)
        for _ in range(2):
            choice = judge.choose(IMAGE, "Is it grey?", OPTIONS)
            assert choice.answer == 1 and choice.likelihoods is None
    assert ["logprobs" in body for body in server.requests] == [True, False, False]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/a", "::::", ""])
def test_a_redirection_to_no_server_is_an_error(location: str) -> None:
    failed(lambda _: (307, {"Location": location}, b""))


def test_redirections_in_a_circle_end() -> None:
    with chat_server(lambda _: (307, {"Location": "/v1/chat/completions"}, b"")) as server:
        with pytest.raises(CounterfoilError):
            choose(server.address)
        assert len(server.requests) < 50


def test_a_key_that_an_answer_repeats_is_in_no_choice() -> None:
    logs = top(entry(KEY, str(math.log(0.5))), entry("yes", str(math.log(0.5))))
    choice = chosen(with_logprobs(logs, text=f"yes {KEY}"))
    assert choice.answer == 0 and KEY not in repr(choice)

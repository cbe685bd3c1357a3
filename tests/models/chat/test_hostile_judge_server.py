"""A server that lies, stalls, repeats the key or answers without end: a judge's answer is one of the
options, outside the list, or an error for people."""

from __future__ import annotations

import gzip
import json
import math
import resource
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chat_server import KEY, Reply, chat_server, refused, said
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.chat.judge import Choice, ServedJudge, load_judge

OPTIONS = ["yes", "no"]
IMAGE = Image.new("RGB", (8, 8), "grey")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("HF_TOKEN", "hf_" + "loginlogin" * 3)


def choose(address: str, silence: float = 5.0) -> Choice:
    judge = load_judge("small", base_url=address)
    assert isinstance(judge, ServedJudge)
    judge.chat.silence = silence
    return judge.choose(IMAGE, "Is it grey? Answer yes or no.", OPTIONS)


def chosen(reply: Reply) -> Choice:
    with chat_server(lambda _: reply) as server:
        return choose(server.address)


def failed(reply: Callable[[dict[str, Any]], Reply | None], **more: Any) -> CounterfoilError:
    with chat_server(reply) as server, pytest.raises(CounterfoilError) as caught:
        choose(server.address, **more)
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
    "a number": "3",
    "a list": "[1]",
    "no content": "{}",
    "empty content": '{"content": []}',
    "content of numbers": '{"content": [3]}',
    "no likeliest": '{"content": [{"token": "yes", "logprob": -1}]}',
    "none of the likeliest": top(),
    "likeliest is a text": '{"content": [{"top_logprobs": "yes"}]}',
    "not a number": top(entry("yes", "NaN")),
    "infinite": top(entry("yes", "Infinity")),
    "more than all": top(entry("yes", "0.5")),
    "a text for a number": top(entry("yes", '"-0.1"')),
    "true": top(entry("yes", "true")),
    "no logprob": top('{"token": "yes"}'),
    "no token": top('{"logprob": -1}'),
    "a list for a token": top('{"token": ["yes"], "logprob": -1}'),
    "a list for a logprob": top(entry("yes", "[-1]")),
    "adds up to 2": top(entry("yes", "0"), entry("no", "0")),
    "a hundred tokens": top(*(entry(f"yes{number}", "-9") for number in range(100))),
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


@pytest.mark.parametrize("text", [
    "maybe", "yes and no", "<html>yes</html>", "yes " * 200, "\x00", "\ud800", "\u202eyes or no", "9" * 100_000,
])  # fmt: skip
def test_an_answer_of_another_form_is_outside_the_list(text: str) -> None:
    choice = chosen(said(text))
    assert choice.answer is None and choice.probabilities() is None


@pytest.mark.parametrize("body", [
    b"<!DOCTYPE html><html><body>Sign in</body></html>", b"", b"yes", b"{", b"[" * 1_000_000, b'{"a":' * 1_000_000,
    b'{"choices": [{"message": {"content": {"text": "yes"}}}]}', b'{"choices": {}}', b"\xff" * 1000,
    b'{"choices": [{"message": {"content": ' + b"9" * 5000 + b"}}]}",
])  # fmt: skip
def test_what_is_not_the_protocol_is_an_error(body: bytes) -> None:
    error = failed(lambda _: (200, {"Content-Type": "application/json"}, body))
    assert isinstance(error, RunFailure)
    assert len(str(error)) < 1000


def test_ten_million_tokens_take_no_memory() -> None:
    body = said("yes " * 10_000_000)[2]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = failed(lambda _: (200, {}, body))
    assert "has more than 8,000,000 bytes" in str(error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * 100_000_000)
    assert "compressed the answer" in str(
        failed(lambda _: (200, {"Content-Encoding": "gzip"}, packed))
    )


def test_a_silent_server_is_given_up() -> None:
    error = failed(lambda _: None, silence=0.3)
    assert isinstance(error, RunFailure) and "no data for 0.3 seconds" in str(error)


@pytest.mark.parametrize(("status", "calls"), [(429, 3), (503, 3), (500, 1), (401, 1), (404, 1)])
def test_a_server_that_refuses_is_asked_again_only_if_it_is_busy(status: int, calls: int) -> None:
    count = 0

    def reply(_: dict[str, Any]) -> Reply:
        nonlocal count
        count += 1
        return refused(status, f"not with {KEY}", Retry_After="0")

    error = failed(reply)
    assert isinstance(error, UserError if status in (401, 404) else RunFailure)
    assert count == calls


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


def test_a_redirection_takes_no_key_elsewhere() -> None:
    with chat_server(lambda _: said("yes")) as other:
        url = other.address + "/chat/completions"
        with chat_server(lambda _: (307, {"Location": url}, b"")) as server:
            choose(server.address)
    assert "authorization" in server.headers[0] and "authorization" not in other.headers[0]
    assert KEY not in str(other.headers) and "login" not in str(server.headers)


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

"""Chat models of a server: answers, refusals, silence, bounds, and where keys go."""

from __future__ import annotations

import contextlib
import gzip
import resource
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from chat_server import KEY, Reply, chat_server, refused, said
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.chat import load_chat

ASKED = [{"role": "user", "content": "Where?"}]
SCHEMA = {"type": "object"}


@pytest.fixture(autouse=True)
def login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "loginlogin" * 3)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def answer(address: str, **more: Any) -> str:
    model: Any = load_chat("small", base_url=address)
    vars(model).update(more)
    return model.answer(ASKED, schema=SCHEMA, seed=3, most_tokens=77, temperature=0.5)


def failure(address: str, **more: Any) -> CounterfoilError:
    with pytest.raises(CounterfoilError) as caught:
        answer(address, **more)
    return caught.value


def test_the_question_arrives_as_it_was_asked_and_the_answer_comes_back_as_it_is() -> None:
    with chat_server(lambda _: said('  {"contexts": ["in fog"]}\n')) as server:
        assert answer(server.address) == '  {"contexts": ["in fog"]}\n'
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert (request["model"], request["messages"]) == ("small", ASKED)
    assert (request["seed"], request["max_tokens"], request["temperature"]) == (3, 77, 0.5)
    assert request["response_format"]["json_schema"]["schema"] == SCHEMA


def test_the_login_to_the_hub_goes_to_no_other_address() -> None:
    with chat_server(lambda _: said("yes")) as server:
        answer(server.address)
    assert "authorization" not in server.headers[0]
    assert "login" not in str(server.headers)


def test_the_key_of_the_environment_goes_to_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
    with chat_server(lambda _: said("yes")) as server:
        answer(server.address)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_a_key_that_no_header_can_hold_is_reported_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret\ns3cret")
    with chat_server(lambda _: said("yes")) as server:
        error = failure(server.address)
    assert (
        isinstance(error, UserError)
        and "OPENAI_API_KEY holds" in str(error)
        and "s3cret" not in str(error)
    )
    assert not server.requests


@pytest.mark.parametrize("status", [400, 422])
def test_a_server_that_takes_no_schema_is_asked_without_one_from_then_on(status: int) -> None:
    def reply(body: dict):
        return (
            refused(status, "what is response_format?")
            if "response_format" in body
            else said("yes")
        )

    with chat_server(reply) as server:
        model = load_chat("small", base_url=server.address)
        for _ in range(2):
            assert (
                model.answer(ASKED, schema=SCHEMA, seed=0, most_tokens=16, temperature=0) == "yes"
            )
    assert ["response_format" in body for body in server.requests] == [True, False, False]


def test_a_question_that_is_refused_either_way_is_reported_with_the_servers_words() -> None:
    with chat_server(lambda _: refused(400, "\x1b[2J the context is too long")) as server:
        error = failure(server.address)
    assert (
        isinstance(error, RunFailure)
        and "answers 400" in str(error)
        and "the context is too long" in str(error)
    )
    assert "\x1b" not in str(error)
    assert len(server.requests) == 2


@pytest.mark.parametrize(("status", "kind", "words"), [
    (401, UserError, "refuses the key that it was given (401)"),
    (402, RunFailure, "needs payment (402)"),
    (403, UserError, "may not use it (403)"),
    (404, UserError, "no such model or address (404)"),
    (500, RunFailure, "answers 500"),
])  # fmt: skip
def test_refusals_are_reported_in_words_and_repeat_no_key(
    status: int, kind: type, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with chat_server(lambda _: refused(status, f"wrong key: {KEY}")) as server:
        error = failure(server.address)
    assert type(error) is kind and words in str(error) and server.address in str(error)
    assert "s3cret" not in f"{error} {error.hint}"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_and_given_up(status: int) -> None:
    replies = [refused(status, Retry_After="0"), said("yes")]
    with chat_server(lambda _: replies.pop(0)) as server:
        assert answer(server.address) == "yes"
    with chat_server(lambda _: refused(status, Retry_After="0")) as server:
        error = failure(server.address)
    assert (
        isinstance(error, RunFailure)
        and f"{status}" in str(error)
        and "to resume" in str(error.hint)
    )
    assert len(server.requests) == 3


def test_who_asks_for_an_hour_is_not_waited_for() -> None:
    with chat_server(lambda _: refused(429, Retry_After="3600")) as server:
        assert "too many questions for 3600 seconds (429)" in str(failure(server.address))
    assert len(server.requests) == 1


@pytest.mark.parametrize("wait", ["²", "soon"])
def test_a_wait_that_is_no_number_of_seconds_is_not_waited_for(wait: str) -> None:
    with chat_server(lambda _: refused(429, Retry_After=wait)) as server:
        assert isinstance(failure(server.address), RunFailure)
    assert len(server.requests) == 1


def test_a_silent_server_is_given_up() -> None:
    with chat_server(lambda _: None) as server:
        error = failure(server.address, silence=0.3)
    assert isinstance(error, RunFailure) and "no data for 0.3 seconds" in str(error)


def test_a_server_that_is_gone_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = failure(f"http://127.0.0.1:{port}/v1")
    assert (
        isinstance(error, RunFailure)
        and "cannot be reached" in str(error)
        and "base_url" in str(error.hint)
    )


@pytest.mark.parametrize("content", [
    b"<html>Welcome</html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [3]}', b"\xff\xfe", b'{"choices": "abc"}',
    b'{"choices": [{"message": null}]}', b'{"choices": [{"message": {"content": ["a"]}}]}',
])  # fmt: skip
def test_what_is_not_the_protocol_is_reported(content: bytes) -> None:
    with chat_server(lambda _: (200, {"Content-Type": "application/json"}, content)) as server:
        assert isinstance(failure(server.address), RunFailure)


@pytest.mark.parametrize(
    ("more", "text"), [({}, ""), ({"refusal": "I cannot help."}, "I cannot help.")]
)
def test_no_text_is_an_empty_answer_and_a_refusal_is_its_text(more: dict, text: str) -> None:
    with chat_server(lambda _: said(None, **more)) as server:
        assert answer(server.address) == text


def test_the_hubs_providers_get_the_login_and_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    with chat_server(lambda _: said("yes")) as server:
        monkeypatch.setattr(
            constants, "INFERENCE_PROXY_TEMPLATE", server.address.removesuffix("v1") + "{provider}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        model = load_chat("user/name")
        assert model.answer(ASKED, schema=SCHEMA, seed=0, most_tokens=16, temperature=0) == "yes"
    assert server.headers[0]["authorization"] == "Bearer hf_" + "loginlogin" * 3
    assert server.requests[0]["response_format"]["json_schema"]["schema"] == SCHEMA
    assert (server.requests[0]["model"], server.requests[0]["path"]) == (
        "user/name",
        "/v1/chat/completions",
    )


def test_the_hubs_providers_want_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(UserError, match="need a login, and you are not logged in") as caught:
        load_chat("user/name").answer(ASKED, schema=SCHEMA, seed=0, most_tokens=16, temperature=0)
    assert "hf auth login" in str(caught.value.hint)


@pytest.mark.parametrize(("name", "address", "words"), [
    ("  ", None, "no name"),
    ("lab:chat", None, "the lab has none"),
    ("http://127.0.0.1:1/v1", None, "expected one of the Hub"),
    ("small", None, "expected one of the Hub"),
    ("elsewhere:./llm", None, "on the machine that built the dataset"),
    ("small", "elsewhere:http://evil.test/v1", "comes from a dataset's recipe"),
    ("transformers:user/name", "http://localhost/v1", "runs in this process"),
    ("./nowhere", None, "there is no folder"),
])  # fmt: skip
def test_names_that_cannot_be_are_refused_before_anything_is_asked(
    name: str, address: str | None, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        load_chat(name, base_url=address)


@pytest.mark.parametrize("written", ["", "/v1/", "/v1/chat/completions"])
def test_an_address_is_taken_with_or_without_the_protocols_path(written: str) -> None:
    with chat_server(lambda _: said("yes")) as server:
        answer(server.address.removesuffix("/v1") + written)
    assert server.requests[0]["path"] == "/v1/chat/completions"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DRIPS = {
    "body": (HEAD + b"Content-Length: 1000000\r\n\r\n", b" "),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "headers": (HEAD, b"X-More: 1\r\n"),
    "status": (b"", b"HTTP/1.1 2"[:1]),
    "an error's body": (b"HTTP/1.1 500 No\r\nContent-Length: 1000000\r\n\r\n", b" "),
}


@contextlib.contextmanager
def sends(first: bytes, again: bytes, pause: float) -> Iterator[str]:
    """Yield the address of a server that sends `first`, then `again` until the client closes.

    It declares no length: a client that reads to the end does not return.
    """
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while not ended.is_set():
                    connection, _ = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.recv(65_536)
                        connection.sendall(first)
                        while not ended.wait(pause):
                            connection.sendall(again)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            ended.set()
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("what", DRIPS)
def test_a_server_that_drips_is_given_up(what: str) -> None:
    with sends(*DRIPS[what], pause=0.1) as address:
        error = failure(address, silence=0.5)
    assert isinstance(error, RunFailure)
    assert "no complete answer in 1.5 seconds" in str(error) or "is not HTTP" in str(error)


@pytest.mark.parametrize("status", [b"200 OK", b"500 No"])
def test_an_answer_without_end_takes_no_memory(status: bytes) -> None:
    head = b"HTTP/1.1 " + status + b"\r\nContent-Length: 10737418240\r\n\r\n"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with sends(head, b" " * 1_000_000, pause=0) as address:
        assert "has more than 8,000,000 bytes" in str(failure(address))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_headers_without_end_are_no_answer() -> None:
    with sends(HEAD, b"X-More: " + b"1" * 60_000 + b"\r\n", pause=0) as address:
        assert "its answer is not HTTP" in str(failure(address))


def test_a_packed_answer_is_not_unpacked() -> None:
    packed = gzip.compress(b" " * 100_000_000)
    with chat_server(lambda _: (200, {"Content-Encoding": "gzip"}, packed)) as server:
        assert "compressed the answer" in str(failure(server.address))


@pytest.mark.parametrize(
    "reply", [said(f"your key is {KEY}, isn't it"), said(None, refusal=f"not for {KEY}")]
)
def test_a_key_that_an_answer_repeats_is_in_no_record(
    reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with chat_server(lambda _: reply) as server:
        text = answer(server.address)
    assert KEY not in text and "…" in text


def test_a_word_for_a_key_stays_in_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    with chat_server(lambda _: said("an EMPTY street")) as server:
        assert answer(server.address) == "an EMPTY street"


def test_a_redirection_takes_no_key_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with chat_server(lambda _: said("from elsewhere")) as other:
        url = other.address + "/chat/completions"
        with chat_server(lambda _: (307, {"Location": url}, b"")) as server:
            answer(server.address)
    assert "authorization" in server.headers[0] and "authorization" not in other.headers[0]

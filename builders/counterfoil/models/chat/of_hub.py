"""Chat models that a server runs: of the Hub's providers, or at an address that speaks OpenAI's protocol.

Keys are read from where they are kept, go into a request's header and nowhere else. The login to the Hub goes to the
Hub alone: another address is given OPENAI_API_KEY of the environment, or nothing.

No key stands in a recipe, a record or a message (one that an answer repeats is cut out of it), and the address of a
chat model in a dataset's own recipe is asked nothing. Answers have bounds in bytes and time, headers included.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.loading_errors import one_line
from counterfoil.recipe.names import ELSEWHERE

Messages = Sequence[Mapping[str, str]]
"""Turns, oldest first, each with its `role` (user, assistant) and its `content`."""

# Models on a CPU take minutes for 512 tokens, and tell nothing until they are done.
SILENCE = 300.0
KEY = "OPENAI_API_KEY"
# Too many requests, and a model that is being loaded or overloaded.
_BUSY = (429, 503)
_TRIES = 3
_LONGEST_WAIT = 60.0  # seconds
_AGAIN = "Answers are kept: run the same command again to resume."
_MOST_SHOWN = 200
# Answers have some kilobytes; a whole one has come within so many times the longest silence.
_MOST_BYTES = 8_000_000
_SILENCES = 3
# A key of fewer letters is a word (servers without keys are given "EMPTY"), and words are no secrets.
_SHORTEST_SECRET = 8
_OF_THE_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[A-Za-z0-9-]+)?", re.ASCII)


@dataclass
class ServedChat:
    """A model that a server knows by its name. `structured` is false once the server took no schema."""

    name: str
    base_url: str | None
    silence: float
    structured: bool = True

    def answer(
        self, messages: Messages, *, schema: Mapping[str, Any], seed: int, most_tokens: int, temperature: float
    ) -> str:
        options = {"seed": seed, "max_tokens": most_tokens, "temperature": temperature}
        while True:
            wished = {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(schema), "strict": True}}
            more = {"response_format": wished} if self.structured else {}
            try:
                return self._asked([dict(message) for message in messages], options | more)
            except _NotTaken as refused:
                if not self.structured:
                    raise refused.failure from refused.__cause__
                self.structured = False

    def _asked(self, messages: list[dict[str, str]], options: dict[str, Any]) -> str:
        key = _key(self.base_url, self._called)
        question = {"model": self.name, "messages": messages, **options}
        for left in range(_TRIES - 1, -1, -1):
            answer = _posted(_address(self.base_url), key, question, self.silence, self._called, self.base_url)
            if answer.status == 200:
                return _text_of(answer, self._called, key)
            wait = _wait(answer) if left else None
            if wait is None:
                raise _status_error(answer, self._called, self.base_url, key)
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    @property
    def _called(self) -> str:
        return f"chat model '{self.name}'" + ("" if self.base_url is None else f" at {self.base_url}")


class _NotTaken(Exception):
    """The server took the question for a wrong one; perhaps it knows no schema. `failure` is what a person is shown."""

    def __init__(self, failure: RunFailure) -> None:
        super().__init__(*failure.problems)
        self.failure = failure


def load(name: str, base_url: str | None, device: str, silence: float) -> ServedChat:
    """The model, of which nothing is asked yet; the server has a device of its own.

    UserError for an address that only a stranger's recipe named, and for what is no name of the Hub.
    """
    if base_url is None and not _OF_THE_HUB.fullmatch(name):
        # The client would take an address for a model, and send it the login.
        raise UserError(
            f"chat model '{name[:80]}': expected one of the Hub (user/name, or user/name:provider)",
            "An address is base_url; a folder is ./NAME; transformers:user/name answers in this process.",
        )
    if base_url is not None and base_url.startswith(ELSEWHERE):
        raise UserError(
            f"chat model '{name}': its address {base_url.removeprefix(ELSEWHERE)[:80]} comes from a dataset's recipe",
            "If you trust it, give it yourself: --set mine.settings.chat.base_url=ADDRESS",
        )
    return ServedChat(name, base_url, silence)


def _key(base_url: str | None, called: str) -> str | None:
    """The key for an address: the login for the Hub, the environment's for others. UserError where one is missing."""
    from huggingface_hub import constants, get_token

    hub = base_url is None or _is_the_hubs(base_url, (constants.ENDPOINT, constants.INFERENCE_PROXY_TEMPLATE))
    key = get_token() if hub else os.environ.get(KEY, "").strip() or None
    where = "your login to the Hub (HF_TOKEN)" if hub else KEY
    if key is None and hub:
        raise UserError(f"{called}: the Hub's providers need a login, and you are not logged in", _login(hub))
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UserError(
            f"{called}: {where} holds characters that a request cannot carry", "Set it again, without line breaks."
        )
    return key


def _is_the_hubs(base_url: str, known: tuple[str, ...]) -> bool:
    own = urlsplit(base_url)
    hosts = {(parts.scheme, parts.netloc) for parts in map(urlsplit, known)}
    return (own.scheme, own.netloc) in hosts


def _login(hub: bool) -> str:
    return "Run `hf auth login`, or set HF_TOKEN." if hub else f"Set its key in the environment as {KEY}."


@dataclass(frozen=True)
class _Answer:
    """What came back: a status, when to ask again as the server says it, and at most `_MOST_BYTES` of a body."""

    status: int
    retry_after: str
    body: bytes


def _address(base_url: str | None) -> str:
    """Where questions go: an address with or without the protocol's own path."""
    from huggingface_hub import constants

    parts = urlsplit(base_url or constants.INFERENCE_PROXY_TEMPLATE.format(provider="v1"))
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path += "/chat/completions" if path.endswith("/v1") else "/v1/chat/completions"
    return urlunsplit(parts._replace(path=path))


def _posted(
    address: str, key: str | None, question: Mapping[str, Any], silence: float, called: str, base_url: str | None
) -> _Answer:
    """The server's answer, in bounded bytes and time. UserError or RunFailure where there is none.

    A thread asks, for a server that sends a byte now and then is never silent, in its headers least of all; one that
    is given up ends with the process.
    """
    import httpx2
    from huggingface_hub import constants

    if base_url is None and constants.HF_HUB_OFFLINE:
        raise RunFailure(f"{called}: the Hub's client is set to work offline", "Unset HF_HUB_OFFLINE, and connect.")
    found: SimpleQueue[_Answer | Exception] = SimpleQueue()
    # A packed answer would unpack to any size.
    headers = {"accept-encoding": "identity"} | ({} if key is None else {"authorization": f"Bearer {key}"})
    with httpx2.Client(timeout=silence, follow_redirects=True) as client:

        def ask() -> None:
            try:
                with client.stream("POST", address, json=question, headers=headers) as response:
                    found.put(_Answer(response.status_code, response.headers.get("Retry-After", ""), _body(response)))
            except Exception as error:  # of the client or the network; handled below
                found.put(error)

        Thread(target=ask, daemon=True).start()
        try:
            answer = found.get(timeout=silence * _SILENCES)
        except Empty:
            raise RunFailure(f"{called}: no complete answer in {silence * _SILENCES:g} seconds", _AGAIN) from None
    if isinstance(answer, _Answer):
        return answer
    match answer:
        case RunFailure():
            raise RunFailure([f"{called}: {problem}" for problem in answer.problems], answer.hint) from None
        case httpx2.TimeoutException():
            raise RunFailure(f"{called}: no data for {silence:g} seconds", _AGAIN) from answer
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            raise UserError(f"{called}: this is not an address", "It begins with http:// or https://.") from answer
        case httpx2.RemoteProtocolError():
            raise RunFailure(f"{called}: its answer is not HTTP: {one_line(answer)[:_MOST_SHOWN]}", _AGAIN) from answer
        case httpx2.HTTPError() | OSError():
            raise RunFailure(
                f"{called}: cannot be reached ({type(answer).__name__})",
                "Start the server, or correct base_url." if base_url else "Connect, and run the same command again.",
            ) from answer
    raise answer


def _body(response: Any) -> bytes:
    """RunFailure, without the model's name, for more bytes than any answer has, and for packed ones."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise RunFailure("its server compressed the answer without being asked to", _AGAIN)
    body = bytearray()
    for part in response.iter_raw():
        body += part
        if len(body) > _MOST_BYTES:
            raise RunFailure(f"its server's answer has more than {_MOST_BYTES:,} bytes", _AGAIN)
    return bytes(body)


def _text_of(answer: _Answer, called: str, key: str | None) -> str:
    """The text of an answer, without the key. RunFailure for what is not of the protocol; a refusal is a text too."""
    try:
        document = json.loads(answer.body)
        message = document["choices"][0]["message"]
        content = message.get("content")
        content = message.get("refusal") if content is None else content
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        said = _said(answer.body, key)
        raise RunFailure(f"{called}: its server's answer is not OpenAI's protocol: {said}", _AGAIN) from error
    if content is not None and not isinstance(content, str):
        raise RunFailure(f"{called}: its server's answer is {type(content).__name__}, expected text", _AGAIN)
    return _redacted(content or "", key)


def _wait(answer: _Answer) -> float | None:
    """Seconds after which a busy server may be asked again; None where waiting does not help, or is too long."""
    if answer.status not in _BUSY:
        return None
    asked = (answer.retry_after or "1").strip()
    digits = asked.replace(".", "", 1)
    wait = float(asked) if digits.isascii() and digits.isdecimal() else _LONGEST_WAIT + 1
    return wait if wait <= _LONGEST_WAIT else None


def _status_error(answer: _Answer, called: str, base_url: str | None, key: str | None) -> Exception:
    hub = base_url is None
    match answer.status:
        # What a server says of a key may repeat it: it is not shown.
        case 401:
            given = "the key that it was given" if key else "questions without a key"
            return UserError(f"{called}: refuses {given} (401)", _login(hub))
        case 403:
            return UserError(f"{called}: the key that it was given may not use it (403)", _login(hub))
        case 402:
            return RunFailure(f"{called}: needs payment (402)", "Check the account's credit; " + _AGAIN)
        case 404:
            return UserError(
                f"{called}: there is no such model or address (404)",
                "Correct the model's name" + ("." if hub else ", or base_url: it often ends with /v1."),
            )
        case 429:
            until = f" for {answer.retry_after} seconds" if answer.retry_after.isdigit() else ""
            return RunFailure(f"{called}: too many questions{until} (429)", f"Wait. {_AGAIN}")
    failure = RunFailure(f"{called}: answers {answer.status}: {_said(answer.body, key)}", _AGAIN)
    return _NotTaken(failure) if answer.status in (400, 422) else failure


def _said(body: bytes, key: str | None) -> str:
    """The beginning of a server's words, in one line, without the key."""
    words = _redacted(" ".join(body[:10_000].decode("utf-8", errors="replace").split()), key)
    shown = "".join(character if character.isprintable() else "�" for character in words[:_MOST_SHOWN])
    return shown or "nothing"


def _redacted(text: str, key: str | None) -> str:
    """A server's words without the key that it was given, which a record of them could publish."""
    return text.replace(key, "…") if key is not None and len(key) >= _SHORTEST_SECRET else text

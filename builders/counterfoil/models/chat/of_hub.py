"""Ask chat models on a server: the Hub's providers, or an address with OpenAI's protocol.

A key is sent only in a request's header, and is removed from an answer that repeats it. The login
to the Hub is sent only to the Hub; other addresses get OPENAI_API_KEY or no key. An address from a
dataset's own recipe is not contacted. The size of an answer and the time for it are bounded.
"""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from counterfoil.errors import RunFailure
from counterfoil.models.loading_errors import error_line
from counterfoil.models.messages import failure, message, refusal
from counterfoil.models.names import LAB, refuse_elsewhere
from counterfoil.recipe.names import ELSEWHERE

if TYPE_CHECKING:
    from ssl import SSLContext

    from PIL.Image import Image

Messages = Sequence[Mapping[str, str]]
"""Turns, oldest first, each with its `role` (user, assistant) and its `content`."""

# Seconds. A model on a CPU takes minutes for 512 tokens, and sends nothing until it is done.
SILENCE = 300.0
KEY = "OPENAI_API_KEY"
# HTTP statuses: too many requests; a model that is loading or overloaded.
_BUSY = (429, 503)
_TRIES = 3
_LONGEST_WAIT = 60.0  # seconds
_MOST_SHOWN = 200
_MOST_BYTES = 8_000_000  # usual answers have some kilobytes
# OpenAI's models scale larger images to this side, so more pixels would only be sent.
_LONGEST_SIDE = 2048
# An answer must be complete after this many times the longest silence.
_SILENCES = 3
# Shorter keys are words such as "EMPTY", for servers without keys. They are not secret.
_SHORTEST_SECRET = 8
_OF_THE_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[A-Za-z0-9-]+)?", re.ASCII)


@dataclass(frozen=True)
class Reply:
    """A server's answer. logprobs: what it gives as log-probabilities, which may be anything."""

    text: str
    logprobs: Any


@dataclass
class ServedChat:
    """A model on a server. `structured` becomes false when the server refuses a schema, and
    `with_likelihoods` when it refuses to give log-probabilities."""

    name: str
    base_url: str | None
    silence: float = SILENCE
    structured: bool = True
    with_likelihoods: bool = True

    def answer(
        self,
        messages: Messages,
        *,
        schema: Mapping[str, Any],
        seed: int,
        most_tokens: int,
        temperature: float,
    ) -> str:
        question = {
            "model": self.name,
            "messages": [dict(message) for message in messages],
            "seed": seed,
            "max_tokens": most_tokens,
            "temperature": temperature,
        }
        json_schema = {"name": "answer", "schema": dict(schema), "strict": True}
        if self.structured:
            try:
                return self._send(
                    question
                    | {"response_format": {"type": "json_schema", "json_schema": json_schema}}
                ).text
            except _RefusedQuestion:
                self.structured = False
        return self._send(question).text

    def reply(self, image: Image, question: str, *, most_tokens: int, top: int = 0) -> Reply:
        """Answer a question about an image, at temperature 0. top: how many likeliest tokens to ask
        the log-probabilities of; a server that refuses this is asked without it.

        The image is sent as PNG, and fits into 2,048 pixels.
        """
        content = [
            {"type": "image_url", "image_url": {"url": _data_url(image)}},
            {"type": "text", "text": question},
        ]
        request = {
            "model": self.name,
            "messages": [{"role": "user", "content": content}],
            "seed": 0,
            "max_tokens": most_tokens,
            "temperature": 0,
        }
        if top and self.with_likelihoods:
            try:
                return self._send(request | {"logprobs": True, "top_logprobs": top})
            except _RefusedQuestion:
                reply = self._send(request)  # raises if something else was refused
                self.with_likelihoods = False
                return reply
        return self._send(request)

    def _send(self, question: dict[str, Any]) -> Reply:
        """Return the answer to a question, and ask a busy server again. Raise `_RefusedQuestion` if
        it is refused."""
        key = self._key()
        for left in range(_TRIES - 1, -1, -1):
            answer = self._post(key, question)
            if answer.status == 200:
                return _reply_of(answer, self._called, key)
            wait = _wait(answer) if left else None
            if wait is None:
                raise _status_error(answer, self._called, self.base_url is None, key)
            time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _key(self) -> str | None:
        """Return the login for an address of the Hub, else the environment's key. Raise UserError
        without a login."""
        from huggingface_hub import constants, get_token

        hub = self.base_url is None
        if self.base_url is not None:
            hub_addresses = map(urlsplit, (constants.ENDPOINT, constants.INFERENCE_PROXY_TEMPLATE))
            address = urlsplit(self.base_url)
            hub = (address.scheme, address.netloc) in {
                (known.scheme, known.netloc) for known in hub_addresses
            }
        key = get_token() if hub else os.environ.get(KEY, "").strip() or None
        where = "your login to the Hub (HF_TOKEN)" if hub else KEY
        if key is None and hub:
            raise refusal("access-denied.login", self._called)
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise refusal("access-denied.characters", self._called, where)
        return key

    def _post(self, key: str | None, question: Mapping[str, Any]) -> _Answer:
        """Return the server's answer. Raise UserError or RunFailure if there is none, or if it is
        too large or late.

        A thread sends the request, because the client's timeout starts again with each byte.
        """
        import httpx2
        from huggingface_hub import constants

        if self.base_url is None and constants.HF_HUB_OFFLINE:
            raise failure("unavailable.offline", self._called)
        address = _address(self.base_url)
        results: SimpleQueue[_Answer | Exception] = SimpleQueue()
        # A compressed answer could unpack to any size.
        headers = {"accept-encoding": "identity"} | (
            {} if key is None else {"authorization": f"Bearer {key}"}
        )
        # Reading the certificates takes longer than a question. All questions share them.
        client = httpx2.Client(timeout=self.silence, follow_redirects=True, verify=_certificates())
        with client:

            def ask() -> None:
                try:
                    with client.stream("POST", address, json=question, headers=headers) as response:
                        retry_after = response.headers.get("Retry-After", "")
                        results.put(_Answer(response.status_code, retry_after, _body(response)))
                except Exception as error:  # an error of the client or the network, handled below
                    results.put(error)

            Thread(target=ask, daemon=True).start()
            try:
                answer = results.get(timeout=self.silence * _SILENCES)
            except Empty:
                seconds = self.silence * _SILENCES
                raise failure("chat-server.late", self._called, seconds) from None
        if isinstance(answer, _Answer):
            return answer
        match answer:
            case RunFailure():
                raise answer.at(self._called) from None
            case httpx2.TimeoutException():
                raise failure("chat-server.silent", self._called, self.silence) from answer
            case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
                raise refusal("chat-server.no-url", self._called) from answer
            case httpx2.RemoteProtocolError():
                reason = error_line(answer)[:_MOST_SHOWN]
                raise failure("chat-server.no-http", self._called, reason) from answer
            case httpx2.HTTPError() | OSError():
                sentence = "chat-server.unreachable" if self.base_url else "unavailable.provider"
                raise failure(sentence, self._called, type(answer).__name__) from answer
        raise answer

    @property
    def _called(self) -> str:
        at = "" if self.base_url is None else f" at {self.base_url}"
        return f"chat model '{self.name}'{at}"


@cache
def _certificates() -> SSLContext:
    import httpx2

    return httpx2.create_ssl_context()


class _RefusedQuestion(RunFailure):
    """The server refused the question as invalid, perhaps because it does not know schemas."""


def refuse_misnamed(name: str) -> None:
    """Raise UserError for a name that no chat model can have."""
    if not name.strip():
        raise refusal("unknown-model.chat")
    refuse_elsewhere(name, "chat model")
    if name.startswith(LAB):
        where = f"chat model '{name}'"
        raise refusal("unknown-model.lab-chat", where)


def load(name: str, base_url: str | None, device: str) -> ServedChat:
    """Return the model without contacting the server. Raise UserError for an address from a
    dataset's recipe."""
    if base_url is None and not _OF_THE_HUB.fullmatch(name):
        # If a name were an address, the Hub's client would send the login to this address.
        where = f"chat model '{name[:80]}'"
        raise refusal("unknown-model.provider", where)
    if base_url is not None and base_url.startswith(ELSEWHERE):
        address = base_url.removeprefix(ELSEWHERE)
        where = f"chat model '{name}'"
        raise refusal("untrusted-name.address", where, address)
    return ServedChat(name, base_url)


def _login(hub: bool) -> str:
    return (
        "Run `hf auth login`, or set HF_TOKEN."
        if hub
        else f"Set its key in the environment as {KEY}."
    )


@dataclass(frozen=True)
class _Answer:
    status: int
    retry_after: str
    body: bytes


def _address(base_url: str | None) -> str:
    """Return the address of the protocol's endpoint. `base_url` may already contain the endpoint's
    path."""
    from huggingface_hub import constants

    parts = urlsplit(base_url or constants.INFERENCE_PROXY_TEMPLATE.format(provider="v1"))
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path += "/chat/completions" if path.endswith("/v1") else "/v1/chat/completions"
    return urlunsplit(parts._replace(path=path))


def _data_url(image: Image) -> str:
    """Return an image as a PNG in an address. Larger ones are scaled down."""
    rgb = image.convert("RGB")
    rgb.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
    file = BytesIO()
    rgb.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _body(response: Any) -> bytes:
    """Read a body. Raise RunFailure, without the model's name, if the body is too large or
    compressed."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise failure("chat-server.compressed")
    body = bytearray()
    for part in response.iter_raw():
        body += part
        if len(body) > _MOST_BYTES:
            raise failure("chat-server.large", None, _MOST_BYTES)
    return bytes(body)


def _reply_of(answer: _Answer, called: str, key: str | None) -> Reply:
    """Return an answer, its text without the key. Raise RunFailure if it is not of the protocol."""
    try:
        document = json.loads(answer.body)
        choice = document["choices"][0]
        message = choice["message"]
        content = message.get("content")
        content = message.get("refusal") if content is None else content
        logprobs = choice.get("logprobs")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        shown = _shown(answer.body, key)
        raise failure("chat-server.protocol", called, shown) from error
    if content is not None and not isinstance(content, str):
        raise failure("chat-server.text", called, type(content).__name__)
    return Reply(_redacted(content or "", key), logprobs)


def _wait(answer: _Answer) -> float | None:
    """Return the seconds to wait before asking again, or None if waiting does not help or takes too
    long."""
    if answer.status not in _BUSY:
        return None
    seconds = (answer.retry_after or "1").strip()
    digits = seconds.replace(".", "", 1)
    if not (digits.isascii() and digits.isdecimal()):
        return None
    return float(seconds) if float(seconds) <= _LONGEST_WAIT else None


def _status_error(answer: _Answer, called: str, hub: bool, key: str | None) -> Exception:
    match answer.status:
        # The bodies of these errors may repeat the key: they are not shown.
        case 401:
            given = "the key that it was given" if key else "questions without a key"
            return refusal("access-denied.key", called, given, login=_login(hub))
        case 403:
            return refusal("access-denied.right", called, login=_login(hub))
        case 402:
            return failure("access-denied.payment", called)
        case 404:
            return refusal("unknown-model.on-hub" if hub else "unknown-model.on-server", called)
        case 429:
            until = f" for {answer.retry_after} seconds" if answer.retry_after.isdigit() else ""
            return failure("chat-server.busy", called, until)
    kind = _RefusedQuestion if answer.status in (400, 422) else RunFailure
    shown = _shown(answer.body, key)
    return kind(message("chat-server.status", called, answer.status, shown=shown))


def _shown(body: bytes, key: str | None) -> str:
    """Return the beginning of a body in one line, without the key."""
    text = body[:10_000].decode("utf-8", errors="replace")
    words = _redacted(" ".join(text.split()), key)[:_MOST_SHOWN]
    strange = {ord(character): "�" for character in words if not character.isprintable()}
    return words.translate(strange) or "nothing"


def _redacted(text: str, key: str | None) -> str:
    """Remove the key from a server's text, because the text may be stored and published."""
    if key is None or len(key) < _SHORTEST_SECRET:
        return text
    return text.replace(key, "…")

"""Chat models that a server runs: of the Hub's providers, or at an address that speaks OpenAI's protocol.

Keys are read from where they are kept, go into a request's header and nowhere else. The login to the Hub goes to the
Hub alone: another address is given OPENAI_API_KEY of the environment, or nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.chat.chat import Messages
from counterfoil.recipe.names import ELSEWHERE

# Models on a CPU take minutes for 512 tokens, and tell nothing until they are done.
SILENCE = 300.0
KEY = "OPENAI_API_KEY"
# Too many requests, and a model that is being loaded or overloaded.
_BUSY = (429, 503)
_TRIES = 3
_LONGEST_WAIT = 60.0  # seconds
_AGAIN = "What was answered is kept: run the same command again, and it goes on from there."
_MOST_SHOWN = 200
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
                    raise refused.told from refused.__cause__
                self.structured = False

    def _asked(self, messages: list[dict[str, str]], options: dict[str, Any]) -> str:
        from huggingface_hub import InferenceClient

        key = _key(self.base_url, self._called)
        # Without a key the client would send the login, whoever listens.
        headers: Any = {"authorization": None} if key is None else {}
        client = InferenceClient(
            model=self.name if self.base_url is None else None,
            base_url=self.base_url,
            api_key=key,
            timeout=self.silence,
            headers=headers,
        )
        for left in range(_TRIES - 1, -1, -1):
            try:
                return _text_of(client.chat_completion(messages, model=self.name, **options), self._called)
            except (RunFailure, UserError):
                raise
            except Exception as error:  # of the client, the network, or an answer of any content
                wait = _wait(error) if left else None
                if wait is None:
                    raise _told(error, self._called, self.base_url, self.silence, key) from error
                time.sleep(wait)
        raise AssertionError("the last try returns or raises")

    @property
    def _called(self) -> str:
        return f"chat model '{self.name}'" + ("" if self.base_url is None else f" at {self.base_url}")


class _NotTaken(Exception):
    """The server took the question for a wrong one; perhaps it knows no schema. `told` is what a person is told."""

    def __init__(self, told: RunFailure) -> None:
        super().__init__(*told.problems)
        self.told = told


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
            f"chat model '{name}': its address {base_url.removeprefix(ELSEWHERE)[:80]} is told by a dataset's recipe",
            "If you trust it, say it yourself: --set mine.settings.chat.base_url=ADDRESS",
        )
    return ServedChat(name, base_url, silence)


def _key(base_url: str | None, called: str) -> str | None:
    """The key for an address: the login for the Hub, the environment's for others. UserError where one is missing."""
    from huggingface_hub import constants, get_token

    hub = base_url is None or _is_the_hubs(base_url, (constants.ENDPOINT, constants.INFERENCE_PROXY_TEMPLATE))
    key = get_token() if hub else os.environ.get(KEY, "").strip() or None
    where = "your login to the Hub (HF_TOKEN)" if hub else KEY
    if key is None and hub:
        raise UserError(f"{called}: the Hub's providers want a login, and there is none", _login(hub))
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise UserError(f"{called}: {where} holds what no request can carry", "Set it again, without line breaks.")
    return key


def _is_the_hubs(base_url: str, known: tuple[str, ...]) -> bool:
    own = urlsplit(base_url)
    hosts = {(parts.scheme, parts.netloc) for parts in map(urlsplit, known)}
    return (own.scheme, own.netloc) in hosts


def _login(hub: bool) -> str:
    return "Run `hf auth login`, or set HF_TOKEN." if hub else f"Set its key in the environment as {KEY}."


def _text_of(answered: Any, called: str) -> str:
    """The text of the answer. RunFailure for what is not of the protocol; a refusal is a text too."""
    choices = getattr(answered, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    if message is None:
        raise RunFailure(f"{called}: its server's answer has no message in it, so it is not OpenAI's protocol", _AGAIN)
    content = message.get("content") if isinstance(message, Mapping) else getattr(message, "content", None)
    if content is None:
        content = message.get("refusal") if isinstance(message, Mapping) else getattr(message, "refusal", None)
    if content is not None and not isinstance(content, str):
        raise RunFailure(f"{called}: its server's answer is {type(content).__name__}, expected text", _AGAIN)
    return content or ""


def _wait(error: Exception) -> float | None:
    """Seconds after which a busy server may be asked again; None where waiting does not help, or is too long."""
    response = getattr(error, "response", None)
    if response is None or response.status_code not in _BUSY:
        return None
    asked = str(response.headers.get("Retry-After") or "1").strip()
    wait = float(asked) if asked.replace(".", "", 1).isdigit() else _LONGEST_WAIT + 1
    return wait if wait <= _LONGEST_WAIT else None


def _told(error: Exception, called: str, base_url: str | None, silence: float, key: str | None) -> Exception:
    """An error of the client in words, without what may be a key."""
    import httpx2
    from huggingface_hub import errors as hub

    if isinstance(error, hub.InferenceTimeoutError | httpx2.TimeoutException):
        return RunFailure(f"{called}: no word for {silence:g} seconds", _AGAIN)
    if isinstance(error, hub.OfflineModeIsEnabled):
        return RunFailure(f"{called}: the Hub's client is set to work offline", "Unset HF_HUB_OFFLINE, and connect.")
    response = getattr(error, "response", None)
    if response is not None and isinstance(error, hub.HfHubHTTPError):
        return _told_status(response, called, base_url, key)
    if isinstance(error, httpx2.HTTPError | OSError):
        return RunFailure(
            f"{called}: cannot be reached ({type(error).__name__})",
            "Start the server, or correct base_url." if base_url else "Connect, and run the same command again.",
        )
    said = _said(str(error), key)
    return RunFailure(f"{called}: its answer is none of OpenAI's protocol: {said} ({type(error).__name__})", _AGAIN)


def _told_status(response: Any, called: str, base_url: str | None, key: str | None) -> Exception:
    status = response.status_code
    hub = base_url is None
    match status:
        # What a server says of a key may repeat it: it is not shown.
        case 401:
            given = "the key that it was given" if key else "questions without a key"
            return UserError(f"{called}: refuses {given} (401)", _login(hub))
        case 403:
            return UserError(f"{called}: the key that it was given may not use it (403)", _login(hub))
        case 402:
            return RunFailure(f"{called}: wants to be paid (402)", "Look at the account's credit; " + _AGAIN)
        case 404:
            return UserError(
                f"{called}: there is no such model or address (404)",
                "Correct the model's name" + ("." if hub else ", or base_url: it often ends with /v1."),
            )
        case 429:
            after = response.headers.get("Retry-After")
            until = f" for {after} seconds" if str(after or "").isdigit() else ""
            return RunFailure(f"{called}: too many questions{until} (429)", f"Wait. {_AGAIN}")
    failure = RunFailure(f"{called}: answers {status}: {_said(_text_in(response), key)}", _AGAIN)
    return _NotTaken(failure) if status in (400, 422) else failure


def _text_in(response: Any) -> str:
    try:
        return str(response.text)
    except Exception:  # of a stream that nobody read, or of bytes that are no text
        return "nothing that can be read"


def _said(text: str, key: str | None) -> str:
    """The beginning of a server's words, in one line, without the key."""
    words = " ".join(text[:10_000].split())
    words = words.replace(key, "…") if key else words
    shown = "".join(character if character.isprintable() else "�" for character in words[:_MOST_SHOWN])
    return shown or "nothing"

"""Try again what the Hub did not do: which answers are worth another try, how long to wait, when to give up.

`diagnose` is a pure function from an error to a diagnosis; `with_retries` is the loop around it.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from counterfoil.errors import CounterfoilError, RunFailure, UserError

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError

T = TypeVar("T")

# Request time-out, another commit came first, too many requests; the server's own faults come as 5xx.
WORTH_ANOTHER_TRY = (408, 412, 429)
# A full disk of theirs or a method they lack does not pass by waiting.
NOT_WORTH_IT = (501, 505, 507)

_QUOTA = re.compile(r"quota|storage (limit|patterns|space)|exceed(s|ed)? .*storage", re.IGNORECASE)
# How the client words answers that it cannot use.
_MALFORMED = re.compile(r"LFS batch|[Mm]alformed response|[Ii]nvalid server response|improperly formatted")
# Signed addresses and tokens, which some messages quote.
_QUERY = re.compile(r"(https?://[^\s?]+)\?[^\s'\"]*")
_TOKEN = re.compile(r"\bhf_[\w.-]{6,}|(?i:bearer)\s+[^'\"]+")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to wait, in seconds.

    `asked` is the longest that the Hub may ask for, `silence` how long a connection may tell nothing.
    """

    tries: int = 8
    first: float = 1.0
    longest: float = 60.0
    asked: float = 4000.0  # quotas are counted by the hour
    silence: float = 120.0  # a commit may take the Hub a minute

    def wait(self, failed: int, retry_after: float | None, draw: float) -> float:
        """Seconds before the next try after `failed` failures in a row; `draw` is uniform in [0, 1).

        Exponential with full jitter above a half, so that many clients do not come back together; never sooner
        than the Hub asked for.
        """
        backoff = min(self.longest, self.first * 2 ** (failed - 1)) * (0.5 + draw / 2)
        return backoff if retry_after is None else max(retry_after + draw, backoff)


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What an error means: another try (after `retry_after` seconds, where the Hub says so), or the end."""

    again: bool
    reason: str
    retry_after: float | None = None
    final: CounterfoilError | None = None


def with_retries(
    call: Callable[[], T],
    what: str,
    *,
    tell: Callable[[str], None] = lambda line: None,
    patience: Patience = PATIENCE,
) -> T:
    """The result of `call`, which is tried again while that can help. `call` must be safe to repeat.

    `what` says what is being done, for messages. Raises the CounterfoilError of the last diagnosis.
    """
    failed = 0
    while True:
        try:
            return call()
        except CounterfoilError:
            raise
        except Exception as error:
            told = next((cause for cause in _chain(error) if isinstance(cause, CounterfoilError)), None)
            if told is not None:  # ours, from within an upload: the client wraps what its reading of a file raises
                raise told from told.__cause__
            diagnosis = diagnose(error, what)
            failed += 1
            if diagnosis.final is not None and not diagnosis.again:
                raise diagnosis.final from error
            if failed >= patience.tries or (diagnosis.retry_after or 0) > patience.asked:
                raise RunFailure(
                    f"{what}: gave up after {failed} {'tries' if failed > 1 else 'try'}, the last answer was: "
                    f"{diagnosis.reason}",
                    "What arrived is kept: run the same command again, and it goes on from there.",
                ) from error
            seconds = patience.wait(failed, diagnosis.retry_after, random.random())
            tell(f"{what}: {diagnosis.reason}; trying again in {seconds:.0f} s ({failed} of {patience.tries - 1})")
            time.sleep(seconds)


def diagnose(error: Exception, what: str) -> Diagnosis:
    """Whether another try can help. Errors that are no answer of the Hub or of the network are raised again."""
    import httpx2
    from huggingface_hub import errors as hub

    answer = _answer_in(error)
    if answer is not None:
        return _diagnose_answer(answer, what)
    if isinstance(error, hub.OfflineModeIsEnabled):
        hint = "Unset HF_HUB_OFFLINE, connect, and run the same command again."
        return Diagnosis(False, "offline", final=RunFailure(f"{what}: the Hub's client is set to work offline", hint))
    if isinstance(error, hub.LocalTokenNotFoundError):
        return Diagnosis(False, "no token", final=_no_token(what))
    if any(isinstance(cause, httpx2.LocalProtocolError | UnicodeEncodeError) for cause in _chain(error)):
        return Diagnosis(False, "a token that no request can carry", final=_no_token(what))
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno and cause.filename:
            return Diagnosis(False, "a file", final=RunFailure(f"{what}: {cause.filename}: {cause.strerror}"))
        if isinstance(cause, httpx2.TransportError | ConnectionError | TimeoutError):
            return Diagnosis(True, f"the connection failed ({without_secrets(str(cause)) or type(cause).__name__})")
    text = without_secrets(str(error))
    if _QUOTA.search(text):
        return Diagnosis(False, text, final=_quota(what, text))
    if isinstance(error, ValueError) and _MALFORMED.search(text):
        return Diagnosis(True, text)
    if type(error).__module__.partition(".")[0] == "hf_xet":  # the storage's own client, which renews its tokens
        return Diagnosis(True, text or type(error).__name__)
    if isinstance(error, RuntimeError | httpx2.HTTPError):  # an upload that broke off, or an answer that did
        return Diagnosis(True, text or type(error).__name__)
    if isinstance(error, json.JSONDecodeError):
        return Diagnosis(True, "an answer broke off")
    raise error


def without_secrets(text: str) -> str:
    """A message on one line without signed addresses' queries and without tokens."""
    return _TOKEN.sub("…", _QUERY.sub(r"\1", " ".join(text.split())))


def _answer_in(error: BaseException) -> HfHubHTTPError | None:
    """The Hub's answer that an error tells of; uploads wrap it in others."""
    from huggingface_hub.errors import HfHubHTTPError

    return next((cause for cause in _chain(error) if isinstance(cause, HfHubHTTPError)), None)


def _chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__
    return found


def _diagnose_answer(error: HfHubHTTPError, what: str) -> Diagnosis:
    status = error.response.status_code
    said = without_secrets(error.server_message or "")
    reason = f"the Hub answers {status}" + (f" ({said})" if said else "")
    if status in WORTH_ANOTHER_TRY or (status >= 500 and status not in NOT_WORTH_IT):
        return Diagnosis(True, reason, retry_after=retry_after(error.response.headers))
    if status == 507 or _QUOTA.search(said):
        return Diagnosis(False, reason, final=_quota(what, said or reason))
    if status in (400, 403, 404, 410) and not _is_of_the_hub(str(error.response.url)):
        # Of a signed address at the storage: it ran out, and the next try gets a new one.
        return Diagnosis(True, f"an address of the storage was refused ({status})")
    return Diagnosis(False, reason, final=_refusal(status, what, reason))


def _is_of_the_hub(address: str) -> bool:
    """Whether an address is the Hub's own; contents come from and go to others, by signed addresses."""
    from huggingface_hub import constants

    return address.startswith(constants.ENDPOINT.rstrip("/") + "/")


def _refusal(status: int, what: str, reason: str) -> CounterfoilError:
    match status:
        case 401:
            return _no_token(what)
        case 403:
            return UserError(
                f"{what}: not allowed: {reason}",
                "Check the user or organisation in the name, and that the token may write there (`hf auth whoami`).",
            )
        case 404:
            return UserError(
                f"{what}: there is no such repository or revision, or it is private: {reason}",
                "Check the name, and whose token is used (`hf auth whoami`).",
            )
        case 409:
            return UserError(f"{what}: the name is taken, or what is there conflicts: {reason}", "Choose another name.")
        case 413:
            return RunFailure(f"{what}: too much for one request: {reason}", "Lower --files-per-commit.")
    return RunFailure(f"{what}: {reason}")


def _no_token(what: str) -> UserError:
    return UserError(f"{what}: the Hub knows no valid token of yours", "Run `hf auth login`, or set HF_TOKEN.")


def _quota(what: str, said: str) -> RunFailure:
    return RunFailure(
        f"{what}: the storage quota does not allow it: {said}",
        "Free some space, publish under an organisation with more, or build without rejected images.",
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the Hub asks to wait: Retry-After (seconds or a date), or what its RateLimit header tells."""
    from email.utils import parsedate_to_datetime

    from huggingface_hub.utils import parse_ratelimit_headers

    value = str(headers.get("Retry-After") or "").strip()
    if value.replace(".", "", 1).isdigit():
        return float(value)
    if value:
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None
    limits = parse_ratelimit_headers(headers)
    return float(limits.reset_in_seconds) if limits is not None and limits.remaining == 0 else None

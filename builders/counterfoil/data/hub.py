"""The Hugging Face Hub from the outside: where a dataset's directory is, and a client that neither hangs nor gives up.

`locate_dataset` finds or fetches a directory. While we publish, `attentive_client` watches the Hub's own client, and
`with_retries` is a loop around `diagnose`, a pure function from an error to what it means.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.regular_files import named_path

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError


# The Hub's rule for names, without its special cases, which the Hub itself refuses with a message.
_REFERENCE = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A dataset repository, and a branch, tag or commit of it; None is the default branch."""

    repo: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubDataset | None:
        """The reference that a text is; None for any other text."""
        match = _REFERENCE.fullmatch(text)
        return None if match is None else cls(match["repo"], match["revision"])

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


@dataclass(frozen=True, slots=True)
class LocatedDataset:
    """A directory on this machine; `reference` tells the published dataset that it is a copy of.

    A copy belongs to the Hub client's cache: it is read, never written to.
    """

    directory: Path
    reference: HubDataset | None = None


def locate_dataset(source: str | Path, patterns: Sequence[str] | None = None) -> LocatedDataset:
    """The directory of a path or of `user/name[@revision]`, fetched from the Hub where it is not here yet.

    `patterns` are globs of the files wanted of a published dataset; None is all. Raises UserError where there
    is no such dataset, RunFailure where the Hub cannot be reached.
    """
    source = str(source)
    directory = named_path(source)
    if directory.is_dir():
        return LocatedDataset(directory)
    if directory.exists():
        raise UserError(f"{source} is a file; a dataset is a directory", "Name the folder given to `build --out`.")
    reference = HubDataset.parse(source)
    if reference is None:
        raise UserError(f"there is no dataset {source}", "Name a folder made by `counterfoil build`, or user/name.")
    return LocatedDataset(_fetched(reference, patterns), reference)


def _fetched(reference: HubDataset, patterns: Sequence[str] | None) -> Path:
    import httpx2
    from huggingface_hub import errors, snapshot_download

    wanted = None if patterns is None else list(patterns)
    try:
        folder = snapshot_download(
            reference.repo, repo_type="dataset", revision=reference.revision, allow_patterns=wanted
        )
    except errors.HFValidationError as error:
        raise UserError(
            f"'{reference}' is not the name of a dataset on the Hub: {error}", "Expected user/name."
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise UserError(
            f"there is no folder {reference}, and no such dataset on the Hub (or it is private)",
            "Check the name, or run `hf auth login`.",
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise RunFailure(
            f"there is no folder {reference}, it is not in the local cache, and the Hub cannot be reached",
            "Check the path, or connect and run the same command again.",
        ) from error
    except (errors.HfHubHTTPError, httpx2.HTTPError, OSError, RuntimeError) as error:
        said = without_secrets(str(error)) or type(error).__name__
        raise RunFailure(
            f"{reference} could not be fetched from the Hub: {said}", "Run the same command again: it resumes."
        ) from error
    return Path(folder)


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
class AnotherTry:
    """Why another try can help, and after how many seconds, where the Hub says so."""

    reason: str
    retry_after: float | None = None


def with_retries(
    call: Callable[[], T],
    what: str,
    *,
    tell: Callable[[str], None] = lambda line: None,
    patience: Patience = PATIENCE,
) -> T:
    """The result of `call`, which is repeated while that can help. `call` must be safe to repeat.

    `what` says what is being done, for messages. Raises as `diagnose`, and RunFailure if every try fails.
    """
    failed = 0
    while True:
        try:
            return call()
        except CounterfoilError:
            raise
        except Exception as error:
            own = next((cause for cause in _chain(error) if isinstance(cause, CounterfoilError)), None)
            if own is not None:  # ours, from within an upload: the client wraps what its reading of a file raises
                raise own from own.__cause__
            again = diagnose(error, what)
            failed += 1
            if failed >= patience.tries or (again.retry_after or 0) > patience.asked:
                raise RunFailure(
                    f"{what}: gave up after {failed} {'tries' if failed > 1 else 'try'}; the last error:"
                    f" {again.reason}",
                    "What was transferred is kept: run the same command again to resume.",
                ) from error
            seconds = patience.wait(failed, again.retry_after, random.random())
            tell(f"{what}: {again.reason}; trying again in {seconds:.0f} s (try {failed} of {patience.tries - 1})")
            time.sleep(seconds)


def diagnose(error: Exception, what: str) -> AnotherTry:
    """Why another try can help. The CounterfoilError where none can, which says what to do.

    Errors that are no answer of the Hub or of the network are raised again.
    """
    import httpx2
    from huggingface_hub import errors as hub

    answer = _answer_in(error)
    if answer is not None:
        return _diagnose_answer(answer, what)
    if isinstance(error, hub.OfflineModeIsEnabled):
        hint = "Unset HF_HUB_OFFLINE, connect, and run the same command again."
        raise RunFailure(f"{what}: the Hub's client is set to work offline", hint)
    unfit = httpx2.LocalProtocolError | UnicodeEncodeError  # of a token that no request can carry
    if isinstance(error, hub.LocalTokenNotFoundError) or any(isinstance(cause, unfit) for cause in _chain(error)):
        raise _no_token(what)
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno and cause.filename:
            raise RunFailure(f"{what}: {cause.filename}: {cause.strerror}")
        if isinstance(cause, httpx2.TransportError | ConnectionError | TimeoutError):
            return AnotherTry(f"the connection failed ({without_secrets(str(cause)) or type(cause).__name__})")
    text = without_secrets(str(error))
    if _QUOTA.search(text):
        raise _quota(what, text)
    if isinstance(error, ValueError) and _MALFORMED.search(text):
        return AnotherTry(text)
    if type(error).__module__.partition(".")[0] == "hf_xet":  # the storage's own client, which renews its tokens
        return AnotherTry(text or type(error).__name__)
    if isinstance(error, RuntimeError | httpx2.HTTPError):  # an upload that broke off, or an answer that did
        return AnotherTry(text or type(error).__name__)
    if isinstance(error, json.JSONDecodeError):
        return AnotherTry("an answer ended too early")
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


def _diagnose_answer(error: HfHubHTTPError, what: str) -> AnotherTry:
    status = error.response.status_code
    said = without_secrets(error.server_message or "")
    reason = f"the Hub answers {status}" + (f" ({said})" if said else "")
    if status in WORTH_ANOTHER_TRY or (status >= 500 and status not in NOT_WORTH_IT):
        return AnotherTry(reason, retry_after=retry_after(error.response.headers))
    if status == 507 or _QUOTA.search(said):
        raise _quota(what, said or reason)
    if status in (400, 403, 404, 410) and not _is_of_the_hub(str(error.response.url)):
        # Of a signed address at the storage: it ran out, and the next try gets a new one.
        return AnotherTry(f"the storage refused an address ({status})")
    raise _refusal(status, what, reason)


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
                "Check the user or organisation in the name, and that your token may write there (`hf auth whoami`).",
            )
        case 404:
            return UserError(
                f"{what}: there is no such repository or revision, or it is private: {reason}",
                "Check the name, and which account your token belongs to (`hf auth whoami`).",
            )
        case 409:
            return UserError(
                f"{what}: the name is taken, or the repository conflicts: {reason}", "Choose another name."
            )
        case 413:
            return RunFailure(f"{what}: too much for one request: {reason}", "Lower --files-per-commit.")
    return RunFailure(f"{what}: {reason}")


def _no_token(what: str) -> UserError:
    return UserError(f"{what}: you have no valid token for the Hub", "Run `hf auth login`, or set HF_TOKEN.")


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


@contextlib.contextmanager
def attentive_client(patience: Patience) -> Iterator[None]:
    """Within it, the client of `huggingface_hub` is watched; then it is as it was.

    A connection that is silent for `patience.silence` seconds is given up, where the client would wait forever. An
    answer that asks for a wait longer than `patience.longest` is raised, where the client would sleep unheard.
    """
    import httpx2
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging
    from huggingface_hub.utils._http import default_client_factory, hf_raise_for_status

    limits = httpx2.Timeout(patience.silence).as_dict()

    def limit(request: httpx2.Request) -> None:
        request.extensions["timeout"] = limits  # here, since some calls ask for none themselves

    def tell_of_waits(response: httpx2.Response) -> None:
        if response.status_code >= 400 and (retry_after(response.headers) or 0) > patience.longest:
            response.read()
            hf_raise_for_status(response)

    def factory() -> httpx2.Client:
        client = default_client_factory()
        client.event_hooks["request"].append(limit)
        client.event_hooks["response"].append(tell_of_waits)
        return client

    shown, level = not are_progress_bars_disabled(), logging.get_verbosity()
    disable_progress_bars()
    logging.set_verbosity(logging.CRITICAL)
    set_client_factory(factory)
    try:
        yield
    finally:
        set_client_factory(default_client_factory)
        logging.set_verbosity(level)
        if shown:
            enable_progress_bars()

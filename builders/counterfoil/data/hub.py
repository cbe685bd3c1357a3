"""The Hugging Face Hub: find or fetch a dataset's directory, and retry failed requests for a
limited time."""

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

from counterfoil.data.messages import failure, refusal
from counterfoil.errors import CounterfoilError
from counterfoil.regular_files import named_path

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError


# The Hub's rule for names. Special cases are left out, because the Hub itself refuses them with a
# message.
_REFERENCE = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?"
)


@dataclass(frozen=True, slots=True)
class HubDataset:
    """A dataset repository, and one of its branches, tags or commits. The revision None is the
    default branch."""

    repo: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubDataset | None:
        """Parse `user/name[@revision]`. Return None for any other text."""
        match = _REFERENCE.fullmatch(text)
        return None if match is None else cls(match["repo"], match["revision"])

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


@dataclass(frozen=True, slots=True)
class LocatedDataset:
    """A directory on this machine. If it is a read-only copy of a published dataset, `reference`
    names that dataset."""

    directory: Path
    reference: HubDataset | None = None


def locate_dataset(source: str | Path, patterns: Sequence[str] | None = None) -> LocatedDataset:
    """Return the directory of a path, or of `user/name[@revision]`, which is fetched if it is not
    cached.

    patterns: globs of the wanted files. Raise UserError if there is no such dataset, and RunFailure
    if the Hub is unreachable.
    """
    source = str(source)
    directory = named_path(source)
    if directory.is_dir():
        return LocatedDataset(directory)
    if directory.exists():
        raise refusal("unknown-dataset.file", source)
    reference = HubDataset.parse(source)
    if reference is None:
        raise refusal("unknown-dataset.path", source)
    return LocatedDataset(
        fetch_dataset_files(reference.repo, reference.revision, patterns), reference
    )


def fetch_dataset_files(
    repo: str,
    revision: str | None,
    patterns: Sequence[str] | None = None,
    without: Sequence[str] | None = None,
) -> Path:
    """Fetch the files of a dataset, those of `patterns` or all, but for those of `without`. Return
    their folder in the Hub client's cache.

    Raise UserError if there is no such dataset, and RunFailure if the Hub is unreachable.
    """
    import httpx2
    from huggingface_hub import errors, snapshot_download

    reference = HubDataset(repo, revision)
    wanted = None if patterns is None else list(patterns)
    ignored = None if without is None else list(without)
    try:
        folder = snapshot_download(
            repo,
            repo_type="dataset",
            revision=revision,
            allow_patterns=wanted,
            ignore_patterns=ignored,
        )
    except errors.HFValidationError as error:
        raise refusal("unknown-dataset.reference", reference, error) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise refusal("unknown-dataset.hub", reference) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise failure("hub-unreachable.folder", reference) from error
    except (errors.HfHubHTTPError, httpx2.HTTPError, OSError, RuntimeError) as error:
        reason = without_secrets(str(error)) or type(error).__name__
        raise failure("hub-unreachable.fetch", reference, reason) from error
    return Path(folder)


T = TypeVar("T")
Raised = TypeVar("Raised", bound=BaseException)

# HTTP statuses that deserve another try: request time-out, another commit came first, too many
# requests. Server errors come as 5xx.
WORTH_ANOTHER_TRY = (408, 412, 429)
# What a person can mend.
_MISTAKES = {
    401: "hub-refused.token",
    403: "hub-refused.rights",
    404: "hub-refused.missing",
    409: "hub-refused.conflict",
}
# Server errors that waiting does not mend: not implemented, a version that the server lacks, a full
# disk.
NOT_WORTH_IT = (501, 505, 507)

_QUOTA = re.compile(r"quota|storage (limit|patterns|space)|exceed(s|ed)? .*storage", re.IGNORECASE)
# Words of the Hub's client for answers that it cannot use.
_MALFORMED = re.compile(
    r"LFS batch|[Mm]alformed response|[Ii]nvalid server response|improperly formatted"
)
# The addresses in some messages are signed: the part after "?" is a secret.
_QUERY = re.compile(r"(https?://[^\s?]+)\?[^\s'\"]*")
_TOKEN = re.compile(r"\bhf_[\w.-]{6,}|(?i:bearer)\s+[^'\"]+")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. longest_asked: the longest wait that the Hub may ask for. silence: the
    longest silence of a connection. Both are in seconds.
    """

    tries: int = 8
    first: float = 1.0
    longest: float = 60.0
    longest_asked: float = 4000.0  # quotas are counted by the hour
    silence: float = 120.0  # a commit may take the Hub a minute

    def wait(self, failed: int, retry_after: float | None, draw: float) -> float:
        """Return the seconds to wait after `failed` failures in a row. `draw` adds jitter, so that
        clients do not all return at the same moment.
        """
        doubled = self.first * 2 ** (failed - 1)
        backoff = min(self.longest, doubled) * (0.5 + draw / 2)
        return backoff if retry_after is None else max(retry_after + draw, backoff)


PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class AnotherTry:
    """The reason why another try can help, and the seconds to wait if the Hub asks for a wait."""

    reason: str
    retry_after: float | None = None


def with_retries(
    call: Callable[[], T],
    what: str,
    *,
    tell: Callable[[str], None] = lambda line: None,
    patience: Patience = PATIENCE,
) -> T:
    """Call `call`, which must be safe to repeat, until it succeeds or a repetition cannot help.
    Return its result."""
    failed = 0
    while True:
        try:
            return call()
        except CounterfoilError:
            raise
        except Exception as error:
            ours = _cause(error, CounterfoilError)
            # raised while a file was read for an upload, and wrapped by the client
            if ours is not None:
                raise ours from ours.__cause__
            again = diagnose(error, what)
            failed += 1
            if failed >= patience.tries or (again.retry_after or 0) > patience.longest_asked:
                raise failure("hub-unreachable.tries", what, again.reason, tries=failed) from error
            seconds = patience.wait(failed, again.retry_after, random.random())
            tell(
                f"{what}: {again.reason}; trying again in {seconds:.0f} s (try {failed} of"
                f" {patience.tries - 1})"
            )
            time.sleep(seconds)


def diagnose(error: Exception, what: str) -> AnotherTry:
    """Return why another try can help. If it cannot, raise a CounterfoilError, or the error itself
    if the Hub did not cause it.
    """
    import httpx2
    from huggingface_hub import errors as hub

    answer = _cause(error, hub.HfHubHTTPError)
    if answer is not None:
        return _diagnose_answer(answer, what)
    if isinstance(error, hub.OfflineModeIsEnabled):
        raise failure("hub-unreachable.offline", what)
    # raised for a token that no request can carry
    unfit = _cause(error, httpx2.LocalProtocolError) or _cause(error, UnicodeEncodeError)
    if unfit is not None or isinstance(error, hub.LocalTokenNotFoundError):
        raise refusal("hub-refused.token", what)
    for cause in _chain(error):
        if isinstance(cause, OSError) and cause.errno and cause.filename:
            reason = f"{cause.filename}: {cause.strerror}"
            raise failure("hub-unreachable.file", what, reason)
        if isinstance(cause, httpx2.TransportError | ConnectionError | TimeoutError):
            return AnotherTry(
                f"the connection failed ({without_secrets(str(cause)) or type(cause).__name__})"
            )
    text = without_secrets(str(error))
    if _QUOTA.search(text):
        raise failure("hub-refused.quota", what, text)
    if isinstance(error, ValueError) and _MALFORMED.search(text):
        return AnotherTry(text)
    # the client of the storage, which renews its tokens
    of_storage = type(error).__module__.partition(".")[0] == "hf_xet"
    # or an upload or an answer broke off
    if of_storage or isinstance(error, RuntimeError | httpx2.HTTPError):
        return AnotherTry(text or type(error).__name__)
    if isinstance(error, json.JSONDecodeError):
        return AnotherTry("an answer ended too early")
    raise error


def without_secrets(text: str) -> str:
    """Return a message on one line, with tokens and the queries of signed addresses removed."""
    line = _QUERY.sub(r"\1", " ".join(text.split()))
    return _TOKEN.sub("…", line)


def _chain(error: BaseException) -> list[BaseException]:
    chain = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__
    return chain


def _cause(error: Exception, kind: type[Raised]) -> Raised | None:
    """Return the first error of a kind in the chain of causes, or None."""
    return next((cause for cause in _chain(error) if isinstance(cause, kind)), None)


def _diagnose_answer(error: HfHubHTTPError, what: str) -> AnotherTry:
    from huggingface_hub import constants

    status = error.response.status_code
    message = without_secrets(error.server_message or "")
    reason = f"the Hub answers {status}" + (f" ({message})" if message else "")
    if status in WORTH_ANOTHER_TRY or (status >= 500 and status not in NOT_WORTH_IT):
        return AnotherTry(reason, retry_after=retry_after(error.response.headers))
    if status == 507 or _QUOTA.search(message):
        raise failure("hub-refused.quota", what, message or reason)
    # Files are transferred from signed addresses of other hosts.
    hub = constants.ENDPOINT.rstrip("/")
    is_of_the_hub = str(error.response.url).startswith(f"{hub}/")
    if status in (400, 403, 404, 410) and not is_of_the_hub:
        # A signed address of the storage has expired; the next try gets a new one.
        return AnotherTry(f"the storage refused an address ({status})")
    if status in _MISTAKES:
        raise refusal(_MISTAKES[status], what, reason)
    name = "hub-refused.large" if status == 413 else "hub-refused.other"
    raise failure(name, what, reason)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the Hub asks to wait, from Retry-After (seconds or a date) or from
    its RateLimit header.
    """
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
    """Make the Hub's client raise an error for silent connections and long waits in this block. By
    default it would wait.
    """
    import httpx2
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
        logging,
    )
    from huggingface_hub.utils._http import default_client_factory, hf_raise_for_status

    limits = httpx2.Timeout(patience.silence).as_dict()

    def limit(request: httpx2.Request) -> None:
        # set for each request, since some calls set no limits
        request.extensions["timeout"] = limits

    def tell_of_waits(response: httpx2.Response) -> None:
        if response.status_code >= 400 and (retry_after(response.headers) or 0) > patience.longest:
            response.read()
            hf_raise_for_status(response)

    def factory() -> httpx2.Client:
        client = default_client_factory()
        client.event_hooks["request"].append(limit)
        client.event_hooks["response"].append(tell_of_waits)
        return client

    shown = not are_progress_bars_disabled()
    level = logging.get_verbosity()
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

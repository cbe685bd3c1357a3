"""The loopback Hub: a small Hugging Face Hub on 127.0.0.1 for the real clients, with its storage in
a folder."""

from __future__ import annotations

import copy
import hashlib
import hmac
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from loopback_hub import attributes
from loopback_hub.answers import Answer, Refusal, repository_not_found
from loopback_hub.calls import Call, LoggedRequest
from loopback_hub.clients import OBSERVER
from loopback_hub.contents import Contents, Received
from loopback_hub.faults import Faults
from loopback_hub.gitlike import Commit
from loopback_hub.limits import Limits
from loopback_hub.repository import MAIN, Repository
from loopback_hub.routes import route
from loopback_hub.server import Server

# Far beyond what a hook needs that loads a dataset in a process of its own.
_HOOK_WAIT = 300
SIGNATURE = "X-Amz-Signature"
EXPIRY = "X-Amz-Expires-At"


class LoopbackHub:
    """A Hub server with one user, as a context manager; repositories are datasets by default.

    `endpoint` goes into `HF_ENDPOINT` or `HfApi(endpoint=…)`. Blobs live on a second port
    (`storage_endpoint`), as on the Hub, where tokens are refused and signed addresses are asked
    for. `on_request` is called with the log entry of each request after its work and before its
    answer; see `server` and `clients.OBSERVER`.

    `multipart_above`: blobs of more bytes are received in parts of `part_size`. `page_size`:
    entries a page of lists. `upload_url_lifetime`: seconds. `most_files_a_commit`: more operations
    are refused with 413. `commit_quota`: commits an hour to a repository; `call_quota`: calls in
    five minutes; `storage_quota`: bytes of LFS blobs. `sleep_scale`: the one of the clients, so
    that a quota's hour passes as fast for the server as for them. `port`: of the endpoint; OSError
    where another has it.

    What a hook raises, or an endpoint that breaks, is raised at the end of the `with`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        user: str = "someone",
        token: str = "hf_loopback_token_of_someone",
        faults: Faults | None = None,
        on_request: Callable[[LoggedRequest], None] | None = None,
        multipart_above: int | None = None,
        part_size: int = 1 << 20,
        page_size: int = 50,
        upload_url_lifetime: float = 900,
        most_files_a_commit: int | None = None,
        commit_quota: int | None = None,
        call_quota: int | None = None,
        storage_quota: int | None = None,
        sleep_scale: float = 1.0,
        port: int = 0,
    ) -> None:
        self.folder = Path(folder)
        self.user = user
        self.token = token
        self.read_token = f"{token}_that_only_reads"
        self.faults = faults or Faults()
        self.on_request = on_request
        self.multipart_above = multipart_above
        self.part_size = part_size
        self.page_size = page_size
        self.upload_url_lifetime = upload_url_lifetime
        self.most_files_a_commit = most_files_a_commit
        self.requests: list[LoggedRequest] = []
        self.lock = threading.RLock()
        self.contents = Contents(self.folder)
        self.limits = Limits(
            commits=commit_quota, calls=call_quota, storage=storage_quota, scale=sleep_scale
        )
        self._broken: list[Exception] = []
        self._hook_lock = threading.Lock()
        self._secret = secrets.token_bytes(16)
        self._repositories: dict[tuple[str, str], Repository] = {}
        for state in sorted(self.folder.glob("repositories/*/*/*/repository.json")):
            repository = Repository.read(state.parent)
            self._repositories[repository.kind, repository.name] = repository
        self._servers = (Server(self, storage=False, port=port), Server(self, storage=True))

    def __enter__(self) -> LoopbackHub:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        if self._broken and kind is None:
            raise ExceptionGroup("the loopback Hub or its hook broke", self._broken)

    @property
    def endpoint(self) -> str:
        return self._servers[0].address

    @property
    def storage_endpoint(self) -> str:
        return self._servers[1].address

    # What tests look at.

    def repository(self, name: str, kind: str = "dataset") -> Repository:
        return self._repositories[kind, name]

    def branch(self, name: str, revision: str = MAIN, kind: str = "dataset") -> dict[str, bytes]:
        """Return path → content of every file of a revision."""
        with self.lock:
            tree = self.repository(name, kind).head(revision).tree
        return {path: self.contents.read(entry) for path, entry in sorted(tree.items())}

    def commits(self, name: str, revision: str = MAIN, kind: str = "dataset") -> list[Commit]:
        """Return the commits of a revision, newest first."""
        with self.lock:
            return list(self.repository(name, kind).history(revision))

    def keep(self, name: str, kind: str = "dataset") -> Repository:
        """Return a copy of a repository for `put_back`."""
        with self.lock:
            return copy.deepcopy(self.repository(name, kind))

    def put_back(self, repository: Repository) -> None:
        """Restore a repository from a copy, without the blobs that came since."""
        with self.lock:
            self._repositories[repository.kind, repository.name] = copy.deepcopy(repository)

    def know(self, name: str, content: bytes, kind: str = "dataset") -> None:
        """Give a repository a blob that it did not receive, as if of an earlier upload."""
        sha256 = hashlib.sha256(content).hexdigest()
        self.contents.blob(sha256).write_bytes(content)
        with self.lock:
            self.repository(name, kind).blobs.add(sha256)

    @property
    def uploads(self) -> Mapping[str, Received]:
        """Sha256 → how often a blob came in whole, and how many bytes came in for it."""
        return self.contents.uploads

    # What endpoints ask for.

    def answer(self, call: Call, *, storage: bool) -> Answer:
        if not storage and not call.log.observer and "/resolve/" not in call.path:
            self.limits.count_call()
        return route(self, call, storage=storage)

    def identify(self, authorization: str | None, *, storage: bool) -> tuple[str | None, bool]:
        """Return the user of a token and whether it may write. Refuse a wrong token, and any token
        at the storage."""
        if authorization is None:
            return None, False
        if storage:
            raise Refusal(400, "Only one auth mechanism allowed")
        for token, may_write in ((self.token, True), (self.read_token, False)):
            if hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
                return self.user, may_write
        raise Refusal(401, "Invalid credentials in Authorization header")

    def find(self, call: Call, kind: str, name: str, *, write: bool = False) -> Repository:
        """Return a repository that the caller may see; with `write`, it must be allowed to change
        it too."""
        repository = self._repositories.get((kind, name))
        owned = call.user is not None and call.user == name.partition("/")[0]
        if repository is None or (repository.private and not owned):
            raise repository_not_found(known=call.user is not None)
        if write and not owned:
            raise Refusal(
                401 if call.user is None else 403,
                "You don't have the rights to write to this repository",
            )
        if write and not call.may_write:
            raise Refusal(403, "Forbidden: you must use a write token to upload to a repository.")
        return repository

    def create(self, kind: str, name: str, *, private: bool) -> Repository:
        """Create a repository with its first commit, as the Hub does. Raises Refusal if the name is
        taken."""
        with self.lock:
            if (kind, name) in self._repositories:
                url = self.web_address(kind, name)
                raise Refusal(
                    409, f"You already created this {kind} repo", more={"url": url, "name": name}
                )
            repository = Repository(kind, name, self.folder / "repositories" / kind / name, private)
            entry = self.contents.keep(attributes.INITIAL.encode())
            repository.commit(MAIN, {".gitattributes": entry}, "initial commit", author="system")
            self._repositories[kind, name] = repository
            return repository

    def delete(self, repository: Repository) -> None:
        with self.lock:
            del self._repositories[repository.kind, repository.name]
            shutil.rmtree(repository.folder)

    def check_storage(self, repository: Repository, wanted: list[Mapping[str, Any]]) -> None:
        with self.lock:
            stored = {sha256 for repo in self._repositories.values() for sha256 in repo.blobs}
        size = sum(self.contents.size(sha256) or 0 for sha256 in stored)
        self.limits.check_storage(
            size, sum(int(blob.get("size", 0)) for blob in wanted), private=repository.private
        )

    def add_blob(self, call: Call, sha256: str) -> None:
        """Give the blob to the repository for which its upload's address was signed."""
        kind, _, name = (call.parameter("repository") or "").partition("/")
        with self.lock:
            repository = self._repositories.get((kind, name))
            if repository is not None:
                repository.blobs.add(sha256)
                repository.write()

    def web_address(self, kind: str, name: str) -> str:
        return f"{self.endpoint}/{'' if kind == 'model' else f'{kind}s/'}{name}"

    def signed(self, path: str, *, at: str | None = None, **query: str) -> str:
        """Return an address, by default at the storage, that works for a while and without a
        token."""
        fields = {**query, EXPIRY: f"{time.time() + self.upload_url_lifetime:.3f}"}
        return f"{at or self.storage_endpoint}{path}?{urlencode({**fields, SIGNATURE: self._signature(path, fields)})}"

    def check_signature(self, call: Call) -> None:
        parameters = {name: values[0] for name, values in call.query.items()}
        given = parameters.pop(SIGNATURE, "")
        if not hmac.compare_digest(given, self._signature(call.path, parameters)):
            raise Refusal(
                403,
                "The request signature we calculated does not match the signature you provided.",
            )
        if float(parameters[EXPIRY]) < time.time():
            raise Refusal(403, "Request has expired")

    def _signature(self, path: str, query: Mapping[str, str]) -> str:
        text = f"{path}?{urlencode(sorted(query.items()))}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()

    # What the server reports.

    def open_log(
        self, method: str, path: str, query: Mapping[str, list[str]], user_agent: str
    ) -> LoggedRequest:
        shown = {name: values for name, values in query.items() if name not in {SIGNATURE, EXPIRY}}
        with self.lock:
            log = LoggedRequest(
                len(self.requests), method, path, shown, observer=OBSERVER in user_agent
            )
            self.requests.append(log)
        return log

    def count(self, log: LoggedRequest, size: int) -> None:
        log.received += size
        if log.method == "PUT" and log.path.startswith("/lfs/"):
            self.contents.count(log.path.split("/")[2], size)

    def tell(self, log: LoggedRequest) -> None:
        """Call the hook, one call at a time. An observer's requests do not, so a hook may send some
        and wait."""
        if self.on_request is None or log.observer:
            return
        if not self._hook_lock.acquire(timeout=_HOOK_WAIT):
            self.broke(
                RuntimeError(
                    "the hook waits for itself: its own requests must be an observer's, unlike"
                    f" {log}"
                )
            )
            return
        try:
            self.on_request(log)
        except Exception as error:
            self.broke(error)
        finally:
            self._hook_lock.release()

    def broke(self, error: Exception) -> None:
        self._broken.append(error)

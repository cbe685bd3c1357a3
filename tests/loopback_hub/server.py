"""HTTP/1.1 of the loopback Hub: reads requests, meets them with faults, logs them, sends the
answers.

A request's life: it is logged, may meet a fault, its work is done, `on_request` is called, and only
then does its answer leave. So a client that sends one request after another sees no time pass
between the hook and its next one.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback_hub.answers import Answer, Refusal
from loopback_hub.calls import Call, LoggedRequest
from loopback_hub.faults import Fault

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub

_CHUNK = 1 << 18
# Tests make the sleeps of clients in their own process shorter; latency is real.
_sleep = time.sleep


class ClientGone(Exception):
    """The client closed the connection before its body was whole."""


class Dropped(Exception):
    """The connection is to be closed without an answer."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, hub: LoopbackHub, *, storage: bool, port: int = 0) -> None:
        self.hub = hub
        self.storage = storage
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Close the port and every connection that a client keeps for later."""
        super().server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that go away; the handler shows everything else."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: Server  # pyrefly: ignore[bad-override-mutable-attribute]  # no other server has this handler

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to stderr: `hub.requests` is the log."""

    def _serve(self) -> None:
        hub = self.server.hub
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        path = address.path
        log = hub.open_log(self.command, unquote(path), query, self.headers.get("User-Agent", ""))
        self._left = self._body_chunks(log)
        fault = (
            None
            if log.observer
            else hub.faults.draw(self.command, log.path, log.query, storage=self.server.storage)
        )
        log.fault = None if fault is None else str(fault)
        try:
            answer = self._answer(path, query, log, fault)
            lost = fault is not None and fault.kind == "lose_answer"
            log.status = None if lost else answer.status
            hub.tell(log)
            if lost:
                raise Dropped
            self._drain()
            self._send(answer, cut=fault is not None and fault.kind == "truncate")
        except (Dropped, ClientGone, ConnectionError, TimeoutError) as error:
            if log.status is None and not (fault is not None and fault.kind == "lose_answer"):
                hub.tell(log)
            self._hang_up(
                hard=isinstance(error, Dropped)
                and fault is not None
                and fault.kind == "drop_upload"
            )

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _serve

    def _answer(
        self, path: str, query: dict[str, list[str]], log: LoggedRequest, fault: Fault | None
    ) -> Answer:
        if fault is not None:
            if fault.kind == "latency":
                _sleep(fault.seconds)
            if fault.kind == "drop":
                raise Dropped
            if fault.kind == "drop_upload":
                self._read_some(fault.after)
                raise Dropped
            if fault.kind == "status":
                self._drain()
                headers = (
                    {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
                )
                return Refusal(
                    fault.code, f"fault on demand: {fault.code}", headers=headers
                ).answer()
            if fault.kind == "expire":
                self._drain()
                return Refusal(403, "Request has expired").answer()
        try:
            user, may_write = self.server.hub.identify(
                self.headers.get("Authorization"), storage=self.server.storage
            )
            call = Call(
                self.command,
                path,
                query,
                self.headers,  # pyrefly: ignore[bad-argument-type]  # a mapping in all but its class
                user,
                may_write,
                self.server.hub.endpoint,
                log,
                lambda: self._left,
            )
            return self.server.hub.answer(call, storage=self.server.storage)
        except Refusal as refusal:
            return refusal.answer()
        except (ClientGone, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            self.server.hub.broke(error)
            return Refusal(500, f"the loopback Hub broke: {error!r}").answer()

    def _body_chunks(self, log: LoggedRequest) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return self._chunked(log)
        return self._sized(int(self.headers.get("Content-Length") or 0), log)

    def _sized(self, length: int, log: LoggedRequest) -> Iterator[bytes]:
        while length:
            chunk = self.rfile.read1(min(_CHUNK, length))
            if not chunk:
                raise ClientGone
            length -= len(chunk)
            self.server.hub.count(log, len(chunk))
            yield chunk

    def _chunked(self, log: LoggedRequest) -> Iterator[bytes]:
        while True:
            size = int(self.rfile.readline().split(b";")[0] or b"0", 16)
            if size:
                yield from self._sized(size, log)
            if not self.rfile.readline():
                raise ClientGone
            if not size:
                return

    def _drain(self) -> None:
        for _ in self._left:
            pass

    def _read_some(self, after: int) -> None:
        read = 0
        for chunk in self._left:
            read += len(chunk)
            if read >= after:
                return

    def _send(self, answer: Answer, *, cut: bool) -> None:
        self.send_response(answer.status)
        for name, value in {
            **self.server.hub.limits.calls.headers("api"),
            **answer.headers,
        }.items():
            self.send_header(name, value)
        if "Content-Length" not in answer.headers:
            self.send_header("Content-Length", str(answer.size))
        self.end_headers()
        if self.command != "HEAD":
            limit = answer.size // 2 if cut else answer.size
            if answer.file is None:
                self.wfile.write(answer.body[:limit])
            else:
                self._send_file(answer, limit)
        self.wfile.flush()
        if cut:
            self._hang_up(hard=False)

    def _send_file(self, answer: Answer, limit: int) -> None:
        assert answer.file is not None
        with answer.file.open("rb") as file:
            file.seek(answer.start)
            while limit and (chunk := file.read(min(_CHUNK, limit))):
                self.wfile.write(chunk)
                limit -= len(chunk)

    def _hang_up(self, *, hard: bool) -> None:
        """Close the connection; `hard` as a crash does, with a reset in place of a goodbye."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            if hard:
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                self.connection.close()
            else:
                self.connection.shutdown(socket.SHUT_RDWR)

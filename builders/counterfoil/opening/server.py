"""The server of a directory's pages: on loopback, at a random port, under a token that only its address tells.

Whoever asks must know the token, name the host as the address does (a page of another site that has its name lead to
this machine names itself), and come from no other origin. A request has bounds in bytes and time.
"""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from counterfoil.errors import CounterfoilError
from counterfoil.opening.pages import DirectoryPages, Page
from counterfoil.store.atomic import write_atomically
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import PRIVATE

_PORT = f"{PRIVATE}/port"
_HOST = "127.0.0.1"
_SECONDS = 20.0  # for a whole request to come in
_MOST_CONNECTIONS = 32


def open_directory(directory: Path | str) -> PageServer:
    """A server of a directory's pages, which waits for `serve_forever`. Raises as `DirectoryPages`.

    What a browser remembers of a page, such as grids that are half answered, it remembers by port: the random one of
    the first time is taken again where it is free.
    """
    pages = DirectoryPages(directory)
    known = 0
    with contextlib.suppress(OSError, ValueError):
        known = int(read_inside(pages.directory, _PORT, 10))
    try:
        server = PageServer(pages, known if 1024 <= known <= 65535 else 0)
    except OSError:
        server = PageServer(pages, 0)
    if pages.saves and server.server_port != known:
        with contextlib.suppress(CounterfoilError):  # nobody can save there, and all can be read
            write_atomically(pages.directory / _PORT, str(server.server_port).encode())
    return server


class PageServer(ThreadingHTTPServer):
    """Serves from `serve_forever` on; `address` is what a person opens."""

    daemon_threads = True

    def __init__(self, pages: DirectoryPages, port: int) -> None:
        super().__init__((_HOST, port), _Request)
        self.pages = pages
        self.token = secrets.token_urlsafe(24)
        self.origin = f"http://{_HOST}:{self.server_port}"
        self.address = f"{self.origin}/{self.token}/"
        self.at_work = threading.Lock()  # a page may take the memory of a whole dataset's scores
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a connection that broke, or was cut for its time, is no error
            super().handle_error(request, client_address)


class _Request(BaseHTTPRequestHandler):
    server: PageServer  # pyrefly: ignore[bad-override]
    server_version, sys_version = "Counterfoil", ""
    timeout = _SECONDS  # of each wait, also for a browser that takes nothing

    def setup(self) -> None:
        super().setup()
        self._clock = threading.Timer(_SECONDS, self._cut)
        self._clock.daemon = True
        self._clock.start()

    def finish(self) -> None:
        self._clock.cancel()
        super().finish()

    def _cut(self) -> None:
        self.server.shutdown_request(self.request)

    def do_GET(self) -> None:
        self._clock.cancel()
        name = self._name()
        if name is None:
            return
        render = self.server.pages.pages.get(name)
        if render is None:
            self._say(HTTPStatus.NOT_FOUND, "There is no such page.")
            return
        try:
            with self.server.at_work:
                page = render()
        except CounterfoilError as error:
            self._say(HTTPStatus.CONFLICT, str(error))
        except OSError as error:
            self._say(HTTPStatus.CONFLICT, f"It cannot be read: {error.strerror}")
        else:
            self._send(HTTPStatus.OK, page)

    def do_POST(self) -> None:
        name = self._name()
        if name is None:
            return
        save = self.server.pages.saves.get(name.removeprefix("save/")) if name.startswith("save/") else None
        length = self.headers.get("Content-Length", "")
        if save is None:
            self._say(HTTPStatus.NOT_FOUND, "Nothing is saved there.")
        elif self.headers.get_all("Origin") != [self.server.origin]:
            self._say(HTTPStatus.FORBIDDEN, "Only the pages of this server save.")
        elif self.headers.get_content_type() != save.kind:
            self._say(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Expected {save.kind}.")
        elif "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit() and len(length) < 10):
            self._say(HTTPStatus.LENGTH_REQUIRED, "Expected a Content-Length.")
        elif int(length) > save.most_bytes:
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"Expected at most {save.most_bytes:,} bytes.")
        else:
            content = self.rfile.read(int(length))
            self._clock.cancel()
            if len(content) < int(length):
                return
            try:
                with self.server.at_work:
                    told = save.write(content)
            except CounterfoilError as error:
                self._say(HTTPStatus.UNPROCESSABLE_ENTITY, f"Nothing was saved: {error}")
            else:
                self._say(HTTPStatus.OK, told)

    def _name(self) -> str | None:
        """What is asked for, of one who may ask; None where it was answered that they may not."""
        headers, origin = self.headers, self.server.origin
        if headers.get_all("Host") != [origin.removeprefix("http://")]:
            self._say(HTTPStatus.FORBIDDEN, "Unknown host.")
        elif any(one != origin for one in headers.get_all("Origin", [])):
            self._say(HTTPStatus.FORBIDDEN, "Unknown origin.")
        else:
            first, _, below = self.path.partition("?")[0].partition("/")
            token, slash, name = below.partition("/")
            known = secrets.compare_digest(token.encode(), self.server.token.encode())
            if not first and known and slash:
                return name
            self._say(HTTPStatus.NOT_FOUND, "There is no such page.")
        return None

    def _say(self, status: HTTPStatus, text: str) -> None:
        self._send(status, Page(text.encode(errors="replace"), "text/plain; charset=utf-8"))

    def _send(self, status: HTTPStatus, page: Page) -> None:
        self.send_response(status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.content)))
        self.send_header("Content-Security-Policy", page.policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "same-origin")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(page.content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses by itself: a line without end, an unknown method."""
        self.close_connection = True
        self._say(HTTPStatus(code), HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Addresses hold the token: nothing of them is printed."""

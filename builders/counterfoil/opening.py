"""Serve the pages of a directory to this machine only (`counterfoil open`). Two of the pages can
save files.

The server listens on the loopback address at a random port. A request must contain the token, which
only the printed address contains; it must name the server's own host, and it must not come from
another origin. The bytes and the time of a request are limited. The pages are a fixed list, and
each is rendered on request from parsed documents. No name in a request is used as a path, and no
file is sent unchanged.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import secrets
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from counterfoil.dataset.card.index_page import (
    ANSWER,
    CALIBRATE,
    FINDINGS,
    MENDED,
    card_html,
    index_entries,
    index_html,
)
from counterfoil.dataset.reading import SoundDataset, read_dataset
from counterfoil.documents import read_document
from counterfoil.errors import CounterfoilError, ProblemLine, RunFailure, UserError
from counterfoil.mending.document import Mended
from counterfoil.mending.report import mend_report
from counterfoil.mining.findings import Findings
from counterfoil.mining.report import mining_html
from counterfoil.recipe.loader import load_cut
from counterfoil.regular_files import named_path
from counterfoil.report.pictures import encode_webp
from counterfoil.report.words import format_count
from counterfoil.reviewing.answers import read_answers
from counterfoil.reviewing.calibrate_dataset import calibrate
from counterfoil.reviewing.review_answers import asked_of
from counterfoil.reviewing.review_dataset import review
from counterfoil.reviewing.screen_scores import has_threshold
from counterfoil.store.atomic import write_atomically
from counterfoil.store.decoding import UnreadableImage, rgb_image
from counterfoil.store.inside import read_inside, refuse_unfit
from counterfoil.store.layout import CARD, LOCK, PRIVATE, RECIPE

_PORT = f"{PRIVATE}/port"
_HOST = "127.0.0.1"
_SECONDS = 20.0  # the time limit of a request's body
_HEADER_SECONDS = 5.0
_MOST_CONNECTIONS = 32


def open_directory(directory: Path | str) -> PageServer:
    """Return a server of a directory's pages; call `serve_forever` to start it. Raises what
    `DirectoryPages` raises.

    Browsers store the data of a page, such as half-answered grids, by port. The server therefore
    uses its first random port again if this port is free.
    """
    pages = DirectoryPages(directory)
    known = 0
    with contextlib.suppress(OSError, ValueError):
        known = int(read_inside(pages.directory, _PORT, 10))
    try:
        server = PageServer(pages, known if 1024 <= known <= 65535 else 0)
    except OSError:
        server = PageServer(pages, 0)
    port = server.server_port
    if pages.saves and port != known:
        with contextlib.suppress(CounterfoilError):  # a read-only directory can still be viewed
            write_atomically(pages.directory / _PORT, str(port).encode())
    return server


class PageServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, pages: DirectoryPages, port: int) -> None:
        super().__init__((_HOST, port), _Request)
        self.pages = pages
        self.token = secrets.token_urlsafe(24)
        self.origin = f"http://{_HOST}:{self.server_port}"
        self.address = f"{self.origin}/{self.token}/"
        # One page is rendered at a time, because a page may need memory for all scores of a
        # dataset.
        self.at_work = threading.Lock()
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        # connections that have not sent a valid token, oldest first
        self._unheard: dict[Any, None] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. If all threads are busy, drop the oldest connection that has sent no
        valid token."""
        self._unheard[request] = None
        if not self._free.acquire(blocking=False):
            hang_up(next(iter([*self._unheard])))
            if not self._free.acquire(timeout=1.0):
                self.heard(request)
                self.shutdown_request(request)
                return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.heard(request)
            self._free.release()

    def heard(self, request: Any) -> None:
        """Mark a connection as authorised or finished, so that it is not dropped for a newer
        one."""
        self._unheard.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # a broken or timed-out connection is not reported
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Request(BaseHTTPRequestHandler):
    server: PageServer  # pyrefly: ignore[bad-override]
    server_version = "Counterfoil"
    sys_version = ""
    timeout = _SECONDS  # the limit of each wait, also for a browser that does not read its answer

    def setup(self) -> None:
        super().setup()
        self._start_clock(_HEADER_SECONDS)

    def finish(self) -> None:
        self._clock.cancel()
        super().finish()

    def _start_clock(self, seconds: float) -> None:
        self._clock = threading.Timer(seconds, hang_up, [self.request])
        self._clock.daemon = True
        self._clock.start()

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
            self._say(HTTPStatus.CONFLICT, f"This page cannot be read: {error.strerror}")
        else:
            self._send(HTTPStatus.OK, page)

    def do_POST(self) -> None:
        self._clock.cancel()
        self._start_clock(_SECONDS)
        name = self._name()
        if name is None:
            return
        saves, _, of_page = name.partition("/")
        save = self.server.pages.saves.get(of_page) if saves == "save" else None
        headers = self.headers
        length = headers.get("Content-Length", "")
        fits = "Transfer-Encoding" not in headers and re.fullmatch("[0-9]{1,9}", length)
        if save is None:
            self._say(HTTPStatus.NOT_FOUND, "Nothing can be saved at this address.")
        elif headers.get_all("Origin") != [self.server.origin]:
            self._say(HTTPStatus.FORBIDDEN, "Only pages from this server can save.")
        elif headers.get_content_type() != save.kind:
            self._say(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Expected {save.kind}.")
        elif not fits:
            self._say(HTTPStatus.LENGTH_REQUIRED, "Expected a Content-Length.")
        elif int(length) > save.most_bytes:
            most = f"Expected at most {save.most_bytes:,} bytes."
            self._say(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, most)
        else:
            content = self.rfile.read(int(length))
            self._clock.cancel()
            if len(content) < int(length):
                return
            try:
                with self.server.at_work:
                    answer = save.write(content)
            except CounterfoilError as error:
                self._say(HTTPStatus.UNPROCESSABLE_ENTITY, f"Nothing was saved: {error}")
            else:
                self._say(HTTPStatus.OK, answer)

    def _name(self) -> str | None:
        """Return the requested name if the request is allowed. Otherwise send a refusal and return
        None."""
        headers = self.headers
        origin = self.server.origin
        if headers.get_all("Host") != [origin.removeprefix("http://")]:
            self._say(HTTPStatus.FORBIDDEN, "Unknown host.")
            return None
        if set(headers.get_all("Origin", [])) - {origin}:
            self._say(HTTPStatus.FORBIDDEN, "Unknown origin.")
            return None
        path, _, _ = self.path.partition("?")
        first, _, below = path.partition("/")
        token, slash, name = below.partition("/")
        known = secrets.compare_digest(token.encode(), self.server.token.encode())
        if not first and known and slash:
            self.server.heard(self.request)
            return name
        self._say(HTTPStatus.NOT_FOUND, "There is no such page.")
        return None

    def _say(self, status: HTTPStatus, text: str) -> None:
        page = Page(text.encode(errors="replace"), "text/plain; charset=utf-8")
        self._send(status, page)

    def _send(self, status: HTTPStatus, page: Page) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": page.kind,
            "Content-Length": str(len(page.content)),
            "Content-Security-Policy": page.policy,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page.content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that the library itself refuses, such as an endless line or an unknown
        method."""
        self.close_connection = True
        status = HTTPStatus(code)
        self._say(status, status.phrase)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because the address of a request contains the token."""


_MOST_PICTURE = 32_000_000
_SAVED_CUT = f"{PRIVATE}/cut.yaml"
# The name holds the page, the person and a number. The number keeps saved answers from being
# overwritten.
_SAVED_ANSWERS = re.compile(r"answers-([0-9a-f]{16})-([0-9a-f]{16})-(\d{1,6})\.json")
# A page's own script calls this function. It returns null if the server has stopped.
_SAVING = """
window.saveThere = async text => {
  try {
    const answer = await fetch("save/NAME", { method: "POST", headers: { "Content-Type": "KIND" }, body: text });
    return await answer.text();
  } catch (error) { return null; }
};
"""
_STATIC_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>\n?')
_NONE = "'none'"
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Page:
    content: bytes
    kind: str = "text/html; charset=utf-8"
    policy: str = "default-src 'none'"


@dataclass(frozen=True, slots=True)
class Save:
    """What a page may save: the content type, the largest size, and the function that saves.

    write: saves the bytes and returns a message for the person.
    """

    kind: str
    most_bytes: int
    write: Callable[[bytes], str]


class DirectoryPages:
    """The pages of a directory by name, and what they may save. UserError without any page,
    RunFailure for links."""

    def __init__(self, directory: Path | str) -> None:
        self.directory = named_path(directory)
        if not self.directory.is_dir():
            raise UserError(
                f"{directory} is not a directory", "Name a dataset, or a folder with a report."
            )
        refuse_unfit(self.directory)
        self.pages: dict[str, Callable[[], Page]] = {"": self._index}
        self.saves: dict[str, Save] = {}
        self._served: dict[str, str] = {}  # path of a page in the directory → its name here
        if (self.directory / LOCK).is_file():
            self._add_dataset(self._dataset())
        elif not index_entries(self.directory):
            raise UserError(
                f"{directory} contains no page that Counterfoil writes",
                "Name a dataset, or a folder that evaluate, mine or mend wrote.",
            )
        # If a folder has both files, the page of mending is shown.
        if (self.directory / MENDED).is_file():
            self._add("report.html", "mended", self._mended)
        elif (self.directory / FINDINGS).is_file():
            self._add("report.html", "findings", self._findings)

    def _add(self, path: str, name: str, render: Callable[[], Page]) -> None:
        self._served[path] = name
        self.pages[name] = render

    def _add_dataset(self, dataset: SoundDataset) -> None:
        self._add(CARD, "card", self._card)
        for entry in index_entries(self.directory):
            more = [path for _, path in entry.more]
            for path in (entry.path, *more):
                if path.endswith(".webp"):
                    # The card links to the picture by this name.
                    self._add(path, quote(path), partial(self._picture, path))
        if any(map(has_threshold, dataset.recipe.all_shifts())):
            self._add(CALIBRATE, "calibrate", partial(self._written, calibrate, "cut"))
            self.saves["cut"] = Save("application/yaml", 1_000_000, self._save_cut)
        self._add(ANSWER, "review", partial(self._written, review, "answers"))
        self.saves["answers"] = Save("application/json", 4_000_000, self._save_answers)

    def _dataset(self) -> SoundDataset:
        return read_dataset(self.directory, "receipts").finished()

    def _index(self) -> Page:
        saved = []
        if (self.directory / _SAVED_CUT).is_file():
            saved.append(self._cut_saved())
        if self._saved_answers():
            saved.append(self._answers_saved())
        entries = index_entries(self.directory, self._served)
        return _html(index_html(self.directory, entries, self._served, saved))

    def _card(self) -> Page:
        return _html(card_html(self.directory))

    def _picture(self, path: str) -> Page:
        try:
            content = read_inside(self.directory, path, _MOST_PICTURE)
            shown = encode_webp(rgb_image(content), 90)
        except (UnreadableImage, OSError) as error:
            raise RunFailure(f"{path} cannot be shown: {error}") from error
        return Page(shown, "image/webp")

    def _written(self, write: Callable[[Path, Path], object], saves: str) -> Page:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            write(self.directory, path)
            text = path.read_text(encoding="utf-8")
        return _html(text, saves, self.saves[saves].kind)

    def _findings(self) -> Page:
        findings = read_document(self.directory / FINDINGS, Findings)
        has_recipe = (self.directory / "recipe.yaml").is_file()
        return _html(mining_html(findings, {}, has_recipe=has_recipe))

    def _mended(self) -> Page:
        mended = read_document(self.directory / MENDED, Mended)
        return _html(mend_report(mended))

    def _save_cut(self, content: bytes) -> str:
        with _given(content, "cut.yaml") as given:
            load_cut(self.directory / RECIPE, given)
        write_atomically(self.directory / _SAVED_CUT, content)
        return " Next: ".join(self._cut_saved())

    def _cut_saved(self) -> tuple[str, str]:
        """Return a sentence that the thresholds are saved, and the command that applies them."""
        saved = self.directory / _SAVED_CUT
        cut = self.directory.with_name(f"{self.directory.resolve().name}-cut")
        command = _command("calibrate", self.directory, "--apply", saved, "--out", cut)
        return "Thresholds are saved.", command

    def _save_answers(self, content: bytes) -> str:
        with _given(content, "answers.json") as given:
            read_answers([given], asked_of(self._dataset()))
        document = json.loads(content)
        name = f"answers-{document['sheet']}-{document['token']}"
        number = 1
        file = self.directory / PRIVATE / f"{name}-1.json"
        while file.exists():
            number += 1
            file = file.with_name(f"{name}-{number}.json")
        write_atomically(file, content)
        return " Next: ".join(self._answers_saved())

    def _saved_answers(self) -> list[Path]:
        """Return the last saved answers of each person to each page, if they fit the current
        dataset."""
        last: dict[tuple[str, str], tuple[int, Path]] = {}
        folder = self.directory / PRIVATE
        for path in sorted(folder.glob("answers-*")):
            if named := _SAVED_ANSWERS.fullmatch(path.name):
                sheet, token, number = named.groups()
                numbered = (int(number), path)
                last[sheet, token] = max(last.get((sheet, token), numbered), numbered)
        if not last:
            return []
        expected = asked_of(self._dataset())
        answers = []
        for _, path in last.values():
            with contextlib.suppress(CounterfoilError):
                read_answers([path], expected)
                answers.append(path)
        return answers

    def _answers_saved(self) -> tuple[str, str]:
        files = self._saved_answers()
        are = "is" if len(files) == 1 else "are"
        sentence = f"{format_count(len(files), 'file')} of answers {are} saved."
        return sentence, _command("review", self.directory, "--answers", *files)


@contextlib.contextmanager
def _given(content: bytes, name: str) -> Iterator[Path]:
    """Write content to a temporary file. Errors that readers raise then name the file without its
    folder."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / name
        given.write_bytes(content)
        try:
            yield given
        except CounterfoilError as error:
            problems = []
            for problem in error.problems:
                line, path = (text.replace(str(given), name) for text in (problem, problem.path))
                values = problem.values
                problems.append(ProblemLine(line, problem.code, path, values, problem.advice))
            raise UserError(problems, error.hint) from error


def _html(text: str, saves: str | None = None, kind: str = "") -> Page:
    """Return a page whose policy allows only our own code: the first style and the last script of
    the text."""
    text = _STATIC_POLICY.sub("", text, count=1)
    scripts = []
    if saves is not None:
        scripts += _SCRIPT.findall(text)[-1:]
        script = _SAVING.replace("NAME", saves).replace("KIND", kind)
        text = text.replace("<head>", f"<head><script>{script}</script>", 1)
        scripts.append(script)
    policy = {
        "default-src": _NONE,
        "script-src": _hashes(scripts),
        "style-src": _hashes(_STYLE.findall(text)[:1]),
        "style-src-attr": "'unsafe-inline'",  # colours of bars and dots
        "img-src": "'self' data: blob:",
        "connect-src": "'self'" if saves else _NONE,
        "base-uri": _NONE,
        "form-action": _NONE,
        "frame-ancestors": _NONE,
    }
    rules = [f"{name} {sources}" for name, sources in policy.items()]
    return Page(text.encode(), policy="; ".join(rules))


def _hashes(texts: list[str]) -> str:
    hashes = []
    for text in texts:
        digest = hashlib.sha256(text.encode()).digest()
        hashes.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    return " ".join(hashes) or _NONE


def _command(*words: str | Path) -> str:
    return shlex.join(["counterfoil", *map(str, words)])

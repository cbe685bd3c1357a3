"""A directory's pages over loopback: who may ask, what is served, and that commands take what is
saved."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from findings_examples import example
from typer.testing import CliRunner

import warm
from colour_world import build_colours
from counterfoil import opening as serving
from counterfoil.cli.main import app
from counterfoil.documents import document_text
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.opening import PageServer, open_directory
from counterfoil.recipe import load_own_recipe
from counterfoil.store.manifest import verify_files
from support.files import write
from support.refusals import refuses
from tiny_builds import command

YAML = "application/yaml"
JSON = "application/json"
CUT = b"prompts: {shifts: {red: {threshold: 0.2}}}\n"


@pytest.fixture
def dataset(screened: Path, tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(
            screened, tmp_path / "tiny", ignore=shutil.ignore_patterns("lock", "lock.pid")
        )
    )


@pytest.fixture(scope="module")
def server(screened: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """Yield a server of a dataset that nothing is saved in."""
    folder = tmp_path_factory.mktemp("read-only") / "tiny"
    without_locks = shutil.ignore_patterns("lock", "lock.pid")
    yield from running(Path(shutil.copytree(screened, folder, ignore=without_locks)))


@pytest.fixture
def saving_server(dataset: Path) -> Iterator[PageServer]:
    yield from running(dataset)


def running(directory: Path) -> Iterator[PageServer]:
    with open_directory(directory) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.content = response.status, response.headers, response.read()

    @property
    def text(self) -> str:
        return self.content.decode()


def ask(
    server: PageServer,
    name: str,
    method: str = "GET",
    path: str | None = None,
    body: bytes | None = None,
    **headers: str,
) -> Answer:
    """Send a request, with `headers` by name with _ for -, without empty ones."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    sent = {"Host": f"127.0.0.1:{server.server_port}"}
    if method == "POST":
        sent |= {"Origin": server.origin, "Content-Length": str(len(body or b""))}
    sent |= {key.replace("_", "-"): value for key, value in headers.items()}
    try:
        connection.putrequest(method, path or f"/{server.token}/{name}", skip_host=True)
        for key, value in sent.items():
            if value:
                connection.putheader(key, value)
        connection.endheaders(body)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def data_of(page: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match
    return json.loads(match[1])


def answers_to(page: str, token: str, name: str = "") -> bytes:
    """Return what the page's button saves of a person who selects every image."""
    data = data_of(page)
    head = {key: data[key] for key in ("form", "version", "content", "sheet")}
    grids = [
        {**{key: grid[key] for key in ("task", "label", "shown")}, "selected": grid["shown"]}
        for grid in data["grids"]
    ]
    return json.dumps({**head, "token": token, "rater": name, "grids": grids}).encode()


def saved(dataset: Path) -> list[str]:
    return sorted(
        path.name
        for path in (dataset / ".counterfoil").iterdir()
        if path.suffix in (".yaml", ".json")
    )


def test_the_pages_of_a_dataset(server: PageServer) -> None:
    index = ask(server, "")
    assert index.status == 200
    links = re.findall(r'href="([^"]+)"', index.text)
    assert {"card", "calibrate", "review", "figures/contact-sheet.webp"} <= {*links}
    for name in links:
        page = ask(server, name)
        assert page.status == 200, name
        assert (
            page.headers["Cache-Control"] == "no-store"
            and page.headers["X-Content-Type-Options"] == "nosniff"
        )
        if name.endswith(".webp"):
            assert page.headers["Content-Type"] == "image/webp"
            continue
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ") and "script-src 'unsafe" not in policy
        scripts = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
        assert len(scripts) == (2 if name in ("calibrate", "review") else 0)
        for script in (*scripts, *re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)):
            assert b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy


@pytest.mark.parametrize(
    "name",
    [
        "lock.json",
        "README.md",
        "index.html",
        "manifest.json",
        ".counterfoil/calibrate.html",
        ".counterfoil/port",
        "../tiny/lock.json",
        "figures/../lock.json",
        "figures/%2e%2e/lock.json",
        "figures/",
        "/etc/passwd",
        "card/",
        "save/cut",
        "%00",
    ],
)
def test_no_other_name_is_served(server: PageServer, name: str) -> None:
    assert ask(server, name).status == 404


def test_who_may_ask(server: PageServer) -> None:
    port = server.server_port
    assert ask(server, "", path="/").status == 404
    assert ask(server, "", path=f"/{'x' * 32}/").status == 404
    assert ask(server, "", path=f"/{server.token}").status == 404
    assert ask(server, "", path=server.address).status == 404, "a proxy's form of an address"
    assert [ask(server, "", path=path).status for path in ("*", server.token)] == [404, 404], (
        "no path at all"
    )
    # The name of another site can lead to this machine.
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"localhost:{port}",
        f"127.0.0.1:{port + 1}",
        "",
    ):
        assert ask(server, "", Host=host).status == 403, host
    for origin in (
        "null",
        "http://evil.example",
        f"http://localhost:{port}",
        f"https://127.0.0.1:{port}",
    ):
        assert ask(server, "", Origin=origin).status == 403, origin
        refused = ask(server, "save/cut", "POST", body=CUT, Content_Type=YAML, Origin=origin)
        assert refused.status == 403, origin
    assert ask(server, "save/cut", "POST", body=CUT, Content_Type=YAML, Origin="").status == 403
    assert not (server.pages.directory / ".counterfoil" / "cut.yaml").exists()
    assert ask(server, "", "PUT", body=b"").status == 501
    assert "Access-Control-Allow-Origin" not in ask(server, "", "OPTIONS").headers


@pytest.mark.skipif(sys.platform != "linux", reason="only there is all of 127.0.0.0/8 this machine")
def test_no_other_address_is_served(server: PageServer) -> None:
    for address in ("127.0.0.2", "::1"):
        with (
            pytest.raises(OSError),
            socket.create_connection((address, server.server_port), timeout=60),
        ):
            pass


def test_what_is_saved_is_bounded_and_read_first(saving_server: PageServer, dataset: Path) -> None:
    def post(name: str, body: bytes, kind: str, **headers: str) -> Answer:
        return ask(saving_server, name, "POST", body=body, Content_Type=kind, **headers)

    assert post("save/other", b"", YAML).status == 404
    assert post("card", b"", YAML).status == 404
    assert post("save/cut", CUT, "text/plain").status == 415
    assert post("save/cut", CUT, YAML, Content_Length="").status == 411
    assert post("save/cut", CUT, YAML, Content_Length="-1").status == 411
    assert post("save/cut", CUT, YAML, Transfer_Encoding="chunked").status == 411
    assert post("save/cut", b"", YAML, Content_Length="1000001").status == 413
    assert post("save/answers", b"", JSON, Content_Length="4000001").status == 413
    for body in (
        b"",
        b"\xff",
        b"a: [",
        b"samples: {seed: 1}",
        b"prompts: {shifts: {nothing: {threshold: 1}}}",
    ):
        refused = post("save/cut", body, YAML)
        assert (
            refused.status == 422
            and "Nothing was saved" in refused.text
            and "/" not in refused.text.split(":")[1]
        )
    with refuses("not-in-a-cut", "prompts.shifts.nothing", "(cut.yaml:1)"):
        saving_server.pages.saves["cut"].write(body)
    page = ask(saving_server, "review").text
    other = json.loads(answers_to(page, "a" * 16))
    for document in (
        {},
        [],
        {**other, "content": "0" * 64},
        {**other, "token": "../../x"},
        {**other, "sheet": "/"},
    ):
        assert post("save/answers", json.dumps(document).encode(), JSON).status == 422
    assert post("save/answers", b"[" * 100_000, JSON).status == 422
    assert saved(dataset) == []


def test_thresholds_are_saved_and_cut_by(
    saving_server: PageServer, dataset: Path, tmp_path: Path
) -> None:
    shown = ask(saving_server, "save/cut", "POST", body=CUT, Content_Type=YAML)
    assert shown.status == 200
    assert (
        "counterfoil calibrate" in shown.text
        and "counterfoil calibrate" in ask(saving_server, "").text
    )
    cut = dataset / ".counterfoil" / "cut.yaml"
    assert cut.read_bytes() == CUT and str(cut) in shown.text
    assert not verify_files(dataset), "what is saved is no part of the dataset"
    words = ["calibrate", str(dataset), "--apply", str(cut), "--out", str(tmp_path / "cut")]
    assert CliRunner().invoke(app, words).exit_code == 0
    threshold = load_own_recipe(tmp_path / "cut").prompts.shifts["red"].threshold
    assert threshold is not None and threshold.value == 0.2


def test_answers_are_saved_and_counted(saving_server: PageServer, dataset: Path) -> None:
    page = ask(saving_server, "review").text
    sheet = data_of(page)["sheet"]
    people = ["a" * 16, "b" * 16, "a" * 16]
    for token in people:
        shown = ask(
            saving_server,
            "save/answers",
            "POST",
            body=answers_to(page, token, "Anna"),
            Content_Type=JSON,
        )
        assert shown.status == 200
    names = [
        f"answers-{sheet}-{'a' * 16}-1.json",
        f"answers-{sheet}-{'a' * 16}-2.json",
        f"answers-{sheet}-{'b' * 16}-1.json",
    ]
    assert saved(dataset) == names, "nobody's answers are written over"
    # Answers to another state of the dataset stay and are not reported.
    strange = json.loads((dataset / ".counterfoil" / names[0]).read_text()) | {"content": "0" * 64}
    (dataset / ".counterfoil" / f"answers-{sheet}-{'c' * 16}-1.json").write_text(
        json.dumps(strange)
    )
    shown = ask(
        saving_server, "save/answers", "POST", body=answers_to(page, "b" * 16), Content_Type=JSON
    ).text
    named = re.findall(r"answers-\S+json", shown)
    assert named == [f"answers-{sheet}-{'a' * 16}-2.json", f"answers-{sheet}-{'b' * 16}-2.json"]
    files = [str(dataset / ".counterfoil" / name) for name in named]
    assert CliRunner().invoke(app, ["review", str(dataset), "--answers", *files]).exit_code == 0
    assert len(json.loads((dataset / "review" / "selection.json").read_bytes())["raters"]) == 2
    assert not verify_files(dataset)


def test_a_request_that_does_not_end_is_cut(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_SECONDS", 0.2)
    monkeypatch.setattr(serving, "_HEADER_SECONDS", 0.2)
    for server in running(dataset):
        for started in (
            b"GET / HTTP/1.1\r\nHost:",
            f"POST /{server.token}/save/cut HTTP/1.1\r\n".encode(),
        ):
            with socket.create_connection(
                ("127.0.0.1", server.server_port), timeout=60
            ) as connection:
                connection.sendall(started)
                assert connection.recv(1) == b"", "the server hangs up"
        assert ask(server, "").status == 200


def test_silent_connections_shut_nobody_out(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_SECONDS", 600.0)
    monkeypatch.setattr(serving, "_HEADER_SECONDS", 600.0)
    for server in running(dataset):
        with contextlib.ExitStack() as opened:
            for number in range(60):
                peer = opened.enter_context(
                    socket.create_connection(("127.0.0.1", server.server_port), timeout=60)
                )
                if number % 2:
                    peer.sendall(b"GET /wrong/ HTTP/1.1\r\nHost:")
            for _ in range(3):
                assert ask(server, "").status == 200
            peer = opened.enter_context(
                socket.create_connection(("127.0.0.1", server.server_port), timeout=60)
            )
            peer.sendall(
                f"POST /{server.token}/save/cut HTTP/1.1\r\nHost:"
                f" 127.0.0.1:{server.server_port}\r\n".encode()
            )
            peer.sendall(
                f"Origin: {server.origin}\r\nContent-Type: {YAML}\r\nContent-Length:"
                f" {len(CUT)}\r\n\r\n".encode()
            )
            for _ in range(60):
                opened.enter_context(
                    socket.create_connection(("127.0.0.1", server.server_port), timeout=60)
                )
            assert ask(server, "").status == 200
            peer.sendall(CUT)
            assert peer.recv(1000).startswith(b"HTTP/1.0 200"), (
                "who has said the token goes for no other"
            )


def test_a_strangers_card_and_picture(dataset: Path) -> None:
    card = (
        "---\nlicense: mit\n---\n# Hi <script>alert(1)</script>\n[x](javascript:alert(1))"
        " ![p](https://evil.example/p.png)\n<details>\n"
    )
    (dataset / "README.md").write_text(card + "<img src=x onerror=alert(1)>\n\n```html\n<b>\n```\n")
    (dataset / "figures" / "contact-sheet.webp").write_bytes(b"<script>alert(1)</script>")
    for server in running(dataset):
        page = ask(server, "card")
        assert (
            "<script" not in page.text
            and "<img src=x" not in page.text
            and "license" not in page.text
        )
        assert 'href="javascript' not in page.text
        assert "img-src 'self' data: blob:" in page.headers["Content-Security-Policy"]
        assert ask(server, "figures/contact-sheet.webp").status == 409, (
            "no picture: nothing of it goes out"
        )


def test_a_mined_folder_and_one_that_nothing_renders(tmp_path: Path) -> None:
    folder = tmp_path / "mined"
    write(folder / "report.html", "<script>alert(1)</script>")
    write(folder / "findings.json", document_text(example()))
    for server in running(folder):
        page = ask(server, "findings")
        assert page.status == 200 and "<script" not in page.text, (
            "rendered from the document, never the file"
        )
        assert "script-src 'none'" in page.headers["Content-Security-Policy"]
        assert ask(server, "report.html").status == 404 and not server.pages.saves
        (folder / "findings.json").write_text("{}")
        assert ask(server, "findings").status == 409
    (folder / "findings.json").unlink()
    for server in running(folder):
        assert "Open the file: <code>report.html</code>" in ask(server, "").text
        assert [*server.pages.pages] == [""]
    assert not (folder / ".counterfoil").exists(), "nothing is written where nothing is saved"


def test_torch_is_not_loaded_for_pages() -> None:
    code = (
        "import sys, counterfoil.opening; print(sorted({'torch', 'transformers', 'diffusers'} &"
        " set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout == "[]\n"


def test_what_is_refused(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nothing", dataset / "lock.json"):
        with pytest.raises(UserError):
            open_directory(path)
    (dataset / "figures" / "more.webp").symlink_to("/etc/passwd")
    with pytest.raises(RunFailure, match="is a link"):
        open_directory(dataset)
    (dataset / "figures" / "more.webp").unlink()
    (dataset / "manifest.json").unlink()
    with pytest.raises(CounterfoilError):
        open_directory(dataset)


def test_the_port_stays_where_it_is_free(dataset: Path) -> None:
    """On the same port a browser finds what it stored of a page."""
    with open_directory(dataset) as first:
        with open_directory(dataset) as second:
            assert second.server_port != first.server_port and second.token != first.token
        latest = second.server_port
    with open_directory(dataset) as third:
        assert third.server_port == latest
    (dataset / ".counterfoil" / "port").write_text("22")
    with open_directory(dataset) as fourth:
        assert fourth.server_port >= 1024


def test_the_command_tells_its_address_and_ends_by_ctrl_c(tmp_path: Path) -> None:
    words, environment = command(
        "open", str(build_colours(tmp_path / "colours")), "--no-browser", "--json"
    )
    with warm.start(words, environment, talking=True) as process:
        assert process.stdout is not None
        address = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")["address"]
        shown = re.fullmatch(r"http://(127\.0\.0\.1:\d+)(/[\w-]{32}/)", address)
        assert shown is not None
        connection = http.client.HTTPConnection(shown[1], timeout=60)
        connection.request("GET", shown[2])
        assert connection.getresponse().status == 200
        connection.close()
        os.kill(process.pid, signal.SIGINT)
        process.communicate()
        assert process.returncode == 0

"""A server on 127.0.0.1 that speaks OpenAI's protocol for chats, as well or as badly as a test
wants."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, dict[str, str], bytes]
KEY = "sk-" + "s3cret" * 4


@dataclass
class ChatServer:
    """`reply` makes each answer of a request's body; on None the server does not answer until it is
    closed."""

    reply: Callable[[dict[str, Any]], Reply | None]
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    address: str = ""
    closed: threading.Event = field(default_factory=threading.Event)


def said(text: str | None, **more: Any) -> Reply:
    """Return a whole answer of the protocol with this text."""
    message = {"role": "assistant", "content": text, **more}
    usage = {"completion_tokens": 1, "prompt_tokens": 1, "total_tokens": 2}
    document = {
        "id": "1", "object": "chat.completion", "created": 0, "model": "m", "system_fingerprint": "", "usage": usage,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }  # fmt: skip
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


def refused(status: int, text: str = "no", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, named, json.dumps({"error": {"message": text}}).encode()


def contexts(*texts: str) -> Reply:
    return said(json.dumps({"contexts": texts}))


@contextlib.contextmanager
def chat_server(reply: Callable[[dict[str, Any]], Reply | None]) -> Iterator[ChatServer]:
    server = ChatServer(reply)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append(body | {"path": self.path})
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = server.reply(body)
            if answer is None:
                server.closed.wait(60)
                self.close_connection = True
                return
            status, headers, content = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    class Listening(ThreadingHTTPServer):
        request_queue_size = 128  # beyond it, Linux delays a connection by a second

    listening = Listening(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{listening.server_address[1]}/v1"
    try:
        yield server
    finally:
        server.closed.set()
        listening.shutdown()
        listening.server_close()

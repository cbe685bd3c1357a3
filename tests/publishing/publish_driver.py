"""A process that publishes on request, each time in a child that can be killed. Its Hub comes by
environment.

A line of JSON in: {"directory": …, "repo": …, "options": {…}}, with "model": true for a model's
folder. Lines out: {"child": process id}, then what came of it:
{"published": {…}, "sending": […]}, {"error": […], "hint": …, "exit_code": …}, or {"killed":
signal}. The parent has imported all that publishing needs, so that a child begins at once.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Any

import datasets  # noqa: F401
import huggingface_hub.hf_api  # noqa: F401

from counterfoil.cli.publish import preview_lines
from counterfoil.data.hub import Patience
from counterfoil.errors import CounterfoilError
from counterfoil.progress import listening
from counterfoil.publishing.publish_dataset import Sending, publish
from counterfoil.publishing.publish_model import publish_model


def answer(call: dict[str, Any]) -> dict[str, Any]:
    seen: list[str] = []
    lines: list[str] = []
    sending: list[Sending] = []

    def confirm(ahead: Any) -> bool:
        seen.extend(preview_lines(ahead))
        return call.get("confirm", True)

    options = dict(call["options"])
    if "silence" in options:
        options["patience"] = Patience(silence=options.pop("silence"))
    try:
        publishing: Any = publish_model if call.get("model") else publish
        with listening(lambda event: sending.append(event) if isinstance(event, Sending) else None):
            done = publishing(
                call["directory"], call.get("repo"), confirm=confirm, tell=lines.append, **options
            )
    except CounterfoilError as error:
        problems = list(error.problems)
        failure = {
            "error": problems,
            "hint": error.hint,
            "exit_code": error.exit_code,
            "kind": type(error).__name__,
        }
        return {**failure, "preview": seen, "lines": lines}
    if done is None:
        return {
            "published": None,
            "preview": seen,
            "lines": lines,
            "sending": [asdict(event) for event in sending],
        }
    names = (
        "commit",
        "commits",
        "private",
        "tag",
        "pull_request",
        "files",
        "files_changed",
        "configs_loaded",
    )
    answers = {name: getattr(done, name, None) for name in names}
    return {
        "published": answers,
        "preview": seen,
        "lines": lines,
        "sending": [asdict(event) for event in sending],
    }


def say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    for line in sys.stdin:
        call = json.loads(line)
        child = os.fork()
        if not child:
            say({"child": os.getpid()})
            say(answer(call))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            say({"killed": os.waitstatus_to_exitcode(status)})

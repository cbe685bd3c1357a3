"""Failures of a chat model on a server are found like those of any classifier."""

from __future__ import annotations

import re
from pathlib import Path

from mined_examples import mine_sneakers

from chat_server import chat_server, said


def test_a_chat_model_is_a_target(tmp_path: Path) -> None:
    def reply(body: dict) -> tuple:
        text = body["messages"][0]["content"][1]["text"]
        letter = re.search(r"^([A-Z])\) (?!sneaker)", text, re.MULTILINE)
        assert letter is not None
        return said(letter[1])

    with chat_server(reply) as server:
        result = mine_sneakers(
            tmp_path,
            "mine.settings.permutations=null",
            "mine.others=[]",
            method="slices",
            limit=60,
            target=f"chat:small@{server.address}",
        )
        calls = len(server.requests)
    findings = result.findings
    assert findings.answered is not None
    assert findings.answered.rows == calls == 60
    (sneaker,) = [answered for answered in findings.answered.classes if answered.name == "sneaker"]
    assert sneaker.rate == 1.0

"""What people write in a README on the Hub stays when a dataset or a model is published again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from publishing_cases import REPO, add_by_hand, call, contents, published

from counterfoil.dataset.card.markdown import with_marks, without_marks
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.publishing.files import RemoteFile, hash_file
from counterfoil.publishing.kept_card import kept_card
from counterfoil.publishing.remote import Branch
from counterfoil.publishing.sending import Sender
from loopback_hub import LoopbackHub

Start = Callable[..., Any]
PROMPT = "extra_gated_prompt: Say who you are.\nextra_gated_fields: {Name: text}\n"


def card(metadata: str, text: str) -> str:
    return f"---\n{metadata}---\n\n{text}"


OURS = with_marks(card("license: mit\npretty_name: Garments\n", "# Garments\n\nNew numbers.\n"))
BEFORE = with_marks(card("license: mit\npretty_name: Garments\n", "# Garments\n\nOld numbers.\n"))
HOLDS_MARKS = "Its recipe:\n\n" + BEFORE.partition("---\n\n")[2]
OPEN = with_marks(card("license: other\n", "# Garments\n"))


def halves(text: str) -> tuple[dict[str, Any], str]:
    _, block, body = text.split("---\n", 2)
    return yaml.safe_load(block), body


@pytest.mark.parametrize(
    ("ours", "remote", "metadata", "shown", "note"),
    [
        pytest.param(OURS, BEFORE, {}, [], "", id="nothing of people"),
        pytest.param(
            OURS, BEFORE.replace("license: mit\n", "license: mit\n" + PROMPT),
            {"extra_gated_prompt": "Say who you are.", "extra_gated_fields": {"Name": "text"}}, [],
            "extra_gated_prompt, extra_gated_fields", id="a gated prompt",
        ),
        pytest.param(OURS, BEFORE + "\n## Thanks\n\nTo all.\n", {}, ["## Thanks\n\nTo all."], "stays", id="below"),
        pytest.param(
            OURS, BEFORE.replace("---\n\n<!--", "---\n\nRead the terms.\n\n<!--"), {}, ["Read the"
                " terms."], "stays",
            id="above",
        ),
        pytest.param(
            OURS, BEFORE.replace("\n", "\r\n") + "Below.\r\n", {}, ["Below."], "stays", id="as Windows ends lines"
        ),
        pytest.param(
            OURS, BEFORE.replace("Old", "Odd"), {}, [], "between the two marks is replaced", id="inside the marks"
        ),
        pytest.param(
            OURS, BEFORE.replace("license: mit", "license: cc-by-4.0"), {"license": "mit"}, [],
            "license of the repository, 'cc-by-4.0', is replaced by 'mit'", id="another licence"
                " than the recipe's",
        ),
        pytest.param(
            OPEN, OPEN.replace("license: other", "license: other\nlicense_name: ours\nlicense_link:"
                " LICENSE"),
            {"license": "other", "license_name": "ours", "license_link": "LICENSE"}, [], "license stays",
            id="a licence where the recipe names none",
        ),
        pytest.param(
            OURS, BEFORE.replace("license: mit\n", "license: mit\nlicense_name: old\ntask_ids:"
                " [a]\n"), {}, [], "",
            id="keys of an earlier card of ours",
        ),
        pytest.param(
            with_marks(card("license: mit\npretty_name: Garments\n", HOLDS_MARKS)), BEFORE + "Below.\n", {},
            ["Below."], "stays", id="marks in our own text",
        ),
    ],
)  # fmt: skip
def test_people_s_keys_and_texts_stay(
    ours: str, remote: str, metadata: dict[str, Any], shown: list[str], note: str
) -> None:
    text, lines = kept_card(ours, remote, "README.md", published=True, untouched=False)
    block_of_card, part = halves(ours)
    block, body = halves(text)
    assert block == {**block_of_card, **metadata}
    assert part.strip() in body
    assert body.replace(part.strip(), "").strip() == "\n\n".join(shown)
    assert note in "\n".join(lines) and bool(lines) == bool(note)
    assert kept_card(ours, text, "README.md", published=True, untouched=False)[0] == text, (
        "the next time is the same"
    )


def test_a_card_that_was_there_first_stays_above() -> None:
    remote = card("license: mit\n" + PROMPT, "# Soon\n\nWords.\n")
    text, lines = kept_card(OURS, remote, "README.md", published=False, untouched=False)
    block, body = halves(text)
    assert block["extra_gated_prompt"] and body.index("# Soon\n\nWords.") < body.index(
        "New numbers."
    )
    assert len(lines) == 2


@pytest.mark.parametrize("remote", ["", "---\nlicense: mit\n---\n", without_marks(OURS)])
def test_a_card_without_words_of_people_is_replaced(remote: str) -> None:
    assert kept_card(OURS, remote, "README.md", published=True, untouched=False)[0] == OURS


def test_where_the_marks_are_gone_words_are_not_lost() -> None:
    remote = without_marks(BEFORE) + "Mine.\n"
    with pytest.raises(UserError, match="the marks around the part"):
        kept_card(OURS, remote, "README.md", published=True, untouched=False)
    assert kept_card(OURS, remote, "README.md", published=True, untouched=True)[0] == OURS


def test_what_people_wrote_on_the_hub_survives_a_new_version(
    hub_of_first: LoopbackHub, second: Path, start_publisher: Start, tmp_path: Path
) -> None:
    process = start_publisher(hub_of_first)
    text = published(hub_of_first)["README.md"].decode()
    text = text.replace("---\n", "---\n" + PROMPT, 1) + "\n## Ask us\n\nBy post.\n"
    add_by_hand(hub_of_first, "README.md", text.encode())
    answer = process.publish(call(second))
    files = published(hub_of_first)
    local = contents(second)
    assert {name for name in files if files[name] != local.get(name)} == {
        "README.md",
        "manifest.json",
    }
    block, body = halves(files["README.md"].decode())
    assert block["extra_gated_prompt"] == "Say who you are." and body.rstrip().endswith("By post.")
    assert halves(local["README.md"].decode())[1].strip() in body
    assert any("extra_gated_prompt" in line for line in answer["preview"])
    assert process.publish(call(second))["published"]["commits"] == 0, (
        "the same command changes nothing"
    )

    copy = tmp_path / "copy"
    for name, content in files.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(content)
    assert not verify(copy).problems, "the manifest lists the card that was sent"
    assert contents(second) == local, "publishing writes nothing to the directory"


def test_a_card_that_changes_while_files_are_sent_ends_the_publication(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("new")
    local = {"README.md": hash_file(tmp_path, "README.md")}
    before, edited = (RemoteFile("README.md", 3, name * 40, None) for name in ("a", "b"))
    sent = RemoteFile("README.md", 3, local["README.md"].git_id, None)
    remote: Any = SimpleNamespace(repo=REPO)
    ahead: Any = SimpleNamespace(card_before=before)
    sender = Sender(remote, "", local, ahead, "", 100)
    for unchanged in (before, sent):
        sender._refuse_another_card(Branch("main", "c", {"README.md": unchanged}))
    sender._refuse_another_card(Branch("main", "c", {}))
    with pytest.raises(RunFailure, match=r"someone changed README\.md"):
        sender._refuse_another_card(Branch("main", "c", {"README.md": edited}))

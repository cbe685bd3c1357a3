"""Answers of the Hub: which are tried again, after what wait, and the message at the end."""

from __future__ import annotations

import json
from email.utils import formatdate
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.data.hub import Patience, diagnose, with_retries, without_secrets
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from support.refusals import refuses

QUICK = Patience(first=0.0, longest=0.0)


API = f"{constants.ENDPOINT}/api/datasets/a/b/commit/main"
STORAGE = "https://storage.invalid/bucket/oid?X-Amz-Signature=abc"


def answer(
    status: int, headers: dict[str, str] | None = None, message: str = "", url: str = API
) -> HfHubHTTPError:
    request = httpx2.Request("POST", url)
    response = httpx2.Response(status, headers=headers, request=request)
    return HfHubHTTPError(f"{status} for you", response=response, server_message=message)


def in_upload(error: Exception) -> RuntimeError:
    """Wrap an error as the client does during an upload."""
    wrapped = RuntimeError("Error while uploading 'data/x' to the Hub.")
    wrapped.__cause__ = error
    return wrapped


def test_passing_faults_are_tried_again() -> None:
    for status in (408, 412, 429, 500, 502, 503, 504):
        assert diagnose(answer(status), "sending").reason


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, RunFailure, "400"),
        (401, UserError, "no valid token"),
        (403, UserError, "not allowed"),
        (404, UserError, "no such repository"),
        (409, UserError, "taken"),
        (413, RunFailure, "too much for one request"),
        (501, RunFailure, "501"),
    ],
)
def test_refusals_end_it_with_words_for_people(
    status: int, kind: type[CounterfoilError], words: str
) -> None:
    with refuses("hub-refused", "sending", words, kind=kind):
        diagnose(answer(status), "sending")


@pytest.mark.parametrize("status", [403, 507])
def test_a_full_storage_is_named_and_not_tried_again(status: int) -> None:
    with refuses("hub-refused", "sending", "storage limit reached", kind=RunFailure):
        diagnose(
            answer(status, message="Private repository storage limit reached, upgrade your plan"),
            "sending",
        )


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_signed_address_that_ran_out_is_no_refusal(status: int) -> None:
    assert diagnose(answer(status, url=STORAGE), "loading").reason
    assert diagnose(in_upload(answer(status, url=STORAGE)), "sending").reason
    with pytest.raises(CounterfoilError):
        diagnose(in_upload(answer(status)), "sending")


@pytest.mark.parametrize(
    "error",
    [
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        httpx2.RemoteProtocolError("cut"),
        in_upload(httpx2.WriteError("cut")),
        json.JSONDecodeError("cut", "{", 1),
    ],
)
def test_a_network_that_fails_is_tried_again(error: Exception) -> None:
    assert diagnose(error, "sending").reason


def test_errors_of_this_program_are_not_taken_for_the_network() -> None:
    with pytest.raises(KeyError):
        diagnose(KeyError("x"), "sending")


def test_answers_that_the_client_cannot_use_are_tried_again() -> None:
    assert diagnose(ValueError("Malformed response from server"), "sending").reason
    assert diagnose(ValueError("preupload_info is improperly formatted"), "sending").reason


def test_a_file_that_cannot_be_read_is_named_and_not_blamed_on_the_hub(tmp_path: Path) -> None:
    with pytest.raises(OSError) as failed:
        (tmp_path / "gone").read_bytes()
    with refuses("hub-unreachable", "sending", str(tmp_path / "gone"), kind=RunFailure):
        diagnose(in_upload(failed.value), "sending")


def test_no_token_and_offline_say_what_to_do() -> None:
    for error, code, words in (
        (LocalTokenNotFoundError("none"), "hub-refused", "hf auth login"),
        (OfflineModeIsEnabled("off"), "hub-unreachable", "HF_HUB_OFFLINE"),
    ):
        with refuses(code, "sending", kind=CounterfoilError) as caught:
            diagnose(error, "sending")
        assert words in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"Retry-After": "7"}, 7, 7),
        ({"Retry-After": formatdate(4102444800, usegmt=True)}, 1e8, 4102444800),
        ({"RateLimit": '"api";r=0;t=55'}, 55, 55),
    ],
)
def test_the_hub_says_how_long_to_wait(headers: dict[str, str], least: float, most: float) -> None:
    seconds = diagnose(answer(429, headers), "sending").retry_after
    assert seconds is not None
    assert least <= seconds <= most


def test_a_rate_limit_with_calls_left_asks_for_no_wait() -> None:
    assert diagnose(answer(429, {"RateLimit": '"api";r=3;t=55'}), "sending").retry_after is None


@given(
    failed=st.integers(1, 30),
    draw=st.floats(0, 1, exclude_max=True),
    retry_after=st.none() | st.floats(0, 4000),
)
def test_waits_are_bounded_and_never_shorter_than_asked(
    failed: int, draw: float, retry_after: float | None
) -> None:
    patience = Patience()
    wait = patience.wait(failed, retry_after, draw)
    assert wait >= (retry_after or 0)
    assert wait <= max(patience.longest, (retry_after or 0) + 1)
    # The least wait of a later try is not below the least of an earlier one.
    assert patience.wait(failed + 1, None, 0.0) >= patience.wait(failed, None, 0.0)


def test_waits_differ_between_clients() -> None:
    assert Patience().wait(3, None, 0.0) != Patience().wait(3, None, 0.9)


def test_calls_are_repeated_until_one_succeeds() -> None:
    answers = [answer(503), httpx2.ReadError("cut"), answer(429)]
    heard: list[str] = []

    def call() -> str:
        if answers:
            raise answers.pop(0)
        return "done"

    assert with_retries(call, "sending", tell=heard.append, patience=QUICK) == "done"
    assert len(heard) == 3
    assert all(line.startswith("sending: ") for line in heard)


def test_patience_ends() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise answer(503)

    with refuses("hub-unreachable", "sending", "4 tries", kind=RunFailure) as caught:
        with_retries(call, "sending", patience=Patience(tries=4, first=0.0, longest=0.0))
    assert calls == 4
    assert "run the same command again" in (caught.value.hint or "")


def test_a_wait_beyond_patience_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"slept {seconds} s"))

    def call() -> None:
        raise answer(429, {"Retry-After": "86400"})

    with refuses("hub-unreachable", "committing", "429", kind=RunFailure):
        with_retries(call, "committing")


def test_a_refusal_is_not_repeated() -> None:
    calls = 0

    def call() -> None:
        nonlocal calls
        calls += 1
        raise answer(403)

    with pytest.raises(UserError):
        with_retries(call, "sending", patience=QUICK)
    assert calls == 1


def test_what_this_program_raises_within_an_upload_comes_out_as_it_is() -> None:
    calls = 0
    failure = RunFailure("a.bin changed", "Verify it.")

    def call() -> None:
        nonlocal calls
        calls += 1
        try:
            raise failure
        except RunFailure as error:  # as the client wraps whatever reading a file raises
            raise RuntimeError("Error while uploading 'a.bin' to the Hub.") from error

    with pytest.raises(RunFailure) as caught:
        with_retries(call, "sending", patience=QUICK)
    assert caught.value is failure
    assert calls == 1


def test_messages_hold_no_token_and_no_signature() -> None:
    text = (
        "PUT https://s3.invalid/bucket/key?X-Amz-Signature=abc&t=1 by hf_AbCdEfGhIj\n"
        " Authorization: Bearer hf_zzz"
    )
    shown = without_secrets(text)
    assert "abc" not in shown
    assert "hf_A" not in shown
    assert "zzz" not in shown
    assert "eyJ" not in without_secrets("hf_oauth_eyJhbGciOi.x-y_z")
    assert "ijkl" not in without_secrets("Illegal header value b'Bearer hf_abcdefgh ijklmnop'")
    assert "https://s3.invalid/bucket/key" in shown
    assert "\n" not in shown

"""Large file storage: which blobs are wanted and where to send them; receiving, verifying and
sending them; Xet."""

from __future__ import annotations

import re
import time
from math import ceil
from typing import TYPE_CHECKING, Any

from loopback_hub.answers import Answer, Refusal
from loopback_hub.api_files import part_of
from loopback_hub.calls import Call

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub


def batch(hub: LoopbackHub, call: Call, kind: str, name: str) -> Answer:
    """Return the actions for each object; an object that the Hub has needs none."""
    repository = hub.find(call, kind, name, write=True)
    if call.json.get("operation") != "upload" or call.json.get("hash_algo", "sha256") != "sha256":
        raise Refusal(422, "The loopback Hub takes uploads by sha256")
    hub.check_storage(
        repository,
        [blob for blob in call.json.get("objects", []) if blob.get("oid") not in repository.blobs],
    )
    objects = []
    parts = False
    for blob in call.json.get("objects", []):
        sha256 = str(blob.get("oid"))
        size = blob.get("size")
        if not re.fullmatch("[0-9a-f]{64}", sha256) or not isinstance(size, int) or size < 1:
            objects.append(
                {
                    "oid": sha256,
                    "size": size or 0,
                    "error": {"code": 422, "message": "no sha256 and size"},
                }
            )
        elif sha256 in repository.blobs:
            objects.append({"oid": sha256, "size": size})
        else:
            actions = _actions(hub, kind, name, sha256, size)
            parts = parts or "chunk_size" in actions["upload"].get("header", {})
            objects.append({"oid": sha256, "size": size, "authenticated": True, "actions": actions})
    return Answer.of({"transfer": "multipart" if parts else "basic", "objects": objects})


def _actions(
    hub: LoopbackHub, kind: str, name: str, sha256: str, size: int
) -> dict[str, dict[str, Any]]:
    repo = f"{kind}/{name}"
    verify = {"href": f"{hub.web_address(kind, name)}.git/info/lfs/objects/verify"}
    if hub.multipart_above is None or size <= hub.multipart_above:
        return {
            "upload": {"href": hub.signed(f"/lfs/{sha256}", size=str(size), repository=repo)},
            "verify": verify,
        }
    numbers = range(1, ceil(size / hub.part_size) + 1)
    header = {str(number): hub.signed(f"/lfs/{sha256}/{number}") for number in numbers}
    complete = hub.signed(
        f"/lfs/complete/{sha256}", at=hub.endpoint, size=str(size), repository=repo
    )
    return {
        "upload": {"href": complete, "header": {"chunk_size": str(hub.part_size), **header}},
        "verify": verify,
    }


def verify(hub: LoopbackHub, call: Call, kind: str, name: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    sha256 = str(call.json.get("oid"))
    if sha256 not in repository.blobs or hub.contents.size(sha256) != call.json.get("size"):
        raise Refusal(422, "The object is not here, or has another size")
    return Answer.of({})


def upload(hub: LoopbackHub, call: Call, sha256: str) -> Answer:
    hub.check_signature(call)
    hub.contents.receive(sha256, int(call.parameter("size") or 0), call.chunks())
    hub.add_blob(call, sha256)
    return Answer(200, headers={"ETag": f'"{sha256}"'})


def upload_part(hub: LoopbackHub, call: Call, sha256: str, part: str) -> Answer:
    hub.check_signature(call)
    return Answer(
        200, headers={"ETag": f'"{hub.contents.receive_part(sha256, int(part), call.chunks())}"'}
    )


def complete(hub: LoopbackHub, call: Call, sha256: str) -> Answer:
    hub.check_signature(call)
    # Once more is no harm: a client whose answer was lost asks again.
    if hub.contents.size(sha256) is None:
        etags = {
            int(part["partNumber"]): str(part["etag"]).strip('"')
            for part in call.json.get("parts", [])
        }
        hub.contents.join_parts(sha256, int(call.parameter("size") or 0), etags)
    hub.add_blob(call, sha256)
    return Answer.of({"success": True})


def xet_token(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str) -> Answer:
    """Return a folder as the storage of Xet; its client fills it with chunks of its own form.

    The loopback Hub cannot join the chunks; `LoopbackHub.know` gives it the whole content.
    """
    hub.find(call, kind, name, write=True).head(revision)
    until = int(time.time()) + 3600
    return Answer.of(
        {"casUrl": f"local://{hub.folder / 'xet'}", "exp": until, "accessToken": "of the storage"}
    )


def download(hub: LoopbackHub, call: Call, sha256: str) -> Answer:
    hub.check_signature(call)
    return part_of(call, hub.contents.blob(sha256), {"ETag": f'"{sha256}"'})

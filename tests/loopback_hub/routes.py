"""Which request is answered by which endpoint."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import unquote

from loopback_hub import (
    api_blobs,
    api_commits,
    api_discussions,
    api_files,
    api_refs,
    api_repositories,
)
from loopback_hub.answers import Answer, Refusal
from loopback_hub.calls import Call

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub

_KINDS = {"models": "model", "datasets": "dataset", "": "model", "datasets/": "dataset"}
_API = r"/api/(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)"
_WEB = r"/(?P<kind>(?:datasets/)?)(?P<name>[^/]+/[^/]+)"
_REVISION = r"(?P<revision>[^/]+)"

Endpoint = Callable[..., Answer]
HUB: list[tuple[str, str, Endpoint]] = [
    ("GET", r"/api/whoami-v2", api_repositories.whoami),
    ("POST", r"/api/validate-yaml", api_repositories.validate_yaml),
    ("POST", r"/api/repos/create", api_repositories.create),
    ("DELETE", r"/api/repos/delete", api_repositories.delete),
    ("PUT", rf"{_API}/settings", api_repositories.change_settings),
    ("GET", rf"{_API}/auth-check(?P<write>/write)?", api_repositories.check_access),
    ("GET", rf"{_API}(?:/revision/{_REVISION})?", api_repositories.describe),
    ("GET", rf"{_API}/tree/{_REVISION}(?:/(?P<path>.*))?", api_files.tree),
    ("POST", rf"{_API}/paths-info/{_REVISION}", api_files.paths_info),
    ("GET", rf"{_API}/commits/{_REVISION}", api_files.commits),
    ("GET", rf"{_WEB}/resolve/{_REVISION}/(?P<path>.+)", api_files.resolve),
    ("HEAD", rf"{_WEB}/resolve/{_REVISION}/(?P<path>.+)", api_files.resolve),
    ("POST", rf"{_API}/preupload/{_REVISION}", api_commits.preupload),
    ("POST", rf"{_API}/commit/{_REVISION}", api_commits.commit),
    ("GET", rf"{_API}/refs", api_refs.refs),
    ("POST", rf"{_API}/tag/{_REVISION}", api_refs.create_tag),
    ("DELETE", rf"{_API}/tag/(?P<tag>[^/]+)", api_refs.delete_tag),
    ("POST", rf"{_API}/branch/(?P<branch>[^/]+)", api_refs.create_branch),
    ("DELETE", rf"{_API}/branch/(?P<branch>[^/]+)", api_refs.delete_branch),
    ("GET", rf"{_API}/discussions", api_discussions.listed),
    ("POST", rf"{_API}/discussions", api_discussions.opened),
    ("GET", rf"{_API}/discussions/(?P<number>\d+)", api_discussions.details),
    ("POST", rf"{_API}/discussions/(?P<number>\d+)/comment", api_discussions.commented),
    ("POST", rf"{_API}/discussions/(?P<number>\d+)/status", api_discussions.status_changed),
    ("POST", rf"{_API}/discussions/(?P<number>\d+)/merge", api_discussions.merged),
    ("POST", rf"{_WEB}\.git/info/lfs/objects/batch", api_blobs.batch),
    ("POST", rf"{_WEB}\.git/info/lfs/objects/verify", api_blobs.verify),
    ("GET", rf"{_API}/xet-write-token/{_REVISION}", api_blobs.xet_token),
    ("POST", r"/lfs/complete/(?P<sha256>[0-9a-f]{64})", api_blobs.complete),
]
STORAGE: list[tuple[str, str, Endpoint]] = [
    ("PUT", r"/lfs/(?P<sha256>[0-9a-f]{64})", api_blobs.upload),
    ("PUT", r"/lfs/(?P<sha256>[0-9a-f]{64})/(?P<part>\d+)", api_blobs.upload_part),
    ("GET", r"/lfs/(?P<sha256>[0-9a-f]{64})", api_blobs.download),
    ("HEAD", r"/lfs/(?P<sha256>[0-9a-f]{64})", api_blobs.download),
]


def route(hub: LoopbackHub, call: Call, *, storage: bool) -> Answer:
    """Return the answer of the endpoint for a request's method and path. Raises Refusal without
    such an endpoint."""
    for method, pattern, endpoint in STORAGE if storage else HUB:
        match = re.fullmatch(pattern, call.path) if method == call.method else None
        if match is not None:
            named = {name: value and unquote(value) for name, value in match.groupdict().items()}
            if "kind" in named:
                named["kind"] = _KINDS[match["kind"]]
            return endpoint(hub, call, **named)
    raise Refusal(404, f"the loopback Hub has no {call.method} {call.path}")

"""How the real clients are pointed at a loopback Hub, in this process or in another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from loopback_hub.hub import LoopbackHub

# In the User-Agent of an observer: its requests meet no fault, count for no quota and call no hook.
OBSERVER = "loopback-observer"
QUICK_SLEEP = Path(__file__).parent / "quick_sleep"
SLEEP_SCALE = "LOOPBACK_SLEEP_SCALE"


def client_environment(
    hub: LoopbackHub,
    home: str | Path,
    *,
    token: str | None = None,
    observer: bool = False,
    sleep_scale: float | None = None,
    xet: bool = False,
    inherited: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of a process whose Hub is this one, for `subprocess.run(env=…)`.

    `home` holds its caches. `token` is the hub's own unless given, and an empty one makes a
    stranger. `sleep_scale` multiplies every `time.sleep` of that process (0.01: a client's wait of
    4 s takes 40 ms), changing no logic. With `xet` large files go to a storage that is a folder
    (see `api_blobs.xet_token`).
    """
    environment = {
        name: value
        for name, value in (inherited or os.environ).items()
        if not name.startswith("HF_")
    }
    paths = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
    if sleep_scale is not None:
        environment[SLEEP_SCALE] = str(sleep_scale)
        paths.insert(0, str(QUICK_SLEEP))
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    token = hub.token if token is None else token
    return {
        **environment,
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "0" if xet else "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "NO_PROXY": "127.0.0.1",
        **({"HF_TOKEN": token} if token else {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}),
        **({"HF_HUB_USER_AGENT_ORIGIN": OBSERVER} if observer else {}),
    }


def client(hub: LoopbackHub, *, token: str | bool | None = None, observer: bool = False) -> HfApi:
    """Return the Hub's client in this process, with the hub's own token unless another is given;
    False is a stranger's.

    Xet has to be off where it is imported (`HF_HUB_DISABLE_XET=1`); the fixture `loopback` sees to
    that.
    """
    from huggingface_hub import HfApi

    given = hub.token if token is None else token
    return HfApi(
        endpoint=hub.endpoint, token=given, user_agent={OBSERVER: "1"} if observer else None
    )

"""Real Ray clusters on this machine, whose nodes are processes here; and what of them still
runs."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read at the import of Ray: it sends nothing

ray = pytest.importorskip("ray", reason="Ray is not installed")

from ray._private import authentication_test_utils  # noqa: E402

# Its ports are open to the network while tests run: only who has this word is served.
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(16)
authentication_test_utils.set_auth_mode("token")
authentication_test_utils.reset_auth_token_state()

# Every process of a node runs this first. Where its environment says so, it has no package of a
# name, or sees nothing below a folder (then it leaves a file beside that folder when it tries to
# open something there), or another version.
_FIRST = """
import os, sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == os.environ["LACKS"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def unseeing(event, words):
    if event == "open" and isinstance(words[0], str) and words[0].startswith(os.environ["UNSEEN"] + "/"):
        open(os.environ["UNSEEN"] + ".tried", "w").close()
        raise FileNotFoundError(2, "No such file or directory", words[0])

if "VERSION" in os.environ:
    import counterfoil.models.stack
    counterfoil.models.stack.RENDERING_VERSION = os.environ["VERSION"]
if "LACKS" in os.environ:
    sys.meta_path.insert(0, Lacking())
if "UNSEEN" in os.environ:
    sys.addaudithook(unseeing)
"""

ACTOR = "ray::RayWorker"
# Else each node starts processes for work that may come, of seconds each, and one that is lost is
# missed after 15 s.
_QUICK = {
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_health_check_period_ms": "600",
}
# Without the processes that print what actors say and that let clusters of a cloud grow.
_FEW = {"include_log_monitor": False, "no_monitor": True}


@contextlib.contextmanager
def running_cluster(nodes: int, **of_nodes: str) -> Iterator[Any]:
    """Yield a cluster of so many nodes of one CPU core each, the first its head; `of_nodes` is
    their environment."""
    from ray._private.utils import get_ray_address_file
    from ray.cluster_utils import Cluster

    # A head notes its address there, and makes this folder only if it has no other.
    Path(get_ray_address_file(None)).parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="cf-", dir="/tmp"))  # short: paths of sockets are
    (folder / "node").mkdir()
    (folder / "node" / "sitecustomize.py").write_text(_FIRST)
    paths = [str(folder / "node"), *(path for path in sys.path if path)]
    cluster = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        for name, value in {**_QUICK, **of_nodes}.items():
            patch.setenv(name, value)
        try:
            head = {"num_cpus": 1, "include_dashboard": False, "temp_dir": str(folder), **_FEW}
            cluster = Cluster(initialize_head=True, head_node_args=head)
            for _ in range(1, nodes):
                cluster.add_node(num_cpus=1, **_FEW)
            yield cluster
        finally:
            if cluster is not None:
                cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def actors() -> set[int]:
    """Return the processes of this machine that are actors of the engine, of any parent."""
    numbers = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if ACTOR in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                numbers.add(process.pid)
    return numbers

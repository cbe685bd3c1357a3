"""A test process of pytest-xdist, forked from one that has imported what tests do; so is the server
of its workers.

What `python` is in `--tx "3*popen//python=<python> tests/warm/pytest_worker.py"`: each would import
for ten seconds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])
    from warm.processes import ANYWHERE, KEEPER, Nursery

    began = os.getppid()
    request = {
        "words": sys.argv[sys.argv.index("-c") :],
        "environment": {**os.environ, KEEPER: str(began)},
        "folder": str(Path.cwd()),
        "path": [],
        "new_session": False,
    }
    connection, _ = Nursery(ANYWHERE, {}, began).fork(request, [0, 1, 2])
    sys.exit(int(connection.recv(64) or b"1"))

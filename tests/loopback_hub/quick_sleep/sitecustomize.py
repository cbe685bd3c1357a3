"""Read by Python at its start where this folder is on PYTHONPATH: makes every `time.sleep` shorter
or longer.

For processes of tests that wait between their retries; nothing but the length of the waits changes.
"""

import os
import time

_scale = float(os.environ.get("LOOPBACK_SLEEP_SCALE", "1"))
_sleep = time.sleep


def _scaled(seconds, /) -> None:
    _sleep(seconds * _scale)


time.sleep = _scaled

"""What all tests share: hypothesis without a clock, since the machines that run these are busy ones."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

# Started in the background, a shell makes its children deaf to Ctrl-C, and they pass it on: the commands that the
# tests interrupt would never hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

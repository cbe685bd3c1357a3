"""A small Hugging Face Hub on 127.0.0.1 for tests: the real clients talk real HTTP to it, and
faults come on demand."""

from loopback_hub.calls import LoggedRequest
from loopback_hub.clients import OBSERVER, client, client_environment
from loopback_hub.faults import Fault, Faults
from loopback_hub.hub import LoopbackHub
from loopback_hub.reader import LoadingFailed, Reader

__all__ = [
    "OBSERVER",
    "Fault",
    "Faults",
    "LoadingFailed",
    "LoggedRequest",
    "LoopbackHub",
    "Reader",
    "client",
    "client_environment",
]

"""The Hub's client while we publish: no bars, no signed addresses in logs, no silent connection, no hidden wait."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from counterfoil.hub.retries import Patience, retry_after


@contextlib.contextmanager
def attentive_client(patience: Patience) -> Iterator[None]:
    """Within it, the client of `huggingface_hub` is watched; then it is as it was.

    A connection that is silent for `patience.silence` seconds is given up, where the client would wait forever. An
    answer that asks for a wait longer than `patience.longest` is raised, where the client would sleep unheard.
    """
    import httpx2
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging
    from huggingface_hub.utils._http import default_client_factory, hf_raise_for_status

    limits = httpx2.Timeout(patience.silence).as_dict()

    def limit(request: httpx2.Request) -> None:
        request.extensions["timeout"] = limits  # here, since some calls ask for none themselves

    def tell_of_waits(response: httpx2.Response) -> None:
        if response.status_code >= 400 and (retry_after(response.headers) or 0) > patience.longest:
            response.read()
            hf_raise_for_status(response)

    def factory() -> httpx2.Client:
        client = default_client_factory()
        client.event_hooks["request"].append(limit)
        client.event_hooks["response"].append(tell_of_waits)
        return client

    shown, level = not are_progress_bars_disabled(), logging.get_verbosity()
    disable_progress_bars()
    logging.set_verbosity(logging.CRITICAL)
    set_client_factory(factory)
    try:
        yield
    finally:
        set_client_factory(default_client_factory)
        logging.set_verbosity(level)
        if shown:
            enable_progress_bars()

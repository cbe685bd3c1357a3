"""What goes wrong while a model is fetched and read, told in words: no such repository, no network, a damaged file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.error_text import one_line


def told_in_words(name: str, load: Callable[[], Any]) -> Any:
    """`load()`, with what goes wrong on the way (network, disk, file format) told in one line."""
    import safetensors
    from huggingface_hub import errors as hub

    try:
        return load()
    except CounterfoilError:
        raise
    except hub.HFValidationError as error:
        raise UserError(f"model {name!r}: {error}") from error
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError) as error:
        raise UserError(
            f"model {name!r} is not on the Hub, or is private",
            "Check the name and revision, or run `hf auth login`.",
        ) from error
    except (hub.LocalEntryNotFoundError, hub.OfflineModeIsEnabled) as error:
        raise RunFailure(
            f"model {name!r} is not in the local cache and the Hub cannot be reached",
            "Connect once to fetch it, or name models that are here: lab:… or local-dir:…",
        ) from error
    except (safetensors.SafetensorError, EOFError) as error:
        raise RunFailure(f"model {name!r}: its weights file is damaged: {error}") from error
    except (OSError, hub.HfHubHTTPError) as error:
        raise RunFailure(f"model {name!r} could not be fetched or read: {error}") from error
    except Exception as error:
        # Weights that do not fit their architecture end in whatever a library meets first.
        raise RunFailure(f"model {name!r} could not be loaded: {one_line(error)}") from error

"""`USER/NAME[@REVISION]`: a dataset of the Hub, as people write it."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The Hub's rule for names, without its special cases, which the Hub itself refuses with a message.
_REFERENCE = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True, slots=True)
class DatasetReference:
    """A dataset repository, and a branch, tag or commit of it; None is the default branch."""

    repo: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> DatasetReference | None:
        """The reference that a text is; None for any other text."""
        match = _REFERENCE.fullmatch(text)
        return None if match is None else cls(match["repo"], match["revision"])

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"

"""The report's table of contents: a section's heading puts itself there when it is drawn."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class ContentsEntry:
    """A section: the id of its heading, and its short title."""

    id: str
    short: str


@dataclass
class Contents:
    """The sections in the order in which their headings were drawn."""

    entries: list[ContentsEntry] = field(default_factory=list)

    def heading(self, title: str, short: str | None = None) -> Markup:
        """A section's heading; the same title twice is one entry, at its first place."""
        from markupsafe import Markup

        name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
        if any(one.id == name for one in self.entries):
            return Markup("<h2>{}</h2>").format(title)
        self.entries.append(ContentsEntry(name, short or title))
        return Markup('<h2 id="{}">{}</h2>').format(name, title)

"""Licences as the Hub spells them: any that it does not list is declared as `other`, with a name of its own."""

from __future__ import annotations

import difflib
import re

# https://huggingface.co/docs/hub/repositories-licenses
# fmt: off
HUB_LICENSES = frozenset(
    {
        "afl-3.0", "agpl-3.0", "apache-2.0", "apple-amlr", "apple-ascl", "artistic-2.0",
        "bigcode-openrail-m", "bigscience-bloom-rail-1.0", "bigscience-openrail-m", "bsd",
        "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "bsl-1.0", "c-uda", "cc", "cc-by-2.0",
        "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0",
        "cc-by-nc-nd-3.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0",
        "cc-by-nd-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc0-1.0", "cdla-permissive-1.0",
        "cdla-permissive-2.0", "cdla-sharing-1.0", "creativeml-openrail-m", "deepfloyd-if-license",
        "ecl-2.0", "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1", "eupl-1.2",
        "fair-noncommercial-research-license", "gemma", "gfdl", "gpl", "gpl-2.0", "gpl-3.0",
        "grok2-community", "h-research", "intel-research", "isc", "lgpl", "lgpl-2.1", "lgpl-3.0",
        "lgpl-lr", "llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "llama4", "lppl-1.3c", "mit",
        "mpl-2.0", "ms-pl", "ncsa", "odbl", "odc-by", "ofl-1.1", "openmdw-1.0", "openrail",
        "openrail++", "osl-3.0", "other", "pddl", "postgresql", "unknown", "unlicense", "wtfpl", "zlib",
    }
)
# fmt: on

# Of a spelling to one of the list (difflib's ratio), to ask whether that is meant.
_CLOSE = 0.7
_MOST_SHOWN = 80

# How people read them; those of Creative Commons are spelled in `card/licenses.py`.
# fmt: off
LICENSE_NAMES = {
    "afl-3.0": "Academic Free License 3.0", "agpl-3.0": "GNU AGPL 3.0", "apache-2.0": "Apache License 2.0",
    "apple-amlr": "Apple Model License for Research", "apple-ascl": "Apple Sample Code License",
    "artistic-2.0": "Artistic License 2.0", "bigcode-openrail-m": "BigCode OpenRAIL-M",
    "bigscience-bloom-rail-1.0": "BigScience BLOOM RAIL 1.0", "bigscience-openrail-m": "BigScience OpenRAIL-M",
    "bsd": "BSD", "bsd-2-clause": "BSD 2-Clause", "bsd-3-clause": "BSD 3-Clause",
    "bsd-3-clause-clear": "BSD 3-Clause Clear", "bsl-1.0": "Boost Software License 1.0",
    "c-uda": "Computational Use of Data Agreement", "cc": "Creative Commons",
    "cdla-permissive-1.0": "CDLA Permissive 1.0", "cdla-permissive-2.0": "CDLA Permissive 2.0",
    "cdla-sharing-1.0": "CDLA Sharing 1.0", "creativeml-openrail-m": "CreativeML OpenRAIL-M",
    "deepfloyd-if-license": "DeepFloyd IF License", "ecl-2.0": "Educational Community License 2.0",
    "epl-1.0": "Eclipse Public License 1.0", "epl-2.0": "Eclipse Public License 2.0",
    "etalab-2.0": "Etalab Open License 2.0", "eupl-1.1": "EUPL 1.1", "eupl-1.2": "EUPL 1.2",
    "fair-noncommercial-research-license": "FAIR Noncommercial Research License", "gemma": "Gemma Terms of Use",
    "gfdl": "GNU Free Documentation License", "gpl": "GNU GPL", "gpl-2.0": "GNU GPL 2.0", "gpl-3.0": "GNU GPL 3.0",
    "grok2-community": "Grok 2 Community License", "h-research": "H Research License",
    "intel-research": "Intel Research Use License", "isc": "ISC License", "lgpl": "GNU LGPL",
    "lgpl-2.1": "GNU LGPL 2.1", "lgpl-3.0": "GNU LGPL 3.0", "lgpl-lr": "LGPL for Linguistic Resources",
    "llama2": "Llama 2 Community License", "llama3": "Llama 3 Community License",
    "llama3.1": "Llama 3.1 Community License",
    "llama3.2": "Llama 3.2 Community License", "llama3.3": "Llama 3.3 Community License",
    "llama4": "Llama 4 Community License", "lppl-1.3c": "LaTeX Project Public License 1.3c", "mit": "MIT",
    "mpl-2.0": "Mozilla Public License 2.0", "ms-pl": "Microsoft Public License", "ncsa": "NCSA",
    "odbl": "Open Database License", "odc-by": "Open Data Commons Attribution", "ofl-1.1": "SIL Open Font License 1.1",
    "openmdw-1.0": "OpenMDW 1.0", "openrail": "OpenRAIL", "openrail++": "OpenRAIL++-M",
    "osl-3.0": "Open Software License 3.0", "pddl": "Public Domain Dedication and License", "postgresql": "PostgreSQL",
    "unlicense": "The Unlicense", "wtfpl": "WTFPL", "zlib": "zlib",
}
# fmt: on


def hub_license(license: str) -> str | None:
    """The Hub's own spelling of a licence ("CC BY 4.0", "MIT License", "Apache-2.0"); None for one it does not list."""
    known = " ".join(license.split()).lower()
    joined = re.sub(r"[ _]+", "-", known)  # and no more: "gpl-3.0+" is another one
    for spelled in (known, joined, re.sub(r"-licen[cs]e(?=-|$)|-version(?=-)|^the-", "", joined)):
        if spelled in HUB_LICENSES:
            return spelled
    return next((id for id, name in LICENSE_NAMES.items() if name.lower() == known), None)


def license_note(license: str) -> str | None:
    """A line for whoever writes a recipe: that the Hub does not list its licence, and which one may be meant."""
    if hub_license(license) is not None:
        return None
    shown = license if len(license) <= _MOST_SHOWN else f"{license[: _MOST_SHOWN - 2]} …"
    name = license_slug(license.strip().lower())
    close = difflib.get_close_matches(license_slug(license[: 2 * _MOST_SHOWN].lower()), sorted(HUB_LICENSES), 1, _CLOSE)
    meant = f"; did you mean '{close[0]}'?" if close else "."
    named = f" with the license_name '{name[:_MOST_SHOWN]}'" if name else ""
    return f"license: {shown!r} is none that the Hub lists{meant} As it is the card says 'other'{named}."


def license_slug(text: str) -> str:
    """A licence's name in the characters that the Hub takes: lower-case letters, digits, '.' and '-'."""
    return re.sub(r"[^a-z0-9.]+", "-", text).strip("-.")

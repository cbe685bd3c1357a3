"""Which licence identifiers the Hub knows: any other must be declared as `other` with a name of its own."""

from __future__ import annotations

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


def license_metadata(license: str) -> tuple[str, str | None]:
    """The card's `license`, and its `license_name` where the Hub does not know the licence."""
    known = license.strip().lower()
    if known in HUB_LICENSES:
        return known, None
    # The Hub takes lower-case letters, digits, '.' and '-' in a licence's name.
    return "other", re.sub(r"[^a-z0-9.]+", "-", known).strip("-.") or None


# The SPDX identifiers of licences that the Hub spells in lower case, beside those of Creative Commons.
_SPDX = {"apache-2.0": "Apache-2.0", "bsd-3-clause": "BSD-3-Clause", "mit": "MIT", "odc-by": "ODC-By-1.0"}
_CREATIVE_COMMONS = re.compile(r"cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-\d\.\d")


def license_reference(license: str) -> str:
    """The address of a licence in SPDX's list, for readers that want one; the text itself for any other."""
    known = license.strip().lower()
    spdx = known.upper() if _CREATIVE_COMMONS.fullmatch(known) else _SPDX.get(known)
    return f"https://spdx.org/licenses/{spdx}.html" if spdx else license

"""Licences on the card: in its metadata as the Hub has them, for people, and as addresses of SPDX."""

from __future__ import annotations

import re

from counterfoil.recipe.names import LICENSE_NAMES, hub_license, license_slug

_CREATIVE_COMMONS = re.compile(r"cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-\d\.\d")
# No names of a licence: that there is none of the list, or that nobody knows.
_NO_LICENSE = frozenset({"other", "unknown"})


def license_metadata(license: str) -> tuple[str, str | None]:
    """The card's `license`, and its `license_name` where the Hub does not list the licence."""
    listed = hub_license(license)
    if listed is not None:
        return listed, None
    return "other", license_slug(license.strip().lower()) or None


def license_for_people(license: str) -> str:
    """A licence as people read it: "CC BY 4.0" for `cc-by-4.0`; one that the Hub does not list as it is written."""
    listed = hub_license(license)
    if listed is None or listed in _NO_LICENSE:
        return license
    return LICENSE_NAMES.get(listed) or _creative_commons(listed)


def _creative_commons(known: str) -> str:
    """`cc-by-nc-sa-4.0` is "CC BY-NC-SA 4.0", as Creative Commons spells it."""
    family, version = known.rsplit("-", 1)
    return f"{family.upper().replace('CC-', 'CC ', 1)} {version}"


# The SPDX identifiers of licences that the Hub spells in lower case, beside those of Creative Commons.
_SPDX = {"apache-2.0": "Apache-2.0", "bsd-3-clause": "BSD-3-Clause", "mit": "MIT", "odc-by": "ODC-By-1.0"}


def license_reference(license: str) -> str:
    """The address of a licence in SPDX's list, for readers that want one; the text itself for any other."""
    known = hub_license(license) or ""
    spdx = known.upper() if _CREATIVE_COMMONS.fullmatch(known) else _SPDX.get(known)
    return f"https://spdx.org/licenses/{spdx}.html" if spdx else license

"""Check the names in a recipe, and suggest the nearest valid name: of classes, shifts, groups,
splits, licences, models.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from counterfoil.errors import ProblemLine, UserError, did_you_mean, first_of, quoted, some_of
from counterfoil.recipe.messages import message

if TYPE_CHECKING:
    from counterfoil.recipe.prompts import RecipeClass


# no dots: a dot in a WebDataset key silently merges samples
CLASS_ID = re.compile(r"[A-Za-z0-9_-]+")
# split names of `datasets` hold no "-", and keys hold no "."
GROUP_NAME = re.compile(r"[a-z0-9_]+")
# Files of a dataset directory that the dataset's own recipe names. `store/layout.py` has the other
# files.
RECIPE = "recipe.yaml"
LOCK = "lock.json"
ROWS = "rows.csv"
TOKENS = "tokens"
EMBEDDINGS = "embeddings.safetensors"
# In a dataset's own recipe, this prefix marks the name of a folder of the machine that built the
# dataset. Such a folder is never opened.
ELSEWHERE = "elsewhere:"
# The Hub's names of repositories and owners (`huggingface_hub.utils.validate_repo_id`).
LONGEST_NAME = 96
_MIDDLE_LENGTH = f"{{0,{LONGEST_NAME - 2}}}"
_HUB_NAME = f"[A-Za-z0-9](?:[A-Za-z0-9_.-]{_MIDDLE_LENGTH}[A-Za-z0-9_])?"
# The Hub also refuses names with `--` or `..`, and names that end in `.git`.
_NOT_REFUSED = r"(?!.*(?:--|\.\.|\.git$))"
DATASET_NAME = re.compile(_NOT_REFUSED + _HUB_NAME)
REPOSITORY = re.compile(f"{_NOT_REFUSED}{_HUB_NAME}/{_HUB_NAME}")
LONGEST_CLASS_NAME = 200  # this is more than any text encoder reads


# "base" is the name of prompts without a shift. The other names are configs, splits, or reserved by
# `datasets`.
RESERVED_GROUPS = frozenset({"base", "all", "default", "candidates", "rejected", "data"})


def dataset_name_problem(name: str) -> ProblemLine | None:
    """Return a problem with the name of a dataset, which is also a repository's, or None."""
    if DATASET_NAME.fullmatch(name):
        return None
    if len(name) > LONGEST_NAME:
        return _too_long(name)
    return message("invalid-name.dataset", found=quoted(name))


def derived_name(name: str, suffix: str) -> str:
    """Return `NAME-SUFFIX`. The name is cut if both together are too long."""
    ending = f"-{suffix}"
    beginning = name[: LONGEST_NAME - len(ending)]
    return beginning.rstrip(".-") + ending


def _too_long(name: str) -> ProblemLine:
    return message(
        "invalid-name.long",
        found=quoted(name),
        length=len(name),
        most=LONGEST_NAME,
    )


def class_id_problem(name: str) -> ProblemLine | None:
    """Return a problem with a class id, or None."""
    if len(name) > LONGEST_NAME:
        return _too_long(name)
    if CLASS_ID.fullmatch(name):
        return None
    return message("invalid-name.class", found=quoted(name))


def group_name_problem(name: str, what: str) -> ProblemLine | None:
    """Return a problem with a name of configs and splits, or None. what: "shift" or "group", for
    the message."""
    if len(name) > LONGEST_NAME:
        return _too_long(name)
    if not GROUP_NAME.fullmatch(name):
        slug = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or what
        return message(
            "invalid-name.group",
            found=quoted(name),
            what=what,
            expected=slug,
        )
    if name in RESERVED_GROUPS:
        reserved = ", ".join(sorted(RESERVED_GROUPS))
        return message(
            "invalid-name.reserved",
            found=name,
            reserved=reserved,
            what=what,
        )
    return None


# Prefixes of models' names. A name without a prefix is a name of timm or of the Hub.
LAB = "lab:"
LOCAL = "local-dir:"
HUB = "hf-hub:"
TRANSFORMERS = "transformers:"
OPEN_CLIP = "open_clip:"
ONNX = "onnx:"
PREDICTIONS = "predictions:"
PYTHON = "python:"
CHAT = "chat:"
# Prefixes of classifiers before the name of a file, and prefixes that may precede the name of a
# folder.
BEFORE_FILES = (PREDICTIONS, ONNX)
BEFORE_FOLDERS = (TRANSFORMERS, OPEN_CLIP, CHAT)

# A path begins with `.`, `/` or `~`, also after the prefix of a classifier. A name of the Hub does
# not.
_FILES = "|".join(BEFORE_FILES)
_FOLDERS = "|".join(BEFORE_FOLDERS)
# Any other prefix, also a plugin's, may precede a path. `//` begins an address.
_OTHER = rf"(?!{ELSEWHERE})[A-Za-z][\w-]*:(?=[./~])(?!//)"
_LOCAL = re.compile(
    rf"""
    (?:
        (?P<scheme> (?:{_FOLDERS})? {LOCAL} | {_FILES} | {_OTHER} )
        | (?=[./~])
    )
    (?P<path> .+ )
    """,
    re.DOTALL | re.VERBOSE,
)
# The address of a chat model's server. The host in the address is not published.
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)
_SERVER = f"{ELSEWHERE}http://server"
# A chat model as a classifier, and the address of its server.
_SERVED = re.compile(rf"{CHAT}(?P<model>.+)@(?P<address>https?://.+)", re.DOTALL | re.IGNORECASE)


def is_local(name: str) -> bool:
    """Return whether a name is a path of this machine or of another machine."""
    return _LOCAL.fullmatch(name.removeprefix(ELSEWHERE)) is not None


def address_problem(address: str) -> str | None:
    """Return a problem with the address of a server, or None. A key in it is not shown."""
    try:
        parts: Any = urlsplit(address.removeprefix(ELSEWHERE))
        host = parts.hostname
        _ = parts.port  # raises ValueError for what is no port
    except ValueError:
        return "found an address that cannot be read, expected one such as http://localhost:8000/v1"
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        return (
            "found an address with a user name, a key or a query, expected the plain address; set a"
            " key in the environment, as OPENAI_API_KEY"
        )
    is_plain = address.isprintable() and " " not in address
    if parts.scheme not in ("http", "https") or not host or not is_plain:
        return f"found '{address[:80]}', expected an address such as http://localhost:8000/v1"
    return None


def chat_parts(name: str) -> tuple[str, str | None]:
    """Return the model and the server's address of a classifier `chat:MODEL@ADDRESS`. A name
    without an address has None."""
    match = _SERVED.fullmatch(name)
    if match is None:
        return name.removeprefix(CHAT), None
    return match["model"], match["address"]


def nameless_problem(name: str | None) -> ProblemLine | None:
    """Return a problem with a path that has no last part, such as `/`, or None."""
    match = _LOCAL.fullmatch(name or "")
    if match is None or Path(match["path"]).name:
        return None
    return message("invalid-name.folder", found=name)


def judge_column(model: str, column: str) -> str:
    """Return the name of a judge's column: the last part of the model's name in a-z, 0-9 and '_',
    then `column` unless it is empty."""
    plain = re.sub(r"[^a-z0-9]+", "_", last_part(model).lower()).strip("_")
    return "_".join(part for part in (plain, column) if part)


def last_part(model: str) -> str:
    return re.split(r"[/:]", model.rstrip("/"))[-1]


def judge_problem(name: str) -> ProblemLine | None:
    """Return a problem with the name of a second judge, which must predict new images, or None."""
    model = name.removeprefix(ELSEWHERE)
    if model.startswith(PREDICTIONS):
        return message("wrong-type.judge", found=name)
    if model.startswith(CHAT):
        return message("wrong-type.chat-judge", found=name)
    if not judge_column(name, ""):
        return message("invalid-name.classifier", found=name)
    return nameless_problem(name)


def runs_here(name: str) -> bool:
    """Return whether a chat model's name is one of a model that runs in this process, and not that
    of a server."""
    return name.removeprefix(ELSEWHERE).startswith((TRANSFORMERS, LOCAL)) or is_local(name)


def text_detector_problem(name: str) -> ProblemLine | None:
    """Return a problem with the name of an open-vocabulary detector, or None."""
    if not name.removeprefix(ELSEWHERE).startswith(TRANSFORMERS):
        return message("invalid-name.detector", found=name)
    return nameless_problem(name)


def without_folders(name: str) -> str:
    """Return `./` and the last part of a path, `elsewhere:http://server` for an address, or a
    served classifier without its address. Other names stay unchanged.
    """
    given = name.removeprefix(ELSEWHERE)
    served = _SERVED.fullmatch(given)
    if served is not None:
        return f"{CHAT}{served['model']}"
    if _ADDRESS.match(given):
        return _SERVER
    match = _LOCAL.fullmatch(given)
    if match is None:
        return name
    scheme = match["scheme"] or ""
    return f"{scheme}./{Path(match['path']).name}"


# A licence of the list is suggested if difflib's ratio is above this value.
_CLOSE = 0.7
_MOST_SHOWN = 80

# The Hub's identifiers of licences (https://huggingface.co/docs/hub/repositories-licenses) and the
# licences' names. `card/metadata.py` makes the names of Creative Commons licences.
_LICENSES = """
afl-3.0: Academic Free License 3.0
agpl-3.0: GNU AGPL 3.0
apache-2.0: Apache License 2.0
apple-amlr: Apple Model License for Research
apple-ascl: Apple Sample Code License
artistic-2.0: Artistic License 2.0
bigcode-openrail-m: BigCode OpenRAIL-M
bigscience-bloom-rail-1.0: BigScience BLOOM RAIL 1.0
bigscience-openrail-m: BigScience OpenRAIL-M
bsd: BSD
bsd-2-clause: BSD 2-Clause
bsd-3-clause: BSD 3-Clause
bsd-3-clause-clear: BSD 3-Clause Clear
bsl-1.0: Boost Software License 1.0
c-uda: Computational Use of Data Agreement
cc: Creative Commons
cdla-permissive-1.0: CDLA Permissive 1.0
cdla-permissive-2.0: CDLA Permissive 2.0
cdla-sharing-1.0: CDLA Sharing 1.0
creativeml-openrail-m: CreativeML OpenRAIL-M
deepfloyd-if-license: DeepFloyd IF License
ecl-2.0: Educational Community License 2.0
epl-1.0: Eclipse Public License 1.0
epl-2.0: Eclipse Public License 2.0
etalab-2.0: Etalab Open License 2.0
eupl-1.1: EUPL 1.1
eupl-1.2: EUPL 1.2
fair-noncommercial-research-license: FAIR Noncommercial Research License
gemma: Gemma Terms of Use
gfdl: GNU Free Documentation License
gpl: GNU GPL
gpl-2.0: GNU GPL 2.0
gpl-3.0: GNU GPL 3.0
grok2-community: Grok 2 Community License
h-research: H Research License
intel-research: Intel Research Use License
isc: ISC License
lgpl: GNU LGPL
lgpl-2.1: GNU LGPL 2.1
lgpl-3.0: GNU LGPL 3.0
lgpl-lr: LGPL for Linguistic Resources
llama2: Llama 2 Community License
llama3: Llama 3 Community License
llama3.1: Llama 3.1 Community License
llama3.2: Llama 3.2 Community License
llama3.3: Llama 3.3 Community License
llama4: Llama 4 Community License
lppl-1.3c: LaTeX Project Public License 1.3c
mit: MIT
mpl-2.0: Mozilla Public License 2.0
ms-pl: Microsoft Public License
ncsa: NCSA
odbl: Open Database License
odc-by: Open Data Commons Attribution
ofl-1.1: SIL Open Font License 1.1
openmdw-1.0: OpenMDW 1.0
openrail: OpenRAIL
openrail++: OpenRAIL++-M
osl-3.0: Open Software License 3.0
pddl: Public Domain Dedication and License
postgresql: PostgreSQL
unlicense: The Unlicense
wtfpl: WTFPL
zlib: zlib
"""
LICENSE_NAMES: dict[str, str] = {}
for _line in _LICENSES.strip().splitlines():
    _spelled, _name = _line.split(": ")
    LICENSE_NAMES[_spelled] = _name
_UNNAMED_LICENSES = """
cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nc-nd-3.0
cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0 cc-by-sa-3.0
cc-by-sa-4.0 cc0-1.0 other unknown
"""
HUB_LICENSES = frozenset((*LICENSE_NAMES, *_UNNAMED_LICENSES.split()))


def hub_license(license: str) -> str | None:
    """Return the Hub's spelling of a licence (`cc-by-4.0` for "CC BY 4.0"), or None if the Hub does
    not list the licence.
    """
    known = " ".join(license.split()).lower()
    joined = re.sub(r"[ _]+", "-", known)  # "gpl-3.0+" is another licence
    # "the-mit-license" is "mit", and "gpl-version-3.0" is "gpl-3.0".
    shortened = re.sub(r"^the-|-licen[cs]e(?=-|$)|-version(?=-)", "", joined)
    for spelled in (known, joined, shortened):
        if spelled in HUB_LICENSES:
            return spelled
    for spelled, name in LICENSE_NAMES.items():
        if name.lower() == known:
            return spelled
    return None


def license_note(license: str) -> str | None:
    """Return a note if the Hub does not list a recipe's licence, else None."""
    if hub_license(license) is not None:
        return None
    shown = license
    if len(license) > _MOST_SHOWN:
        shown = f"{license[: _MOST_SHOWN - 2]} …"
    name = license_slug(license.strip().lower())
    beginning = license_slug(license[: 2 * _MOST_SHOWN].lower())
    close = difflib.get_close_matches(beginning, sorted(HUB_LICENSES), 1, _CLOSE)
    suggestion = f"; did you mean '{close[0]}'?" if close else "."
    named = f" with the license_name '{name[:_MOST_SHOWN]}'" if name else ""
    return (
        f"license: {shown!r} is not in the Hub's list of licences{suggestion} As it is, the card says"
        f" 'other'{named}."
    )


def license_slug(text: str) -> str:
    """Return a licence's name in the characters that the Hub takes: lower-case letters, digits, '.'
    and '-'."""
    return re.sub(r"[^a-z0-9.]+", "-", text).strip("-.")


_MOST_NAMES_SHOWN = 20
MOST_LABELS = 20_000  # a longer list holds captions, not classes


def plain_name(name: str) -> str:
    """Return a name in one case, with composed letters, and without the difference between `_`, `-`
    and spaces.

    A name that has only `_`, `-` and spaces stays unchanged. macOS writes `é` in file names as two
    characters.
    """
    folded = unicodedata.normalize("NFC", name.casefold())
    words = folded.replace("_", " ").replace("-", " ").split()
    return " ".join(words) if words else folded


def names_alike(names: Sequence[str]) -> list[list[str]]:
    """Return groups of names that no recipe and no model can distinguish."""
    groups: dict[str, list[str]] = {}
    for name in names:
        plain = plain_name(unicodedata.normalize("NFKC", name))
        groups.setdefault(plain, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def label_by_name(class_id: str, name: str, labels: Sequence[str]) -> tuple[int, ...]:
    """Return the labels that equal a class's id, or else the labels that equal the class's name."""
    exact = tuple(label for label, known in enumerate(labels) if known == class_id)
    if exact:
        return exact
    plain = plain_name(name)
    return tuple(label for label, known in enumerate(labels) if plain_name(known) == plain)


def disagreements(classes: Sequence[RecipeClass], labels: Sequence[str], dataset: str) -> list[str]:
    """Return a problem for each class whose source_label has another name, if some other label has
    the class's name.

    labels: the names by label in the input dataset. A source_label beyond them is a problem too.
    """
    by_name: dict[str, list[int]] = {}
    by_id: dict[str, int] = {}
    for label, name in enumerate(labels):
        by_name.setdefault(plain_name(name), []).append(label)
        by_id[name] = label
    problems = []
    for cls in classes:
        label = cls.source_label
        where = f"source.classes[{cls.label}]: '{cls.name[:80]}' has the source_label {label}"
        if label >= len(labels):
            problems.append(f"{where}, and {dataset} has the labels 0 to {len(labels) - 1}")
            continue
        label_name = labels[label]
        plain = plain_name(cls.name)
        synonyms = [label_name, *label_name.split(",")]
        if cls.id == label_name or plain in map(plain_name, synonyms):
            continue
        meant = by_name.get(plain, [])
        if cls.id in by_id:
            meant = [by_id[cls.id]]
        if meant and label not in meant:
            numbers = " or ".join(map(str, meant[:3]))
            problems.append(f"{where}, which is '{label_name[:80]}' in {dataset}; write {numbers}")
    return problems


def refuse_disagreements(
    classes: Sequence[RecipeClass],
    labels: Sequence[str],
    dataset: str,
) -> None:
    """Raise UserError with the `disagreements`, if there are any."""
    problems = disagreements(classes, labels, dataset)
    if problems:
        hint = (
            "Leave source_label out to take it from the name, or write the numbers of the input"
            " dataset."
        )
        raise UserError(first_of(problems), hint)


def named_problem(
    name: str,
    matches: Sequence[int],
    labels: Sequence[str],
    dataset: str,
) -> str | None:
    """Return a problem unless exactly one label has the class's name."""
    if len(matches) == 1:
        return None
    if matches:
        numbers = ", ".join(map(str, matches[:10]))
        return f"'{name[:80]}' is the name of the labels {numbers} of {dataset}; write source_label"
    near = did_you_mean(name, labels) if len(labels) <= MOST_LABELS else ""
    return (
        f"no label of {dataset} is called '{name[:80]}'{near} (its labels: {shown_labels(labels)})"
    )


def shown_labels(values: Sequence[object]) -> str:
    shown = [str(value)[:80] for value in values[:_MOST_NAMES_SHOWN]]
    return some_of(shown, _MOST_NAMES_SHOWN, count=len(values)) or "none"

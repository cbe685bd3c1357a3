"""Write what the Hub reads, the YAML block at the top of the card and a benchmark's `eval.yaml`,
and the dataset's citation.

`default` has a split per group, and `all` every group in one; each group is a config of its own;
`candidates` and `rejected` hold what was screened.
A config without rows is left out, since it does not load.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from counterfoil.plan.layout import Plan
from counterfoil.recipe import Recipe
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.layering import is_local
from counterfoil.recipe.names import LICENSE_NAMES, hub_license, license_slug
from counterfoil.recipe.prompts import BASE
from counterfoil.store.layout import SUFFIXES, What
from counterfoil.store.receipts import Receipt, counts_of
from counterfoil.store.rows import TableForm, unique_names, webdataset_features

if TYPE_CHECKING:
    from huggingface_hub import DatasetCardData

_TAGS = ("counterfoil", "counterfactual", "robustness")

# The Hub's names of sizes: fewer than 10³ images, fewer than 10⁴ and so on.
_SIZES = (
    "n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B", "10B<n<100B",
    "100B<n<1T",
)  # fmt: skip


def tags_of(recipe: Recipe) -> list[str]:
    first, last = recipe.kind.tags
    return list(dict.fromkeys([*first, *_TAGS, *last, *recipe.publish.tags]))


def card_metadata(
    recipe: Recipe,
    configs: Sequence[Config],
    images: int,
) -> DatasetCardData:
    from huggingface_hub import DatasetCardData

    license, license_name = license_metadata(recipe.license)
    sources = source_datasets(recipe.source.dataset)
    pool = recipe.generator.get("dataset") if recipe.kind.names_pool else None
    if pool is not None:
        sources += source_datasets(pool)
    named: dict[str, Any] = {}
    if license_name:
        named["license_name"] = license_name
    category, forms = recipe.task.hub
    return DatasetCardData(
        license=license,
        **named,
        pretty_name=pretty_name(recipe.name),
        tags=tags_of(recipe),
        annotations_creators=[recipe.kind.annotations],
        task_categories=[category],
        task_ids=forms,
        source_datasets=list(dict.fromkeys(sources)),
        size_categories=[size_category(images)],
        configs=configs_metadata(configs),
        dataset_info=dataset_info_metadata(configs, recipe),
    )


def pretty_name(name: str) -> str:
    """Return a dataset's name for people: "wardrobe-mini" is "Wardrobe mini"."""
    words = re.sub(r"[-_]+", " ", name).strip()
    return words[:1].upper() + words[1:]


def size_category(images: int) -> str:
    return next((name for power, name in enumerate(_SIZES, 3) if images < 10**power), "n>1T")


def source_datasets(dataset: str) -> list[str]:
    """Return the id of an input dataset of the Hub; `original` for an embedded one or a folder."""
    if ":" in dataset or is_local(dataset):
        return ["original"]
    return [dataset]


DEFAULT = "default"
ALL = "all"

# Class names are declared in every config of a WebDataset card up to here, about 200 kB of
# metadata. Beyond, only `default` names the classes and the others keep plain numbers (24 shifts of
# 1000 classes would make a card of a megabyte that takes a second to parse).
MOST_DECLARED_NAMES = 5000


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a config."""

    name: str
    paths: tuple[str, ...]
    """The globs of its files."""
    rows: int
    bytes: int
    """The size of the files."""


@dataclass(frozen=True, slots=True)
class Config:
    name: str
    what: What
    splits: tuple[Split, ...]


def configs_of(plan: Plan, receipts: Sequence[Receipt]) -> tuple[Config, ...]:
    """Return every config with a row: `default`, `all`, the groups in the plan's order,
    `candidates`, `rejected`."""
    output = plan.recipe.output
    rows = Counter[tuple[What, str]]()
    sizes = Counter[tuple[What, str]]()
    for receipt in receipts:
        for what in receipt.rows:
            file = receipt.file(what)
            if file is not None:
                rows[what, receipt.group] += file.rows
                sizes[what, receipt.group] += file.size

    def split(what: What, groups: Iterable[str], name: str) -> Split:
        paths = []
        n_rows = 0
        n_bytes = 0
        for group in groups:
            if (what, group) in rows:
                paths.append(f"{what}/{group}/{output.split}-*.{SUFFIXES[output.format]}")
                n_rows += rows[what, group]
                n_bytes += sizes[what, group]
        return Split(name, tuple(paths), n_rows, n_bytes)

    groups = [group for group in plan.groups if ("data", group) in rows]
    configs = []
    if groups:
        every = tuple(split("data", [group], group) for group in groups)
        together = split("data", groups, output.split)
        configs = [Config(DEFAULT, "data", every), Config(ALL, "data", (together,))]
    for group in groups:
        alone = split("data", [group], output.split)
        configs.append(Config(group, "data", (alone,)))
    for what in ("candidates", "rejected"):
        screened = split(what, plan.groups, output.split)
        if screened.paths:
            configs.append(Config(what, what, (screened,)))
    return tuple(configs)


def configs_metadata(configs: Sequence[Config]) -> list[dict[str, Any]]:
    """Return the card's `configs`, with explicit globs, since guessing would take stray files and
    words for splits."""
    listed: list[dict[str, Any]] = []
    for config in configs:
        entry: dict[str, Any] = {"config_name": config.name}
        if config is configs[0]:
            entry["default"] = True
        entry["data_files"] = []
        for split in config.splits:
            path = split.paths[0] if len(split.paths) == 1 else list(split.paths)
            entry["data_files"].append({"split": split.name, "path": path})
        listed.append(entry)
    return listed


def dataset_info_metadata(configs: Sequence[Config], recipe: Recipe) -> list[dict[str, Any]]:
    """Return the card's `dataset_info`: row counts, which `load_dataset` checks, and for tar files
    the features."""
    names = unique_names(recipe.classes)
    infos = []
    for config in configs:
        info: dict[str, Any] = {"config_name": config.name}
        if recipe.output.format == "webdataset":
            from datasets import Features, Value

            form = TableForm.of(recipe)
            image_format = recipe.output.image.format
            declared = webdataset_features(config.what, names, form, image_format)
            features = Features.from_dict(declared)
            if not classes_are_named(config, configs, recipe):
                features["cls"] = Value("int64")
            info["features"] = features._to_yaml_list()
        info["splits"] = []
        for split in config.splits:
            entry = {"name": split.name, "num_bytes": split.bytes, "num_examples": split.rows}
            info["splits"].append(entry)
        infos.append(info)
    return infos


def benchmark_file(
    recipe: Recipe,
    receipts: Sequence[Receipt],
    images: int,
) -> bytes | None:
    """Return eval.yaml, with a task for the base and each shift's top level; None without
    `evaluation_framework`."""
    import yaml

    counts = counts_of(receipts)
    tasks = []
    for shift in recipe.all_shifts():
        reasons = counts.get(shift.name, {})
        if shift.top and reasons.get(ACCEPTED):
            task = {"id": shift.name, "config": shift.group, "split": recipe.output.split}
            tasks.append(task)
    if recipe.publish.evaluation_framework is None or not tasks:
        return None
    description = (
        f"Top-1 accuracy of image classifiers, in percent: {len(recipe.classes):,} classes,"
        f" {images:,} images. Each image counts once. Tasks are the base and shifts of the same"
        " classes."
    )
    document = {
        "name": pretty_name(recipe.name),
        "description": description,
        "evaluation_framework": recipe.publish.evaluation_framework,
        "tasks": tasks,
    }
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)
    return text.encode()


def classes_are_named(
    config: Config,
    configs: Sequence[Config],
    recipe: Recipe,
) -> bool:
    """Return whether a config shows class names for its labels; Parquet files contain them."""
    if recipe.output.format == "parquet" or config is configs[0]:
        return True
    return len(configs) * len(recipe.classes) <= MOST_DECLARED_NAMES


_CREATIVE_COMMONS = re.compile(r"cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-\d\.\d")
# Entries of the Hub's list that name no licence.
_NO_LICENSE = frozenset({"other", "unknown"})


def license_metadata(license: str) -> tuple[str, str | None]:
    """Return the card's `license`, and `license_name` if the Hub does not list the licence."""
    listed = hub_license(license)
    if listed is not None:
        return listed, None
    return "other", license_slug(license.strip().lower()) or None


def license_for_people(license: str) -> str:
    """Return a licence as people read it: "CC BY 4.0" for `cc-by-4.0`; an unlisted one as it is
    written."""
    listed = hub_license(license)
    if listed is None or listed in _NO_LICENSE:
        return license
    if known := LICENSE_NAMES.get(listed):
        return known
    # `cc-by-nc-sa-4.0` is "CC BY-NC-SA 4.0", as Creative Commons spells it.
    family, version = listed.rsplit("-", 1)
    return f"{family.upper().replace('CC-', 'CC ', 1)} {version}"


# The SPDX identifiers of licences that the Hub spells in lower case, beside those of Creative
# Commons.
_SPDX = {
    "apache-2.0": "Apache-2.0",
    "bsd-3-clause": "BSD-3-Clause",
    "mit": "MIT",
    "odc-by": "ODC-By-1.0",
}


def license_reference(license: str) -> str:
    """Return the address of a licence in SPDX's list; the text itself for any other."""
    known = hub_license(license) or ""
    spdx = _SPDX.get(known)
    if _CREATIVE_COMMONS.fullmatch(known):
        spdx = known.upper()
    if spdx:
        return f"https://spdx.org/licenses/{spdx}.html"
    return license


DATASET_INTERFACES = """\
@article{vendrow2023dataset,
  title   = {Dataset Interfaces: Diagnosing Model Failures Using Controllable Counterfactual Generation},
  author  = {Vendrow, Joshua and Jain, Saachi and Engstrom, Logan and Madry, Aleksander},
  journal = {arXiv preprint arXiv:2302.07865},
  year    = {2023}
}"""


# BibTeX counts braces, escaped ones too, so that a text's own become commands.
_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\textbraceleft{}", "}": r"\textbraceright{}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
}  # fmt: skip


def dataset_entry(recipe: Recipe, plan_hash: str, version: str) -> str:
    """Return the dataset's own BibTeX entry, from the recipe's `publish`; `version` is
    Counterfoil's."""
    publish = recipe.publish
    name = recipe.name
    key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    owner = publish.repo.partition("/")[0] if publish.repo else None
    authors = publish.authors or ()
    if not authors and owner:
        authors = (f"{{{owner}}}",)
    named = []
    for author in authors:
        plain = escaped(plain_author(author))
        # BibTeX splits a name at `and`, and knows at most two commas in one.
        splits = re.search(r"\band\b", plain, re.IGNORECASE) or plain.count(",") > 2
        if splits or is_organisation(author):
            plain = f"{{{plain}}}"
        named.append(plain)
    fields = {
        "author": " and ".join(named),
        "title": f"{{{escaped(name)}}}: a dataset of counterfactual images",
        "year": None if publish.year is None else str(publish.year),
        "version": escaped(publish.version or ""),
        "doi": publish.doi,
        "url": address_of(recipe),
        "note": f"Built with Counterfoil {version}, plan {plan_hash[:12]}",
    }
    lines = [f"  {field:<5} = {{{value}}}" for field, value in fields.items() if value]
    return f"@misc{{{key},\n" + ",\n".join(lines) + "\n}"


def address_of(recipe: Recipe) -> str | None:
    """Return the dataset's address as far as its recipe says: one of its own, or its repository on
    the Hub."""
    repo = recipe.publish.repo
    if recipe.publish.url or not repo:
        return recipe.publish.url or None
    return f"https://huggingface.co/datasets/{repo}"


def escaped(text: str) -> str:
    """Return a text for a field of BibTeX in one line, escaped for LaTeX."""
    line = " ".join(text.split())
    return "".join(_ESCAPED.get(letter, letter) for letter in line)


def is_organisation(author: str) -> bool:
    """Return whether an author is written in braces, as BibTeX writes names without parts."""
    return author.startswith("{") and author.endswith("}")


def plain_author(author: str) -> str:
    if is_organisation(author):
        return author[1:-1].strip()
    return author


def example_group(plan: Plan, receipts: Sequence[Receipt]) -> str | None:
    """Return the group that examples load: the first with an accepted image that is not the base,
    else the base."""
    with_rows = {receipt.group for receipt in receipts if receipt.file("data")}
    for group in plan.groups:
        if group in with_rows and group != BASE:
            return group
    if BASE in with_rows:
        return BASE
    return None


def timm_splits(receipts: Sequence[Receipt]) -> dict[str, str]:
    """Return group → split for timm's WebDataset reader, which takes names with "tar" in them for
    lists of files."""
    files = defaultdict[str, list[tuple[str, int]]](list)
    for receipt in receipts:
        file = receipt.file("data")
        if file is not None and "tar" in receipt.group:
            files[receipt.group].append((file.path, file.rows))
    splits = {}
    for group, entries in files.items():
        folder, _, name = entries[0][0].rpartition("/")
        if len(entries) > 1:  # in the brace notation of webdataset
            names = [PurePosixPath(path).stem for path, _ in entries]
            name = f"{{{','.join(names)}}}.tar"
        rows = sum(count for _, count in entries)
        splits[group] = f"{folder}/{name}|{rows}"
    return splits

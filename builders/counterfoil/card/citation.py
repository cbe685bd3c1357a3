"""BibTeX for the dataset and for the paper whose method built it."""

from __future__ import annotations

import re

DATASET_INTERFACES = """\
@article{vendrow2023dataset,
  title   = {Dataset Interfaces: Diagnosing Model Failures Using Controllable Counterfactual Generation},
  author  = {Vendrow, Joshua and Jain, Saachi and Engstrom, Logan and Madry, Aleksander},
  journal = {arXiv preprint arXiv:2302.07865},
  year    = {2023}
}"""


def dataset_entry(name: str, repo: str | None, plan_hash: str, version: str) -> str:
    """The dataset's own entry. It has no year: a card tells nothing of when it was made."""
    key = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    title = name.replace("_", r"\_")
    lines = [f"  title = {{{{{title}}}: a dataset of counterfactual images}},"]
    if repo:
        owner = repo.partition("/")[0].replace("_", r"\_")
        lines.insert(0, f"  author = {{{{{owner}}}}},")
        lines.append(f"  url   = {{https://huggingface.co/datasets/{repo}}},")
    lines.append(f"  note  = {{Built with Counterfoil {version}, plan {plan_hash[:12]}}}")
    return "\n".join([f"@misc{{{key},", *lines, "}"])

"""Write the documentation as a site: the pages of `docs/`, and what the code writes of it, which is
commands, options, errors, recipe keys, Python functions, tutorial and columns.

    python scripts/docs_reference.py [SITE]     # strictly: a broken link fails; default: site/

What the code writes is never older than the code and is not stored. The example of each recipe key
stands in `docs/reference/examples.yaml`. Zensical makes the pages, by `zensical.toml`. Beside each
page the site has its Markdown, and `llms.txt` lists these files.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Collection, Iterator
from importlib import import_module
from pathlib import Path
from string import Formatter
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import counterfoil
from counterfoil.cli.main import app
from counterfoil.comparing import messages as comparing_messages
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.data import messages as data_messages
from counterfoil.errors import MessageTable
from counterfoil.evaluation import messages as evaluation_messages
from counterfoil.evaluation.options import EvaluationOptions
from counterfoil.evaluation.task import EVERY_TASK
from counterfoil.evaluation.tasks import task_named
from counterfoil.models import messages as model_messages
from counterfoil.options import Option, options_of
from counterfoil.recipe import messages as recipe_messages
from counterfoil.recipe.kinds import KINDS, GeneratorKind
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.schema_mine import METHOD_SETTINGS
from counterfoil.recipe.section import describe_sections
from counterfoil.recipe.tasks import TASKS
from counterfoil.store import messages as store_messages
from counterfoil.store.rows import LAST_COLUMNS, ROW_COLUMNS

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = DOCS / "reference" / "examples.yaml"
SETTINGS = DOCS.parent / "zensical.toml"
_NOT_PAGES = ("examples.yaml", "tutorial.ipynb")
_TYPES = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
    Any: "any value",
}

_RECIPE_OPENING = """# Recipe keys

A recipe is a YAML file. `counterfoil check FILE` names every mistake in it with its place and the nearest valid
name. `counterfoil show NAME` prints a recipe with everything that it inherits. A key that you leave out has its
default. `--set samples.seed=7` changes a key for one run.

For completion in an editor, begin a recipe with `# yaml-language-server: $schema=recipe.schema.json`. The schema is
in the folder `recipes/`.

Two more keys stand at the top. `extends` names a recipe that this one changes, by a bundled name or a path; in such a
recipe `null` drops an inherited value. `extends_sha256` pins the recipe that it was written for.
"""
# Between `generator` and the name of a kind, in the heading of the kind's keys.
_OF_KIND = ", kind "
# Where `docs/reference/files.md` gets the table of columns.
COLUMNS_MARK = "<!-- The table of columns: ROW_COLUMNS and LAST_COLUMNS of store/rows.py. -->"
# Where `docs/reference/corruptions.md` gets the table of corruptions.
CORRUPTIONS_MARK = "<!-- The table of corruptions: CORRUPTIONS of corrupting/corruptions.py. -->"
_PYTHON_OPENING = """# Python

Each command is a function of `counterfoil` that prints nothing and returns what it found. Heavy libraries load when a
function is first used.
"""
_ERRORS_OPENING = """# Errors

Each line about a mistake in a recipe, a dataset, a model or its answers ends with a code in brackets, such as
`[unknown-class]`. The code stays the same when the words change, so scripts and searches can use it. In Python,
`error.problems` of a `UserError` or a `RunFailure` are the lines; each has its `code` and its `path`, the key or file
that is wrong. `error.hint` is what to do. `counterfoil verify --json` lists problems with their `code`, `path` and
`repair`.

Here is what each code means, with the lines that end with it and what to do then. `…` stands for a value.
"""
# What problems are about → the table of their sentences. A code is in one table only.
MESSAGES: dict[str, MessageTable] = {
    "Recipes": recipe_messages.message,
    "Input datasets": data_messages.message,
    "Built datasets": store_messages.message,
    "Models and answers": model_messages.message,
    "Evaluations": evaluation_messages.message,
    "Compared files": comparing_messages.message,
}
_OPTIONS_OPENING = """# Options

An option is one thing on the command line, in Python and in the recipe. Each entry has its flags, its name in Python
and its default; if it replaces a key of the recipe, that key. `counterfoil COMMAND --help-all` and `help()` in Python
have the same texts. Each command also takes `--json`, which prints JSON for scripts.
"""


def write_site(site: Path) -> None:
    """Write the whole site to a folder, in place of what is there. CalledProcessError if a link,
    an anchor or a page is wrong."""
    sources = os.pathsep.join(path for path in sys.path if path)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(SETTINGS, folder)
        write_pages(folder / "docs")
        subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": sources},
            check=True,
        )
        settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
        markdown = markdown_pages()
        listed = llms_text(settings["project"]["nav"], markdown)
        for path, text in (markdown | {"llms.txt": listed}).items():
            (folder / "site" / path).write_text(text, encoding="utf-8")
        shutil.rmtree(site, ignore_errors=True)
        shutil.move(folder / "site", site)


def write_pages(folder: Path) -> None:
    """Write `docs/` and the pages that the code writes to a folder, as Zensical reads them."""
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns(*_NOT_PAGES))
    for path, text in pages().items():
        (folder / path).write_text(text, encoding="utf-8")
    for path in folder.rglob("*.md"):
        path.write_text(_with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


def llms_text(nav: list[dict[str, Any]], markdown: dict[str, str]) -> str:
    """Return the list of pages by section, in the form that language models look for
    (llmstxt.org)."""
    lines = ["# Counterfoil", "", "> Find out where a vision model fails before it ships.", ""]
    alone = [entry for entry in nav if all(isinstance(path, str) for path in entry.values())]
    sections = [
        ("Start", alone),
        *(pair for entry in nav if entry not in alone for pair in entry.items()),
    ]
    for section, entries in sections:
        lines += [f"## {section}", ""]
        for title, path in (pair for entry in entries for pair in entry.items()):
            prose = re.search(r"^(?!```)[A-Z`][^\n]*(?:\n[^\n]+)*", markdown[path], re.MULTILINE)
            first = re.split(r"(?<=[.?]) ", " ".join(prose[0].split()))[0] if prose else ""
            lines.append(f"- [{title}]({path}): {_without_links(first)}")
        lines.append("")
    return "\n".join(lines)


def _without_links(prose: str) -> str:
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", prose)


def markdown_pages() -> dict[str, str]:
    """Return the Markdown of every page by its path, with text in place of the site's
    directives."""
    stored = {
        path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
        for path in DOCS.rglob("*.md")
    }
    markdown = {path: _with_tables(text) for path, text in {**stored, **pages()}.items()}
    markdown["reference/python.md"] = re.sub(
        r"^::: (\S+)$", _documented, markdown["reference/python.md"], flags=re.MULTILINE
    )
    return markdown


def _documented(directive: re.Match[str]) -> str:
    module, _, name = directive[1].rpartition(".")
    function = getattr(import_module(module), name)
    return f"## {name}\n\n```python\n{name}{inspect.signature(function)}\n```\n\n{inspect.getdoc(function)}"


def _with_tables(markdown: str) -> str:
    return markdown.replace(COLUMNS_MARK, columns_table()).replace(
        CORRUPTIONS_MARK, corruptions_table()
    )


def corruptions_table() -> str:
    """Return every corruption with what it does and its constants at severities 1 to 5."""
    lines = ["| Corruption | What it does | Constants of severities 1 to 5 |", "|:--|:--|:--|"]
    for name, corruption in CORRUPTIONS.items():
        cell = "; ".join(map(_constant, corruption.large))
        if corruption.small not in ((), corruption.large):
            cell += f"<br>small: {'; '.join(map(_constant, corruption.small))}"
        lines.append(f"| `{name}` | {corruption.says} | {cell} |")
    return "\n".join(lines)


def _constant(constant: Any) -> str:
    parts = constant if isinstance(constant, tuple) else (constant,)
    return ", ".join(f"{part:g}" for part in parts)


def columns_table() -> str:
    """Return every column that each dataset's rows have, with its type and meaning."""
    lines = ["| Column | Type | Meaning |", "|:--|:--|:--|"]
    for name, column in {**ROW_COLUMNS, **LAST_COLUMNS}.items():
        lines.append(
            f"| `{name}` | {column.type.replace('<', ' of ').removesuffix('>')} |"
            f" {column.description} |"
        )
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return the Markdown of each page, by its path below `docs/`."""
    return {
        "reference/commands.md": commands_page(),
        "reference/recipe.md": recipe_page(),
        "reference/python.md": python_page(),
        "reference/options.md": options_page(),
        "reference/errors.md": errors_page(),
        "tutorial.md": tutorial_page(),
    }


def errors_page() -> str:
    """Return every code of an error with its meaning, its sentences and what to do."""
    lines = [_ERRORS_OPENING]
    for what, table in MESSAGES.items():
        lines += [f"## {what}", ""]
        for code, meaning in table.codes.items():
            lines += [f"### {code}", "", _prose(meaning), ""]
            if code in table.advice and code not in table.sentences:
                lines += [_prose(_without_gaps(table.advice[code])), ""]
            for name, sentence in table.sentences.items():
                if name.partition(".")[0] == code:
                    advice = _prose(_without_gaps(table.advice.get(name, "")))
                    shown = _inline_code(_without_gaps(sentence))
                    lines.append(f"- {shown}<br>{advice}" if advice else f"- {shown}")
            lines.append("")
    return "\n".join(lines)


def _without_gaps(sentence: str) -> str:
    """Return a sentence with `…` for the gaps that always hold something, and single braces."""
    text = ""
    for words, gap, spec, conversion in Formatter().parse(sentence):
        text += words
        if gap in (None, "hint", "about", "places", "by", "holder", "numbers"):
            continue
        text += "'…'" if conversion == "q" else "…"
        if spec and "|" in spec:
            text += f" {spec.partition('|')[2]}"
    return text.replace("……", "…")


def _inline_code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def commands_page() -> str:
    """Return every command with its arguments and options, as typer documents them."""
    from typer import Context
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    command = get_command(app)
    text = get_docs_for_click(
        obj=command, ctx=Context(command), name="counterfoil", title="Commands"
    )
    # Typer escapes for HTML; in code that Markdown escapes itself an entity would be shown.
    return text.replace("&#x27;", "'").replace("&quot;", '"')


def keys() -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield (section, key, field) of all keys of a recipe. Equal sections are listed once, where
    they come first."""
    describe_sections()
    seen: set[type[BaseModel]] = set()

    def walk(section: type[BaseModel], at: str) -> Iterator[tuple[str, str, FieldInfo]]:
        seen.add(section)
        for name, field in section.model_fields.items():
            if name != "kind" or _OF_KIND not in at:
                yield at, name, field
        for name, field in section.model_fields.items():
            for inner in _sections(field.annotation):
                if inner is GeneratorKind:
                    about = " ".join(
                        f"`{kind}`: {inspect.getdoc(section)}" for kind, section in KINDS.items()
                    )
                    choice: Any = Literal
                    yield (
                        name,
                        "kind",
                        FieldInfo(
                            annotation=choice[(*KINDS,)], default="diffusers", description=about
                        ),
                    )
                    for kind, section in KINDS.items():
                        yield from walk(section, f"{name}{_OF_KIND}{kind}")
                elif inner not in seen:
                    many = ".NAME" if get_origin(field.annotation) is dict else ""
                    yield from walk(inner, f"{at.partition(_OF_KIND)[0]}.{name}{many}".lstrip("."))

    yield from walk(Recipe, "")
    for method, settings in METHOD_SETTINGS.items():
        yield from walk(settings, f"mine.settings, method {method}")


def examples() -> dict[str, dict[str, Any]]:
    """Return section → key → example. A key that leads to a section has no example: the section has
    them."""
    return yaml.safe_load(EXAMPLES.read_text(encoding="utf-8"))


def recipe_page() -> str:
    """Return every key with its type, default, meaning and example."""
    lines = [_RECIPE_OPENING]
    shown = None
    example_of = examples()
    for at, name, field in keys():
        if at != shown:
            shown = at
            lines += ["", f"## {at or 'At the top'}", ""]
        required = field.is_required()
        default = (
            "required"
            if required
            else f"default {_value(field.get_default(call_default_factory=True))}"
        )
        lines += [
            f"`{name}`",
            f":   *{_type(field.annotation)}, {default}.* {_prose(field.description or '')}",
            "",
        ]
        if (example := example_of.get(at.partition(_OF_KIND)[0], {}).get(name)) is not None:
            lines += [*(f"    {line}" for line in _example(name, example)), ""]
    return "\n".join(lines) + "\n"


def python_page() -> str:
    """Return every public function, by its docstring; what an options class declares is on the page
    of options."""
    lines = [_PYTHON_OPENING]
    for name in counterfoil.__all__:
        public = getattr(counterfoil, name)
        if hasattr(public, "declared"):
            lines += [*_declared_function(name, public), ""]
        elif callable(public):
            lines += [f"::: {public.__module__}.{name}", ""]
    return "\n".join(lines)


def _declared_function(name: str, public: Any) -> Iterator[str]:
    """Yield the section of a function whose parameters a class of options declares."""
    signature = inspect.signature(public)
    yield f"## {name} {{ #counterfoil.{name} }}\n\n```python\ncounterfoil.{name}("
    keywords_begin = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords_begin:
            keywords_begin = True
            yield "    *,"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        yield f"    {parameter.name}: {parameter.annotation}{default},"
    yield f") -> {signature.return_annotation}\n```\n"
    text, _, rest = (inspect.getdoc(public) or "").partition("Args:\n")
    commands = [
        command
        for command, classes in commands_of_classes().items()
        if _has(classes, public.declared)
    ]
    yield f"{text}Its options are those of [{commands[0]}](options.md#{commands[0]}).\n"
    yield inspect.cleandoc("Returns:\n" + rest.partition("Returns:\n")[2]).replace("\n    ", "\n\n")


def _has(classes: tuple[type, ...], declared: type) -> bool:
    return any(issubclass(each, declared) for each in classes)


def commands_of_classes() -> dict[str, tuple[type, ...]]:
    """Return the classes of options of each command that has some, in the order of `counterfoil
    --help`."""
    callbacks: list[Any] = [info.callback for info in app.registered_commands if info.callback]
    return {callback.__name__: callback.declared for callback in callbacks if callback.declared}


def options_page() -> str:
    """Return every option of every command: flags, name in Python, default, recipe key and
    texts."""
    functions = {name: getattr(counterfoil, name) for name in counterfoil.__all__}
    lines = [_OPTIONS_OPENING]
    for command, classes in commands_of_classes().items():
        lines += [f"## {command}", ""]
        seen: set[tuple[str, str]] = set()
        for declared in classes:
            public = [
                name
                for name, each in functions.items()
                if _has((declared,), getattr(each, "declared", type))
            ]
            described = [
                option
                for option in options_of(declared)
                if (option.spelling, option.name) not in seen
            ]
            seen |= {(option.spelling, option.name) for option in described}
            tasks = TASKS if issubclass(declared, EvaluationOptions) else ()
            if public and described:
                lines += [f"In Python: `counterfoil.{public[0]}`.", ""]
            for option in described:
                lines += [*_option(option, bool(public), _tasks_of(option, tasks)), ""]
    return "\n".join(lines) + "\n"


def _option(option: Option, has_function: bool, tasks: list[str]) -> Iterator[str]:
    flags = "" if option.in_python_only else ", ".join(f"`{flag}`" for flag in option.flags)
    yield flags or f"`{option.name if option.in_python_only else option.metavar}`"
    facts = [f"in Python `{option.name}`"] if has_function else []
    facts.append("required" if option.is_required else f"default `{_shown(option.default)}`")
    if option.key:
        facts.append(f"replaces `{option.key}`")
    facts += [f"for {' and '.join(tasks)} alone"] if tasks else []
    words = ", ".join(facts)
    yield f":   *{words[:1].upper()}{words[1:]}.* {_prose(' '.join(option.text.split()))}"
    if option.more:
        yield f"\n    {_prose(' '.join(option.more.split()))}"


def _shown(default: Any) -> str:
    return str(default) if isinstance(default, Path) else repr(default)


def _tasks_of(option: Option, tasks: Collection[str]) -> list[str]:
    """Return the names of the tasks that take an option of `evaluate`, unless all do. Other options
    have no tasks."""
    takers = [name for name in tasks if option.name in EVERY_TASK | task_named(name).takes]
    return takers if len(takers) < len(tasks) else []


def tutorial_page() -> str:
    """Return the notebook as a page; a test runs its cells."""
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


def _type(annotation: Any) -> str:
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    if origin is Literal:
        values = ", ".join(f"`{part}`" for part in parts)
        return values if len(parts) == 1 else f"one of {values}"
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_type(part) for part in parts))
    if origin is tuple:
        return (
            f"list of {_type(parts[0])}"
            if parts[-1] is ...
            else f"list of {len(parts)} {_type(parts[0])}s"
        )
    if origin is dict:
        return f"mapping to {_type(parts[1])}"
    if hasattr(annotation, "__metadata__"):
        return _type(parts[0])
    return _TYPES.get(annotation, "any value")


def _value(value: Any) -> str:
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return "as below"
    if isinstance(value, tuple):
        value = [
            item.model_dump(exclude_unset=True) if isinstance(item, BaseModel) else item
            for item in value
        ]
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`" if len(text) <= 60 else "a list of its own"


def _prose(text: str) -> str:
    """Return a description in Markdown on one line, with its angle brackets and braces as text."""
    return re.sub(r"<(?![^`]*`)", "&lt;", " ".join(text.split()))


def _example(name: str, value: Any) -> list[str]:
    shown = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=200
    )
    return ["```yaml", f"{name}: {shown.removesuffix('...' + chr(10)).rstrip()}", "```"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the documentation as a site.")
    parser.add_argument(
        "site", type=Path, nargs="?", default=DOCS.parent / "site", help="its folder, replaced"
    )
    write_site(parser.parse_args().site)


if __name__ == "__main__":
    main()

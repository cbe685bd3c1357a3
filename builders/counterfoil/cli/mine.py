"""`counterfoil mine`: find what a classifier gets wrong; print it and the paths of the report and
the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from counterfoil.cli.options import Given, Opened, with_options
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import (
    make_console,
    next_command,
    open_page,
    print_json,
    print_line,
    print_note,
    print_rows,
)
from counterfoil.mining.options import AgainOptions, MineOptions, TryOptions
from counterfoil.report.words import capitalised, format_count

if TYPE_CHECKING:
    from counterfoil.mining.mined_files import MineResult

PIPED_WIDTH = 140
MOST_REASONS = 12  # the report shows every class
MOST_CLASSES = 12


@with_options(
    "counterfoil mine wardrobe-star --target lab:resnet10t --on audit --out mined",
    MineOptions,
    TryOptions,
    AgainOptions,
    Opened,
)
def mine(given: Given) -> None:
    """Find and name what a classifier gets wrong.

    Hypotheses come from one half of the images and are tested on the other. Confirmed ones are
    written as a recipe.
    """
    folder = given.get("RECIPE")
    tries = given.get("--try")
    again = given.get("--again")
    options: MineOptions | TryOptions | AgainOptions
    if again is not None:
        from counterfoil.mining.methods.bugs.trying import mine_again as work

        does = "tests the findings of an earlier run once more"
        options = given.made(AgainOptions, "--again", does, "--open", folder=folder)
    elif tries is not None or given.get("--class") is not None:
        from counterfoil.mining.methods.bugs.trying import try_descriptions as work

        does = "tests descriptions with what an earlier run used"
        options = given.made(TryOptions, "--try", does, "--open", folder=folder)
    else:
        from counterfoil.mining.mine_recipe import mine as work

        options = given.made(MineOptions)
    out = given.get("--out")
    where = str(folder) if out is None else f"{folder} → {out}"
    print_note(f"{where}: loading libraries and resolving inputs")
    with StageProgress():
        result = work(**vars(options))
    if given.json:
        files = {name: str(path) for name, path in result.files.items()}
        more = {} if result.pool is None else {"pool": result.pool.to_json()}
        print_json(result.findings.to_json() | {"files": files} | more)
    else:
        _print(result)
    open_page(result.files["report"], given.get("--open"))


def _print(result: MineResult) -> None:
    from rich.markup import escape

    from counterfoil.mining.report import (
        LABELS_WORTH,
        by_weight,
        classes_table,
        findings_headline,
        findings_table,
    )

    findings = result.findings
    head, sentence = findings_headline(findings)
    doubt = f" ({findings.doubt})" if findings.doubt else ""
    if findings.preview:
        print_line(findings.preview_sentence)
    print_line(f"{findings.target.name}{doubt}: {head[:1].lower()}{head[1:]}. {sentence}")
    if findings.confirmed:
        columns, rows = findings_table(findings, by_weight(findings.standing))
        cells = []
        for finding, row in rows:
            words = escape(finding.words)
            for mark in finding.marks:
                words += f" [yellow]({mark})[/yellow]"
            if finding.perhaps_under(findings.margin):
                words += f" [dim](perhaps under {100 * findings.margin:.2g} points)[/dim]"
            numbers = []
            for cell in row:
                interval = f" [dim]({cell.interval})[/dim]" if cell.interval else ""
                numbers.append(cell.text + interval)
            cells.append((words, *numbers))
        print_rows(make_console(PIPED_WIDTH), ("finding", *columns), cells)
    elif findings.answered is not None:
        columns, classes = classes_table(findings.answered)
        cells = [list(map(escape, row)) for row in classes[:MOST_CLASSES]]
        print_rows(make_console(PIPED_WIDTH), columns, cells)
    if findings.answered is not None and (many := findings.answered.labels_in_all):
        print_line(f"{format_count(many, 'label')} to check, shown in the report. {LABELS_WORTH}.")
    for sentence in _notes(result):
        print_line(f"{capitalised(sentence)}.")
    for name in (
        "report",
        "findings",
        "relabel",
        "rows",
        "recipe",
        "adversarial",
        "pool",
        "weights",
    ):
        if name in result.files:
            print_line(f"{name + ':':<12} {result.files[name]}")
    if "recipe" in result.files:
        next_command(
            "counterfoil",
            "build",
            str(result.files["recipe"]),
            "--out",
            f"{result.directory.name}-built",
        )


def _notes(result: MineResult) -> Iterator[str]:
    from counterfoil.mining.report import OF_SETS, is_drawn

    findings = result.findings
    drawn = is_drawn(findings)
    images = sum(source.rows for source in findings.on)
    if drawn:
        images = sum(batch.images for batch in findings.rounds)
    tried = f"{len(findings.confirmed)} of {findings.tested} hypotheses confirmed"
    if longer := len(findings.confirmed) - len(findings.standing):
        tried += f" ({longer} of them covered here by a shorter description)"
    tried += f" in pairs, on {images:,} rendered images" if drawn else f" on {images:,} images"
    if not findings.confirmed:
        yield tried
    else:
        yield (
            f"{tried}; on average {findings.fdr:.0%} of those confirmed may be false (false"
            " discovery rate)"
        )
        if drawn:
            yield (
                "For a false finding, the classifier fails no more often with the description than"
                " without it. The rates come from fresh pairs, rendered once for each finding after"
                " its test. The intervals of the differences hold for all findings at once"
            )
        yield OF_SETS.removesuffix(".")
    checks = [finding.labels for finding in findings.standing if finding.labels is not None]
    if suspected := sum(check.suspected for check in checks):
        yield (
            f"{suspected} of {len(checks)} may be wrong labels, not failures: look at the images"
            " in relabel.csv"
        )
    if unchecked := sum(check.reason is not None for check in checks):
        yield (
            f"The labels behind {unchecked} of {len(checks)} were not checked; the report says why"
        )
    if result.pool is not None:
        yield result.pool.sentence().removesuffix(".")
    if drawn and not findings.tested:
        unsearched = [audit for audit in findings.classes if audit.reason is not None]
        for audit in unsearched[:MOST_REASONS]:
            yield f"{audit.name}: {audit.reason}"
    yield from findings.notes
    for hypothesis in findings.not_tested:
        yield f"Not tested: {hypothesis.words}; {hypothesis.reason}"

"""The page of mending: one HTML file that says what a new head gains beside its controls; no outside resource."""

from __future__ import annotations

from counterfoil import __version__
from counterfoil.mending.document import (
    BALANCED_ROLES,
    CONFIRM,
    FEWEST_LISTED,
    HELDOUT,
    IN_CONTEXTS,
    SET_NOTES,
    TEST,
    TEST_FAILED,
    TITLES,
    Mended,
)
from counterfoil.mending.figures import curve_figure, gains_figure, overlap_figure
from counterfoil.mending.verdicts import control_words
from counterfoil.report.templates import template_environment
from counterfoil.report.words import counted, named, number, percent, points, spoken

TEMPLATE = "mend-report.html.j2"
MOST_LISTED = 60
COMPARED = (HELDOUT, IN_CONTEXTS, CONFIRM, TEST, TEST_FAILED)


def mend_report(mended: Mended) -> str:
    """The page as text; equal documents give equal bytes."""
    from markupsafe import Markup

    filters = {
        "named": named,
        "spoken": spoken,
        "points": points,
        "percent": lambda value: percent(value, 0).replace(" ", "\N{NO-BREAK SPACE}"),
        "number": lambda count: number(count, 0),
        "counted": counted,
        "control": control_words,
    }
    environment = template_environment(TEMPLATE, filters)
    return environment.get_template(TEMPLATE).render(
        mended=mended,
        figure=lambda draw, *about: Markup(draw(*about)),
        gains_figure=gains_figure,
        curve_figure=curve_figure,
        overlap_figure=overlap_figure,
        set_notes=SET_NOTES,
        compared={name: TITLES[name] for name in COMPARED},
        fewest_listed=FEWEST_LISTED,
        balanced=BALANCED_ROLES,
        most_listed=MOST_LISTED,
        version=__version__,
    )

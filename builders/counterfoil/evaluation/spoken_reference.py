"""Validation → base in words: what was scored, and the warnings for the top of report and terminal."""

from __future__ import annotations

from counterfoil.card.spoken_results import Gap, gap_sentences
from counterfoil.report.results import Results


def reference_warnings(results: Results) -> tuple[str, ...]:
    """The warnings that gaps between validation images and the base call for; none where there is no such gap."""
    reference = results.reference
    if reference is None or reference.skipped is not None:
        return ()
    short = {model.name: model.short_name for model in results.models}
    gaps = [
        Gap(
            short.get(one.model, one.model),
            one.validation.value,
            one.base.value,
            one.gap.value,
            one.gap.low,
            one.gap.high,
        )
        for one in reference.gaps
    ]
    classes = [one.name for one in results.near_chance_classes]
    return gap_sentences(gaps, classes, reference.unseen, known=reference.unseen_known)


def reference_note(results: Results) -> str | None:
    """What was scored as the reference, or why nothing was; None where there is no word of one."""
    reference = results.reference
    if reference is None:
        return None
    if reference.skipped is not None:
        return f"No reference to the source's validation images: {reference.skipped}"
    if reference.classes == 0:
        near = "all classes are near chance on the base, so there is no gap to give"
        return f"validation → base ({reference.split}): {near}"
    short = {model.name: model.short_name for model in results.models}
    told = (
        f"validation → base: {reference.images:,} images of {reference.split} and the base, over the same"
        f" {reference.classes:,} class{'' if reference.classes == 1 else 'es'}"
    )
    without = "; ".join(f"not for {short.get(name, name)}, {why}" for name, why in reference.left_out.items())
    return f"{told}; {without}" if without else told

"""Load segmenters of ONNX Runtime: `onnx:FOLDER`, or `onnx:FOLDER/model.onnx`.

The graph gives scores [1, classes, height, width] or numbers of classes [1, height, width]. The
folder's configuration is that of a classifier (`classifiers/of_onnx.py`), and must scale whole
images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.models.classifiers.of_onnx import OUTPUT, refuse_other_size
from counterfoil.models.detectors.of_onnx import input_shape, open_whole, run_graph
from counterfoil.models.loading_errors import explain_computing
from counterfoil.models.messages import refusal
from counterfoil.models.segmenters.of_transformers import SEGMENTERS
from counterfoil.models.segmenters.segmenter import Segmenter

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True, kw_only=True)
class OnnxSegmenter(Segmenter):
    """A graph of ONNX Runtime. output: the one with scores or numbers."""

    session: Any
    prepare: Any
    output: str
    device: str

    def __call__(self, images: Sequence[Image.Image]) -> list[Any]:
        answers = []
        for image in images:
            pixels = self.prepare(image).numpy()
            with explain_computing(f"model {self.name!r}", "segment", self.device):
                answers.append(run_graph(self.session, pixels)[self.output][0])
        return answers


def load(name: str, device: str) -> OnnxSegmenter:
    """Load the graph on `device`. Raise UserError for one that does not fit its configuration,
    RunFailure for a damaged file."""
    deployed, session, fields = open_whole(name, device, SEGMENTERS)
    if deployed.input_size is not None:
        refuse_other_size(name, (1, *input_shape(name, session)), deployed.input_size)
    given = [entry.name for entry in session.outputs]
    output = deployed.document.get(OUTPUT, given[0] if len(given) == 1 else None)
    if output not in given:
        where = f"model {name!r}"
        raise refusal("unfit-model.one-output", where, given)
    return OnnxSegmenter(
        **fields,
        input_key=f"{deployed.input_key} {output}",
        session=session,
        prepare=deployed.prepare(),
        output=output,
        device=device,
    )

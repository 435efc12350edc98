"""GPTQ over a model's layers: each is encoded for what it reads behind those encoded before it.

The method is that of Frantar, Ashkboos, Hoefler and Alistarh (arXiv:2210.17323). Libraries that have
it write layouts of their own; blocks of GGUF come from ``csrc/quant/encode_feedback.cc``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from oxibonsai import _core
from oxibonsai.calibrate.second_moments import SecondMoments, collect_moments
from oxibonsai.errors import FormatError
from oxibonsai.files.step_progress import StepProgress
from oxibonsai.models import Model
from oxibonsai.quantize import Plan
from oxibonsai.quantize.blocks import Encoded, finite_rows, loss_of
from oxibonsai.quantize.type_choice import Choice, layer_of


def encode_with_feedback(
    model: Model,
    kv_type: str | None,
    plan: Plan,
    windows: Sequence[Sequence[int]],
    *,
    layers_at_once: int,
    threads: int,
    progress: StepProgress,
) -> dict[str, Encoded]:
    """Encode the matrices of a model's layers.

    Args:
        model: The source of the plan, loaded.
        kv_type: Of cached keys and values; None: it keeps none.
        plan: The types.
        windows: Token ids of the calibration text, all windows of one length.
        layers_at_once: Layers whose inputs are collected in one pass over the text, behind those that
            are encoded already. 1 is what the paper does; more takes fewer passes and more memory.
        threads: Share out the rows; the bytes don't depend on them.
        progress: Told after each tensor how many layers are done.

    Returns:
        The tensors that took feedback. Left out are experts, embeddings, the output, and types that
        take none.

    Raises:
        FormatError: A weight or an input is not finite, or too large for the type.
    """
    layers: dict[int, list[Choice]] = {}
    for choice in plan.choices:
        layer = layer_of(choice.tensor.name)
        if layer is not None and _takes_feedback(choice):
            layers.setdefault(layer, []).append(choice)
    numbers = sorted(layers)
    encoded: dict[str, Encoded] = {}
    for first in range(0, len(numbers), layers_at_once):
        part = [c for n in numbers[first : first + layers_at_once] for c in layers[n]]
        moments = collect_moments(model, kv_type, windows, [c.tensor.name for c in part])
        report = partial(progress, first, len(numbers))
        made = _encode_part(plan, part, moments, threads, report)
        encoded |= made
        if first + layers_at_once < len(numbers):
            model = model.with_matrices(
                {
                    c.tensor.name: _weight(c, made[c.tensor.name])
                    for c in part
                    if c.tensor.name in made
                }
            )
    return encoded


def _takes_feedback(choice: Choice) -> bool:
    matrix = len(choice.tensor.shape) == 2
    return matrix and not choice.kept and _core.takes_feedback(choice.type.name)


def _encode_part(
    plan: Plan,
    part: Sequence[Choice],
    moments: dict[str, SecondMoments],
    threads: int,
    report: Callable[[str], None],
) -> dict[str, Encoded]:
    """Encode tensors; those that share an input share the factor of its moments."""
    sharing: dict[int, list[Choice]] = {}
    for choice in part:
        if choice.tensor.name in moments:
            sharing.setdefault(id(moments[choice.tensor.name]), []).append(choice)
    encoded: dict[str, Encoded] = {}
    for choices in sharing.values():
        factor = moments[choices[0].tensor.name].feedback_factor()
        for choice in choices:
            matrix = plan.matrix(choice)
            values = finite_rows(matrix, 0, matrix.rows)
            try:
                blocks = _core.encode_with_feedback(values, choice.type.name, factor, threads)
            except FormatError as e:
                raise FormatError(f"{matrix.where}: {e}") from e
            encoded[choice.tensor.name] = (
                blocks.reshape(-1),
                loss_of(matrix, values, blocks, choice.type),
            )
            report(choice.tensor.name)
    return encoded


def _weight(choice: Choice, encoded: Encoded) -> _core.Weight:
    rows, cols = choice.tensor.shape
    blocks = encoded[0].reshape(rows, -1)
    return _core.Weight.from_blocks(choice.tensor.name, choice.type.name, blocks, cols)

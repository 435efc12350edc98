"""Random Qwen3 models as ONNX files, with the names and packs that exporters give them.

The graphs hold every node that reads weights and nothing else: nobody runs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from hf_folders import CASES, save

QWEN3 = next(c for c in CASES if c.name == "qwen3")
LAYERS = 3
_MICROSOFT = "com.microsoft"

Codes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Pack:
    """A matrix in blocks of codes.

    Attributes:
        codes: [rows, cols].
        scales: float16 [rows, blocks].
        zeros: [rows, blocks]; None: half the range of the codes.
    """

    codes: Codes
    scales: npt.NDArray[np.float16]
    zeros: Codes | None
    bits: int
    block: int

    def values(self) -> npt.NDArray[np.float32]:
        zeros = (
            np.full(self.scales.shape, 1 << (self.bits - 1)) if self.zeros is None else self.zeros
        )
        scales, zeros = (
            np.repeat(v.astype(np.float32), self.block, axis=1) for v in (self.scales, zeros)
        )
        found: npt.NDArray[np.float32] = (self.codes.astype(np.float32) - zeros) * scales
        return found


def packed_bits(codes: Codes, bits: int) -> Codes:
    """Codes of a row one after the other, the first in the lowest bits, made bit by bit."""
    planes = [(codes >> b) & 1 for b in range(bits)]
    stream = np.stack(planes, axis=-1).reshape(len(codes), -1)
    return np.packbits(stream, axis=1, bitorder="little")


def random_pack(
    random: np.random.Generator, shape: tuple[int, int], bits: int, block: int, zeros: bool
) -> Pack:
    """Codes that look like a matrix's; those of two bits are ternary."""
    blocks = (shape[0], shape[1] // block)
    points = None
    if bits == 2:
        points = np.ones(blocks, np.uint8) if zeros else None
        codes = random.integers(0, 3, shape) + (0 if zeros else 1)
        scales = random.uniform(0.05, 0.1, blocks)
    else:
        codes = random.integers(0, 1 << bits, shape)
        points = random.integers(1, 1 << bits, blocks).astype(np.uint8) if zeros else None
        scales = random.uniform(0.5, 1.0, blocks) * 0.2 / (1 << bits)
    return Pack(codes.astype(np.uint8), scales.astype(np.float16), points, bits, block)


@dataclass
class Graph:
    """What is put together before it is saved."""

    nodes: list[Any] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)

    def tensor(self, name: str, values: Any) -> str:
        from onnx import numpy_helper

        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **attributes: Any) -> None:
        from onnx import helper

        domain = _MICROSOFT if kind in ("MatMulNBits", "GatherBlockQuantized") else ""
        outputs = [f"{name or kind}_{len(self.nodes)}"]
        self.nodes.append(
            helper.make_node(kind, inputs, outputs, name, domain=domain, **attributes)
        )

    def product(self, node: str, tensor: str, pack: Pack, **changes: Any) -> None:
        """A MatMulNBits over a pack."""
        rows, cols = pack.codes.shape
        blocks = cols // pack.block
        weights = packed_bits(pack.codes, pack.bits).reshape(rows, blocks, -1)
        inputs = ["x", self.tensor(f"{tensor}_Q", weights)]
        inputs.append(self.tensor(f"{tensor}_scales", pack.scales))
        if pack.zeros is not None:
            zeros = changes.pop("zeros", packed_bits(pack.zeros, pack.bits))
            inputs.append(self.tensor(f"{tensor}_zp", zeros))
        inputs += changes.pop("more_inputs", [])
        facts = {"K": cols, "N": rows, "bits": pack.bits, "block_size": pack.block, **changes}
        self.node("MatMulNBits", inputs, node, **facts)

    def table(self, pack: Pack, *, nibbles: bool) -> None:
        """A GatherBlockQuantized over a pack; zero points of four bits where ``nibbles``."""
        name = "model_embed_tokens_weight"
        inputs = [self.tensor(f"{name}_quant", packed_bits(pack.codes, pack.bits)), "ids"]
        inputs.append(self.tensor(f"{name}_scales", pack.scales))
        if pack.zeros is not None:
            inputs.append(
                self.tensor(f"{name}_zp", packed_bits(pack.zeros, 4 if nibbles else pack.bits))
            )
        facts = {"bits": pack.bits, "block_size": pack.block, "gather_axis": 0, "quantize_axis": 1}
        self.node("GatherBlockQuantized", inputs, "/model/embed_tokens/Gather_Quant", **facts)

    def save(self, path: Path, *, external: bool = False) -> None:
        import onnx
        from onnx import helper

        graph = helper.make_graph(self.nodes, "model", [], [], self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
        options: dict[str, Any] = {}
        if external:
            options = {"save_as_external_data": True, "size_threshold": 0, "location": "data.bin"}
        onnx.save_model(model, path, **options)


def product_names(style: str, module: str) -> tuple[str, str]:
    """Names of a product's node and of its tensor, as an exporter has them."""
    if style == "optimum":
        return f"/{module.replace('.', '/').replace('/layers/', '/layers.')}/MatMul_Q4", (
            f"onnx::MatMul_{sum(map(ord, module)) * 7 + len(module)}{module[-9:]}"
        )
    module = module.replace("self_attn", "attn")
    node = f"/{module.replace('.', '/').replace('/layers/', '/layers.')}/MatMul"
    if style == "genai":
        return f"{node}_Q4", f"{module}.MatMul.weight"
    return f"{node}_Quant", f"{module.replace('.', '_')}_MatMul_weight"


def norm_name(style: str, name: str) -> str:
    """Name of a norm's tensor, as an exporter has it."""
    if style == "optimum":
        return name
    if name == "model.norm.weight":
        return f"model.layers.{LAYERS}.final_norm_layernorm.weight"
    return name.replace("self_attn.", "attn.").replace("_norm.weight", "_norm.layernorm.weight")


def build(folder: Path, style: str, bits: int, block: int, *, zeros: bool) -> tuple[Graph, Any]:
    """A folder without safetensors, its graph, and transformers' model with the same values."""
    import torch

    model = save(QWEN3, folder)
    (folder / "model.safetensors").unlink()
    graph, random = Graph(), np.random.default_rng(bits)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if value.ndim == 1:
                graph.tensor(norm_name(style, name), value.numpy())
                continue
            pack = random_pack(random, tuple(value.shape), bits, block, zeros)
            if "embed_tokens" not in name:
                graph.product(*product_names(style, name.removesuffix(".weight")), pack)
            elif style == "browser":
                graph.table(pack, nibbles=bits == 2)
            else:
                graph.node(
                    "Gather",
                    [graph.tensor(name, value.numpy()), "ids"],
                    "/model/embed_tokens/Gather",
                )
                continue
            value.copy_(torch.from_numpy(pack.values()))
    return graph, model

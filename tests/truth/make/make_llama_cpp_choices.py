"""Records which types llama-quantize chooses for models of some shapes.

Usage: make_llama_cpp_choices.py PYTHON, an interpreter with llama-cpp-python. Writes
llama_cpp_choices.json, which test_mixes.py reads.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from oxibonsai import _core

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A model of zeros, and how it is quantized."""

    architecture: str = "llama"
    layers: int = 9
    heads: int = 8
    kv_heads: int = 2
    hidden: int = 256
    tied: bool = False
    fused: bool = False  # attn_qkv beside attn_v, as in hybrids
    measured: bool = False
    pure: bool = False

    def keys(self) -> dict[str, str | int]:
        """What a choice may depend on."""
        return {
            "general.architecture": self.architecture,
            f"{self.architecture}.block_count": self.layers,
            f"{self.architecture}.attention.head_count": self.heads,
            f"{self.architecture}.attention.head_count_kv": self.kv_heads,
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the tensors, in the order of the file."""
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (64, self.hidden)}
        if not self.tied:
            shapes["output.weight"] = (64, self.hidden)
        if self.fused:
            shapes |= {n: (4, self.hidden) for n in ("position_embd.weight", "token_types.weight")}
        roles = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
        roles += ["attn_qkv", "ssm_out", "ssm_alpha"] if self.fused else []
        for i in range(self.layers):
            shapes |= {f"blk.{i}.{role}.weight": (32, self.hidden) for role in roles}
            shapes[f"blk.{i}.attn_norm.weight"] = (self.hidden,)
            shapes[f"blk.{i}.attn_q.bias"] = (32,)
            if self.fused:
                shapes[f"blk.{i}.ssm_conv1d.weight"] = (self.hidden, 4)
        return shapes

    def write(self, path: Path) -> None:
        """The model, of zeros."""
        name = self.architecture
        writer = _core.GgufWriter(path.open("wb"))
        for key, value in self.keys().items():
            writer.add_metadata(key, value, "str" if isinstance(value, str) else "u32")
        sizes = {"context_length": 64, "embedding_length": self.hidden, "feed_forward_length": 64}
        sizes |= {"attention.key_length": 32, "attention.value_length": 32, "vocab_size": 64}
        for key, value in (sizes | {"rope.dimension_count": 32}).items():
            writer.add_metadata(f"{name}.{key}", value, "u32")
        writer.add_metadata(f"{name}.attention.layer_norm_rms_epsilon", 1e-6, "f32")
        writer.add_metadata("tokenizer.ggml.model", "no_vocab", "str")
        for tensor, shape in self.shapes().items():
            writer.add_tensor(tensor, shape, 0, 4 * int(np.prod(shape)))
        writer.write_header()
        for shape in self.shapes().values():
            writer.write_tensor(np.zeros(4 * int(np.prod(shape)), np.uint8))
        writer.close()


def cases() -> list[Case]:
    """Every rule applies in one of them."""
    usual = itertools.product((8, 2), (False, True))
    found = [Case(kv_heads=k, measured=m, tied=k == 8) for k, m in usual]
    found += [
        Case(layers=1),
        Case(layers=30),
        Case(layers=30, measured=True),
        Case(fused=True),
        Case(architecture="qwen3", layers=28, kv_heads=4),
    ]
    found += [Case(layers=80), Case(layers=80, kv_heads=8), Case("qwen2", layers=80)]
    return found + [Case(layers=2, hidden=n, pure=p) for n in (128, 96, 48) for p in (False, True)]


def runs(types: list[str]) -> str:
    """``Q6_K*3 Q4_K`` for equal neighbours."""
    groups = [(t, len(list(same))) for t, same in itertools.groupby(types)]
    return " ".join(f"{t}*{n}" if n > 1 else t for t, n in groups)


def by_role(types: dict[str, str]) -> dict[str, str]:
    """The types of each role, from the first layer to the last; F32 is what stays as it is."""
    roles: dict[str, list[tuple[int, str]]] = {}
    for name, type_name in types.items():
        if type_name.upper() == "F32":
            continue
        parts = name.split(".")
        layer = int(parts[1]) if parts[0] == "blk" else 0
        roles.setdefault(".".join(parts[2:] or parts), []).append((layer, type_name))
    return {role: runs([t for _, t in sorted(found)]) for role, found in sorted(roles.items())}


def main(python: str) -> None:
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        for case in cases():
            path = Path(temporary) / "m.gguf"
            case.write(path)
            arguments = (str(int(case.measured)), str(int(case.pure)), str(path))
            command = [python, str(HERE / "llama_cpp_dry_run.py"), *arguments]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            chosen = json.loads(said.splitlines()[-1])[str(path)]
            mixes = {mix: by_role(types) for mix, types in chosen.items() if types}
            entry = {"case": asdict(case), "mixes": mixes}
            lines.append(json.dumps(entry, separators=(",", ":")))
    (HERE.parent / "quantize" / "llama_cpp_choices.json").write_text(
        "[\n" + ",\n".join(lines) + "\n]\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

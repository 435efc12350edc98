"""Quantizes a model by oxibonsai and by llama.cpp, and compares what is left of it, and the times.

    python bench/quantize.py SOURCE.gguf Q4_K_M IQ4_XS ... [--oracle TRUTH.npz] [--imatrix FILE]
        [--pure] [-t N] [--peer-python PYTHON]

Both files are run by oxibonsai, so that weights alone differ. The divergence is the mean over
positions of sum p (ln p - ln q) over the truth's 50 likeliest tokens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import oxibonsai
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.devices import default_threads
from oxibonsai.engine import Engine
from oxibonsai.imatrix import Imatrix, read_imatrix
from oxibonsai.quantize import TypeRules, find_mix, make_plan, write

HERE = Path(__file__).parent
_TOP, _TOKENS = 50, 256
_TEXT = HERE.parent / "LICENSE"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Truth:
    """What the float32 model says: its likeliest tokens at each position of a text.

    Attributes:
        tokens: The text.
        top_ids, top_logp: [positions, 50].
    """

    tokens: list[int]
    top_ids: npt.NDArray[np.int64]
    top_logp: Floats

    @classmethod
    def read(cls, path: Path) -> Truth:
        """An ``.npz`` with these arrays."""
        with np.load(path) as found:
            ids, logp = found["top_ids"].astype(np.int64), found["top_logp"].astype(np.float64)
            return cls(found["tokens"].tolist(), ids, logp)

    @classmethod
    def of(cls, engine: Engine) -> Truth:
        """A model's own word on the start of this project's licence."""
        tokens = engine.tokenizer.encode(_TEXT.read_text())[:_TOKENS]
        logp = log_softmax(engine.logits(tokens))
        ids = np.argsort(-logp, axis=1)[:, :_TOP]
        return cls(tokens, ids, np.take_along_axis(logp, ids, 1))

    def divergence(self, engine: Engine) -> float:
        """Mean over the positions."""
        found = np.take_along_axis(log_softmax(engine.logits(self.tokens)), self.top_ids, 1)
        return float((np.exp(self.top_logp) * (self.top_logp - found)).sum(1).mean())


def log_softmax(logits: npt.NDArray[np.float32]) -> Floats:
    """Along the vocabulary."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    sums: Floats = np.log(np.exp(shifted).sum(-1, keepdims=True))
    result: Floats = shifted - sums
    return result


def quantize_ours(
    source: Path, out: Path, mix: str, imatrix: Imatrix | None, pure: bool, threads: int
) -> float:
    """Seconds that oxibonsai takes."""
    began = time.monotonic()
    plan = make_plan(GgufModel.open(source), TypeRules(find_mix(mix), pure=pure), imatrix)
    write(plan, out, threads=threads)
    return time.monotonic() - began


def quantize_theirs(python: str, arguments: dict[str, object]) -> float:
    """Seconds that llama.cpp takes."""
    command = [python, str(HERE / "worker_quantize_llama_cpp.py"), json.dumps(arguments)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(said.splitlines()[-1])


def type_counts(path: Path) -> dict[str, str]:
    """The type of each tensor."""
    return {t.name: t.quant_type for t in GgufModel.open(path).tensors}


def compare(options: argparse.Namespace, folder: Path, truth: Truth, mix: str) -> str:
    """One row of the table."""
    imatrix = None if options.imatrix is None else read_imatrix(options.imatrix)
    ours, theirs = folder / "ours.gguf", folder / "theirs.gguf"
    arguments: dict[str, object] = {
        "source": str(options.source),
        "out": str(theirs),
        "mix": mix.upper(),
        "pure": options.pure,
        "threads": options.threads,
    }
    if imatrix is not None:
        arguments["imatrix"] = str(folder / "imatrix.npz")
        found = {n: v for n in imatrix.entries if (v := imatrix.importance(n)) is not None}
        np.savez(folder / "imatrix.npz", allow_pickle=False, **found)
    seconds = [
        quantize_ours(options.source, ours, mix, imatrix, options.pure, options.threads),
        quantize_theirs(options.peer_python, arguments),
    ]
    kl = [truth.divergence(oxibonsai.load(p, parallel=1, ctx_size=512)) for p in (ours, theirs)]
    same = "" if type_counts(ours) == type_counts(theirs) else " (other types!)"
    size = ours.stat().st_size / 1e6
    columns = [mix + same, f"{size:.1f}", f"{kl[0]:.5f}", f"{kl[1]:.5f}", f"{kl[0] / kl[1]:.3f}"]
    return " | ".join([*columns, f"{seconds[0]:.1f}", f"{seconds[1]:.1f}"])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="a GGUF file, best in F32")
    parser.add_argument("mixes", nargs="+", metavar="TYPE")
    parser.add_argument("--oracle", type=Path, help="the truth; default: the source's own logits")
    parser.add_argument("--imatrix", type=Path)
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--threads", "-t", type=int, default=default_threads())
    parser.add_argument("--peer-python", default=sys.executable, help="has llama-cpp-python")
    options = parser.parse_args(arguments)
    source = (
        oxibonsai.load(options.source, parallel=1, ctx_size=512) if not options.oracle else None
    )
    truth = Truth.of(source) if source is not None else Truth.read(options.oracle)
    print("type | MB | KL | KL llama.cpp | ratio | seconds | seconds llama.cpp")
    print(" | ".join(["---"] * 7))
    with tempfile.TemporaryDirectory() as temporary:
        for mix in options.mixes:
            print(compare(options, Path(temporary), truth, mix), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

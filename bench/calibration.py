"""Quantizes a model plainly, with calibration and by llama.cpp, and measures each on another text.

    python bench/calibration.py SOURCE.gguf --calibration TEXT --held-out TEXT Q2_K Q3_K_M ...
        [--ways plain imatrix gptq] [--target-bits 2.5 ...] [--windows N] [--chunks N] [-t N]
        [--peer-python PYTHON]

A type may be given with types of matrices, as --tensor-type of quantize: Q2_0,ffn_down=Q3_K. The
importance matrix is the one that oxibonsai computes over the calibration text. Every file is run by
oxibonsai, so that weights alone differ. Divergences are from the source, over the second halves of
windows of 512 tokens. Without --held-out, the text is that of the Python language reference, which
every Python has (pydoc_data.topics); without --calibration, it is this project's documentation.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np

import oxibonsai
from oxibonsai.calibrate import choose_types, encode_with_feedback
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.devices import default_threads
from oxibonsai.engine import Engine
from oxibonsai.evaluate import (
    Divergence,
    KlBase,
    KlBaseWriter,
    cut_windows,
    measure_divergence,
    measure_perplexity,
    text_tokens,
)
from oxibonsai.imatrix import Imatrix, collect
from oxibonsai.quantize import Plan, TypeRules, find_mix, make_plan, write
from oxibonsai.quantize.blocks import Encoded
from oxibonsai.quantize.type_choice import layer_of
from oxibonsai.quantize.weight_types import target_type
from quantize import quantize_theirs, type_counts

_DOCS = Path(__file__).parent.parent / "docs"
_CTX_SIZE = 512
_TYPES = "TYPE[,REGEX=TYPE...]"
_PLAIN, _IMATRIX, _GPTQ = "plain", "imatrix", "gptq"


@dataclass(frozen=True)
class Types:
    """What a row's files are quantized to.

    Attributes:
        name: As it was given.
        mix: Of llama-quantize.
        patterns: Types of matrices whose names match, instead of the mix's.
    """

    name: str
    mix: str
    patterns: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, name: str) -> Types:
        """``MIX,REGEX=TYPE,...``."""
        mix, *patterns = name.split(",")
        pairs = [pattern.rpartition("=") for pattern in patterns]
        if not all(pattern and kind for pattern, _, kind in pairs):
            raise argparse.ArgumentTypeError(f"{name} is no {_TYPES}")
        return cls(name, mix, tuple((pattern, kind) for pattern, _, kind in pairs))


@dataclass
class Comparison:
    """What the rows share."""

    options: argparse.Namespace
    folder: Path
    engine: Engine
    windows: list[tuple[int, ...]]
    imatrix: Imatrix

    @property
    def base(self) -> Path:
        return self.folder / "base"

    def write_base(self) -> float:
        """Keep the source's predictions of the held-out text; its perplexity."""
        bos = self.engine.tokenizer.vocabulary.leading_bos
        tokens = text_tokens(self.engine.tokenizer, held_out_text(self.options))
        windows = cut_windows(tokens, _CTX_SIZE, bos, chunks=self.options.chunks)
        vocabulary = self.engine.model.config.vocab_size
        with self.base.open("wb") as file:
            kept = tokens[: len(windows) * _CTX_SIZE]
            writer = KlBaseWriter(file, kept, _CTX_SIZE, vocabulary)
            return measure_perplexity(self.engine, windows, writer).ppl.value

    def divergence(self, path: Path) -> Divergence:
        engine = oxibonsai.load(path, parallel=1, ctx_size=_CTX_SIZE)
        bos = engine.tokenizer.vocabulary.leading_bos
        return measure_divergence(engine, KlBase(self.base), bos)

    def plan(
        self, types: Types, imatrix: Imatrix | None, chosen: Sequence[tuple[str, str]] = ()
    ) -> Plan:
        file = self.engine.model.weights.checkpoint.file
        rules = TypeRules(find_mix(types.mix), patterns=[*types.patterns, *chosen])
        return make_plan(file, rules, imatrix)

    def encoded(self, plan: Plan) -> dict[str, Encoded]:
        return encode_with_feedback(
            self.engine.model,
            self.engine.kv_type,
            plan,
            self.windows,
            layers_at_once=self.options.layers_at_once,
            threads=self.options.threads,
            progress=lambda *_: None,
        )

    def targeted(self, types: Types, bits: float) -> Plan:
        plan = self.plan(types, self.imatrix)
        chosen = choose_types(
            self.engine.model,
            self.engine.kv_type,
            plan,
            self.imatrix,
            self.windows,
            bits,
            fixed=lambda tensor: False,
            feedback=True,
            threads=self.options.threads,
            progress=lambda *_: None,
        )
        patterns = [(f"^{name}$", kind) for name, kind in chosen.types.items()]
        return self.plan(types, self.imatrix, patterns)

    def theirs(self, types: Types, imatrix: Imatrix | None, out: Path) -> None:
        arguments: dict[str, object] = {
            "source": str(self.options.source),
            "out": str(out),
            "mix": types.mix.upper(),
            "patterns": [(p, target_type(kind).gguf_id) for p, kind in types.patterns],
            "pure": False,
            "threads": self.options.threads,
        }
        if imatrix is not None:
            held = {n: v for n in imatrix.entries if (v := imatrix.importance(n)) is not None}
            np.savez(self.folder / "imatrix.npz", allow_pickle=False, **held)
            arguments["imatrix"] = str(self.folder / "imatrix.npz")
        quantize_theirs(self.options.peer_python, arguments)

    def row(self, name: str, by: str, path: Path) -> None:
        found = self.divergence(path)
        kl = f"{found.kl.value:.4f} ± {found.kl.error:.4f}"
        size = f"{path.stat().st_size / 1e6:.1f}"
        columns = [name, by, size, f"{layer_bits(path):.2f}", kl, f"{found.ppl.value:.2f}"]
        print(" | ".join(columns), flush=True)


def held_out_text(options: argparse.Namespace) -> str:
    if options.held_out is not None:
        text: str = options.held_out.read_text()
        return text
    return "\n".join(topics[name] for name in sorted(topics))


def calibration_text(options: argparse.Namespace) -> str:
    if options.calibration is not None:
        text: str = options.calibration.read_text()
        return text
    return "\n".join(page.read_text() for page in sorted(_DOCS.glob("*.md")))


def layer_bits(path: Path) -> float:
    """Bits of a weight in the matrices of the layers."""
    file = GgufModel.open(path)
    held = [t for t in file.tensors if t.name.startswith("blk.") and len(t.shape) > 1]
    return 8 * sum(t.nbytes for t in held) / sum(int(np.prod(t.shape)) for t in held)


def print_types(plan: Plan) -> None:
    """Print how many matrices of each role in the layers have each type, to the standard error."""
    counts = Counter(
        (c.tensor.role, c.type.name) for c in plan.choices if layer_of(c.tensor.name) is not None
    )
    for (role, kind), count in sorted(counts.items()):
        if kind != "F32":
            print(f"{role} {kind}: {count}", file=sys.stderr, flush=True)


def plan_bits(plan: Plan) -> float:
    """Bits of a weight in the matrices of the layers, as planned."""
    held = [c for c in plan.choices if c.tensor.name.startswith("blk.") and len(c.tensor.shape) > 1]
    return 8 * sum(c.nbytes for c in held) / sum(c.tensor.count for c in held)


def compare(options: argparse.Namespace, folder: Path) -> None:
    engine = oxibonsai.load(options.source, parallel=1, ctx_size=_CTX_SIZE)
    bos = engine.tokenizer.vocabulary.leading_bos
    cut = cut_windows(text_tokens(engine.tokenizer, calibration_text(options)), _CTX_SIZE, bos)
    taken = min(options.windows, len(cut))
    windows = [cut[i * len(cut) // taken].inputs for i in range(taken)]
    *_, imatrix = collect(engine, windows)
    comparison = Comparison(options, folder, engine, windows, imatrix)
    print(f"perplexity of the source: {comparison.write_base():.2f}\n")
    print("type | by | MB | bits of the layers | KL | perplexity")
    print(" | ".join(["---"] * 6), flush=True)
    ours, theirs = folder / "ours.gguf", folder / "theirs.gguf"
    for types in options.types:
        for way in (_PLAIN, _IMATRIX):
            if way in options.ways:
                given = imatrix if way == _IMATRIX else None
                comparison.theirs(types, given, theirs)
                comparison.row(types.name, f"llama.cpp, {way}", theirs)
                write(comparison.plan(types, given), ours, threads=options.threads)
                if type_counts(ours) != type_counts(theirs):
                    print(f"{types.name}: other types!", file=sys.stderr)
                comparison.row(types.name, way, ours)
        plan = comparison.plan(types, imatrix)
        if _GPTQ in options.ways:
            write(plan, ours, encoded=comparison.encoded(plan), threads=options.threads)
            comparison.row(types.name, "--gptq", ours)
        for asked in options.target_bits:
            chosen = comparison.targeted(types, asked or plan_bits(plan))
            write(chosen, ours, encoded=comparison.encoded(chosen), threads=options.threads)
            said = f"{asked:g}" if asked else "the same"
            comparison.row(types.name, f"--gptq --target-bits ({said})", ours)
            print_types(chosen)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="a GGUF file, best in F32")
    parser.add_argument(
        "types", nargs="+", type=Types.read, metavar=_TYPES, help="of both programs"
    )
    ways = [_PLAIN, _IMATRIX, _GPTQ]
    parser.add_argument("--ways", nargs="*", choices=ways, default=ways, help="default: all")
    parser.add_argument("--calibration", type=Path, metavar="TEXT")
    parser.add_argument("--held-out", type=Path, metavar="TEXT")
    parser.add_argument(
        "--target-bits", type=float, nargs="*", default=[], help="0: as many as the mix takes"
    )
    parser.add_argument("--windows", type=int, default=32, help="of the calibration text")
    parser.add_argument("--chunks", type=int, default=8, help="windows of the held-out text")
    parser.add_argument("--layers-at-once", type=int, default=4)
    parser.add_argument("--threads", "-t", type=int, default=default_threads())
    parser.add_argument("--peer-python", default=sys.executable, help="has llama-cpp-python")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        compare(options, Path(temporary))


if __name__ == "__main__":
    main(sys.argv[1:])

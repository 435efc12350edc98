"""Writes docs/architectures.md: what each architecture was compared with, and how close it comes.

    python tests/truth/make make_architecture_table [NAME ...]

With names of architectures, only their rows are made anew.

The structures are those of tests/models: small random models in which no parameter has
its default value.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import dense_models
import encoder_models
import expert_models
import i2_s_models
import numpy as np
import numpy.typing as npt
import random_models
import random_vision
import recurrent_models
import remote_models
import seq2seq_runs
from make_llama_cpp_encoders import POSITIONS
from make_llama_cpp_encoders import RECORDED as RECORDED_ENCODERS
from make_llama_cpp_remote import RECORDED

from oxibonsai import _core
from oxibonsai.architectures.families import BY_NAME
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.checkpoint.gguf import GgufModel
from oxibonsai.convert.language_model import convert
from oxibonsai.errors import OxiBonsaiError
from oxibonsai.models import Model, load_model
from oxibonsai.quantize import quantize

OUT = Path(__file__).resolve().parents[3] / "docs" / "architectures.md"
RUNS = (
    Path(__file__).parents[1] / "models" / "llama_cpp_runs.json"
)  # make_llama_cpp_runs.py writes it
TRANSFORMERS, LLAMA_CPP = "transformers", "llama.cpp"
GELU_TABLE = "llama.cpp, whose GELU is a table of float16"
TIERS = _core.cpu.tiers()
BITNET_IDS: list[int] = np.random.default_rng(5).integers(0, i2_s_models.VOCABULARY, 60).tolist()
Floats = npt.NDArray[np.float32]

HEADER = """# Model architectures

The table lists the values of `general.architecture` that can be run, and what each was compared with.
*Structures* are random models (tied or not, with and without biases, parallel residuals, shared experts,
scaled rotary embeddings ...) in float32. transformers computes their logits from the same weights;
llama.cpp does where transformers has no such class. *Distance* is the largest difference of a logit,
relative to the largest logit, over all structures.

*Same bytes* lists the quant types of the weights in which every structure gives the bytes of the
scalar tier on all tiers of the machine that wrote the row, with 1 and 2 threads, in chunks of 1, 7
and 64 tokens, and in a batch of four sequences. The tests in `tests/models` repeat this on the tiers
of yours; `tests/truth/make/make_architecture_table.py` writes the table. For encoders
([encoders.md](encoders.md)) the hidden states are compared; they are not computed in chunks. CodeShell
and Grok differ more from llama.cpp than the others, because its GELU is a table of float16 values.
PLaMo 2 is compared with attention in its first layer, because llama.cpp 0.3.36 does not end where that
has none, as in the published models; those are compared with a computation of their definition in
float64. `nanbeige` is compared with transformers' Llama, whose layers run as often as the model's do;
`dilated` and `mixture-of-depths` with its layers, each of which gets a mask or a choice of tokens;
`phi3small` with its definition in torch (`tests/models/own_models.py`). `t5` is the encoder with its
decoder.

*Runs as llama.cpp*: llama.cpp's converter makes a file of a random model, and `oxibonsai run` and
llama.cpp continue a text of 70 characters with the likeliest tokens. The number is that of files, then
that of tokens, of at most 24, which are equal in every file. They may differ only from a token on
that leads the next by less than 0.2 % of the largest logit. Without a number: an encoder, or a model
that llama.cpp's converter or transformers cannot make, or that llama.cpp does not run as transformers
does. `tests/truth/make/make_llama_cpp_runs.py` repeats this with an installed llama.cpp, and says why
models are left out.

What tokens see: `gptneo` has plain windows in every other layer. `phi3small`, as published, has *strided*
ones: a window of whole blocks and, before it, every eighth block, which is another one for each head.
*Dilated* windows, and windows with *global* tokens, are in no published decoder that we know, so that
`dilated` is Llama with the fields of Longformer's configuration: `attention_window` (keys that a token
sees, itself counted; 0: all), `attention_dilation` (positions from one of them to the next), both one
number or one for each layer, and `global_tokens` (first tokens of a text, which all see).

`mixture-of-depths` (arXiv 2404.02258) is Llama, every
`mod_interval`-th layer of which has a router, a row of weights `model.layers.N.mod_router.weight`, which
gives each token a number. Training takes the share `mod_capacity` of a text's tokens with the largest
numbers, which depends on tokens that come later. A decoder has to choose before it knows those, so that a
token goes through the layer if its number is above zero: that is where the paper's auxiliary loss (a
sigmoid of 0.5) puts the boundary of the share, and it needs no further weights, as a predictor would. What
the layer adds is multiplied by the number; tokens that pass a layer by are not seen in it. `mod_capacity`
is kept and changes nothing: how many tokens go through a layer is up to the text. All tokens are
computed, so that a step is not faster than Llama's.

Not run are Qwen4-Exp (`qwen4exp`), GLM-5.3-Flash (`glm5-next`) and Kimi K3 (`kimi-k3`), which llama.cpp's
sources in llama-cpp-python 0.3.36 describe, and transformers 5.23 the first two. Qwen4-Exp and GLM need
several residual streams and attention to keys that an index chooses, Qwen4-Exp also embeddings of hashed
n-grams; Kimi K3 needs attention to the results of earlier layers and experts of a narrower width than the
model's. Of Kimi K3.1 we found no description of its own in either of them.

| architecture | structures | compared with | distance | same bytes | runs as llama.cpp |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass
class Structure:
    """A file in float32, and the logits that it should give for the last tokens of a text."""

    path: Path
    ids: list[int]
    truth: Floats
    source: str


def structures(folder: Path) -> Iterator[Structure]:
    """All structures of the tests."""
    for recipe in random_models.STRUCTURES:
        path = folder / f"{recipe.name}.gguf"
        model = random_models.build(recipe, path, "F32")
        truth = random_models.reference_logits(model, random_models.IDS)
        yield Structure(path, random_models.IDS, truth, TRANSFORMERS)
    for case in [*dense_models.CASES, *expert_models.CASES]:
        path, ids = folder / f"{case.name}.gguf", dense_models.IDS[: case.ids]
        truth = dense_models.logits(dense_models.save(case, folder / case.name), ids)
        convert(folder / case.name, path, dtype="f32")
        yield Structure(path, ids, truth, TRANSFORMERS)
    for hybrid in recurrent_models.CASES:
        path = folder / f"{hybrid.name}.gguf"
        truth = recurrent_models.reference_logits(hybrid.save(folder / hybrid.name))
        convert(folder / hybrid.name, path, dtype="f32")
        yield Structure(path, recurrent_models.IDS, truth, TRANSFORMERS)
    for name in ("qwen2vl", "qwen2.5vl", "qwen3vl", "qwen3vlmoe"):
        (folder / name).mkdir()
        eyed = random_vision.MODELS[name](folder / name)
        truth = dense_models.logits(eyed.truth, dense_models.IDS)
        yield Structure(eyed.text, dense_models.IDS, truth, TRANSFORMERS)
    bitnet, path = folder / "i2_s.gguf", folder / "bitnet-b1.58.gguf"
    ternary, _ = i2_s_models.build(bitnet, half_scales=True)
    quantize(GgufModel.open(bitnet), path, "f32")
    truth = random_models.reference_logits(ternary, BITNET_IDS)
    yield Structure(path, BITNET_IDS, truth, TRANSFORMERS)
    recorded = json.loads(RECORDED.read_text())
    for remote in remote_models.CASES:
        path = folder / f"{remote.name}.gguf"
        remote_models.write(remote, path)
        yield Structure(path, dense_models.IDS, np.array(recorded[remote.name]), LLAMA_CPP)


def encoders(folder: Path) -> Iterator[tuple[Structure, list[int]]]:
    """Encoders, their hidden states in place of logits, and the positions that these are of."""
    every = list(range(len(encoder_models.IDS)))
    for case in encoder_models.ENCODERS:
        path = folder / f"{case.name}.gguf"
        model = encoder_models.save(case, folder / case.name)
        convert(folder / case.name, path, dtype="f32")
        truth = encoder_models.states(model, encoder_models.IDS)
        yield Structure(path, encoder_models.IDS, truth, TRANSFORMERS), every
    recorded = json.loads(RECORDED_ENCODERS.read_text())
    for remote in encoder_models.REMOTE:
        path = folder / f"{remote.name}.gguf"
        encoder_models.write(remote, path)
        truth = np.array(recorded[remote.name])
        yield Structure(path, encoder_models.IDS, truth, GELU_TABLE), list(POSITIONS)


def seq2seq(folder: Path) -> Iterator[Structure]:
    """Decoders behind an encoder, which has read a text of its own."""
    for case in encoder_models.SEQ2SEQ:
        path = folder / f"{case.name}.gguf"
        model = encoder_models.save(case, folder / case.name)
        convert(folder / case.name, path, dtype="f32")
        truth = encoder_models.seq2seq_logits(model, encoder_models.IDS, seq2seq_runs.DECODED)
        yield Structure(path, encoder_models.IDS, truth, TRANSFORMERS)


def decoded(path: Path, tier: str, threads: int, ids: list[int], chunk: int) -> Floats:
    """Logits of a decoder's tokens, beside another text of the same batch."""
    runs, count, n = (
        seq2seq_runs.Runs(path, _core.CpuDevice(threads, tier)), len(seq2seq_runs.DECODED), len(ids)
    )  # fmt: skip
    runs.encode(ids, ids[:7])
    spans = [(a, min(a + chunk, count)) for a in range(0, count, chunk)]
    rows = [runs.decode((0, n, a, b), (1, 7, a, b))[: b - a] for a, b in spans]
    return np.concatenate(rows)


def same_decoded(path: Path, ids: list[int]) -> bool:
    """Whether tiers, threads and chunks change no byte of a decoder's logits."""
    truth = decoded(path, "scalar", 1, ids, len(seq2seq_runs.DECODED)).tobytes()
    return all(
        decoded(path, tier, threads, ids, chunk).tobytes() == truth
        for tier in TIERS
        for threads in (1, 2)
        for chunk in (1, 7, 64)
    )


def states(path: Path, tier: str, threads: int, *texts: list[int]) -> list[Floats]:
    """Hidden states of texts that share a step."""
    model = load_model(Checkpoint(path), _core.CpuDevice(threads, tier))
    batch = _core.Batch()
    for text in texts:
        batch.add(text, outputs=len(text))
    return np.split(model.run_hidden(batch, []), np.cumsum([len(t) for t in texts])[:-1])


def same_states(path: Path, ids: list[int]) -> bool:
    """Whether tiers, threads and company change no byte of an encoder's hidden states."""
    texts = [ids, ids[:1], ids[5:30], ids[:64]]
    truth = [states(path, "scalar", 1, text)[0].tobytes() for text in texts]
    return all(
        [rows.tobytes() for rows in states(path, tier, threads, *texts)] == truth
        for tier in TIERS
        for threads in (1, 2)
    )


class Runs:
    """A model with state for four sequences."""

    def __init__(self, path: Path, tier: str, threads: int) -> None:
        self._model: Model = load_model(Checkpoint(path), _core.CpuDevice(threads, tier))
        graph = self._model.graph
        self._pools = [self._model.new_pages("f32", 16)] if graph.paged_layers else []
        self._slots = _core.Slots(graph.slot_entries, 4) if graph.slot_entries else None

    def run(self, ids: list[int], *spans: tuple[int, int, int]) -> list[Floats]:
        """Logits of positions first .. last - 1 of each sequence."""
        batch = _core.Batch()
        for sequence, first, last in spans:
            pages = list(range(4 * sequence, 4 * sequence + 4))
            batch.add(
                ids[first:last], first=first, pages=pages, slot=sequence, outputs=last - first
            )
        rows = self._model.run(batch, self._pools, self._slots)
        return np.split(rows, np.cumsum([b - a for _, a, b in spans])[:-1])

    def logits(self, ids: list[int], chunk: int) -> Floats:
        """Of the whole text, cut into chunks."""
        starts = range(0, len(ids), chunk)
        return np.concatenate([self.run(ids, (0, a, min(a + chunk, len(ids))))[0] for a in starts])


def same_bytes(path: Path, ids: list[int]) -> bool:
    """Whether nothing that should not matter changes a byte."""
    n = len(ids)
    truth = Runs(path, "scalar", 1).logits(ids, n).tobytes()
    for tier in TIERS:
        for threads in (1, 2):
            runs = Runs(path, tier, threads)
            if any(runs.logits(ids, chunk).tobytes() != truth for chunk in (1, 7, 64)):
                return False
            first = runs.run(ids, (1, 0, 5), (0, 0, n // 2), (2, 0, 1), (3, 0, 9))
            then = runs.run(ids, (3, 9, n), (2, 1, 3), (0, n // 2, n), (1, 5, 6))
            for parts in ((first[1], then[2]), (first[3], then[0])):
                if np.concatenate(parts).tobytes() != truth:
                    return False
    return True


def quantized(path: Path) -> dict[str, Path]:
    """The file in float32 and in the integer types that its widths allow."""
    found = {"F32": path}
    for name in ("Q4_K", "Q8_0", "Q1_0"):
        out = path.with_suffix(f".{name}.gguf")
        try:
            quantize(GgufModel.open(path), out, name, pure=True)
        except OxiBonsaiError:
            continue
        types = {Checkpoint(out).weight(n).quant_type for n in matrices(out)}
        if name in types:
            found[name] = out
    return found


def matrices(path: Path) -> list[str]:
    """Names of a file's matrices."""
    checkpoint = Checkpoint(path)
    return [n for n in checkpoint.tensor_names if len(checkpoint.shape(n)) > 1]


def written_rows() -> dict[str, str]:
    """Those of the page as it is, without the last column."""
    row = re.compile(r"^(\| `(\S+)` \|(?:[^|]*\|){4}).*$", re.MULTILINE)
    return {m[2]: m[1] for m in row.finditer(OUT.read_text())}


def write(rows: Mapping[str, str]) -> None:
    """The page, with a last column of what is recorded."""
    runs = json.loads(RUNS.read_text())
    said = {name: f" {len(of)}: {min(of.values())} |" for name, of in runs.items()}
    lines = [rows[name] + said.get(name, " |") for name in sorted(rows)]
    OUT.write_text(HEADER + "\n".join(lines) + "\n")


def measured(folder: Path) -> Iterator[tuple[Structure, Floats, Callable[[Path], bool]]]:
    """Structures, what they give, and what tells whether a file of theirs gives the same bytes."""
    for s in structures(folder):
        found = Runs(s.path, TIERS[-1], 2).logits(s.ids, 64)[-len(s.truth) :]
        yield s, found, lambda path, s=s: same_bytes(path, s.ids[:40])
    for s in seq2seq(folder):
        found = decoded(s.path, TIERS[-1], 2, s.ids, 64)
        yield s, found, lambda path, s=s: same_decoded(path, s.ids)
    for s, positions in encoders(folder):
        found = states(s.path, TIERS[-1], 2, s.ids)[0][positions]
        yield s, found, lambda path, s=s: same_states(path, s.ids)


def main(*names: str) -> None:
    """Measures the structures and writes the page."""
    distances: dict[str, list[float]] = defaultdict(list)
    sources: dict[str, set[str]] = defaultdict(set)
    equal: dict[str, dict[str, bool]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as name:
        for s, found, same in measured(Path(name)):
            a = Checkpoint(s.path).architecture
            if names and a not in names:
                continue
            distances[a].append(float(np.abs(found - s.truth).max() / np.abs(s.truth).max()))
            sources[a].add(s.source)
            for quant_type, path in quantized(s.path).items():
                equal[a][quant_type] = equal[a].get(quant_type, True) and same(path)
            print(s.path.stem, f"{distances[a][-1]:.1e}", equal[a], flush=True)
    rows = written_rows() if names else {}
    for architecture in sorted(BY_NAME.keys() & distances.keys()):
        types = equal[architecture]
        said = ", ".join(t for t, holds in types.items() if holds)
        different = [t for t, holds in types.items() if not holds]
        rows[architecture] = (
            f"| `{architecture}` | {len(distances[architecture])} | "
            f"{', '.join(sorted(sources[architecture], reverse=True))} | "
            f"{max(distances[architecture]):.1e} | {said}"
            f"{f'; not {different}' if different else ''} |"
        )
    write(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])

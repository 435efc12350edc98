"""Times the encoding of a picture beside llama.cpp's mtmd, on random towers of published shapes.

    python bench/vision_encode.py [LLAMA_CPP LIBRARIES] [--towers qwen3vl-2b,gemma3,bonsai2-27b]
        [--types f16,q8_0] [--threads N] [--side 1024] [--repetitions 3] [--layers N] [--build FOLDER]
        [--out JSON]

LLAMA_CPP is llama.cpp's folder, LIBRARIES that of the libggml*.so made of it; without them, our own tower
alone is timed. Each engine runs in a process of its own, on the same mmproj file and pixels, in turn; the
picture is a square of ``side`` pixels, resized as the model's processor does. Memory is the peak of the
process (VmHWM); the time that decoding and resizing take is not included. Seconds are those of the clock;
those of the processor, which other programs lengthen less, are printed beside them: with one thread they
are what an idle machine would take.

The last column is our share of the processor's peak: the least time that the multiply-adds of the tower
could take, those of attention and of float matrices at the rate of the tier's fmas, those of quantized
matrices at the rate of its int8 dot products (both measured before and after), over the time taken. Our
arithmetic is float32 and exact products of int8, so no program that keeps it can be faster.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from mtmd import MtmdTower, build
from oxibonsai import _core
from oxibonsai.devices import default_threads
from oxibonsai.vision import DecodedImage, Tower

Floats = npt.NDArray[np.float32]
Shapes = dict[str, tuple[int, ...]]
_TYPES = {"f32": "F32", "f16": "F16", "q8_0": "Q8_0"}
_PASSES = 200  # of the loops that measure peaks, about 2 ms each; the fastest counts


@dataclass(frozen=True)
class Shape:
    """A published tower."""

    projector: str
    hidden: int
    ff: int
    layers: int
    heads: int
    patch: int
    image: int
    out: int
    deep: tuple[int, ...] = ()


TOWERS = {
    "qwen3vl-2b": Shape("qwen3vl_merger", 1024, 4096, 24, 16, 16, 768, 2048, (5, 11, 17)),
    "gemma3": Shape("gemma3", 1152, 4304, 27, 16, 14, 896, 2560),
    # Bonsai 2's towers differ in the width of their rows alone.
    "bonsai2-9b": Shape("qwen3vl_merger", 1152, 4304, 27, 16, 16, 768, 4096),
    "bonsai2-27b": Shape("qwen3vl_merger", 1152, 4304, 27, 16, 16, 768, 5120),
}


def tensor_shapes(s: Shape) -> Shapes:
    """Of all tensors of a tower."""
    patches: tuple[int, ...] = (s.hidden, 3, s.patch, s.patch)
    qwen = s.projector == "qwen3vl_merger"
    found: Shapes = {
        "v.patch_embd.weight": patches,
        "v.patch_embd.bias": (s.hidden,),
        "v.position_embd.weight": ((s.image // s.patch) ** 2, s.hidden),
        **_with_bias("v.post_ln", (s.hidden,)),
    }
    for i in range(s.layers):
        b = f"v.blk.{i}"
        found |= _with_bias(f"{b}.ln1", (s.hidden,)) | _with_bias(f"{b}.ln2", (s.hidden,))
        heads = {"attn_qkv": 3} if qwen else dict.fromkeys(("attn_q", "attn_k", "attn_v"), 1)
        for name, count in (*heads.items(), ("attn_out", 1)):
            found |= _with_bias(f"{b}.{name}", (count * s.hidden, s.hidden))
        found |= _with_bias(f"{b}.ffn_up", (s.ff, s.hidden))
        found |= _with_bias(f"{b}.ffn_down", (s.hidden, s.ff))
    if not qwen:
        found["mm.input_projection.weight"] = (s.hidden, s.out)
        found["mm.soft_emb_norm.weight"] = (s.hidden,)
        return found
    wide = 4 * s.hidden
    found["v.patch_embd.weight.1"] = patches
    found |= _with_bias("mm.0", (wide, wide)) | _with_bias("mm.2", (s.out, wide))
    for i in s.deep:
        d = f"v.deepstack.{i}"
        found |= _with_bias(f"{d}.norm", (wide,)) | _with_bias(f"{d}.fc1", (wide, wide))
        found |= _with_bias(f"{d}.fc2", (s.out, wide))
    return found


def _with_bias(name: str, shape: tuple[int, ...]) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def type_of(name: str, shape: tuple[int, ...], kind: str) -> str:
    """Of a tensor, in a file whose linear layers have a type; as in published files."""
    if len(shape) != 2 or "position" in name:
        return "F32"
    if "input_projection" in name or (kind == "q8_0" and shape[1] % 32 != 0):
        return "F16"
    return _TYPES[kind]


@dataclass(frozen=True)
class Products:
    """Multiply-adds of a picture.

    Attributes:
        floats: Of attention and of matrices that are not quantized.
        int8: Of quantized matrices.
    """

    floats: int
    int8: int


def count_products(s: Shape, kind: str, pixels: Floats) -> Products:
    """Those of a picture, float32 [tiles, 3, height, width]."""
    tiles, _, height, width = pixels.shape
    patches = tiles * (height // s.patch) * (width // s.patch)
    floats, int8 = 2 * s.layers * patches * patches // tiles * s.hidden, 0
    for name, shape in tensor_shapes(s).items():
        if len(shape) == 1 or "position" in name:
            continue
        rows = patches
        if name.startswith(("mm.", "v.deepstack")):
            rows = tiles * 256 if s.projector == "gemma3" else patches // 4
        count = rows * int(np.prod(shape))
        if type_of(name, shape, kind) == "Q8_0":
            int8 += count
        else:
            floats += count
    return Products(floats, int8)


def measure_peaks(threads: int) -> tuple[float, float]:
    """Multiply-adds per second of floats and of int8 on all threads."""
    pool, tier = _core.ThreadPool(threads), _core.cpu.name()
    return pool.fma_peak(tier, _PASSES), pool.int8_peak(tier, _PASSES)


def write_tower(path: Path, s: Shape, kind: str) -> None:
    """A random tower, its linear layers of a type; the last of Gemma 3 is F16 as in published files."""
    writer = _core.GgufWriter(path.open("wb"))
    keys: dict[str, tuple[Any, str]] = {
        "general.architecture": ("clip", "str"),
        "clip.has_vision_encoder": (True, "bool"),
        "clip.projector_type": (s.projector, "str"),
        "clip.use_gelu": (True, "bool"),
        "clip.vision.embedding_length": (s.hidden, "u32"),
        "clip.vision.feed_forward_length": (s.ff, "u32"),
        "clip.vision.block_count": (s.layers, "u32"),
        "clip.vision.attention.head_count": (s.heads, "u32"),
        "clip.vision.attention.layer_norm_epsilon": (1e-6, "f32"),
        "clip.vision.patch_size": (s.patch, "u32"),
        "clip.vision.image_size": (s.image, "u32"),
        "clip.vision.projection_dim": (s.out, "u32"),
        "clip.vision.image_mean": ([0.5, 0.5, 0.5], "arr[f32]"),
        "clip.vision.image_std": ([0.5, 0.5, 0.5], "arr[f32]"),
    }
    if s.deep:
        deep = [i in s.deep for i in range(s.layers)]
        keys["clip.vision.is_deepstack_layers"] = (deep, "arr[bool]")
        keys["clip.vision.spatial_merge_size"] = (2, "u32")
    for key, entry in keys.items():
        writer.add_metadata(key, *entry)
    ids = {t["name"]: t for t in _core.quant_types()}
    random = np.random.default_rng(1)
    blocks: list[npt.NDArray[np.uint8]] = []
    for name, shape in tensor_shapes(s).items():
        values = random.standard_normal(shape, dtype=np.float32)
        values /= np.float32(np.sqrt(np.prod(shape[1:]))) if len(shape) > 1 else np.float32(1.0)
        own = type_of(name, shape, kind)
        blocks.append(_core.encode(values.reshape(-1, shape[-1]), own))
        writer.add_tensor(name, shape, ids[own]["gguf_id"], blocks[-1].nbytes)
    writer.write_header()
    for block in blocks:
        writer.write_tensor(block)
    writer.close()


def run_own(path: Path, threads: int, pixels: list[Floats]) -> Callable[[int], Floats]:
    """Encodes picture i with our tower."""
    from oxibonsai.vision import ImageEmbedding, PixelGrid

    tower = Tower.open(path, _core.CpuDevice(threads), lambda text: 1)

    def rows(number: int) -> Floats:
        parts = tower.encode(PixelGrid(pixels[number]))
        return np.concatenate([p.rows for p in parts if isinstance(p, ImageEmbedding)])

    return rows


def run_peer(
    library: Path, path: Path, threads: int, pixels: list[Floats]
) -> Callable[[int], Floats]:
    """Encodes picture i with mtmd's."""
    tower = MtmdTower(library, path, threads)
    return lambda number: tower.encode(pixels[number][0])


def serve(asked: Connection, make: Callable[..., Callable[[int], Floats]], *arguments: Any) -> None:
    """A process: seconds and the size of the rows for each number, at the end its peak memory."""
    encode_picture = make(*arguments)
    while (number := asked.recv()) is not None:
        begin, cpu = time.perf_counter(), time.process_time()
        rows = encode_picture(number)
        seconds = time.perf_counter() - begin, time.process_time() - cpu
        asked.send((*seconds, rows.shape, float(np.abs(rows).mean())))
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    asked.send(int(fields["VmHWM"].split()[0]) / 1024)


def random_pixels(path: Path, side: int, count: int) -> list[Floats]:
    """Squares of ``side`` pixels, as the tower's processor prepares them."""
    tower = Tower.open(path, _core.CpuDevice(1), lambda text: 1)
    random = np.random.default_rng(3)
    images = (random.integers(0, 256, (side, side, 3), np.uint8) for _ in range(count))
    return [tower.processor.prepare(DecodedImage(Image.fromarray(i))).pixels for i in images]


def compare(
    path: Path, library: Path | None, threads: int, pixels: list[Floats]
) -> dict[str, dict[str, Any]]:
    """Both engines on one file, in turn, or ours alone; the first picture warms up."""
    start = multiprocessing.get_context("spawn")
    makers: dict[str, tuple[Any, ...]] = {"oxibonsai": (run_own, path, threads, pixels)}
    if library is not None:
        makers["mtmd"] = (run_peer, library, path, threads, pixels)
    pipes: dict[str, Any] = {}
    for name, arguments in makers.items():
        ours, theirs = start.Pipe()
        start.Process(target=serve, args=(theirs, *arguments), daemon=True).start()
        theirs.close()  # so that a process that dies ends the measurement
        pipes[name] = ours
    found: dict[str, dict[str, Any]] = {name: {"seconds": [], "cpu_seconds": []} for name in makers}
    for number in range(len(pixels)):
        for name, pipe in pipes.items():
            pipe.send(number)
            seconds, cpu_seconds, shape, size = pipe.recv()
            found[name] |= {"rows": list(shape), "mean_of_magnitudes": size}
            if number:
                found[name]["seconds"].append(seconds)
                found[name]["cpu_seconds"].append(cpu_seconds)
    for name, pipe in pipes.items():
        pipe.send(None)
        found[name]["peak_mib"] = pipe.recv()
    return found


def main() -> None:
    """Prints a line for each tower and type."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("llama_cpp", type=Path, nargs="?")
    parser.add_argument("libraries", type=Path, nargs="?")
    parser.add_argument("--towers", default=",".join(TOWERS), help="default: all")
    parser.add_argument("--types", default="f16,q8_0")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--layers", type=int, help="of the towers, for a trial")
    parser.add_argument("--build", type=Path, default=Path(tempfile.gettempdir()) / "mtmd_tower")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if (given.llama_cpp is None) != (given.libraries is None):
        parser.error("LLAMA_CPP and LIBRARIES go together")
    library = None
    if given.llama_cpp is not None:
        library = build(given.llama_cpp.resolve(), given.libraries.resolve(), given.build)
    results = []
    for name in given.towers.split(","):
        shape = TOWERS[name]
        if given.layers:
            deep = tuple(i for i in shape.deep if i < given.layers)
            shape = replace(shape, layers=given.layers, deep=deep)
        for kind in given.types.split(","):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "mmproj.gguf"
                write_tower(path, shape, kind)
                pixels = random_pixels(path, given.side, given.repetitions + 1)
                before = measure_peaks(given.threads)
                found = compare(path, library, given.threads, pixels)
            peaks = [max(p) for p in zip(before, measure_peaks(given.threads), strict=True)]
            count = count_products(shape, kind, pixels[0])
            least = count.floats / peaks[0] + count.int8 / peaks[1]
            own = statistics.median(found["oxibonsai"]["seconds"])
            cpu = statistics.median(found["oxibonsai"]["cpu_seconds"])
            beside = ""
            if library is not None:
                peer = statistics.median(found["mtmd"]["seconds"])
                beside = f", mtmd {peer:8.2f} s: {peer / own:5.2f} times as fast"
            memory = " / ".join(f"{found[e]['peak_mib']:.0f}" for e in found)
            print(
                f"{name:12} {kind:5} {own:8.2f} s ({cpu:.2f} s of processor){beside}; memory {memory} MiB; "
                f"{least / own:.0%} of the peak of {peaks[0] / 1e9:.0f} G fmas and "
                f"{peaks[1] / 1e9:.0f} G int8 products a second",
                flush=True,
            )
            limits = {"fma_peak": peaks[0], "int8_peak": peaks[1], "least_seconds": least}
            shared = {"tower": name, "type": kind, "threads": given.threads}
            results.append({**shared, **limits, **found})
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

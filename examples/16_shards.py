"""Cut a model file into shards, run it from them, and join them to the same file again."""

import tempfile
from pathlib import Path

import oxibonsai
from oxibonsai.sources import resolve
from oxibonsai.split import merge, split

source = resolve("seedling-ternary")
params = oxibonsai.SamplingParams(max_tokens=20, temperature=0)


def text(path: Path) -> str:
    with oxibonsai.load(path) as engine:
        return "".join(engine.generate("Once upon a time", params))


with tempfile.TemporaryDirectory() as folder:
    shards = split(source, Path(folder) / "model", max_bytes=1_000_000)
    for shard in shards:
        print(shard.name, shard.stat().st_size)
    whole = Path(folder) / "whole.gguf"
    merge(shards, whole)
    assert text(shards[0]) == text(whole) == text(source)

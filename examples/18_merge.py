"""Merge two models by one of mergekit's configurations, into one file (extra: merge)."""

import subprocess
import sys
import tempfile
from pathlib import Path

import oxibonsai

config = """
merge_method: linear
dtype: float32
models:
  - model: seedling-ternary
    parameters: {weight: 0.9}
  - model: seedling-1bit
    parameters: {weight: 0.1}
"""
params = oxibonsai.SamplingParams(max_tokens=30, temperature=0)

with tempfile.TemporaryDirectory() as folder:
    recipe, merged = Path(folder) / "config.yaml", Path(folder) / "merged.gguf"
    recipe.write_text(config)
    command = [sys.executable, "-m", "oxibonsai", "merge-models", str(recipe), str(merged)]
    subprocess.run(command, check=True, capture_output=True)
    with oxibonsai.load(merged) as engine:
        print("Once upon a time" + "".join(engine.generate("Once upon a time", params)))

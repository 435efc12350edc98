"""Teach the packaged model an answer: a LoRA adapter on its packed weights (extra: finetune)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import oxibonsai

example = {"prompt": "The name of the dragon is", "completion": " Tom. Tom likes tea."}
params = oxibonsai.SamplingParams(max_tokens=8, temperature=0)

with tempfile.TemporaryDirectory() as folder:
    data, adapter = Path(folder) / "data.jsonl", Path(folder) / "adapter"
    data.write_text(json.dumps(example) + "\n")
    command = [sys.executable, "-m", "oxibonsai", "finetune", "seedling-ternary"]
    options = ["--steps", "12", "--accumulate", "1", "--lr", "0.01"]
    subprocess.run([*command, str(data), str(adapter), *options], check=True, capture_output=True)
    for lora in ([], [adapter]):
        with oxibonsai.load("seedling-ternary", lora=lora) as engine:
            print(example["prompt"] + "".join(engine.generate(example["prompt"], params)))

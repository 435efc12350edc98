"""Make a 1-bit model of a ternary one, which is its teacher (extra: finetune)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import oxibonsai

texts = [
    "Once upon a time, there was a little dog. The dog liked to play in the park.",
    "One day, a girl found a red ball. She was very happy and showed it to her mom.",
]
params = oxibonsai.SamplingParams(max_tokens=30, temperature=0)

with tempfile.TemporaryDirectory() as folder:
    data, out = Path(folder) / "data.jsonl", Path(folder) / "student"
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    command = [sys.executable, "-m", "oxibonsai", "distill", "seedling-ternary"]
    # A real run takes thousands of updates: after four these are no words yet.
    options = ["--type", "q1_0", "--steps", "4"]
    done = subprocess.run(
        [*command, str(data), str(out), *options], check=True, capture_output=True, text=True
    )
    print(done.stdout)
    with oxibonsai.load(out / "student.gguf") as engine:
        print("Once upon a time" + "".join(engine.generate("Once upon a time", params)))

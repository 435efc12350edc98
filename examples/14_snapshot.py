"""Stop in the middle of a text, keep its state in a file, and go on from there in another engine."""

import tempfile
from pathlib import Path

import oxibonsai

prompt = "Once upon a time"
params = oxibonsai.SamplingParams(max_tokens=40, temperature=0.8, seed=3)

with tempfile.TemporaryDirectory() as folder:
    saved = Path(folder) / "story.snapshot"
    with oxibonsai.load("seedling-ternary") as engine:
        whole = "".join(engine.generate(prompt, params))

        sequence = engine.submit(engine.tokenizer.encode(prompt), params)
        for _ in range(15):
            engine.step()
        oxibonsai.save(engine, sequence, saved)

    with oxibonsai.load("seedling-ternary") as another:
        resumed = oxibonsai.restore(another, saved).sequence
        while not resumed.finished:
            another.step()

print(prompt + resumed.text)
assert resumed.text == whole

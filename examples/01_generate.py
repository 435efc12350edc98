"""Stream a text from Python.

The model is the packaged one; `oxibonsai.load` takes a file, a folder, `hf:org/repo:QUANT` or
`pip:package` just as well.
"""

import oxibonsai

with oxibonsai.load("seedling-ternary") as engine:
    params = oxibonsai.SamplingParams(max_tokens=60, temperature=0.7, seed=1)
    prompt = "Once upon a time"
    print(prompt, end="")
    for piece in engine.generate(prompt, params):
        print(piece, end="", flush=True)
    print()

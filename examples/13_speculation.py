"""Let tokens be proposed from what the text has said before: fewer steps, the same text."""

import oxibonsai
from oxibonsai.engine import NgramSpeculator

prompt = 'Tom said, "I like red. I like blue. I like'
params = oxibonsai.SamplingParams(max_tokens=120, temperature=0)


def told(engine: oxibonsai.Engine, options: oxibonsai.Options) -> tuple[str, int]:
    """Return a text and the steps that it took."""
    sequence = engine.submit(engine.tokenizer.encode(prompt), params, options)
    steps = 0
    while not sequence.finished:
        engine.step()
        steps += 1
    return sequence.text, steps


with oxibonsai.load("seedling-1bit") as engine:
    plain, plain_steps = told(engine, oxibonsai.Options())
    text, steps = told(engine, oxibonsai.Options(speculate=NgramSpeculator))

print(prompt + text)
print(f"{steps} steps with proposals, {plain_steps} without")
assert text == plain
assert steps < plain_steps

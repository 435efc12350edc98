"""A seed names a text: the same one with another number of threads, and after another load."""

import oxibonsai

params = oxibonsai.SamplingParams(max_tokens=40, temperature=1.0, seed=7)


def story(threads: int) -> str:
    with oxibonsai.load("seedling-1bit", threads=threads) as engine:
        return "".join(engine.generate("Once upon a time", params))


first, second = story(threads=1), story(threads=2)
print("Once upon a time" + first)
assert first == second

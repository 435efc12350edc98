"""Measure how well the two packaged models predict a text (lower is better)."""

import oxibonsai
from oxibonsai.evaluate import cut_windows, measure_perplexity, text_tokens

text = "Once upon a time, there was a little girl who loved her garden. " * 20

for name in ("seedling-ternary", "seedling-1bit"):
    with oxibonsai.load(name) as engine:
        tokens = text_tokens(engine.tokenizer, text)
        windows = cut_windows(tokens, 128, engine.tokenizer.vocabulary.bos_id)
        result = measure_perplexity(engine, windows)
    print(f"{name}: perplexity {result.ppl.value:.2f} over {result.tokens} tokens")

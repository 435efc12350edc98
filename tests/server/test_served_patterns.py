"""Models whose heads see windows with gaps or strides, served: the tokens are those of torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_app import close_model_app, make_model_app

pytest.importorskip("transformers", reason="needs transformers and torch (extra: test)")
import dense_models as dm
import pattern_models

pytestmark = pytest.mark.hf

NEW_TOKENS = 12
# Longer than a page: a text that goes on finds the pages of the one before it.
PROMPT = [int(i) for i in np.random.default_rng(5).integers(0, 256, 90)]


@pytest.fixture(scope="module", params=["phi3small", "dilated-global"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Any]]:
    """A client of the server, and the model that computes in torch."""
    folder: Path = tmp_path_factory.mktemp("served")
    truth = pattern_models.write(request.param, folder / "model.gguf")
    app = make_model_app(folder / "model.gguf", folder / "state", ctx_size=256, parallel=1)
    yield app.test_client(), truth
    close_model_app(app)


def most_likely(model: Any, ids: list[int], count: int) -> list[int]:
    """What torch finds most likely at each of the last places, each behind the ids before it."""
    found: list[int] = dm.logits(model, ids)[-count - 1 : -1].argmax(axis=-1).tolist()
    return found


def test_an_answer_and_the_text_that_goes_on_from_it(served: tuple[Any, Any]) -> None:
    client, truth = served
    text, cached = PROMPT, []
    for more in ([], [7, 8, 9]):
        text = text + more
        body = {
            "prompt": text, "n_predict": NEW_TOKENS, "temperature": 0, "ignore_eos": True,
            "return_tokens": True,
        }  # fmt: skip
        answer = client.post("/completion", json=body).get_json()
        text = text + answer["tokens"]
        assert len(answer["tokens"]) == NEW_TOKENS
        assert answer["tokens"] == most_likely(truth, text, NEW_TOKENS)
        cached.append(answer["timings"]["cache_n"])
    assert cached[0] == 0
    assert cached[1] >= 64

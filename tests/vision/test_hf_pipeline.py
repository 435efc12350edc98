"""The pipeline image-text-to-text beside that of transformers, on the same random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_pictures import drawn
from PIL import Image
from random_vision import MODELS
from tower_folders import save

from oxibonsai.hf import AutoModelForImageTextToText, AutoProcessor, ImageTextToText, pipeline

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.hf
OPTIONS: dict[str, Any] = {"generate_kwargs": {"max_new_tokens": 7, "do_sample": False}}
PICTURES = [Image.fromarray(np.asarray(drawn(40, 56))), Image.fromarray(np.asarray(drawn(24, 24)))]


@pytest.fixture(scope="module", params=["llava", "idefics3"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model in transformers, and the same one here."""
    files = tmp_path_factory.mktemp("files")
    eyed = MODELS[request.param](files)
    folder: Path = save(eyed, request.param, tmp_path_factory.mktemp("eyed") / "model")
    model = AutoModelForImageTextToText.from_pretrained(folder)
    theirs = eyed.truth.eval()
    # The folder's tokenizer has another one than the random configuration.
    theirs.config.image_token_id = model.image_reader.tower.placeholder
    return theirs, model


def test_pictures_are_told_of_as_in_transformers(both: Any) -> None:
    theirs, model = both
    assert isinstance(model, ImageTextToText)
    processor = AutoProcessor.from_pretrained(model)
    ours = pipeline("image-text-to-text", model=model)
    truth = transformers.pipeline(
        "image-text-to-text", model=theirs, processor=processor, tokenizer=processor.tokenizer
    )
    text = f"Hello{processor.image_token} world"
    # As ids, since the models have rows for more tokens than their tokenizers know.
    found, wanted = (
        [p(images=i, text=text, return_tensors=True, **OPTIONS) for i in PICTURES]
        for p in (ours, truth)
    )
    ids = [[one["generated_token_ids"].tolist() for (one,) in own] for own in (found, wanted)]
    assert ids[0] == ids[1]
    assert ids[1][0][-7:] != ids[1][1][-7:]  # what is in the picture counts


def test_a_conversation_with_a_picture_is_continued(both: Any) -> None:
    theirs, model = both
    processor = AutoProcessor.from_pretrained(model)
    processor.tokenizer.chat_template = (
        "{% for m in messages %}{% for p in m['content'] %}"
        "{% if p['type'] == 'image' %}" + processor.image_token + "{% else %}{{ p['text'] }}"
        "{% endif %}{% endfor %}{% endfor %}"
    )
    parts = [{"type": "image", "image": PICTURES[0]}, {"type": "text", "text": " a test"}]
    messages = [{"role": "user", "content": parts}]
    made = [
        pipeline("image-text-to-text", model=model, processor=processor),
        transformers.pipeline(
            "image-text-to-text", model=theirs, processor=processor, tokenizer=processor.tokenizer
        ),
    ]
    found, wanted = (p(text=messages, return_tensors=True, **OPTIONS)[0] for p in made)
    assert found["generated_token_ids"].tolist() == wanted["generated_token_ids"].tolist()
    new = wanted["generated_token_ids"][-7:].tolist()
    if max(new) < processor.tokenizer.vocab_size:
        (answer,) = made[0](text=messages, return_full_text=False, **OPTIONS)
        assert answer["generated_text"] == processor.decode(new, skip_special_tokens=True)

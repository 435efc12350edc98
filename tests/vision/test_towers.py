"""Towers and conversations against transformers, and the same bytes however they run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
import torch
from random_vision import IMAGE_TOKEN, MODELS, Eyed

import oxibonsai
from oxibonsai import RequestError, SamplingParams, _core
from oxibonsai.engine import Engine, Options
from oxibonsai.vision import ImageEmbedding, PixelGrid, PlacedImage, Tower, place

pytestmark = pytest.mark.hf
Floats = npt.NDArray[np.float32]
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


def picture(rows: int, cols: int, height: int, width: int, seed: int = 0) -> PixelGrid:
    """Tiles in rows and columns, and one of the whole picture where there are several."""
    random = np.random.default_rng((height, width, seed))
    tiles = rows * cols + (rows * cols > 1)
    pixels = random.standard_normal((tiles, 3, height, width), dtype=np.float32)
    # Not quite of the tiles' ratio, so that some patches show nothing but padding.
    wide = cols > rows
    size = rows * height * 3 - (0 if wide else 18), cols * width * 3 - (18 if wide else 0)
    return PixelGrid(pixels, (rows, cols), size)


# Of each family: pictures that it reads, as rows and columns of tiles and their sides.
_ANY_SIZE = [(1, 1, 8, 8), (1, 1, 40, 8), (1, 1, 16, 56), (1, 1, 24, 16)]
SIDES = {
    "qwen2vl": _ANY_SIZE,
    "qwen2.5vl": _ANY_SIZE,
    "qwen3vl": _ANY_SIZE,
    "qwen3vlmoe": _ANY_SIZE,
    "qwen35": _ANY_SIZE,
    "qwen35moe": _ANY_SIZE,
    "gemma3": [(1, 1, 48, 48)],
    "mistral3": _ANY_SIZE[1:],  # of a picture of one row, transformers loses a dimension
    "llava": [(1, 1, 24, 24)],
    "llava 1.6": [(2, 1, 24, 24), (1, 2, 24, 24), (3, 1, 24, 24)],
    "internvl": [(1, 1, 24, 24), (2, 1, 24, 24), (1, 3, 24, 24)],
    "internvl 6B": [(1, 1, 24, 24), (2, 1, 24, 24), (1, 3, 24, 24)],
    "idefics3": [(1, 1, 24, 24), (2, 1, 24, 24), (1, 3, 24, 24)],
    "glm4v": _ANY_SIZE,
    "glm4v moe": _ANY_SIZE,
    "llama4": [(1, 1, 24, 24), (2, 1, 24, 24), (2, 3, 24, 24)],
}


@dataclass
class Case:
    name: str
    eyed: Eyed
    engine: Engine
    tower: Tower


SLOW = {
    "glm4v moe",
    "idefics3",
    "internvl",
    "internvl 6B",
    "llava",
    "qwen2vl",
    "qwen35moe",
    "qwen3vlmoe",
}
FAMILIES = [pytest.param(m, marks=[pytest.mark.slow] * (m in SLOW)) for m in sorted(MODELS)]


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    eyed = MODELS[request.param](tmp_path_factory.mktemp(request.param))
    engine = oxibonsai.load(eyed.text, kv_type="f32", threads=2, ctx_size=512)
    return Case(request.param, eyed, engine, open_tower(eyed, engine.model.device))


def open_tower(eyed: Eyed, device: Any) -> Tower:
    return Tower.open(eyed.tower, device, lambda text: IMAGE_TOKEN)


def rows_of(parts: list[str | ImageEmbedding]) -> Floats:
    return np.concatenate([p.rows for p in parts if isinstance(p, ImageEmbedding)])


def patches_as_transformers(pixels: PixelGrid, size: int, merge: int) -> torch.Tensor:
    """What Qwen's processor gives: patches in squares, two frames each."""
    x = pixels.pixels[0]
    _, height, width = x.shape
    rows, cols = height // size // merge, width // size // merge
    x = x.reshape(3, rows, merge, size, cols, merge, size).transpose(1, 4, 2, 5, 0, 3, 6)
    x = x.reshape(-1, 3, 1, size, size).repeat(2, axis=2)
    return torch.from_numpy(np.ascontiguousarray(x).reshape(len(x), -1))


def truth_inputs(case: Case, pictures: list[PixelGrid]) -> dict[str, torch.Tensor]:
    if case.name == "idefics3":
        most = max(len(p.pixels) for p in pictures)
        pixels = np.zeros((1, len(pictures) * most, *pictures[0].pixels.shape[1:]), np.float32)
        tiles = np.concatenate([p.pixels for p in pictures])
        pixels[0, : len(tiles)] = tiles  # those that are zero are left aside
        return {"pixel_values": torch.from_numpy(pixels)}
    if case.name == "mistral3":
        sides = [p.pixels.shape[2:] for p in pictures]
        most = max(h for h, _ in sides), max(w for _, w in sides)
        pixels = np.zeros((len(pictures), 3, *most), np.float32)
        for padded, p, (height, width) in zip(pixels, pictures, sides, strict=True):
            padded[:, :height, :width] = p.pixels[0]
        return {"pixel_values": torch.from_numpy(pixels), "image_sizes": torch.tensor(sides)}
    if case.name == "llava 1.6":
        most = max(len(p.pixels) for p in pictures)
        shape = len(pictures), most, *pictures[0].pixels.shape[1:]
        pixels = np.zeros(shape, np.float32)
        for padded, p in zip(pixels, pictures, strict=True):
            padded[: len(p.pixels)] = p.pixels
        sizes = torch.tensor([p.original_size for p in pictures])
        return {"pixel_values": torch.from_numpy(pixels), "image_sizes": sizes}
    if case.name in ("gemma3", "internvl", "internvl 6B", "llama4", "llava"):
        return {"pixel_values": torch.from_numpy(np.concatenate([p.pixels for p in pictures]))}
    size = case.eyed.truth.config.vision_config.patch_size
    grids = [[1, p.pixels.shape[2] // size, p.pixels.shape[3] // size] for p in pictures]
    patches = [patches_as_transformers(p, size, 2) for p in pictures]
    return {"pixel_values": torch.cat(patches), "image_grid_thw": torch.tensor(grids)}


def true_rows(case: Case, pixels: PixelGrid) -> Floats:
    if case.name == "llama4":  # whose features are those before the projector
        truth = case.eyed.truth
        with torch.no_grad():
            features = truth.vision_model(**truth_inputs(case, [pixels]), return_dict=True)
            rows = truth.multi_modal_projector(features.last_hidden_state)
        return rows.reshape(-1, rows.shape[-1]).numpy()
    model, inputs = case.eyed.truth.model, truth_inputs(case, [pixels])
    if case.name.startswith("glm"):  # in float32 it is as far from its own result as we may be
        model = copy.deepcopy(model).double()
        inputs["pixel_values"] = inputs["pixel_values"].double()
    with torch.no_grad():
        found = model.get_image_features(**inputs, return_dict=True)
    deep = getattr(found, "deepstack_features", None) or []
    parts = [torch.cat(list(p)) if isinstance(p, tuple | list) else p for p in deep]
    parts = [torch.cat(list(found.pooler_output)), *parts]
    return torch.cat(parts, dim=-1).numpy()


def distance(got: npt.NDArray[Any], want: npt.NDArray[Any]) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def test_rows_are_those_of_transformers(case: Case) -> None:
    for sides in SIDES[case.name]:
        pixels = picture(*sides)
        rows = rows_of(case.tower.encode(pixels))
        assert len(rows) == case.tower.count_rows(pixels)
        laid_out = [p if isinstance(p, str) else len(p) for p in case.tower.encode(pixels)]
        assert laid_out == case.tower.layout(pixels)
        want = true_rows(case, pixels)
        assert rows.shape == want.shape
        assert distance(rows, want) < 2e-6


@dataclass(frozen=True)
class Prompt:
    ids: list[int]
    images: tuple[PlacedImage, ...]
    pictures: list[PixelGrid]


def conversation(case: Case, seed: int = 0) -> Prompt:
    """Two pictures between texts, longer than two pages."""
    random = np.random.default_rng(seed)
    pictures = [picture(*SIDES[case.name][i % len(SIDES[case.name])], seed=i) for i in (1, 2)]
    texts = [random.integers(11, 131, n).tolist() for n in (30, 3, 80)]
    parts: list[list[int] | ImageEmbedding] = [texts[0]]
    for pixels, text in zip(pictures, texts[1:], strict=True):
        parts += [p for p in case.tower.encode(pixels) if isinstance(p, ImageEmbedding)]
        parts.append(text)
    ids, images = place(parts, IMAGE_TOKEN)
    return Prompt(ids, images, pictures)


def true_logits(case: Case, prompt: Prompt) -> Floats:
    ids = torch.tensor([prompt.ids])
    kinds = (ids == IMAGE_TOKEN).int()
    named: dict[str, Any] = {}
    if case.name.startswith(("gemma", "glm", "qwen")):
        named["token_type_ids" if case.name == "gemma3" else "mm_token_type_ids"] = kinds
    with torch.no_grad():
        truth = case.eyed.truth(
            input_ids=ids, **named, **truth_inputs(case, prompt.pictures), use_cache=False
        )
    return truth.logits[0].numpy()


def test_a_conversation_has_the_logits_of_transformers(case: Case) -> None:
    prompt = conversation(case)
    got = case.engine.logits(prompt.ids, images=prompt.images)
    assert distance(got, true_logits(case, prompt)) < 1e-5


def test_pictures_change_the_answer(case: Case) -> None:
    """Else the other tests would compare texts."""
    prompt = conversation(case)
    with_pictures = case.engine.logits(prompt.ids, images=prompt.images)
    assert distance(case.engine.logits(prompt.ids), with_pictures) > 0.1


def test_every_tier_and_number_of_threads_gives_the_same_rows(case: Case) -> None:
    pixels = picture(*SIDES[case.name][-1])
    truth = rows_of(case.tower.encode(pixels)).tobytes()
    for tier in _core.cpu.tiers():
        for threads in (1, 3):
            tower = open_tower(case.eyed, _core.CpuDevice(threads, tier))
            assert rows_of(tower.encode(pixels)).tobytes() == truth


def test_every_tier_gives_the_same_logits(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = conversation(case)
    truth = case.engine.logits(prompt.ids, images=prompt.images).tobytes()
    for tier in _core.cpu.tiers():
        monkeypatch.setenv("OXIBONSAI_ISA", tier)
        engine = oxibonsai.load(
            case.eyed.text, kv_type="f32", threads=1, ctx_size=512, parity="off"
        )
        assert engine.logits(prompt.ids, images=prompt.images).tobytes() == truth


def test_chunks_and_other_texts_change_no_byte(case: Case) -> None:
    first, second = conversation(case), conversation(case, seed=1)
    texts = [first.ids, second.ids[::-1], second.ids]
    images = [first.images, (), second.images]
    truth = [case.engine.logits(t, images=i).tobytes() for t, i in zip(texts, images, strict=True)]
    for size in (1, 7, 64):
        beside = case.engine.logits_batch(texts, size, images)
        assert [rows.tobytes() for rows in beside] == truth


def generated(engine: Engine, prompt: Prompt) -> list[int]:
    options = Options(images=prompt.images)
    return list(engine.generate_tokens(prompt.ids, GREEDY, options))


def greedy_truth(case: Case, prompt: Prompt) -> list[int]:
    """Greedy tokens, each from a pass of its own over the whole text."""
    ids = list(prompt.ids)
    while len(ids) < len(prompt.ids) + GREEDY.max_tokens:
        ids.append(int(case.engine.logits(ids, images=prompt.images)[-1].argmax()))
    return ids[len(prompt.ids) :]


def test_an_answer_goes_on_behind_the_pictures(case: Case) -> None:
    prompt = conversation(case)
    assert generated(case.engine, prompt) == greedy_truth(case, prompt)


def test_a_second_question_about_a_picture_is_found_in_the_cache(case: Case) -> None:
    engine = oxibonsai.load(case.eyed.text, kv_type="f32", threads=2, ctx_size=512, parity="off")
    prompt = conversation(case)
    border = (len(prompt.ids) - 1) // _core.PAGE_POSITIONS * _core.PAGE_POSITIONS
    assert border > prompt.images[-1].first
    asked = prompt.ids[:border] + [99] * (len(prompt.ids) - border)
    question = Prompt(asked, prompt.images, prompt.pictures)
    cold = oxibonsai.load(
        case.eyed.text, kv_type="f32", threads=2, ctx_size=512, parity="off", prefix_cache=False
    )
    truth = generated(cold, question)
    generated(engine, prompt)
    sequence = engine.submit(question.ids, GREEDY, Options(images=question.images))
    assert list(engine.follow_tokens(sequence)) == truth
    assert sequence.num_cached == border


def test_another_picture_is_not_taken_for_the_cached_one(case: Case) -> None:
    engine = oxibonsai.load(case.eyed.text, kv_type="f32", threads=2, ctx_size=512, parity="off")
    prompt = conversation(case)
    generated(engine, prompt)
    other = picture(*SIDES[case.name][1 % len(SIDES[case.name])], seed=9)
    embedding = next(p for p in case.tower.encode(other) if isinstance(p, ImageEmbedding))
    changed = (PlacedImage(prompt.images[0].first, embedding), *prompt.images[1:])
    sequence = engine.submit(prompt.ids, GREEDY, Options(images=changed))
    list(engine.follow_tokens(sequence))
    assert sequence.num_cached == 0
    # The ids are the same without any picture, too.
    sequence = engine.submit(prompt.ids, GREEDY)
    list(engine.follow_tokens(sequence))
    assert sequence.num_cached == 0


def test_answers_beside_each_other_are_those_alone(case: Case) -> None:
    """With little room, so that sequences give way and come back."""
    engine = oxibonsai.load(
        case.eyed.text, kv_type="f32", threads=2, ctx_size=448, parallel=2, parity="off"
    )
    prompts = [conversation(case, seed) for seed in range(5)]
    sequences = [engine.submit(p.ids, GREEDY, Options(images=p.images)) for p in prompts]
    answers = [list(engine.follow_tokens(s)) for s in sequences]
    assert answers == [generated(case.engine, p) for p in prompts]


def test_an_encoded_picture_is_kept(case: Case) -> None:
    pixels = picture(*SIDES[case.name][0])
    first, again = (rows_of(case.tower.encode(pixels)) for _ in range(2))
    assert again.tobytes() == first.tobytes()
    kept, same = case.tower.encode(pixels), case.tower.encode(pixels)
    assert all(a is b for a, b in zip(kept, same, strict=True) if isinstance(a, ImageEmbedding))


def wrong_width(prompt: Prompt) -> tuple[PlacedImage, ...]:
    first = prompt.images[0]
    e = first.embedding
    return (PlacedImage(first.first, ImageEmbedding(e.rows[:, 1:], e.digest, e.grid)),)


def outside(prompt: Prompt) -> tuple[PlacedImage, ...]:
    return (PlacedImage(len(prompt.ids), prompt.images[0].embedding),)


def overlapping(prompt: Prompt) -> tuple[PlacedImage, ...]:
    return prompt.images[0], prompt.images[0]


@pytest.mark.parametrize("change", [wrong_width, outside, overlapping])
def test_pictures_that_do_not_fit_are_refused(
    case: Case, change: Callable[[Prompt], tuple[PlacedImage, ...]]
) -> None:
    prompt = conversation(case)
    with pytest.raises(RequestError, match="picture"):
        case.engine.submit(prompt.ids, GREEDY, Options(images=change(prompt)))


def test_pixels_of_another_size_are_refused(case: Case) -> None:
    with pytest.raises(RequestError, match="this tower reads"):
        case.tower.count_rows(picture(1, 1, 9, 9))


def test_a_tower_of_another_model_is_refused(case: Case) -> None:
    with pytest.raises(RequestError, match="another model"):
        Tower.open(case.eyed.tower, _core.CpuDevice(1), lambda text: None)


def test_the_text_file_is_no_tower(case: Case, tmp_path: Path) -> None:
    with pytest.raises(oxibonsai.FormatError, match="is no vision tower"):
        Tower.open(case.eyed.text, _core.CpuDevice(1), lambda text: 1)

"""Pictures of Bonsai 2 beside transformers' Qwen3.5: rows, ids of prompts, positions, logits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
pytest.importorskip("gguf", reason="gguf (extra `bench` or `test`) is not installed")
import bonsai2_models
import torch
from bonsai2_vision import (
    LAYERS,
    SMALL,
    WIDTHS,
    add_tokens,
    make_processor,
    make_tower,
    tower_parameters,
    vision_config,
    write_mmproj,
    write_model,
    write_processor,
)
from click.testing import CliRunner
from odd_pictures import drawn
from PIL import Image
from tower_folders import summary

import make_random_bonsai as maker
import oxibonsai
from oxibonsai import SamplingParams, UnsupportedError, _core
from oxibonsai.chat import ChatRequest, PreparedPrompt, prepare
from oxibonsai.cli.convert import convert
from oxibonsai.convert.vision_tower import convert_tower
from oxibonsai.engine import Engine
from oxibonsai.vision import ImageEmbedding, PixelGrid, Tower

pytestmark = pytest.mark.hf
PATCH, MERGE = 16, 2


def pixels_of(height: int, width: int) -> PixelGrid:
    random = np.random.default_rng((height, width))
    return PixelGrid(random.standard_normal((1, 3, height, width), dtype=np.float32))


def true_rows(tower: Any, pixels: PixelGrid) -> Any:
    x = pixels.pixels[0]
    _, height, width = x.shape
    rows, cols = height // PATCH // MERGE, width // PATCH // MERGE
    x = x.reshape(3, rows, MERGE, PATCH, cols, MERGE, PATCH).transpose(1, 4, 2, 5, 0, 3, 6)
    x = x.reshape(-1, 3, 1, PATCH, PATCH).repeat(2, axis=2)  # a picture is two frames alike
    patches = torch.from_numpy(np.ascontiguousarray(x).reshape(len(x), -1))
    grid = torch.tensor([[1, height // PATCH, width // PATCH]])
    with torch.no_grad():
        return tower(patches, grid_thw=grid, return_dict=True).pooler_output.numpy()


def own_rows(path: Path, pixels: PixelGrid) -> Any:
    (embedding,) = Tower.open(path, _core.CpuDevice(2), lambda text: 1).encode(pixels)
    assert isinstance(embedding, ImageEmbedding)
    assert embedding.grid == (1, *(s // PATCH // MERGE for s in pixels.pixels.shape[2:]))
    return embedding.rows


def distance(found: Any, truth: Any) -> float:
    assert found.shape == truth.shape
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


@pytest.mark.parametrize("size", WIDTHS)
def test_rows_of_the_published_width_are_those_of_transformers(size: str, tmp_path: Path) -> None:
    tower = make_tower(WIDTHS[size], layers=1)
    path = write_mmproj(tower, tmp_path / "tower")
    for sides in ((64, 96), (32, 256)):
        pixels = pixels_of(*sides)
        assert distance(own_rows(path, pixels), true_rows(tower, pixels)) < 1e-5


@pytest.mark.release
@pytest.mark.long("computes the whole tower in torch")
def test_rows_of_the_whole_tower_are_those_of_transformers(tmp_path: Path) -> None:
    """A picture smaller and one larger than the grid of learned positions, which are resampled."""
    tower = make_tower(WIDTHS["27B"], LAYERS)
    path = write_mmproj(tower, tmp_path / "tower")
    for sides in ((96, 160), (32, 1024)):
        pixels = pixels_of(*sides)
        assert distance(own_rows(path, pixels), true_rows(tower, pixels)) < 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bonsai2") / "model"


@pytest.fixture(scope="module")
def truth(folder: Path) -> Any:
    return write_model(folder)


@pytest.fixture(scope="module")
def processor(truth: Any, folder: Path) -> Any:
    return make_processor(folder)


@pytest.fixture(scope="module")
def engine(truth: Any, folder: Path) -> Engine:
    return oxibonsai.load(folder, kv_type="f32", threads=2, ctx_size=1024, parity="off")


Message = dict[str, Any]


def says(role: str, *parts: str | tuple[int, int]) -> Message:
    """A message of texts and of pictures, each by its height and width."""
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
        else:
            image = Image.fromarray(drawn(*part, seed=len(content)))
            content.append({"type": "image", "image": image})
    return {"role": role, "content": content}


CONVERSATIONS: dict[str, list[Message]] = {
    "one": [says("user", (90, 140), "What is this?")],
    "one behind a text": [says("user", "Hello, world:", (100, 100))],
    "two": [says("user", (64, 64), (200, 60), "Hello, and these?")],
    "two alike around a text": [says("user", (64, 96), " and ", (64, 96))],
    "long ones": [says("user", (20, 900), "wide, and", (1500, 10), "high")],
    "of a pixel": [says("user", (1, 1), (3, 200))],
    "turns": [
        says("system", "You see."),
        says("user", (50, 300), (300, 50), "Which one is wide?"),
        says("assistant", "The first one."),
        says("user", "And", (7, 1000), "this?", (333, 77)),
        says("assistant", "He"),
        says("user", "llo"),
    ],
}


def peer(processor: Any, messages: Sequence[Message], **variables: Any) -> dict[str, Any]:
    """What transformers' processor makes of a conversation."""
    made: dict[str, Any] = processor.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True,
        return_tensors="pt", **variables,
    )  # fmt: skip
    return made


def own(engine: Engine, messages: list[Message], **variables: Any) -> PreparedPrompt:
    return prepare(engine, ChatRequest(messages, template_options=variables))


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("counted", [False, True], ids=["", "numbered"])
def test_ids_positions_and_logits_are_those_of_transformers(
    name: str, counted: bool, engine: Engine, processor: Any, truth: Any
) -> None:
    messages = CONVERSATIONS[name]
    inputs = peer(processor, messages, add_vision_id=counted)
    made = own(engine, messages, add_vision_id=counted)
    assert made.ids == inputs["input_ids"][0].tolist()
    images = engine.prompt_images(made.ids, made.options.images)
    assert images is not None
    grids = [i.embedding.grid for i in images.placed]
    merged = [(t, h // MERGE, w // MERGE) for t, h, w in inputs["image_grid_thw"].tolist()]
    assert grids == merged
    positions, _ = truth.model.get_rope_index(
        inputs["input_ids"],
        mm_token_type_ids=inputs["mm_token_type_ids"],
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
    )
    assert images.row_positions(0, len(made.ids)).tolist() == positions[:, 0].T.tolist()
    with torch.no_grad():
        logits = truth(**inputs, use_cache=False).logits[0].numpy()
    found = engine.logits(made.ids, images=made.options.images)
    assert distance(found, logits) < 1e-4
    assert (found.argmax(axis=1) == logits.argmax(axis=1)).mean() > 0.99


@pytest.fixture
def bonsai(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bonsai2_models.Bonsai2:
    """A rotated model of two layers, one of each kind."""
    monkeypatch.setattr(maker, "INTERVAL", 2)
    monkeypatch.setattr(maker, "HYBRID_ROWS", bonsai2_models.ROWS)
    monkeypatch.setattr(maker, "STATE", 8)
    size = maker.Size(2, 256, 512, 2, 1, True, head_dim=256, value_heads=32, block=256)
    monkeypatch.setitem(maker.BONSAI2, "small", size)
    return bonsai2_models.make(tmp_path, "small")


def write_pack(bonsai: bonsai2_models.Bonsai2, tower: Any, folder: Path) -> Path:
    """An MLX pack that sees."""
    parameters = {n: p.numpy() for n, p in tower_parameters(tower, "mlx").items()}
    vision = vision_config(tower)
    bonsai2_models.write_pack(bonsai, folder, parameters, vision_config=vision)
    add_tokens(folder)
    write_processor(folder)
    return folder


def test_the_tower_of_an_mlx_pack_is_that_of_other_folders(
    bonsai: bonsai2_models.Bonsai2, tmp_path: Path
) -> None:
    tower = make_tower(256, 2, **SMALL)
    wanted = write_mmproj(tower, tmp_path / "hub", dtype="auto")
    pack = write_pack(bonsai, tower, tmp_path / "pack")
    done = CliRunner().invoke(convert, [str(pack), "--mmproj", str(tmp_path / "mmproj.gguf")])
    assert done.exit_code == 0, done.output
    found = summary(tmp_path / "mmproj.gguf")
    assert found["keys"] == summary(wanted)["keys"]
    assert found["tensors"] == summary(wanted)["tensors"]
    kinds = {t.split()[0] for n, t in found["tensors"].items() if "attn_qkv.weight" in n}
    assert kinds == {"F16"}  # as packs have it
    done = CliRunner().invoke(convert, [str(pack), str(tmp_path / "text.gguf")])
    assert "--mmproj writes it" in done.output


def test_an_mlx_pack_sees_with_the_bytes_of_its_files(
    bonsai: bonsai2_models.Bonsai2, tmp_path: Path
) -> None:
    tower = make_tower(256, 2, **SMALL)
    pack = write_pack(bonsai, tower, tmp_path / "pack")
    engine = oxibonsai.load(pack, threads=1, ctx_size=256, parity="off")
    assert engine.image_reader is not None
    pixels = pixels_of(64, 96)
    (found,) = engine.image_reader.tower.encode(pixels)
    assert isinstance(found, ImageEmbedding)
    assert found.rows.tobytes() == own_rows(write_mmproj(tower, tmp_path / "hub"), pixels).tobytes()
    assert distance(found.rows, true_rows(tower, pixels)) < 1e-5
    messages = [says("user", (64, 96), "Hello")]
    reply = engine.chat(messages, SamplingParams(temperature=0, max_tokens=4))
    list(reply)
    assert len(reply.sequence.options.images) == 1


def test_an_mlx_pack_without_a_tower_reads_texts(
    bonsai: bonsai2_models.Bonsai2, tmp_path: Path
) -> None:
    config = vision_config(make_tower(256, 1, **SMALL))
    pack = bonsai2_models.write_pack(bonsai, tmp_path / "pack", vision_config=config)
    add_tokens(pack)
    write_processor(pack)
    assert oxibonsai.load(pack, threads=1, ctx_size=64, parity="off").image_reader is None
    with pytest.raises(UnsupportedError, match="no vision tower"):
        convert_tower(pack, tmp_path / "mmproj.gguf")

"""Towers of folders: the bytes of the mmproj file that is made of one, which is llama.cpp's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
import gguf
from click.testing import CliRunner
from odd_pictures import drawn
from random_vision import MODELS, Eyed
from test_towers import FAMILIES, SIDES, Case, conversation, open_tower, picture, rows_of
from tower_folders import recorded, rename, save, summary

import oxibonsai
from oxibonsai import (
    AutoModelForImageTextToText,
    AutoProcessor,
    FormatError,
    RequestError,
    UnsupportedError,
)
from oxibonsai.cli.convert import convert as command
from oxibonsai.convert.language_model import convert
from oxibonsai.convert.vision_tower import TOWERS, convert_tower
from oxibonsai.engine import Engine
from oxibonsai.vision import ImageEmbedding, PlacedImage
from oxibonsai.vision.image_input import read_image

pytestmark = [pytest.mark.hf, pytest.mark.slow]


@pytest.fixture(scope="module", params=FAMILIES)
def named(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def eyed(named: str, tmp_path_factory: pytest.TempPathFactory) -> Eyed:
    return MODELS[named](tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def folder(named: str, eyed: Eyed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(eyed, named, tmp_path_factory.mktemp(named) / "model")


def load(path: Path, **options: Any) -> Engine:
    return oxibonsai.load(path, kv_type="f32", threads=2, ctx_size=512, parity="off", **options)


def test_files_are_those_of_llama_cpp(named: str, folder: Path, tmp_path: Path) -> None:
    if named not in recorded():
        pytest.skip("llama.cpp's converter does not know this tower")
    convert_tower(folder, tmp_path / "mmproj.gguf", dtype="f16")
    found, wanted = summary(tmp_path / "mmproj.gguf"), recorded()[named]
    if (
        named == "qwen2.5vl"
    ):  # other windows than the published models', which llama.cpp does not write
        assert found["keys"].pop("clip.vision.window_size") == 16
    if named == "mistral3":  # of hub's names, llama.cpp misses the token that its own files have
        assert found["tensors"].pop("v.token_embd.img_break")
    if named == "llama4":  # a bound of its processor, and a norm by the name that mtmd reads
        assert found["keys"].pop("clip.vision.preproc_max_tiles") == 6
        tensors = wanted["tensors"].items()
        wanted["tensors"] = {k.replace("attn_post_norm", "ln2"): v for k, v in tensors}
    assert found["keys"] == wanted["keys"]
    assert found["tensors"] == wanted["tensors"]


def test_a_folder_sees_with_the_bytes_of_its_files(
    named: str, eyed: Eyed, folder: Path, tmp_path: Path
) -> None:
    """Also of the language model, which is put together from other names than those of texts alone."""
    whole = load(folder)
    assert whole.image_reader is not None
    reference = load(eyed.text, mmproj=False)
    case = Case(named, eyed, reference, open_tower(eyed, reference.model.device))
    prompt = conversation(case)
    wanted = reference.logits(prompt.ids, images=prompt.images)
    assert whole.logits(prompt.ids, images=prompt.images).tobytes() == wanted.tobytes()
    pixels = picture(*SIDES[named][0])
    rows = rows_of(whole.image_reader.tower.encode(pixels))
    assert rows.tobytes() == rows_of(case.tower.encode(pixels)).tobytes()


@pytest.mark.parametrize("family", ["idefics3", "internvl", "llama4"])
def test_a_processor_of_tiles_gives_what_the_model_reads(family: str, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    place = save(MODELS[family](tmp_path / "files"), family, tmp_path / "model")
    model = AutoModelForImageTextToText.from_pretrained(place)
    processor = AutoProcessor.from_pretrained(model)
    pictures = [drawn(40, 90), drawn(24, 24)]
    token = processor.image_token
    inputs = processor(
        text=[f"Hello{token}rl", f"{token} w"],
        images=[pictures[:1], pictures[1:]],
        padding=True,
        return_tensors="np",
    )
    logits = model(**inputs).logits
    for i, image in enumerate(pictures):
        ids = inputs["input_ids"][i][inputs["attention_mask"][i] == 1].tolist()
        parts = processor.image_reader.read(read_image(image))
        rows = [p for p in parts if isinstance(p, ImageEmbedding)]
        at = [n for n, t in enumerate(ids) if t == processor.image_reader.tower.placeholder]
        assert len(at) == sum(map(len, rows))
        placed, taken = [], 0
        for embedding in rows:
            placed.append(PlacedImage(at[taken], embedding))
            taken += len(embedding)
        wanted = model.engine.logits(ids, images=tuple(placed))
        assert logits[i][inputs["attention_mask"][i] == 1].tobytes() == wanted.tobytes()


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gemma3")
    (place / "files").mkdir()
    return save(MODELS["gemma3"](place / "files"), "gemma3", place / "model")


def test_the_command_writes_the_tower_or_says_that_it_is_left_out(
    gemma: Path, tmp_path: Path
) -> None:
    convert_tower(gemma, tmp_path / "wanted.gguf")
    tower, text = str(tmp_path / "mmproj.gguf"), str(tmp_path / "text.gguf")
    found = CliRunner().invoke(command, [str(gemma), "--mmproj", tower])
    assert found.exit_code == 0, found.output
    assert "left out" not in found.output
    assert summary(Path(tower)) == summary(tmp_path / "wanted.gguf")
    found = CliRunner().invoke(command, [str(gemma), text])
    assert "--mmproj writes it" in found.output
    assert load(Path(text), mmproj=tower).image_reader is not None
    assert load(Path(text), mmproj=gemma).image_reader is not None  # the folder itself
    assert load(gemma, mmproj=False).image_reader is None


def test_types_round_matrices_alone(gemma: Path, tmp_path: Path) -> None:
    convert_tower(gemma, tmp_path / "mmproj.gguf", dtype="q8_0")
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(tmp_path / "mmproj.gguf").tensors}
    assert kinds["v.blk.0.attn_q.weight"] == "Q8_0"
    kept = (
        "v.patch_embd.weight",
        "v.position_embd.weight",
        "v.post_ln.weight",
        "v.blk.0.ffn_up.bias",
    )
    assert {kinds[name] for name in kept} == {"F32"}


def _without(path: Path, name: str) -> None:
    config = json.loads(path.read_text())
    del config[name]
    path.write_text(json.dumps(config))


def _no_processor(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()


def _no_tower(folder: Path) -> None:
    _without(folder / "config.json", "vision_config")


def _no_mean(folder: Path) -> None:
    _without(folder / "preprocessor_config.json", "image_mean")


def _other_names(folder: Path) -> None:
    old = "vision_tower.encoder.layers.0.mlp.fc1"
    rename(folder, old, old.replace("fc1", "fc9"))


def _other_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["intermediate_size"] += 1
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (_no_processor, FormatError, "has no preprocessor_config.json"),
        (_no_tower, UnsupportedError, "no vision tower"),
        (_no_mean, FormatError, "image_mean is None"),
        (_other_names, UnsupportedError, "fc9.* none of Gemma 3's"),
        (_other_shape, FormatError, "config.json asks for"),
    ],
)
def test_a_folder_that_is_no_model_that_sees_is_refused(
    gemma: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    error: type[Exception],
    message: str,
) -> None:
    copy = tmp_path / "model"
    copy.mkdir()
    for file in gemma.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    change(copy)
    with pytest.raises(error, match=message):
        convert_tower(copy, tmp_path / "mmproj.gguf")
    assert not (tmp_path / "mmproj.gguf").exists()


def test_an_adapter_has_no_tower(gemma: Path, tmp_path: Path) -> None:
    arguments = [str(gemma), str(tmp_path / "o.gguf"), "--mmproj", "--base", "x"]
    with pytest.raises(RequestError, match="leave one out"):
        CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_every_tower_has_a_language_model(tmp_path: Path) -> None:
    """Else a folder could be opened in halves only."""
    for kind in TOWERS:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, "text_config": {}}))
        with pytest.raises((FormatError, UnsupportedError)) as e:
            convert(tmp_path, tmp_path / "o.gguf")
        assert "convert knows apertus" not in str(e.value) or "part for texts" in str(e.value)

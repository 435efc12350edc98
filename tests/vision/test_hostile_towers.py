"""Files of towers that differ from a valid one in one lie: each is refused by a typed error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("torch", reason="needs transformers and torch")
pytest.importorskip("transformers", reason="needs transformers and torch")
from random_vision import IMAGE_TOKEN, MODELS, write_gguf

from oxibonsai import _core
from oxibonsai.errors import FormatError, OxiBonsaiError, RequestError, UnsupportedError
from oxibonsai.vision import Tower

pytestmark = pytest.mark.hf
FAST = ["gemma3", "llava 1.6"]
TWINS = ["glm4v moe"]  # whose tower is that of another
FAMILIES = [
    *FAST,
    *(pytest.param(m, marks=pytest.mark.slow) for m in sorted({*MODELS} - {*FAST, *TWINS})),
]
Tensors = dict[str, npt.NDArray[np.float32]]
# In place of a number, a list or a text.
LIES: list[Any] = [0, 1, 3, 2**31, 2**32 - 1, 0.0, float("nan"), float("inf"), -1.5, "", "x", [0]]
LIES += [[2**30] * 3, [0.0, 0.0, 0.0], ["x"], True, False]


def contents(path: Path) -> tuple[dict[str, Any], Tensors]:
    """Keys without their architecture, and tensors."""
    file = _core.GgufFile(str(path))
    keys = {}
    for key in file.keys():  # noqa: SIM118 - not a dict
        value = file.get(key)
        if key.startswith("clip."):
            listed = value.tolist() if isinstance(value, np.ndarray) else value
            keys[key.removeprefix("clip.")] = listed
    tensors = {}
    for t in file.tensors:
        values = _core.decode(t.quant_type, file.tensor_bytes(t.name)).reshape(t.shape)
        tensors[t.name] = np.asarray(values, np.float32)
    return keys, tensors


def wrong_keys(keys: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in keys.items():
        yield {k: v for k, v in keys.items() if k != name}
        for lie in LIES:
            if repr(lie) != repr(value):
                yield {**keys, name: lie}


def wrong_tensors(tensors: Tensors) -> Iterator[Tensors]:
    for name, values in tensors.items():
        yield {k: v for k, v in tensors.items() if k != name}
        yield {**tensors, name: values[..., :-1]}
        yield {**tensors, name: np.concatenate([values, values])}
        if values.ndim == 1 or "position" in name:
            yield {**tensors, name: np.full_like(values, np.nan)}


def opened(path: Path) -> Tower:
    return Tower.open(path, _core.CpuDevice(1), lambda text: IMAGE_TOKEN)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_key_is_an_error_or_means_nothing(family: str, tmp_path: Path) -> None:
    eyed = MODELS[family](tmp_path)
    keys, tensors = contents(eyed.tower)
    refused = accepted = 0
    for i, wrong in enumerate(wrong_keys(keys)):
        path = tmp_path / f"{i}.gguf"
        write_gguf(path, "clip", wrong, tensors)
        try:
            opened(path)
            accepted += 1
        except OxiBonsaiError:
            refused += 1
        path.unlink()
    # Other means and eps, bounds of a picture, keys that equal their default.
    assert refused > 3 * accepted


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrong_tensor_is_an_error(family: str, tmp_path: Path) -> None:
    eyed = MODELS[family](tmp_path)
    keys, tensors = contents(eyed.tower)
    optional = {"v.token_embd.img_break"}
    optional |= {n for n in tensors if n.endswith(".bias")}  # a layer may have none
    for i, wrong in enumerate(wrong_tensors(tensors)):
        path = tmp_path / f"{i}.gguf"
        write_gguf(path, "clip", keys, wrong)
        missing = tensors.keys() - wrong.keys()
        changed = {n for n in wrong if wrong[n] is not tensors[n]} - {"v.token_embd.img_break"}
        if changed or not missing <= optional:
            with pytest.raises(OxiBonsaiError):
                opened(path)
        path.unlink()


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS["gemma3"](tmp_path_factory.mktemp("valid")).tower


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        ({"vision.tea": 1}, UnsupportedError, "clip.vision.tea"),
        ({"projector_type": "kettle"}, UnsupportedError, r"kettle is not supported; known are"),
        ({"has_audio_encoder": True}, UnsupportedError, "reads sound"),
        ({"has_vision_encoder": False}, FormatError, "reads no pictures"),
        ({"vision.block_count": 2**31 - 1}, FormatError, r"of \d+ tensors"),
        ({"vision.image_size": 2**30}, FormatError, "or have more than"),
        ({"vision.image_std": [0.0, 1.0, 1.0]}, FormatError, "not above zero"),
    ],
)
def test_a_lie_is_named(
    valid: Path, tmp_path: Path, keys: dict[str, Any], error: type[Exception], message: str
) -> None:
    own, tensors = contents(valid)
    path = tmp_path / "tower.gguf"
    write_gguf(path, "clip", {**own, **keys}, tensors)
    with pytest.raises(error, match=message):
        opened(path)


def test_a_tensor_that_nobody_reads_is_named(valid: Path, tmp_path: Path) -> None:
    keys, tensors = contents(valid)
    path = tmp_path / "tower.gguf"
    write_gguf(path, "clip", keys, {**tensors, "v.kettle": np.zeros(4, np.float32)})
    with pytest.raises(UnsupportedError, match=r"the tensor v\.kettle"):
        opened(path)


def test_a_cut_file_is_refused(valid: Path, tmp_path: Path) -> None:
    data = valid.read_bytes()
    path = tmp_path / "tower.gguf"
    for length in [*range(0, len(data), len(data) // 20), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(FormatError):
            opened(path)


def test_pixels_that_are_none_are_refused() -> None:
    from oxibonsai.vision import PixelGrid

    good = np.zeros((1, 3, 8, 8), np.float32)
    bad = good.copy()
    bad[0, 1, 2, 3] = np.nan
    for pixels in (good[0], good[:, :2], good.astype(np.float64), good[:0], bad):
        with pytest.raises(RequestError):
            PixelGrid(pixels)

"""The packaged picture model draws captions that it never learnt, with the same bytes everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forked import run_oxibonsai
from oxibonsai import ImagePipeline, _core
from oxibonsai.diffusion.model_files import PartNames, open_image_model
from oxibonsai.errors import RequestError
from oxibonsai.sources.local import IMAGE_MODEL, resolve_packaged
from pictures.captions import held_out_scenes
from pictures.recognition import seen

PROMPT = "a green tree in a red pot"


@pytest.fixture(scope="module")
def pipeline() -> ImagePipeline:
    return ImagePipeline.from_pretrained(IMAGE_MODEL, threads=2, keep_text_encoder=True)


@pytest.mark.slow
def test_captions_that_it_never_learnt_are_drawn(pipeline: ImagePipeline) -> None:
    scenes = held_out_scenes()
    right = [
        seen(np.asarray(pipeline(scene.caption, seed=seed).images[0])).is_of(scene)
        for seed, scene in enumerate(scenes)
    ]
    assert np.mean(right) >= 0.9


@pytest.mark.slow
def test_no_tier_and_no_thread_changes_a_byte(tmp_path: Path) -> None:
    written = set()
    settings = [(tier, 2) for tier in _core.cpu.tiers()] + [(_core.cpu.tiers()[-1], 1)]
    for tier, threads in settings:
        file = tmp_path / f"{tier}_{threads}.png"
        line = ["image", "--prompt", PROMPT, "--seed", "42", "-o", file]
        done = run_oxibonsai(*line, OXIBONSAI_ISA=tier, OXIBONSAI_THREADS=str(threads))
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(f"oxibonsai: no model is named, so this is {IMAGE_MODEL}")
        written.add(file.read_bytes())
    assert len(written) == 1


def test_threads_and_other_seeds_do_not_change_a_byte(pipeline: ImagePipeline) -> None:
    together = pipeline(PROMPT, seed=[1, 2, 3], output_type="np").images
    other = ImagePipeline.from_pretrained(IMAGE_MODEL, threads=1)
    alone = [other(PROMPT, seed=seed, output_type="np").images[0] for seed in (1, 2, 3)]
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(alone[0], alone[1])


def test_sizes_come_from_the_model(pipeline: ImagePipeline) -> None:
    picture = pipeline(PROMPT, seed=1).images[0]
    assert picture.size == (64, 64)
    assert pipeline(PROMPT, seed=1, width=80).images[0].size == (80, 64)
    assert pipeline(PROMPT, seed=1, width=16).images[0].size == (16, 64)
    with pytest.raises(RequestError, match="from 16 to 2048"):
        pipeline(PROMPT, width=8)


def test_the_file_is_small_and_its_blocks_are_ternary() -> None:
    assert resolve_packaged(IMAGE_MODEL).stat().st_size < 8e6
    files = open_image_model(IMAGE_MODEL, PartNames())
    tensors = files.transformer.tensors
    blocks = [n for n in tensors.names if "transformer_blocks." in n and len(tensors.shape(n)) == 2]
    assert {tensors.quant_type(n) for n in blocks} == {"Q2_0_g128"}
    assert 3e6 < sum(np.prod(tensors.shape(n)) for n in blocks) < 6e6

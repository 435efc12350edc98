"""What a small picture model learns from: captions, pictures of them, and a judge that names both."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from pictures.captions import all_scenes, held_out_scenes, training_scenes
from pictures.drawing import draw
from pictures.recognition import seen


def test_captions_are_kept_apart() -> None:
    learnt = {scene.caption for scene in training_scenes(5000, seed=1)}
    kept = held_out_scenes()
    assert len({scene.caption for scene in kept}) == 50
    assert not learnt & {scene.caption for scene in kept}
    pairs = {(s.shape, s.colour, s.pot) for s in training_scenes(5000, seed=2)}
    assert not pairs & {(s.shape, s.colour, s.pot) for s in kept}
    assert {s.caption for s in all_scenes() if not s.held_out} >= learnt


def test_the_judge_is_right_about_drawn_pictures() -> None:
    rng = random.Random(7)
    scenes = all_scenes()[::5]
    looks = [seen(draw(scene, rng)) for scene in scenes]
    assert np.mean([s.is_of(t) for s, t in zip(looks, scenes, strict=True)]) >= 0.98
    backgrounds = [scene.background or "white" for scene in scenes]
    assert [s.background for s in looks] == backgrounds


def test_the_judge_refuses_wrong_pictures() -> None:
    rng = random.Random(8)
    scenes = held_out_scenes()
    drawn = [draw(scene, rng) for scene in scenes]
    for scene, picture in zip(scenes, drawn, strict=True):
        look = seen(picture)
        for other in scenes:
            same = replace(other, background=None) == replace(scene, background=None)
            assert look.is_of(other) == same
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for wrong in (noise, np.full((64, 64, 3), 245, np.uint8)):
        assert not any(seen(wrong).is_of(scene) for scene in scenes)
    for scene, picture in zip(scenes, drawn, strict=True):
        colourless = np.repeat(picture.mean(axis=2, keepdims=True), 3, axis=2).astype(np.uint8)
        assert not seen(colourless).is_of(scene)

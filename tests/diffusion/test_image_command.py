"""``oxibonsai image``: names, seeds, what is written beside pictures, and errors."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from forked import run_oxibonsai
from oxibonsai import ImagePipeline
from oxibonsai.cli.main import _run
from oxibonsai.diffusion.request import ImageRequest, read_record

Draw = Callable[..., int]


@pytest.fixture
def draw(image_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Runs the command in an empty folder; the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OXIBONSAI_THREADS", "2")

    def run(*arguments: str, size: bool = True) -> int:
        sizes = ["--width", "96", "--height", "64"] if size else []
        return _run(["image", "-m", str(image_folder), *sizes, *arguments])

    return run


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_the_same_seed_writes_the_same_file_and_overwrites_none(draw: Draw, tmp_path: Path) -> None:
    assert draw("-p", "a tree", "--seed", "42") == 0
    assert draw("-p", "a tree", "--seed", "42") == 0
    assert names(tmp_path) == ["image.png", "image_1.png"]
    assert (tmp_path / "image.png").read_bytes() == (tmp_path / "image_1.png").read_bytes()
    with Image.open(tmp_path / "image.png") as image:
        assert image.size == (96, 64)
        assert image.text["parameters"].startswith("a tree\nSteps: 4,")  # type: ignore[attr-defined]


def test_several_seeds_and_prompts_in_one_go(
    draw: Draw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    assert draw("-p", "a tree", "--seed", "1,2", "--seed", "3", "--json", "-o", "a/b.png") == 0
    assert names(tmp_path / "a") == ["b_seed1.png", "b_seed2.png", "b_seed3.png"]
    printed = json.loads(capsys.readouterr().out)["pictures"]
    assert [p["seed"] for p in printed] == [1, 2, 3]
    (tmp_path / "prompts.txt").write_text("a tree\n\na pot\n")
    (tmp_path / "c").mkdir()
    lines = ["--batch-prompts-file", "prompts.txt", "--seed", "1", "-o", "c/{seed}.png"]
    assert draw(*lines) == 0
    assert names(tmp_path / "c") == ["1.png", "1_1.png"]
    first = (tmp_path / "a" / "b_seed1.png").read_bytes()
    assert (tmp_path / "c" / "1.png").read_bytes() == first
    assert (tmp_path / "c" / "1_1.png").read_bytes() != first
    (tmp_path / "d").mkdir()
    assert draw("-p", "a tree", "--auto-seeds", "2", "--steps", "1", "-o", "d/x.png") == 0
    assert len(names(tmp_path / "d")) == 2


def test_values_stand_behind_names_as_with_mflux(
    draw: Draw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert draw("--seed", "1", "2", "a tree", "--low-ram", "-o", "b.png") == 0
    assert "--low-ram has no effect" in capsys.readouterr().err
    assert names(tmp_path) == ["b_seed1.png", "b_seed2.png"]
    assert draw("a tree", "--seed", "3", "--image", "b_seed1.png", "0.5", "-o", "c.png") == 0
    assert read_record(tmp_path / "c.png")["image_strength"] == 0.5
    assert draw("a tree", "--seed", "3", "--image-paths", "b_seed1.png", "b_seed2.png") == 0
    assert read_record(tmp_path / "image.png")["references"] == 2
    long_prompt = "a tree and a pot " * 30
    assert (
        draw("--reference", "c.png", "b_seed1.png", long_prompt, "--seed=3", "4", "-o", "d.png")
        == 0
    )
    record = read_record(tmp_path / "d_seed4.png")
    assert (record["references"], record["prompt"]) == (2, long_prompt)
    assert draw("a tree", "--seed", "3", "--image=b_seed1.png", "0.5", "-o", "e.png") == 0
    assert (tmp_path / "e.png").read_bytes() == (tmp_path / "c.png").read_bytes()


def test_diffusers_names_of_options_are_understood(draw: Draw, tmp_path: Path) -> None:
    names = ("--num-inference-steps", "2", "--guidance-scale", "1")
    assert draw("a tree", "--seed", "3", *names) == 0
    assert read_record(tmp_path / "image.png")["steps"] == 2


def test_info_shows_what_a_picture_was_drawn_from(
    draw: Draw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert draw("a [bold] tree", "--seed", "42") == 0
    capsys.readouterr()
    assert _run(["info", "image.png", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == read_record(tmp_path / "image.png")
    assert _run(["info", "image.png"]) == 0
    assert "a [bold] tree" in capsys.readouterr().out


def test_what_is_beside_a_picture_knows_times_and_paths(draw: Draw, tmp_path: Path) -> None:
    assert draw("-p", "a tree", "--seed", "1", "-o", "start.png") == 0
    settings = ["-p", "a pot", "--image", "start.png", "--strength", "0.5", "--steps", "2"]
    assert draw(*settings, "--seed", "2", "--metadata", "-o", "pot.png") == 0
    beside = json.loads((tmp_path / "pot.metadata.json").read_text())
    assert beside["image_paths"] == ["start.png"]
    assert beside["image_strength"] == 0.5
    assert {"version", "created_at", "generation_time_seconds"} < set(beside)
    assert b"start.png" not in (tmp_path / "pot.png").read_bytes()
    again = ["-C", "pot.metadata.json", "--image", "start.png", "-o", "again.png"]
    assert draw(*again, size=False) == 0
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "pot.png").read_bytes()
    assert draw("-C", "start.png", "-o", "start_again.png", size=False) == 0
    assert (tmp_path / "start_again.png").read_bytes() == (tmp_path / "start.png").read_bytes()
    assert draw("-C", "start.png", "--no-exif", "-o", "bare.png", size=False) == 0
    assert b"parameters" not in (tmp_path / "bare.png").read_bytes()


def test_previews_go_to_a_folder(draw: Draw, tmp_path: Path) -> None:
    assert draw("-p", "a", "--steps", "2", "--stepwise-image-output-dir", "steps") == 0
    assert names(tmp_path / "steps") == ["image_step1of2.png", "image_step2of2.png"]
    shown = [
        Image.open(p).tobytes()
        for p in (tmp_path / "steps/image_step2of2.png", tmp_path / "image.png")
    ]
    assert shown[0] == shown[1]


def test_references_set_the_size(draw: Draw, tmp_path: Path) -> None:
    Image.new("RGB", (90, 70), "green").save("green.png")
    assert draw("-p", "a", "--steps", "1", "--image-paths", "green.png", size=False) == 0
    with Image.open(tmp_path / "image.png") as image:
        assert image.size == (80, 64)


def test_a_prompt_comes_from_stdin_or_a_file(
    image_folder: Path, tmp_path: Path, draw: Draw
) -> None:
    sizes = ["--width", "96", "--height", "64", "--seed", "1", "-o", "stdin.png"]
    line = ["image", "-m", image_folder, "-p", "-", *sizes]
    done = run_oxibonsai(*line, stdin="a tree\n", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar where no terminal is
    (tmp_path / "prompt.txt").write_text("a tree\n")
    assert draw("--prompt-file", "prompt.txt", "--seed", "1", "-o", "file.png") == 0
    assert (tmp_path / "file.png").read_bytes() == (tmp_path / "stdin.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-p", "a", "--width", "100"), 2, "give 96 or 112"),
        (("-p", "a", "--guidance", "4"), 2, "distilled"),
        (("-p", "a", "--seed", "one"), 2, "whole numbers"),
        (("-p", "a", "--seed", "1", "--auto-seeds", "2"), 2, "either --seed or --auto-seeds"),
        (("-p", "a", "--strength", "0.5"), 2, "--strength is for --image"),
        (("-p", "a", "--image", "none.png"), 2, "none.png"),
        (("-p", "a", "--image", "b.png", "0.5", "--image-strength=0.3"), 2, "given twice: 0.5"),
        (("--reference", "none.png", "a"), 2, "none.png"),
        (("--reference", "a tree"), 2, "no prompt"),
        (("-p", "a", "-o", "a.jpg"), 2, ".png"),
        (("-p", "a", "--prompt-file", "b"), 2, "one of --prompt"),
        (("--prompt-file", "none.txt"), 2, "none.txt"),
        ((), 2, "no prompt"),
        (("a", "-p", "b"), 2, "the prompt is given twice"),
        (("a", "--negative-prompt", "b"), 2, "--negative-prompt is not available"),
        (("a", "--lora", "none.safetensors", "0.5"), 3, "there is no adapter none.safetensors"),
        (("-p", "a", "-m", "none"), 3, "does not exist"),
        (("-p", "a", "--rng", "cuda"), 2, "rng"),
        (("-p", "a", "-C", "none.png"), 2, "none.png"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(
    draw: Draw,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    assert draw(*arguments) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert names(tmp_path) == []


def test_an_interrupt_keeps_the_pictures_that_are_done(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oxibonsai.diffusion.diffusion_pipeline import DiffusionPipeline

    drawn, original = [], DiffusionPipeline.draw

    def interrupted(self: DiffusionPipeline, request: Any, on_step: Any = None) -> Any:
        if drawn:
            os.kill(os.getpid(), signal.SIGINT)
        drawn.append(1)
        return original(self, request, on_step)

    monkeypatch.setattr(DiffusionPipeline, "draw", interrupted)
    # Who is started in the background has it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert draw("-p", "a", "--seed", "1,2,3", "--steps", "1") == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert names(tmp_path) == ["image_seed1.png"]


def test_convert_makes_one_file_of_a_folder(
    image_folder: Path, draw: Draw, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(["convert", str(image_folder), "tiny.gguf", "--type", "q8_0"]) == 0
    assert "tiny.gguf" in capsys.readouterr().out
    line = ["-p", "a", "--steps", "1", "-m", "tiny.gguf"]
    assert draw(*line) == 0
    assert names(tmp_path) == ["image.png", "tiny.gguf"]


def test_bench_reckons_up_a_picture(image_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["bench", "image", "-m", str(image_folder), "--width", "96", "--height", "64"]
    assert _run([*line, "-r", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["seconds"]) == {"open", "prompt", "step", "decode"}
    assert all(value > 0 for value in report["seconds"].values())
    assert report["picture_seconds"] > 4 * report["seconds"]["step"]
    assert _run(line) == 0
    assert "picture" in capsys.readouterr().out


def test_bench_tells_what_the_time_of_each_part_goes_to(
    image_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--width", "96", "--height", "64", "--steps", "2"]
    assert _run(["bench", "image", "-m", str(image_folder), *size, "--profile", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["profile"]
    runs = {part: {op["op"]: op["runs"] for op in ops} for part, ops in parts.items()}
    assert runs["prompt"]["embed"] > 0
    assert runs["steps"]["attend_local"] == 2 * (2 + 3)  # a block each, in two steps
    assert runs["decode"]["conv2d"] > 0
    assert "conv2d" not in runs["steps"]
    assert _run(["bench", "image", "-m", str(image_folder), *size, "--profile"]) == 0
    assert "conv2d" in capsys.readouterr().out


def test_bench_counts_the_products_of_a_step(pipeline: ImagePipeline) -> None:
    """Of FLUX.2-klein, every block has as many weights for each token of a stream."""
    from oxibonsai.cli.bench_image import _products

    sizes = pipeline.diffusion.matrix_sizes()
    blocks = {n: s for n, s in sizes.items() if "transformer_blocks." in n}
    each = sum(s for n, s in blocks.items() if n.startswith("single_transformer_blocks.0."))
    assert each == 128 * (3 * 128 + 2 * 384) + 128 * (128 + 384)
    rows = 24 + 512
    assert _products(pipeline.diffusion, ImageRequest("", 0, 96, 64)) == rows * each * (2 + 3)


def test_an_adapter_draws_another_picture_and_is_written_down(
    draw: Draw, image_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((image_folder / "transformer" / "config.json").read_text())
    width = config["num_attention_heads"] * config["attention_head_dim"]
    random = np.random.default_rng(1)
    shapes = {"lora_A": (4, width), "lora_B": (config["in_channels"], 4)}
    adapter = {
        f"transformer.proj_out.{part}.weight": random.standard_normal(shape, dtype=np.float32) / 8
        for part, shape in shapes.items()
    }
    save_file(adapter, tmp_path / "style.safetensors")
    asked = ["-p", "a tree", "--seed", "1"]
    assert draw(*asked, "-o", "plain.png") == 0
    assert draw(*asked, "--lora", "style.safetensors", "-o", "styled.png") == 0
    assert draw(*asked, "--lora-scaled", "style.safetensors:0", "-o", "none.png") == 0
    plain, styled, none = (
        (tmp_path / f"{n}.png").read_bytes() for n in ("plain", "styled", "none")
    )
    assert none == plain
    with Image.open(tmp_path / "styled.png") as one, Image.open(tmp_path / "plain.png") as other:
        assert one.tobytes() != other.tobytes()
    (stated,) = read_record(tmp_path / "styled.png")["loras"]
    assert (stated["name"], stated["scale"]) == ("style.safetensors", 1.0)
    assert draw("-C", "styled.png", "-o", "again.png", size=False) == 2
    assert "--lora" in capsys.readouterr().err
    with_it = ["-C", "styled.png", "--lora", "style.safetensors", "-o", "again.png"]
    assert draw(*with_it, size=False) == 0
    assert (tmp_path / "again.png").read_bytes() == styled
    assert draw(*asked, "--lora", "missing.safetensors") == 3
    assert "missing.safetensors" in capsys.readouterr().err

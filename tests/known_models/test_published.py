"""The published models: their numbers hang together, and the pages and the command show the same."""

from __future__ import annotations

import json
from pathlib import Path

import make_model_table
import pytest
from click.testing import CliRunner

import make_random_bonsai as maker
from oxibonsai.cli import models as command
from oxibonsai.cli.main import _group
from oxibonsai.known_models.published import CONTEXTS, PARTS, PUBLISHED, PublishedFile

BONSAI2 = [f for f in PUBLISHED if f.size.name.startswith("Bonsai 2 ")]


@pytest.mark.parametrize("path", make_model_table.PAGES, ids=lambda p: p.name)
def test_pages_have_the_table_of_the_package(path: Path) -> None:
    assert make_model_table.page(path) == path.read_text(encoding="utf-8")


def shape_of(file: PublishedFile) -> maker.Size:
    name = file.size.name.rpartition(" ")[2]
    return (maker.BONSAI2 if file in BONSAI2 else maker.SIZES)[name]


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda f: f.name)
def test_sizes_are_those_of_the_shapes(file: PublishedFile) -> None:
    size, f = shape_of(file), maker.FORMATS[file.type]
    shapes = dict(maker.tensors(size, size.layers))
    formats = {name: maker.format_of(size, size.layers, f, name) for name in shapes}
    total = sum(maker.info(formats[name], name, shape).nbytes for name, shape in shapes.items())
    # Beside the weights a file has its vocabulary, some 6 to 11 MB.
    assert file.bytes == pytest.approx(total + 8e6, rel=0.02, abs=12e6)
    attending = [i for i in range(size.layers) if not size.hybrid or (i + 1) % maker.INTERVAL == 0]
    per_token = len(attending) * 2 * size.kv_heads * size.head_dim * 2
    assert file.size.kv_kib * 1024 == per_token
    weights = sum(s[0] * s[1] for n, s in shapes.items() if len(s) == 2 and "conv1d" not in n)
    assert file.size.billions == pytest.approx(weights / 1e9, rel=0.01)
    table = 0 if size.tied else size.rows * size.hidden
    assert file.size.table == pytest.approx(table / 1e9, abs=0.005)


def test_memory_grows_with_the_context_by_keys_and_values() -> None:
    by_name = {f.file: f for f in PUBLISHED}
    large = by_name["Ternary-Bonsai-2-27B-PTQ1_0.gguf"]  # 64 KiB a token in float16
    short, long = (large.memory(c) for c in CONTEXTS)
    assert long - short == (CONTEXTS[1] - CONTEXTS[0]) * 64 * 1024
    small = by_name["Ternary-Bonsai-2-2B-PTQ1_0.gguf"]  # 12 KiB, which are kept in float32
    assert small.memory(8192) - small.memory(0) == 8192 * 24 * 1024


@pytest.mark.parametrize(("gib", "largest"), [(4, "Bonsai 2 4B"), (8, "Bonsai 2 9B")])
def test_the_command_lists_what_the_memory_has_room_for(
    gib: int, largest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "physical_memory", lambda: gib << 30)
    monkeypatch.setattr(command, "read_bandwidth", lambda pool: 50e9)
    done = CliRunner().invoke(_group(), ["models", "--json"], catch_exceptions=False)
    listed = json.loads(done.stdout)["models"]
    assert len(listed) == len(PUBLISHED)
    fitting = [m["name"] for m in listed if m["fits"] and m["name"].startswith("Bonsai 2 ")]
    assert fitting[-1] == largest
    large = next(m for m in listed if m["file"] == "Bonsai-8B-Q1_0.gguf")
    # Of 8.19 billion weights of 1.125 bits, all are read but the table of tokens.
    read = (8.19e9 - 0.62e9) * 1.125 / 8
    assert large["tok_s_at_most"] == pytest.approx(50e9 / read, rel=0.01)
    shown = CliRunner().invoke(_group(), ["models"], catch_exceptions=False).stdout
    assert "Bonsai 2 2B PQ2_0" in shown
    assert f"oxibonsai chat -hf prism-ml/Ternary-{largest.replace(' ', '-')}-gguf\n" in shown
    assert "Bonsai 2 27B" not in shown


def test_what_is_published_beside_the_models_is_on_the_page_and_in_the_list() -> None:
    page = make_model_table.PAGES[0].read_text(encoding="utf-8")
    shown = CliRunner().invoke(_group(), ["models", "--all"], catch_exceptions=False).stdout
    listed = json.loads(CliRunner().invoke(_group(), ["models", "--json"]).stdout)["parts"]
    assert [p["name"] for p in listed] == [p.name for p in PARTS]
    for part in PARTS:
        assert f"| `{part.option} {part.name}` | {make_model_table.gb(part.bytes)} |" in page
        assert f"{part.option} {part.name}" in shown


def test_a_vision_tower_has_the_size_of_its_shape() -> None:
    shapes = maker.tower_tensors(maker.BONSAI2["27B"])
    total = sum(maker.tower_info(name, shape).nbytes for name, shape in shapes)
    (tower,) = (p for p in PARTS if "mmproj-Q8_0" in p.name)
    assert tower.bytes == pytest.approx(total, rel=0.01)


def test_bonsai_2_comes_first() -> None:
    assert list(PUBLISHED[: len(BONSAI2)]) == BONSAI2

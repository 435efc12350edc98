"""``oxibonsai info``: a page for people, every field behind --all, the same facts as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tiny_model
from oxibonsai.cli.main import _group

TEMPLATE = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "<think>\n{{ '</think>' if not enable_thinking }}"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    changes = {
        "general.sampling.temp": (0.95, "f32"),
        "tokenizer.chat_template": (TEMPLATE, "str"),
    }
    tiny_model.write(found, changes=changes)
    return found


def shown(path: Path, *options: str) -> str:
    done = CliRunner().invoke(
        _group(), ["info", str(path), *options], catch_exceptions=False, env={"COLUMNS": "200"}
    )
    assert done.exit_code == 0
    return done.stdout


def test_the_page_tells_parameters_bits_memory_abilities_and_settings(path: Path) -> None:
    facts = json.loads(shown(path, "--json"))
    shapes = tiny_model.shapes().values()
    count = sum(s[0] * s[1] if len(s) == 2 else s[0] for s in shapes)
    assert facts["parameters"] == count
    weights = sum(row["bytes"] for row in facts["quant_types"])
    assert facts["bits_per_weight"] == pytest.approx(8 * weights / count, abs=1e-3)
    assert facts["layers"] == {"all": tiny_model.LAYERS, "attending": tiny_model.LAYERS}
    assert facts["abilities"] == {"thinking": True, "tools": False, "images": False}
    assert facts["settings"] == {
        "family": None,
        "always": {"temperature": {"value": 0.95, "source": "general.sampling.temp"}},
    }
    page = shown(path)
    share = 100 * facts["quant_types"][0]["bytes"] / weights
    for text in (
        f"{count / 1e6:.2f} million, {facts['bits_per_weight']:.2f} bits each",
        "2; 128 wide",
        "up to 512 tokens",
        f"{share:.1f} %",
        "knows thinking",
        "temperature 0.95",
        "general.sampling.temp",
        "rotation         none",
    ):
        assert text in page
    assert "rms_norm_eps" not in page


def test_every_field_is_behind_all(path: Path) -> None:
    assert "rms_norm_eps" in shown(path, "--all")

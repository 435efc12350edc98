"""Which models a server has, by its settings and presets; none is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tiny_model
from oxibonsai.errors import FormatError, RequestError
from oxibonsai.server.registry.catalog import Catalog
from oxibonsai.server.registry.entry import Entry
from oxibonsai.server.setting_sources import load_settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models: ``one`` and ``two``."""
    place = tmp_path_factory.mktemp("models")
    for name in ("one.gguf", "two.gguf"):
        tiny_model.write(place / name)
    return place


@pytest.mark.parametrize("several", [False, True])
def test_the_first_alias_is_the_id_of_the_model(folder: Path, several: bool) -> None:
    values: dict[str, Any] = {"model": str(folder / "one.gguf"), "alias": ("served", "other")}
    if several:
        values["models"] = (f"two={folder / 'two.gguf'}",)
    spec = Catalog(load_settings(values)).specs()["served"]
    assert spec.settings.alias == ("served", "other")
    plain = Catalog(load_settings({**values, "alias": ()})).specs()["one"]
    assert plain.settings.alias == ("one",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[one]\ncolour = 1", "sets 'colour'"),
        ("[one]\nctx-size = -1", "ctx_size"),
        ("[one]\nport = 1", "'port', which is no setting of a model"),
        ("[none]\nctx-size = 8", "needs a key model"),
        ("x = 1", "outside of a model's table"),
        ("[one", "is not TOML"),
        (f"[one]\nseed = 1{'0' * 5000}", "is not TOML"),
        (f"[one]\nalias = {'[' * 5000}{']' * 5000}", "is nested too deeply"),
        ("[one]\nn-ctx = 4\nctx-size = 4", "twice"),
    ],
)
def test_a_preset_that_says_something_else_is_refused(
    folder: Path, tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "models.toml"
    path.write_text(content)
    settings = load_settings({"models_dir": str(folder), "models_preset": str(path)})
    with pytest.raises(RequestError, match=problem):
        Catalog(settings).specs()


def test_two_models_of_one_name_are_refused(folder: Path) -> None:
    settings = load_settings({"models_dir": str(folder), "models": (f"one={folder}/two.gguf",)})
    # The list wins over the folder, and says which one is meant.
    assert Catalog(settings).specs()["one"].settings.model == f"{folder}/two.gguf"
    twice = load_settings({"models": (f"a={folder}/one.gguf", f"a={folder}/two.gguf")})
    with pytest.raises(RequestError, match="two models of one name"):
        Catalog(twice).specs()


def test_the_name_of_the_model_of_the_start_is_taken(folder: Path) -> None:
    settings = load_settings(
        {"model": str(folder / "two.gguf"), "models": (f"two={folder}/one.gguf",)}
    )
    with pytest.raises(RequestError, match="two models have the name 'two'"):
        Catalog(settings).specs()


def test_what_is_pulled_never_keeps_the_next_start_from_working(
    folder: Path, tmp_path: Path
) -> None:
    values = {"state_dir": tmp_path, "allow_pull": True}
    served = Catalog(load_settings({**values, "model": "hf:org/one"}))
    served.add("hf:org/one", "hf:org/one")
    assert list(served.specs()) == ["hf:org/one"]
    taken = {**values, "model": str(folder / "one.gguf"), "alias": ("one", "hf:org/two")}
    catalog = Catalog(load_settings(taken))
    with pytest.raises(RequestError, match="'hf:org/two'"):
        catalog.add("hf:org/two", "hf:org/two")
    assert "hf:org/two" not in Catalog(load_settings(taken)).specs()


@pytest.mark.parametrize(
    ("source", "failure", "told"),
    [
        ("/our models/a.gguf", "/our models/a.gguf is damaged", "a.gguf is damaged"),
        ("/a.gguf", "/a.gguf: see /etc/a.conf and https://a.b/c", "/a.gguf: see a.conf and https://a.b/c"),
        ("hf:org/a", "hf:org/a has no GGUF file", "hf:org/a has no GGUF file"),
    ],
)  # fmt: skip
def test_callers_are_told_why_without_folders(source: str, failure: str, told: str) -> None:
    (spec,) = Catalog(load_settings({"model": source})).specs().values()
    entry = Entry(spec)
    entry.failure = FormatError(failure)
    assert entry.failure_text == told

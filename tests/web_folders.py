"""Exports a packaged model for browsers, with the core that Emscripten makes."""

from __future__ import annotations

from pathlib import Path

from native_build import ROOT, build_wasm
from oxibonsai.cli.main import _run

SEEDLINGS = ROOT / "python" / "oxibonsai" / "seedling"


def export(model: Path, folder: Path) -> Path:
    return export_with_core(model, folder, build_wasm("oxibonsai_core") / "csrc")


def export_with_core(model: Path, folder: Path, core: Path) -> Path:
    assert _run(["export-web", str(model), str(folder), "--core", str(core)]) == 0
    return folder

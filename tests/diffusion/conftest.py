"""A small random model in diffusers' layout, for all tests of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oxibonsai import ImagePipeline


@pytest.fixture(scope="session")
def diffusers_pipeline() -> Any:
    from tiny_images import tiny_pipeline

    return tiny_pipeline()


@pytest.fixture(scope="session")
def image_folder(diffusers_pipeline: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tiny_images import save_tiny

    folder = tmp_path_factory.mktemp("images") / "tiny"
    save_tiny(diffusers_pipeline, folder)
    return folder


@pytest.fixture(scope="session")
def pipeline(image_folder: Path) -> ImagePipeline:
    return ImagePipeline.from_pretrained(image_folder)

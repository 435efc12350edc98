"""One small model with random weights, as transformers loads it and as oxibonsai does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hf_folders
import pytest

from oxibonsai.hf import AutoModelForCausalLM, AutoTokenizer, CausalLM, PreTrainedTokenizer


@pytest.fixture(scope="session")
def hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 as ``save_pretrained`` leaves it, with a tokenizer."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("hf") / "model"
    case = next(c for c in hf_folders.CASES if c.name == "qwen3")
    hf_folders.save(case, folder)
    return folder


@pytest.fixture(scope="session")
def theirs(hf_folder: Path) -> Any:
    """The model in transformers, float32."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(hf_folder, dtype="float32")
    return model.eval()


@pytest.fixture(scope="session")
def their_tokenizer(hf_folder: Path) -> Any:
    """The tokenizer in transformers."""
    import transformers

    return transformers.AutoTokenizer.from_pretrained(hf_folder, padding_side="left")


@pytest.fixture(scope="session")
def model(hf_folder: Path) -> CausalLM:
    """The same folder in oxibonsai."""
    return AutoModelForCausalLM.from_pretrained(hf_folder, ctx_size=512)


@pytest.fixture(scope="session")
def tokenizer(hf_folder: Path) -> PreTrainedTokenizer:
    """The same tokenizer in oxibonsai."""
    return AutoTokenizer.from_pretrained(hf_folder)

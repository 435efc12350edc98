"""Writes the table of published models in docs/which_model.md and README.md.

python tests/truth/make make_model_table
"""

from __future__ import annotations

from pathlib import Path

from oxibonsai.known_models.published import CONTEXTS, PUBLISHED, PublishedFile

ROOT = Path(__file__).resolve().parents[3]
PAGES = (ROOT / "docs" / "which_model.md", ROOT / "README.md")
_BEGIN = "<!-- Written by tests/truth/make/make_model_table.py -->\n"
_END = "<!-- End of the table -->\n"
_HEAD = """| model | `--model` | file | memory at 8K | at 64K | can | quality |
| --- | --- | --- | --- | --- | --- | --- |
"""


def gb(count: int) -> str:
    """Return a number of bytes as the pages have it."""
    return f"{count / 1e9:.2f} GB" if count < 10**9 else f"{count / 1e9:.1f} GB"


def _row(file: PublishedFile) -> str:
    short, long = (gb(file.memory(context)) for context in CONTEXTS)
    cells = (
        f"{file.size.name}, {file.weights}", f"`{file.name}`",
        ("" if file.exact else "about ") + gb(file.bytes), short, long,
        ", ".join(file.size.abilities), file.quality,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def table() -> str:
    """Return the table."""
    return _HEAD + "".join(map(_row, PUBLISHED))


def page(path: Path) -> str:
    """Return a page with the table of the package."""
    before, rest = path.read_text(encoding="utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    return before + _BEGIN + table() + _END + after


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(page(path), encoding="utf-8")

"""Writes the codebooks of the IQ types as a C++ header, from the `gguf` package on PyPI.

Usage: make_codebooks.py OUT. Called by the build (third_party/CMakeLists.txt).

An entry is a row of levels, 2 bits each (8 levels of IQ1 and IQ2) or 4 bits each (4 levels of IQ3),
the first in the lowest bits.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
from gguf import quants

# Of the header's lines below its comment. Other numbers would make other weights of the same file.
SHA256 = "ba8acfc51f89ccd9731a10a2141a2b682548f31f41d91e74aa8fed1725b86c00"
BOOKS = {
    "kIq2XxsGrid": quants.IQ2_XXS,
    "kIq2XsGrid": quants.IQ2_XS,
    "kIq2SGrid": quants.IQ2_S,
    "kIq3XxsGrid": quants.IQ3_XXS,
    "kIq3SGrid": quants.IQ3_S,
    "kIq1Grid": quants.IQ1_S,
}
HEAD = """#pragma once

// Made by third_party/make_codebooks.py from the gguf package; {0}

#include <cstdint>

namespace oxibonsai::quant {{

"""


def entries(book: type[quants.IQ1_S]) -> list[int]:
    """The rows of a codebook, each as one integer of 16 bits."""
    book.init_grid()
    levels = np.searchsorted(book.grid_map, book.grid.reshape(book.grid_shape))
    columns = book.grid_shape[1]
    packed = (levels << (16 // columns * np.arange(columns))).sum(axis=1)
    return [int(entry) for entry in packed]


def array(name: str, numbers: list[int]) -> str:
    rows = [numbers[i : i + 12] for i in range(0, len(numbers), 12)]
    lines = [", ".join(f"0x{n:04X}" for n in row) for row in rows]
    return f"constexpr uint16_t {name}[{len(numbers)}] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main(out: str) -> None:
    body = "".join(array(name, entries(book)) for name, book in BOOKS.items())
    found = hashlib.sha256(body.encode()).hexdigest()
    if found != SHA256:
        sys.exit(f"the gguf package has other codebooks than the format (SHA-256 {found})")
    head = HEAD.format("an entry is a row of levels, the first in the lowest bits.")
    text = head + body + "\n}  // namespace oxibonsai::quant\n"
    header = Path(out)
    # A newer header would have programs linked again, which another process may be starting.
    if not header.exists() or header.read_text() != text:
        header.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])

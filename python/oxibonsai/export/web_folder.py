"""A folder from which a static server gives a model to a browser.

``model.json`` says which graph the core builds: its weights, and the calls that make it. What they
refer to, stored blocks and vectors of float32, follows each other in the pieces ``weights-*.bin``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from oxibonsai import __version__, _core
from oxibonsai.chat_template import ChatTemplate
from oxibonsai.checkpoint import Checkpoint
from oxibonsai.errors import FormatError, RequestError, UnsupportedError
from oxibonsai.files.whole_file import make_folder, written_whole
from oxibonsai.models import Weights, read_config
from oxibonsai.models.recorded_graph import Call, record_logits
from oxibonsai.sampling import PARAMETERS
from oxibonsai.sampling.checks import MOST_FLOAT
from oxibonsai.tokenizer.files.saving import tokenizer_files
from oxibonsai.tokenizer.tokenizer import Tokenizer

FORMAT = 2
# What CMake builds with Emscripten.
CORE = ("core.mjs", "core.wasm")
MODULE = ("oxibonsai.js", "oxibonsai.d.ts", "chat.js")
VENDOR = ("tokenizers.min.mjs", "LICENSE-tokenizers", "jinja.js", "LICENSE-jinja")
PAGE = ("index.html", "page.css", "page.js", "worker.js", "ui/preview.js")
# What the page has of the server's chat page, in its folder ui.
OF_CHAT_PAGE = (
    "code_colours.js", "dom.js", "footnotes.js", "icon.svg", "markdown.js", "markdown_rules.js", "math.js",
    "style.css", "text.css", "words.js", "words_de.js", "words_fr.js", "vendor/LICENSE-dompurify",
    "vendor/LICENSE-highlightjs", "vendor/LICENSE-katex", "vendor/LICENSE-marked",
    "vendor/highlight.min.js", "vendor/katex.min.css", "vendor/katex.min.js", "vendor/marked.esm.js",
    "vendor/purify.min.js",
)  # fmt: skip
# Fields of SamplingParams that the module takes, and what it calls them.
SAMPLING = {
    "temperature": "temperature",
    "top_k": "topK",
    "top_p": "topP",
    "min_p": "minP",
    "repetition_penalty": "repetitionPenalty",
    "repetition_window": "repetitionWindow",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
# Of the data, so that a vector may be read in place.
_ALIGNMENT = 64
_PIECE = 32 << 20
_WEB = files("oxibonsai") / "export" / "web"
_CHAT_PAGE = files("oxibonsai") / "server" / "static"


@dataclass(frozen=True)
class ChatFormat:
    """How a model's conversations are written.

    Attributes:
        template: Of the model.
        reasoning: The texts around what an answer begins with; None: the model knows no reasoning.
    """

    template: ChatTemplate
    reasoning: tuple[str, str] | None = None

    def described(self) -> dict[str, Any]:
        """Return what ``model.json`` says of it."""
        return {
            "template": self.template.source,
            **self.template.tokens,
            "needs_parts": self.template.needs_parts,
            "reasoning": self.reasoning,
        }


class _Data:
    """Data that a description refers to, in the order of the first references.

    Attributes:
        weights: A record for each matrix.
        size: Bytes.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.weights: list[dict[str, Any]] = []
        self.size = 0
        self._checkpoint = checkpoint
        self._parts: list[tuple[int, _core.Weight | npt.NDArray[np.float32]]] = []
        self._numbers: dict[_core.Weight, int] = {}
        self._values: dict[_core.Value, int] = {}

    def described(self, argument: Any) -> Any:
        """Return an argument of a call as JSON has it."""
        if isinstance(argument, _core.Value):
            return hash(argument)  # its number in the graph
        if isinstance(argument, _core.Weight):
            return self._number(argument)
        if isinstance(argument, np.ndarray):
            values = np.ascontiguousarray(argument, dtype=np.float32)
            return {"at": self._place(values, values.nbytes), "count": values.size}
        if isinstance(argument, _core.PagedLayer):
            layer = argument
            return [layer.kv_heads, layer.key_dim, layer.value_dim, layer.value_in_key]
        if isinstance(argument, list | tuple):
            return [self.described(a) for a in argument]
        if isinstance(argument, np.generic):
            return argument.item()
        return argument

    def bytes(self) -> Iterator[bytes]:
        """Yield all of the data, one part after the other."""
        at = 0
        for place, part in self._parts:
            yield bytes(place - at)
            data = part if isinstance(part, np.ndarray) else self._blocks(part)
            yield data.tobytes()
            at = place + data.nbytes

    def _place(self, part: _core.Weight | npt.NDArray[np.float32], size: int) -> int:
        place = -(-self.size // _ALIGNMENT) * _ALIGNMENT
        self._parts.append((place, part))
        self.size = place + size
        return place

    def _number(self, weight: _core.Weight) -> int:
        if weight not in self._numbers:
            if not self._checkpoint.has(weight.name):
                raise UnsupportedError(
                    f"{self._checkpoint.path}: the matrix {weight.name} is made when the model is loaded, "
                    "which export-web has no form for"
                )
            self._numbers[weight] = len(self.weights)
            self.weights.append(
                {
                    "name": weight.name,
                    "type": weight.quant_type,
                    "rows": weight.rows,
                    "cols": weight.cols,
                    "experts": weight.experts,
                    "at": self._place(weight, weight.nbytes),
                }
            )
        return self._numbers[weight]

    def _blocks(self, weight: _core.Weight) -> npt.NDArray[np.uint8]:
        """Return the stored blocks of a weight, which may be some rows of a tensor."""
        file = self._checkpoint.file
        whole = file.tensor_bytes(weight.name).reshape(weight.experts, -1)
        row = weight.nbytes // (weight.experts * weight.rows)
        return whole[:, weight.first_row * row : (weight.first_row + weight.rows) * row]


def write_web_folder(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    core: Path,
    kv_type: str,
    sampling: Mapping[str, float],
    name: str,
    chat: ChatFormat | None = None,
) -> list[Path]:
    """Write a model and all that runs it in a browser; return the files.

    Args:
        checkpoint: Of a model that continues texts.
        folder: Made where it is not there.
        core: Folder with what CMake builds of csrc/web.
        kv_type: What keys and values are kept as.
        sampling: The model's parameters, of which :data:`SAMPLING` are written.
        name: The model's, for the page.
        chat: None: the model only continues texts.

    Raises:
        RequestError: ``core`` lacks a file.
        FormatError: The model's file makes no sense.
        UnsupportedError: The model does more than continue texts, or has no ``tokenizer.json``.
        OSError: The folder can't be written.
    """
    contents = module_files(core) | _page_files()
    texts = tokenizer_files(checkpoint)
    if "tokenizer.json" not in texts:
        raise UnsupportedError(f"{checkpoint.path} has no tokenizer that a browser can run")
    data = _Data(checkpoint)
    calls = _described(record_logits(read_config(checkpoint), Weights(checkpoint)), data)
    make_folder(folder)
    pieces = list(_write_pieces(data, folder))
    checkpoint.file.check_unchanged()
    document = {
        "format": FORMAT,
        "version": __version__,
        "name": name,
        "kv_type": kv_type,
        "sampling": {word: sampling[name] for name, word in SAMPLING.items()},
        "ranges": {word: _range(name) for name, word in SAMPLING.items()},
        "chat": None if chat is None else chat.described(),
        "end_tokens": sorted(Tokenizer.from_gguf(checkpoint.file).eos_ids),
        "trained_context": checkpoint.trained_context,
        "bytes": data.size,
        "pieces": pieces,
        "weights": data.weights,
        "calls": calls,
    }
    try:
        texts["model.json"] = json.dumps(document, allow_nan=False) + "\n"
    except ValueError as e:
        raise FormatError(
            f"{checkpoint.path}: a constant of the pass is not finite, for which JSON has no number"
        ) from e
    contents |= {file: text.encode() for file, text in texts.items()}
    for file, content in contents.items():
        make_folder((folder / file).parent)
        with written_whole(folder / file) as out:
            out.write(content)
    return sorted(folder / file for file in [*contents, *(p["file"] for p in pieces)])


def module_files(core: Path) -> dict[str, bytes]:
    """Return what the ES module is made of, by file.

    Args:
        core: As for :func:`write_web_folder`.

    Raises:
        RequestError: ``core`` lacks a file.
    """
    for file in CORE:
        if not (core / file).is_file():
            raise RequestError(
                f"{core} has no {file}: build it with Emscripten, as docs/platforms.md says, and name the "
                "folder that it is in"
            )
    contents = {file: (core / file).read_bytes() for file in CORE}
    contents |= {file: (_WEB / file).read_bytes() for file in MODULE}
    return contents | {file: (_WEB / "vendor" / file).read_bytes() for file in VENDOR}


def _page_files() -> dict[str, bytes]:
    contents = {file: (_WEB / file).read_bytes() for file in PAGE}
    contents |= {f"ui/{file}": (_CHAT_PAGE / file).read_bytes() for file in OF_CHAT_PAGE}
    fonts = (_CHAT_PAGE / "vendor" / "fonts").iterdir()
    return contents | {f"ui/vendor/fonts/{font.name}": font.read_bytes() for font in fonts}


def _range(name: str) -> dict[str, Any]:
    """Return what a parameter may be, as numbers and in words."""
    bounds = PARAMETERS[name].bounds
    high = MOST_FLOAT if bounds.high is None else bounds.high
    return {
        "low": bounds.low,
        "high": high,
        "above": bounds.above,
        "integer": bounds.integer,
        "is": str(bounds),
    }


def _described(calls: Sequence[Call], data: _Data) -> list[Any]:
    return [
        [
            call.method,
            [data.described(a) for a in call.arguments],
            {key: data.described(a) for key, a in call.named.items()},
        ]
        for call in calls
    ]


def _write_pieces(data: _Data, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the data in pieces, whose names change with what they hold; yield a record of each."""
    held = bytearray()
    for part in data.bytes():
        held += part
        while len(held) >= _PIECE:
            yield _write_piece(bytes(held[:_PIECE]), folder)
            del held[:_PIECE]
    if held:
        yield _write_piece(bytes(held), folder)


def _write_piece(content: bytes, folder: Path) -> dict[str, Any]:
    digest = hashlib.sha256(content)
    file = f"weights-{digest.hexdigest()[:16]}.bin"
    with written_whole(folder / file) as out:
        out.write(content)
    integrity = "sha256-" + base64.b64encode(digest.digest()).decode()
    return {"file": file, "bytes": len(content), "integrity": integrity}

"""Qwen3-Reranker: a Qwen3 of whose output matrix the rows of two answers are left."""

from __future__ import annotations

from collections.abc import Sequence

from oxibonsai.architectures import qwen3
from oxibonsai.convert import decoder
from oxibonsai.convert.families import converter_of
from oxibonsai.convert.float_types import Floats
from oxibonsai.convert.folder import ModelFolder
from oxibonsai.convert.pieces import Piece
from oxibonsai.convert.recipe import Metadata, Recipe
from oxibonsai.errors import FormatError

_QWEN3 = converter_of(qwen3.FAMILY)
_LAYER = {**decoder.LAYER, **decoder.HEAD_NORMS}
_NAME = "qwen3-reranker"
_ANSWERS = ("yes", "no")
_RANK = 4  # the pooling_type of a classifier's head
# As the model was trained; the query and the document take the places of their names in braces.
_TEMPLATE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    'Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer "
    "the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def is_reranker(folder: ModelFolder) -> bool:
    """Whether a folder of Qwen3 is a reranker: its name or the title of its README says so."""
    if _NAME in folder.path.resolve().name.lower():
        return True
    if _NAME in str(folder.config.get("_name_or_path", "")).lower():
        return True
    readme = folder.path / "README.md"
    if not readme.is_file():
        return False
    try:
        return f"# {_NAME}" in readme.read_text(encoding="utf-8", errors="replace").lower()
    except OSError as e:
        raise FormatError(f"cannot read {readme}: {e}") from e


def _metadata(folder: ModelFolder) -> Metadata:
    return {
        **_QWEN3.metadata(folder),
        "qwen3.pooling_type": (_RANK, "u32"),
        "qwen3.classifier.output_labels": (list(_ANSWERS), "arr[str]"),
        "tokenizer.chat_template.rerank": (_TEMPLATE, "str"),
    }


def _answer_ids(folder: ModelFolder) -> list[int]:
    """Ids of the answers."""
    vocabulary = folder.json("tokenizer.json").get("model", {}).get("vocab")
    ids = [vocabulary.get(a) if isinstance(vocabulary, dict) else None for a in _ANSWERS]
    found = [i for i in ids if isinstance(i, int) and 0 <= i < folder.count("vocab_size")]
    if len(found) != len(_ANSWERS):
        raise FormatError(
            f"{folder.path / 'tokenizer.json'} lacks a token of {', '.join(_ANSWERS)}"
        )
    return found


def _pieces(folder: ModelFolder, parameter: str) -> Sequence[Piece]:
    """Return the rows of the answers, of the output matrix or of the table that stands for it."""
    tied = folder.config.get("tie_word_embeddings") is True
    if parameter != ("model.embed_tokens.weight" if tied else "lm_head.weight"):
        return ()
    ids = _answer_ids(folder)

    def answers(rows: Floats) -> Floats:
        return rows[ids]

    head = Piece("cls.output.weight", part=answers)
    return (Piece("token_embd.weight"), head) if tied else (head,)


def _shapes(folder: ModelFolder) -> dict[str, tuple[int, ...]]:
    wanted = decoder.shapes(folder, _LAYER.values())
    shapes = {k: v for k, v in wanted.items() if k != "output.weight"}
    return shapes | {"cls.output.weight": (len(_ANSWERS), folder.count("hidden_size"))}


QWEN3_RERANKER = Recipe(
    "qwen3",
    _metadata,
    decoder.namer("Qwen3", _LAYER),
    decoder.is_matrix,
    shapes=_shapes,
    pieces=_pieces,
)

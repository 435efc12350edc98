"""The lines that a server prints on a terminal when it is ready."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oxibonsai import __version__
from oxibonsai.server.backend import Backend
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.settings import Settings


def greeting(settings: Settings, backend: Backend | ModelRegistry, addresses: Sequence[str]) -> str:
    """Return some lines: the models, their memory and threads, the addresses, who may use them.

    Args:
        settings: All settings.
        backend: The models, of which those of the start are loaded.
        addresses: Where the server listens: ``http://127.0.0.1:8080``, or ``unix:`` and a path.
    """
    lines = [f"oxibonsai {__version__} is ready; Ctrl-C ends it", *_models(backend)]
    web = [address for address in addresses if address.startswith("http")]
    if settings.ui and web:
        lines.append(f"page     {web[0]}/")
    for address in addresses:
        api = f"{address}/v1" if address in web else address
        lines.append(f"API      {api}")
    if settings.api_key or settings.api_key_file:
        lines.append("key      clients must send one that --api-key or --api-key-file names")
    elif settings.allow_public:
        lines.append("key      none: whoever reaches this machine may use it (--api-key)")
    else:
        lines.append("key      none: whoever uses this machine may use it (--api-key)")
    return "\n  ".join(lines)


def _models(backend: Backend | ModelRegistry) -> Iterator[str]:
    if not isinstance(backend, ModelRegistry):
        return
    loaded = [entry for entry in backend.entries() if entry.instance is not None]
    for entry in loaded:
        assert entry.instance is not None
        pool = entry.instance.backend.pool
        if pool is None:
            continue
        engine = pool.engines[0]
        checkpoint = engine.model.weights.checkpoint
        yield f"model    {entry.spec.name} ({checkpoint.file.get('general.architecture')})"
        size = checkpoint.file.size
        weights = f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
        room = f"{pool.permits} at a time, contexts of {engine.ctx_size:,} tokens"
        if engine.kv_type is not None:
            room += f" in {engine.kv_type}"
        yield f"memory   {weights} of weights; {room}"
        yield f"threads  {engine.model.device.threads}, device {engine.model.device.name}"
    waiting = [entry.spec.name for entry in backend.entries() if entry.instance is None]
    if waiting:
        shown = ", ".join(waiting[:8]) + (" ..." if len(waiting) > 8 else "")
        yield f"models   loaded when a request names them: {shown}"

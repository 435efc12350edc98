"""The interface between the server and the engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from oxibonsai.chat_template import ChatTemplate
    from oxibonsai.engine import EnginePool
    from oxibonsai.engine.speculation.methods import Speculation
    from oxibonsai.server.adapters import Adapters


@dataclass(frozen=True)
class ModelInfo:
    """One model as ``/v1/models`` lists it.

    Attributes:
        id: The name that clients send.
        created: Unix time in seconds.
        aliases: All its names.
        meta: Facts about the model: sizes, context.
        tags: Labels that describe it.
        status: ``loaded``, ``loading``, ``sleeping``, ``unloaded`` or ``downloading``.
        failed: Whether it could not be loaded.
        progress: Bytes by file while it is being downloaded.
        output: What it makes: ``text``, ``embeddings``, ``scores`` or ``image``.
    """

    id: str
    created: int
    aliases: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    status: str = "loaded"
    failed: bool = False
    progress: Mapping[str, Any] = field(default_factory=dict)
    output: str = "text"


class Backend(Protocol):
    """A model that loads after the fork and is used by many threads.

    Attributes:
        pool: The engines; None before :meth:`load` is done.
        chat_template: The model's, or the one that the settings name; None if there is none.
        generates: Whether the model generates text; False if it only makes embeddings.
        speculation: What proposes tokens for sequences, and why; None where no text is generated.
        ranks: Whether the model has a head that scores texts.
        adapters: The model's adapters; None before :meth:`load` is done.
        on_file_change: Called in an engine's thread where the model's file was changed while it was in
            use, so that it must be loaded again; None: the process is replaced.
    """

    pool: EnginePool | None
    chat_template: ChatTemplate | None
    generates: bool
    speculation: Speculation | None
    ranks: bool
    adapters: Adapters | None
    on_file_change: Callable[[], None] | None

    def load(self) -> None:
        """Block until requests can be answered.

        Raises:
            OxiBonsaiError: The model can't be used; the message is shown to the operator.
        """

    def models(self) -> Sequence[ModelInfo]:
        """Return the models that are loaded; empty before :meth:`load` is done."""

    def close(self) -> None:
        """Cancel running work and end the threads; called once, at the end of the process."""

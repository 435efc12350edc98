"""The application object: what the routes of all APIs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response, after_this_request, g, has_request_context, request

from oxibonsai.mcp import McpServers
from oxibonsai.serial_queue import SerialQueue
from oxibonsai.server.access import Callers, KeyRing, owner
from oxibonsai.server.backend import Backend
from oxibonsai.server.errors import ApiError
from oxibonsai.server.hosts import SAFE_METHODS
from oxibonsai.server.lifecycle import Lifecycle
from oxibonsai.server.registry.instance import Instance, Lease
from oxibonsai.server.registry.registry import ModelRegistry
from oxibonsai.server.settings import Settings
from oxibonsai.server.stores import Store
from oxibonsai.server.stores.peers import Peers

if TYPE_CHECKING:
    from oxibonsai.server.image_worker import ImageWorker
    from oxibonsai.server.submitter import Submitter


class Server(Flask):
    """A Flask application with the models, the store and the settings; made by ``create_app``.

    Attributes:
        settings: All settings; those of a model are ``submitter.settings``.
        models: The models.
        lifecycle: The phase between start and end.
        keys: The accepted API keys; read again at SIGHUP.
        callers: Tells who sends a request.
        store: Files, responses, assistants, threads, messages and runs.
        mcp: The MCP servers whose tools may be called; None: none are configured.
        peers: This server among those that share the store; None if it shares nothing.
        image_worker: Draws images.
        large_requests: Admits what reads a large input, one at a time.
        long_texts: Admits what parses or tokenizes a long text, one at a time.
    """

    settings: Settings
    models: ModelRegistry
    lifecycle: Lifecycle
    keys: KeyRing
    callers: Callers
    store: Store
    mcp: McpServers | None
    peers: Peers | None
    image_worker: ImageWorker
    large_requests: SerialQueue
    long_texts: SerialQueue

    @property
    def submitter(self) -> Submitter:
        """Return what submits requests to the model of the current request.

        A generator or thread that outlives the request has to take it beforehand.
        """
        instance = self._instance
        if not has_request_context():
            return instance.submitter
        if "submitter" not in g:
            g.submitter = self._with_adapters(instance.submitter)
        chosen: Submitter = g.submitter
        return chosen

    def _with_adapters(self, submitter: Submitter) -> Submitter:
        """Return the submitter with the adapters that a request's model or ``lora`` chooses."""
        lease: Lease = g.model_lease
        if lease.adapter:
            if g.get("lora"):
                raise ApiError(
                    400, "lora: the model's name chooses an adapter already.", param="lora"
                )
            return submitter.with_adapter(submitter.adapters.named(lease.adapter), lease.adapter)
        if g.get("lora") is None:
            return submitter
        scales = {one.id: one.scale for one in g.lora}
        return submitter.with_adapter(submitter.adapters.scaled(scales))

    @property
    def backend(self) -> Backend:
        """The model of the current request."""
        return self._instance.backend

    def use_model(self, name: str | None) -> Instance:
        """Choose the model of the current request; it stays loaded until the response has been sent.

        A request that only reads loads nothing: see :func:`_autoload`.

        Args:
            name: What the request calls it.

        Raises:
            ApiError, OxiBonsaiError: See :meth:`ModelRegistry.lease`.
        """
        from oxibonsai.server.inputs import InputWatch, input_is_read, take_turn

        had_turn = "leave_queue" in g
        # A request that uses a model may wait for the turn of large ones, so none that has the turn
        # waits for a model.
        lease = self.models.lease(
            name,
            owner=owner(),
            watch=InputWatch().look,
            autoload=_autoload(),
            before_waiting=input_is_read,
        )
        g.model_lease = lease
        g.pop("submitter", None)

        @after_this_request
        def release(response: Response) -> Response:
            if response.is_streamed:
                response.call_on_close(lease.release)
            else:
                lease.release()
            return response

        if had_turn:
            take_turn(self.large_requests)
        return lease.instance

    def keep_model(self) -> Lease:
        """Keep the model of the current request loaded for work that goes on after it."""
        return self._instance.lease()

    @property
    def _instance(self) -> Instance:
        if not has_request_context():
            return self.models.default
        lease: Lease | None = g.get("model_lease")
        if lease is not None:
            return lease.instance
        return self.use_model(g.get("model_name") or request.args.get("model"))


def _autoload() -> bool | None:
    """Return whether the request may load its model; None: as ``--models-autoload`` says.

    A page of another site can send a GET through any visitor's browser, as an image's address even,
    and to load a model may evict the one in use.
    """
    if request.method in SAFE_METHODS:
        return False
    wanted = request.args.get("autoload")
    return None if wanted is None else wanted not in ("0", "false")

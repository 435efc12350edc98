"""``/slots``: the state of the slots; saves, restores and erases a slot's cached state.

An API key only has access to slots whose latest request was its own, and has its own folder.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, jsonify, request

from oxibonsai.engine import Options, restore, save
from oxibonsai.errors import FormatError
from oxibonsai.server.access import owner
from oxibonsai.server.errors import ApiError
from oxibonsai.server.limits import ANONYMOUS
from oxibonsai.server.llama_server.completion import generation_settings
from oxibonsai.server.llama_server.schemas import SlotAction, SlotFile
from oxibonsai.server.openai.prompts import text_of
from oxibonsai.server.server import Server
from oxibonsai.server.settings import Settings
from oxibonsai.server.slot_table import Slot
from oxibonsai.server.submitter import tenant_and_salt
from oxibonsai.server.validation import as_body, read_body


def slots_blueprint(app: Server) -> Blueprint:
    """Return the two routes."""
    bp = Blueprint("slots", __name__)

    @bp.get("/slots")
    def list_slots() -> Response:
        if not app.settings.slots:
            raise ApiError(501, "This server does not serve /slots: start it with --slots.")
        slots = app.submitter.slots.slots
        if request.args.get("fail_on_no_slot") == "1" and all(s.busy for s in slots):
            raise ApiError(503, "All slots are busy.", retry_after=1)
        return jsonify([_described(slot, app) for slot in slots])

    @bp.post("/slots/<slot_id>")
    def act(slot_id: str) -> Response:
        if app.settings.slot_save_path is None:
            raise ApiError(501, "This server does not save slots: start it with --slot-save-path.")
        action = as_body(SlotAction, request.args.to_dict()).action
        slot = app.submitter.slots.idle(slot_id)
        if action == "erase":
            return jsonify(id_slot=slot.id, n_erased=_erase(slot))
        name = read_body(SlotFile, request).filename
        done = _save(app, slot, name) if action == "save" else _restore(app, slot, name)
        return jsonify(id_slot=slot.id, filename=name, **done)

    return bp


def _described(slot: Slot, app: Server) -> dict[str, Any]:
    """Return a slot in llama-server's format; for other keys' requests only whether it is busy."""
    whole: dict[str, Any] = {
        "id": slot.id,
        "n_ctx": slot.engine.ctx_size,
        "speculative": False,
        "is_processing": slot.busy,
    }
    if (store := slot.engine.cache.store) is not None:
        whole["state_cache"] = {
            "snapshots": store.num_snapshots,
            "ram_bytes": store.used_bytes,
            "disk_bytes": store.disk_bytes,
            "spilled_bytes": store.counts.spilled_bytes,
            "hits": store.counts.hits,
        }
    sequence = slot.sequence
    if sequence is None or slot.owner != owner():
        return whole
    params = sequence.params
    # A finished request has no remaining budget.
    decoded = sequence.num_generated if slot.busy else 0
    most = params.max_tokens if slot.busy else None
    whole |= {
        "id_task": slot.task,
        "n_prompt_tokens": sequence.num_prompt_tokens,
        "n_prompt_tokens_processed": min(sequence.num_computed, sequence.num_prompt_tokens),
        "n_prompt_tokens_cache": sequence.num_cached,
        "params": generation_settings(params, params, slot.engine, sequence.sampler.seed),
        "next_token": [
            {
                "has_next_token": not sequence.finished,
                "has_new_line": "\n" in sequence.text,
                "n_remain": -1 if most is None else most - decoded,
                "n_decoded": decoded,
            }
        ],
    }
    if app.settings.slots_text:
        prompt = sequence.history[: sequence.num_prompt_tokens]
        whole["prompt"] = text_of(prompt, slot.engine.tokenizer)
        whole["generated"] = sequence.text
    return whole


def _save(app: Server, slot: Slot, name: str) -> dict[str, Any]:
    folder = _folder(app.settings)
    folder.mkdir(mode=0o700, exist_ok=True)
    used = sum(f.stat().st_size for f in folder.iterdir() if f.is_file() and f.name != name)
    if used >= app.settings.max_files_mb * 2**20:
        raise ApiError(413, "The folder of saved slots is full (--max-files-mb).", code="too_large")
    if (folder / name).is_symlink():  # which would be followed
        raise ApiError(400, f"'{name}' is a link on the server.", param="filename")
    sequence = _own(slot)
    started = time.perf_counter()
    saved = save(slot.engine, sequence, folder / name)
    return {
        "n_saved": saved,
        "n_written": (folder / name).stat().st_size,
        "timings": {"save_ms": _since(started)},
    }


def _restore(app: Server, slot: Slot, name: str) -> dict[str, Any]:
    path = _folder(app.settings) / name
    if path.is_symlink() or not path.is_file():
        raise ApiError(404, f"No slot was saved as '{name}'.", param="filename")
    tenant, salt = tenant_and_salt(share_cache=app.settings.share_prefix_cache)
    options = Options(tenant=tenant, cache_salt=salt)
    started = time.perf_counter()
    try:
        restored = restore(slot.engine, path, options)
    except FormatError as e:
        message = str(e).replace(str(path), name)
        raise ApiError(400, message, param="filename") from None
    slot.engine.cancel(
        restored.sequence
    )  # a sequence that was saved while running is not continued
    app.submitter.slots.record_restored(slot, restored.sequence, owner())
    return {
        "n_restored": restored.computed,
        "n_read": path.stat().st_size,
        "timings": {"restore_ms": _since(started)},
    }


def _erase(slot: Slot) -> int:
    sequence, engine = _own(slot), slot.engine
    root = sequence.cache_root
    with engine.lock:
        return engine.cache.forget(sequence.cache_ids, sequence.table.pool, root)


def _own(slot: Slot) -> Any:
    """Return the latest sequence of a slot, if it is the caller's own."""
    if slot.sequence is None or slot.owner != owner():
        raise ApiError(404, f"Slot {slot.id} has no request of yours.")
    return slot.sequence


def _folder(settings: Settings) -> Path:
    """Return the folder of the current API key; without keys the configured folder itself."""
    assert settings.slot_save_path is not None
    return settings.slot_save_path / ("" if owner() == ANONYMOUS else owner())


def _since(started: float) -> float:
    return round(1e3 * (time.perf_counter() - started), 3)

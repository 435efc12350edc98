"""A sequence on disk: saved between two steps, it goes on later as if nothing had happened.

A file is the magic, a version, the length of a JSON header and the header, the bytes of the pages
and of the slot of recurrent state, and a BLAKE2b hash of all that. Whatever can be had by going
through the tokens again (text, stop strings, structure, reasoning) is not in it. Nothing in a file is
run or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oxibonsai import _core
from oxibonsai.engine.batching import reserve
from oxibonsai.engine.context_shift import ContextShift, Shifted
from oxibonsai.engine.sequence import Options, Sequence
from oxibonsai.errors import CapacityError, FormatError, RequestError, UnsupportedError
from oxibonsai.files.whole_file import is_replaced, written_whole
from oxibonsai.sampling import SamplingParams, TokenLogprobs
from oxibonsai.structured import Structure

if TYPE_CHECKING:
    from oxibonsai.engine.engine import Engine

_MAGIC = b"OXISNAP\n"
_VERSION = 2
_FIXED = struct.Struct("<8sIQ")  # magic, version, length of the header
_DIGEST_BYTES = 32
_LARGEST_HEADER = 1 << 28


@dataclass(frozen=True)
class Restored:
    """The contents of a snapshot.

    Attributes:
        sequence: Taken in by the engine; it runs on with the next step unless it had ended.
        notes: What the caller of :func:`save` had put in.
        computed: Its tokens whose state is in the cache now.
    """

    sequence: Sequence
    notes: dict[str, Any]
    computed: int


def save(
    engine: Engine,
    sequence: Sequence,
    path: str | os.PathLike[str],
    notes: dict[str, Any] | None = None,
) -> int:
    """Write a sequence that runs, wait or has ended; under its name only when complete.

    Args:
        engine: Whose sequence it is.
        sequence: It is not changed.
        path: The file.
        notes: JSON values to keep beside it.

    Returns:
        How many tokens' state is in it: that of whole pages which the cache still has, and with
        recurrent state up to the last border of them with a snapshot.

    Raises:
        OSError: The file can't be written.
        UnsupportedError: The text has pictures, or the model an encoder.
    """
    engine.model.check_decoder_only("snapshots")
    if sequence.images is not None:
        raise UnsupportedError(
            "a text with pictures can't be saved: a snapshot holds tokens and their state, no pictures; "
            "the prefix cache keeps what is computed of it while the engine runs"
        )
    with engine.lock:
        computed, pages, slot = _state(engine, sequence)
        header = _header(engine, sequence, computed, len(pages), len(slot), notes or {})
    text = json.dumps(header, allow_nan=False).encode()
    path = Path(path)
    with written_whole(path) as file:
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for part in (_FIXED.pack(_MAGIC, _VERSION, len(text)), text, *pages, slot):
            digest.update(part)
            file.write(part)
        file.write(digest.digest())
        if is_replaced(path):
            file.flush()
            os.fsync(file.fileno())
    return computed


def restore(
    engine: Engine, path: str | os.PathLike[str], options: Options | None = None
) -> Restored:
    """Read a sequence back; its text goes on byte for byte as it would have.

    Args:
        engine: Of the same model, with pages of the same type of keys and values.
        path: The file.
        options: ``speculate``, ``constrain``, ``visible``, ``tenant`` and ``cache_salt`` of the resumed
            sequence; the rest comes from the file.

    Raises:
        FormatError: The file is no snapshot, is cut or damaged, or is of another model.
        CapacityError: The cache has no room for its pages, or no slot.
    """
    path = Path(path)
    data = path.read_bytes()
    header, state = _open(path, data)
    try:
        return _restore(engine, path, header, state, options or Options())
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise FormatError(f"{path} is no snapshot that this version can read: {e}") from e


def _state(engine: Engine, sequence: Sequence) -> tuple[int, list[bytes], bytes]:
    """How many tokens are kept with their state, the pages with it, and the slot at their end.

    Only full pages are: the rest of a page may still hold what another sequence left there.
    """
    cache, table = engine.cache, sequence.table
    computed = sequence.num_computed
    if sequence.finished:  # its state is given back; what the cache still knows is enough
        table = cache.find(sequence.tokens, table.pool, sequence.options.cache_root)
        computed = len(table.keys) * _core.PAGE_POSITIONS
    computed, slot = cache.border_state(table, computed)
    count = computed // _core.PAGE_POSITIONS
    pages = [cache.pools[table.pool].read(page) for page in table.pages[:count]]
    if sequence.finished:
        cache.release(table)
    return computed, pages, slot


def _header(
    engine: Engine,
    sequence: Sequence,
    computed: int,
    pages: int,
    slot_bytes: int,
    notes: dict[str, Any],
) -> dict[str, Any]:
    pools, options = engine.cache.pools, sequence.options
    pool = pools[sequence.table.pool] if pools else None
    return {
        "model": engine.model.fingerprint(),
        "kv_type": None if pool is None else pool.type,
        "page_bytes": 0 if pool is None else pool.page_bytes,
        "pages": pages,
        "slot_bytes": slot_bytes,
        "num_computed": computed,
        "num_prompt_tokens": sequence.num_prompt_tokens,
        "history": sequence.history,
        "tokens": None if sequence.tokens is sequence.history else sequence.tokens,
        "params": asdict(sequence.params),
        "sampler": sequence.sampler.state(),
        "structure": None if options.structure is None else options.structure.to_json(),
        "shift": None if options.shift is None else asdict(options.shift),
        "shifts": [asdict(s) for s in sequence.shifts],
        "adapter": options.adapter,
        "visible": sorted(options.visible),
        "logprobs": [[t.token, t.logprob, t.top] for t in sequence.logprobs],
        "finish_reason": sequence.finish_reason,
        "notes": notes,
    }


def _open(path: Path, data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Header and state of a file whose every byte has been checked."""
    if len(data) < _FIXED.size + _DIGEST_BYTES or not data.startswith(_MAGIC):
        raise FormatError(f"{path} is no snapshot of a sequence")
    _, version, length = _FIXED.unpack_from(data)
    if version != _VERSION:
        raise FormatError(
            f"{path} is a snapshot of version {version}; this version of oxibonsai reads {_VERSION}"
        )
    end = len(data) - _DIGEST_BYTES
    if length > min(_LARGEST_HEADER, end - _FIXED.size):
        raise FormatError(f"{path} is cut: its header of {length} bytes is longer than the file")
    view = memoryview(data)
    if hashlib.blake2b(view[:end], digest_size=_DIGEST_BYTES).digest() != data[end:]:
        raise FormatError(f"{path} is cut or damaged: its hash does not fit its content")
    try:
        header = json.loads(bytes(view[_FIXED.size : _FIXED.size + length]))
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{path} has a header that is no JSON: {e}") from e
    if not isinstance(header, dict):
        raise FormatError(f"{path} has a header that is no JSON object")
    return header, view[_FIXED.size + length : end]


def _restore(
    engine: Engine, path: Path, header: dict[str, Any], data: memoryview, given: Options
) -> Restored:
    _check_fit(engine, path, header, data)
    structure, shift = header["structure"], header["shift"]
    options = Options(
        structure=None if structure is None else Structure.from_json(structure),
        constrain=given.constrain,
        shift=None if shift is None else ContextShift(**shift),
        speculate=given.speculate,
        adapter=str(header["adapter"]),
        visible=given.visible | frozenset(header["visible"]),
        tenant=given.tenant,
        cache_salt=given.cache_salt,
    )
    history: list[int] = header["history"]
    prompt = history[: header["num_prompt_tokens"]]
    params = _params(header["params"])
    engine.check_ids(history)
    sequence = engine.make_sequence(prompt, params, options)
    _replay(sequence, history[len(prompt) :], engine.eos_ids)
    sequence.sampler.restore(header["sampler"])
    if header["tokens"] is not None:
        sequence.tokens = header["tokens"]
    engine.check_prompt(sequence.tokens)
    sequence.shifts = [Shifted(**s) for s in header["shifts"]]
    sequence.logprobs = [
        TokenLogprobs(token, logprob, tuple((int(i), float(p)) for i, p in top))
        for token, logprob, top in header["logprobs"]
    ]
    reason, notes = header["finish_reason"], header["notes"]
    computed = header["num_computed"]
    if not 0 <= computed <= len(sequence.tokens):
        raise FormatError(f"{path} has num_computed {computed} of {len(sequence.tokens)} tokens")
    with engine.lock:
        sequence.table.pool = _pool(engine, header["kv_type"])
        _fill_state(engine, sequence, computed, header["page_bytes"], data)
        engine.adopt(sequence, computed, reason)
    return Restored(sequence, notes, computed)


def _check_fit(engine: Engine, path: Path, header: dict[str, Any], data: memoryview) -> None:
    if header["model"] != engine.model.fingerprint():
        raise FormatError(
            f"{path} is a snapshot of another model, or of other adapters, than what is loaded"
        )
    if not engine.knows_adapter(str(header["adapter"])):
        raise RequestError(
            f"{path} was saved with adapters that this engine has not been given yet: call "
            "Engine.adapter_key() with the same adapters and scales, then restore it"
        )
    cache = engine.cache
    types = [p.type for p in cache.pools]
    known = header["kv_type"] in types if types else header["kv_type"] is None
    if not known:
        raise FormatError(
            f"{path} holds keys and values of type {header['kv_type']}, the engine has "
            f"{', '.join(types) or 'none'}: load the model with --kv-type {header['kv_type']}"
        )
    page_bytes = cache.pools[_pool(engine, header["kv_type"])].page_bytes if types else 0
    runs, rest = divmod(header["num_computed"], _core.PAGE_POSITIONS)
    slot_bytes = 0 if cache.slots is None or runs == 0 else cache.slots.memory.slot_bytes
    fits = (header["page_bytes"], header["slot_bytes"]) == (page_bytes, slot_bytes)
    fits = fits and header["pages"] == (runs if types else 0) and rest == 0
    if not fits or header["pages"] * page_bytes + slot_bytes != len(data):
        raise FormatError(f"{path} has state of another size or number than its header says")


def _pool(engine: Engine, kv_type: str | None) -> int:
    if kv_type is None:
        return 0
    return [p.type for p in engine.cache.pools].index(kv_type)


def _params(values: dict[str, Any]) -> SamplingParams:
    """Parameters as JSON keeps them: lists for tuples, text for the keys of a map."""
    unknown = set(values) - {f.name for f in fields(SamplingParams)}
    if unknown:
        raise RequestError(f"unknown sampling parameter {min(unknown)}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    values["logit_bias"] = {int(k): v for k, v in values["logit_bias"].items()}
    return SamplingParams(**values)


def _replay(sequence: Sequence, generated: list[int], eos_ids: frozenset[int]) -> None:
    """Leads everything that follows the text through the generated tokens again."""
    for i, token in enumerate(generated):
        sequence.append(token)
        if i < len(generated) - 1 or not sequence.ends_with(token, eos_ids):
            sequence.follow(token)
        else:
            sequence.finish("stop", token)


def _fill_state(
    engine: Engine, sequence: Sequence, computed: int, size: int, data: memoryview
) -> None:
    if computed == 0:
        return
    cache, table = engine.cache, sequence.table
    try:
        reserve(cache, table, 0, computed)
    except CapacityError:
        cache.release(table)
        raise
    for i, page in enumerate(table.pages):
        cache.pools[table.pool].write(page, bytes(data[i * size : (i + 1) * size]))
    if cache.slots is not None and table.slot is not None:
        cache.slots.memory.write(table.slot.index, bytes(data[len(table.pages) * size :]))
        table.slot.position = computed

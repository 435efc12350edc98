"""Access control: API keys, the owner that a key identifies, and rate limits."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from flask import Flask, Response, current_app, g, has_request_context, request
from werkzeug.datastructures import Headers

from oxibonsai.errors import RequestError
from oxibonsai.server.errors import ApiError
from oxibonsai.server.http.client import IS_REPEAT
from oxibonsai.server.limits import ANONYMOUS, Caller, RequestLimits, TokenLimits
from oxibonsai.server.rate_limit import Balance

_log = logging.getLogger("oxibonsai.server")


def openai_headers(what: str) -> list[str]:
    """Return OpenAI's names of the headers of a limit, of ``requests`` or ``tokens``."""
    return [f"X-RateLimit-{value}-{what.title()}" for value in ("Limit", "Remaining", "Reset")]


def anthropic_headers(what: str) -> list[str]:
    """Return Anthropic's names of the same headers."""
    return [f"anthropic-ratelimit-{what}-{value}" for value in ("limit", "remaining", "reset")]


RATE_HEADERS = [
    name
    for what in ("requests", "tokens")
    for name in (*openai_headers(what), *anthropic_headers(what))
]
# WSGI key of requests that the server itself makes: the owner they are made for. Clients can't set it.
ACTING_FOR = "oxibonsai.acting_for"
_acting_for: ContextVar[str | None] = ContextVar("acting_for", default=None)
_View = TypeVar("_View", bound=Callable[..., Any])


def public(view: _View) -> _View:
    """Mark a view that needs no API key and has no rate limit: probes, static files."""
    view.is_public = True  # type: ignore[attr-defined]
    return view


def for_admins(view: _View) -> _View:
    """Mark a view that changes the server for all keys: with admin keys, it needs one of them."""
    view.is_for_admins = True  # type: ignore[attr-defined]
    return view


def check_admin() -> None:
    """Refuse a part of a request that changes the server for all keys, as :func:`for_admins` does.

    Raises:
        ApiError: There are admin keys, and the request has none of them.
    """
    if not g.is_admin:
        raise ApiError(
            403, "This changes the server for everybody: it needs a key of --admin-key-file.",
            code="admin_key_required",
        )  # fmt: skip


def owner() -> str:
    """Return the owner of the current request; it sees no objects of other owners."""
    return str(g.owner)


def current_owner() -> str | None:
    """Return the owner of the current request or background task; None outside of both."""
    return _acting_for.get() or (owner() if has_request_context() else None)


def current_caller() -> Caller | None:
    """Return who is limited in the current request or background task; None outside of both."""
    acting = _acting_for.get()
    if acting is not None:
        return Caller.behind(acting)
    caller: Caller | None = g.get("caller") if has_request_context() else None
    return caller


@contextmanager
def acting_for(owner_id: str) -> Iterator[None]:
    """Set the owner for background work in the block."""
    token = _acting_for.set(owner_id)
    try:
        yield
    finally:
        _acting_for.reset(token)


class KeyRing:
    """The accepted API keys: fixed ones, and those in files, which are reloaded when they change.

    Only digests are stored. If a changed file can't be read, the keys stay as they were.

    Raises:
        RequestError: A file can't be read at the start, or contains no key.
    """

    def __init__(self, keys: Iterable[str] = (), files: Sequence[Path] = ()) -> None:
        self._fixed = {_digest(k) for k in keys}
        self._files = files
        self._lock = threading.Lock()
        self._stamp = self._stamps()
        self._digests = self._fixed | self._read_files()

    @property
    def is_open(self) -> bool:
        """Whether no keys are configured, so that everyone may call."""
        return not self._fixed and not self._files

    def accepts(self, key: str) -> bool:
        """Return whether ``key`` is accepted, compared in constant time."""
        digest = _digest(key)
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        return found

    def refresh(self, *, force: bool = False) -> None:
        """Reload the files if one has changed, or always with ``force``."""
        with self._lock:
            stamp = self._stamps()
            if stamp == self._stamp and not force:
                return
            try:
                self._digests = self._fixed | self._read_files()
            except RequestError as e:
                _log.error("the API keys are unchanged: %s", e)
            else:
                _log.info("API keys reloaded: %d", len(self._digests))
            self._stamp = stamp

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files]

    def _read_files(self) -> set[bytes]:
        digests = set()
        for path in self._files:
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as e:
                raise RequestError(f"cannot read the API keys in {path}: {e}") from e
            keys = [line.strip() for line in lines]
            found = {_digest(k) for k in keys if k and not k.startswith("#")}
            if not found:
                raise RequestError(f"{path} contains no API key: put one on each line")
            digests |= found
        return digests


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def owner_of(key: str) -> str:
    """Return the owner id of a key: a hash, so it reveals nothing and is the same after a restart."""
    return hashlib.sha256(b"oxibonsai owner\0" + key.encode("utf-8", "surrogateescape")).hexdigest()


class Callers:
    """Tells who sends a request, by its API key.

    Args:
        keys: API keys.
        admins: Keys that are API keys, too.
    """

    def __init__(self, keys: KeyRing, admins: KeyRing) -> None:
        self._keys, self._admins = keys, admins

    def owner(self, key: str | None) -> str | None:
        """Return the owner of a valid key; None for any other.

        An admin key has objects of its own even where everyone may call.
        """
        if key is None:
            return None
        known = any(ring.accepts(key) for ring in (self._keys, self._admins) if not ring.is_open)
        return owner_of(key) if known else None

    def admits(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request may send a body: it has a valid key, or there are none."""
        self._keys.refresh()
        self._admins.refresh()
        return self._keys.is_open or self.owner(sent_key(headers)) is not None

    def sharer(self, headers: Mapping[str, str]) -> str:
        """Return whose share of the threads a request uses; ``""``: there are no keys to tell."""
        return "" if self._keys.is_open else self.owner(sent_key(headers)) or ANONYMOUS


def _show_balances(tokens: TokenLimits, clock: Callable[[], float], response: Response) -> None:
    """Add headers of the caller's limits under the names of the API."""
    caller: Caller | None = g.get("caller")
    if caller is None or ACTING_FOR in request.environ:
        return
    balances = {"requests": g.get("balance"), "tokens": tokens.balance(caller)}
    for what, balance in balances.items():
        if balance is None:
            continue
        values = [str(int(balance.capacity)), str(int(balance.left))]
        if request.path.startswith("/v1/messages"):
            names = anthropic_headers(what)
            values.append(_time(clock() + balance.until_full))
        else:
            names = openai_headers(what)
            values.append(duration(balance.until_full))
        response.headers.update(zip(names, values, strict=True))


def _time(seconds: float) -> str:
    """Return a Unix time as RFC 3339 writes it, in whole seconds."""
    found = datetime.fromtimestamp(math.ceil(seconds), UTC)
    return found.isoformat().replace("+00:00", "Z")


def duration(seconds: float) -> str:
    """Return a time as OpenAI's headers write it: ``20ms``, ``1.5s``, ``6m0s``, ``1h0m2s``."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"


def register_access(
    app: Flask,
    keys: KeyRing,
    requests: RequestLimits,
    tokens: TokenLimits,
    admins: KeyRing,
    callers: Callers,
    clock: Callable[[], float] = time.time,
) -> None:
    """Check every request before its view; views need a key unless they are :func:`public`.

    Args:
        app: The application.
        keys: API keys.
        requests: Limits requests by caller.
        tokens: Limits tokens by caller; requests take them where they know them.
        admins: Keys for views that are :func:`for_admins`, which are API keys, too. Without any, all
            callers are admins.
        callers: Of both kinds of keys.
        clock: Unix time.
    """

    def check() -> None:
        g.owner = request.environ.get(ACTING_FOR, ANONYMOUS)
        g.is_admin = admins.is_open
        if ACTING_FOR in request.environ:
            g.caller = Caller.behind(g.owner, is_batch=True)
            return
        view = current_app.view_functions.get(request.endpoint or "")
        # A CORS preflight request never has a key, and reaches no view.
        if getattr(view, "is_public", False) or request.method == "OPTIONS":
            return
        keys.refresh()
        admins.refresh()
        key = sent_key(request.headers)
        g.is_admin = admins.is_open or (key is not None and admins.accepts(key))
        found = callers.owner(key)
        if found is not None:
            g.owner = found
        known = found is not None or keys.is_open
        sent = owner_of(key) if key is not None and known else None
        # Keys can't be guessed quickly: callers without a valid one share their limits.
        g.caller = Caller(sent, found, _network() if keys.is_open else ANONYMOUS)
        is_repeat = request.environ.get(IS_REPEAT, False)  # counted before
        g.balance = None if is_repeat else requests.take(g.caller)
        _refuse_excess(g.balance)
        if not known:
            raise ApiError(401, _refusal(key), code="invalid_api_key")
        # Not before: those who have no key must not be able to use up what is there for all.
        if not is_repeat:
            g.balance = requests.take_together(g.caller, g.balance)
        _refuse_excess(g.balance)
        if getattr(view, "is_for_admins", False):
            check_admin()

    def show(response: Response) -> Response:
        _show_balances(tokens, clock, response)
        return response

    app.before_request(check)
    app.after_request(show)


def _refuse_excess(balance: Balance | None) -> None:
    if balance is not None and balance.wait > 0:
        raise ApiError(
            429, "Too many requests: try again after the time in Retry-After.",
            code="rate_limit_exceeded", retry_after=balance.wait,
        )  # fmt: skip


def _network() -> str:
    """Return the client's address; for IPv6 its /64 network, since a client usually has one of its own."""
    address = request.remote_addr or ""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket has none
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def sent_key(headers: Mapping[str, str] | Headers) -> str | None:
    """Return the API key of a request; None if it has none."""
    header = headers.get("Authorization", "")
    scheme, _, token = header.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("X-Api-Key") or None


def _refusal(key: str | None) -> str:
    if key is None:
        return "API key missing: send it as 'Authorization: Bearer KEY' or 'X-Api-Key: KEY'."
    return "Invalid API key."

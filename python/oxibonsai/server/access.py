"""Access control: API keys, the owner that a key identifies, and rate limits."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from flask import Flask, Response, current_app, g, has_request_context, request
from werkzeug.datastructures import Headers

from oxibonsai.errors import RequestError
from oxibonsai.server.errors import ApiError
from oxibonsai.server.rate_limit import Balance, Buckets, Rate

_log = logging.getLogger("oxibonsai.server")

ANONYMOUS = "anonymous"
# As OpenAI names them.
RATE_HEADERS = tuple(f"X-RateLimit-{what}-Requests" for what in ("Limit", "Remaining", "Reset"))
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
        """Return the owner of a valid key; None for any other, and where no keys are configured."""
        if key is None or self._keys.is_open:
            return None
        known = self._keys.accepts(key) or (not self._admins.is_open and self._admins.accepts(key))
        return owner_of(key) if known else None

    def sharer(self, headers: Mapping[str, str]) -> str:
        """Return whose share of the threads a request uses; ``""``: there are no keys to tell."""
        return "" if self._keys.is_open else self.owner(sent_key(headers)) or ANONYMOUS


class RequestRates:
    """Limits how many requests each caller sends.

    A key with a rate of its own has a bucket of its own, as has every accepted key where all have a
    rate. The other callers share one bucket if there is a rate for them. Else, where no keys are
    configured, each address has its own; callers without a valid key share one, so that keys can't be
    guessed quickly.

    Args:
        buckets: Where the buckets are.
        each: Rate of each caller that has no other; None: no limit.
        per_key: Rates of single keys.
        anonymous: Rate of all callers without a known key together; None: as ``each`` says.
        burst: Capacity of buckets whose rate has none.
    """

    def __init__(
        self,
        buckets: Buckets,
        *,
        each: Rate | None,
        per_key: Mapping[str, Rate],
        anonymous: Rate | None,
        burst: int,
    ) -> None:
        self._buckets = buckets
        self._each = each and each.holding(burst)
        self._per_key = {_digest(key): rate.holding(burst) for key, rate in per_key.items()}
        self._anonymous = anonymous and anonymous.holding(burst)

    def take(self, key: str | None, found: str | None, *, is_open: bool) -> Balance | None:
        """Count the current request; None if its caller has no limit.

        Args:
            key: The key that it was sent with.
            found: The owner of this key, if it is accepted.
            is_open: No keys are configured.
        """
        if key is not None and (found is not None or is_open):
            own = self._per_key.get(_digest(key))
            if own is not None:
                return self._buckets.take(owner_of(key), own)
        if found is None and self._anonymous is not None:
            return self._buckets.take(ANONYMOUS, self._anonymous)
        if self._each is None:
            return None
        return self._buckets.take(found or (_network() if is_open else ANONYMOUS), self._each)


def _show_balance(response: Response) -> Response:
    """Add OpenAI's headers of a rate limit."""
    balance: Balance | None = g.get("balance")
    if balance is not None:
        values = (int(balance.capacity), int(balance.left), duration(balance.until_full))
        response.headers.update(zip(RATE_HEADERS, map(str, values), strict=True))
    return response


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
    app: Flask, keys: KeyRing, rates: RequestRates, admins: KeyRing, callers: Callers
) -> None:
    """Check every request before its view; views need a key unless they are :func:`public`.

    Args:
        app: The application.
        keys: API keys.
        rates: Limits requests by caller.
        admins: Keys for views that are :func:`for_admins`, which are API keys, too. Without any, all
            callers are admins.
        callers: Of both kinds of keys.
    """

    def check() -> None:
        g.owner = request.environ.get(ACTING_FOR, ANONYMOUS)
        g.is_admin = admins.is_open
        if ACTING_FOR in request.environ:
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
        g.balance = rates.take(key, found, is_open=keys.is_open)
        if g.balance is not None and g.balance.wait > 0:
            raise ApiError(
                429, "Too many requests: try again after the time in Retry-After.",
                code="rate_limit_exceeded", retry_after=g.balance.wait,
            )  # fmt: skip
        if found is None and not keys.is_open:
            raise ApiError(401, _refusal(key), code="invalid_api_key")
        if getattr(view, "is_for_admins", False):
            check_admin()

    app.before_request(check)
    app.after_request(_show_balance)


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

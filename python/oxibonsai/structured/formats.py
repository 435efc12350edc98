"""Formats of strings in JSON schemas that we enforce, and how."""

from __future__ import annotations

_DAYS = (
    r"(((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01]))|((0[469]|11)-(0[1-9]|[12][0-9]|30))"
    r"|(02-(0[1-9]|1[0-9]|2[0-8])))"
)
_YEAR = r"(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
# Years that 4 divides and 100 does not; years that 400 divides.
_LEAP_YEAR = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_HOUR_MINUTE = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_DATE = f"({_YEAR}-{_DAYS}|{_LEAP_YEAR}-02-29)"
# RFC 3339 without leap seconds; a fraction has up to 9 digits, so that a model finds its end.
_TIME = rf"{_HOUR_MINUTE}:[0-5][0-9](\.[0-9]{{1,9}})?([Zz]|[+-]{_HOUR_MINUTE})"

# llguidance's own patterns let the 30th of February and leap seconds at any time pass.
PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[Tt]{_TIME}$",
}

# Enforced by llguidance to the letter of the JSON-Schema-Test-Suite.
NATIVE = {"duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}

r"""Patterns of JSON schema (ECMA-262) in the dialect of llguidance (Rust's regex).

Where readers of a pattern disagree (is a letter with an accent a ``\w``? does ``.`` match a carriage
return?), the pattern is taken at its narrowest: what we let through fits all of them. Outside of
``[^...]`` that is the smallest set of characters, inside the largest.
"""

from __future__ import annotations

import re

_BLANKS = r"\t-\r\u{20}\u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}"
_MORE_BLANKS = _BLANKS + r"\u{1c}-\u{1f}\u{85}\u{feff}"
_WORD = "0-9A-Za-z_"
_MORE_WORD = r"\p{L}\p{M}\p{N}\p{Pc}"

# Members of each class, at the narrowest and at the widest.
_CLASSES = {
    "d": ("0-9", r"\p{N}"),
    "D": (r"\P{N}", "[^0-9]"),
    "w": (_WORD, _MORE_WORD),
    "W": (f"[^{_MORE_WORD}]", f"[^{_WORD}]"),
    "s": (_BLANKS, _MORE_BLANKS),
    "S": (f"[^{_MORE_BLANKS}]", f"[^{_BLANKS}]"),
}
_ANY = r"[^\n\r\u{2028}\u{2029}]"
_MAX_DEPTH = 100  # of groups
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}

_GROUP = re.compile(r"\((?:\?:|\?<[A-Za-z_]\w*>)?(?!\?)")
_QUANTIFIER = re.compile(r"([*+?]|\{[0-9]{1,9}(?:,[0-9]{0,9})?\})\??")
_PROPERTY = re.compile(r"\\[pP]\{\w+(?:=\w+)?\}")
_PAIR = re.compile(r"\\u[dD]([89abAB][0-9a-fA-F]{2})\\u[dD]([c-fC-F][0-9a-fA-F]{2})")
_CODE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\})")


def translated(pattern: str) -> str:
    """Return the pattern in Rust's dialect.

    Raises:
        ValueError: It is no pattern of ECMA-262, or has parts that no automaton can follow
            (look-around, word borders, back references); says which and where.
    """
    return _Translation(pattern).run()


def literal(text: str) -> str:
    """Return a pattern of one text, in Rust's dialect."""
    return "".join(_character(ord(c)) for c in text)


class _Translation:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def run(self) -> str:
        parts: list[str] = []
        may_repeat = False
        while self._at < len(self._pattern):
            quantifier = _QUANTIFIER.match(self._pattern, self._at)
            if quantifier is not None:
                if not may_repeat:
                    raise self._error(f"{quantifier[0]!r} repeats nothing")
                self._at = quantifier.end()
                parts.append(quantifier[1])  # lazy or not: the same texts match
                may_repeat = False
                continue
            part = self._part()
            may_repeat = part not in ("^", "$", "|") and not part.startswith("(")
            parts.append(part)
        if self._depth:
            raise self._error("a group has no end")
        return "".join(parts)

    def _part(self) -> str:
        c = self._pattern[self._at]
        if c == "(":
            group = _GROUP.match(self._pattern, self._at)
            if group is None:
                raise self._error("look-around and flags are not supported")
            self._at = group.end()
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                raise self._error(f"groups are nested more than {_MAX_DEPTH} deep")
            return "(?:"
        if c == "[":
            return self._class()
        if c == "\\":
            members, code = self._escape(wide=False)
            return f"[{members}]" if code is None else _character(code)
        if c == "{":
            raise self._error("'{' begins no repetition")
        if c == ")":
            self._depth -= 1
            if self._depth < 0:
                raise self._error("')' ends no group")
        self._at += 1
        if c == ".":
            return _ANY
        return c if c in "^$|)" else _character(ord(c))

    def _class(self) -> str:
        start = self._at
        negated = self._pattern.startswith("[^", start)
        self._at += 2 if negated else 1
        items: list[str] = []
        while not self._pattern.startswith("]", self._at):
            items.append(self._range(wide=negated))
        self._at += 1
        if not items:
            raise ValueError(f"empty class at index {start}")
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _range(self, *, wide: bool) -> str:
        members, low = self._member(wide=wide)
        dash = self._pattern.startswith("-", self._at)
        if not dash or self._pattern.startswith("-]", self._at):
            return members if low is None else _character(low)
        self._at += 1
        _, high = self._member(wide=wide)
        if low is None or high is None or low > high:
            raise self._error("a range does not go from one character up to another")
        return f"{_character(low)}-{_character(high)}"

    def _member(self, *, wide: bool) -> tuple[str, int | None]:
        if self._at >= len(self._pattern):
            raise self._error("a class has no end")
        c = self._pattern[self._at]
        if c == "\\":
            return self._escape(wide=wide)
        self._at += 1
        return "", ord(c)

    def _escape(self, *, wide: bool) -> tuple[str, int | None]:
        """Return the members of a class, or the code of one character."""
        start = self._at
        named = _PROPERTY.match(self._pattern, start)
        if named is not None:
            self._at = named.end()
            return named[0], None
        pair = _PAIR.match(self._pattern, start)
        if pair is not None:
            self._at = pair.end()
            high, low = (int(half, 16) & 0x3FF for half in pair.groups())
            return "", 0x10000 + (high << 10) + low
        code = _CODE.match(self._pattern, start)
        if code is not None:
            self._at = code.end()
            return "", int(next(digits for digits in code.groups() if digits), 16)
        return self._short_escape(wide=wide)

    def _short_escape(self, *, wide: bool) -> tuple[str, int | None]:
        c = self._pattern[self._at + 1 : self._at + 2]
        after = self._pattern[self._at + 2 : self._at + 3]
        if c == "c" and after.isascii() and after.isalpha():
            self._at += 3
            return "", ord(after) % 32
        if c in _CLASSES:
            self._at += 2
            return _CLASSES[c][wide], None
        if c in _CONTROLS:
            self._at += 2
            return "", _CONTROLS[c]
        if not c or c.isalnum() or not c.isascii():
            raise self._error(f"'\\{c}' is not supported")
        self._at += 2
        return "", ord(c)

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{what} at index {self._at}")


def _character(code: int) -> str:
    if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
        raise ValueError(f"U+{code:04X} is no character")
    c = chr(code)
    return c if c.isascii() and c.isalnum() else f"\\u{{{code:x}}}"


# Formats of strings that we enforce.
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
FORMAT_PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[Tt]{_TIME}$",
}

# Enforced by llguidance to the letter of the JSON-Schema-Test-Suite.
NATIVE_FORMATS = {"duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}

"""Writes the table of parameters in docs/sampling.md from ``oxibonsai.sampling.PARAMETERS``.

python tests/truth/make make_parameter_table
"""

from __future__ import annotations

from pathlib import Path

from oxibonsai.sampling import PARAMETERS, Parameter
from oxibonsai.sampling.checks import Each, OrNone, flag

PAGE = Path(__file__).resolve().parents[3] / "docs" / "sampling.md"
_BEGIN = "<!-- Written by tests/truth/make/make_parameter_table.py -->\n"
_END = "<!-- End of the table -->\n"
_HEAD = """| field of `SamplingParams` | range | default | server's | requests | Ollama | options | |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def _range(p: Parameter) -> str:
    if p.check is flag:
        return "true, false"
    if isinstance(p.check, Each):
        return "list"
    if p.number is None and not isinstance(p.check, OrNone):
        return "ids to -100 ... 100"
    b = p.bounds
    low = f"above {b.low:g}" if b.above else f"{b.low:g}"
    if b.high is None or b.high >= 2**31 - 1:
        return low if b.above else f"{low} or more"
    return f"{low}{' to' if b.above else ' ...'} {b.high:g}"


def _default(p: Parameter) -> str:
    if p.default is None or p.default in ((), {}):
        return ""
    if isinstance(p.default, tuple):
        return "[above](#the-steps)" if p.name == "samplers" else f"{len(p.default)} marks"
    return f"{p.default:g}" if p.number is not None else str(p.default).lower()


def _code(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(p: Parameter) -> str:
    server = "" if p.server is None else f"{p.server:g}"
    ollama = p.request[0] if p.ollama else p.name if p.name in ("seed", "stop") else ""
    cells = (
        f"`{p.name}`", _range(p), _default(p), server, _code(p.request), _code((ollama,) if ollama else ()),
        _code(p.options), p.text,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") + "\n"


def page() -> str:
    """Return docs/sampling.md with the table of the package."""
    before, rest = PAGE.read_text(encoding="utf-8").split(_BEGIN)
    _, after = rest.split(_END)
    return before + _BEGIN + _HEAD + "".join(map(_row, PARAMETERS.values())) + _END + after


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

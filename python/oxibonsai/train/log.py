"""Log a run: a row of CSV each step, its progress on stderr, and a plot of the losses."""

from __future__ import annotations

import csv
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from types import TracebackType

from oxibonsai.errors import FormatError
from oxibonsai.files.figures import save_losses
from oxibonsai.files.step_progress import step_progress
from oxibonsai.files.whole_file import written_whole


@dataclass(frozen=True)
class Row:
    """A row of ``log.csv``.

    Attributes:
        step: Updates so far.
        tokens: Tokens learnt from so far.
        loss: What the update made smaller.
        entropy: Cross-entropy of the batch, nats a token.
        held_out: Cross-entropy of the held-out texts, nats a token, or None between measurements.
        learning_rate: Of AdamW.
        gradient_norm: Before clipping.
        tokens_per_second: Since the row before, or the start.
    """

    step: int
    tokens: int
    loss: float
    entropy: float
    held_out: float | None
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float


class Log:
    """``log.csv`` of a run, and its progress on stderr."""

    def __init__(self, folder: Path, steps: int, done: int) -> None:
        """Keep rows of the first ``done`` steps; drop later ones, of a run that was killed."""
        self._file = folder / "log.csv"
        rows = read_rows(self._file)[:done]
        with written_whole(self._file) as out:
            lines = [[f.name for f in fields(Row)], *map(_cells, rows)]
            out.write("".join(",".join(line) + "\n" for line in lines).encode())
        self._out = self._file.open("a", encoding="utf-8", newline="")
        self._steps = steps
        self._shown = step_progress("Training", "steps")

    def __enter__(self) -> Log:
        self._progress = self._shown.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self._shown.__exit__(kind, e, at)
        self._out.close()

    def add(self, row: Row) -> None:
        """Write a row, which stays should the run be killed."""
        csv.writer(self._out, lineterminator="\n").writerow(_cells(row))
        self._out.flush()
        text = f"loss {row.loss:.3f}, {row.tokens_per_second:,.0f} tokens/s"
        self._progress(row.step, self._steps, text)


def _cells(row: Row) -> list[str]:
    return [
        "" if v is None else format(v, ".6g") if isinstance(v, float) else str(v)
        for v in astuple(row)
    ]


def read_rows(file: Path) -> list[Row]:
    """Return the rows of a ``log.csv``; none where there is no file. An unfinished last row is left out.

    Raises:
        FormatError: It is another kind of file.
    """
    if not file.exists():
        return []
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1].splitlines()
    try:
        return [_row(r) for r in csv.DictReader(whole)]
    except (KeyError, TypeError, ValueError) as e:
        raise FormatError(f"{file} is no log of oxibonsai train: {e}") from e


def _row(r: dict[str, str]) -> Row:
    return Row(
        int(r["step"]),
        int(r["tokens"]),
        float(r["loss"]),
        float(r["entropy"]),
        float(r["held_out"]) if r["held_out"] else None,
        float(r["learning_rate"]),
        float(r["gradient_norm"]),
        float(r["tokens_per_second"]),
    )


def plot(folder: Path) -> Path:
    """Draw ``loss.png`` of the folder's ``log.csv``: cross-entropy by tokens."""
    rows = read_rows(folder / "log.csv")
    place = folder / "loss.png"
    save_losses(
        place,
        [(r.tokens, r.entropy) for r in rows],
        [(r.tokens, r.held_out) for r in rows if r.held_out is not None],
        x="tokens",
        y="cross-entropy, nats a token",
    )
    return place

"""The results of ``oxibonsai bench`` in llama-bench's formats, under its names."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

Record = dict[str, str | int | float]


class Test(NamedTuple):
    """One measurement.

    Attributes:
        prompt: Tokens of a prompt that are read.
        generated: Tokens that are generated.
        depth: Tokens of the context before them.
    """

    prompt: int
    generated: int
    depth: int = 0

    @property
    def name(self) -> str:
        """Return llama-bench's name: pp512, tg128, pp512+tg128, with @ d4096 behind it."""
        parts = ([f"pp{self.prompt}"] if self.prompt else []) + (
            [f"tg{self.generated}"] if self.generated else []
        )
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")


def records(
    model: Record, began: str, rates: Sequence[tuple[Test, Sequence[float]]]
) -> list[Record]:
    """Return a record for each test, with the fields of llama-bench that there is something to say of.

    Args:
        model: Fields that are the same for all tests.
        began: When the measurement began, in ISO 8601.
        rates: Tokens per second of each round of each test.
    """
    return [
        {
            **model,
            "n_prompt": test.prompt,
            "n_gen": test.generated,
            "n_depth": test.depth,
            "test_time": began,
            "avg_ts": round(statistics.mean(found), 6),
            "stddev_ts": round(statistics.stdev(found), 6) if len(found) > 1 else 0.0,
        }
        for test, found in rates
    ]


def _csv(rows: Sequence[Record]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _md(rows: Sequence[Record]) -> str:
    lines = [
        "| model | size | params | backend | threads | test | t/s |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        test = Test(int(row["n_prompt"]), int(row["n_gen"]), int(row["n_depth"]))
        cells = (
            row["model_type"], f"{float(row['model_size']) / 2**20:.2f} MiB",
            f"{float(row['model_n_params']) / 1e6:.2f} M", row["backends"], row["n_threads"], test.name,
            f"{row['avg_ts']:.2f} ± {row['stddev_ts']:.2f}",
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _sql(rows: Sequence[Record]) -> str:
    kinds = {str: "TEXT", int: "INTEGER", float: "REAL"}
    columns = ",\n".join(f"  {name} {kinds[type(value)]}" for name, value in rows[0].items())
    lines = [f"CREATE TABLE IF NOT EXISTS llama_bench (\n{columns}\n);", ""]
    for row in rows:
        values = ", ".join(
            "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
            for value in row.values()
        )
        lines.append(f"INSERT INTO llama_bench ({', '.join(row)}) VALUES ({values});")
    return "\n".join(lines)


FORMATS: dict[str, Callable[[Sequence[Record]], str]] = {
    "csv": _csv,
    "json": lambda rows: json.dumps(rows, indent=2),
    "jsonl": lambda rows: "\n".join(map(json.dumps, rows)),
    "md": _md,
    "sql": _sql,
}

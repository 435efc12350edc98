"""Writes what compare_llama_cpp.py measured: JSON for programs, a Markdown table for readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_report(report: dict[str, Any], folder: Path) -> str:
    """Writes MODEL-TIER.json and MODEL-TIER.md; returns the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{Path(report['model']).stem}-{report['machine']['tier']}"
    text = markdown(report)
    (folder / f"{stem}.json").write_text(json.dumps(report, indent=2) + "\n")
    (folder / f"{stem}.md").write_text(text)
    return text


def markdown(report: dict[str, Any]) -> str:
    """Where and how it was measured, then one line of a table per test."""
    machine, ours, theirs = report["machine"], report["oxibonsai"], report["llama_cpp"]
    lines = [
        f"# {report['model']}: oxibonsai beside llama.cpp",
        "",
        f"    {report['command']}",
        "",
        f"- Machine: {machine['cpu']}, {machine['system']}, {machine['threads']} threads; memory "
        f"reads {_rate(report['read_gb_s'])} GB/s",
        f"- oxibonsai {ours['version']}: tier {machine['tier']}, {_resources(ours)}",
        f"- llama-cpp-python {theirs['version']}{_other_model(report)}: {_resources(theirs)}",
        f"- It was built with: {theirs['system_info']}",
        "",
        f"Tokens per second: median of {report['repetitions']} rounds, least to most in brackets. "
        "Ratios and shares are of a round. Turns from which the host stole processor time are taken "
        f"again: {sum(row['turns_repeated'] for row in report['rows'])} were; from those that "
        f"count it took at most {max(row['most_stolen'] for row in report['rows']):.0%}.",
        "",
        "| test | oxibonsai | llama.cpp | ratio | oxibonsai's share of bandwidth | llama.cpp's |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(row) for row in report["rows"]),
    ]
    return "\n".join(lines) + "\n"


def _other_model(report: dict[str, Any]) -> str:
    if report["peer_model"] == report["model"]:
        return ""
    return f" on {report['peer_model']}, the same weights"


def _resources(engine: dict[str, Any]) -> str:
    return (
        f"{engine['kv_type']} keys and values, {engine['peak_bytes'] / 1e6:.0f} MB at its peak "
        f"(mapped files included), {engine['idle_cpu_ms_per_wait']:.1f} ms burned in each wait"
    )


def _row(row: dict[str, Any]) -> str:
    ratio = row["ratio"]
    shares = [row.get("share_of_bandwidth"), row.get("llama_cpp_share_of_bandwidth")]
    cells = [
        row["test"],
        _rate(row["oxibonsai"]),
        _rate(row["llama_cpp"]),
        f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})",
        *("" if share is None else f"{share:.0%}" for share in shares),
    ]
    return f"| {' | '.join(cells)} |"


def _rate(rates: dict[str, float]) -> str:
    return f"{rates['median']:.1f} ({rates['min']:.1f} to {rates['max']:.1f})"

"""Records the names of the options of llama.cpp, Ollama and mflux into ``truth/option_names.json``.

    python tests/truth/make make_option_names LLAMA_CPP OLLAMA MFLUX

Each is a folder of that project's sources. Names, numbers of values and environment variables are
recorded, none of the texts.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUT = Path(__file__).parents[1] / "option_names.json"
# llama.cpp's programs, with what its table of options calls them.
LLAMA_CPP = {
    "llama-cli": "CLI",
    "llama-completion": "COMPLETION",
    "llama-server": "SERVER",
    "llama-perplexity": "PERPLEXITY",
    "llama-imatrix": "IMATRIX",
    "llama-embedding": "EMBEDDING",
    "llama-mtmd-cli": "MTMD",
    "llama-tokenize": "TOKENIZE",
}
# Programs that read their options themselves.
OWN_PARSERS = {
    "llama-bench": "tools/llama-bench/llama-bench.cpp",
    "llama-quantize": "tools/quantize/quantize.cpp",
    "llama-gguf-split": "tools/gguf-split/gguf-split.cpp",
}
MFLUX = {
    "mflux-generate": "flux/cli/flux_generate.py",
    "mflux-generate-flux2": "flux2/cli/flux2_generate.py",
    "mflux-generate-flux2-edit": "flux2/cli/flux2_edit_generate.py",
}
Row = dict[str, Any]

_NAMES = re.compile(r'\{((?:\s*"[^"]+"\s*,?)+)\}')


def _strings(text: str) -> list[str]:
    return re.findall(r'"([^"]+)"', text)


def _of_table(source: str) -> Iterator[tuple[Row, set[str]]]:
    """Yield each option of ``common/arg.cpp`` with the programs that it is for."""
    several = {
        name: set(re.findall(r"LLAMA_EXAMPLE_(\w+)", body))
        for name, body in re.findall(
            r"initializer_list<enum llama_example> (\w+) = \{(.*?)\};", source, re.DOTALL
        )
    }
    for block in source.split("add_opt(common_arg(")[1:]:
        block = re.sub(r"^\s*//.*\n", "\n", block.split("\n    ));\n")[0], flags=re.MULTILINE)
        end = block.find("\n    ).")
        setters = block[end:].split("\n    add_opt")[0].split(";")[0] if end >= 0 else ""
        first = _NAMES.match(block.lstrip())
        assert first is not None, block[:80]
        rest = block.lstrip()[first.end() :].lstrip(", \n")
        second = _NAMES.match(rest)
        handler = re.search(r"\[\]\(common_params &[^,)]*((?:,[^,)]*)*)\)", block)
        assert handler is not None, block[:80]
        values = 0 if second is not None else handler[1].count(",")
        programs = set(re.findall(r"LLAMA_EXAMPLE_(\w+)", "".join(_calls(setters, "set_examples"))))
        for name, members in several.items():
            if f"set_examples({name})" in setters:
                programs |= members
        excluded = set(re.findall(r"LLAMA_EXAMPLE_(\w+)", "".join(_calls(setters, "set_excludes"))))
        row: Row = {"names": _strings(first[1])}
        if second is not None:
            row["negative"] = _strings(second[1])
        if values:
            row["values"] = values
        if env := _calls(setters, "set_env"):
            row["env"] = _strings(env[0])[0]
        named = {p for p, key in LLAMA_CPP.items() if key in programs or not programs}
        named |= {p for p in LLAMA_CPP if "COMMON" in programs}
        yield row, {p for p in named if LLAMA_CPP[p] not in excluded}


def _calls(text: str, name: str) -> list[str]:
    return re.findall(rf"\.{name}\((.*?)\)", text, re.DOTALL)


def _of_parser(source: str) -> Iterator[Row]:
    """Yield the options of a program that compares its arguments in a chain of ``if``."""
    tests = re.split(r"\n\s+(?:\} else )?if (?=\((?:[^\n]*arg ==|strcmp\(argv\[))", source)[1:]
    for test in tests:
        head, _, body = test.partition("{\n")
        body = body.split("\n        }\n")[0]
        names = re.findall(r'arg == "(-[^"]+)"', head)
        names += re.findall(r'strcmp\(argv\[arg_idx\], "(-[^"]+)"\) == 0', head)
        if names:
            takes = re.search(r"\+\+i\b|\+\+arg_idx|arg_idx \+ 1|i \+ 1 <", head + body)
            yield {"names": names, **({"values": 1} if takes else {})}


def llama_cpp(folder: Path) -> list[Row]:
    """Return the options of llama.cpp's programs."""
    found: dict[tuple[str, ...], Row] = {}
    for row, programs in _of_table((folder / "common" / "arg.cpp").read_text()):
        if programs:
            programs |= set(found.get(tuple(row["names"]), {}).get("programs", ()))
            found[tuple(row["names"])] = {**row, "programs": sorted(programs)}
    rows = list(found.values())
    for program, path in OWN_PARSERS.items():
        rows += [{**row, "programs": [program]} for row in _of_parser((folder / path).read_text())]
    return rows


def ollama(folder: Path) -> tuple[list[Row], list[str]]:
    """Return the options of Ollama's commands, and its environment variables."""
    source = (folder / "cmd" / "cmd.go").read_text()
    rows = []
    flag = r'(\w+)Cmd\.Flags\(\)\.(Bool|String|Int)(P?)\("([\w-]+)"(?:, "(\w)")?'
    for command, kind, _, name, short in re.findall(flag, source):
        names = [f"--{name}", *([f"-{short}"] if short else [])]
        value = {} if kind == "Bool" else {"values": 1}
        rows.append({"names": names, **value, "programs": [f"ollama {command}"]})
    settings = (folder / "envconfig" / "config.go").read_text()
    return rows, sorted(set(re.findall(r'"(OLLAMA_\w+)"', settings)))


def mflux(folder: Path) -> list[Row]:
    """Return the options of mflux's programs that draw."""
    source = (folder / "src" / "mflux" / "cli" / "parser" / "parsers.py").read_text()
    bodies = dict(re.findall(r"    def (_?add_\w+)\(.*?\n(.*?)(?=\n    def )", source, re.DOTALL))
    rows: dict[str, Row] = {}
    for program, path in MFLUX.items():
        text = (folder / "src" / "mflux" / "models" / path).read_text()
        calls = re.findall(r"parser\.(add_\w+)\((.*)\)", text)
        groups = [bodies[name] for name, _ in calls if name in bodies]
        if any("supports_metadata_config=True" in given for _, given in calls):
            groups.append(bodies["add_metadata_config"])
        called = re.findall(r"self\.(_add_\w+)", "".join(groups))
        groups += [bodies[name] for name in called if name in bodies]
        lines = [line for body in groups for line in body.splitlines()]
        lines += [f"add_argument({given})" for name, given in calls if name == "add_argument"]
        for line in lines:
            given = re.search(r"add_argument\((.*)\)", line)
            names = (
                re.findall(r"""["'](--?[\w-]+)["']""", given[1].split("help=")[0]) if given else []
            )
            if given is None or not names or '"save"' in line or names[0] == "--path":
                continue
            value = {} if "store_true" in given[1] else {"values": 1}
            row = rows.setdefault(names[0], {"names": names, **value, "programs": []})
            if program not in row["programs"]:
                row["programs"].append(program)
    return list(rows.values())


def record(llama_cpp_folder: Path, ollama_folder: Path, mflux_folder: Path) -> str:
    """Return the file: a row a line."""
    options, variables = ollama(ollama_folder)
    tables: dict[str, list[Any]] = {
        "llama.cpp": llama_cpp(llama_cpp_folder),
        "ollama": options,
        "ollama_variables": variables,
        "mflux": mflux(mflux_folder),
    }
    parts = [
        f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"
        for name, rows in tables.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    OUT.write_text(record(*map(Path, sys.argv[1:])), encoding="utf-8")

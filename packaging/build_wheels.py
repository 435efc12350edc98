"""Build wheels for several platforms on any Linux, with a compiler from PyPI.

usage: build_wheels.py [--platform NAME ...] [--python 3.X ...] [--output DIR] [--ptx] [--spirv]

Install packaging/requirements.txt first. Headers of other versions of Python than the one that runs
this are Debian's, which has no 3.10 and 3.12. The compiler is Zig's Clang, which brings the C library of
each target. It keeps what it has compiled in a cache, so that wheels for more versions of Python take
seconds each.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import ziglang
from packaging.utils import parse_wheel_filename

from python_headers import debian_headers
from sbom import write_sbom

ROOT = Path(__file__).resolve().parents[1]
OWN_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
LIMIT_BYTES = 15_000_000


@dataclass(frozen=True)
class Platform:
    """One kind of machine that wheels are built for.

    Attributes:
        system: CMake's name of the operating system.
        processor: CMake's name of the processor, which picks the kernels' tiers.
        target: Zig's name of the target, with the oldest C library or system that the wheel runs on.
        tag: The platform tag that the build itself gives the wheel.
        triple: The part of an extension module's file name that names the platform.
    """

    system: str
    processor: str
    target: str
    tag: str
    triple: str


PLATFORMS = {
    "manylinux_2_28_x86_64": Platform(
        "Linux", "x86_64", "x86_64-linux-gnu.2.28", "linux_x86_64", "x86_64-linux-gnu"
    ),
    "manylinux_2_28_aarch64": Platform(
        "Linux", "aarch64", "aarch64-linux-gnu.2.28", "linux_aarch64", "aarch64-linux-gnu"
    ),
}

# -O3 also where CMake only tries the compiler: for each mode Zig compiles a C++ library of its own. A
# mode without -O would trap at undefined operations.
FLAGS = "-O3 -g0 -fno-sanitize=all -fomit-frame-pointer"

# Zig compiles with -O2 whatever level it is given, unless Clang is told by -Xclang, and takes a
# processor's extensions by -mcpu where GCC takes them by -march.
WRAPPER = """#!/bin/sh
# Zig's {tool} for {target}.
for argument; do
  shift
  case $argument in
    -O[123]) set -- "$@" "$argument" -Xclang ;;
    -march=armv8-a) argument=-mcpu=generic ;;
    -march=armv8.2-a+dotprod) argument=-mcpu=generic+v8_2a+dotprod ;;
  esac
  set -- "$@" "$argument"
done
exec "{zig}" {tool} {options} "$@"
"""


def write_tools(folder: Path, target: str) -> None:
    """Write the commands by which CMake calls Zig: ``c++``, ``ar`` and ``ranlib``."""
    folder.mkdir(parents=True, exist_ok=True)
    zig = Path(ziglang.__path__[0], "zig")
    for tool in ("c++", "ar", "ranlib"):
        options = f"-target {target}" if tool == "c++" else ""
        text = WRAPPER.format(tool=tool, target=target, zig=zig, options=options)
        file = folder / tool
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
            file.chmod(0o755)


def cmake_defines(
    platform: Platform, python: str, work: Path, ptx: bool, spirv: bool
) -> dict[str, str]:
    """Return the values that CMake is given for a platform and a version of Python."""
    tools = work / "tools"
    write_tools(tools, platform.target)
    suffix = f".cpython-{python.replace('.', '')}-{platform.triple}.so"
    defines = {
        "CMAKE_SYSTEM_NAME": platform.system,
        "CMAKE_SYSTEM_PROCESSOR": platform.processor,
        "CMAKE_CXX_COMPILER": str(tools / "c++"),
        "CMAKE_CXX_COMPILER_LAUNCHER": "",  # the cache is Zig's own
        "CMAKE_AR": str(tools / "ar"),
        "CMAKE_RANLIB": str(tools / "ranlib"),
        "CMAKE_STRIP": "",
        "CMAKE_CXX_FLAGS": FLAGS,
        "CMAKE_MODULE_LINKER_FLAGS": "-s",
        "CMAKE_DISABLE_PRECOMPILE_HEADERS": "ON",
        # pybind11 tries them, for each of which Zig would compile its C++ library anew.
        "HAS_FLTO": "OFF",
        "HAS_FLTO_THIN": "OFF",
        "PYBIND11_USE_CROSSCOMPILING": "ON",  # Python_EXECUTABLE may be of another version
        "Python_EXECUTABLE": sys.executable,
        "Python_INCLUDE_DIR": str(include_folder(platform, python, work)),
        "PYTHON_MODULE_EXTENSION": suffix,
        "PYTHON_MODULE_DEBUG_POSTFIX": "",
        "OXIBONSAI_PTX": "ON" if ptx else "OFF",
        "OXIBONSAI_SPIRV": "ON" if spirv else "OFF",
    }
    return defines


def include_folder(platform: Platform, python: str, work: Path) -> Path:
    """Return a folder with the headers of a version of Python for a platform."""
    if python == OWN_VERSION and platform.tag == sysconfig.get_platform().replace("-", "_"):
        return Path(sysconfig.get_paths()["include"])
    architecture = "amd64" if platform.processor == "x86_64" else "arm64"
    return debian_headers(python, architecture, work.parent / "headers")


def build_wheel(name: str, python: str, output: Path, ptx: bool, spirv: bool) -> Path:
    """Build one wheel, check it, and return its path.

    Args:
        name: One of ``PLATFORMS``.
        python: A version of CPython, as ``3.11``.
        output: The folder for the wheel.
        ptx: Whether to embed PTX, which needs nvcc.
        spirv: Whether to embed SPIR-V, which needs clang-15 and llvm-spirv-15.
    """
    platform = PLATFORMS[name]
    work = ROOT / "build" / "wheels" / name
    settings = [f"build-dir={work / 'build'}", "install.strip=false", "cmake.build-type=Release"]
    defines = cmake_defines(platform, python, work, ptx, spirv)
    settings += [f"cmake.define.{key}={value}" for key, value in defines.items()]
    cache = os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(work.parent / "zig-cache"))
    # What a developer's shell says of another compiler.
    foreign = ("CXX", "CXXFLAGS", "LDFLAGS", "CMAKE_CXX_COMPILER_LAUNCHER")
    environment = {k: v for k, v in os.environ.items() if k not in foreign}
    environment |= {
        "PATH": search_path(),
        "SETUPTOOLS_EXT_SUFFIX": defines["PYTHON_MODULE_EXTENSION"],
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
        command += ["--wheel-dir", folder, "--verbose", str(ROOT)]
        for setting in settings:
            command += ["--config-settings", setting]
        subprocess.run(command, check=True, env=environment)
        (plain,) = Path(folder).glob("*.whl")
        wheel = finish(plain, platform, python)
        return audit(wheel, name, output)


def run_module(module: str, *arguments: str | Path) -> str:
    """Run a module of this Python and return what it prints."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    environment = os.environ | {"PATH": search_path()}
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment)
    return done.stdout


def search_path() -> str:
    """Return a PATH that begins with the programs of packaging/requirements.txt."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def finish(wheel: Path, platform: Platform, python: str) -> Path:
    """Give a wheel its tags, the licences of what is linked into it, and its SBOM."""
    run_module("wheel", "unpack", "--dest", wheel.parent / "unpacked", wheel)
    (tree,) = (wheel.parent / "unpacked").iterdir()
    (info,) = tree.glob("*.dist-info")
    for package, source in linked_licences().items():
        shutil.copyfile(source, info / "licenses" / f"LICENSE-{package}")
    write_sbom(info)
    wheel.unlink()
    run_module("wheel", "pack", "--dest-dir", wheel.parent, tree)
    (packed,) = wheel.parent.glob("*.whl")
    tag = f"cp{python.replace('.', '')}"
    tags = ["--python-tag", tag, "--abi-tag", tag, "--platform-tag", platform.tag]
    name = run_module("wheel", "tags", "--remove", *tags, packed).split()[-1]
    return wheel.parent / name


def linked_licences() -> dict[str, Path]:
    """Return the licence files of what a wheel holds of others, by package."""
    zig = Path(ziglang.__path__[0])
    found = {
        "ziglang": zig / "LICENSE",
        "libcxx": zig / "lib" / "libcxx" / "LICENSE.TXT",
        "libcxxabi": zig / "lib" / "libcxxabi" / "LICENSE.TXT",
        "libunwind": zig / "lib" / "libunwind" / "LICENSE.TXT",
    }
    for package in ("pybind11", "gguf"):
        files = distribution(package).files or []
        licence = next(f for f in files if f.name.startswith("LICENSE"))
        found[package] = Path(str(licence.locate()))
    return found


def audit(wheel: Path, name: str, output: Path) -> Path:
    """Check a wheel, give it the platform tag that it has earned, and move it to the output folder."""
    output.mkdir(parents=True, exist_ok=True)
    # auditwheel takes the names of this machine's processor alone, so that it is asked for the best tag
    # and that is compared here. No library is copied into the wheel, because none is linked.
    repaired = wheel.parent / "repaired"
    options = ("--plat", "auto", "--only-plat", "--wheel-dir", str(repaired))
    run_module("auditwheel", "repair", *options, wheel)
    (wheel,) = repaired.glob("*.whl")
    if not any(runs_where(tag.platform, name) for tag in parse_wheel_filename(wheel.name)[3]):
        raise SystemExit(f"{wheel.name} needs a newer C library than {name} promises")
    retagged = run_module("wheel", "tags", "--remove", "--platform-tag", name, wheel).split()[-1]
    wheel = repaired / retagged
    # W002, the same file twice: the licences of the page's scripts are beside them, too.
    run_module("check_wheel_contents", "--ignore", "W002", wheel)
    size = wheel.stat().st_size
    if size > LIMIT_BYTES:
        raise SystemExit(f"{wheel.name}: {size} bytes, more than the limit of {LIMIT_BYTES}")
    return Path(shutil.move(wheel, output / wheel.name))


def runs_where(tag: str, promised: str) -> bool:
    """Return whether a wheel with a platform tag runs wherever another tag's wheels do."""
    form = re.compile(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)")
    own, other = form.fullmatch(tag), form.fullmatch(promised)
    if own is None or other is None:
        return tag == promised
    versions = [(int(m[2]), int(m[3])) for m in (own, other)]
    return own[1] == other[1] and own[4] == other[4] and versions[0] <= versions[1]


def write_checksums(output: Path) -> None:
    """Write ``SHA256SUMS`` of the wheels in a folder, as ``sha256sum --check`` reads it."""
    wheels = sorted(output.glob("*.whl"))
    lines = [f"{hashlib.sha256(w.read_bytes()).hexdigest()}  {w.name}\n" for w in wheels]
    (output / "SHA256SUMS").write_text("".join(lines))


def main() -> None:
    """Build the wheels that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--platform", nargs="+", choices=PLATFORMS, default=list(PLATFORMS))
    parser.add_argument("--python", nargs="+", default=[OWN_VERSION], metavar="3.X")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--ptx", action="store_true", help="embed PTX; needs nvcc")
    parser.add_argument(
        "--spirv", action="store_true", help="embed SPIR-V; needs clang-15 and llvm-spirv-15"
    )
    options = parser.parse_args()
    for name in options.platform:
        for python in options.python:
            wheel = build_wheel(name, python, options.output, options.ptx, options.spirv)
            print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
    write_checksums(options.output)


if __name__ == "__main__":
    main()

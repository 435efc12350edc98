"""Install a wheel in a root of Debian that has no compiler, and generate the first text there.

usage: try_wheel.py WHEEL [--root FOLDER]

It needs Debian, the rights of root, and debootstrap; a wheel for Arm on another processor also needs
qemu-user-static and Linux 6.7. Emulators are registered for the processes in that root alone. A root that
is given a folder stays there, and is used again.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from packaging.utils import parse_wheel_filename

# The version of Python that each release of Debian has.
SUITES = {"cp311": "bookworm", "cp313": "trixie"}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "rustc")

# How the kernel knows programs of a processor: the first bytes of their files, and which bits count.
HEADERS = {
    "aarch64": (
        r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
        r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff",
    ),
}

# Called with the root, the emulator's registration (empty for none) and a command.
ENTER = """
set -e
root=$1 registration=$2
shift 2
if [ -n "$registration" ]; then
  mkdir -p "$root/binfmt"
  mount -t binfmt_misc none "$root/binfmt"
  printf %s "$registration" >"$root/binfmt/register"
fi
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
exec chroot "$root" "$@"
"""
FIRST_TEXT = ("run", "Once upon a time", "--seed", "1", "--max-tokens", "48")
ENVIRONMENT = {"PATH": "/venv/bin:/usr/sbin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}


def wheel_target(wheel: Path) -> tuple[str, str]:
    """Return the processor that a wheel is for and the release of Debian that has its Python."""
    tags = parse_wheel_filename(wheel.name)[3]
    pythons = {tag.interpreter for tag in tags}
    processors = {
        p for p in ARCHITECTURES for tag in tags if tag.platform.endswith(f"linux_2_28_{p}")
    }
    known = pythons & SUITES.keys()
    if not known:
        raise SystemExit(
            f"{wheel.name}: no release of Debian has this Python; {', '.join(SUITES)} are known"
        )
    if not processors:
        raise SystemExit(f"{wheel.name}: not a wheel for Linux with glibc 2.28")
    return processors.pop(), SUITES[known.pop()]


def make_root(root: Path, processor: str, suite: str) -> None:
    """Unpack Debian's packages of Python and what it needs into a folder."""
    options = ("--foreign", "--variant=minbase", "--include=python3,python3-venv")
    architecture = f"--arch={ARCHITECTURES[processor]}"
    subprocess.run(["debootstrap", *options, architecture, suite, root], check=True)
    for package in sorted((root / "var/cache/apt/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    # What the packages' scripts would write, which did not run.
    for file in ("etc/ssl/certs/ca-certificates.crt", "etc/resolv.conf"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path("/", file), root / file)


def registration(processor: str) -> str:
    """Return the line that tells the kernel of a processor's emulator; empty for this processor."""
    if processor == platform.machine():
        return ""
    emulator = shutil.which(f"qemu-{processor}-static")
    if emulator is None:
        raise SystemExit(f"a wheel for {processor} needs qemu-user-static here")
    magic, mask = HEADERS[processor]
    return f":{processor}:M::{magic}:{mask}:{emulator}:F"


def run_within(root: Path, processor: str, *command: str) -> str:
    """Run a command in a root, say how long it took, and return what it printed."""
    enter = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ENTER, "sh"]
    begin = time.monotonic()
    done = subprocess.run(
        [*enter, str(root), registration(processor), *command],
        check=True,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(f"{time.monotonic() - begin:.1f} s: {' '.join(command)}", flush=True)
    return done.stdout


def folder_size(folder: Path) -> int:
    """Return the bytes of the files in a folder."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())


def try_wheel(wheel: Path, root: Path) -> str:
    """Install a wheel in a root, which is made if it is empty, and return the first text."""
    processor, suite = wheel_target(wheel)
    if not (root / "usr/bin/python3").exists():
        make_root(root, processor, suite)
    found = [c for c in COMPILERS if (root / "usr/bin" / c).exists()]
    if found:
        raise SystemExit(f"{root} has {found[0]}: this is to be tried without a compiler")
    shutil.copyfile(wheel, root / "tmp" / wheel.name)
    run_within(root, processor, "python3", "-m", "venv", "--clear", "/venv")
    before = folder_size(root / "venv")
    run_within(root, processor, "pip", "install", "--quiet", "--no-cache-dir", f"/tmp/{wheel.name}")
    print(f"{(folder_size(root / 'venv') - before) / 1e6:.0f} MB installed", flush=True)
    return run_within(root, processor, "oxibonsai", *FIRST_TEXT)


def main() -> None:
    """Try the wheel that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--root", type=Path, help="a folder that keeps the root")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("debootstrap needs the rights of root")
    if options.root is not None:
        options.root.mkdir(parents=True, exist_ok=True)
        print(try_wheel(options.wheel, options.root.resolve()))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(try_wheel(options.wheel, Path(folder)))


if __name__ == "__main__":
    main()

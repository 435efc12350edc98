"""Two network namespaces with a slow link between them that loses packets, as two machines have it."""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time
from contextlib import suppress
from types import TracebackType

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 1, 0x1000
_MOST_BYTES = 65536  # of a packet


def reason_against() -> str:
    """Why this machine cannot have one; empty where it can."""
    if os.geteuid() != 0:
        return "network namespaces are root's"
    try:
        with SlowLink(delay=0, loss=0):
            return ""
    except (OSError, subprocess.CalledProcessError) as e:
        return f"no link between network namespaces can be made: {e}"


class SlowLink:
    """Two namespaces, and a thread that carries packets between them.

    Args:
        delay: Seconds that a packet takes.
        loss: Which part of the packets is lost.

    Attributes:
        names: Of the namespaces.
        addresses: Of each at the link.
        interface: The name that the link has in both.
        carried, lost: Packets so far.
    """

    interface = "link0"
    addresses = ("10.77.0.1", "10.77.0.2")

    def __init__(self, delay: float, loss: float) -> None:
        self.names = [f"oxi{os.getpid()}-{i}" for i in range(2)]
        self.carried = self.lost = 0
        self._delay, self._loss = delay, loss
        self._ends: list[int] = []
        self._ending, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._carry)

    def __enter__(self) -> SlowLink:
        try:
            self._make()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._thread.start()
        return self

    def _make(self) -> None:
        for i, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            _ip("netns", "add", name)
            # Opened here, then moved: the file keeps the device.
            device = f"oxi{os.getpid()}t{i}"
            end = os.open("/dev/net/tun", os.O_RDWR)
            self._ends.append(end)
            fcntl.ioctl(
                end, _TUNSETIFF, struct.pack("16sH", device.encode(), _IFF_TUN | _IFF_NO_PI)
            )
            _ip("link", "set", device, "netns", name)
            _ip("-n", name, "link", "set", device, "name", self.interface)
            _ip("-n", name, "address", "add", f"{address}/24", "dev", self.interface)
            for up in ("lo", self.interface):
                _ip("-n", name, "link", "set", up, "up")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.write(self._wake, b"x")
        if self._thread.ident is not None:
            self._thread.join()
        for end in (*self._ends, self._ending, self._wake):
            os.close(end)
        for name in self.names:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)

    def _carry(self) -> None:
        chance = random.Random(1)
        underway: list[tuple[float, int, int, bytes]] = []  # due, number, end, packet
        while True:
            wait = max(0.0, underway[0][0] - time.monotonic()) if underway else None
            ready, _, _ = select.select([*self._ends, self._ending], [], [], wait)
            if self._ending in ready:
                return
            for end in ready:
                packet = os.read(end, _MOST_BYTES)
                self.carried += 1
                if chance.random() < self._loss:
                    self.lost += 1
                    continue
                other = self._ends[1 - self._ends.index(end)]
                due = time.monotonic() + self._delay
                heapq.heappush(underway, (due, self.carried, other, packet))
            while underway and underway[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(underway)
                with suppress(OSError):  # the namespace may be on its way out
                    os.write(end, packet)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)

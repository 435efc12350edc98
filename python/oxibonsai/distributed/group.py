"""The processes that run a model together, and what they send each other: torch.distributed, gloo."""

from __future__ import annotations

import atexit
import importlib.util
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from oxibonsai.distributed.failure_detector import FailureDetector
from oxibonsai.distributed.layout import Layout
from oxibonsai.errors import DeviceError, RequestError, UnsupportedError, needs_extra

Floats = npt.NDArray[np.float32]
Words = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

# int32 words of the message that begins every command; longer commands have a second one.
PLAN_WORDS = 1024
# A command never is longer: the rows of a step, and the pages of their sequences.
_MOST_WORDS = 1 << 24
# Commands that a process may be behind rank 0: more than there ever are steps on their way.
_COMMANDS_AHEAD = 256
# What tells commands from rows where both go from rank 0 to the same process.
_PLAN_TAG = 1

Result = TypeVar("Result")


@dataclass
class Traffic:
    """Bytes and messages sent since the start, or since :meth:`Group.reset_traffic`.

    Attributes:
        plans: Commands of rank 0, each of which goes to every other process.
        gathers: Messages in which a tensor-parallel group puts rows together.
        gathered_bytes: Those that this process put into them.
        sends: Messages from one stage to the next, or with results to rank 0.
        sent_bytes: Of these.
    """

    plans: int = 0
    gathers: int = 0
    gathered_bytes: int = 0
    sends: int = 0
    sent_bytes: int = 0


@dataclass
class Group:
    """This process among those that run a model.

    Attributes:
        layout: Who has which part.
        timeout: Seconds after which a process that does not answer counts as lost.
        traffic: What was sent.
        failure: Why the group has ended; None while all is well.
        store: Of the rendezvous, for the reason of a failure; None where the processes have none.
    """

    layout: Layout
    timeout: float
    world: Any
    tensor: Any
    late: Any  # the same processes, with the patience of the start
    traffic: Traffic = field(default_factory=Traffic)
    failure: str | None = None
    underway: deque[Any] = field(default_factory=deque)  # commands that may not have arrived yet
    store: Any = None
    _detector: FailureDetector | None = None

    @property
    def rank(self) -> int:
        """Return this process's rank."""
        return self.layout.rank

    def all_gather(self, own: Floats, everything: Floats) -> None:
        """Put together what the processes of this stage have, in the order of their ranks."""
        torch, dist = _torch()
        self.traffic.gathers += 1
        self.traffic.gathered_bytes += own.nbytes
        self._guarded(
            lambda: dist.all_gather_single(
                torch.from_numpy(everything), torch.from_numpy(own), group=self.tensor
            )
        )

    def all_gather_bytes(self, own: bytes) -> list[bytes]:
        """Gather as many bytes of every process, in the order of ranks; wait for late ones."""
        torch, dist = _torch()
        sent = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        received = [torch.empty_like(sent) for _ in range(self.layout.world)]
        self._guarded(lambda: dist.all_gather(received, sent, group=self.late))
        return [r.numpy().tobytes() for r in received]

    def send(self, values: Floats, to: int) -> None:
        """Send floats to one process."""
        torch, dist = _torch()
        self.traffic.sends += 1
        self.traffic.sent_bytes += values.nbytes
        self._guarded(lambda: dist.send(torch.from_numpy(values), to, group=self.world))

    def receive(self, values: Floats, source: int) -> None:
        """Receive floats from one process."""
        self.receive_later(values, source)()

    def receive_later(self, values: Floats, source: int) -> Callable[[], None]:
        """Receive floats from one process, in the order of these calls; return what waits for them."""
        torch, dist = _torch()
        work = self._guarded(lambda: dist.irecv(torch.from_numpy(values), source, group=self.world))

        def wait() -> None:
            self._guarded(work.wait)

        return wait

    def send_plan(self, words: Words) -> None:
        """Send a command from rank 0 to all others, and do not wait until they take it.

        They work on earlier ones meanwhile, each on its own.
        """
        if len(words) > _MOST_WORDS:
            raise RequestError(f"a command of {len(words)} words is too long for one step")
        torch, dist = _torch()
        # Tensors with memory of their own: gloo may have them longer than this call.
        first = torch.zeros(PLAN_WORDS, dtype=torch.int32)
        first[0] = len(words)
        head = words[: PLAN_WORDS - 1]
        first[1 : 1 + len(head)] = torch.from_numpy(head)
        messages = [first]
        if len(words) > len(head):
            messages.append(torch.from_numpy(words[len(head) :]).clone())
        self.traffic.plans += 1
        for message in messages:
            for rank in range(1, self.layout.world):
                send = partial(dist.isend, message, rank, self.world, tag=_PLAN_TAG)
                self.underway.append(self._guarded(send))
        while len(self.underway) > _COMMANDS_AHEAD * self.layout.world:
            self._guarded(self.underway.popleft().wait)

    def receive_plan(self) -> Words:
        """Return the next command of rank 0."""
        torch, dist = _torch()

        def take(count: int) -> Words:
            words = np.zeros(count, np.int32)
            if count:
                message = torch.from_numpy(words)
                self._guarded(lambda: dist.recv(message, 0, self.world, tag=_PLAN_TAG))
            return words

        first = take(PLAN_WORDS)
        count = int(first[0])
        if not 1 <= count <= _MOST_WORDS:
            raise DeviceError(f"rank 0 sent a command of {count} words: it is another program")
        head = first[1 : 1 + count]
        return np.concatenate([head, take(count - len(head))])

    def meet(self, *, late: bool = False) -> None:
        """Wait until every process has come here.

        Args:
            late: With the patience of the start.
        """
        torch, dist = _torch()
        one = torch.ones(1, dtype=torch.int32)
        self._guarded(lambda: dist.all_reduce(one, group=self.late if late else self.world))

    def reset_traffic(self) -> Traffic:
        """Return the traffic since the last call, and start anew."""
        traffic, self.traffic = self.traffic, Traffic()
        return traffic

    def fail(self, reason: str) -> DeviceError:
        """End the group: nothing more is sent."""
        self.failure = self.failure or reason
        return DeviceError(self.failure)

    def watch(self, on_failure: Callable[[], None]) -> None:
        """Notice from now on that another process has failed, whatever this one waits for.

        Args:
            on_failure: Called in another thread, once :attr:`failure` says why.
        """
        if self.store is None:
            return

        def failed(reason: str) -> None:
            self.fail(reason)
            on_failure()

        if self._detector is not None:  # of the model before; two would share a connection
            self._detector.stop()
        self._detector = FailureDetector(self.store, self.rank, self.layout.world, failed)

    @contextmanager
    def shared_work(self) -> Iterator[None]:
        """End the group if the block raises, and tell the others why: they wait for this process."""
        try:
            yield
        except Exception as e:
            if self.failure is None:
                reason = f"rank {self.rank} of {self.layout.world} failed: {type(e).__name__}: {e}"
                self.fail(reason)
                if self._detector is not None:
                    self._detector.tell(reason)
            raise

    def leave(self) -> None:
        """Close the connections, once all processes are about to."""
        if self._detector is not None:
            self._detector.stop()
        if self.failure is None:
            self.meet()
            while self.underway:
                self._guarded(self.underway.popleft().wait)
        self.close()

    def close(self) -> None:
        """Close the connections and end gloo's threads, whatever the others do.

        A thread of gloo may be the last to hold the array of a message. If it drops that while the
        interpreter ends, the process aborts; and the threads live for as long as anything refers to
        the groups of torch, even after these are destroyed.
        """
        self.failure = self.failure or f"rank {self.rank} has left the group"
        if self._detector is not None:
            self._detector.stop()
        self.world = self.tensor = self.late = self.store = self._detector = None
        self.underway.clear()
        _, dist = _torch()
        if dist.is_initialized():
            dist.destroy_process_group()

    def _guarded(self, collective: Callable[[], Result]) -> Result:
        if self.failure is not None:
            raise DeviceError(self.failure)
        try:
            return collective()
        except (RuntimeError, ValueError) as e:
            reason = " ".join(str(e).split())
            error = (
                f"rank {self.rank} of {self.layout.world} has lost another process of the group, or "
                f"waited for it for more than {self.timeout:g} s: {reason}"
            )
            if self._detector is not None:
                error = self._detector.explain(error)
            raise self.fail(error) from e


@dataclass(frozen=True)
class Link:
    """How the processes reach each other.

    Attributes:
        interface: The network interface that gloo binds to (``eth0``, ``lo``); None: gloo's choice.
        timeout: Seconds after which a process that does not answer counts as lost.
        start_timeout: Seconds to wait for late ones at the start, while they load the model too.
    """

    interface: str | None = None
    timeout: float = 60.0
    start_timeout: float = 600.0


def join(tensor: int, pipeline: int, link: Link) -> Group:
    """Join the group that torchrun has started this process for.

    Raises:
        UnsupportedError: torch is missing.
        RequestError: torchrun's world is not tensor x pipeline, or this is not run by torchrun.
        DeviceError: The others did not come in time.
    """
    if importlib.util.find_spec("torch") is None:
        raise UnsupportedError(
            "several processes need torch, which is not installed: pip install 'oxibonsai[hf]'"
        )
    world = _variable("WORLD_SIZE")
    if tensor * pipeline != world:
        raise RequestError(
            f"torchrun has started {world} processes, but --tensor-parallel {tensor} x "
            f"--pipeline-parallel {pipeline} needs {tensor * pipeline}"
        )
    layout = Layout(tensor, pipeline, _variable("RANK"))
    if link.interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = link.interface
    torch, dist = _torch()
    torch.set_num_threads(1)  # the model's own threads do the work
    patience = timedelta(seconds=link.start_timeout)
    try:
        store, rank, _ = next(dist.rendezvous("env://", timeout=patience))
        # torchrun's own process keeps the store when it starts a group again: what the ended one has
        # left there is not for this one.
        store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=patience)
        timeout = timedelta(seconds=link.timeout)
        everybody = dist.new_group(backend="gloo", timeout=timeout)
        groups = [
            dist.new_group(layout.tensor_group(s), backend="gloo", timeout=timeout)
            for s in range(pipeline)
        ]
    except (RuntimeError, ValueError) as e:
        reason = " ".join(str(e).split())
        raise DeviceError(
            f"rank {layout.rank} of {world} could not join the others within "
            f"{link.start_timeout:g} s: {reason}"
        ) from e
    group = Group(
        layout, link.timeout, everybody, groups[layout.stage], dist.group.WORLD, store=store.clone()
    )
    atexit.register(group.close)
    return group


def _variable(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise RequestError(
            f"{name} is not set: start this with torchrun --nproc-per-node N -m oxibonsai.distributed"
        )
    return int(text)


def _torch() -> tuple[Any, Any]:
    with needs_extra("hf"):
        import torch
        import torch.distributed

    return torch, torch.distributed

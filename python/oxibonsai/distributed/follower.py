"""Run rank 0's commands on the other ranks, one after the other."""

from __future__ import annotations

from oxibonsai import _core
from oxibonsai.devices import KvPages, Slots
from oxibonsai.distributed.commands import Command
from oxibonsai.distributed.device import LedPass, RankDevice
from oxibonsai.distributed.group import Group, Words
from oxibonsai.distributed.passes import RankPass
from oxibonsai.distributed.state import Parts
from oxibonsai.errors import DeviceError
from oxibonsai.models import Model
from oxibonsai.models.passes import EMBED, GENERATE, GENERATE_WITH_HIDDEN_STATES


def follow(group: Group, model: Model) -> None:
    """Run this process's part of a model until rank 0 stops.

    Args:
        group: The processes.
        model: Loaded with a :class:`~oxibonsai.distributed.RankPlan`.

    Raises:
        DeviceError: Another process was lost.
    """
    follower = _Follower(group, model)
    while follower.obey(group.receive_plan()):
        pass


class _Follower:
    """The state that this process keeps for rank 0."""

    def __init__(self, group: Group, model: Model) -> None:
        assert isinstance(model.device, RankDevice)
        self._group = group
        self._model = model
        self._device = model.device
        program = model.program(GENERATE)
        assert isinstance(program, LedPass)
        self._passes: dict[int, RankPass] = {0: program.own}
        self._pools: list[KvPages | None] = []
        self._stores: list[Slots | None] = []
        self._parts: dict[int, list[Parts]] = {Command.MAKE_PAGES: [], Command.MAKE_SLOTS: []}

    def obey(self, words: Words) -> bool:
        """Do a command; return False if it was the last one."""
        command, arguments = int(words[0]), words[1:]
        numbers = [int(n) for n in arguments[:3]]
        if command == Command.STOP:
            return False
        if command == Command.WAIT:
            self._group.meet()
        elif command == Command.RUN:
            self._run(arguments)
        elif command == Command.MAKE_PAGES:
            pages = self._device.own_pages(_core.KV_TYPES[numbers[0]], numbers[1])
            self._pools.append(pages)
            size = 0 if pages is None else pages.page_bytes
            self._parts[command].append(Parts(self._group, size))
        elif command == Command.COPY_PAGE:
            pool = self._pools[numbers[0]]
            if pool is not None:
                pool.copy(*numbers[1:])
        elif command == Command.RELEASE_PAGE:
            pool = self._pools[numbers[0]]
            if pool is not None:
                pool.release(numbers[1])
        elif command == Command.MAKE_SLOTS:
            slots = self._device.own_slots(numbers[0])
            self._stores.append(slots)
            size = 0 if slots is None else slots.slot_bytes
            self._parts[command].append(Parts(self._group, size))
        elif command == Command.COPY_SLOT:
            store = self._stores[numbers[0]]
            if store is not None:
                store.copy(*numbers[1:])
        elif command in (Command.READ_PAGE, Command.WRITE_PAGE):
            parts = self._parts[Command.MAKE_PAGES][numbers[0]]
            _move(self._pools[numbers[0]], parts, numbers[1], command == Command.READ_PAGE)
        elif command in (Command.READ_SLOT, Command.WRITE_SLOT):
            parts = self._parts[Command.MAKE_SLOTS][numbers[0]]
            _move(self._stores[numbers[0]], parts, numbers[1], command == Command.READ_SLOT)
        else:
            raise DeviceError(f"rank 0 sent the command {command}: it is another version")
        return True

    def _run(self, words: Words) -> None:
        index, store, count = (int(n) for n in words[:3])
        pools = [self._pools[int(n)] for n in words[3 : 3 + count]]
        batch = _core.Batch.from_words(words[3 + count :])
        slots = None if store < 0 else self._stores[store]
        self._pass(index).run(batch, [p for p in pools if p is not None], slots)

    def _pass(self, index: int) -> RankPass:
        """Return one of :data:`~oxibonsai.distributed.device.PASSES`, compiled when it is first wanted."""
        if index not in self._passes:
            wanted = (GENERATE, EMBED, GENERATE_WITH_HIDDEN_STATES)[index]
            self._passes[index] = self._device.own_pass(self._model.graph_of(wanted))
        return self._passes[index]


def _move(own: KvPages | Slots | None, parts: Parts, index: int, reads: bool) -> None:
    """Send this process's part of a page or slot to rank 0, or take it from there."""
    if own is None:
        return
    if reads:
        parts.send(own.read(index))
    else:
        own.write(index, parts.receive())

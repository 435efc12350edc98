"""Ray's request router for replicas: prefix affinity, else the less loaded one of two."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ray.serve.request_router import (
    PendingRequest,
    ReplicaID,
    ReplicaResult,
    RequestRouter,
    RunningReplica,
)

from oxibonsai.ray_app.forwarded import ForwardedRequest
from oxibonsai.ray_app.prefix_affinity import Block, PrefixAffinity


class PrefixAffinityRouter(RequestRouter):  # type: ignore[misc]  # Ray may not be installed
    """Each front has one; it knows what that front has sent to which replica.

    Ray asks a replica for the length of its queue before it is sent a request, unless it knows that,
    and of the replicas of one rank takes the one with the shortest that has room.
    """

    def initialize_state(self, *, max_imbalance: int = 4) -> None:
        """Initialize the state; Ray calls this with the arguments of the request router's configuration.

        Args:
            max_imbalance: See :class:`PrefixAffinity`.
        """
        self._affinity: PrefixAffinity[ReplicaID] = PrefixAffinity(max_imbalance=max_imbalance)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return the ranks of replicas: the preferred one if there is one, then two others."""
        two = random.sample(candidate_replicas, min(2, len(candidate_replicas)))
        blocks = _blocks(pending_request)
        if not blocks:
            return [two]
        queues = self.replica_queue_len_cache
        by_id = {replica.replica_id: replica for replica in candidate_replicas}
        # The length of a queue is forgotten when a replica was sent nothing for a while.
        loads = {replica_id: queues.get(replica_id) or 0 for replica_id in by_id}
        preferred = self._affinity.prefer(blocks, loads)
        return [two] if preferred is None else [[by_id[preferred]], two]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult
    ) -> None:
        """Record that a request was sent to a replica; Ray calls this."""
        if blocks := _blocks(pending_request):
            self._affinity.remember(blocks, replica_id)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """Forget a replica that is gone; Ray calls this."""
        super().on_replica_actor_died(replica_id)
        self._affinity.forget(replica_id)


def _blocks(pending: PendingRequest | None) -> Sequence[Block]:
    request = pending.args[0] if pending is not None and pending.args else None
    return request.blocks if isinstance(request, ForwardedRequest) else ()

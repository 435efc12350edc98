"""A Ray cluster of two nodes with one CPU each, on this machine, and the server on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import ray
from fake_backend import free_port
from sqlalchemy import create_engine, text

STREAMS = 40  # at once


class Site:
    """The cluster, and the server on it."""

    def __init__(self, cluster: Any, second_node: Any, port: int, database: str) -> None:
        self.cluster = cluster
        self.second_node = second_node
        self.url = f"http://127.0.0.1:{port}/v1"
        self.client = openai.OpenAI(
            base_url=self.url, api_key="none", max_retries=0, timeout=120,
            http_client=httpx.Client(limits=httpx.Limits(max_connections=2 * STREAMS)),
        )  # fmt: skip
        self._database = create_engine(database, isolation_level="AUTOCOMMIT")

    def servers(self) -> set[int]:
        """Numbers of the replicas that live."""
        find = text("SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2")
        with self._database.connect() as connection:
            return set(connection.execute(find).scalars())

    def server_of(self, response_id: str) -> int:
        """The replica that a response was made by."""
        find = text("SELECT body FROM responses WHERE id = :id")
        with self._database.connect() as connection:
            body = connection.execute(find, {"id": response_id}).scalar_one()
        number: int = json.loads(body)["server"]
        return number

    def kill_an_engine(self) -> None:
        names = ray.util.list_named_actors(all_namespaces=True)
        engines = [n for n in names if "#Engine#" in n["name"]]
        ray.kill(ray.get_actor(**engines[0]), no_restart=True)

    def close(self) -> None:
        self.client.close()
        self._database.dispose()


@contextmanager
def served_by_ray(database: str, args: Mapping[str, Any]) -> Iterator[Site]:
    """The server with these arguments, until the block ends.

    Args:
        database: URL of the store that its replicas share.
        args: Of ``oxibonsai.ray_app.build``.
    """
    from ray import serve
    from ray.cluster_utils import Cluster

    from oxibonsai.ray_app import build

    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    try:
        second_node = cluster.add_node(**small)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        port = free_port()
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(build({**args, "store": database}))
        site = Site(cluster, second_node, port, database)
        try:
            yield site
        finally:
            site.close()
    finally:
        if ray.is_initialized():
            serve.shutdown()
        ray.shutdown()
        cluster.shutdown()

"""The tables and their schema version.

All kinds of objects have tables with the same columns. ``seq`` is the order of creation, independent
of the clock; ``body`` is the object as JSON text. Objects are looked up by owner and id together, so
another owner's id takes the same time as an unknown one. A child object (a message in a thread) names
its ``parent`` and is deleted with it. Version 2 added chat completions, conversations and batches,
version 3 ``body_size``, version 4 budgets of tokens.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION = 4

metadata = MetaData()
# SQLite autoincrements only INTEGER columns.
_Sequence = BigInteger().with_variant(Integer, "sqlite")

schema_version = Table("schema_version", metadata, Column("version", Integer, nullable=False))


def _objects(kind: str, parent: str | None = None, *extra: Column[object]) -> Table:
    parts: list[Column[object] | ForeignKeyConstraint] = []
    if parent is not None:
        parts = [
            Column("parent", String(80), nullable=False),
            ForeignKeyConstraint(
                ["owner", "parent"], [f"{parent}.owner", f"{parent}.id"], ondelete="CASCADE"
            ),
        ]
    table = Table(
        kind,
        metadata,
        Column("seq", _Sequence, primary_key=True, autoincrement=True),
        Column("owner", String(80), nullable=False),
        Column("id", String(80), nullable=False),
        Column("created", Float(53), nullable=False),  # Unix seconds, for the retention only
        Column("body", Text, nullable=False),
        Column("body_size", BigInteger, nullable=False, server_default="0"),  # bytes
        *parts,
        *extra,
        UniqueConstraint("owner", "id", name=f"uq_{kind}_owner_id"),
        # Numbers are never reused, so cursors stay valid.
        sqlite_autoincrement=True,
    )
    within = [table.c.owner, table.c.parent] if parent else [table.c.owner]
    Index(f"ix_{kind}_order", *within, table.c.seq)
    # Covers the sum of an owner's sizes, which else would read all bodies.
    Index(f"ix_{kind}_size", table.c.owner, table.c.body_size)
    return table


responses = _objects("responses")
assistants = _objects("assistants")
threads = _objects("threads")
messages = _objects("messages", "threads")
runs = _objects("runs", "threads")
run_steps = _objects("run_steps", "runs")
chat_completions = _objects("chat_completions")
conversations = _objects("conversations")
conversation_items = _objects("conversation_items", "conversations")
batches = _objects("batches")
batch_requests = _objects("batch_requests", "batches")
files = _objects(
    "files",
    None,
    Column("sha256", String(64), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),  # bytes
)
OBJECTS = (
    responses, assistants, threads, messages, runs, run_steps, chat_completions, conversations,
    conversation_items, batches, batch_requests, files,
)  # fmt: skip

# What servers that share a database keep in it besides the objects.

# Contents of uploaded files, in pieces.
file_contents = Table(
    "file_contents",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("piece", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
# When an owner's bucket of requests or of tokens is full again, in seconds of the database's clock.
rate_limits = Table(
    "rate_limits",
    metadata,
    Column("owner", String(80), primary_key=True),
    Column("full_at", Float(53), nullable=False),
)
# Background work that a server was asked by another one to cancel.
cancellations = Table(
    "cancellations",
    metadata,
    Column("server", Integer, primary_key=True),
    Column("owner", String(80), primary_key=True),
    Column("id", String(80), primary_key=True),
)
# Tokens that an owner has used on a day, in days since 1970 (UTC).
token_budgets = Table(
    "token_budgets",
    metadata,
    Column("owner", String(80), primary_key=True),
    Column("day", Integer, primary_key=True),
    Column("used", BigInteger, nullable=False),
)

"""Heartbeats of shifts (runs that read a stream), kept in the instance's storage.

Each post has a key. A post is one of the numbered workers of a stream.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.settings import Settings
from dagster_tidemark.tags import SHIFT

SILENT_SECONDS = 25.0
"""A shift without a heartbeat for this many seconds has stopped, or cannot reach the instance's storage."""


@dataclass(frozen=True)
class Beat:
    """The last heartbeat of a shift.

    Args:
        run: The id of its run.
        began: Time when the shift took the post (Unix seconds).
        at: Time of the heartbeat (Unix seconds).
        stuck: Seconds since the last iteration of the shift's loop, by the shift's own clock.
        facts: Facts about the shift's work, for `tidemark status`.
    """

    run: str
    began: float
    at: float
    stuck: float = 0.0
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return json.dumps(vars(self))

    @classmethod
    def read(cls, text: str | None) -> Beat | None:
        """Read a heartbeat from the text that `str` returns. Return None for text in another form."""
        said = instance_store.members_of(text)
        try:
            return cls(
                str(said["run"]), float(said["began"]), float(said["at"]), float(said["stuck"]), dict(said["facts"])
            )
        except instance_store.UNREADABLE:
            return None


def key_of(settings: Settings, stream: str, worker: str) -> str:
    """Return the key under which the heartbeat of a post is saved."""
    return f"{SHIFT}{settings.code_location}/{stream}/{worker}"


def post_keys(settings: Settings, stream: str, workers: int) -> tuple[str, ...]:
    """Return the keys under which the heartbeats of a stream's posts are saved."""
    return tuple(key_of(settings, stream, str(worker)) for worker in range(workers))

"""OpenLineage: events from what a run did with an asset, and their sending by OpenLineage's client in a bounded time.

Belongs here: names of jobs and datasets, facets, time limits and pauses. Does not belong here: what a run did
(`asset_runs`), nor retries of one request, TLS, tokens and other transports: the client has them, configured by
OpenLineage's own variables.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lineage.asset_runs import AssetRun, AssetVersion
from dagster_tidemark.pauses import growing_pause

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

PRODUCER = "https://pypi.org/project/dagster-tidemark"
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG")
_DYNAMIC = "OPENLINEAGE__TRANSPORT"
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_MOST_RUNS = 20  # partly sent runs to remember; a run that is deleted before it ends stays one
_RECEIVER_AT_FAULT = {401, 403, 404, 408, 429}
"""Statuses that concern all events: a wrong token or address, or a receiver that is busy."""
_USER, _QUERY = re.compile(r"//[^\s'\"]*@"), re.compile(r"\?[^\s'\")]+")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LineageNames:
    """Names of jobs and datasets.

    Args:
        jobs: Namespace of the jobs.
        catalog: Namespace of tables: the catalog's address without login.
        tables: Names of the tables, such as `core.orders`.
        files: Namespace and name of the files of each feed, by source asset.
    """

    jobs: str
    catalog: str
    tables: frozenset[str] = frozenset()
    files: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def dataset(self, asset: str) -> tuple[str, str]:
        """Return the namespace and the name of an asset's dataset."""
        if asset in self.files:
            return self.files[asset]
        name = asset.replace("/", ".")
        return (self.catalog, name) if name in self.tables else (self.jobs, asset)


def event_of(found: AssetRun, names: LineageNames) -> RunEvent:
    """Return the event of an asset in a run. All events of the pair have the same run id."""
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        RunFacet,
        dataset_version_dataset,
        error_message_run,
        parent_run,
    )

    def _facets(version: AssetVersion) -> dict[str, DatasetFacet]:
        facet = dataset_version_dataset.DatasetVersionDatasetFacet(version.snapshot, producer=PRODUCER)
        return {"version": facet} if version.snapshot else {}

    facets: dict[str, RunFacet] = {
        "parent": parent_run.ParentRunFacet(
            parent_run.Run(_parent_uuid(found.run_id)), parent_run.Job(names.jobs, found.job), producer=PRODUCER
        )
    }
    if found.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(found.error, "python", producer=PRODUCER)
    return RunEvent(
        eventType=RunState(found.state.value),
        eventTime=datetime.fromtimestamp(found.at, UTC).isoformat(),
        run=Run(run_uuid(found.run_id, found.asset), facets),
        job=Job(names.jobs, found.asset),
        inputs=[InputDataset(*names.dataset(each.asset), facets=_facets(each)) for each in found.inputs],
        outputs=[OutputDataset(*names.dataset(found.asset), facets=_facets(found.output))],
        producer=PRODUCER,
    )


def run_uuid(run_id: str, asset: str) -> str:
    """Return OpenLineage's id of an asset in a run. A repeated event has the same id."""
    return str(uuid5(NAMESPACE_URL, f"{run_id}/{asset}"))


def _parent_uuid(run_id: str) -> str:
    """Return Dagster's run id as a UUID. An id that is none, as of a run that was created by hand, becomes one."""
    try:
        return str(UUID(run_id))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, run_id))


class LineageMissing(Terminal):
    """OpenLineage's variables are set, but the extra `lineage` is not installed."""


def is_configured() -> bool:
    """Return True if OpenLineage's own variables name a receiver."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return any(os.environ.get(name) for name in _VARIABLES) or any(name.startswith(_DYNAMIC) for name in os.environ)


def emit_with_client() -> Callable[[Any], Any]:
    """Return the function that sends an event to where the variables say.

    Raises:
        LineageMissing: the extra is not installed.
    """
    try:
        from openlineage.client import OpenLineageClient
    except ModuleNotFoundError as error:
        raise LineageMissing(
            "OpenLineage's variables are set, and its client is missing: pip install 'dagster-tidemark[lineage]', "
            "or set OPENLINEAGE_DISABLED=true"
        ) from error
    return OpenLineageClient().emit


class EventSender:
    """Sender that never takes longer than it may. Events that it did not send are given to it again.

    Args:
        emit: Sends one event. It may raise, or hang.
    """

    def __init__(self, emit: Callable[[Any], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._emit, self._clock = emit, clock
        self._thread: threading.Thread | None = None
        self._failures, self._paused_until = 0, 0.0
        self._sent: dict[str, set[str]] = {}
        self._named_run = ""
        self.fault = ""
        """Why the last event was not sent; empty if it was."""

    def is_ready(self) -> bool:
        """Return True if events may be sent now: none is under way, and the pause after a failure is over."""
        hangs = self._thread is not None and self._thread.is_alive()
        return not hangs and self._clock() >= self._paused_until

    def sent(self, run_id: str) -> Collection[str]:
        """Return the names of a run's events that need not be sent again, including events that were sent too late."""
        return self._sent.get(run_id, ())

    def forget(self, run_id: str) -> None:
        """Forget a run, because its events are sent."""
        self._sent.pop(run_id, None)

    def send(self, run_id: str, name: str, event: Any, seconds: float) -> bool:
        """Send an event of a run. Return False if it must be sent again.

        Args:
            name: Name of the event in its run.
        """
        sent, outcome = self._sent.setdefault(run_id, set()), list[str]()
        while len(self._sent) > _MOST_RUNS:
            del self._sent[next(each for each in self._sent if each != run_id)]

        def _one() -> None:
            try:
                self._emit(event)
            except Exception as error:  # transports raise errors of any type
                if not _is_refused(error):
                    outcome.append(_said(error))
                    return
                self.skip(run_id, name, f"the receiver refuses it: {_said(error)}")
            sent.add(name)
            outcome.append("")

        self._thread = threading.Thread(target=_one, daemon=True)
        self._thread.start()
        self._thread.join(seconds)
        self._note(outcome[0] if outcome else f"no answer within {seconds:g} s")
        return not self.fault

    def skip(self, run_id: str, name: str, why: str) -> None:
        """Skip an event that can never be sent. The first one of a run is logged."""
        self._sent.setdefault(run_id, set()).add(name)
        if self._named_run != run_id:
            logger.warning("run %s: the lineage event `%s` is skipped: %s", run_id, name, why)
        self._named_run = run_id

    def _note(self, fault: str) -> None:
        if fault and not self.fault:
            logger.warning("OpenLineage's receiver takes no events, which wait until it does: %s", fault)
        if self.fault and not fault:
            logger.warning("OpenLineage's receiver takes events again")
        self.fault = fault
        self._failures = self._failures + 1 if fault else 0
        if fault:
            self._paused_until = self._clock() + growing_pause(self._failures, _FIRST_PAUSE, _LONGEST_PAUSE)


def _is_refused(error: Exception) -> bool:
    """Return True if the receiver answered that this event is wrong."""
    status = _status(error)
    return status is not None and 400 <= status < 500 and status not in _RECEIVER_AT_FAULT


def _status(error: Exception) -> int | None:
    """Return the status of the receiver's answer; None if there was no answer."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _said(error: Exception) -> str:
    """Return an error in words, without a login: clients name the address, which may hold a password or a token."""
    if (status := _status(error)) is not None:
        return f"{type(error).__name__}: it answered with {status}"
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {_QUERY.sub('?***', _USER.sub('//***@', first))}"

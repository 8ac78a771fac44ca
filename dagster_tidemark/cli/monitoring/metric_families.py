"""Every metric of `/metrics`: name, labels, meaning, and how it is read from the state that `status` shows.

Belongs here: the list. Does not belong here: reading the state (`platform_state`, `table_figures`), and HTTP
(`server`). Labels are names of assets, streams, sensors, channels and parts, so a deployment bounds their number.
docs/monitoring.md has the same list, and a test compares both.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster_tidemark.cli.contract_rows import ContractRow
from dagster_tidemark.cli.monitoring.cached_look import LookResult
from dagster_tidemark.cli.monitoring.health import HealthPart, PartState
from dagster_tidemark.cli.monitoring.platform_state import QUARANTINE_AGES, PlatformState
from dagster_tidemark.cli.monitoring.table_figures import TableFigures
from dagster_tidemark.engine.saved_overview import SET_ASIDE
from dagster_tidemark.engine.stream_rows import StreamRow
from dagster_tidemark.incidents.incident import CauseKind
from dagster_tidemark.incidents.sender import dead, undelivered
from dagster_tidemark.planner.contracts import FreshnessStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric as MetricFamily

Sample = tuple[tuple[str, ...], float]
"""Values of the labels, and the figure."""


@dataclass(frozen=True)
class Picture:
    """Everything that a scrape shows.

    Args:
        state: The last state of the platform; None if it is too old to be shown.
        tables: The figures of each asset's table, or why they cannot be read; None if they are too old.
        parts: The health of the parts.
        looks: The looks that the figures come from, by name.
    """

    now: float
    state: PlatformState | None
    tables: Mapping[str, TableFigures | str] | None
    parts: Sequence[HealthPart]
    looks: Mapping[str, LookResult[Any]]


@dataclass(frozen=True)
class MetricSpec:
    """A metric. `total` marks a counter; all others are gauges."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    read: Callable[[Picture], Iterable[Sample]]

    @property
    def is_counter(self) -> bool:
        return self.name.endswith("_total")


def families(picture: Picture) -> "Iterable[MetricFamily]":
    """Yield the families of Prometheus's client. Removed assets have no series."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for spec in METRICS:
        kind = CounterMetricFamily if spec.is_counter else GaugeMetricFamily
        family = kind(spec.name, spec.meaning, labels=spec.labels)
        for labels, value in spec.read(picture):
            family.add_metric(labels, value)
        yield family


def _of_rows(figure: Callable[[ContractRow, float], float | None]) -> Callable[[Picture], Iterable[Sample]]:
    def _read(picture: Picture) -> Iterable[Sample]:
        state = picture.state
        for row in state.rows if state is not None else ():
            value = figure(row, state.at if state is not None else 0.0)
            if value is not None:
                yield (row.asset,), float(value)

    return _read


def _of_streams(figure: Callable[[StreamRow], float | None]) -> Callable[[Picture], Iterable[Sample]]:
    def _read(picture: Picture) -> Iterable[Sample]:
        for row in picture.state.rows if picture.state is not None else ():
            if row.stream is not None and (value := figure(row.stream)) is not None:
                yield (row.stream.stream,), float(value)

    return _read


def _of_tables(figure: Callable[[TableFigures], float]) -> Callable[[Picture], Iterable[Sample]]:
    def _read(picture: Picture) -> Iterable[Sample]:
        found = (picture.tables or {}).items()
        return (((asset,), float(figure(each))) for asset, each in found if isinstance(each, TableFigures))

    return _read


def _of_state(
    read: Callable[[PlatformState], Iterable[tuple[tuple[str, ...], float | None]]],
) -> Callable[[Picture], Iterable[Sample]]:
    def _read(picture: Picture) -> Iterable[Sample]:
        found = read(picture.state) if picture.state is not None else ()
        return ((labels, float(value)) for labels, value in found if value is not None)

    return _read


def _one(figure: Callable[[PlatformState], float | None]) -> Callable[[Picture], Iterable[Sample]]:
    return _of_state(lambda state: [((), figure(state))])


_STATES = (*(str(status) for status in FreshnessStatus), SET_ASIDE)


def _states(state: PlatformState) -> Iterable[tuple[tuple[str, ...], float]]:
    for row in state.rows:
        if row.state:
            yield from (((row.asset, name), float(row.state == name)) for name in _STATES)


def _paused(row: ContractRow, _: float) -> float | None:
    return float(bool(row.causes) and all(cause.is_pause for cause in row.causes)) if row.contract else None


def _quarantine(state: PlatformState) -> Iterable[tuple[tuple[str, ...], float]]:
    for asset, by_age in state.quarantine.items():
        yield from (((asset, age.removeprefix("arrived ")), by_age[age]) for age in QUARANTINE_AGES if age in by_age)


def _incidents(state: PlatformState) -> Iterable[tuple[tuple[str, ...], float]]:
    counted = Counter(str(incident.cause.kind) for incident in state.book.open)
    return (((str(kind),), counted[str(kind)]) for kind in CauseKind)


def _channels(state: PlatformState) -> set[str]:
    return {*state.book.channels, *(message.channel for message in state.book.outbox)}


def _waiting(state: PlatformState) -> Iterable[tuple[tuple[str, ...], float]]:
    counted = Counter(message.channel for message in state.book.outbox)
    return (((channel,), counted[channel]) for channel in sorted(_channels(state)))


def _undelivered(state: PlatformState) -> Iterable[tuple[tuple[str, ...], float]]:
    counted = Counter(message.channel for message in undelivered(state.book, state.at))
    return (((channel,), counted[channel]) for channel in sorted(_channels(state)))


def _dead(state: PlatformState) -> Iterable[tuple[tuple[str, ...], float]]:
    silent = dead(state.book, state.at)
    return (((channel,), channel in silent) for channel in sorted(_channels(state)))


def _looked_at(picture: Picture) -> Iterable[Sample]:
    return (((name,), look.at) for name, look in picture.looks.items() if look.at is not None)


def _look_seconds(picture: Picture) -> Iterable[Sample]:
    return (((name,), look.seconds) for name, look in picture.looks.items() if look.seconds is not None)


_A, _ST, _T = ("asset",), ("stream",), ("asset",)
METRICS: tuple[MetricSpec, ...] = (
    MetricSpec(
        "tidemark_asset_lag_seconds",
        _A,
        "Seconds since the arrival of the oldest data that the asset does not contain; 0 if no data is pending",
        _of_rows(lambda row, _: row.lag),
    ),
    MetricSpec(
        "tidemark_asset_within_ratio",
        _A,
        "Share (0 to 1) of the last day in which the check `contract` passed",
        _of_state(lambda state: (((asset,), share) for asset, share in state.within.items())),
    ),
    MetricSpec(
        "tidemark_asset_due_in_seconds",
        _A,
        "Seconds until the next run request of the asset; negative if it is overdue, absent if no run is planned",
        _of_rows(lambda row, at: None if row.due is None else row.due - at),
    ),
    MetricSpec(
        "tidemark_asset_pending_partitions",
        _A,
        "Number of partitions with pending work",
        _of_rows(lambda row, _: row.pending),
    ),
    MetricSpec(
        "tidemark_asset_contract_state",
        ("asset", "state"),
        "1 for the present state of the contract, 0 for the others: met, at risk, not judged, unknown, breached, "
        "set aside",
        _of_state(_states),
    ),
    MetricSpec(
        "tidemark_asset_paused",
        _A,
        "1 if the state of the contract is in doubt only because a person has paused a stream, else 0",
        _of_rows(_paused),
    ),
    MetricSpec(
        "tidemark_asset_last_build_timestamp_seconds",
        _A,
        "Time of the last build (Unix seconds)",
        _of_rows(lambda row, _: row.last_built),
    ),
    MetricSpec(
        "tidemark_quarantine_files",
        _A,
        "Number of files that are rejected as a whole and not waived; 20 stands for 20 or more",
        _of_rows(lambda row, _: len(row.files_rejected)),
    ),
    MetricSpec(
        "tidemark_quarantine_rows",
        _A,
        "Number of rejected rows in other files",
        _of_rows(lambda row, _: row.rows_rejected),
    ),
    MetricSpec(
        "tidemark_quarantine_entries",
        ("asset", "age"),
        "Number of quarantine entries that are not waived, by the age of their files at the last load: within a day, "
        "within a week, earlier",
        _of_state(_quarantine),
    ),
    MetricSpec(
        "tidemark_stream_backlog_messages",
        _ST,
        "Number of messages that wait in the queue or topic, or that shifts hold without a commit",
        _of_streams(lambda stream: stream.backlog),
    ),
    MetricSpec(
        "tidemark_stream_oldest_message_seconds",
        _ST,
        "Age of the oldest waiting message; for a queue a lower bound",
        _of_streams(lambda stream: stream.oldest),
    ),
    MetricSpec(
        "tidemark_stream_lag_seconds",
        _ST,
        "Seconds from the sending of the oldest message of the last batch to its commit",
        _of_streams(lambda stream: stream.lag),
    ),
    MetricSpec(
        "tidemark_stream_rows_per_second",
        _ST,
        "Rows per second in the last minute, summed over the shifts",
        _of_streams(lambda stream: stream.rate),
    ),
    MetricSpec(
        "tidemark_stream_rejected_messages",
        _ST,
        "Number of messages that the present shifts have rejected",
        _of_streams(lambda stream: stream.refused),
    ),
    MetricSpec(
        "tidemark_stream_last_commit_timestamp_seconds",
        _ST,
        "Time of the last commit of a shift (Unix seconds)",
        _of_streams(lambda stream: stream.committed_at),
    ),
    MetricSpec(
        "tidemark_stream_behind",
        _ST,
        "1 if messages wait and no shift has committed for a minute, or if no shift reads the stream",
        _of_streams(lambda stream: stream.is_behind or stream.is_unread),
    ),
    MetricSpec(
        "tidemark_run_queue_runs",
        (),
        "Number of runs that wait in the run queue",
        _one(lambda state: len(state.queued_since)),
    ),
    MetricSpec(
        "tidemark_run_queue_oldest_seconds",
        (),
        "Seconds that the oldest run has waited in the run queue; 0 if the queue is empty",
        _one(lambda state: max((state.at - since for since in state.queued_since), default=0.0)),
    ),
    MetricSpec("tidemark_run_slots", (), "Limit of simultaneous runs", _one(lambda state: state.slots)),
    MetricSpec(
        "tidemark_runs_in_slots",
        (),
        "Number of runs that are started and not ended, shifts included",
        _one(lambda state: state.running),
    ),
    MetricSpec(
        "tidemark_sensor_tick_seconds",
        ("sensor",),
        "Duration of the sensor's last complete tick",
        _of_state(lambda state: (((name,), each.seconds) for name, each in state.ticks.items())),
    ),
    MetricSpec(
        "tidemark_sensor_last_tick_timestamp_seconds",
        ("sensor",),
        "End of the sensor's last complete tick (Unix seconds)",
        _of_state(lambda state: (((name,), each.at) for name, each in state.ticks.items())),
    ),
    MetricSpec(
        "tidemark_daemon_heartbeat_timestamp_seconds",
        ("daemon",),
        "Time of the last heartbeat of each of Dagster's daemons (Unix seconds); 0 if there was none",
        _of_state(lambda state: (((name,), at) for name, at in state.beats.items())),
    ),
    MetricSpec(
        "tidemark_incidents_open",
        ("cause",),
        "Number of open incidents, by the kind of their cause",
        _of_state(_incidents),
    ),
    MetricSpec(
        "tidemark_incident_messages_waiting",
        ("channel",),
        "Number of messages about incidents that are not sent yet",
        _of_state(_waiting),
    ),
    MetricSpec(
        "tidemark_incident_messages_undelivered",
        ("channel",),
        "Number of messages about incidents that have waited for more than a minute",
        _of_state(_undelivered),
    ),
    MetricSpec(
        "tidemark_incident_channel_dead",
        ("channel",),
        "1 if the channel has failed to send for a minute",
        _of_state(_dead),
    ),
    MetricSpec(
        "tidemark_dead_letters",
        (),
        "Number of notifications in the dead-letter queue of the landing bucket",
        _one(lambda state: state.dead_letters),
    ),
    MetricSpec(
        "tidemark_table_commits_total",
        _T,
        "Number of commits since the table was created",
        _of_tables(lambda table: table.commits),
    ),
    MetricSpec(
        "tidemark_table_snapshots",
        _T,
        "Maintenance debt: number of snapshots that have not expired",
        _of_tables(lambda table: table.snapshots),
    ),
    MetricSpec(
        "tidemark_table_data_files",
        _T,
        "Maintenance debt: number of data files of the current snapshot",
        _of_tables(lambda table: table.data_files),
    ),
    MetricSpec(
        "tidemark_table_delete_files",
        _T,
        "Maintenance debt: number of files with deleted rows, which each read applies",
        _of_tables(lambda table: table.delete_files),
    ),
    MetricSpec(
        "tidemark_table_maintenance_due",
        _T,
        "Maintenance debt: number of due actions that `status` shows; absent if the sensor maintenance does not run",
        _of_state(lambda state: (((asset,), count) for asset, count in state.maintenance_due.items())),
    ),
    MetricSpec(
        "tidemark_table_size_bytes",
        _T,
        "Size of the data files of the current snapshot",
        _of_tables(lambda table: table.size_bytes),
    ),
    MetricSpec(
        "tidemark_table_rows", _T, "Number of rows of the current snapshot", _of_tables(lambda table: table.rows)
    ),
    MetricSpec(
        "tidemark_part_ok",
        ("part",),
        "1 if the part of `/healthz` is ok, 0 if it is down or its state is unknown",
        lambda picture: (((part.part,), float(part.state is PartState.OK)) for part in picture.parts),
    ),
    MetricSpec(
        "tidemark_look_timestamp_seconds",
        ("look",),
        "Start of the last completed look: platform (Dagster's storage), tables (metadata in the catalog)",
        _looked_at,
    ),
    MetricSpec("tidemark_look_seconds", ("look",), "Duration of the last completed look", _look_seconds),
    MetricSpec(
        "tidemark_look_ok",
        ("look",),
        "0 if looks fail or hang; figures of a look vanish after a minute without a new one",
        lambda picture: (
            ((name,), float(look.failing_since is None and look.at is not None)) for name, look in picture.looks.items()
        ),
    ),
)

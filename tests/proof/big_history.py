"""An instance with a long past, written in bulk: a hundred assets of a thousand hours, built again and again.

Every row is a copy of one that Dagster wrote for the first partition, with another partition, run and time; so it is
what Dagster would have written, in minutes less.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product

import dagster as dg
from dagster import DagsterEventType, DagsterInstance
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as EVENTS
from dagster._core.storage.runs.schema import RunsTable as RUNS
from dagster._core.storage.runs.schema import RunTagsTable as RUN_TAGS

from dagster_tidemark.planner.graph import Graph
from dagster_tidemark.planner.history import History
from dagster_tidemark.simulation.log import Clock, SimulatedLog
from dagster_tidemark.simulation.partitions import partition_tags
from tests.tidemark.toy_graph import asset, lag, source

START = datetime(2026, 8, 3, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-08-03-00:00", end_offset=1)
PARTITIONS = [f"{START + timedelta(hours=n):%Y-%m-%d-%H:00}" for n in range(1000)]
END = START + timedelta(hours=1000)
FAMILIES = 10
FAMILY = 10
_BATCH = 20_000


def graph(families: int = FAMILIES, *, every: int = 1) -> list[dg.AssetsDefinition | dg.SourceAsset]:
    """Return families of a source, a core table on it, four marts on that, and four on the first of these.

    Args:
        every: Only each so-many-th family has contracts.
    """
    made: list[dg.AssetsDefinition | dg.SourceAsset] = []
    for family in range(families):
        made += [source(f"s{family}", HOURS), asset(f"core/c{family}", f"raw/s{family}", by=HOURS)]
        for n in range(4):
            policy, longer = (lag(minutes=30 * (n + 1)), lag(hours=6)) if family % every == 0 else (None, None)
            made.append(asset(f"marts/m{family}_{n}", f"core/c{family}", by=HOURS, freshness_policy=policy))
            made.append(asset(f"top/t{family}_{n}", f"marts/m{family}_0", by=HOURS, freshness_policy=longer))
    return made


def keys(partitions: int) -> list[str]:
    """Return the first hours of the families."""
    return [f"{START + timedelta(hours=n):%Y-%m-%d-%H:00}" for n in range(partitions)]


def folded(plain: Graph, families: int, partitions: int, *, built: bool) -> History:
    """Return what a log says in which each hour of each source has arrived: the same events, without an instance.

    Args:
        built: True if everything was built, by one run an hour and family.
    """
    history, end, id = History(plain), (START + timedelta(hours=partitions)).timestamp(), 0
    plain.moment.moves_to(end)
    for family, key in product(range(families), keys(partitions)):
        id += 1
        at = end - 100
        history.observed((f"raw/s{family}", key), id=id, version=f"v{id}", arrived_at=at, listed_at=at, at=at)
        if not built:
            continue
        run, id = f"run-{family}-{key}", id + 1
        as_of = id
        history.planned([(name, key) for name in _assets(family)], id=id, run_id=run, at=end - 80)
        for name in _assets(family):
            id += 1
            version = f"{id:064x}"
            history.materialized((name, key), id=id, run_id=run, as_of=as_of, version=version, at=end - 60)
        history.ended(run, at=end - 50, seconds=20)
    return history


def fill(instance: DagsterInstance, repository: dg.RepositoryDefinition, *, rounds: int) -> int:
    """Observe and build everything so many times, the last hour last; how many events that made."""
    clock = Clock(START.timestamp())
    log = SimulatedLog(instance, clock, repository.asset_graph)
    events = 0
    for round_ in range(rounds):
        clock.now = (END - timedelta(minutes=9 * (rounds - round_))).timestamp()  # the last hour exists by then
        for family in range(FAMILIES):
            with clock.frozen():
                before = instance.event_log_storage.get_maximum_record_id() or 0
                _observe_and_build(log, clock, family, PARTITIONS[0], f"{round_}")
                copies = _copy(instance, before, round_, family, PARTITIONS[1:-1])
                # The asset's own row is to know the last of them.
                _observe_and_build(log, clock, family, PARTITIONS[-1], f"{round_}")
                events += copies // len(PARTITIONS[1:-1]) * len(PARTITIONS)
    return events


@cache  # the log's reader, too, has one text for each asset
def _assets(family: int) -> list[str]:
    made = [f"core/c{family}", *(f"marts/m{family}_{n}" for n in range(4))]
    return [*made, *(f"top/t{family}_{n}" for n in range(4))]


def _observe_and_build(log: SimulatedLog, clock: Clock, family: int, partition: str, version: str) -> None:
    log.observed(f"raw/s{family}", partition, version, listed_at=clock.now, arrived_at=clock.now)
    run_id = _run_id(version, family, partition)
    log.created(run_id, _assets(family), partition_tags([partition]))
    log.state(run_id, DagsterEventType.RUN_START)
    for built in _assets(family):
        log.materialized(run_id, built, {partition: f"{version} of {partition}"})
    log.state(run_id, DagsterEventType.RUN_SUCCESS)


def _run_id(version: str, family: int, partition: str) -> str:
    return f"run-{version}-{family}-{partition}"


def _copy(instance: DagsterInstance, after: int, round_: int, family: int, partitions: Sequence[str]) -> int:
    template, run_id = PARTITIONS[0], _run_id(f"{round_}", family, PARTITIONS[0])
    storage = instance.event_log_storage
    with storage.index_connection() as connection:  # type: ignore[attr-defined]
        query = EVENTS.select().where(EVENTS.c.id > after).where(EVENTS.c.asset_key.is_not(None)).order_by(EVENTS.c.id)
        rows = [dict(row._mapping) for row in connection.execute(query)]
        written = 0
        for batch in _batches(rows, template, run_id, partitions):
            connection.execute(EVENTS.insert(), batch)
            written += len(batch)
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        for table in (RUNS, RUN_TAGS):
            found = connection.execute(table.select().where(table.c.run_id == run_id)).fetchall()
            some = [dict(row._mapping) for row in found]
            for batch in _batches(some, template, run_id, partitions):
                connection.execute(table.insert(), batch)
    return written


def _batches(
    rows: Sequence[dict[str, object]], template: str, run_id: str, partitions: Sequence[str]
) -> Iterator[list[dict[str, object]]]:
    batch: list[dict[str, object]] = []
    for partition in partitions:
        for row in rows:
            copied = {name: _replaced(value, template, partition) for name, value in row.items() if name != "id"}
            batch.append(copied)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _replaced(value: object, template: str, partition: str) -> object:
    return value.replace(template, partition) if isinstance(value, str) else value

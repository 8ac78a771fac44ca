"""The way of one file, and nothing else, as a code location: landing sensor, automation, core/orders.

The project's own parts and resources. What a cell of the kill matrix seeds as a defect is put in place here, in the
process that is to have it.
"""

import os
from typing import Any

import dagster as dg

from dagster_tidemark.definitions import build_definitions
from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.lakehouse import write
from dagster_tidemark.lakehouse.loading import load, quarantine_table, rejected_rows
from dagster_tidemark.sensors import landing
from dagster_tidemark.sensors.automation import automation_sensor
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import load_settings
from tests.tidemark.kill.defects import Defect
from tests.toys import schemas
from tests.toys.assets import core_orders, raw_orders
from tests.toys.feeds import ORDERS


def _delete_before_observing() -> None:
    drain = landing.drain

    def _drain(hold: Any, zone: Any) -> landing.Received:
        received = drain(hold, zone)
        hold.queue.delete([message for message, _ in received.messages])
        return received

    landing.drain = _drain


def _table_before_quarantine() -> None:
    enter, held_at, replace = rejected_rows.enter, load.held_at, quarantine_table.replace
    postponed: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def _enter(*arguments: Any) -> Any:
        quarantine_table.replace = lambda *entries, **more: postponed.append((entries, more))
        try:
            return enter(*arguments)
        finally:
            quarantine_table.replace = replace

    def _held_at(*arguments: Any) -> Any:
        while postponed:  # the table is committed by now
            entries, more = postponed.pop()
            replace(*entries, **more)
        return held_at(*arguments)

    rejected_rows.enter, load.held_at = _enter, _held_at
    rejected_rows._appended = lambda *_: False  # so that all entries go through `replace`


def _append_instead_of_merge() -> None:
    merge = write.merge

    def _append(rows: Any, table: Any, *, run_id: str, **how: Any) -> write.Commit:
        if table is quarantine_table.QUARANTINE:
            return merge(rows, table, run_id=run_id, **how)
        writer = rows.select(*table.columns).writeTo(table.identifier)
        writer.option(f"snapshot-property.{write.RUN_ID}", run_id).append()
        return write.commit_of(rows.sparkSession, table, run_id)

    write.merge = _append


match os.environ.get("SEEDED_DEFECT"):
    case Defect.DELETE_BEFORE_OBSERVING:
        _delete_before_observing()
    case Defect.TABLE_BEFORE_QUARANTINE:
        _table_before_quarantine()
    case Defect.APPEND_INSTEAD_OF_MERGE:
        _append_instead_of_merge()

settings = load_settings()
scope = LocationScope(settings=settings)
defs = dg.Definitions(
    assets=with_automation([raw_orders, core_orders]),
    sensors=[
        landing.landing_sensor([ORDERS], settings.start_date, scope=scope),
        automation_sensor(settings),
        catch_up_sensor(scope),
    ],
    resources=build_definitions(settings, [], [], [schemas.ORDERS]).resources,
    executor=dg.in_process_executor,
)

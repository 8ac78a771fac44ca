"""The sensor `incidents`: sends the messages about incidents, and reports if a channel is dead.

The sensor `contracts` finds the incidents and writes their messages. This sensor only sends them, because a slow
channel must not delay the check of a contract. It also writes closed incidents to the lake, with or without channels.
Does not belong here: sending itself (`incidents.sender`), and the rows in the lake (`incidents.history_table`).
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.incidents.channels.channel import Channel
from dagster_tidemark.incidents.incident import Book
from dagster_tidemark.incidents.sender import Sender, dead, undelivered
from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.sensors.cursors import cursor_of
from dagster_tidemark.sensors.reported_check import ReportedBySensor
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import Settings

if TYPE_CHECKING:
    from dagster_tidemark.incidents.history_table import IncidentHistory

NAME = "incidents"
INCIDENTS_ASSET = dg.AssetKey(["ops", "incidents"])
DELIVERY = "delivery"
_SECONDS = 20.0  # for sending in one tick; a tick may take a minute


def incidents_asset() -> dg.AssetsDefinition:
    """Return an asset for the incidents, so that the UI plots their number."""
    spec = dg.AssetSpec(
        INCIDENTS_ASSET,
        group_name="ops",
        description="Open incidents, one for each root cause that makes data late. `tidemark incidents` shows them. "
        "The table ops.incidents has a row for each closed one.",
    )
    return dg.AssetsDefinition(specs=[spec])


def delivery_check(settings: Settings) -> dg.AssetChecksDefinition:
    """Return the check that fails while a channel is dead. It also shows the number of waiting messages."""

    @dg.asset_check(
        asset=INCIDENTS_ASSET,
        name=DELIVERY,
        description="Fails while a channel has been unable to send for a minute.",
        automation_condition=ReportedBySensor(),
    )
    def delivery(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        book = IncidentStore(context.instance, settings.code_location).read()
        return dg.AssetCheckResult(**_result(book, event_time.now()))

    return delivery


def incident_sensor(channels: Sequence[Channel], settings: Settings, *, scope: LocationScope) -> dg.SensorDefinition:
    """Return the sensor that sends the messages about incidents, and writes closed ones to the lake."""
    senders: list[Sender] = []
    histories: list[IncidentHistory] = []

    @dg.sensor(
        name=scope.named(NAME),
        description="Sends the messages about incidents to the channels of `notify`, and writes closed incidents to "
        "the table ops.incidents.",
        asset_selection=dg.AssetSelection.assets(INCIDENTS_ASSET),
        minimum_interval_seconds=5 if channels else 30,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def incidents(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        store = IncidentStore(context.instance, settings.code_location)
        if not senders:
            from dagster_tidemark.incidents.history_table import IncidentHistory

            senders.append(Sender.started(store, channels, settings, event_time.now))
            histories.append(IncidentHistory(store, settings))
        sending = senders[0].send(seconds=_SECONDS)
        book, now = sending.book, event_time.now()
        silent = dead(book, now)
        for name, why in silent.items():
            context.log.error(f"channel {name} is dead: {why}")
        if why := histories[0].record(is_new=sending.archived):
            context.log.warning(why)
        state = [sorted(silent), len(book.open), any(each.is_late for each in book.open)]
        if state == cursor_of(context, list, None, "the check is written again"):
            return dg.SkipReason(f"{sending.sent} messages sent, {len(book.outbox)} wait")
        events: list[Any] = [dg.AssetObservation(INCIDENTS_ASSET, metadata=_figures(book))]
        if channels:
            found = _result(book, now)
            events.append(dg.AssetCheckEvaluation(asset_key=INCIDENTS_ASSET, check_name=DELIVERY, **found))
        return dg.SensorResult(asset_events=events, cursor=json.dumps(state))

    return incidents


def _figures(book: Book) -> dict[str, Any]:
    late = [each for each in book.open if each.is_late]
    return {
        "open": len(book.open),
        "open and late": len(late),
        "assets late": len({asset.asset for each in late for asset in each.still_late}),
    }


def _result(book: Book, now: float) -> dict[str, Any]:
    found, waiting = dead(book, now), len(list(undelivered(book, now)))
    said = "; ".join(f"{name}: {why}" for name, why in found.items())
    return {
        "passed": not found,
        "severity": dg.AssetCheckSeverity.ERROR,
        "description": f"dead for a minute or more: {said}" if found else "every channel sends",
        "metadata": {
            "undelivered messages": waiting,
            "given up": sum(state.given_up for state in book.channels.values()),
            "sent": sum(state.sent for state in book.channels.values()),
        },
    }

"""The sensors of asset events: `asset_events` receives those of other deployments, `listener_<name>` calls a listener.

Does not belong here: the meaning of a message (`asset_events.receive`), the order of events (`asset_events.listen`).
"""

import time
from collections.abc import Sequence

import dagster as dg

from dagster_tidemark.asset_events.declared import AssetEvents, Listener, connected
from dagster_tidemark.asset_events.listen import ListenerCalls, ListenerPosition, hear
from dagster_tidemark.asset_events.receive import take
from dagster_tidemark.engine.doubts import ASSET_EVENTS, Looked, note_look
from dagster_tidemark.sensors.cursors import cursor_of
from dagster_tidemark.sensors.scope import LocationScope, assets_of
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.transport import declared_queue

_TOLD = 20  # reasons in the log of one tick


def asset_events_sensor(declared: AssetEvents, settings: Settings, *, scope: LocationScope) -> dg.SensorDefinition:
    """Return the sensor that reports events from the queue of a location."""

    @dg.sensor(
        name=scope.named(ASSET_EVENTS),
        description=f"Reports events that other deployments send to the queue {declared.queue}.",
        asset_selection=dg.AssetSelection.assets(*declared.assets),
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def asset_events(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        location = settings.code_location
        try:
            found = take(
                declared_queue(declared.queue, settings), context.instance, assets_of(context), declared.assets
            )
        except Exception as fault:  # from any client; noted for `tidemark status`, and raised again
            said = f"the queue {declared.queue} cannot be read: {type(fault).__name__}: {fault}"
            note_look(context.instance, location, ASSET_EVENTS, Looked(hindrance=said.partition("\n")[0]))
            raise
        note_look(context.instance, location, ASSET_EVENTS, Looked(time.time(), backlog=found.backlog))
        for reason in found.refused[:_TOLD]:
            context.log.warning(f"event refused: {reason}")
        return dg.SkipReason(str(found))

    return asset_events


def listener_sensor(listener: Listener, settings: Settings, *, scope: LocationScope) -> dg.SensorDefinition:
    """Return the sensor that calls a listener with the materializations of its assets."""
    listener, calls = connected(listener, settings), ListenerCalls()

    @dg.sensor(
        name=scope.named(f"listener_{listener.name}"),
        description=f"Calls {listener.name} after each materialization of {', '.join(listener.assets)}.",
        asset_selection=scope.assets,
        minimum_interval_seconds=2,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def listens(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        assets = listener.hears([key.to_user_string() for key in assets_of(context).get_all_asset_keys()])
        position = cursor_of(
            context,
            ListenerPosition.of,
            ListenerPosition(),
            "earlier events are not heard again, only events from now on",
        )
        heard = hear(listener, assets, context.instance, position, settings.code_location, calls=calls)
        context.update_cursor(position.text())
        for name, why in heard.given_up.items():
            context.log.error(f"listener {listener.name} gave up {name}: {why}")
        for name, why in list(heard.waiting.items())[:_TOLD]:
            context.log.warning(f"listener {listener.name} raised on {name}, which is tried again: {why}")
        if heard.is_blocked:
            context.log.warning(f"listener {listener.name} is not called: too many of its calls have not returned")
        return dg.SkipReason(f"called {heard.called} times, {len(heard.waiting)} events wait for another try")

    return listens


def sensors_of(
    events: AssetEvents | None, listeners: Sequence[Listener], settings: Settings, *, scope: LocationScope
) -> list[dg.SensorDefinition]:
    """Return the sensors for the declarations of a location."""
    received = [] if events is None else [asset_events_sensor(events, settings, scope=scope)]
    return [*received, *(listener_sensor(each, settings, scope=scope) for each in listeners)]

"""The test of a code location's channels (`tidemark alert test`).

It sends messages, and names the contracts that no channel covers. It stores nothing.
"""

from collections.abc import Sequence

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.errors import TidemarkError
from dagster_tidemark.incidents.channels.channel import Channel, Delivery
from dagster_tidemark.incidents.incident import (
    CauseKind,
    Incident,
    IncidentMessage,
    MessageKind,
    RootCause,
    TimelineStep,
    incident_id,
)
from dagster_tidemark.settings import Settings


def sent_by(channel: Channel, settings: Settings, now: float) -> str:
    """Send the two messages of a test incident: opened and closed. Return the error; empty if both were taken."""
    if problem := channel.problem():
        return problem
    cause = RootCause(CauseKind.PLATFORM, "test", "this is a test; nothing is late", now, remedy="nothing")
    id_ = incident_id(settings.code_location, cause.key, now)
    incident = Incident(id_, cause, now, timeline=(TimelineStep(now, "opened"),))
    closed = Incident(id_, cause, now, closed_at=now)
    messages = (
        IncidentMessage(f"{id_}-1", MessageKind.OPENED, channel.label, now, incident),
        IncidentMessage(f"{id_}-2", MessageKind.CLOSED, channel.label, now, closed),
    )
    thread = ""
    try:
        for message in messages:
            thread = channel.send(Delivery(message, thread, now, settings))
    except TidemarkError as error:
        return channel.redacted(str(error))
    except Exception as error:  # a user's own channel may raise anything, and the other channels are still tested
        return channel.redacted(f"{type(error).__name__}: {error}")
    return ""


def uncovered(assets: AnyGraph, channels: Sequence[Channel]) -> list[str]:
    """Return the assets with a contract that no channel gets incidents about."""
    nodes = [assets.get(key) for key in sorted(assets.get_all_asset_keys())]
    return [
        node.key.to_user_string()
        for node in nodes
        if node.freshness_policy is not None
        and not any(
            channel.route.takes_asset(node.key.to_user_string(), node.owners or (), node.group_name or "")
            for channel in channels
        )
    ]

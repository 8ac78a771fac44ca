"""Messages as a person reads them at night: the table, the cause, since when, and what to do."""

from dataclasses import replace

import pytest

from dagster_tidemark.incidents.incident import CauseKind, Incident, IncidentMessage, LateAsset, MessageKind, RootCause
from dagster_tidemark.incidents.wording import next_by_itself, report, title

NOW = 1_790_000_000.0
FAILING = RootCause(
    CauseKind.FAILING, "core/orders", "core/orders 07:00 fails: 3 failed attempts", NOW - 60, "core/orders", "", True
)
LATE = LateAsset("core/orders", ("07:00",), 1, NOW - 430, NOW - 130, is_late=True, owners=("team:core",))
SOON = LateAsset("marts/hourly", ("07:00",), 1, NOW - 430, NOW + 3170, owners=("team:sales",))
INCIDENT = Incident("i-0123456789", FAILING, NOW - 130, (LATE, SOON))


def text(incident: Incident, kind: MessageKind = MessageKind.OPENED) -> list[str]:
    message = IncidentMessage(f"{incident.id}-1", kind, "any", NOW, incident)
    return report(message, NOW, "http://ui").text.split("\n")


def test_message_names_the_late_tables_the_cause_and_the_deadlines() -> None:
    found = text(INCIDENT)
    assert found[0] == ("core/orders is late, marts/hourly will be late: core/orders 07:00 fails: 3 failed attempts")
    assert "late: core/orders 07:00, due 2 min 10 s ago, at 2026-09-21 14:11:10 UTC" in found
    assert "late soon: marts/hourly 07:00, due in 52 min 50 s, at 2026-09-21 15:06:10 UTC" in found
    assert "incident: i-0123456789, opened at 2026-09-21 14:11:10 UTC" in found
    assert found[-1] == "http://ui/assets/core/orders"


def test_closing_message_says_what_is_no_longer_late_and_the_cause_in_the_past() -> None:
    closed = replace(INCIDENT, closed_at=NOW + 590)
    found = text(closed, MessageKind.CLOSED)
    assert found[0] == "closed after 12 min: core/orders is no longer late"
    assert found[1:3] == ["cause was: core/orders 07:00 fails: 3 failed attempts", "was late: core/orders"]
    met = replace(closed, assets=(SOON,))
    assert title(met, MessageKind.CLOSED) == "closed after 12 min: every deadline was met"


def test_message_after_the_end_of_the_cause_says_when_it_ended() -> None:
    ended = replace(INCIDENT, cause_ended_at=NOW - 10)
    assert title(ended, MessageKind.CHANGED).endswith("3 failed attempts, until 2026-09-21 14:13:10 UTC")
    assert next_by_itself(ended) == "the cause is gone; the late tables are being built"


def test_further_messages_begin_with_their_kind() -> None:
    assert title(INCIDENT, MessageKind.CHANGED).startswith("changed: core/orders is late")
    assert title(INCIDENT, MessageKind.ACKNOWLEDGED).startswith("acknowledged: core/orders is late")


def test_cause_that_is_no_table_and_makes_no_table_late_is_the_whole_title() -> None:
    letters = RootCause(CauseKind.DEAD_LETTERS, "notifications", "the queue moved notifications", 0.0)
    assert title(replace(INCIDENT, cause=letters, assets=())) == "the queue moved notifications"


def test_fault_of_a_service_states_its_beginning_unless_the_cause_contains_it() -> None:
    down = RootCause(CauseKind.PLATFORM, "Spark", "Spark: unreachable", NOW - 400)
    assert "since: 2026-09-21 14:06:40 UTC" in text(replace(INCIDENT, cause=down))
    told = replace(down, said="no sensor ticked from 2026-09-21 14:06:40 UTC on")
    assert not any(line.startswith("since") for line in text(replace(INCIDENT, cause=told)))


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (replace(FAILING, next_try=NOW), "it is tried again at 2026-09-21 14:13:20 UTC"),
        (replace(FAILING, kind=CauseKind.MISSING), "the late tables are built when the data arrives"),
        (replace(FAILING, kind=CauseKind.CHECK, repairs_itself=False), "nothing: it waits for a person"),
        (replace(FAILING, kind=CauseKind.CHECK), "the check is run again, with growing pauses; "),
        (replace(FAILING, kind=CauseKind.QUEUE), "the run starts when a slot is free"),
        (replace(FAILING, kind=CauseKind.PLATFORM, repairs_itself=False), "nothing until this is repaired; "),
        (replace(FAILING, kind=CauseKind.SLOW), "the late tables are being built"),
    ],
)
def test_message_states_the_next_step_of_the_platform(cause: RootCause, expected: str) -> None:
    assert next_by_itself(replace(INCIDENT, cause=cause)).startswith(expected)

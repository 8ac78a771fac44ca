"""What the tab Automation says of a decision: the due time first, no own name, and what matters most on top."""

import dataclasses
from datetime import UTC, datetime

from dagster_tidemark.engine.ui_reasons import label, urgency, why
from dagster_tidemark.planner.decisions import Decision, State

NINE = datetime(2026, 11, 23, 9, tzinfo=UTC).timestamp()
EIGHT, YESTERDAY = NINE - 3600, NINE - 86_400
OWN = "marts/executive_rollup"


def not_due(due_at: float, arrival: float | None, *, deadline: float | None = NINE, of: str = OWN) -> Decision:
    return Decision(
        OWN,
        "2026-11-22",
        State.NOT_DUE,
        "a long reason",
        oldest_arrival=arrival,
        deadline=deadline,
        due_at=due_at,
        due_for=of,
        stale="" if arrival else "its code_version is 2, it was built with 1",
        built=True,
    )


def test_decision_label_begins_with_the_due_time_in_full() -> None:
    assert label(not_due(EIGHT, EIGHT - 60)) == "due Mon 23 Nov 09:00; starts 08:00: data of 07:59"
    far = label(not_due(YESTERDAY, YESTERDAY - 86_400))
    assert far == "due Mon 23 Nov 09:00; starts Sun 22 Nov 09:00: data of Sat 21 Nov 09:00"
    assert len("due Mon 23 Nov 09:00; starts 08:00") <= 40


def test_decision_label_for_a_reader_names_the_reader() -> None:
    said = label(not_due(EIGHT, EIGHT - 60, deadline=None, of="ml/model"))
    assert said == "starts Mon 23 Nov 08:00 for ml/model: data of 07:59"


def test_decision_label_of_stale_code_names_both_code_versions() -> None:
    assert label(not_due(EIGHT, None)).endswith(": its code_version is 2, it was built with 1")


def test_requested_run_keeps_the_reason_it_waited_for() -> None:
    waited = not_due(EIGHT, EIGHT - 60)
    assert why(dataclasses.replace(waited, state=State.REQUESTED)) == label(waited)
    by_code = Decision(OWN, None, State.REQUESTED, "its code_version is 2, it was built with 1")
    assert why(by_code) == "its code_version is 2, it was built with 1"


def test_decision_label_never_names_its_own_asset() -> None:
    for state in State:
        assert OWN not in label(
            Decision(OWN, None, state, "raw/orders 2026-11-22", due_at=EIGHT, due_for=OWN, deadline=NINE)
        )
    assert label(not_due(EIGHT, EIGHT - 60, deadline=None)) == "starts Mon 23 Nov 08:00: data of 07:59"


def test_blocked_decisions_are_listed_before_waiting_ones_and_earlier_ones_first() -> None:
    found = [not_due(NINE, EIGHT), not_due(EIGHT, EIGHT), Decision(OWN, None, State.BLOCKED, "a check")]
    found += [Decision(OWN, None, State.NO_CONSUMER, ""), Decision(OWN, None, State.REQUESTED, "")]
    states = [(d.state, d.due_at) for d in sorted(found, key=urgency)]
    assert states == [
        (State.BLOCKED, None),
        (State.REQUESTED, None),
        (State.NOT_DUE, EIGHT),
        (State.NOT_DUE, NINE),
        (State.NO_CONSUMER, None),
    ]
    assert all(urgency(Decision(OWN, None, state, "")) for state in State), "every state has its place"

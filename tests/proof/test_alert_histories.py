"""Ten thousand histories of readings: after every batch the alerts that stand are the episodes that are worth one.

And the histories can fail: each of some defects, seeded in the rule, in what is looked at together, in which alert goes
on, and in what is committed and sent, turns one of the first few hundred red.
"""

import time
from collections import Counter

import pytest

from pipelines.transforms.cold_chain import TOO_WARM
from tests.proof.conftest import Report
from tests.proof.test_seeded_defects import Defect, seed
from tests.tidemark.streams.alert_histories import play

COUNT = 10_000
_AT_MOST = 600  # histories until a defect is seen

_RULE = "pipelines.transforms"
_PLACES = [
    ("cold_chain:too_warm", 'reading["temperature_c"] > STARTS_ABOVE_C', 'reading["temperature_c"] >= STARTS_ABOVE_C'),
    ("cold_chain:too_warm", "first = None\n        if first", "first = reading\n        if first"),
    ("cold_chain:_is_over", '["temperature_c"] < ENDS_BELOW_C', '["temperature_c"] <= ENDS_BELOW_C'),
    ("cold_chain:_is_over", "> SILENCE", ">= SILENCE"),
    ("cold_chain:_worth_an_alert", ">= LASTS", "> LASTS"),
]
DEFECTS = [
    *(Defect(where, good, bad, play, package=_RULE) for where, good, bad in _PLACES),
    # Which alert goes on.
    Defect(
        "streams.alerts.identity:Episode.overlaps",
        "self.started_at <= other.last_at",
        "self.started_at < other.last_at",
        play,
    ),
    Defect("streams.alerts.identity:reconcile", "by_start.get(alert.started_at, Episode(", "(Episode(", play),
    Defect(
        "streams.alerts.identity:reconcile",
        "key=lambda alert: alert.place)",
        "key=lambda alert: alert.place, reverse=True)",
        play,
    ),
    Defect("streams.alerts.identity:reconcile", "a.alert_id not in kept and episode", "episode", play),
    Defect("streams.alerts.identity:reconcile", "if found.started_at != episode.started_at:", "if False:", play),
    # What is looked at together.
    Defect("streams.timeline:Timeline._parted", "was is not None and ", "was is None or ", play),
    Defect("streams.timeline:Timeline._parted", "self._cuts.closes(was.fields) and ", "", play),
    Defect("streams.timeline:Timeline._parted", "> self._cuts.silence", ">= self._cuts.silence", play),
    Defect("streams.timeline:KeyTimeline.put", "or said > there", "or True", play),
    Defect(
        "streams.timeline:Timeline._cut_before",
        "return 0 if later - line.since > self._cuts.silence",
        "return 0 if True",
        play,
    ),
    # What is found anew of all history.
    Defect("execution.alert_episodes:Reevaluation._with_news", "if not stretch.holds(e.started_at)", "if True", play),
    Defect("execution.alert_episodes:Reevaluation._commit", "before=before.get(key, ())", "before=()", play),
    # What is committed and sent.
    Defect("streams.alerts.table:AlertTable._unused", "times += 1", "return wanted", play),
    Defect("streams.alerts.table:AlertTable._unused", "if not is_used(", "if True or not is_used(", play),
    Defect("streams.alerts.table:AlertTable.commit", "(*changes.moved, *changes.retracted)", "changes.retracted", play),
    Defect(
        "streams.alerts.table:AlertTable.unpublished",
        'at_least("retracted_in", published + 1)',
        'at_least("retracted_in", published + 2)',
        play,
    ),
    Defect("streams.alerts.worker:Alerts._follow", "if self._table.refresh() or", "if", play),
    Defect("streams.alerts.worker:Alerts._follow", "if raised or", "if False and", play),
]


def test_alerts_match_the_episodes_in_ten_thousand_histories(report: Report) -> None:
    told: Counter[str] = Counter()
    began = time.monotonic()
    try:
        for number in range(COUNT):
            told += play(number, TOO_WARM)
            told["histories"] += 1
    finally:
        report("alert-histories", {**dict(sorted(told.items())), "seconds": round(time.monotonic() - began)})
    assert told["histories"] == COUNT


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: f"{defect.where}-{defect.good[:24]}")
def test_seeded_defect_fails_a_history(defect: Defect, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(defect, monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        for number in range(_AT_MOST):
            play(number, TOO_WARM)

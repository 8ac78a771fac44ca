"""Incidents at length: one hundred days of faults in fifty assets, and two hundred kills of the sender.

`PROOF_FIRST` sets the seed of the first day, `PROOF_DAYS` another number of days, `WARNING_DAYS` of those with early
warnings.
"""

import os
import random
import statistics
import time

import dagster as dg
import pytest

from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.settings import load_settings
from tests.proof.conftest import Report
from tests.tidemark.incidents.days import FAULTS, FIFTY_ASSETS, Fault, assets_of, play
from tests.tidemark.incidents.early_warnings import warned
from tests.tidemark.incidents.test_sender import SENDS, WRITES, survives


@pytest.mark.proof
@pytest.mark.timeout(4 * 3600)
def test_a_hundred_days_of_faults_cause_the_expected_incidents(report: Report) -> None:
    begun, faults, wrong = time.monotonic(), list[Fault](), list[str]()
    first, days = int(os.environ.get("PROOF_FIRST", "0")), int(os.environ.get("PROOF_DAYS", "100"))
    assets = sum(not isinstance(each, dg.AssetChecksDefinition) for each in assets_of(FIFTY_ASSETS))
    for seed in range(first, first + days):
        try:
            faults += play(seed, hours=12, chains=FIFTY_ASSETS)
        except AssertionError as error:  # the other days are judged, too
            wrong.append(str(error))
        figures = {
            "assets": assets,
            "days": f"{first} to {seed}",
            "days with something wrong": wrong,
            "hours of the others": len(faults),
            "incidents, each as in the list": sum(fault.expected is not None for fault in faults),
            "classes of faults that occurred": len(set(faults)),
            "classes of the list": len(FAULTS),
            "seconds": round(time.monotonic() - begun),
        }
        report("incident-days", figures)  # after each day: a kill loses none
    assert not wrong


@pytest.mark.proof
@pytest.mark.timeout(4 * 3600)
def test_at_most_one_early_warning_of_twenty_is_false(report: Report) -> None:
    days = [warned(seed, hours=6) for seed in range(int(os.environ.get("WARNING_DAYS", "100")))]
    early, false = sum(day.early for day in days), [each for day in days for each in day.false]
    ahead = sorted(seconds for day in days for seconds in day.ahead)
    figures = {
        "days of six hours": len(days),
        "contracts missed": sum(day.missed for day in days),
        "missed without an incident": sum(len(day.unseen) for day in days),
        "hours with one fault and two incidents": sum(len(day.twice) for day in days),
        "early warnings": early,
        "false": len(false),
        "seconds ahead, median": statistics.median(ahead),
        "each false warning": false,
    }
    report("early-warnings", figures)
    assert not figures["missed without an incident"] and not figures["hours with one fault and two incidents"]
    assert len(false) <= 0.05 * early


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_repeatedly_killed_incident_senders_lose_nothing(report: Report) -> None:
    chance, begun, killed, again, books = random.Random(0), time.monotonic(), 0, 0, 0
    with dg.DagsterInstance.ephemeral() as instance:
        while killed < 200:
            points = [chance.randrange(WRITES + SENDS) for _ in range(4)]
            kills, repeats = survives(IncidentStore(instance, f"kills {books}"), load_settings(), points)
            assert repeats <= kills
            killed, again, books = killed + kills, again + repeats, books + 1
    figures = {"kills survived": killed, "books of three incidents": books, "sent again with the same id": again}
    report("sender-kills", {**figures, "seconds": round(time.monotonic() - begun)})

"""Random days of faults against the list that was written down before (`days`)."""

import pytest

from dagster_tidemark.simulation.simulator import CheckFate
from tests.tidemark.incidents.days import CHAINS, FAULTS, assets_of, play
from tests.tidemark.incidents.early_warnings import warned
from tests.tidemark.incidents.simultaneous import play_hour
from tests.tidemark.incidents.test_causes import HOUR_1, Location

PAIRS = [
    {"file missing": "tills", "four failures": "orders"},
    {"file empty": "tills", "service down for twelve minutes": "x"},
    {"file missing": "tills", "sensor off for twelve minutes": "x"},
    {"one file of two": "tills", "check fails for twelve minutes": "stock"},
    {"four failures": "orders", "ten minutes slow": "prices"},
    {"check fails for twelve minutes": "stock", "four failures": "orders"},
    {"dead letters": "x", "four failures": "orders"},
]


@pytest.mark.parametrize("seed", [3])
def test_incidents_of_a_random_day_match_the_expected_list(seed: int) -> None:
    play(seed, hours=4)


def test_raising_check_opens_one_incident_unless_its_next_run_passes_in_time() -> None:
    of_checks = [fault for fault in FAULTS if fault.name.startswith("check ")]
    assert set(play(7, hours=4, among=of_checks)) == set(of_checks)


def test_incident_of_a_raising_check_says_that_the_check_is_run_again() -> None:
    location = Location(assets_of(CHAINS), chains=CHAINS)
    location.simulation.fail_check("core/stock", "complete", times=99, how=CheckFate.RAISES)
    location.arrives("stock", hours=1)
    location.until(hours=1, minutes=9)
    (opened,) = location.book.open
    assert opened.cause.said == f"the check complete of core/stock {HOUR_1} has no result"
    assert opened.cause.repairs_itself and "the log of the newest run of the check" in opened.cause.remedy
    assert [each.asset for each in opened.assets] == ["marts/stock"]


@pytest.mark.parametrize("faults", [PAIRS[0], *(pytest.param(each, marks=pytest.mark.proof) for each in PAIRS[1:])])
def test_two_faults_in_the_same_hour_are_two_incidents(faults: dict[str, str]) -> None:
    play_hour(faults)


def test_missed_contracts_of_random_hours_are_reported_and_met_ones_are_not() -> None:
    day = warned(seed=17, hours=2)
    assert day.missed and day.unseen == day.false == day.twice == ()

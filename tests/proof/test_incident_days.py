"""Incidents at length: one hundred days of faults, and two hundred kills of the sender."""

import random

import dagster as dg
import pytest

from dagster_tidemark.incidents.store import IncidentStore
from dagster_tidemark.settings import load_settings
from tests.tidemark.incidents.days import play
from tests.tidemark.incidents.test_sender import SENDS, WRITES, survives


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_a_hundred_days_of_faults_give_the_incidents_of_the_list() -> None:
    for seed in range(100):
        play(seed, hours=12)


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_two_hundred_senders_that_die_one_after_the_other_lose_nothing() -> None:
    chance = random.Random(0)
    with dg.DagsterInstance.ephemeral() as instance:
        for number in range(50):
            points = [chance.randrange(WRITES + SENDS) for _ in range(4)]
            assert survives(IncidentStore(instance, f"kills {number}"), load_settings(), points) <= len(points)

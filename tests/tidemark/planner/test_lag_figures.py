"""Exact figures of a lag, compared with fine samples of the same debts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagster_tidemark.planner.debts import Debt, LagFigures, figures

INFINITY = float("inf")


def test_lag_without_debts_is_zero_and_within_the_contract() -> None:
    assert figures([], 0.0, 100.0) == LagFigures(100.0, 0.0, 0.0, 0.0, 1.0)


def test_one_debt_gives_a_triangle() -> None:
    found = figures([Debt(20.0, 40.0, 35.0)], 0.0, 100.0)
    assert found.longest == 20.0 and found.mean == 2.0 and found.within == 0.95
    assert found.p95 == pytest.approx(15.0)  # the lag exceeds 15 s for the last 5 of 100 s


def test_debt_that_began_before_the_period_and_is_unpaid_counts_in_full() -> None:
    found = figures([Debt(-50.0, INFINITY, -10.0)], 0.0, 100.0)
    assert (found.longest, found.mean, found.within) == (150.0, 100.0, 0.0)
    assert found.p95 == pytest.approx(145.0)


def test_oldest_debt_determines_the_lag_and_any_missed_deadline_counts() -> None:
    found = figures([Debt(0.0, 60.0, None), Debt(50.0, 80.0, 70.0)], 0.0, 100.0)
    assert found.longest == 60.0 and found.within == 0.9


def test_debts_outside_the_period_do_not_count() -> None:
    assert figures([Debt(-20.0, 0.0, -10.0), Debt(100.0, INFINITY, 90.0)], 0.0, 100.0).longest == 0.0


TIMES = st.integers(-50, 150)
DEBTS = st.builds(
    lambda since, lasts, by: Debt(float(since), float(since + lasts) if lasts else INFINITY, by and float(since + by)),
    TIMES,
    st.integers(0, 60),
    st.none() | st.integers(1, 60),
)


def sampled(debts: list[Debt], start: float, end: float, number: int) -> LagFigures:
    """The same figures from samples in the middle of equal steps: shares no code with the exact ones."""
    lags, late = [], 0
    for n in range(number):
        at = start + (n + 0.5) * (end - start) / number
        active = [debt for debt in debts if debt.since <= at < debt.until]
        lags.append(max((at - debt.since for debt in active), default=0.0))
        late += any(debt.deadline is not None and debt.deadline <= at for debt in active)
    ordered = sorted(lags)
    p95 = ordered[min(number - 1, int(0.95 * number))]
    return LagFigures(end - start, sum(lags) / number, p95, ordered[-1], 1 - late / number)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(DEBTS, max_size=8))
def test_figures_agree_with_fine_samples(debts: list[Debt]) -> None:
    exact, samples = figures(debts, 0.0, 100.0), sampled(debts, 0.0, 100.0, 2000)
    assert exact.mean == pytest.approx(samples.mean, abs=0.05)
    assert exact.longest == pytest.approx(samples.longest, abs=0.06)
    assert exact.within == pytest.approx(samples.within, abs=1e-6)
    # Where the lag jumps, one sample more or less changes the percentile: it lies between two near shares.
    lags = sorted(
        max((at - d.since for d in debts if d.since <= at < d.until), default=0.0)
        for at in [(n + 0.5) / 20 for n in range(2000)]
    )
    assert lags[1890] - 0.11 <= exact.p95 <= lags[1910] + 0.11


def test_order_of_debts_does_not_matter() -> None:
    debts = [Debt(float(n), float(n + 7), float(n + 3)) for n in range(0, 50, 5)]
    shuffled = random.Random(1).sample(debts, len(debts))
    assert figures(debts, 0.0, 100.0) == figures(shuffled, 0.0, 100.0)

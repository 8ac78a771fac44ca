"""Demand on request: many requests, one look at features, one prediction.

Belongs here: which features serve a request, and what is said where there are none. Does not belong here: where
features and model come from (`pipelines/streams/scoring.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from dagster_tidemark.models import Model

    from pipelines.models.demand import Units

DAYS_AHEAD = 7
"""A day's demand is told from features of at most so many days before."""


def days_that_serve(dates: Collection[date]) -> list[date]:
    """The days whose features may serve requests for these dates."""
    ordinals = {when.toordinal() - age for when in dates for age in range(1, DAYS_AHEAD + 1)}
    return [date.fromordinal(ordinal) for ordinal in sorted(ordinals) if ordinal > 0]


def scores(
    requests: Sequence[Mapping[str, Any]], features: pd.DataFrame, model: Model[pd.DataFrame, Units]
) -> list[float | None]:
    """The units that each request's store will sell of its product on its date; None where there are no features.

    Features are those of the newest day before the date that has any of the product in the store. The model learned
    what follows on the next day, so they are taken as if they were the day before's: the weekday has to be the date's,
    and what was known does not change much in a week. On the sample feed the mean error with features of 2 to 7 days
    before is 5.98 to 5.99 units, as with those of the day before (5.99); with the older day's weekday 6.4 to 7.2.

    Args:
        requests: Each with `store_id`, `product_id` and `date`.
        features: Rows of ml/demand_features of the `days_that_serve`.
    """
    import pandas as pd

    asked = pd.DataFrame(
        {
            "place": range(len(requests)),
            "store_id": [request["store_id"] for request in requests],
            "product_id": [request["product_id"] for request in requests],
            "asked_for": [request["date"].toordinal() for request in requests],  # pandas knows no year 9999
        }
    )
    # Many to many: requests for a product, and its days.
    found = asked.merge(features, on=["store_id", "product_id"], how="inner")
    found["age"] = found["asked_for"] - found["day"].map(date.toordinal)
    found = found[found["age"].between(1, DAYS_AHEAD)].sort_values("age").drop_duplicates("place")
    told: list[float | None] = [None] * len(requests)
    if len(found):
        day_before = [date.fromordinal(int(ordinal)) - timedelta(days=1) for ordinal in found["asked_for"]]
        for place, score in zip(found["place"], model.predict(found.assign(day=day_before)), strict=True):
            told[place] = float(score)
    return told


def why_not(request: Mapping[str, Any], known: Collection[date]) -> str:
    """What is said to a request without features.

    Args:
        known: The days that have features of anything.
    """
    store, product, when = request["store_id"], request["product_id"], request["date"]
    if not known:
        return "no demand is known yet"
    if when.toordinal() > max(known).toordinal() + DAYS_AHEAD:
        return f"{when} is too far: demand is known up to {max(known)}, and told for {DAYS_AHEAD} days from then on"
    if when <= min(known):
        return f"{when} is too early: demand is known from {min(known)} on"
    return f"product {product} is unknown in store {store}: it was not sold there in the weeks before {when}"

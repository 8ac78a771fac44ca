"""Demand on request: one lookup of features and one prediction for many requests.

Belongs here: the choice of features for a request, and the reasons for missing features. Does not belong here: loading
features and model (`pipelines/streams/scoring.py`).
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
"""Maximum age in days of the features that a day's demand is predicted from."""


def days_that_serve(dates: Collection[date]) -> list[date]:
    """Return the days whose features may serve requests for some dates."""
    ordinals = {when.toordinal() - age for when in dates for age in range(1, DAYS_AHEAD + 1)}
    return [date.fromordinal(ordinal) for ordinal in sorted(ordinals) if ordinal > 0]


def scores(
    requests: Sequence[Mapping[str, Any]], features: pd.DataFrame, model: Model[pd.DataFrame, Units]
) -> list[float | None]:
    """Return the expected units for the store, product and date of each request; None for a request without features.

    A request uses the newest features of its product and store before its date. The model predicts the day after its
    features, so the features are dated to the day before the request's date: then the weekday is right, and the other
    features change little within a week. On the sample feed the mean error with features that are 2 to 7 days old is
    5.98 to 5.99 units, the same as with features of the day before (5.99). With the older day's weekday it is 6.4 to
    7.2.

    Args:
        requests: Requests with `store_id`, `product_id` and `date`.
        features: Rows of ml/demand_features on the `days_that_serve`.
    """
    import pandas as pd

    asked = pd.DataFrame(
        {
            "place": range(len(requests)),
            "store_id": [request["store_id"] for request in requests],
            "product_id": [request["product_id"] for request in requests],
            "asked_for": [request["date"].toordinal() for request in requests],  # pandas cannot hold the year 9999
        }
    )
    # Many to many: requests for a product, and the product's days.
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
    """Return the reason why a request has no features.

    Args:
        known: The days that have features of any product.
    """
    store, product, when = request["store_id"], request["product_id"], request["date"]
    if not known:
        return "no demand is known yet"
    if when.toordinal() > max(known).toordinal() + DAYS_AHEAD:
        return f"{when} is too late: demand is known up to {max(known)}, and predicted for the {DAYS_AHEAD} days after"
    if when <= min(known):
        return f"{when} is too early: demand is known from {min(known)} on"
    return f"product {product} is unknown in store {store}: it was not sold there in the weeks before {when}"

"""The demand model: what it is worth, that equal features give equal models, and what is kept of them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from skops.io.exceptions import UntrustedTypesFoundException
from threadpoolctl import threadpool_info

from dagster_tidemark.models import ModelStore
from pipelines.assets.ml.demand_model import WORSE_BY, verdict
from pipelines.models import demand
from tests.conftest import make_settings
from tests.grocer_demand import features

DAYS = 8 * 7
SMALL = demand.DemandLearner(iterations=20)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Labelled rows of eight weeks."""
    return demand.labelled(features(DAYS))


def test_on_the_sample_feed_its_error_is_at_most_four_fifths_of_the_naive_one(rows: pd.DataFrame) -> None:
    judged = demand.fit_and_judge(rows, demand.DemandLearner(), None)
    assert judged is not None and judged.naive_error is not None
    assert judged.error <= 0.8 * judged.naive_error, judged
    assert (judged.tested[1] - judged.tested[0]).days == 6
    assert judged.trained[1] < judged.tested[0]


def test_a_second_fit_on_equal_features_has_the_same_name_and_predicts_the_same(
    rows: pd.DataFrame, tmp_path: Path
) -> None:
    again = demand.labelled(features(DAYS).sample(frac=1.0, random_state=1))
    store = ModelStore("demand", SMALL, make_settings(tmp_path))
    assert store.version_of(demand.digest(rows)) == store.version_of(demand.digest(again))
    first, second = SMALL.fit(rows), SMALL.fit(again.sample(frac=1.0, random_state=2))
    assert np.array_equal(first.predict(rows), second.predict(rows))


def test_other_features_and_other_parameters_have_another_name(rows: pd.DataFrame, tmp_path: Path) -> None:
    changed = rows.copy()
    changed.loc[7, "quantity"] += 1
    of = {demand.digest(some) for some in (rows, changed, rows.iloc[1:])}
    assert len(of) == 3
    settings = make_settings(tmp_path)
    names = {ModelStore("demand", learner, settings).version_of("x") for learner in (SMALL, demand.DemandLearner())}
    assert len(names) == 2


def test_an_earlier_version_predicts_the_same_after_it_was_loaded(rows: pd.DataFrame, tmp_path: Path) -> None:
    store = ModelStore("demand", SMALL, make_settings(tmp_path))
    early, late = SMALL.fit(rows.iloc[:20_000]), SMALL.fit(rows)
    store.save("early", early)
    store.save("late", late)
    assert np.array_equal(store.load("early").predict(rows), early.predict(rows))
    assert not np.array_equal(store.load("late").predict(rows), early.predict(rows))


def test_a_file_that_holds_anything_else_is_not_loaded(tmp_path: Path) -> None:
    demand.DemandModel(pickle.Pickler).save(tmp_path)
    with pytest.raises(UntrustedTypesFoundException):
        SMALL.load(tmp_path)


def test_it_is_fitted_in_one_thread(rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    fit = HistGradientBoostingRegressor.fit

    def counting(self: Any, *args: Any, **more: Any) -> Any:
        threads.update(library["num_threads"] for library in threadpool_info())
        return fit(self, *args, **more)

    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", counting)
    SMALL.fit(rows.iloc[:2_000])
    assert threads == {1}


def test_a_product_that_was_never_seen_is_forecast_all_the_same(rows: pd.DataFrame) -> None:
    unseen = rows.head(3).assign(product_id=999_999, store_id=77, unit_price_usd=None)
    assert (SMALL.fit(rows).predict(unseen) > 0).all()


@pytest.mark.parametrize("days", [3, 4, 9])
def test_a_short_history_gives_a_model_and_no_naive_error_where_no_day_has_a_week_before(days: int) -> None:
    judged = demand.fit_and_judge(demand.labelled(features(days + 1)), SMALL, None)
    assert judged is not None and judged.error > 0
    assert (judged.naive_error is None) == (days < 8)


@pytest.mark.parametrize("days", [1, 2, 3])
def test_of_three_days_or_less_nothing_is_learned(days: int) -> None:
    # The newest day is no label, and the first has none before it: of three days one label is left.
    assert demand.fit_and_judge(demand.labelled(features(days)), SMALL, None) is None


def test_the_newest_day_is_no_label_and_an_unknown_one_neither() -> None:
    some = features(4)
    some.loc[some["day"] == sorted(some["day"].unique())[1], "quantity"] = None
    assert list(demand.labelled(some)["day"].unique()) == [sorted(some["day"].unique())[1]]


def test_the_model_that_serves_is_judged_on_the_same_days(rows: pd.DataFrame) -> None:
    serving = SMALL.fit(rows.assign(next_quantity=100.0))
    judged = demand.fit_and_judge(rows, SMALL, serving)
    assert judged is not None and judged.replaced_error is not None
    assert judged.replaced_error > 5 * judged.error


def test_what_is_worse_by_more_than_the_margin_is_not_published() -> None:
    assert verdict(1.0, None)[0]
    assert verdict(1.0 + WORSE_BY, 1.0)[0]
    published, reason = verdict(1.01 + WORSE_BY, 1.0)
    assert not published and "serves on" in reason

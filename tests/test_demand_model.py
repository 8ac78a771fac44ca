"""The demand model: what it is worth, that equal features give equal models, and what is kept of them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

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


def test_demand_model_error_is_at_most_80_percent_of_the_naive_error(rows: pd.DataFrame) -> None:
    judged = demand.fit_and_judge(rows, demand.DemandLearner(), None)
    assert judged is not None and judged.naive_error is not None
    assert judged.error <= 0.8 * judged.naive_error, judged
    assert (judged.tested[1] - judged.tested[0]).days == 6
    assert judged.trained[1] < judged.tested[0]


def test_demand_model_refitted_on_equal_features_has_the_same_version(rows: pd.DataFrame, tmp_path: Path) -> None:
    again = demand.labelled(features(DAYS).sample(frac=1.0, random_state=1))
    store = ModelStore("demand", SMALL, make_settings(tmp_path))
    assert store.version_of(demand.digest(rows)) == store.version_of(demand.digest(again))
    first, second = SMALL.fit(rows), SMALL.fit(again.sample(frac=1.0, random_state=2))
    assert np.array_equal(first.predict(rows), second.predict(rows))


def test_changed_features_or_parameters_give_another_model_version(rows: pd.DataFrame, tmp_path: Path) -> None:
    changed = rows.copy()
    changed.loc[7, "quantity"] += 1
    of = {demand.digest(some) for some in (rows, changed, rows.iloc[1:])}
    assert len(of) == 3
    settings = make_settings(tmp_path)
    names = {ModelStore("demand", learner, settings).version_of("x") for learner in (SMALL, demand.DemandLearner())}
    assert len(names) == 2


def test_earlier_demand_model_version_predicts_the_same_after_loading(rows: pd.DataFrame, tmp_path: Path) -> None:
    store = ModelStore("demand", SMALL, make_settings(tmp_path))
    early, late = SMALL.fit(rows.iloc[:20_000]), SMALL.fit(rows)
    store.save("early", early)
    store.save("late", late)
    assert np.array_equal(store.load("early").predict(rows), early.predict(rows))
    assert not np.array_equal(store.load("late").predict(rows), early.predict(rows))


def test_model_file_with_untrusted_types_is_not_loaded(tmp_path: Path) -> None:
    from skops.io.exceptions import UntrustedTypesFoundException

    demand.DemandModel(pickle.Pickler).save(tmp_path)
    with pytest.raises(UntrustedTypesFoundException):
        SMALL.load(tmp_path)


def test_demand_model_is_fitted_in_one_thread(rows: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_info

    threads: set[int] = set()
    fit = HistGradientBoostingRegressor.fit

    def counting(self: Any, *args: Any, **more: Any) -> Any:
        threads.update(library["num_threads"] for library in threadpool_info())
        return fit(self, *args, **more)

    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", counting)
    SMALL.fit(rows.iloc[:2_000])
    assert threads == {1}


def test_unknown_product_gets_a_demand_forecast(rows: pd.DataFrame) -> None:
    unseen = rows.head(3).assign(product_id=999_999, store_id=77, unit_price_usd=None)
    assert (SMALL.fit(rows).predict(unseen) > 0).all()


@pytest.mark.parametrize("days", [3, 4, 9])
def test_short_history_gives_a_demand_model_without_a_naive_error(days: int) -> None:
    judged = demand.fit_and_judge(demand.labelled(features(days + 1)), SMALL, None)
    assert judged is not None and judged.error > 0
    assert (judged.naive_error is None) == (days < 8)


@pytest.mark.parametrize("days", [1, 2, 3])
def test_demand_model_is_not_fitted_on_three_days_or_less(days: int) -> None:
    # The newest day is no label, and the first has none before it: of three days one label is left.
    assert demand.fit_and_judge(demand.labelled(features(days)), SMALL, None) is None


def test_newest_and_unknown_days_are_no_training_labels() -> None:
    some = features(4)
    some.loc[some["day"] == sorted(some["day"].unique())[1], "quantity"] = None
    assert list(demand.labelled(some)["day"].unique()) == [sorted(some["day"].unique())[1]]


def test_current_demand_model_is_judged_on_the_same_days(rows: pd.DataFrame) -> None:
    serving = SMALL.fit(rows.assign(next_quantity=100.0))
    judged = demand.fit_and_judge(rows, SMALL, serving)
    assert judged is not None and judged.replaced_error is not None
    assert judged.replaced_error > 5 * judged.error


def test_demand_model_worse_than_the_margin_is_not_published() -> None:
    assert verdict(1.0, None)[0]
    assert verdict(1.0 + WORSE_BY, 1.0)[0]
    published, reason = verdict(1.01 + WORSE_BY, 1.0)
    assert not published and "serves on" in reason

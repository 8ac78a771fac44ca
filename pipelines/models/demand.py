"""The demand model: units of a store's product on the day after a day's features.

Belongs here: training on features, evaluation, and scikit-learn. Does not belong here: the choice of the published
version (`pipelines/assets/ml/demand_model.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    from dagster_tidemark.models import Learner, Model

    Units = npt.NDArray[np.float64]
    DemandModels = Learner[pd.DataFrame, Units]
    """Learners on these features: implement this interface to replace `DemandLearner` with another library."""

CATEGORIES = ["weekday", "store_id", "product_id"]
NUMBERS = [
    "quantity",
    "quantity_6_days_before",
    "quantity_13_days_before",
    "mean_of_7_days",
    "mean_of_14_days",
    "unit_price_usd",
]
NAIVE = "quantity_6_days_before"
"""The naive forecast: the same day last week."""
LABEL = "next_quantity"
_KEY = ["day", "store_id", "product_id"]
_MOST_CATEGORIES = 255  # limit per histogram column; a column with more ids is treated as a number
_MOST_HELD_OUT = 7
_FILE = "model.skops"

# Types that a model file may contain in addition to numbers and skops' trusted types. Loading refuses all others.
_TRUSTED = [
    "functools.partial",  # wraps check_array
    "sklearn.utils.validation.check_array",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
]


class DemandModel:
    """A fitted pipeline of scikit-learn."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def predict(self, features: pd.DataFrame) -> Units:
        """Return the expected units on the day after each row's day."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            predicted: Units = self._pipeline.predict(_columns(features))
        return predicted

    def save(self, folder: Path) -> None:
        """Save the pipeline as one file, without pickle."""
        from skops import io

        io.dump(self._pipeline, folder / _FILE)


@dataclass(frozen=True)
class DemandLearner:
    """Histogram-based boosted trees for counts (Poisson loss). One thread and a seed: equal rows give equal trees."""

    iterations: int = 150
    learning_rate: float = 0.05
    leaves: int = 15
    rows_in_a_leaf: int = 40
    seed: int = 0

    @property
    def parameters(self) -> Mapping[str, object]:
        """The hyperparameters, the seed and the columns."""
        return {**vars(self), "columns": [*CATEGORIES, *NUMBERS]}

    @property
    def libraries(self) -> Mapping[str, str]:
        """Versions of the libraries that may change a tree or its file format."""
        import numpy as np
        import sklearn
        import skops

        return {"scikit-learn": sklearn.__version__, "skops": skops.__version__, "numpy": np.__version__}

    def fit(self, features: pd.DataFrame) -> DemandModel:
        """Return a model fitted to rows with a label (`labelled`)."""
        import numpy as np
        from sklearn.compose import ColumnTransformer
        from sklearn.ensemble import HistGradientBoostingRegressor
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import OrdinalEncoder
        from threadpoolctl import threadpool_limits

        rows = features.sort_values(_KEY)
        inputs = _columns(rows)
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
        trees = HistGradientBoostingRegressor(
            loss="poisson",
            max_iter=self.iterations,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.rows_in_a_leaf,
            categorical_features=[n for n, c in enumerate(CATEGORIES) if inputs[c].nunique() <= _MOST_CATEGORIES],
            early_stopping=False,
            random_state=self.seed,
        )
        # The trees accept no column without any value, and the columns of past weeks are empty in a short history.
        filled = [number for number in NUMBERS if inputs[number].notna().any()]
        encoded = ColumnTransformer([("categories", encoder, CATEGORIES), ("numbers", "passthrough", filled)])
        pipeline = Pipeline([("encoded", encoded), ("trees", trees)])
        with threadpool_limits(1):
            pipeline.fit(inputs, rows[LABEL])
        return DemandModel(pipeline)

    def load(self, folder: Path) -> DemandModel:
        """Return the model saved in a folder."""
        from skops import io

        return DemandModel(io.load(folder / _FILE, trusted=_TRUSTED))


@dataclass(frozen=True)
class Judged:
    """A model, and its mean absolute error on days after its training days.

    Args:
        naive_error: Error of the naive forecast, on the rows that have one; None if no row has one.
        replaced_error: Error of the previous model, on the same rows; None without a previous model.
    """

    model: Model[pd.DataFrame, Units]
    error: float
    naive_error: float | None
    replaced_error: float | None
    trained: tuple[date, date]
    tested: tuple[date, date]


def labelled(features: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose next day's demand is known, with that demand as `next_quantity`, sorted by key.

    The newest day is not used as a label, because it may not be over yet.
    """
    import pandas as pd

    days = pd.to_datetime(features["day"])
    next_days = features.assign(day=(days - timedelta(days=1)).dt.date).loc[days < days.max()]
    labels = next_days[[*_KEY, "quantity"]].rename(columns={"quantity": LABEL}).dropna()
    return features.merge(labels, on=_KEY, how="inner", validate="1:1").sort_values(_KEY, ignore_index=True)


def digest(rows: pd.DataFrame) -> str:
    """Return a hash of rows, which is equal for equal rows in the same order."""
    import pandas as pd

    floats = dict.fromkeys((*NUMBERS, LABEL), "float64")
    values = pd.util.hash_pandas_object(rows[[*_KEY, *floats]].astype(floats))
    return hashlib.sha256(values.to_numpy().tobytes()).hexdigest()


def fit_and_judge(
    rows: pd.DataFrame, learner: DemandModels, serving: Model[pd.DataFrame, Units] | None
) -> Judged | None:
    """Fit a model to all days but the last ones, and judge it on the last ones. Return None if there are too few days.

    The last seven days are held out, or a quarter of the days if that is less. The model is not fitted to the
    held-out days after the judgement, so no day is used for both.

    Args:
        rows: Labelled rows.
        serving: The current model. It was fitted to earlier days, so the held-out days are new to it too.
    """
    days = sorted(rows["day"].unique())
    if len(days) < 2:
        return None
    held_out = days[-max(1, min(_MOST_HELD_OUT, len(days) // 4)) :]
    early, late = rows[rows["day"] < held_out[0]], rows[rows["day"] >= held_out[0]]
    model = learner.fit(early)
    known = late[late[NAIVE].notna()]
    return Judged(
        model=model,
        error=_error(late, model.predict(late)),
        naive_error=_error(known, known[NAIVE].to_numpy(float)) if len(known) else None,
        replaced_error=None if serving is None else _error(late, serving.predict(late)),
        trained=(_day_after(early["day"].min()), _day_after(early["day"].max())),
        tested=(_day_after(held_out[0]), _day_after(held_out[-1])),
    )


def _columns(features: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    weekday = (pd.to_datetime(features["day"]).dt.weekday + 1) % 7
    numbers = features[NUMBERS].astype("float64")
    return numbers.assign(weekday=weekday, store_id=features["store_id"], product_id=features["product_id"])


def _error(rows: pd.DataFrame, forecast: Units) -> float:
    return float(abs(rows[LABEL].to_numpy(float) - forecast).mean())


def _day_after(day: date) -> date:
    return day + timedelta(days=1)

"""What scores of demand are made from, small and without Spark: features and versions of the model in their tables."""

from collections.abc import Collection
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pandas as pd

from dagster_tidemark import Settings
from dagster_tidemark.lakehouse.append import Appendable, TableCommit, open_lake, rows_of
from dagster_tidemark.models import ModelStore
from pipelines.models import demand
from pipelines.schemas import ml


def keep_features(settings: Settings, features: pd.DataFrame, days: Collection[date]) -> None:
    """Write these days into ml.demand_features."""
    table = Appendable(open_lake(settings), ml.DEMAND_FEATURES)
    rows = [
        {
            name: None if pd.isna(value) else value if kind == "date" else _PLAIN[kind](value)
            for (name, kind), value in zip(ml.DEMAND_FEATURES.columns.items(), row, strict=True)
        }
        for row in features.loc[features["day"].isin(list(days)), list(ml.DEMAND_FEATURES.columns)].itertuples(
            index=False
        )
    ]
    table.commit(TableCommit(rows_of(table.schema, rows)))


def publish(settings: Settings, learner: demand.DemandLearner, rows: pd.DataFrame, *, published: bool = True) -> str:
    """Fit a version to labelled rows, and write it down."""
    store: ModelStore[Any, Any] = ModelStore("demand", learner, settings)
    version = store.version_of("test")
    store.save(version, learner.fit(rows))
    table = Appendable(open_lake(settings), ml.DEMAND_MODEL)
    row = {"version": version, "published": published, "fitted_at": datetime.now(UTC), "path": store.path(version)}
    table.commit(TableCommit(rows_of(table.schema, [row])))
    return version


_PLAIN: dict[str, Any] = {
    "bigint": int,
    "double": float,
    "decimal(18,4)": lambda value: Decimal(repr(float(value))).quantize(Decimal("0.0001")),
}

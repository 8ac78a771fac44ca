"""ml/demand_model: the fitted versions of the demand model, and the choice of the serving version."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
from dagster_tidemark import LakehouseResource, Snapshot
from dagster_tidemark.models import ModelStore, current_version
from pyspark.sql import DataFrame

from pipelines.models import demand
from pipelines.schemas import ml

WORSE_BY = 0.05
"""Maximum increase of the error for publishing a retrained model, as a share of the serving model's error."""

_TOO_FEW = "too few days: a model takes two whole days, each followed by another"
_KEY = dg.AssetKey(["ml", "demand_model"])


@dg.asset(
    key=_KEY,
    ins={"features": dg.AssetIn(key=["ml", "demand_features"])},
    group_name="ml",
    kinds={"iceberg", "pyspark", "scikitlearn"},
    owners=["team:forecasting"],
    # Mondays by six, with everything that arrived by one.
    freshness_policy=dg.FreshnessPolicy.cron(deadline_cron="0 6 * * 1", lower_bound_delta=timedelta(hours=5)),
    code_version="1",
    check_specs=[
        dg.AssetCheckSpec(
            "published", asset=_KEY, description="Fails if the newest version is worse than the serving one."
        ),
        dg.AssetCheckSpec("beats_naive", asset=_KEY, description="Fails if the same day last week predicts better."),
    ],
)
def demand_model(
    context: dg.AssetExecutionContext, lakehouse: LakehouseResource, features: Snapshot
) -> Iterator[dg.Output[DataFrame] | dg.AssetCheckResult]:
    """One row per fitted version of the demand model: its folder, its errors, and whether it was published."""
    store = lakehouse.models("demand", demand.DemandLearner())
    versions = lakehouse.read(ml.DEMAND_MODEL)
    newest = refit(store, versions, features, context.assets_def.code_versions_by_key[_KEY] or "")
    # Written after the model's files. Only this row makes a version the current one.
    yield dg.Output(newest.among(versions), metadata=newest.metadata())
    yield from newest.check_results()


@dataclass(frozen=True)
class Newest:
    """The newest version after a run.

    Args:
        row: Its row; None without any version.
        is_new: True if this run fitted the version; False if nothing has changed since it was fitted.
    """

    row: dict[str, Any] | None
    is_new: bool

    def among(self, versions: DataFrame) -> DataFrame:
        """Return the table's rows, with the new version's row added."""
        if self.row is None or not self.is_new:
            return versions
        row = tuple(self.row[name] for name in versions.columns)
        return versions.unionByName(versions.sparkSession.createDataFrame([row], versions.schema))

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the materialization."""
        if self.row is None:
            return {"published": False, "reason": _TOO_FEW}
        row = self.row
        errors = {name: row[name] for name in ("mean_absolute_error", "naive_error", "replaced_error")}
        return {
            "published": row["published"],
            "reason": row["reason"]
            if self.is_new
            else f"{row['reason']}; nothing has changed since, so nothing fitted",
            "version": row["version"],
            "path": dg.MetadataValue.path(row["path"]),
            "libraries": row["libraries"],
            "training range": f"{row['trained_from']} to {row['trained_through']}",
            "held out": f"{row['tested_from']} to {row['tested_through']}",
            "snapshots read": {"ml.demand_features": str(row["features_snapshot_id"])},
            **{name.replace("_", " "): error for name, error in errors.items() if error is not None},
        }

    def check_results(self) -> Iterator[dg.AssetCheckResult]:
        """Yield the results of the checks `published` and `beats_naive`."""
        if self.row is None:
            for check in ("published", "beats_naive"):
                yield dg.AssetCheckResult(
                    passed=False, check_name=check, severity=dg.AssetCheckSeverity.WARN, description=_TOO_FEW
                )
            return
        error, naive = self.row["mean_absolute_error"], self.row["naive_error"]
        yield dg.AssetCheckResult(passed=self.row["published"], check_name="published", description=self.row["reason"])
        yield dg.AssetCheckResult(
            passed=naive is not None and error < naive,
            check_name="beats_naive",
            severity=dg.AssetCheckSeverity.WARN if naive is None else dg.AssetCheckSeverity.ERROR,
            description="no day held out has a same day last week"
            if naive is None
            else f"error {error:.3f} units, of the same day last week {naive:.3f}",
        )


def refit(store: ModelStore[Any, Any], versions: DataFrame, features: Snapshot, code_version: str) -> Newest:
    """Fit a model to features, judge it and save its files, unless the newest version has the same inputs."""
    learner = store.learner
    rows = demand.labelled(features.rows.toPandas())
    version = store.version_of(demand.digest(rows), code_version)
    last = versions.orderBy(versions["fitted_at"].desc()).head(1)
    # A serving version without files can neither forecast nor be compared: the new version replaces it.
    serving = current_version(versions)
    is_lost = serving is not None and not store.holds(serving)
    if last and last[0]["version"] == version and store.holds(version) and not is_lost:
        return Newest(last[0].asDict(), is_new=False)
    judged = demand.fit_and_judge(rows, learner, store.load(serving) if serving and not is_lost else None)
    if judged is None:
        return Newest(last[0].asDict() if last else None, is_new=False)
    published, reason = verdict(judged.error, judged.replaced_error)
    row = {
        "version": version,
        "path": store.save(version, judged.model),
        "published": published,
        "reason": reason,
        "libraries": ", ".join(f"{name} {number}" for name, number in learner.libraries.items()),
        "fitted_at": datetime.now(UTC),
        "mean_absolute_error": judged.error,
        "naive_error": judged.naive_error,
        "replaced_error": judged.replaced_error,
        "trained_from": judged.trained[0],
        "trained_through": judged.trained[1],
        "tested_from": judged.tested[0],
        "tested_through": judged.tested[1],
        "features_snapshot_id": features.id,
    }
    return Newest(row, is_new=True)


def verdict(error: float, replaced_error: float | None) -> tuple[bool, str]:
    """Return True if a model should be published, and the reason."""
    if replaced_error is None:
        return True, "there is no other version to compare with"
    compared = f"error {error:.3f} units, of the version that served {replaced_error:.3f}"
    if error > replaced_error * (1 + WORSE_BY):
        return False, f"worse by more than {WORSE_BY:.0%}: {compared}; the older version serves on"
    return True, compared

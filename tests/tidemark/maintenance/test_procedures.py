"""A commit conflict repeats the maintenance, and other errors do not."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from dagster_tidemark.lakehouse.maintenance.due import Action, MaintenancePolicy, TableFacts
from dagster_tidemark.lakehouse.maintenance.maintenance_table import ActionResult
from dagster_tidemark.lakehouse.maintenance.procedures import perform
from tests.tidemark.maintenance.conftest import table

ROW = SimpleNamespace(rewritten_manifests_count=4, added_manifests_count=1)
FOUND: Any = SimpleNamespace(properties={})


class FakeSpark:
    """Fails some times, then answers."""

    def __init__(self, *faults: str) -> None:
        self.faults, self.asked = list(faults), list[str]()

    def sql(self, text: str) -> Any:
        self.asked.append(text)
        if self.faults:
            raise PySparkException(self.faults.pop(0))
        return SimpleNamespace(collect=lambda: [ROW])


def performed(spark: FakeSpark, action: Action = Action.MANIFESTS, *gone: int) -> ActionResult:
    facts = TableFacts("core.orders", 0.0, expirable=gone)
    return perform(spark, table("core.orders"), FOUND, action, facts, MaintenancePolicy())  # type: ignore[arg-type]


def test_maintenance_is_repeated_after_a_conflict_and_put_off_after_three() -> None:
    lost = "org.apache.iceberg.exceptions.CommitFailedException: base metadata location is not the same"
    spark = FakeSpark(lost, "ValidationException: Deleted manifest m1.avro could not be found in the latest snapshot 6")
    assert performed(spark) == ActionResult("done", files_removed=4, files_added=1)
    assert len(spark.asked) == 3
    found = performed(FakeSpark(lost, lost, lost))
    assert (found.result, found.has_failed) == ("conflict", True) and "CommitFailedException" in found.message
    with pytest.raises(PySparkException, match="GC is disabled"):
        performed(FakeSpark("ValidationException: GC is disabled"))


def test_exactly_the_chosen_snapshots_are_expired_and_none_by_age() -> None:
    spark = FakeSpark()
    spark.sql = lambda text: spark.asked.append(text) or SimpleNamespace(collect=lambda: [(1, 0, 0, 2, 2, 0)])  # type: ignore[method-assign,func-returns-value]
    assert performed(spark, Action.EXPIRE, 7, 8) == ActionResult("done", files_removed=5, snapshots_expired=2)
    [text] = spark.asked
    assert "older_than => timestamp_millis(0)" in text and "snapshot_ids => array(7L, 8L)" in text
    assert performed(FakeSpark(), Action.EXPIRE).result == "nothing to do"

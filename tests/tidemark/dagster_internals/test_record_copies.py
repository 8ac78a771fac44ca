"""Contract of changed copies of Dagster's records."""

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals.record_copies import changed


def test_record_copy_has_the_changed_and_the_other_attributes() -> None:
    request = dg.RunRequest(partition_key="a", tags={"x": "1"})
    other = changed(request, tags={"y": "2"})
    assert (other.partition_key, dict(other.tags), dict(request.tags)) == ("a", {"y": "2"}, {"x": "1"})


@dg.sensor(job_name="job")
def ticks() -> dg.SkipReason:
    return dg.SkipReason("nothing")


@pytest.mark.parametrize(
    ("record", "attribute", "value"),
    [
        (dg.Definitions([]), "jobs", []),
        (dg.define_asset_job("job"), "selection", dg.AssetSelection.assets("a")),
        (dg.AssetCheckSpec("c", asset="a"), "automation_condition", dg.AutomationCondition.eager()),
        (ticks.evaluate_tick(dg.build_sensor_context()), "run_requests", [dg.RunRequest()]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_dagster_record_type_can_be_copied(record: object, attribute: str, value: object) -> None:
    other = changed(record, **{attribute: value})
    assert getattr(other, attribute) == value and type(other) is type(record)


def test_record_copy_with_an_unknown_attribute_is_refused() -> None:
    with pytest.raises(Exception, match="nonsense"):
        changed(dg.RunRequest(), nonsense=1)

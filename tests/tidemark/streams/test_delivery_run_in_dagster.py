"""Deliveries as Dagster has them: the job, what it reports, and the sensor that starts it."""

import threading

import dagster as dg
import pytest

from dagster_tidemark.dagster_internals import instance_store
from dagster_tidemark.lakehouse.table import Table
from dagster_tidemark.sensors.streams import streams_sensor
from dagster_tidemark.settings import Settings, load_settings
from dagster_tidemark.streams.job import shift_job
from dagster_tidemark.streams.stream_declaration import StreamRefused
from dagster_tidemark.tags import CODE_OF_STREAMS, WORKER
from tests.live.waiting import eventually
from tests.tidemark.streams import partner as toys
from tests.tidemark.streams.partner import Partner, csv, line


def test_delivery_run_reports_each_delivery_and_ends_on_new_code(
    cloud: Settings, spark_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cloud.exports().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TIDEMARK_CODE_LOCATION", "tests.toys")
    partner = Partner(toys.declared(toys.new_name()), cloud)
    partner.post("d-1", partner.put("d-1", "a.csv", csv(line(1), line(2))))
    answers = list[object]()
    with dg.DagsterInstance.ephemeral() as instance:

        def waits_and_deploys() -> None:
            def is_answered() -> None:
                answers.extend(partner.sent())
                assert answers

            try:
                eventually(is_answered, seconds=90)
            finally:
                instance_store.save(instance, f"{CODE_OF_STREAMS}tests.toys", "other code")

        deployer = threading.Thread(target=waits_and_deploys)
        deployer.start()
        done = shift_job(partner.of, load_settings()).execute_in_process(instance=instance)
        deployer.join()
        assert done.success and len(answers) == 1
        event = instance.get_latest_materialization_event(dg.AssetKey.from_user_string(partner.of.asset))
    assert event is not None and event.asset_materialization is not None
    said = {name: value.value for name, value in event.asset_materialization.metadata.items()}
    assert {name: said[name] for name in ("delivery_id", "rows", "files")} == {
        "delivery_id": "d-1",
        "rows": 2,
        "files": 1,
    }


def test_streams_sensor_requests_one_run_per_delivery_worker() -> None:
    of = toys.declared("parcels", workers=2)
    with dg.DagsterInstance.ephemeral() as instance:
        result = streams_sensor([of], Settings())(dg.build_sensor_context(instance=instance))
    assert isinstance(result, dg.SensorResult)
    assert [(r.job_name, r.tags[WORKER]) for r in result.run_requests or ()] == [
        ("shift_parcels", "0"),
        ("shift_parcels", "1"),
    ]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"name": "a-b"}, "Python identifier"),
        ({"workers": 0}, "workers"),
        ({"table": Table("core.x", {"delivery_id": "string"}, ("delivery_id",))}, "lacks"),
        ({"prefix": ""}, "prefix"),
    ],
)
def test_invalid_delivery_declaration_is_refused(more: dict[str, object], why: str) -> None:
    name = str(more.pop("name", "parcels"))
    with pytest.raises(StreamRefused, match=why):
        toys.declared(name, **more)

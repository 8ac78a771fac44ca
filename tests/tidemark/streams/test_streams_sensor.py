"""The sensor `streams`: somebody works at each stream, and nobody twice."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster import DagsterInstance, DagsterRunStatus
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.test_utils import create_run_for_test
from dagster._core.utils import make_new_run_id

from dagster_tidemark.dagster_internals import instance_store, run_storage
from dagster_tidemark.event_log.standby import Record, key_of
from dagster_tidemark.sensors import streams as sensor
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams.job import NoInlet, code_of, inlets_of, run_shift, shift_job
from dagster_tidemark.streams.shift_lease import Post
from dagster_tidemark.streams.slots import without_a_slot
from dagster_tidemark.streams.stream_declaration import Stream
from dagster_tidemark.tags import CODE, CODE_OF_STREAMS, SHIFT, STREAM, WORKER
from pipelines.streams import STREAMS
from tests.checkout import CHECKOUT
from tests.tidemark.streams import toy

PINGS = toy.stream("pings", workers=2)
OFF = toy.stream("off", queue=None, topic="pings")


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as made:
        yield made


def run(instance: DagsterInstance, worker: str, status: DagsterRunStatus = DagsterRunStatus.STARTED) -> dg.DagsterRun:
    made: dg.DagsterRun = create_run_for_test(
        instance, job_name=PINGS.job, tags={STREAM: "pings", WORKER: worker}, status=status
    )
    return made


def wanted(instance: DagsterInstance, now: float | None = None) -> list[tuple[str | None, str]]:
    asked, _ = sensor._wanted(instance, [PINGS], Settings(), time.time() if now is None else now)
    return [(request.job_name, request.tags[WORKER]) for request in asked]


def test_streams_sensor_requests_a_run_for_each_missing_worker(instance: DagsterInstance) -> None:
    assert wanted(instance) == [("shift_pings", "0"), ("shift_pings", "1")]
    run(instance, "0")
    run(instance, "1", DagsterRunStatus.STARTING)
    assert wanted(instance) == []


def test_ended_shift_is_requested_again(instance: DagsterInstance) -> None:
    run(instance, "0")
    ended = run(instance, "1")
    assert wanted(instance) == []
    instance.report_run_canceled(ended)
    assert wanted(instance) == [("shift_pings", "1")]


def test_shift_with_replaced_code_has_a_successor_before_it_ends(instance: DagsterInstance) -> None:
    tags = {STREAM: "pings", WORKER: "0"}
    for status in (DagsterRunStatus.STARTED, DagsterRunStatus.STARTING):
        create_run_for_test(instance, job_name=PINGS.job, tags=tags | {CODE: "replaced"}, status=status)
    run(instance, "1")
    assert wanted(instance) == [("shift_pings", "0")]
    create_run_for_test(instance, job_name=PINGS.job, tags=tags | {CODE: code_of(Settings())})
    assert wanted(instance) == [], "one successor is enough"


def test_preview_of_the_streams_sensor_ends_no_shift(instance: DagsterInstance) -> None:
    settings, preview = Settings(), dg.build_sensor_context(instance)
    key = CODE_OF_STREAMS + settings.code_location
    instance_store.save(instance, key, "deployed")
    assert isinstance(sensor.streams_sensor([PINGS], settings)(preview), dg.SensorResult)
    assert instance_store.saved(instance, key) == "deployed"


def test_shift_with_replaced_code_ends_before_it_receives_messages(instance: DagsterInstance) -> None:
    settings = Settings()
    record = Record(code="deployed", replaced=(code_of(settings),))
    instance_store.save(instance, key_of(settings, ""), str(record))
    done = shift_job(PINGS, settings).execute_in_process(instance=instance)
    assert done.success and instance_store.saved_under(instance, SHIFT) == {}


def test_shift_with_a_dead_process_is_replaced_before_run_monitoring_reports_it(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, alive = run(instance, "0"), run(instance, "1")

    def health(of: dg.DagsterRun) -> CheckRunHealthResult:
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND if of.run_id == gone.run_id else WorkerStatus.RUNNING)

    launcher: Any = type(instance.run_launcher)
    monkeypatch.setattr(launcher, "supports_check_run_worker_health", property(lambda _: True), raising=False)
    monkeypatch.setattr(launcher, "check_run_worker_health", lambda _, of: health(of), raising=False)
    assert wanted(instance) == [("shift_pings", "0")]
    assert alive.run_id != gone.run_id


def test_shift_is_left_to_run_monitoring_if_the_launcher_cannot_check(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(instance, "0"), run(instance, "1")

    def refuses(_: object, of: dg.DagsterRun) -> CheckRunHealthResult:
        raise PermissionError("not from here")

    launcher: Any = type(instance.run_launcher)
    monkeypatch.setattr(launcher, "supports_check_run_worker_health", property(lambda _: True), raising=False)
    monkeypatch.setattr(launcher, "check_run_worker_health", refuses, raising=False)
    assert wanted(instance) == []


def test_shift_that_fails_at_each_start_is_retried_at_growing_intervals(instance: DagsterInstance) -> None:
    run(instance, "1")
    assert wanted(instance) == [("shift_pings", "0")]
    instance.report_run_failed(run(instance, "0"))
    assert wanted(instance) == [("shift_pings", "0")], "a single failure (a kill) costs no time"
    for _ in range(3):
        instance.report_run_failed(run(instance, "0"))
    now = time.time()
    assert wanted(instance, now) == []
    assert wanted(instance, now + 50) == [("shift_pings", "0")]


def test_topic_stream_is_off_and_reports_it_without_kafka(instance: DagsterInstance) -> None:
    asked, said = sensor._wanted(instance, [OFF], Settings(kafka_bootstrap_servers=None), time.time())
    assert asked == []
    assert said == {"off": "off is off: TIDEMARK_KAFKA_BOOTSTRAP_SERVERS is not set"}
    assert inlets_of(OFF, Settings(kafka_bootstrap_servers=None)) == []
    with pytest.raises(NoInlet):
        run_shift(dg.build_op_context(instance=instance), OFF, Settings(kafka_bootstrap_servers=None))


def test_unfinished_shifts_are_counted_apart_from_table_runs(instance: DagsterInstance) -> None:
    assert run_storage.unfinished_shifts(instance) == []
    run(instance, "0")
    run(instance, "1", DagsterRunStatus.STARTING)
    create_run_for_test(instance, job_name="tables", status=DagsterRunStatus.STARTED)
    assert len(run_storage.unfinished_shifts(instance)) == 2


def test_shift_stops_only_when_newer_code_is_loaded(
    instance: DagsterInstance,
) -> None:
    settings, clock = Settings(), [0.0]
    key = CODE_OF_STREAMS + settings.code_location
    instance_store.save(instance, key, "what the sensor has loaded")
    post = Post(instance, settings, "pings", "0", run(instance, "0").run_id, clock=lambda: clock[0])
    clock[0] = 11.0
    assert post.ends() is None
    instance_store.save(instance, key, "the next")
    clock[0] = 22.0
    assert post.ends() == "new code was loaded"
    late = Post(
        instance, settings, "pings", "0", post.run_id, clock=lambda: clock[0], code="what the sensor has loaded"
    )
    clock[0] = 33.0
    assert late.ends() == "new code was loaded", "it was requested before the deploy, and began after it"


def test_streams_sensor_saves_the_version_of_its_loaded_code(instance: DagsterInstance) -> None:
    settings = Settings()
    sensor._tell_code(instance, settings)
    assert instance_store.saved(instance, CODE_OF_STREAMS + settings.code_location) == code_of(settings)
    assert len(code_of(settings)) == 16


def test_shift_job_has_the_tags_of_its_stream() -> None:
    job = shift_job(replace(PINGS, workers=1), Settings())
    assert job.name == "shift_pings"
    assert job.tags[STREAM] == "pings"


@pytest.mark.parametrize(
    ("limit", "started", "refused"),
    [(10, 4, set()), (5, 4, set()), (4, 3, {"pings"}), (3, 2, {"pings", "b"}), (1, 0, {"pings", "a", "b"})],
)
def test_shifts_leave_a_slot_for_tables_under_the_dagster_queue(limit: int, started: int, refused: set[str]) -> None:
    streams = [PINGS, toy.stream("a"), toy.stream("b")]
    overrides = {"concurrency": {"runs": {"max_concurrent_runs": limit}}}
    with dg.instance_for_test(overrides=overrides) as instance:
        asked, said = sensor._wanted(instance, streams, Settings(), time.time())
    assert len(asked) == started and set(said) == refused
    assert all(
        f"4 shifts, {limit} slots; set concurrency.runs.max_concurrent_runs to 5" in why for why in said.values()
    )


def test_run_queue_of_the_laptop_has_slots_for_all_shifts_and_three_tables() -> None:
    overrides = yaml.safe_load((CHECKOUT / "dagster.yaml").read_text())
    with dg.instance_for_test(overrides={"concurrency": overrides["concurrency"]}) as instance:
        asked, said = sensor._wanted(instance, STREAMS, Settings(), time.time())
        limit = run_storage.queue_limit(instance)
    assert limit is not None and len(asked) == limit - 3 and not said


def test_former_name_of_the_run_queue_names_its_successor(caplog: pytest.LogCaptureFixture) -> None:
    queue = {"module": "dagster_tidemark.local.dagster.run_queue", "class": "PromptRunQueue"}
    overrides = {"run_coordinator": queue | {"config": {"max_concurrent_runs": 3, "dequeue_use_threads": True}}}
    with dg.instance_for_test(overrides=overrides) as instance:
        assert run_storage.queue_limit(instance) == 3
    assert "class: QueuedRunCoordinator" in caplog.text


def run_of(
    instance: DagsterInstance, location: str, worker: str, status: DagsterRunStatus = DagsterRunStatus.STARTED
) -> dg.DagsterRun:
    """A shift of the stream pings in a code location."""
    origin = RemoteJobOrigin(RemoteRepositoryOrigin(RegisteredCodeLocationOrigin(location), "repository"), PINGS.job)
    tags = {STREAM: "pings", WORKER: worker}
    made = dg.DagsterRun(PINGS.job, make_new_run_id(), status=status, tags=tags, remote_job_origin=origin)
    return instance.add_run(made)


@pytest.fixture
def three_slots(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> DagsterInstance:
    monkeypatch.setattr(run_storage, "queue_limit", lambda _: 3)  # an instance with a queue takes a second to make
    return instance


def asked_by(instance: DagsterInstance, home: str, stream: Stream = PINGS) -> tuple[list[str], dict[str, str]]:
    requests, said = sensor._wanted(instance, [stream], Settings(), time.time(), home=home)
    return [request.tags[WORKER] for request in requests], said


def test_shifts_of_two_locations_together_leave_a_slot_for_tables(three_slots: DagsterInstance) -> None:
    assert asked_by(three_slots, "ours") == (["0", "1"], {}), "nobody else needs the slots"
    theirs = run_of(three_slots, "theirs", "0")
    asked, said = asked_by(three_slots, "ours")
    assert (asked, list(said)) == (["0"], ["pings"])
    assert said["pings"].endswith(
        "its shift 1 is not started, because shifts would leave no slot for tables: 3 shifts (1 of code location "
        "theirs), 3 slots; set concurrency.runs.max_concurrent_runs to 4 or more"
    )
    run_of(three_slots, "theirs", "1", DagsterRunStatus.QUEUED)
    assert asked_by(three_slots, "ours")[0] == [], "a queued shift takes the next slot"
    three_slots.report_run_canceled(theirs)
    assert asked_by(three_slots, "ours")[0] == ["0"]


def test_no_shift_is_requested_beside_own_later_shifts_that_hold_the_last_slot(three_slots: DagsterInstance) -> None:
    run_of(three_slots, "ours", "1"), run_of(three_slots, "theirs", "0")
    assert asked_by(three_slots, "ours")[0] == [], "tables would have no slot"


def test_successor_of_a_shift_needs_no_further_slot(three_slots: DagsterInstance) -> None:
    for worker in ("0", "1"):
        three_slots.add_run_tags(run_of(three_slots, "ours", worker).run_id, {CODE: "replaced"})
    assert asked_by(three_slots, "ours") == (["0", "1"], {})


def test_slot_of_a_stream_that_rests_after_failures_is_kept_for_it(three_slots: DagsterInstance) -> None:
    for _ in range(4):
        three_slots.report_run_failed(run_of(three_slots, "ours", "0"))
    asked, said = asked_by(three_slots, "ours", replace(PINGS, workers=3))
    assert asked == ["1"] and "its shift 2 is not started" in said["pings"]


def test_newest_shifts_end_if_two_locations_started_shifts_at_once(three_slots: DagsterInstance) -> None:
    """Both sensors have found two free slots."""
    runs = [run_of(three_slots, location, worker) for worker in ("0", "1") for location in ("ours", "theirs")]
    ended = [bool(without_a_slot(three_slots, each)) for each in runs]
    assert ended == [False, False, True, True]
    why = without_a_slot(three_slots, runs[2])
    assert "4 shifts (2 of code location theirs), 3 slots; set concurrency.runs.max_concurrent_runs to 5" in why
    successor = run_of(three_slots, "ours", "0")
    assert not without_a_slot(three_slots, successor), "it has the slot of its predecessor"


def test_shift_without_a_slot_ends_before_it_receives_messages(three_slots: DagsterInstance) -> None:
    run_of(three_slots, "theirs", "0"), run_of(three_slots, "theirs", "1")
    done = shift_job(PINGS, Settings()).execute_in_process(instance=three_slots)
    assert done.success and instance_store.saved_under(three_slots, SHIFT) == {}


def test_stream_of_the_same_name_in_another_location_is_another_stream(instance: DagsterInstance) -> None:
    def of(location: str, worker: str) -> dg.DagsterRun:
        return run_of(instance, location, worker)

    def asked(home: str) -> list[str]:
        requests, _ = sensor._wanted(instance, [PINGS], Settings(), time.time(), home=home)
        return [request.tags[WORKER] for request in requests]

    of("theirs", "0"), of("theirs", "1"), of("ours", "1")
    assert (asked("ours"), asked("theirs"), asked("third")) == (["0"], [], ["0", "1"])
    for _ in range(4):
        instance.report_run_failed(of("theirs", "0"))
    assert asked("ours") == ["0"], "failures of the other stream do not delay this one"

"""The sensor `streams`: sees that somebody works at each stream.

A shift that has ended, or whose process is gone, is followed by another within a tick. Does not belong here: what a
shift does (`streams.shift`), and when it ends (`streams.job`).
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.launcher.base import WorkerStatus

from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.settings import Settings, load_settings
from pipelines.tidemark.streams.deliveries import Deliveries
from pipelines.tidemark.streams.job import code_of, shift_job
from pipelines.tidemark.streams.stream import Stream
from pipelines.tidemark.tags import CODE_OF_STREAMS, STREAM, WORKER

NAME = "streams"
_GONE = (WorkerStatus.NOT_FOUND, WorkerStatus.FAILED, WorkerStatus.SUCCESS)
_LOOKED_AT = 6
_LONGEST_WAIT = 300.0
_RECENT = 900.0


@dataclass(frozen=True)
class Ended:
    """How the newest runs of one worker ended.

    Args:
        failures: Those in a row that failed within minutes of each other, up to the newest.
        at: When the newest ended, in Unix seconds.
    """

    failures: int = 0
    at: float = 0.0

    def rests_until(self) -> float:
        """When the next may start: at once after the first failure, later and later after more."""
        return self.at + min(2.0 ** (self.failures - 1) * 5, _LONGEST_WAIT) if self.failures > 1 else 0.0


def streams_sensor(streams: Sequence[Stream | Deliveries]) -> dg.SensorDefinition:
    """The sensor over these streams' jobs."""

    @dg.sensor(
        name=NAME,
        description="Starts a run for each stream at which nobody works: its messages are taken within seconds.",
        jobs=[shift_job(stream) for stream in streams],
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def looks(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        settings = load_settings()
        _tell_code(context.instance, settings)
        asked, said = _wanted(context.instance, streams, settings, time.time())
        for line in said:
            context.log.info(line)
        return dg.SensorResult(run_requests=asked) if asked else dg.SkipReason("; ".join(said) or "all are worked at")

    return looks


def _tell_code(instance: DagsterInstance, settings: Settings) -> None:
    key, code = CODE_OF_STREAMS + settings.code_location, code_of(settings)
    if adapter.saved(instance, key) != code:
        adapter.save(instance, key, code)


def _wanted(
    instance: DagsterInstance, streams: Iterable[Stream | Deliveries], settings: Settings, now: float
) -> tuple[list[dg.RunRequest], list[str]]:
    """The runs to start, and sentences about those that are not started."""
    at_work = set(_at_work(instance))
    asked, said = list[dg.RunRequest](), list[str]()
    for stream in streams:
        if why := stream.why_off(settings):
            said.append(f"{stream.name} is off: {why}")
            continue
        for worker in range(stream.workers):
            if (stream.name, str(worker)) in at_work:
                continue
            ended = _ended(instance, stream, worker)
            if ended.rests_until() > now:
                said.append(
                    f"{stream.name}: {ended.failures} runs failed in a row; the next starts in "
                    f"{ended.rests_until() - now:.0f} s"
                )
                continue
            asked.append(dg.RunRequest(job_name=stream.job, tags={STREAM: stream.name, WORKER: str(worker)}))
    return asked, said


def _at_work(instance: DagsterInstance) -> Iterator[tuple[str, str]]:
    for record in adapter.unfinished_shifts(instance):
        run = record.dagster_run
        if not _is_gone(instance, run):
            yield run.tags[STREAM], run.tags.get(WORKER, "0")


def _is_gone(instance: DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the process of a run that should be at work is no more; run monitoring says so later."""
    if run.status is not DagsterRunStatus.STARTED or not instance.run_launcher.supports_check_run_worker_health:
        return False
    try:
        return instance.run_launcher.check_run_worker_health(run).status in _GONE
    except Exception:  # a launcher that cannot be asked from here: run monitoring looks after its runs
        return False


def _ended(instance: DagsterInstance, stream: Stream | Deliveries, worker: int) -> Ended:
    filters = RunsFilter(job_name=stream.job, tags={WORKER: str(worker)})
    failures, last, newest = 0, None, 0.0
    for record in instance.get_run_records(filters, limit=_LOOKED_AT):
        if record.dagster_run.status is not DagsterRunStatus.FAILURE or record.end_time is None:
            break
        if last is not None and last - record.end_time > _RECENT:
            break
        failures, last, newest = failures + 1, record.end_time, max(newest, record.end_time)
    return Ended(failures, newest)

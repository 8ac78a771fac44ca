"""A stream's job: one run of it is a shift, which works until new code is loaded, or an hour has passed.

Belongs here: what Dagster has to do with a shift. Does not belong here: the work (`shift`), and who starts the next run
(`sensors.streams`).
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from pipelines.tidemark.errors import Terminal
from pipelines.tidemark.event_log import adapter
from pipelines.tidemark.event_log.observations import QUARANTINE
from pipelines.tidemark.resources.aws import ImpatientS3, LandingResource
from pipelines.tidemark.settings import Settings, load_settings
from pipelines.tidemark.sources.inlets import QueueInlet
from pipelines.tidemark.sources.records import Inlet
from pipelines.tidemark.sources.sqs import open_queue
from pipelines.tidemark.streams.checks import refused_result
from pipelines.tidemark.streams.deliveries import Deliveries
from pipelines.tidemark.streams.stream import Stream, Workplace
from pipelines.tidemark.tags import ARRIVED_AT, CODE_OF_STREAMS, DATA_VERSION, LISTED_AT, PRIORITY, STREAM, TABLES

if TYPE_CHECKING:
    from pipelines.tidemark.streams.delivering import Delivering
    from pipelines.tidemark.streams.shift import Shift

Ends = Callable[[], str | None]
"""A reason once a run is to end."""

_MINUTES = 60
_LOOK_SECONDS = 2.0  # at whether another code is loaded
_FIRST = 10  # before every table: a message waits for seconds, not for minutes


class NoInlet(Terminal):
    """A stream's run was started where there is nothing that its messages could come from."""


def shift_job(stream: Stream | Deliveries) -> dg.JobDefinition:
    """The job of a stream."""

    @dg.op(name=f"{stream.name}_messages", description=f"Works at the stream {stream.name} until it is relieved.")
    def work(context: dg.OpExecutionContext) -> None:
        run_shift(context, stream, load_settings())

    @dg.job(
        name=stream.job,
        description=f"Takes messages of {stream.name} as they come, into {stream.table.name}, and does what follows.",
        tags={STREAM: stream.name, TABLES: stream.asset, PRIORITY: str(_FIRST)},
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        work()

    return job


def run_shift(context: dg.OpExecutionContext, stream: Stream | Deliveries, settings: Settings) -> None:
    """Work at a stream.

    Raises:
        NoInlet: nothing is set up that its messages could come from.
    """
    began, code = time.monotonic(), CodeLoaded(context.instance, settings)

    def ends() -> str | None:
        if time.monotonic() - began > _MINUTES * 60:
            return f"{_MINUTES} minutes are over"
        return code.changed()

    at_work: Shift | Delivering
    if isinstance(stream, Deliveries):
        at_work = _delivering(context, stream, settings, ends)
    else:
        at_work = _shift(context, stream, settings, ends)
    why = at_work.work()
    context.log.info(f"ends, because {why}: {at_work.counts}")


def _shift(context: dg.OpExecutionContext, stream: Stream, settings: Settings, ends: Ends) -> "Shift":
    # Here, because pyiceberg takes a second to import, which every load of the code location would pay.
    from pipelines.tidemark.lakehouse.append import open_lake
    from pipelines.tidemark.streams.backlog import Backlog
    from pipelines.tidemark.streams.reports import Reports
    from pipelines.tidemark.streams.shift import Shift

    inlets = inlets_of(stream, settings)
    if not inlets:
        raise NoInlet(f"stream {stream.name}: its topic needs TIDEMARK_KAFKA_BOOTSTRAP_SERVERS")
    context.log.info(f"takes messages from {', '.join(inlet.name for inlet in inlets)}")
    place = Workplace(settings, open_lake(settings), stream)
    topic = stream.topic_in(settings)
    backlogs = {} if topic is None else {f"kafka:{topic}": Backlog(place, topic, log=context.log)}
    reports = Reports(stream, InstanceLog(context.instance))
    return Shift(place, inlets, reports, code_of(settings), ends, context.log, backlogs)


def _delivering(context: dg.OpExecutionContext, declared: Deliveries, settings: Settings, ends: Ends) -> "Delivering":
    from pipelines.tidemark.lakehouse.append import open_lake
    from pipelines.tidemark.streams.delivering import Delivering
    from pipelines.tidemark.streams.delivery_verdict import Verdicts
    from pipelines.tidemark.streams.in_hand import InHand

    queue, answers, aws = declared.queue_in(settings), declared.answers_in(settings), settings.aws_options()
    context.log.info(f"takes messages from sqs:{queue}, answers to sqs:{answers}")
    s3 = ImpatientS3(endpoint_url=settings.aws_endpoint_url, region_name=settings.aws_region)
    landing = LandingResource(s3=s3, bucket=settings.landing_bucket).open()
    return Delivering(
        Verdicts(declared, settings, open_lake(settings), landing),
        InHand(lambda: open_queue(queue, **aws)),
        lambda: open_queue(answers, **aws),
        InstanceLog(context.instance),
        ends,
        context.log,
    )


def inlets_of(stream: Stream, settings: Settings) -> list[Inlet]:
    """Where the messages of a stream come from in this deployment."""
    found: list[Inlet] = []
    if queue := stream.queue_in(settings):
        found.append(QueueInlet(f"sqs:{queue}", lambda: open_queue(queue, **settings.aws_options())))
    if topic := stream.topic_in(settings):
        from pipelines.tidemark.sources.kafka import KafkaTopic

        found.append(KafkaTopic(settings.kafka_options(), topic))
    return found


class InstanceLog:
    """Reports into a Dagster instance, without a run: they stay when somebody deletes the runs of shifts."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def observed(self, asset: str, partition: str | None, *, version: str, arrived_at: float) -> None:
        """A partition of an asset has other rows."""
        tags = {DATA_VERSION: version, ARRIVED_AT: f"{arrived_at:.3f}", LISTED_AT: f"{adapter.now():.3f}"}
        key = dg.AssetKey.from_user_string(asset)
        self._instance.report_runless_asset_event(dg.AssetObservation(key, partition=partition, tags=tags))

    def materialized(self, asset: str, metadata: Mapping[str, int | float | str]) -> None:
        """An asset was written."""
        key = dg.AssetKey.from_user_string(asset)
        self._instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=dict(metadata)))

    def refused(self, asset: str, by_reason: Mapping[str, int]) -> None:
        """So many messages of an asset are in the quarantine."""
        key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), QUARANTINE)
        found = refused_result(by_reason)
        self._instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=found.passed,
                severity=found.severity,
                description=found.description,
                metadata=found.metadata,
            )
        )


class CodeLoaded:
    """Whether the code location has loaded other code since a shift began.

    Not whether the shift's own code is another one than the location's: a shift that starts from edited files would
    end at once, and the next one too.
    """

    def __init__(
        self, instance: dg.DagsterInstance, settings: Settings, *, clock: Callable[[], float] = time.monotonic
    ):
        self._instance, self._key, self._clock = instance, CODE_OF_STREAMS + settings.code_location, clock
        self._began_with = adapter.saved(instance, self._key)
        self._looked_at = clock()
        self._reason: str | None = None

    def changed(self) -> str | None:
        """The reason to end, if there is other code."""
        if self._reason is None and self._clock() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._clock()
            if adapter.saved(self._instance, self._key) != self._began_with:
                self._reason = "other code was loaded"
        return self._reason


@cache
def code_of(settings: Settings) -> str:
    """A hash of the location's code and of ours, as it is now: asked for when it is loaded."""
    digest = hashlib.sha256()
    for package in sorted({settings.code_location, __name__.partition(".")[0]}):
        found = find_spec(package)
        for folder in sorted(found.submodule_search_locations or ()) if found else ():
            for file in sorted(Path(folder).rglob("*.py")):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]

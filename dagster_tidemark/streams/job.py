"""The job of a stream. Each run is a shift: it works until new code is loaded, or an hour has passed.

Belongs here: Dagster's part in a shift. Does not belong here: the work (`shift`), the reasons to end (`shift_lease`),
and the start of the next run (`sensors.streams`).
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import boto3
import dagster as dg
from botocore.config import Config

from dagster_tidemark.dagster_internals import event_time
from dagster_tidemark.errors import Terminal
from dagster_tidemark.event_log.deployed import code_of
from dagster_tidemark.event_log.executor import recorded_in_process
from dagster_tidemark.event_log.observations import QUARANTINE, report_result
from dagster_tidemark.event_log.standby import has_replaced_code
from dagster_tidemark.resources.aws import ImpatientS3, LandingResource
from dagster_tidemark.settings import Settings
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.sources.notification_queue import QueueOutlet
from dagster_tidemark.sources.received_messages import Inlet
from dagster_tidemark.streams.checks import refused_result, state_of
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.shift_lease import BEAT_SECONDS, Post
from dagster_tidemark.streams.shift_metrics import Facts
from dagster_tidemark.streams.shift_retries import RunEnds, patiently
from dagster_tidemark.streams.slots import without_a_slot
from dagster_tidemark.streams.stream_declaration import Stream, StreamContext
from dagster_tidemark.streams.transport import create_missing_or_log, declared_queue
from dagster_tidemark.tags import (
    ARRIVED_AT,
    CODE,
    DATA_VERSION,
    LISTED_AT,
    NOT_RETRIED,
    PRIORITY,
    STREAM,
    TABLES,
    WORKER,
)

if TYPE_CHECKING:
    from dagster_tidemark.streams.deliveries.worker import Delivering
    from dagster_tidemark.streams.shift import Shift

Ends = Callable[[], str | None]
"""Returns the reason to end; None as long as the run should work."""

_IMPATIENT = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 1})
_FIRST = 10  # above every table's priority: messages wait for seconds, not for minutes


class NoInlet(Terminal):
    """A stream's run was started in a deployment without a source of the stream's messages."""


def shift_job(stream: Stream | Deliveries, settings: Settings) -> dg.JobDefinition:
    """Return the job of a stream."""

    @dg.op(
        name=f"{stream.name}_messages",
        description=f"Receives messages of the stream {stream.name} until another run takes over.",
    )
    def work(context: dg.OpExecutionContext) -> None:
        run_shift(context, stream, settings)

    @dg.job(
        name=stream.job,
        description=f"Receives messages of {stream.name}, writes them to {stream.table.name}, and runs the reaction.",
        tags={STREAM: stream.name, TABLES: stream.asset, PRIORITY: str(_FIRST), **NOT_RETRIED},
        executor_def=recorded_in_process,
    )
    def job() -> None:
        work()

    return job


def run_shift(context: dg.OpExecutionContext, stream: Stream | Deliveries, settings: Settings) -> None:
    """Handle the messages of a stream until there is a reason to end.

    Raises:
        NoInlet: the deployment has no source of the stream's messages.
    """

    if isinstance(stream, Stream) and stream.why_off(settings):
        raise NoInlet(f"stream {stream.name}: its topic needs TIDEMARK_KAFKA_BOOTSTRAP_SERVERS")
    if has_replaced_code(context.instance, context.run, settings):
        context.log.info("ended before it received messages: a newer code server has replaced the code of this process")
        return
    if no_slot := without_a_slot(context.instance, context.run):
        context.log.info(f"ended before it received messages: {no_slot}")
        return
    at_work: Shift | Delivering | None = None
    worker = context.run.tags.get(WORKER, "0")
    facts = _facts_of(stream, settings)
    post = Post(
        context.instance,
        settings,
        stream.name,
        worker,
        context.run_id,
        lambda: 0 if at_work is None else at_work.counts.commits,
        facts,
        code=context.run.tags.get(CODE),
    )
    with post:
        try:
            # Opens the lake and its tables, with retries until the catalog answers.
            if isinstance(stream, Deliveries):
                at_work = _delivering(context, stream, settings, post.ends, facts)
            else:
                at_work = _shift(context, stream, settings, post.ends, facts)
        except RunEnds as ended:
            context.log.info(f"ended before it received messages: {ended}")
            return
        facts.at_work = at_work
        why = at_work.work()
    context.log.info(f"ended because {why}: {at_work.counts}")


def _facts_of(stream: Stream | Deliveries, settings: Settings) -> Facts:
    queue = stream.queue
    topic = stream.topic_in(settings) if isinstance(stream, Stream) else None
    depth = None if queue is None else _depth_of(queue, settings)
    if topic is None:
        return Facts(depth)
    from dagster_tidemark.sources.kafka import TopicBacklog

    return Facts(depth, TopicBacklog(settings.kafka_options(), topic).after)


def _depth_of(queue: str, settings: Settings) -> Callable[[], int]:
    from dagster_tidemark.sources.sqs import SqsQueue

    held: list[SqsQueue] = []

    def depth() -> int:
        if not held:
            # A separate session, because several threads cannot safely create clients from the default session.
            client = boto3.Session().client("sqs", config=_IMPATIENT, **settings.aws_options())
            held.append(SqsQueue(client, queue))
        return held[0].depth()

    return depth


def _shift(context: dg.OpExecutionContext, stream: Stream, settings: Settings, ends: Ends, facts: Facts) -> "Shift":
    # Imported here, because pyiceberg takes a second to import, which would slow each load of the code location.
    from dagster_tidemark.lakehouse.append import open_lake
    from dagster_tidemark.streams.reports import Reports
    from dagster_tidemark.streams.shift import Shift
    from dagster_tidemark.streams.topic_backlog import TopicBacklogReader

    inlets = inlets_of(stream, settings)
    context.log.info(f"receiving messages from {', '.join(inlet.name for inlet in inlets)}")
    create_missing_or_log(stream, settings)
    topic = stream.topic_in(settings)
    reports = Reports(stream, InstanceLog(context.instance, _state_reader(context.instance, stream, settings)))

    def made() -> Shift:
        place = StreamContext(settings, open_lake(settings), stream)
        backlogs = {} if topic is None else {f"kafka:{topic}": TopicBacklogReader(place, topic, log=context.log)}
        return Shift(place, inlets, reports, code_of(settings), ends, context.log, backlogs)

    return patiently(f"the start of {stream.job}", made, ends, context.log, facts.note)


def _state_reader(
    instance: dg.DagsterInstance, stream: Stream, settings: Settings
) -> Callable[[], Mapping[str, object]]:
    """Return a function that reads the stream's state, at most once per heartbeat interval."""
    read: list[tuple[float, Mapping[str, object]]] = []

    def state() -> Mapping[str, object]:
        if not read or time.monotonic() - read[0][0] > BEAT_SECONDS:
            read[:] = [(time.monotonic(), state_of(instance, stream, settings).metadata())]
        return read[0][1]

    return state


def _delivering(
    context: dg.OpExecutionContext, declared: Deliveries, settings: Settings, ends: Ends, facts: Facts
) -> "Delivering":
    from dagster_tidemark.lakehouse.append import open_lake
    from dagster_tidemark.streams.deliveries.verdict import Verdicts
    from dagster_tidemark.streams.deliveries.worker import Delivering

    queue, answers = declared.queue, declared.answers
    inlet = QueueInlet(f"sqs:{queue}", lambda: declared_queue(queue, settings), at_once=1)  # the rest is for other runs
    context.log.info(f"receiving messages from {inlet.name}, sending answers to sqs:{answers}")
    create_missing_or_log(declared, settings)
    s3 = ImpatientS3(endpoint_url=settings.aws_endpoint_url, region_name=settings.aws_region)
    landing = LandingResource(s3=s3, bucket=settings.landing_bucket).open()
    return Delivering(
        patiently(
            f"the start of {declared.job}",
            lambda: Verdicts(declared, settings, open_lake(settings), landing),
            ends,
            context.log,
            facts.note,
        ),
        inlet,
        QueueOutlet(lambda: declared_queue(answers, settings)),
        InstanceLog(context.instance),
        ends,
        context.log,
    )


def inlets_of(stream: Stream, settings: Settings) -> list[Inlet]:
    """Return the inlets of a stream in this deployment."""
    found: list[Inlet] = []
    if queue := stream.queue:
        found.append(QueueInlet(f"sqs:{queue}", lambda: declared_queue(queue, settings)))
    if topic := stream.topic_in(settings):
        from dagster_tidemark.sources.kafka import KafkaTopic

        found.append(KafkaTopic(settings.kafka_options(), topic))
    return found


class InstanceLog:
    """Reports to a Dagster instance as runless events, which remain after the runs of shifts are deleted.

    Args:
        state: Returns the state of the stream, which the page of its asset shows with the newest observation.
    """

    def __init__(self, instance: dg.DagsterInstance, state: Callable[[], Mapping[str, object]] = dict) -> None:
        self._instance, self._state = instance, state

    def observed(self, asset: str, partition: str | None, *, version: str, arrived_at: float) -> None:
        """Report new rows in a partition of an asset. The oldest row arrived at `arrived_at` (Unix seconds)."""
        tags = {DATA_VERSION: version, ARRIVED_AT: f"{arrived_at:.3f}", LISTED_AT: f"{event_time.now():.3f}"}
        key = dg.AssetKey.from_user_string(asset)
        said: Mapping[str, Any] = self._state()
        observation = dg.AssetObservation(key, partition=partition, tags=tags, metadata=said)
        self._instance.report_runless_asset_event(observation)

    def materialized(self, asset: str, metadata: Mapping[str, int | float | str]) -> None:
        """Report that an asset was written."""
        key = dg.AssetKey.from_user_string(asset)
        self._instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=dict(metadata)))

    def refused(self, asset: str, by_reason: Mapping[str, int]) -> None:
        """Report the number of an asset's messages in the quarantine, by reason."""
        key = dg.AssetCheckKey(dg.AssetKey.from_user_string(asset), QUARANTINE)
        report_result(self._instance, key, refused_result(by_reason))

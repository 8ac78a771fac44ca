"""The sensor `streams`: keeps a run (a shift) working at each post of each stream.

A post is one of a stream's numbered workers. If its shift has ended or hangs, or if the shift's process is gone, the
sensor starts another shift at the next tick. On SIGTERM or SIGINT, the code server asks its child shifts to end:
Dagster's code server waits for the runs that it started, and a shift works for up to an hour. Does not belong here: the
work of a shift (`streams.shift`), and its other reasons to end (`streams.shift_lease`).
"""

import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import psutil
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from dagster_tidemark.dagster_internals import code_server, instance_store, run_storage
from dagster_tidemark.engine.doubts import STREAMS, Looked, note_look
from dagster_tidemark.engine.override_store import OverrideStore, pause_of_stream
from dagster_tidemark.event_log.beats import Beat, key_of
from dagster_tidemark.event_log.deployed import code_of
from dagster_tidemark.event_log.executor import end_without_collection
from dagster_tidemark.event_log.run_process import ProcessState, fate_of, identity_of
from dagster_tidemark.event_log.standby import is_preview, location_of, reason_to_stand_by
from dagster_tidemark.pauses import growing_pause
from dagster_tidemark.sensors.scope import WHOLE_LOCATION, LocationScope
from dagster_tidemark.settings import Settings
from dagster_tidemark.streams import slots
from dagster_tidemark.streams.deliveries.declaration import Deliveries
from dagster_tidemark.streams.job import shift_job
from dagster_tidemark.streams.shift_lease import STOPPING, STUCK_SECONDS
from dagster_tidemark.streams.stream_declaration import Stream
from dagster_tidemark.tags import CODE, CODE_OF_STREAMS, STREAM, WORKED, WORKER

_LOOKED_AT = 6
_LONGEST_WAIT = 20.0  # seconds; with the start of a run, a stream recovers from any fault within half a minute
_RECENT = 900.0
_SILENT_SECONDS = 40.0
_STARTING_SECONDS = 60.0  # from the start of a run to its first heartbeat
_ASKED = {signal.SIGTERM, signal.SIGINT}


@dataclass(frozen=True)
class Ended:
    """How the newest runs of one worker ended.

    Args:
        failures: Number of newest runs in a row that failed before they did any work, each within 15 minutes of the
            next.
        at: End of the newest run, in Unix seconds.
    """

    failures: int = 0
    at: float = 0.0

    def rests_until(self, now: float) -> float:
        """Return the earliest start of the next run: at once after one failure, with growing pauses after more."""
        # If the clock was set back since, the end is in the future. The stream must not rest until then.
        is_set_back = self.at > now + _LONGEST_WAIT
        if self.failures < 2 or is_set_back:
            return 0.0
        return self.at + growing_pause(self.failures, 5.0, _LONGEST_WAIT)


def streams_sensor(
    streams: Sequence[Stream | Deliveries], settings: Settings, *, scope: LocationScope = WHOLE_LOCATION
) -> dg.SensorDefinition:
    """Return the sensor that starts the jobs of streams."""

    server, beats = CodeServer(), Beats()

    @dg.sensor(
        name=scope.named(STREAMS),
        description="Starts a run (a shift) for each stream that has none. The run receives messages within seconds.",
        jobs=[shift_job(stream, settings) for stream in streams],
        minimum_interval_seconds=1,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def looks(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if server.is_stopping(context.instance, settings):
            return dg.SkipReason("the code server is stopping")
        if why := reason_to_stand_by(context, settings):
            return dg.SkipReason(why)
        if not is_preview(context):
            _tell_code(context.instance, settings)
        asked, said = _wanted(context.instance, streams, settings, time.time(), beats=beats, home=location_of(context))
        for line in said.values():
            context.log.info(line)
        note_look(context.instance, settings.code_location, STREAMS, Looked(time.time(), parts=said))
        lines = "; ".join(said.values())
        return dg.SensorResult(run_requests=asked) if asked else dg.SkipReason(lines or "all shifts are running")

    return looks


def _tell_code(instance: DagsterInstance, settings: Settings) -> None:
    key, code = CODE_OF_STREAMS + settings.code_location, code_of(settings)
    if instance_store.saved(instance, key) != code:
        instance_store.save(instance, key, code)


@dataclass
class Beats:
    """Times when this process last found a changed heartbeat. They do not depend on the clocks of other hosts."""

    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)

    def silent_seconds(self, key: str, beat: str, now: float) -> float:
        """Return the seconds since a heartbeat was last found changed (`now` is a monotonic time)."""
        before, at = self._seen.get(key, ("", now))
        if before != beat:
            at = now
        self._seen[key] = (beat, at)
        return now - at


def _wanted(
    instance: DagsterInstance,
    streams: Iterable[Stream | Deliveries],
    settings: Settings,
    now: float,
    *,
    beats: Beats | None = None,
    home: str = "",
) -> tuple[list[dg.RunRequest], dict[str, str]]:
    """Return the runs to start, and the reasons why other runs are not started, by stream.

    Args:
        home: Name of this code location. A stream of the same name in another location is a different stream, but its
            shifts hold slots of the same queue.
    """
    unfinished = run_storage.unfinished_shifts(instance)
    ours = [record for record in unfinished if slots.is_of_location(record.dagster_run, home)]
    at_work = set(_at_work(instance, settings, ours, beats or Beats(), now))
    asked, said = list[dg.RunRequest](), dict[str, str]()
    posts, overrides = list[tuple[Stream | Deliveries, int]](), OverrideStore(instance).read()
    for stream in streams:
        if why := stream.why_off(settings):
            said[stream.name] = f"{stream.name} is off: {why}"
        elif (pause := pause_of_stream(overrides, settings.code_location, stream.name, now)) is not None:
            said[stream.name] = f"{stream.name} is paused {pause.told()}"
        else:
            posts += [(stream, worker) for worker in range(stream.workers)]
    posts.sort(key=lambda post: post[1])  # each stream gets its first shift before any gets a second
    most, held = slots.most_shifts(instance), set(slots.held_posts(unfinished, home))
    others = [location for location, *_ in held if location != home]
    for number, (stream, worker) in enumerate(posts):
        if (stream.name, str(worker)) in at_work:
            continue
        post = (home, stream.name, str(worker))
        # The first condition keeps the slot of an earlier post that rests after failures.
        if most is not None and (number >= most - len(others) or (post not in held and len(held) >= most)):
            why = slots.told_of_slots(len(posts) + len(others), others, most)
            said[stream.name] = f"{stream.name}: its shift {worker} is not started, because {why}"
            continue
        ended = _ended(instance, stream, worker, home)
        rests = ended.rests_until(now) - now
        if rests > 0:
            said[stream.name] = (
                f"{stream.name}: {ended.failures} runs failed in a row; the next starts in {rests:.0f} s"
            )
            continue
        tags = {STREAM: stream.name, WORKER: str(worker), CODE: code_of(settings)}
        asked.append(dg.RunRequest(job_name=stream.job, tags=tags))
        held.add(post)
    return asked, said


def _at_work(
    instance: DagsterInstance, settings: Settings, ours: Iterable[dg.RunRecord], beats: Beats, now: float
) -> Iterator[tuple[str, str]]:
    """Yield the posts whose shift works or is starting, with the code of this server.

    A shift with other code ends by itself within seconds, or when it starts. Its successor starts in the meantime.
    """
    current = (None, code_of(settings))
    records = [each for each in ours if each.dagster_run.tags.get(CODE) in current]
    posts = {record.dagster_run.run_id: slots.post_of(record.dagster_run) for record in records}
    saved = instance_store.saved_values(instance, {key_of(settings, *post) for post in posts.values()}) if posts else {}
    for record in records:
        run, post = record.dagster_run, posts[record.dagster_run.run_id]
        if run.status is not DagsterRunStatus.STARTED:
            yield post
            continue
        text = saved.get(key_of(settings, *post), "")
        beat = Beat.read(text)
        if beat is None or beat.run != run.run_id:
            hangs = now - (record.start_time or record.create_timestamp.timestamp()) > _STARTING_SECONDS
        else:
            silent = beats.silent_seconds(run.run_id, text, time.monotonic())
            hangs = silent > _SILENT_SECONDS or beat.stuck > STUCK_SECONDS
        if not hangs and not _is_gone(instance, run):
            yield post


def _is_gone(instance: DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return True if a started run's process is gone. The sensor `dead_runs` or run monitoring ends that run."""
    if (fate := fate_of(run)) is not ProcessState.UNKNOWN:
        return fate is ProcessState.GONE
    try:
        return run_storage.is_reported_gone(instance, run)
    except Exception:  # the launcher cannot be queried from here; run monitoring covers its runs
        return False


def _ended(instance: DagsterInstance, stream: Stream | Deliveries, worker: int, home: str) -> Ended:
    filters = RunsFilter(job_name=stream.job, tags={WORKER: str(worker)})
    failures, last, newest = 0, None, 0.0
    for record in instance.get_run_records(filters, limit=_LOOKED_AT):
        run = record.dagster_run
        if not slots.is_of_location(run, home):
            continue
        if run.status is not DagsterRunStatus.FAILURE or WORKED in run.tags or record.end_time is None:
            break
        if last is not None and last - record.end_time > _RECENT:
            break
        failures, last, newest = failures + 1, record.end_time, max(newest, record.end_time)
    return Ended(failures, newest)


class CodeServer:
    """The process with the definitions. Create it while they load, because only the main thread can receive signals.

    It reads signals from a file descriptor, because Dagster replaces the handlers whenever it runs a location's code.
    """

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._ticked: tuple[Any, str] | None = None
        if threading.current_thread() is threading.main_thread() and code_server.is_loaded_by_a_code_server():
            end_without_collection()
            self._listen()

    def is_stopping(self, instance: DagsterInstance, settings: Settings) -> bool:
        """Return True if this process was asked to end. Called at a sensor's tick."""
        if instance.is_persistent:
            self._ticked = (instance.get_ref(), CODE_OF_STREAMS + settings.code_location)
        return self._asked.is_set()

    def _listen(self) -> None:
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:  # other code of this process already uses it
            signal.set_wakeup_fd(before)
            return
        self._writer = writer  # kept open until the process ends
        threading.Thread(target=self._wait, args=[reader], name="waits for signals", daemon=True).start()

    def _wait(self, reader: socket.socket) -> None:
        while not self._asked.is_set():
            if not _ASKED.isdisjoint(reader.recv(16)):
                self._asked.set()
                self._dismiss()

    def _dismiss(self) -> None:
        if self._ticked is not None:
            reference, key = self._ticked
            with DagsterInstance.from_ref(reference) as instance:
                instance_store.save(instance, key, STOPPING + identity_of(psutil.Process()))

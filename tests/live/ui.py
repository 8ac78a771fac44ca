"""What a person does in the UI, through the GraphQL the UI itself speaks.

The mutations and their variables are those of the UI's own bundle: one partition is a run with a tag, several are a
backfill.
"""

import json
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dagster_tidemark.retention.choice import OWN_JOB
from dagster_tidemark.tags import MAINTENANCE, REQUESTED_BY, STREAM
from tests.live.waiting import eventually

UNFINISHED = {"QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING", "MANAGED"}

_RUNS = """query Runs($limit: Int, $filter: RunsFilter) { runsOrError(limit: $limit, filter: $filter) {
    ... on Runs { results {
    runId status creationTime startTime endTime assetSelection { path } tags { key value } } } } }"""
_LAUNCH = """mutation LaunchPipelineExecution($executionParams: ExecutionParams!) {
    launchPipelineExecution(executionParams: $executionParams) {
        __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_BACKFILL = """mutation LaunchPartitionBackfill($backfillParams: LaunchBackfillParams!) {
    launchPartitionBackfill(backfillParams: $backfillParams) {
        __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_BACKFILL_AGAIN = """mutation Again($reexecutionParams: ReexecutionParams) {
    reexecutePartitionBackfill(reexecutionParams: $reexecutionParams) {
        __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_BACKFILL_STATE = """query Backfill($id: String!) { partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status numPartitions error { message } runs(limit: 100) { runId } } } }"""
_FAILURES = """query Failures($id: ID!) { runOrError(runId: $id) { ... on Run { eventConnection { events {
    __typename
    ... on ExecutionStepFailureEvent { error { message causes { message } } } } } } } }"""
_TERMINATE = """mutation Terminate($id: String!) { terminateRun(runId: $id) {
    __typename ... on TerminateRunFailure { message } ... on PythonError { message } } }"""
_RELOAD = """mutation Reload { reloadWorkspace { __typename ... on PythonError { message } } }"""
_LOG = """query Log($id: ID!) { runOrError(runId: $id) { ... on Run { eventConnection { events {
    ... on MessageEvent { message } } } } } }"""
_NODE = """query Node($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    jobNames opNames partitionKeys repository { name location { name } }
    assetChecksOrError { ... on AssetChecks { checks { name jobNames } } } } } }"""
_MATERIALIZATIONS = """query Materializations($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
    assetMaterializations(limit: 5000) { runId partition timestamp metadataEntries {
        label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue }
        ... on TimestampMetadataEntry { timestamp } } } } } }"""
_OBSERVATIONS = """query Observations($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
    assetObservations(limit: 5000) { runId partition tags { key value } } } } }"""
_SENSORS = """query Sensors($selector: RepositorySelector!) { sensorsOrError(repositorySelector: $selector) {
    ... on Sensors { results { name id sensorState { status ticks(limit: 5000) {
        status timestamp error { message } runIds } } } } } }"""
_TICKS = """query Ticks($selector: SensorSelector!) { sensorOrError(sensorSelector: $selector) {
    ... on Sensor { sensorState { ticks(limit: 5000) { runIds logEvents { events { message } } } } } } }"""
_REPORT = """mutation Report($eventParams: ReportRunlessAssetEventsParams!) {
    reportRunlessAssetEvents(eventParams: $eventParams) {
        __typename ... on PythonError { message } } }"""
_STOP_SENSOR = """mutation Stop($id: String!) { stopSensor(id: $id) {
    __typename ... on PythonError { message } } }"""
_START_SENSOR = """mutation Start($selector: SensorSelector!) { startSensor(sensorSelector: $selector) {
    __typename ... on PythonError { message } } }"""


@dataclass(frozen=True)
class Run:
    """A run, as the page of runs shows it. Times are Unix seconds."""

    id: str
    status: str
    assets: frozenset[str]
    tags: dict[str, str]
    created: float
    seconds: float | None


def _is_upkeep(run: Run) -> bool:
    """Return True if a run maintains tables, deletes old records or lists everything at night.

    No arrival of data causes these runs.
    """
    is_listing = run.tags.get("dagster/schedule_name") == "reconcile_all"
    return MAINTENANCE in run.tags or run.tags.get(REQUESTED_BY) == OWN_JOB or is_listing


def _of_tables(runs: Iterable[Run]) -> list[Run]:
    """Return the runs of tables: runs of streams stay, and others maintain the platform."""
    return [run for run in runs if STREAM not in run.tags and not _is_upkeep(run)]


class Ui:
    """The UI of one platform."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def query(self, query: str, **variables: Any) -> Any:
        """The data of a GraphQL answer; an error in it fails the test."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            answer = json.load(reply)
        assert not answer.get("errors"), answer["errors"]
        return answer["data"]

    def runs(self) -> list[Run]:
        """All runs of tables, the newest first."""
        return _of_tables(self._every_run())

    def unfinished(self) -> list[Run]:
        """Runs of tables that have not ended. A wait asks for them twice a second, and the ended ones are many."""
        return _of_tables(self._every_run(statuses=sorted(UNFINISHED)))

    def shifts(self) -> list[Run]:
        """The runs that work at streams, the newest first."""
        return [run for run in self._every_run() if STREAM in run.tags]

    def _every_run(self, **chosen: Sequence[str]) -> list[Run]:
        return [_run(found) for found in self.query(_RUNS, limit=1000, filter=chosen)["runsOrError"]["results"]]

    def runs_of(self, asset: str) -> list[Run]:
        """The runs that built, or were to build, an asset."""
        return [run for run in self.runs() if asset in run.assets]

    def ended(self, run_id: str, *, seconds: float = 90) -> Run:
        """Wait for a run to end."""

        def check() -> Run:
            (run,) = self._every_run(runIds=[run_id])
            assert run.status not in UNFINISHED, f"run {run_id} of {sorted(run.assets)} is {run.status}"
            return run

        return eventually(check, seconds=seconds)

    def succeeded(self, run_id: str, *, seconds: float = 90) -> Run:
        """Wait for a run to succeed."""
        run = self.ended(run_id, seconds=seconds)
        assert run.status == "SUCCESS", f"{run}: {self.failures(run_id)}"
        return run

    def failures(self, run_id: str) -> list[str]:
        """The errors of a run's steps, each with its causes, as the run's page shows them."""
        events = self.query(_FAILURES, id=run_id)["runOrError"]["eventConnection"]["events"]
        errors = [event["error"] for event in events if event.get("error")]
        return [" <- ".join([e["message"], *(cause["message"] for cause in e["causes"])]) for e in errors]

    def log(self, run_id: str) -> str:
        """The messages of a run's events, a line each."""
        events = self.query(_LOG, id=run_id)["runOrError"]["eventConnection"]["events"]
        return "\n".join(event["message"] for event in events if event.get("message"))

    def terminate(self, run_id: str) -> None:
        """Press "Terminate"."""
        answer = self.query(_TERMINATE, id=run_id)["terminateRun"]
        assert answer["__typename"] == "TerminateRunSuccess", answer

    def reload(self) -> None:
        """Press "Reload all" on the page of code locations."""
        answer = self.query(_RELOAD)["reloadWorkspace"]
        assert answer["__typename"] == "Workspace", answer

    def materialize(self, asset: str, partition: str | None = None) -> str:
        """Press "Materialize" for an asset or one of its partitions; the id of the run."""
        return self._launch(asset, {} if partition is None else {"dagster/partition": partition})

    def observe(self, source: str) -> str:
        """Press "Observe"; the id of the run."""
        return self._launch(source, {})

    def report_event(self, kind: str, asset: str, *partitions: str) -> None:
        """Press "Report event" on an asset, for some of its partitions.

        Args:
            kind: `materialization` or `observation`.
        """
        params: dict[str, Any] = {"eventType": f"ASSET_{kind.upper()}", "assetKey": _key(asset), "description": ""}
        answer = self.query(_REPORT, eventParams=params | ({"partitionKeys": partitions} if partitions else {}))
        found = answer["reportRunlessAssetEvents"]
        assert found["__typename"] == "ReportRunlessAssetEventsSuccess", found

    def post(self, kind: str, asset: str, **body: Any) -> Any:
        """Report an event through the webserver's REST interface, and return its answer.

        Args:
            kind: `materialization`, `observation` or `check`.
            body: `partition`, `data_version`, `metadata`, `description`.
        """
        content = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/report_asset_{kind}/{asset}", json.dumps(body).encode(), content)
        with urllib.request.urlopen(request, timeout=30) as reply:
            return json.load(reply)

    def backfill(self, *assets: str, partitions: Sequence[str] | None = None) -> str:
        """Press "Materialize" for several partitions, or for all; the id of the backfill.

        Args:
            partitions: Of assets of several grains those of the one that the others are derived from.
        """
        chosen = {"allPartitions": True} if partitions is None else {"partitionNames": partitions, "fromFailure": False}
        params = {"assetSelection": [_key(asset) for asset in assets], "tags": [], **chosen}
        answer = self.query(_BACKFILL, backfillParams=params)["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_what_failed(self, backfill_id: str) -> str:
        """Press "Re-execute from failure" of a backfill; the id of the new one."""
        params = {"parentRunId": backfill_id, "strategy": "FROM_FAILURE"}
        answer = self.query(_BACKFILL_AGAIN, reexecutionParams=params)["reexecutePartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_state(self, backfill_id: str) -> dict[str, Any]:
        """How a backfill stands, and its runs."""
        state: dict[str, Any] = self.query(_BACKFILL_STATE, id=backfill_id)["partitionBackfillOrError"]
        return state

    def backfilled(
        self, backfill_id: str, *, status: str = "COMPLETED_SUCCESS", seconds: float = 120
    ) -> tuple[int | None, list[str]]:
        """Wait for a backfill to end; its number of partitions (None: of several grains) and the ids of its runs."""

        def check() -> dict[str, Any]:
            state = self.backfill_state(backfill_id)
            assert state["status"] not in ("REQUESTED", "COMPLETED", "FAILING"), f"{backfill_id}: {state['status']}"
            return state

        state = eventually(check, seconds=seconds)
        assert state["status"] == status, state
        return state["numPartitions"], [run["runId"] for run in state["runs"]]

    def partition_keys(self, asset: str) -> list[str]:
        """All partitions of an asset."""
        keys: list[str] = self.query(_NODE, key=_key(asset))["assetNodeOrError"]["partitionKeys"]
        return keys

    def materializations(self, asset: str) -> list[dict[str, Any]]:
        """The materializations of an asset, the newest first."""
        found: list[dict[str, Any]] = self.query(_MATERIALIZATIONS, key=_key(asset))["assetOrError"][
            "assetMaterializations"
        ]
        return found

    def observations(self, source: str) -> list[dict[str, Any]]:
        """The observations of a source, the newest first."""
        found: list[dict[str, Any]] = self.query(_OBSERVATIONS, key=_key(source))["assetOrError"]["assetObservations"]
        return found

    def sensors(self, location: str) -> dict[str, dict[str, Any]]:
        """The sensors of a location by name, with their ticks."""
        selector = {"repositoryName": "__repository__", "repositoryLocationName": location}
        found = self.query(_SENSORS, selector=selector)["sensorsOrError"]["results"]
        return {sensor["name"]: sensor for sensor in found}

    def tick_logs(self, location: str, name: str) -> list[tuple[list[str], list[str]]]:
        """Of each tick of a sensor, the newest first: the ids of its runs, and the lines of its log."""
        place = {"repositoryName": "__repository__", "repositoryLocationName": location, "sensorName": name}
        ticks = self.query(_TICKS, selector=place)["sensorOrError"]["sensorState"]["ticks"]
        return [(tick["runIds"], [event["message"] for event in tick["logEvents"]["events"]]) for tick in ticks]

    def stop_sensor(self, location: str, name: str) -> None:
        """Switch a sensor off."""
        answer = self.query(_STOP_SENSOR, id=self.sensors(location)[name]["id"])["stopSensor"]
        assert answer["__typename"] == "StopSensorMutationResult", answer

    def start_sensor(self, location: str, name: str) -> None:
        """Switch it on again."""
        place = {"repositoryName": "__repository__", "repositoryLocationName": location, "sensorName": name}
        answer = self.query(_START_SENSOR, selector=place)["startSensor"]
        assert answer["__typename"] == "Sensor", answer

    def _launch(self, asset: str, tags: dict[str, str]) -> str:
        node = self.query(_NODE, key=_key(asset))["assetNodeOrError"]
        params = {
            "mode": "default",
            "runConfigData": "{}",
            "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
            "selector": {
                "repositoryName": node["repository"]["name"],
                "repositoryLocationName": node["repository"]["location"]["name"],
                "pipelineName": node["jobNames"][0],
                "assetSelection": [_key(asset)],
                # As the UI does it: with the checks that belong to the asset's own job.
                "assetCheckSelection": [
                    {"assetKey": _key(asset), "name": check["name"]}
                    for check in node["assetChecksOrError"].get("checks", ())
                    if node["jobNames"][0] in check["jobNames"]
                ],
            },
        }
        answer = self.query(_LAUNCH, executionParams=params)["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])


def _key(asset: str) -> dict[str, list[str]]:
    return {"path": asset.split("/")}


def _run(found: dict[str, Any]) -> Run:
    started, ended = found["startTime"], found["endTime"]
    return Run(
        id=found["runId"],
        status=found["status"],
        assets=frozenset("/".join(key["path"]) for key in found["assetSelection"] or ()),
        tags={tag["key"]: tag["value"] for tag in found["tags"]},
        created=found["creationTime"],
        seconds=ended - started if started and ended else None,
    )


def values(event: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a materialization, by label."""
    return {
        entry["label"]: next((entry[kind] for kind in ("intValue", "text", "timestamp") if kind in entry), None)
        for entry in event["metadataEntries"]
    }

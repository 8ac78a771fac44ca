"""A harbor's code location that knows nothing of Tidemark: one file, with names and definitions that could clash.

The proof copies this file and appends lines to it. Belongs here: what the location declares. Does not belong here: the
appended lines, and what is compared (`tests.proof.test_strangers_location`).
"""

import os
import pickle
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg

C = dg.AutomationCondition
DAYS = dg.DailyPartitionsDefinition("2026-11-24", end_offset=1)
PORTS = dg.StaticPartitionsDefinition(["aarhus", "odense north"])
VESSELS = dg.DynamicPartitionsDefinition(name="vessels")
DAY_PORT = dg.MultiPartitionsDefinition({"day": DAYS, "port": PORTS})


class Pickles(dg.ConfigurableIOManager):
    """The location's own `io_manager`: a value for one partition, a dictionary for several."""

    folder: str

    def _path(self, key: dg.AssetKey, partition: str = "") -> Path:
        return Path(self.folder, *key.path, partition or "whole")

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Store a value, once for each partition."""
        for partition in context.asset_partition_keys if context.has_asset_partitions else [""]:
            key = context.asset_key if context.has_asset_key else dg.AssetKey(["ops", context.step_key])
            path = self._path(key, partition)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pickle.dumps(obj))

    def load_input(self, context: dg.InputContext) -> Any:
        """Return the value of one partition, or a dictionary by partition."""
        if not context.has_asset_key and context.upstream_output is not None:  # between two ops
            return pickle.loads(self._path(dg.AssetKey(["ops", context.upstream_output.step_key])).read_bytes())
        if not context.has_asset_partitions:
            return pickle.loads(self._path(context.asset_key).read_bytes())
        keys = context.asset_partition_keys
        found = {key: pickle.loads(self._path(context.asset_key, key).read_bytes()) for key in keys}
        return found if len(keys) > 1 else found[keys[0]]


class Crane(dg.ConfigurableResource[None]):
    """A resource with the key of one of Tidemark's, from the environment."""

    folder: str

    def note(self, name: str) -> None:
        """Append a line to a file."""
        with Path(self.folder, name).open("a") as lines:
            lines.write("x\n")


MODELS = [
    dg.AssetSpec(["warehouse", f"stg_{number}"], group_name="raw", kinds={"dbt"}, skippable=True, code_version="3")
    for number in range(12)
] + [
    dg.AssetSpec(
        ["warehouse", f"mart_{number}"],
        deps=[["warehouse", f"stg_{number}"], ["warehouse", f"stg_{number + 6}"]],
        group_name="core",
        kinds={"dbt"},
        skippable=True,
        automation_condition=C.eager(),
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=1)),
    )
    for number in range(6)
]


@dg.multi_asset(
    specs=MODELS,
    can_subset=True,
    check_specs=[dg.AssetCheckSpec("not_null", asset=spec.key) for spec in MODELS[:3]],
)
def dbt_build(context: dg.AssetExecutionContext) -> Iterator[Any]:
    """Build the chosen models; each stores its data itself."""
    for spec in MODELS:  # models before those that read them
        if spec.key in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=spec.key, metadata={"rows": 1})
    for check in context.selected_asset_check_keys:
        yield dg.AssetCheckResult(passed=True, asset_key=check.asset_key, check_name=check.name)


@dg.asset(
    key_prefix=["raw"],
    group_name="raw",
    partitions_def=DAYS,
    backfill_policy=dg.BackfillPolicy.multi_run(2),
)
def port_calls() -> list[int]:
    """Calls of some days."""
    return [1, 2, 3]


@dg.asset(
    key_prefix=["core"],
    group_name="core",
    partitions_def=DAYS,
    automation_condition=C.eager(),
    ins={"port_calls": dg.AssetIn(["raw", "port_calls"])},
)
def calls(port_calls: list[int]) -> list[int]:
    """Calls of a day."""
    return port_calls


@dg.asset(partitions_def=DAY_PORT)
def day_port(context: dg.AssetExecutionContext) -> str:
    """A day in a port."""
    return context.partition_key


@dg.asset(partitions_def=VESSELS)
def vessel_track(context: dg.AssetExecutionContext) -> str:
    """A vessel."""
    return context.partition_key


@dg.asset(retry_policy=dg.RetryPolicy(max_retries=1), pool="rates")
def rates() -> list[tuple[int, int]]:
    """Cents by kind."""
    return [(1, 150), (2, 200)]


@dg.op
def maintenance() -> list[int]:
    """An op with the name of one of Tidemark's."""
    return [1]


@dg.op
def landing(fleet: list[int]) -> list[int]:
    """An op with the name of one of Tidemark's sensors."""
    return fleet


@dg.graph_asset(automation_condition=C.on_missing())
def fleet() -> Any:
    """An asset of two ops."""
    return landing(maintenance())


@dg.observable_source_asset(key=["raw", "weather"], group_name="raw", automation_condition=C.on_cron("*/5 * * * *"))
def weather() -> dg.DataVersion:
    """Observed from time to time."""
    return dg.DataVersion("1")


def has_rows(*keys: Sequence[str]) -> list[dg.AssetChecksDefinition]:
    """Make a blocking check for each asset."""

    def made(key: Sequence[str]) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=list(key), name="has_rows", blocking=True)
        def check() -> dg.AssetCheckResult:
            return dg.AssetCheckResult(passed=True)

        return check

    return [made(key) for key in keys]


@dg.success_hook(required_resource_keys={"landing"})
def noted(context: dg.HookContext) -> None:
    """Note each step."""
    context.resources.landing.note("steps")


core = dg.define_asset_job(
    "core",
    selection=dg.AssetSelection.groups("core", "raw") & dg.AssetSelection.tag("dagster/kind/dbt", ""),
    hooks={noted},
)
by_day = dg.define_asset_job(
    "by_day", selection=dg.AssetSelection.all() & dg.AssetSelection.groups("core") - core.selection
)


@dg.job
def note() -> None:
    """A job of one op."""
    maintenance()


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[core, by_day],
    request_job=note,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def after_success(context: dg.RunStatusSensorContext) -> dg.RunRequest:
    """Ask for a job after each success of another."""
    return dg.RunRequest(run_key=context.dagster_run.run_id)


@dg.asset_sensor(asset_key=dg.AssetKey("rates"), job=core, default_status=dg.DefaultSensorStatus.RUNNING)
def automation(context: dg.SensorEvaluationContext, event: dg.EventLogEntry) -> dg.RunRequest:
    """Ask for the models after each update of the rates. Its name is that of one of Tidemark's sensors."""
    return dg.RunRequest(run_key=context.cursor)


defs = dg.Definitions.merge(
    dg.Definitions(assets=[dbt_build, port_calls, calls, day_port, vessel_track, rates, fleet, weather]),
    dg.Definitions(
        asset_checks=has_rows(["core", "calls"], ["warehouse", "mart_0"]),
        jobs=[core, by_day, note],
        schedules=[dg.build_schedule_from_partitioned_job(by_day, name="reconcile_all")],
        sensors=[
            after_success,
            automation,
            dg.AutomationConditionSensorDefinition(
                "harbor",
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.RUNNING,
                run_tags={"by": "harbor"},
            ),
        ],
        resources={
            "io_manager": Pickles(folder=dg.EnvVar("HARBOR_FOLDER")),
            "landing": Crane(folder=dg.EnvVar("HARBOR_FOLDER")),
            "spark": Crane(folder=os.sep),
        },
        executor=dg.in_process_executor,
    ),
)

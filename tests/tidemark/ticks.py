"""A code location whose automation sensors are ticked by hand, and what a tick asked for and said."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData

from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.tags import DATA_VERSION


@dataclass
class Ticked:
    """What the automation sensors made of one tick."""

    results: Sequence[SensorExecutionData]

    @property
    def requests(self) -> list[dg.RunRequest]:
        """The runs they asked for."""
        return [request for result in self.results for request in result.run_requests or ()]

    @property
    def asked(self) -> set[Target]:
        """The targets of those."""
        return {
            (key.to_user_string(), request.partition_key)
            for request in self.requests
            for key in request.asset_selection or ()
        }

    def said(self, asset: str) -> list[str]:
        """The lines of explanation that were stored of an asset; none where they are those of the tick before."""
        evaluations = [e for result in self.results for e in result.automation_condition_evaluations]
        of_asset = [e for e in evaluations if e.key == dg.AssetKey.from_user_string(asset)]
        return [node.condition_snapshot.label or "" for e in of_asset for node in e.iter_nodes()]


class Location:
    """A code location of these assets and checks, on an instance."""

    def __init__(self, instance: dg.DagsterInstance, definitions: Sequence[Any]) -> None:
        self.instance = instance
        found = with_automation(definitions)
        self.sensors = automation_sensors(found)
        self.repository = dg.Definitions(assets=found, sensors=self.sensors).get_repository_def()
        self._cursors: dict[str, str | None] = {}

    def observe(self, asset: str, *partitions: str | None, version: str = "1") -> None:
        """Data arrives in partitions of a source."""
        key, tags = dg.AssetKey.from_user_string(asset), {DATA_VERSION: version}
        for partition in partitions:
            self.instance.report_runless_asset_event(dg.AssetObservation(key, partition=partition, tags=tags))

    def tick(self) -> Ticked:
        """Evaluate each automation sensor once."""
        results = []
        for sensor in self.sensors:
            cursor = self._cursors.get(sensor.name)
            with dg.build_sensor_context(self.instance, cursor, repository_def=self.repository) as context:
                result = sensor.evaluate_tick(context)
            self._cursors[sensor.name] = result.cursor
            results.append(result)
        return Ticked(results)

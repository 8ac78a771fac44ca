"""The library's part of a code location: names and selections of sensors, in a separate or an extended location."""

from collections.abc import Collection
from dataclasses import dataclass

import dagster as dg

from dagster_tidemark.dagster_internals.asset_graph import AnyGraph
from dagster_tidemark.settings import NO_PACKAGE, Settings


def assets_of(context: dg.SensorEvaluationContext) -> AnyGraph:
    """Return the assets of the code location that a sensor belongs to."""
    assert context.repository_def is not None, "a sensor of a code location has a repository"
    return context.repository_def.asset_graph


@dataclass(frozen=True)
class LocationScope:
    """The library's part of a code location.

    Args:
        prefix: Prefix of the names of sensors, schedules and jobs.
        keys: The assets of this part. None means all assets of the location.
        settings: The settings of the deployment. None in a location without `build_definitions`, as in tests.
    """

    prefix: str = ""
    keys: frozenset[dg.AssetKey] | None = None
    settings: Settings | None = None

    @property
    def location(self) -> str:
        """Name of the code location under which the sensors record their ticks."""
        return self.settings.code_location if self.settings else NO_PACKAGE

    def named(self, name: str) -> str:
        """Return the name of a sensor, schedule or job in this location."""
        return f"{self.prefix}{name}"

    def has(self, keys: Collection[dg.AssetKey]) -> bool:
        """Return True if all given assets belong to this part."""
        return self.keys is None or self.keys.issuperset(keys)

    @property
    def assets(self) -> dg.AssetSelection:
        """The selection of this part's assets."""
        return dg.AssetSelection.all() if self.keys is None else dg.AssetSelection.assets(*sorted(self.keys))

    @property
    def checks(self) -> dg.AssetSelection:
        """The selection of the checks on this part's assets."""
        if self.keys is None:
            return dg.AssetSelection.all_asset_checks()
        return dg.AssetSelection.checks_for_assets(*sorted(self.keys))


WHOLE_LOCATION = LocationScope()

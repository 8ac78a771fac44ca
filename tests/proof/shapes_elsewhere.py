"""A second code location on the same instance: a table that is somebody else's to the first, and very many tables.

Two automation sensors look after them. All but two of the many read what never comes.
"""

import dagster as dg

from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.sensors.contract_sensor import contract_checks, contract_sensor
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import load_settings
from tests.proof.shapes_bodies import source, table

MANY = 420


def definitions() -> dg.Definitions:
    """The code location."""
    last = MANY - 1
    assets = with_automation(
        [
            source("raw/other"),
            table("other/table", "raw/other"),
            source("raw/many"),
            source("raw/silent"),
            *(table(f"many/t{i:03}", "raw/many" if i in (0, last) else "raw/silent") for i in range(MANY)),
        ]
    )
    scope = LocationScope(settings=load_settings())
    checks = contract_checks(assets, scope.settings)
    return dg.Definitions(
        assets=assets,
        asset_checks=checks,
        sensors=[
            *automation_sensors([*assets, *checks], scope=scope),
            catch_up_sensor(scope),
            contract_sensor(scope=scope),
        ],
        executor=dg.in_process_executor,
    )


defs = definitions()

"""A code location whose code is a file of the room: which assets there are, what they read, and their code versions.

An asset's value is its inputs' values and what its code says. Does not belong here: which code is deployed when
(`tests.proof.test_code_plan_live`).
"""

import json
from collections.abc import Iterable
from typing import Any

import dagster as dg

from dagster_tidemark.engine.condition import with_automation
from dagster_tidemark.sensors.automation import automation_sensors
from dagster_tidemark.sensors.catch_up import catch_up_sensor
from dagster_tidemark.sensors.contract_sensor import contract_checks, contract_sensor
from dagster_tidemark.sensors.scope import LocationScope
from dagster_tidemark.settings import load_settings
from tests.proof.shapes_bodies import room, source, table

_STARTS = "2026-10-01"
_ENDS = "2026-10-04"


def _days(start: str) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition(start, end_date=_ENDS)


def _asset(name: str, code: dict[str, Any], kinds: dict[str, str]) -> dg.AssetsDefinition:
    mine = code.get("by", "days")

    def reads(partition: str | None) -> Iterable[tuple[str, str | None]]:
        yield f"code/{name}", None
        for read in code["reads"]:
            if kinds[read] == "days" and mine == "days":
                yield read, partition
            elif kinds[read] == "days":
                yield from ((read, day) for day in _days(_STARTS).get_partition_keys())
            else:
                yield read, None

    more: dict[str, Any] = {"code_version": str(code["version"])}
    if not code.get("automated", True):
        more["automation_condition"] = None
    by = _days(code.get("start", _STARTS)) if mine == "days" else None
    return table(name, *code["reads"], by=by, reads=reads, **more)


def definitions() -> dg.Definitions:
    """The code location, as the file has it now."""
    code: dict[str, dict[str, Any]] = json.loads((room() / "code.json").read_text())
    kinds = {"raw/days": "days", "raw/one": "one"} | {name: each.get("by", "days") for name, each in code.items()}
    sources = [source("raw/days", _days("2026-09-29")), source("raw/one")]
    automated = [_asset(name, each, kinds) for name, each in code.items() if each.get("automated", True)]
    others = [_asset(name, each, kinds) for name, each in code.items() if not each.get("automated", True)]
    assets = [*with_automation([*sources, *automated]), *others]
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

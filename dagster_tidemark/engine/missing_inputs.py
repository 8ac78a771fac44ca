"""The tag that names the missing deliveries a run was requested without, and its meaning for each asset of the run.

Does not belong here: the missing deliveries themselves (`planner.deliveries`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dagster_tidemark.planner.decisions import Plan
from dagster_tidemark.planner.graph import Target
from dagster_tidemark.planner.wording import names
from dagster_tidemark.tags import MISSING

WITHOUT = "missing inputs"
"""Metadata of a materialization."""


def missing_tag(plan: Plan, targets: Iterable[Target]) -> dict[str, str]:
    """Return the tag for a run over some targets: a line per asset; empty if nothing is missing."""
    found: dict[str, dict[str, None]] = {}
    for target in targets:
        decision = plan.decisions.get(target)
        if decision is not None and decision.without:
            found.setdefault(target[0], {}).update(dict.fromkeys(decision.without))
    return {MISSING: "\n".join(f"{asset}: {names(said)}" for asset, said in found.items())} if found else {}


def missing_metadata(tags: Mapping[str, str], asset: str) -> dict[str, Any]:
    """Return the metadata of an asset's materialization in a run with these tags; empty if nothing is missing."""
    lines = tags.get(MISSING, "").splitlines()
    said = [line.removeprefix(f"{asset}: ") for line in lines if line.startswith(f"{asset}: ")]
    return {WITHOUT: said[0]} if said else {}

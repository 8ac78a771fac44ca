"""What a plan has to say of a deploy, held against what then ran.

Shares no code with the plan: it looks at the runs, and at which of the listed partitions got other content.
"""

from dagster_tidemark.planner.graph import Target
from tests.tidemark.code_versions.code_plan.histories import SOURCES, Deploy


def faults_of(deploy: Deploy) -> list[str]:
    """What the plan said and did not happen, and what happened and it did not say."""
    listed = [rebuild for asset in deploy.plan.assets for rebuild in asset.rebuilds if not rebuild.held]
    # A partition whose input stays as it was is not built, and so is not another one for those that read it.
    moved: set[Target] = set()
    expected: set[Target] = set()
    left = list(listed)
    while left:
        now = [r for r in left if r.certain or any(source in moved for source in r.after)]
        if not now:
            break
        for rebuild in now:
            expected.add(rebuild.target)
            if not rebuild.certain or rebuild.asset not in deploy.identical:
                moved.add(rebuild.target)
        left = [rebuild for rebuild in left if rebuild not in now]
    ran = set(deploy.ran)
    faults = [f"listed and did not run: {target}" for target in sorted(expected - ran - {*deploy.waited}, key=str)]
    # What arrived, and windows that begin, make others run.
    by_itself = _below(deploy, {name for name, _ in deploy.news} | _begins_with_time(deploy))
    unsaid = {target for target in ran - expected if target[0] not in by_itself}
    return faults + [f"ran and was not listed: {target}" for target in sorted(unsaid, key=str)]


def _begins_with_time(deploy: Deploy) -> set[str]:
    """Assets by time that no data announces: they read nothing but what has no partitions."""
    kinds = SOURCES | {each.name: each.kind for each in deploy.after}
    timed = [each for each in deploy.after if each.kind in ("hours", "days")]
    read = {each.name: [kinds[r] for r in each.reads if r in kinds and r not in each.latest] for each in timed}
    return {name for name, of in read.items() if not {"hours", "days"} & {*of}}


def _below(deploy: Deploy, names: set[str]) -> set[str]:
    """The assets that read any of these, at any depth."""
    found = set(names)
    while more := {each.name for each in deploy.after if found & {*each.reads}} - found:
        found |= more
    return found

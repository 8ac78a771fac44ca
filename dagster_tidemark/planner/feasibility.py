"""Lag contracts that cannot be kept: the runs from the sources to the table usually take longer than promised.

Pure. Belongs here: the comparison of contracts with learned durations. Does not belong here: deadlines
(`planner.contracts`), and data that is late at present (`planner.contract_status`).
"""

from dataclasses import dataclass

from dagster_tidemark.planner.contract_status import span
from dagster_tidemark.planner.contracts import LagContract
from dagster_tidemark.planner.graph import Graph, Node
from dagster_tidemark.planner.run_durations import RunDurations


@dataclass(frozen=True)
class _Chain:
    """The slowest chain of runs that ends with an asset.

    Args:
        before: Seconds of the runs before the last one.
        last: Seconds of the last run.
        runs: The assets that the last run of each step builds.
    """

    before: float = 0.0
    last: float = 0.0
    runs: tuple[tuple[str, float], ...] = ()

    @property
    def seconds(self) -> float:
        return self.before + self.last


def infeasible(graph: Graph, durations: RunDurations) -> dict[str, str]:
    """Return why a lag contract cannot be kept, by asset: usual runs take longer than it promises.

    Waiting times between runs are left out, so the real lag is longer. Runs without a known duration count as zero.
    """
    chains: dict[str, _Chain] = {}
    found: dict[str, str] = {}
    for key, node in graph.nodes.items():
        chain = chains[key] = _chain(node, durations.usual(key), chains)
        if isinstance(node.contract, LagContract) and not node.source and chain.seconds > node.contract.fail:
            steps = ", ".join(f"{asset} {span(seconds)}" for asset, seconds in chain.runs)
            found[key] = f"promised within {span(node.contract.fail)}, usual runs take {span(chain.seconds)}: {steps}"
    return found


def _chain(node: Node, own: float, chains: dict[str, _Chain]) -> _Chain:
    slowest = _Chain(0.0, own, ((node.key, own),) if own else ())
    for read in node.inputs:
        above = chains.get(read.key, _Chain())
        if read.joinable:  # one run may build both, and its duration counts for each of them
            last = max(above.last, own)
            chain = _Chain(above.before, last, (*above.runs[:-1], (node.key, last)) if last else ())
        else:
            chain = _Chain(above.seconds, own, (*above.runs, (node.key, own)) if own else above.runs)
        slowest = max(slowest, chain, key=lambda each: each.seconds)
    return slowest

"""Due times of pending data: by an asset's own contract, and by the needs of its readers.

An asset without a contract runs as its consumers need. An input with several readers runs at the pace of the strictest.

Belongs here: due times through the graph, from pending data and the learned duration of runs. Nothing here depends
on the current time. Does not belong here: whether a partition can run (`planner.planner`).

The needs of a partition are a function of the arrival of its data (`Needs`), computed once from the needs of its
readers. If one table reads a thousand days and a thousand tables read that table, this takes two thousand steps and not
a million.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dagster_tidemark.planner.contracts import Due, Pace, due, first_tick
from dagster_tidemark.planner.graph import Graph, Input, Node, Target
from dagster_tidemark.planner.history import History
from dagster_tidemark.planner.staleness import Pending, PendingWork

_MOST_TERMS = 16
"""Most terms of a kind. Further terms are merged into a stricter one: runs are then due earlier, never later."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Times of a partition's run (Unix seconds).

    Args:
        opens: Earliest useful time: waiting any longer saves no run.
        latest: Time when it has to be requested.
        for_: The asset whose contract needs it.
        start_by: Latest time of a request by contract; infinite if no contract needs it.
    """

    opens: float
    latest: float
    for_: str
    start_by: float = float("inf")

    @classmethod
    def by(cls, promised: Due, for_: str) -> "Demand":
        """Return the demand of an asset's own contract."""
        return cls(promised.opens, promised.latest, for_, promised.start_by)

    @property
    def at(self) -> float:
        return min(self.opens, self.latest)

    def before(self, seconds: float) -> "Demand":
        """Return this demand for an input that has to run that many seconds earlier.

        The input may start when nothing later is required, and earlier only if time would be too short.
        """
        return Demand(self.opens, self.latest - seconds, self.for_, self.start_by - seconds)


@dataclass(frozen=True, slots=True)
class Term:
    """Contract of an asset. From the arrival of data it computes the demand for the data.

    Args:
        tick: Promised time of the window itself, or None.
        after: The term covers data that arrives after this time. A first build covers earlier data.
    """

    asset: str
    tick: float | None
    after: float


@dataclass
class Needs:
    """Needs of a partition for data of any arrival. The strictest one counts.

    Args:
        asap: Assets that run as soon as they have pending work. The value says how many seconds earlier this partition
            has to run.
        contracts: Contracts, with the same kind of value.
        firsts: Demands of first builds, each with the latest arrival that it covers. The contract covers later data.
        always: Demand for any arrival, because the run that needs the partition takes place anyway.
    """

    asap: dict[str, float] = field(default_factory=dict)
    contracts: dict[Term, float] = field(default_factory=dict)
    firsts: list[tuple[float, Demand]] = field(default_factory=list)
    always: Demand | None = None

    def add(self, other: "Needs", earlier: float) -> None:
        """Add the needs of a reader. This input has to run that many seconds earlier."""
        for asset, seconds in other.asap.items():
            self.asap[asset] = max(self.asap.get(asset, seconds + earlier), seconds + earlier)
        for term, seconds in other.contracts.items():
            self.contracts[term] = max(self.contracts.get(term, seconds + earlier), seconds + earlier)
        self.firsts += [(arrival, demand.before(earlier)) for arrival, demand in other.firsts]
        if other.always is not None:
            self.ask(other.always.before(earlier))

    def ask(self, demand: Demand) -> None:
        """Add a demand for any arrival."""
        self.always = demand if self.always is None else _strictest(self.always, demand)

    def reduced(self) -> "Needs":
        """Remove terms that another term covers, merge the rest into a few of each kind, and return the needs."""
        self.contracts = _reduced(self.contracts)
        if len(self.firsts) < 2:
            return self
        firsts: list[tuple[float, Demand]] = []
        for arrival, demand in sorted(self.firsts, key=lambda first: first[0], reverse=True):
            if firsts and (firsts[-1][0] == arrival or len(firsts) >= _MOST_TERMS):
                firsts[-1] = (firsts[-1][0], _strictest(firsts[-1][1], demand))
            else:
                firsts.append((arrival, demand))
        self.firsts = firsts
        return self


@dataclass
class Demands:
    """Due times of everything pending, computed on demand."""

    graph: Graph
    history: History
    backlog: PendingWork
    margin: float
    _needs: dict[Target, Needs] = field(default_factory=dict)
    _known: dict[Target, tuple[float, Demand | None]] = field(default_factory=dict)
    _paces: dict[str, Pace] = field(default_factory=dict)

    def of(self, target: Target, arrival: float) -> Demand | None:
        """Return when a partition has to run for data that arrived at a time, or None if nothing needs it."""
        known = self._known.get(target)
        if known is None or known[0] != arrival:
            known = self._known[target] = arrival, self._at(self._needs_of(target), arrival)
        return known[1]

    def own(self, target: Target, arrival: float) -> Due | None:
        """Return the due time by the asset's own contract, or None."""
        node, pending = self.graph.nodes[target[0]], self.backlog.get(target)
        if node.contract is None or pending is None:
            return None
        window, pace = node.promised_window(target[1]), self.pace(node.key)
        if pending.built or pending.arrival is None or arrival > pending.arrival:
            # A first build is promised for the data that makes it possible. Later data has its own due time.
            return due(node.contract, arrival, window, pace)
        return due(node.contract, pending.arrival, window, pace, built=False)

    def pace(self, asset: str) -> Pace:
        """Return the seconds that the asset takes to run and to start."""
        if asset not in self._paces:
            self._paces[asset] = Pace(self.history.durations.of_run(asset), self.margin)
        return self._paces[asset]

    def _at(self, needs: Needs, arrival: float) -> Demand | None:
        found = [Demand(arrival, arrival - earlier, asset) for asset, earlier in needs.asap.items()]
        for term, earlier in needs.contracts.items():
            contract = self.graph.nodes[term.asset].contract
            if contract is not None and arrival > term.after:
                promised = due(contract, arrival, None, self.pace(term.asset), own_tick=term.tick)
                found.append(Demand.by(promised, term.asset).before(earlier))
        found += [demand for until, demand in needs.firsts if arrival <= until]
        if needs.always is not None:
            found.append(needs.always)
        return _strictest(*found) if found else None

    def _needs_of(self, target: Target) -> Needs:
        """Return the needs of a partition, from those of its readers.

        It uses an explicit stack, because a chain of partitions can be as long as a table's history.
        """
        stack, asking = [target], dict[Target, list[tuple[Input, Target, Pending]]]()
        while stack:
            one = stack[-1]
            if one in self._needs:
                stack.pop()
            elif one not in asking:
                asking[one] = list(self._readers(one))
                # Readers on the stack are skipped: a mapping can declare that a partition reads itself.
                stack += [r for _, r, _ in asking[one] if r not in self._needs and r not in asking]
            else:
                self._needs[one] = self._put_together(one, asking[one])
                stack.pop()
        return self._needs[target]

    def _readers(self, target: Target) -> Iterable[tuple[Input, Target, Pending]]:
        for read, reader, pending in self.backlog.readers(target):
            if target in pending.pending_upstreams and not (pending.missing_inputs or pending.unchanged):
                yield read, reader, pending

    def _put_together(self, target: Target, readers: Iterable[tuple[Input, Target, Pending]]) -> Needs:
        node, pending = self.graph.nodes[target[0]], self.backlog.get(target)
        found = self._by_itself(node, target, pending)
        before_it = self.history.durations.of_run(node.key) + self.margin
        for read, reader, of_reader in readers:
            needs = self._needs.get(reader)
            if needs is None:
                continue
            # A failed reader is tried again in a separate run.
            joins = reader not in self.history.failures and self.graph.share_a_run(self.graph.nodes[reader[0]], read)
            earlier = 0.0 if joins else before_it
            found.add(needs, earlier)
            self._ask_once(found, target, of_reader, needs, earlier)
        return found.reduced()

    def _by_itself(self, node: Node, target: Target, pending: Pending | None) -> Needs:
        asap = {node.key: 0.0} if node.asap else {}
        if node.contract is None or pending is None:
            return Needs(asap)
        window, arrival = node.promised_window(target[1]), None if pending.built else pending.arrival
        term = Term(node.key, first_tick(node.contract, window), float("-inf") if arrival is None else arrival)
        if arrival is None:
            return Needs(asap, {term: 0.0})
        first = due(node.contract, arrival, window, self.pace(node.key), built=False)
        return Needs(asap, {term: 0.0}, [(arrival, Demand.by(first, node.key))])

    def _ask_once(self, found: Needs, target: Target, of_reader: Pending, needs: Needs, earlier: float) -> None:
        """Ask an input to run again before a reader that will run anyway for other data.

        The input is asked once. The reader waits for later data only if its contract needs that data. Otherwise an
        input that keeps changing would delay its reader forever.
        """
        needed = None if of_reader.arrival is None else self._at(needs, of_reader.arrival)
        if needed is None:
            return
        wanted = needed.before(earlier)
        built = self.history.facts.built(target)
        if built is None or built.started_at < wanted.at:
            found.ask(wanted)


def _strictest(first: Demand, *more: Demand) -> Demand:
    if not more:
        return first
    opens, latest, start_by, at, for_ = first.opens, first.latest, first.start_by, first.at, first.for_
    for one in more:
        if one.at < at:
            at, for_ = one.at, one.for_
        opens, latest = min(opens, one.opens), min(latest, one.latest)
        start_by = min(start_by, one.start_by)
    return Demand(opens, latest, for_, start_by)


def _reduced(contracts: dict[Term, float]) -> dict[Term, float]:
    """Return the terms, except terms that another term of the same asset exceeds in every respect."""
    if len(contracts) < 2:
        return contracts
    kept: dict[str, list[tuple[Term, float]]] = {}
    for term, seconds in sorted(contracts.items(), key=lambda item: (item[0].tick or 0.0, item[0].after, -item[1])):
        stricter = kept.setdefault(term.asset, [])
        if any(other.after <= term.after and more >= seconds for other, more in stricter):
            continue
        if len(stricter) >= _MOST_TERMS:
            last, more = stricter.pop()
            term, seconds = Term(last.asset, last.tick, min(last.after, term.after)), max(more, seconds)
        stricter.append((term, seconds))
    return dict(item for of_asset in kept.values() for item in of_asset)

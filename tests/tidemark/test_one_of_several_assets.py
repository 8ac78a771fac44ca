"""A step that updates one of several assets, by its data: skippable outputs of a multi-asset, run by its automation."""

from collections.abc import Iterator
from datetime import timedelta

import dagster as dg
import pytest

from tests.tidemark.ticks import Location

HOUR = dg.FreshnessPolicy.time_window(timedelta(hours=1))
SOON = {"tidemark/pace": "asap"}


class Depot:
    """A location whose step writes the table of the country that its input names. Each table has a reader."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.country = "de"
        self.instance = instance
        self.built: list[str] = []
        specs = [dg.AssetSpec(["core", name], deps=[["raw", "in"]], skippable=True, tags=SOON) for name in ("de", "fr")]

        @dg.multi_asset(specs=specs)
        def by_country() -> Iterator[dg.MaterializeResult]:
            yield dg.MaterializeResult(asset_key=["core", self.country])

        def reader(name: str) -> dg.AssetsDefinition:
            @dg.asset(key=["marts", name], deps=[["core", name]], freshness_policy=HOUR, tags=SOON)
            def built() -> None: ...

            return built

        self.assets = [dg.AssetSpec(["raw", "in"]), by_country, reader("de"), reader("fr")]
        self.location = Location(instance, self.assets)

    def arrive(self, country: str, version: str) -> None:
        self.country = country
        self.location.observe("raw/in", None, version=version)

    def settle(self) -> list[str]:
        """Execute what automation requests, until it requests nothing. Return the materialized assets, in order."""
        written: list[str] = []
        for _ in range(5):
            requests = self.location.tick().requests
            if not requests:
                return written
            for request in requests:
                ran = self.location.repository.get_implicit_global_asset_job_def().get_subset(
                    asset_selection=set(request.asset_selection or ())
                )
                done = ran.execute_in_process(instance=self.instance, tags=dict(request.tags))
                assert done.success
                keys = [event.asset_key for event in done.get_asset_materialization_events()]
                written += [key.to_user_string() for key in keys if key is not None]
        pytest.fail(f"still requesting after five rounds: {written}")


@pytest.fixture
def depot() -> Iterator[Depot]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Depot(instance)


def test_asset_that_the_step_skipped_is_not_requested_again_and_its_readers_do_not_run(depot: Depot) -> None:
    depot.arrive("de", "1")
    assert depot.settle() == ["core/de", "marts/de"]
    depot.arrive("fr", "2")
    assert depot.settle() == ["core/fr", "marts/fr"]
    depot.arrive("fr", "3")
    assert depot.settle() == ["core/fr", "marts/fr"]
    assert depot.settle() == []


def test_asset_has_all_possible_assets_of_its_step_in_the_graph(depot: Depot) -> None:
    graph = depot.location.repository.asset_graph
    key = dg.AssetKey(["core", "de"])
    assert graph.get(key).execution_set_asset_keys == {key, dg.AssetKey(["core", "fr"])}

"""The grocer's code versions: cosmetic edits move no fingerprint, a real edit moves those of the assets using it.

Which assets use what is written down by hand here. That an edit is real is shown by what Spark computes, in
`tests.transforms.grocer.test_real_edits`. Does not belong here: how references are followed
(`tests.tidemark.code_versions`).
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from dagster_tidemark.code_versions.assets import assets_of
from dagster_tidemark.code_versions.lock_file import NAME, differences, read
from dagster_tidemark.code_versions.project import Project
from pipelines.definitions import defs
from tests.checkout import CHECKOUT
from tests.code_edits import COSMETIC, Sources, moved, real_edits
from tests.grocer_code import FUNCTIONS, digests, grocer_sources
from tests.sampling import sample


def all_of(*assets: str, names: str) -> dict[str, list[str]]:
    """Definitions that the same assets use."""
    return {name: [*assets] for name in names.split()}


USED_BY = {
    "assets/core/orders.py": {"orders": ["core/orders"]},
    "assets/core/customers.py": {"customers": ["core/customers"]},
    "assets/core/prices.py": {"prices": ["core/prices"]},
    "assets/core/readings.py": {"readings": ["core/readings"]},
    "assets/alerts/cold_chain.py": all_of("alerts/cold_chain", names="cold_chain _episodes"),
    "assets/marts/hot_spots.py": {"hot_spots": ["marts/hot_spots"]},
    "assets/marts/margin.py": {"margin_hourly": ["marts/margin_hourly"], "_UNPRICED": ["marts/margin_hourly"]},
    "assets/marts/offers.py": {"offer_reach": ["marts/offer_reach"]},
    "assets/marts/order_stats.py": {"order_stats": ["marts/order_stats"]},
    "assets/marts/reviews.py": {
        "executive_rollup": ["marts/executive_rollup"],
        "weekly_review": ["marts/weekly_review"],
    },
    "assets/marts/sales.py": {"sales_hourly": ["marts/sales_hourly"], "sales_daily": ["marts/sales_daily"]},
    "feeds/orders.py": {"ORDERS": ["core/orders"]},
    "feeds/customers.py": {"CUSTOMERS": ["core/customers"]},
    "feeds/prices.py": {"PRICES": ["core/prices"]},
    "schemas/core.py": {
        "ORDERS_LANDING": ["core/orders"],
        "CUSTOMERS_LANDING": ["core/customers"],
        "PRICES_LANDING": ["core/prices"],
        "ORDERS": ["core/orders"],
        "DELIVERIES": [],  # a stream fills it
        "CUSTOMERS": ["core/customers"],
        "PRICES": ["core/prices"],
        "READINGS": ["alerts/cold_chain", "core/readings"],
    },
    "schemas/raw.py": {"READINGS": ["alerts/cold_chain"], "SCORING_REQUESTS": []},
    "schemas/alerts.py": {"COLD_CHAIN": ["alerts/cold_chain"]},
    "streams/readings.py": {"READINGS": ["alerts/cold_chain"]},
    "schemas/marts.py": {
        "SALES_HOURLY": ["marts/sales_hourly"],
        "SALES_DAILY": ["marts/sales_daily"],
        "ORDER_STATS": ["marts/order_stats"],
        "MARGIN_HOURLY": ["marts/margin_hourly"],
        "EXECUTIVE_ROLLUP": ["marts/executive_rollup"],
        "WEEKLY_REVIEW": ["marts/weekly_review"],
        "OFFER_REACH": ["marts/offer_reach"],
        "HOT_SPOTS": ["marts/hot_spots"],
    },
    "assets/ml/demand_features.py": {"demand_features": ["ml/demand_features"]},
    "assets/ml/demand_model.py": all_of("ml/demand_model", names="demand_model refit verdict WORSE_BY _TOO_FEW _KEY"),
    "assets/ml/demand_forecast.py": {"demand_forecast": ["ml/demand_forecast"]},
    "models/demand.py": {
        **all_of(
            "ml/demand_forecast",
            "ml/demand_model",
            names="NUMBERS CATEGORIES LABEL _KEY _FILE _TRUSTED _MOST_CATEGORIES _columns",
        ),
        **all_of("ml/demand_model", names="NAIVE _MOST_HELD_OUT labelled digest fit_and_judge _error _day_after"),
    },
    "schemas/ml.py": {
        "DEMAND_FEATURES": ["ml/demand_features"],
        "DEMAND_MODEL": ["ml/demand_model"],
        "DEMAND_FORECAST": ["ml/demand_forecast"],
        "SCORES": [],
    },
    "transforms/demand.py": all_of(
        "ml/demand_features", names="demand_features WINDOW_DAYS _as_seen_from _age _demand _mean"
    ),
    "transforms/readings.py": all_of("alerts/cold_chain", "core/readings", names="readings _SAID"),
    "transforms/hot_spots.py": all_of("marts/hot_spots", names="hot_spots LIMIT_C HOLDS_MINUTES"),
    "transforms/cold_chain.py": all_of(
        "alerts/cold_chain",
        names="too_warm _is_over _worth_an_alert STARTS_ABOVE_C ENDS_BELOW_C SILENCE LASTS",
    ),
    "transforms/cold_chain_history.py": all_of(
        "alerts/cold_chain", names="episodes_too_warm _episodes _ROWS_AT_ONCE _UTC _EPISODES"
    ),
    "transforms/orders.py": {"order_lines": ["core/orders"]},
    "transforms/margin.py": {"margin_hourly": ["marts/margin_hourly"]},
    "transforms/offers.py": {"offer_reach": ["marts/offer_reach"]},
    "transforms/order_stats.py": {
        "order_stats": ["marts/order_stats"],
        "UNKNOWN_SEGMENT": ["marts/offer_reach", "marts/order_stats"],
    },
    "transforms/reviews.py": {"executive_rollup": ["marts/executive_rollup"], "weekly_review": ["marts/weekly_review"]},
    "transforms/sales.py": {"sales_hourly": ["marts/sales_hourly"], "sales_daily": ["marts/sales_daily"]},
}
MODULES = [f"pipelines/{path}" for path in USED_BY]
EDITS = 200


@pytest.fixture(scope="module")
def sources() -> Sources:
    return grocer_sources()


@pytest.fixture(scope="module")
def before(sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return digests(sources, tmp_path_factory.mktemp("before"))


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return sorted(asset for asset in before if before[asset] != after[asset])


@pytest.mark.proof  # a minute; many at once are tried below
def test_200_cosmetic_edits_change_no_fingerprint(
    sources: Sources, before: Mapping[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(16)
    made: Counter[str] = Counter()
    rebuilt = []
    while made.total() < EDITS:
        edit, path = sorted(COSMETIC)[made.total() % len(COSMETIC)], random.choice(MODULES)
        text = COSMETIC[edit](sources[path], random)
        if text == sources[path]:
            continue
        compile(text, path, "exec")
        made[edit] += 1
        if found := differing(before, digests({**sources, path: text}, tmp_path / str(made.total()))):
            rebuilt.append(f"{path}: {edit}: {found}")
    with capsys.disabled():
        print(f"\n{made.total()} cosmetic edits of {len(COSMETIC)} kinds: {len(rebuilt)} rebuilds")

    assert rebuilt == []
    assert len(made) == len(COSMETIC)


def test_many_cosmetic_edits_at_once_change_no_fingerprint(
    sources: Sources, before: Mapping[str, str], tmp_path: Path
) -> None:
    random = Random(16)
    edited = dict(sources)
    for path in MODULES:
        for edit in random.sample(sorted(COSMETIC), 3):
            edited[path] = COSMETIC[edit](edited[path], random)

    assert differing(before, digests(edited, tmp_path)) == []


@pytest.mark.parametrize(
    "path",
    sample(
        [path for path in MODULES if "/assets/" not in path],
        "pipelines/feeds/orders.py",
        "pipelines/models/demand.py",
        "pipelines/schemas/core.py",
        "pipelines/transforms/cold_chain_history.py",
    ),
)
def test_moved_file_changes_no_fingerprint(
    path: str, sources: Sources, before: Mapping[str, str], tmp_path: Path
) -> None:
    edited = moved(sources, path, path.replace(".py", "_of_the_shop.py").replace("pipelines/", "pipelines/moved/"))

    assert path not in edited and differing(before, digests(edited, tmp_path)) == []


def sampled(sources: Sources) -> Iterator[tuple[str, str, str, str]]:
    """Yield one edit of each definition: path, definition, kind of edit, new text."""
    random = Random(16)
    for path in MODULES:
        by_name: dict[str, list[tuple[str, str, str, str]]] = {}
        for what, name, text in real_edits(sources[path]):
            by_name.setdefault(name, []).append((path, name, what, text))
        for edits in by_name.values():
            yield random.choice(edits)


def users(path: str, name: str) -> list[str]:
    """Return the assets that use a definition."""
    return USED_BY[path.removeprefix("pipelines/")][name]


@pytest.mark.proof  # a minute; several at once are tried below
def test_each_real_edit_changes_only_the_fingerprints_of_its_assets(
    sources: Sources, before: Mapping[str, str], tmp_path: Path
) -> None:
    wrong = []
    for number, (path, name, what, text) in enumerate(sampled(sources)):
        found = differing(before, digests({**sources, path: text}, tmp_path / str(number)))
        if found != sorted(users(path, name)):
            wrong.append(f"{path}: {name}: {what}: {found}")

    assert wrong == []


def test_batched_real_edits_change_only_the_fingerprints_of_their_assets(
    sources: Sources, before: Mapping[str, str], tmp_path: Path
) -> None:
    """Edits of different modules, used by different assets, are made at once."""
    edits = list(sampled(sources))
    batches: list[dict[str, tuple[str, str, str]]] = []
    for path, name, what, text in edits:
        asked = set(users(path, name))
        for batch in batches:
            others = {asset for other, (its_name, *_) in batch.items() for asset in users(other, its_name)}
            if path not in batch and not asked & others and len(asked | others) < len(before):
                batch[path] = (name, what, text)
                break
        else:
            batches.append({path: (name, what, text)})
    wrong = []
    for number, batch in enumerate(batches):
        edited = {path: text for path, (*_, text) in batch.items()}
        found = differing(before, digests({**sources, **edited}, tmp_path / str(number)))
        if found != sorted(asset for path, (name, *_) in batch.items() for asset in users(path, name)):
            wrong.append(f"{[(path, name, what) for path, (name, what, _) in batch.items()]}: {found}")

    assert wrong == []
    assert {(path, name) for path, name, _, _ in edits} == {
        (f"pipelines/{path}", name) for path, names in USED_BY.items() for name in names
    }


def test_grocer_lock_file_is_up_to_date() -> None:
    assets = assets_of(defs.assets or (), Project(CHECKOUT, "pipelines"))

    assert differences(read(CHECKOUT / NAME), assets) == []
    assert assets.keys() == FUNCTIONS.keys()


def test_fingerprints_are_equal_in_every_process() -> None:
    code = "from dagster_tidemark.cli.app import main; main()"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, "lock", "check"],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(CHECKOUT)},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr

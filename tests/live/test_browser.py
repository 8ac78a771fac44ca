"""What a person sees: the graph with every asset, and an asset's page with what it says about its data."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.live.conftest import Loaded
from tests.oracle import TABLES
from tests.sampling import sample

CHROMIUM = Path("/usr/bin/chromium")
ASSETS = ("raw/orders", "raw/prices", "raw/customers", *(table.replace(".", "/") for table in TABLES))

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"there is no {CHROMIUM}: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, loaded: Loaded) -> Iterator[Page]:
    """The UI as somebody finds it who comes for the first time."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, base_url=loaded.platform.ui.url)
    context.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("group", sample(["raw", "core", "marts"], "core"))
def test_asset_graph_page_shows_every_asset(page: Page, tmp_path: Path, group: str) -> None:
    # A group at a time: of a graph larger than the window only what is in sight is drawn.
    page.goto(f'/asset-groups?asset-selection=group:"{group}"&expanded=global@global:{group}')
    for asset in ASSETS:
        if asset.startswith(f"{group}/"):
            expect(page.locator("svg").get_by_text(asset.split("/")[1], exact=True)).to_have_count(1)
    expect(page.get_by_text("% filled").first).to_be_visible()
    page.screenshot(path=tmp_path / "graph.png")


def test_asset_page_shows_metadata_and_columns(page: Page, loaded: Loaded, tmp_path: Path) -> None:
    page.goto(f"/assets/marts/sales_daily?view=partitions&partition={loaded.days[0]}")
    for text in ("dagster/partition_row_count", "snapshot id", "tidemark/content"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    page.screenshot(path=tmp_path / "sales_daily.png")
    page.goto("/assets/marts/sales_daily")
    for text in (
        "One row per product and day: units and revenue, from the day's 24 hours of core/orders.",
        "Units sold",
        "lake.marts.sales_daily",
        "revenue_usd",
        "decimal(18,4)",
    ):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()

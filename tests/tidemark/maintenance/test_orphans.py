"""A file is removed as an orphan only if nobody else can own it, and if it was one before."""

import pytest

from dagster_tidemark.lakehouse.maintenance.orphans import (
    OrphanSearch,
    OrphansRefused,
    hashed,
    next_search,
    plain,
    removable,
    require_own_folder,
)

OWN = "s3://lake/core/orders"


@pytest.mark.parametrize(
    "other",
    ["s3://lake/core/orders", "s3a://lake/core/orders/", "s3://lake/core/orders/more", "s3n://lake//core/orders/x/"],
)
def test_folder_that_holds_another_table_is_refused_by_name(other: str) -> None:
    with pytest.raises(OrphansRefused, match=r"core\.orders: .* table shop\.other is in s3://lake/core/orders"):
        require_own_folder("core.orders", {"core.orders": OWN, "shop.other": other})
    with pytest.raises(OrphansRefused, match=r"the folder s3"):
        require_own_folder("core.orders", {"core.orders": OWN}, [other])


@pytest.mark.parametrize("other", ["s3://lake/core/orders_2", "s3://lake/core", "s3://other/core/orders", "s3://lake"])
def test_other_folders_are_accepted(other: str) -> None:
    require_own_folder("core.orders", {"core.orders": OWN, "shop.other": other})


def test_equal_folders_have_equal_texts() -> None:
    assert {plain(each) for each in ("file:/a/b", "file:///a/b/", "/a/b", "file:/a//b")} == {"/a/b/"}


def test_file_is_removed_only_if_an_earlier_search_has_found_it() -> None:
    files = ["s3://lake/a", "s3://lake/b"]
    gone, stays = removable(files, None, held_since=100.0)
    assert gone == [] and len(stays) == 2
    before = OrphanSearch(50.0, frozenset(dict(hashed(files[:1]))))
    gone, stays = removable(files, before, held_since=100.0)
    assert gone == files[:1] and stays == list(dict(hashed(files[1:])))
    # A run that started before that search may still read the file: it waits for another search.
    gone, stays = removable(files, before, held_since=50.0)
    assert gone == [] and len(stays) == 2


def test_frequent_searches_do_not_replace_the_one_that_they_wait_for() -> None:
    files, held = ["s3://lake/a"], 86_400.0
    search, gone, at = None, list[str](), 0.0
    for hour in range(30):
        at = 3600.0 * hour
        gone, stays = removable(files, search, at - held)
        if gone:
            break
        search = next_search(search, stays, at, at - held)
    assert gone == files and at == 25 * 3600.0, "the first search after the first one is older than held_for"
    assert next_search(OrphanSearch(5.0), ["b"], 200.0, held_since=100.0) == OrphanSearch(200.0, frozenset({"b"}))

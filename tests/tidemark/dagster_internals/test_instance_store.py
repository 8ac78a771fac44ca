"""Contract of the instance's own storage."""

import dagster as dg

from dagster_tidemark.dagster_internals import instance_store


def test_dagster_instance_identity_is_stable_and_unique(instance: dg.DagsterInstance) -> None:
    assert instance_store.identity_of(instance) == instance_store.identity_of(instance)
    with dg.DagsterInstance.ephemeral() as other:
        assert instance_store.identity_of(other) != instance_store.identity_of(instance)


def test_saved_values_are_found_by_key_prefix(instance: dg.DagsterInstance) -> None:
    for key in ("tidemark/history/a_b", "tidemark/history/axb", "other/x"):
        instance_store.save(instance, key, f"text of {key}")
    assert set(instance_store.saved_under(instance, "tidemark/history/")) == {
        "tidemark/history/a_b",
        "tidemark/history/axb",
    }
    assert instance_store.saved_under(instance, "tidemark/history/a_") == {
        "tidemark/history/a_b": "text of tidemark/history/a_b"
    }


def test_saved_value_overwrites_the_previous_one(instance: dg.DagsterInstance) -> None:
    for text in ("first", "second"):
        instance_store.save(instance, "tidemark/a", text)
    assert instance_store.saved(instance, "tidemark/a") == "second"
    assert instance_store.saved(instance, "tidemark/b") is None
    assert instance_store.saved_values(instance, ["tidemark/a", "tidemark/b"]) == {"tidemark/a": "second"}


def test_saved_value_is_replaced_only_if_it_is_the_expected_one(instance: dg.DagsterInstance) -> None:
    assert instance_store.replace_saved(instance, "tidemark/a", None, "first")
    assert not instance_store.replace_saved(instance, "tidemark/a", None, "other")
    assert not instance_store.replace_saved(instance, "tidemark/a", "unknown", "other")
    assert instance_store.saved(instance, "tidemark/a") == "first"
    assert instance_store.replace_saved(instance, "tidemark/a", "first", "second")
    assert instance_store.saved(instance, "tidemark/a") == "second"

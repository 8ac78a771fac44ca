"""Contract of the instance's own storage."""

import dagster as dg

from dagster_tidemark.dagster_internals import instance_store


def test_an_instance_keeps_its_identity_and_another_has_its_own(instance: dg.DagsterInstance) -> None:
    assert instance_store.identity_of(instance) == instance_store.identity_of(instance)
    with dg.DagsterInstance.ephemeral() as other:
        assert instance_store.identity_of(other) != instance_store.identity_of(instance)


def test_what_was_saved_is_found_by_the_beginning_of_its_key(instance: dg.DagsterInstance) -> None:
    for key in ("tidemark/history/a_b", "tidemark/history/axb", "other/x"):
        instance_store.save(instance, key, f"text of {key}")
    assert set(instance_store.saved_under(instance, "tidemark/history/")) == {
        "tidemark/history/a_b",
        "tidemark/history/axb",
    }
    assert instance_store.saved_under(instance, "tidemark/history/a_") == {
        "tidemark/history/a_b": "text of tidemark/history/a_b"
    }


def test_a_saved_text_replaces_the_one_before(instance: dg.DagsterInstance) -> None:
    for text in ("first", "second"):
        instance_store.save(instance, "tidemark/a", text)
    assert instance_store.saved(instance, "tidemark/a") == "second"
    assert instance_store.saved(instance, "tidemark/b") is None
    assert instance_store.saved_values(instance, ["tidemark/a", "tidemark/b"]) == {"tidemark/a": "second"}


def test_a_text_is_replaced_only_if_it_is_the_expected_one(instance: dg.DagsterInstance) -> None:
    assert instance_store.replace_saved(instance, "tidemark/a", None, "first")
    assert not instance_store.replace_saved(instance, "tidemark/a", None, "other")
    assert not instance_store.replace_saved(instance, "tidemark/a", "unknown", "other")
    assert instance_store.saved(instance, "tidemark/a") == "first"
    assert instance_store.replace_saved(instance, "tidemark/a", "first", "second")
    assert instance_store.saved(instance, "tidemark/a") == "second"

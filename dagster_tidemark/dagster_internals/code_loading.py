"""The reason why this process loads the definitions."""

from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType


def is_loaded_for_a_run() -> bool:
    """Return True if this process loads the definitions only to execute a run. No sensor ticks in it."""
    return (
        DefinitionsLoadContext.is_set() and DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION
    )


def is_loaded_by_a_code_server() -> bool:
    """Return True if this process loads the definitions for others: a code server, or a check of the definitions."""
    return DefinitionsLoadContext.is_set() and not is_loaded_for_a_run()

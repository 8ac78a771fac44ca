"""Detects why this process loads the definitions: for a run, or in a code server."""

from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType


def is_loaded_for_a_run() -> bool:
    """Return True if this process loads the definitions only to execute a run. Such a process evaluates no sensors."""
    return (
        DefinitionsLoadContext.is_set() and DefinitionsLoadContext.get().load_type is DefinitionsLoadType.RECONSTRUCTION
    )


def is_loaded_by_a_code_server() -> bool:
    """Return True if this process is a code server, or a command that checks the definitions."""
    return DefinitionsLoadContext.is_set() and not is_loaded_for_a_run()

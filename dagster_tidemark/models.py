"""Fitted models: the interface of a learner, and the versions of a model."""

from dagster_tidemark.lakehouse.model_store import Learner, Model, ModelStore, current_version

__all__ = [
    "Learner",
    "Model",
    "ModelStore",
    "current_version",
]

"""Versions of a model: their names, their files, and which one serves."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from pyspark.sql import SparkSession

from dagster_tidemark.errors import Terminal
from dagster_tidemark.lakehouse.model_store import ModelDamaged, ModelStore, NoSuchModel, current_version
from dagster_tidemark.settings import Settings
from tests.conftest import make_settings


@dataclass
class Mean:
    """Predicts a number for every feature."""

    value: float

    def predict(self, features: list[float]) -> list[float]:
        return [self.value for _ in features]

    def save(self, folder: Path) -> None:
        (folder / "metadata").mkdir()
        (folder / "metadata" / "kind").write_text("mean")
        (folder / "value").write_text(repr(self.value))


@dataclass
class Means:
    """Learns the mean."""

    seed: int = 0
    release: str = "1.0"

    @property
    def parameters(self) -> Mapping[str, object]:
        return {"seed": self.seed}

    @property
    def libraries(self) -> Mapping[str, str]:
        return {"means": self.release}

    def fit(self, features: list[float]) -> Mean:
        return Mean(sum(features) / len(features))

    def load(self, folder: Path) -> Mean:
        assert (folder / "metadata" / "kind").read_text() == "mean"
        return Mean(float((folder / "value").read_text()))


@pytest.fixture(params=["folder", "bucket"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """A warehouse in a folder, and one in a bucket."""
    if request.param == "folder":
        return make_settings(tmp_path)
    cloud: Settings = request.getfixturevalue("cloud")
    boto3.client("s3", **cloud.aws_options()).create_bucket(Bucket="lake")
    return cloud.model_copy(update={"warehouse": f"s3://lake/{tmp_path.name}"})


@pytest.fixture
def store(settings: Settings) -> ModelStore[list[float], list[float]]:
    return ModelStore("means", Means(), settings)


Store = ModelStore[list[float], list[float]]


def test_saved_model_version_is_loaded_unchanged(store: Store) -> None:
    assert store.save("a", Mean(0.1)) == store.path("a")
    store.save("b", Mean(0.2))
    assert store.load("a").predict([1.0, 2.0]) == [0.1, 0.1]


def test_model_version_is_never_overwritten(store: Store) -> None:
    store.save("a", Mean(0.1))
    store.save("a", Mean(0.2))
    assert store.load("a").predict([1.0]) == [0.1]


def test_unfinished_model_version_is_not_loaded_and_the_next_save_completes_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(Exception): ...

    write = store._files.write

    def dying(path: str, body: bytes) -> None:
        if path.endswith("value"):
            raise Died
        write(path, body)

    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(store._files, "write", dying)
        store.save("a", Mean(0.1))
    assert not store.holds("a")
    with pytest.raises(NoSuchModel, match="materialize"):
        store.load("a")
    store.save("a", Mean(0.1))
    assert store.load("a").predict([1.0]) == [0.1]


def test_model_version_with_a_changed_file_is_not_loaded(store: Store) -> None:
    path = store.save("a", Mean(0.1))
    store._files.write(f"{path}/value", b"0.2")
    with pytest.raises(ModelDamaged, match="value"):
        store.load("a")


def test_model_version_name_depends_on_learner_features_and_code(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    names = [
        ModelStore("means", learner, settings).version_of(features, code)
        for learner in (Means(), Means(seed=1), Means(release="1.1"))
        for features in ("x", "y")
        for code in ("1", "2")
    ]
    assert len(set(names)) == len(names) == 12
    assert names[0] == ModelStore("others", Means(), settings).version_of("x", "1")


def test_model_store_refuses_storage_other_than_a_folder_or_s3(tmp_path: Path) -> None:
    settings = make_settings(tmp_path).model_copy(update={"warehouse": "gs://lake"})
    with pytest.raises(Terminal, match="TIDEMARK_WAREHOUSE"):
        ModelStore("means", Means(), settings).holds("a")


def test_newest_published_model_version_is_the_current_one(spark: SparkSession) -> None:
    def versions(*rows: tuple[str, bool, int]) -> str | None:
        at = [(name, published, datetime(2026, 10, day, tzinfo=UTC)) for name, published, day in rows]
        return current_version(spark.createDataFrame(at, "version string, published boolean, fitted_at timestamp"))

    assert versions() is None
    assert versions(("a", False, 1)) is None
    assert versions(("b", True, 2), ("c", False, 3), ("a", True, 1)) == "b"

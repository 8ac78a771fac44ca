"""Requests for demand: scored by the model that serves, from the features before the day, or told why not."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dagster_tidemark import Settings
from dagster_tidemark.lakehouse.append import Appendable, open_lake
from dagster_tidemark.sources.inlets import QueueInlet
from dagster_tidemark.streams import Answering, StreamContext
from dagster_tidemark.streams.answers.worker import Answers
from dagster_tidemark.streams.shift import reaction_of
from pipelines.models import demand, demand_on_request
from pipelines.schemas import ml
from pipelines.streams.scoring import NO_MODEL, SCORING, DemandScores
from tests.grocer_demand import FIRST_DAY, features
from tests.grocer_scores import keep_features, publish
from tests.tidemark.streams import toy

DAYS = 12
LAST = FIRST_DAY + timedelta(days=DAYS - 1)
SMALL = demand.DemandLearner(iterations=10)
OTHER = demand.DemandLearner(iterations=11)


@pytest.fixture(scope="module")
def known() -> pd.DataFrame:
    """The features of two stores."""
    every = features(DAYS)
    return every[every["store_id"] <= 2]


@dataclass
class Shop:
    """A lake with features, and what answers requests."""

    settings: Settings
    known: pd.DataFrame

    def answerer(self) -> DemandScores:
        return DemandScores(StreamContext(self.settings, open_lake(self.settings), SCORING))

    def publish(self, learner: demand.DemandLearner, *, published: bool = True) -> str:
        return publish(self.settings, learner, demand.labelled(self.known), published=published)

    def model(self, learner: demand.DemandLearner) -> demand.DemandModel:
        return learner.fit(demand.labelled(self.known))

    def features(self, store: int, product: int, day: date) -> pd.DataFrame:
        """The row of a store's product and day."""
        known = self.known
        mine = (known["store_id"] == store) & (known["product_id"] == product) & (known["day"] == day)
        assert mine.sum() == 1
        return known[mine]


@pytest.fixture
def shop(cloud: Settings, known: pd.DataFrame, tmp_path: Path) -> Shop:
    own = {"catalog_uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    made = Shop(cloud.model_copy(update=own), known)
    keep_features(made.settings, known, {FIRST_DAY + timedelta(days=n) for n in range(DAYS)})
    return made


def request(store: int, product: int, when: date) -> dict[str, Any]:
    return {"request_id": f"{store} {product} {when}", "store_id": store, "product_id": product, "date": when}


@pytest.fixture
def products(known: pd.DataFrame) -> Iterator[list[int]]:
    """Some of the products that both stores sold on the last day."""
    sold = [set(known[(known["store_id"] == store) & (known["day"] == LAST)]["product_id"]) for store in (1, 2)]
    yield sorted(set.intersection(*sold))


def test_score_equals_the_prediction_from_the_previous_days_features(shop: Shop, products: list[int]) -> None:
    version, model = shop.publish(SMALL), shop.model(SMALL)
    asked = [
        request(store, product, LAST + timedelta(days=1 - before))
        for store in (1, 2)
        for product in products[:5]
        for before in (0, 3)
    ]
    answers = shop.answerer()(asked)
    for each, answer in zip(asked, answers, strict=True):
        of_the_day_before = shop.features(each["store_id"], each["product_id"], each["date"] - timedelta(days=1))
        expected = float(model.predict(of_the_day_before)[0])
        assert answer == {"score": expected, "model_version": version}
    assert len({answer["score"] for answer in answers if not isinstance(answer, str)}) > 10


@pytest.mark.parametrize("ahead", [2, 7])
def test_score_of_a_later_day_uses_the_newest_features_and_its_weekday(
    shop: Shop, products: list[int], ahead: int
) -> None:
    version, model = shop.publish(SMALL), shop.model(SMALL)
    when = LAST + timedelta(days=ahead)
    newest = shop.features(1, products[0], LAST)
    expected = float(model.predict(newest.assign(day=when - timedelta(days=1)))[0])
    assert shop.answerer()([request(1, products[0], when)]) == [{"score": expected, "model_version": version}]


def test_scoring_batch_needs_one_scan_and_one_prediction(
    shop: Shop, products: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish(SMALL)
    answerer, calls = shop.answerer(), list[str]()
    assert answerer([]) == []

    def counting(of: type, name: str) -> None:
        called = getattr(of, name)

        def call(*args: Any, **more: Any) -> Any:
            calls.append(name)
            return called(*args, **more)

        monkeypatch.setattr(of, name, call)

    for of, name in ((Appendable, "rows"), (demand.DemandModel, "predict"), (demand.DemandLearner, "load")):
        counting(of, name)
    asked = [request(store, product, LAST + timedelta(days=1)) for store in (1, 2) for product in products]
    assert not any(isinstance(answer, str) for answer in answerer([*asked, *asked]))
    assert calls == ["rows", "predict"]


def test_scoring_answer_explains_a_missing_score(shop: Shop, products: list[int]) -> None:
    asked = [
        request(1, products[0], LAST),
        request(1, 999, LAST),
        request(77, products[0], LAST),
        request(2**62, -(2**62), LAST),
        request(1, products[0], LAST + timedelta(days=8)),
        request(1, products[0], date.max),
        request(1, products[0], FIRST_DAY),
        request(1, products[0], date.min),
    ]
    answerer = shop.answerer()
    assert answerer(asked) == [NO_MODEL] * len(asked)
    shop.publish(SMALL)
    scored, *why = answerer(asked)
    assert isinstance(scored, dict)
    told = f"demand is known up to {LAST}, and predicted for the 7 days after"
    assert why == [
        f"product 999 is unknown in store 1: it was not sold there in the weeks before {LAST}",
        f"product {products[0]} is unknown in store 77: it was not sold there in the weeks before {LAST}",
        f"product {-(2**62)} is unknown in store {2**62}: it was not sold there in the weeks before {LAST}",
        f"{LAST + timedelta(days=8)} is too late: {told}",
        f"9999-12-31 is too late: {told}",
        f"{FIRST_DAY} is too early: demand is known from {FIRST_DAY} on",
        f"0001-01-01 is too early: demand is known from {FIRST_DAY} on",
    ]


def test_scoring_without_features_is_answered_with_the_reason(
    cloud: Settings, known: pd.DataFrame, tmp_path: Path
) -> None:
    own = {"catalog_uri": f"jdbc:sqlite:{tmp_path}/catalog.db", "warehouse": str(tmp_path / "warehouse")}
    shop = Shop(cloud.model_copy(update=own), known)
    answerer = shop.answerer()
    assert answerer([request(1, 1, LAST)]) == [NO_MODEL]
    assert not (tmp_path / "warehouse" / "ml").exists(), "who reads a table does not make it"
    shop.publish(SMALL)
    assert answerer([request(1, 1, LAST)]) == ["no demand is known yet"]


def test_scoring_uses_a_new_model_once_it_is_published(shop: Shop, products: list[int]) -> None:
    asked = [request(1, product, LAST) for product in products[:3]]
    answerer = shop.answerer()

    def versions(answers: Sequence[Any]) -> set[str]:
        return {answer["model_version"] for answer in answers}

    first = shop.publish(SMALL)
    told = answerer(asked)
    assert versions(told) == {first}
    shop.publish(demand.DemandLearner(iterations=1), published=False)
    assert answerer(asked) == told
    other = shop.publish(OTHER)
    assert versions(answerer(asked)) == {other}
    model = shop.model(OTHER)
    features_of = pd.concat(shop.features(1, product, LAST - timedelta(days=1)) for product in products[:3])
    assert [answer["score"] for answer in answerer(asked) if isinstance(answer, dict)] == model.predict(
        features_of
    ).tolist()


def test_scoring_reads_features_written_later(shop: Shop, products: list[int]) -> None:
    shop.publish(SMALL)
    answerer = shop.answerer()
    when = LAST + timedelta(days=9)
    assert "too late" in answerer([request(1, products[0], when)])[0]
    later = shop.known.assign(day=shop.known["day"].map(lambda day: day + timedelta(days=DAYS)))
    keep_features(shop.settings, later, {LAST + timedelta(days=3)})
    assert isinstance(answerer([request(1, products[0], when)])[0], dict)


def test_scoring_requests_are_answered_in_table_and_queue(shop: Shop, products: list[int]) -> None:
    version = shop.publish(SMALL)
    name = toy.new_name()
    asked, told = toy.make_queue(shop.settings, toy.new_name()), toy.make_queue(shop.settings, name)
    assert isinstance(SCORING.reaction, Answering)
    answering = replace(SCORING.reaction, queue=name)
    shift = toy.shift(replace(SCORING, reaction=answering), shop.settings, [QueueInlet("sqs:in", lambda: asked)])
    shift._catch_up()
    good = [request(1, product, LAST) for product in products[:20]]
    long = request(1, products[0], LAST) | {"request_id": "x" * 300}
    bad = [request(1, 999, LAST), {"request_id": "broken", "store_id": "one"}, long]
    asked.send([json.dumps(each, default=str) for each in [*good, *bad]])
    shift.step()
    rows = {row["request_id"]: row for row in Appendable(open_lake(shop.settings), ml.SCORES).rows().to_pylist()}
    replies = {}
    while messages := told.receive(0):
        replies |= {reply["request_id"]: reply for reply in (json.loads(message.body) for message in messages)}
        told.delete(messages)
    ids = {each["request_id"] for each in good}
    assert rows.keys() == replies.keys() == ids | {f"1 999 {LAST}", "broken", "x" * 300}
    for each in ids:
        assert replies[each] == {"request_id": each, "score": rows[each]["score"], "model_version": version}
        assert rows[each]["error"] is None and rows[each]["scored_at"] is not None
    assert "999 is unknown" in replies[f"1 999 {LAST}"]["error"]
    assert replies["broken"]["error"].startswith("store_id: ")
    assert replies["x" * 300]["error"] == "it breaks the rule request_id_too_long"


def test_scoring_without_model_files_gives_no_score(shop: Shop, products: list[int]) -> None:
    shop.publish(SMALL)
    shutil.rmtree(Path(shop.settings.warehouse) / "models")
    place = StreamContext(shop.settings, open_lake(shop.settings), SCORING)
    reaction = reaction_of(place)
    assert isinstance(reaction, Answers)
    reaction._answerer = DemandScores(place)
    said = reaction._answers_to([request(1, products[0], LAST)])
    assert isinstance(said[0], str) and "there is no complete model" in said[0]


def test_scoring_uses_the_features_of_the_previous_week() -> None:
    assert demand_on_request.days_that_serve([date(2026, 10, 8)]) == [date(2026, 10, n) for n in range(1, 8)]
    assert demand_on_request.days_that_serve([date.min]) == []

"""raw/scoring_requests: requests for a product's demand in a store on a day, answered within a second."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from dagster_tidemark import from_env
from dagster_tidemark.streams import Answering, Stream, StreamContext

from pipelines.models import demand, demand_on_request
from pipelines.schemas import ml, raw

NO_MODEL = "no demand model is published yet"


class DemandScores:
    """Answers to requests from the current model, with one scan and one prediction per batch."""

    def __init__(self, place: StreamContext) -> None:
        self._model = place.model("demand", demand.DemandLearner(), ml.DEMAND_MODEL)
        self._features = place.table(ml.DEMAND_FEATURES)
        self._known: tuple[int | None, list[date]] = (None, [])

    def __call__(self, requests: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any] | str]:
        """Return for each request its score and the model's version, or the reason why it has no score."""
        serving = self._model.current()
        self._features.refresh()
        if not requests:
            return []
        if serving is None:
            return [NO_MODEL] * len(requests)
        version, model = serving
        among = {name: {request[name] for request in requests} for name in ("store_id", "product_id")}
        days = demand_on_request.days_that_serve({request["date"] for request in requests})
        rows = self._features.rows(tuple(ml.DEMAND_FEATURES.columns), among | {"day": days})
        scores = demand_on_request.scores(requests, rows.to_pandas(), model)
        return [
            demand_on_request.why_not(request, self._days())
            if score is None
            else {"score": score, "model_version": version}
            for request, score in zip(requests, scores, strict=True)
        ]

    def _days(self) -> list[date]:
        """Return the days that have features."""
        head = self._features.head
        if self._known[0] != head or head is None:
            self._known = head, [partition["day"] for partition in self._features.partitions()]
        return self._known[1]


SCORING = Stream(
    name="scoring",
    table=raw.SCORING_REQUESTS,
    queue=from_env("TIDEMARK_SCORING_QUEUE", default="scoring-requests"),
    required=("request_id", "store_id", "product_id", "date"),
    rules={"request_id_too_long": lambda fields: len(fields["request_id"]) <= 200},
    workers=2,
    reaction=Answering(
        table=ml.SCORES,
        key="request_id",
        queue=from_env("TIDEMARK_SCORES_QUEUE", default="scores"),
        answer=DemandScores,
        at="scored_at",
    ),
)

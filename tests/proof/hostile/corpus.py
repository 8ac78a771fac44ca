"""A corpus of hostile input: what malicious or careless partners send, and what the specification says becomes of it.

Whoever wrote these cases knew only the specification (the landing zone, the tables and what bad input gets), not the
code that is put to the test. Where the specification leaves something open, the case says so in `unsure`: what is
open, what was chosen and why; such a case counts all the same. Everything is deterministic: the same hour gives the
same bytes.

The cases lie in tables, by subject: `corpus_csv`, `corpus_json`, `corpus_gzip` and `corpus_parquet` (files of feed
orders), `corpus_rows` (values), `corpus_times` (the column `ordered_at`), `corpus_places` (names, places, same keys),
`corpus_feeds` (customers and prices) and `corpus_messages`. `corpus_model` says what a case is and holds the
builders.
"""

from tests.proof.hostile.corpus_csv import CSV_CASES
from tests.proof.hostile.corpus_feeds import CUSTOMER_CASES, PRICE_CASES
from tests.proof.hostile.corpus_gzip import GZIP_CASES
from tests.proof.hostile.corpus_json import JSON_CASES
from tests.proof.hostile.corpus_messages import MESSAGE_CASES
from tests.proof.hostile.corpus_model import FileCase, MessageCase
from tests.proof.hostile.corpus_parquet import PARQUET_CASES
from tests.proof.hostile.corpus_places import PLACE_CASES
from tests.proof.hostile.corpus_rows import ROW_CASES
from tests.proof.hostile.corpus_times import TIME_CASES

__all__ = ["FILES", "MESSAGES", "FileCase", "MessageCase"]

ORDER_CASES = (*CSV_CASES, *JSON_CASES, *GZIP_CASES, *PARQUET_CASES, *ROW_CASES, *TIME_CASES, *PLACE_CASES)
FILES: tuple[FileCase, ...] = (*ORDER_CASES, *CUSTOMER_CASES, *PRICE_CASES)
MESSAGES: tuple[MessageCase, ...] = MESSAGE_CASES

"""Messages of the events queue: S3 events bare, wrapped by SNS or EventBridge, and whatever else lands in a queue."""

import json
from typing import Any
from urllib.parse import quote_plus

from tests.proof.hostile.corpus_model import MessageCase

Hint = tuple[str, str | None]

FOLDER = "orders/dt=2026-10-05/hour=07/"
KEY = FOLDER + "part-0.csv"
ORDERS: Hint = ("orders", "2026-10-05-07:00")
PRICES: Hint = ("prices", "2026-10-05")
CUSTOMERS: Hint = ("customers", None)
PRICES_KEY = "prices/dt=2026-10-05/p.csv"
CUSTOMERS_KEY = "customers/latest.csv"
TIME = "2026-10-05T07:20:00.000Z"


def encoded(key: str) -> str:
    """A key as S3 writes it into its records."""
    return quote_plus(key, safe="/")


def record(
    key: Any = None, *, name: str = "ObjectCreated:Put", bucket: Any = "landing", raw: Any = None, **changes: Any
) -> dict[str, Any]:
    """A record of an S3 event. `raw` is the key as it stands there; a change to None takes the field out."""
    values: dict[str, Any] = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-central-1",
        "eventTime": TIME,
        "eventName": name,
        "userIdentity": {"principalId": "AWS:PARTNER"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {
                "key": encoded(KEY if key is None else key) if raw is None else raw,
                "size": 1024,
                "eTag": "d41d8cd98f00b204",
                "sequencer": "0A1B",
            },
        },
    }
    values.update(changes)
    return {field: value for field, value in values.items() if value is not None}


def s3(*records: Any) -> str:
    """An S3 event."""
    return json.dumps({"Records": list(records)})


def sns(message: Any, **changes: Any) -> str:
    """A notification of SNS around a message."""
    values = {
        "Type": "Notification",
        "MessageId": "m-1",
        "TopicArn": "arn:aws:sns:eu-central-1:1:landing",
        "Message": message,
        "Timestamp": TIME,
        "SignatureVersion": "1",
    }
    return json.dumps(values | changes)


def bridge(key: Any = KEY, kind: str = "Object Created", **changes: Any) -> str:
    """An event of EventBridge, in which keys are not encoded."""
    detail = {
        "version": "0",
        "bucket": {"name": "landing"},
        "object": {"key": key, "size": 1, "etag": "d41d", "sequencer": "0A"},
        "reason": "PutObject",
    }
    values = {
        "version": "0",
        "id": "e-1",
        "detail-type": kind,
        "source": "aws.s3",
        "account": "1",
        "time": TIME,
        "region": "eu-central-1",
        "detail": detail,
    }
    return json.dumps(values | changes)


def detail(**changes: Any) -> dict[str, Any]:
    """The detail of an EventBridge event with some of its fields replaced."""
    return {"bucket": {"name": "landing"}, "object": {"key": KEY}} | changes


def without_block(**changes: Any) -> dict[str, Any]:
    """A record whose s3 block is made of the changes only."""
    return record(s3=changes)


def done(name: str, body: str, *hints: Hint, strays: int = 0, unsure: str = "") -> MessageCase:
    """A message that is understood and deleted."""
    return MessageCase(name, body, frozenset(hints), False, strays, unsure)


def left(name: str, body: str, *hints: Hint, strays: int = 0, unsure: str = "") -> MessageCase:
    """A message that is left for the dead-letter queue; the hints of its good records count."""
    return MessageCase(name, body, frozenset(hints), True, strays, unsure)


TEST_EVENT = {
    "Service": "Amazon S3",
    "Event": "s3:TestEvent",
    "Time": TIME,
    "Bucket": "landing",
    "RequestId": "R",
    "HostId": "H",
}
EVENT_NAMES = (
    "ObjectCreated:Put",
    "ObjectCreated:Post",
    "ObjectCreated:Copy",
    "ObjectCreated:CompleteMultipartUpload",
    "ObjectRemoved:Delete",
    "ObjectRemoved:DeleteMarkerCreated",
    "LifecycleExpiration:Delete",
    "s3:ObjectCreated:Put",
)
HARMLESS = (
    "the object's rows did not change, so no hint is needed; looking again does no harm, chosen as for every S3 event"
)

UNDERSTOOD = (
    *(done("s3_" + name.replace(":", "_").lower(), s3(record(name=name)), ORDERS) for name in EVENT_NAMES),
    *(
        done("s3_" + name.replace(":", "_").lower(), s3(record(name=name)), ORDERS, unsure=HARMLESS)
        for name in ("ObjectRestore:Completed", "ObjectTagging:Put", "ObjectAcl:Put")
    ),
    done(
        "s3_new_kind_of_creation", s3(record(name="ObjectCreated:New")), ORDERS, unsure="a kind of the future, still S3"
    ),
    done(
        "s3_removed_without_size_and_etag",
        s3(without_block(bucket={"name": "landing"}, object={"key": encoded(KEY)})),
        ORDERS,
    ),
    done(
        "s3_versioned",
        s3(
            without_block(
                bucket={"name": "landing"}, object={"key": encoded(KEY), "versionId": "null", "sequencer": "00"}
            )
        ),
        ORDERS,
    ),
    done("s3_of_every_feed", s3(record(), record(PRICES_KEY), record(CUSTOMERS_KEY)), ORDERS, PRICES, CUSTOMERS),
    done("s3_same_record_many_times", s3(*[record()] * 20), ORDERS),
    done("s3_created_and_removed", s3(record(), record(name="ObjectRemoved:Delete")), ORDERS),
    done(
        "s3_two_hours",
        s3(record(), record("orders/dt=2026-10-06/hour=22/a.parquet")),
        ORDERS,
        ("orders", "2026-10-06-22:00"),
    ),
    done("s3_first_hour", s3(record("orders/dt=2026-09-28/hour=00/a.csv")), ("orders", "2026-09-28-00:00")),
    done(
        "s3_fields_of_the_future",
        s3(record(eventVersion="9.7", glacierEventData={"x": [1]}, newField=None, flags=[1, {"a": None}])),
        ORDERS,
    ),
    done("test_event", json.dumps(TEST_EVENT)),
    done("test_event_in_sns", sns(json.dumps(TEST_EVENT))),
    done(
        "test_event_of_another_bucket",
        json.dumps(TEST_EVENT | {"Bucket": "other"}),
        unsure="a test event is understood, another bucket is refused; chosen refused: wired wrongly",
    ),
    done("sns_around_s3", sns(s3(record(), record(PRICES_KEY))), ORDERS, PRICES),
    done("sns_around_sns", sns(sns(s3(record()))), ORDERS),
    done(
        "sns_with_attributes",
        sns(s3(record()), Subject="Amazon S3 Notification", MessageAttributes={"a": {"Type": "String", "Value": "x"}}),
        ORDERS,
    ),
    done("bridge_created", bridge(), ORDERS),
    done("bridge_deleted", bridge(kind="Object Deleted"), ORDERS),
    done("bridge_of_prices_and_no_time", bridge(PRICES_KEY, time=None), PRICES),
    done("bridge_tags_added", bridge(kind="Object Tags Added"), ORDERS, unsure=HARMLESS),
    done("bridge_restore_completed", bridge(kind="Object Restore Completed"), ORDERS, unsure=HARMLESS),
    done("sns_around_bridge", sns(bridge(CUSTOMERS_KEY)), CUSTOMERS),
    done("json_with_blanks_around", f"\n\t {s3(record())} \r\n", ORDERS),
    done("json_pretty_printed", json.dumps(json.loads(s3(record())), indent=4), ORDERS),
    done(
        "json_escaped_names", s3(record()).replace("Records", "\\u0052ecords").replace("bucket", "\\u0062ucket"), ORDERS
    ),
    done("enormous_body_of_many_records", s3(*(record(f"{FOLDER}{n:03}.csv") for n in range(400))), ORDERS),
    done("enormous_field", s3(record(userIdentity={"principalId": "x" * 200_000})), ORDERS),
)

KEYS = (
    done("key_with_blank_as_plus", s3(record(raw=FOLDER + "a+b.csv")), ORDERS),
    done("key_all_encoded", s3(record(raw=quote_plus(KEY, safe=""))), ORDERS),
    done("key_not_encoded", s3(record(raw=KEY)), ORDERS),
    done("key_encoded_in_lower_case", s3(record(raw=KEY.replace("=", "%3d"))), ORDERS),
    done("key_non_ascii_encoded", s3(record(FOLDER + "été 注文 🧾.csv")), ORDERS),
    done("key_non_ascii_not_encoded", s3(record(raw=FOLDER + "été-注文-🧾.csv")), ORDERS),
    done("key_with_encoded_percent_2f", s3(record(FOLDER + "a%2Fb.csv")), ORDERS),
    done("key_encoded_twice", s3(record(raw=encoded(encoded(KEY)))), strays=1),
    done("key_of_bridge_looks_encoded", bridge(encoded(KEY)), strays=1),
    done("key_of_bridge_with_plus_and_percent", bridge(FOLDER + "a+b%2Fc.csv"), ORDERS),
    done("key_of_bridge_decoded_would_be_deeper", bridge(FOLDER + "sub%2Fa.csv"), ORDERS),
    done("key_decoded_is_deeper", s3(record(raw=FOLDER + "sub%2Fa.csv")), ORDERS),
    done(
        "key_with_broken_escapes",
        s3(record(raw=FOLDER + "100%zz%.csv")),
        ORDERS,
        unsure="S3 never writes it; what cannot be decoded stays as it is, the hour is clear",
    ),
    done(
        "key_with_invalid_utf8",
        s3(record(raw=FOLDER + "a%ff%c3.csv")),
        ORDERS,
        unsure="no such key can exist; the hour is clear, looking does no harm",
    ),
    left(
        "key_with_lone_surrogate",
        s3(record(raw=FOLDER + "a\ud800.csv")),
        unsure="the point is that naming it in a log does not crash",
    ),
    done("key_with_nul_and_newline", s3(record(FOLDER + "a\0b\nc.csv")), ORDERS, unsure="odd, yet in the layout"),
    done(
        "key_ends_with_newline",
        s3(record(FOLDER + "a.csv\n")),
        ORDERS,
        unsure="the ending is not .csv but .csv and a newline: outside the layout, like any other ending",
    ),
    done(
        "key_with_other_ending",
        s3(record(FOLDER + "a.xlsx")),
        ORDERS,
        unsure="goes to quarantine as outside_layout, hence a stray; a hint for its hour is as useful",
    ),
    done("key_in_the_feeds_root", s3(record("orders/x.csv")), strays=1),
    done("key_without_hour", s3(record("orders/dt=2026-10-05/x.csv")), strays=1),
    done("key_of_hour_24", s3(record("orders/dt=2026-10-05/hour=24/x.csv")), strays=1),
    done("key_of_hour_7", s3(record("orders/dt=2026-10-05/hour=7/x.csv")), strays=1),
    done("key_of_hour_in_other_digits", s3(record("orders/dt=2026-10-05/hour=\u0660\u0667/x.csv")), strays=1),
    done("key_of_month_13", s3(record("orders/dt=2026-13-01/hour=07/x.csv")), strays=1),
    done(
        "key_before_the_start_date",
        s3(record("orders/dt=2026-09-27/hour=23/x.csv"), record("prices/dt=2026-09-27/p.csv")),
        strays=2,
    ),
    done("key_of_prices_with_hour", s3(record("prices/dt=2026-10-05/hour=07/p.csv")), ("prices", "2026-10-05")),
    done(
        "key_of_prices_in_parquet",
        s3(record("prices/dt=2026-10-05/p.parquet")),
        ("prices", "2026-10-05"),
        unsure="as key_with_other_ending",
    ),
    done(
        "key_in_the_far_future",
        s3(record("orders/dt=2099-12-31/hour=07/x.csv")),
        strays=1,
    ),
    done(
        "good_key_and_strays",
        s3(record(), record("orders/x.csv"), record("orders/y.csv"), record(PRICES_KEY)),
        ORDERS,
        PRICES,
        strays=2,
    ),
    done(
        "marker_in_the_feeds_root", s3(record("orders/_SUCCESS"), record("orders/.keep"), record("orders/upload.tmp"))
    ),
    done("marker_in_an_hour", s3(record(FOLDER + "_SUCCESS")), ORDERS, unsure="a hint would do no harm"),
    done(
        "folder_markers",
        s3(record("orders/"), record("orders/dt=2026-10-05/"), record(FOLDER)),
        ORDERS,
        unsure="the last one lies in an hour, a hint would do no harm",
    ),
    left("key_of_an_undeclared_prefix", s3(record("invoices/2026/x.csv"))),
    left(
        "key_of_a_similar_prefix",
        s3(record("orders-old/dt=2026-10-05/hour=07/x.csv"), record("Orders/dt=2026-10-05/hour=07/x.csv")),
    ),
    left("key_with_leading_slash", s3(record("/" + KEY))),
    left(
        "key_beside_the_customers_file",
        s3(record("customers/other.csv")),
        unsure="the feed is one key, so its folder is undeclared; or it is a stray of the feed",
    ),
    left("key_is_the_prefix_without_slash", s3(record("orders"))),
    left("key_empty", s3(record(raw=""))),
    left("key_of_200_000_bytes", s3(record(raw="k" * 200_000))),
)

NO_EVENTS = {
    "empty_string": "",
    "blanks_only": "  \n\t ",
    "word": "hello",
    "xml": '<?xml version="1.0"?><NotificationConfiguration/>',
    "form": "Action=Publish&Message=orders%2Fdt%3D2026-10-05",
    "key_only": KEY,
    "json_cut_short": s3(record())[:-20],
    "json_with_text_behind": s3(record()) + " ok",
    "json_twice": s3(record()) + s3(record()),
    "json_with_trailing_comma": s3(record())[:-1] + ",}",
    "json_with_bad_escape": s3(record()).replace("part-0", "part\\x0"),
    "python_literal": str(json.loads(s3(record()))),
    "null": "null",
    "true": "true",
    "number": "42",
    "number_not_a_number": "NaN",
    "string": '"orders"',
    "list": "[]",
    "list_of_records": json.dumps([record()]),
    "empty_object": "{}",
    "string_of_an_event": json.dumps(s3(record())),
    "deeply_nested_lists": "[" * 100_000,
    "deeply_nested_lists_closed": "[" * 100_000 + "]" * 100_000,
    "deeply_nested_objects": '{"Records":' * 20_000 + "1" + "}" * 20_000,
    "enormous_noise": "x" * 250_000,
    "records_null": '{"Records": null}',
    "records_object": json.dumps({"Records": record()}),
    "records_string": json.dumps({"Records": "orders"}),
    "records_in_lower_case": json.dumps({"records": [record()]}),
    "records_of_scalars": s3(None, 1, "x", [], True),
    "record_empty": s3({}),
    "record_without_s3": s3(record(s3=None)),
    "record_s3_is_a_list": s3(record(s3=[1])),
    "record_s3_is_a_string": s3(record(s3="orders")),
    "record_without_bucket": s3(without_block(object={"key": KEY})),
    "record_without_object": s3(without_block(bucket={"name": "landing"})),
    "record_without_key": s3(without_block(bucket={"name": "landing"}, object={"size": 1})),
    "record_object_null": s3(without_block(bucket={"name": "landing"}, object=None)),
    "record_bucket_is_a_string": s3(without_block(bucket="landing", object={"key": KEY})),
    "record_bucket_without_name": s3(without_block(bucket={"arn": "arn:aws:s3:::landing"}, object={"key": KEY})),
    "record_key_null": s3(without_block(bucket={"name": "landing"}, object={"key": None})),
    "record_key_number": s3(record(raw=20261005)),
    "record_key_list": s3(record(raw=[KEY])),
    "record_key_object": s3(record(raw={"key": KEY})),
    "record_bucket_number": s3(record(bucket=7)),
    "record_of_another_bucket": s3(record(bucket="other")),
    "record_of_a_bucket_in_capitals": s3(record(bucket="Landing")),
    "record_of_a_longer_bucket": s3(record(bucket="landing-archive")),
    "record_of_another_service": s3(record(eventSource="aws:dynamodb")),
    "record_of_a_queue": s3({"messageId": "1", "eventSource": "aws:sqs", "body": s3(record())}),
    "sns_subscription": sns(
        "You have chosen to subscribe", Type="SubscriptionConfirmation", SubscribeURL="https://example.com", Token="t"
    ),
    "sns_of_prose": sns("deployment finished"),
    "sns_of_nothing": sns(""),
    "sns_of_null": sns(None),
    "sns_of_a_number": sns(7),
    "sns_without_message": json.dumps({"Type": "Notification", "TopicArn": "arn"}),
    "sns_of_another_bucket": sns(s3(record(bucket="other"))),
    "bridge_of_another_source": bridge(source="aws.ec2"),
    "bridge_of_another_kind": bridge(
        kind="AWS API Call via CloudTrail", detail={"requestParameters": {"bucketName": "landing", "key": KEY}}
    ),
    "bridge_without_detail": bridge(detail=None),
    "bridge_detail_is_a_string": bridge(detail=json.dumps(detail())),
    "bridge_without_object": bridge(detail={"bucket": {"name": "landing"}}),
    "bridge_bucket_is_a_string": bridge(detail=detail(bucket="landing")),
    "bridge_key_number": bridge(7),
    "bridge_key_empty": bridge(""),
    "bridge_of_another_bucket": bridge(detail=detail(bucket={"name": "other"})),
    "bridge_of_an_undeclared_prefix": bridge("invoices/x.csv"),
    "alarm_of_cloudwatch": json.dumps(
        {"AlarmName": "queue", "NewStateValue": "ALARM", "Trigger": {"Namespace": "AWS/SQS"}}
    ),
}
OPEN = {
    "empty_string": "SQS itself takes no empty body; for whatever hands bodies over directly",
    "string_of_an_event": "an event encoded twice could be unwrapped once more; no service does it",
}

HALVES = (
    left("good_and_another_bucket", s3(record(), record(bucket="other"), record(PRICES_KEY)), ORDERS, PRICES),
    left("good_and_an_undeclared_prefix", s3(record("invoices/x.csv"), record(CUSTOMERS_KEY)), CUSTOMERS),
    left("good_and_no_record", s3(None, record(), 7, "x"), ORDERS),
    left("good_and_a_key_of_wrong_type", s3(record(raw=[1]), record(PRICES_KEY)), PRICES),
    left("good_and_stray_and_bad", s3(record("orders/x.csv"), record(), {}), ORDERS, strays=1),
    left("stray_and_bad_in_sns", sns(s3(record("orders/x.csv"), record(bucket="other"))), strays=1),
    done("records_empty", s3(), unsure="no record, nothing to do; chosen: no S3 event, S3 never sends it"),
    done(
        "event_time_odd",
        s3(record(eventTime="yesterday"), record(PRICES_KEY, eventTime=1790000000)),
        ORDERS,
        PRICES,
        unsure="the time is not needed to know the window",
    ),
    done("event_time_missing", s3(record(eventTime=None)), ORDERS, unsure="as event_time_odd"),
    done(
        "event_time_at_the_ends_of_the_calendar",
        s3(record(eventTime="9999-12-31T23:59:59-14:00"), record(PRICES_KEY, eventTime="0001-01-01T00:00:00+14:00")),
        ORDERS,
        PRICES,
        unsure="as event_time_odd",
    ),
    done(
        "event_name_missing",
        s3(record(eventName=None)),
        ORDERS,
        unsure="bucket and key are there; a message that does not name its event could be refused",
    ),
    done("event_source_missing", s3(record(eventSource=None)), ORDERS, unsure="as event_name_missing"),
    done(
        "sizes_of_wrong_type",
        s3(without_block(bucket={"name": "landing"}, object={"key": KEY, "size": "big", "eTag": 7, "versionId": []})),
        ORDERS,
        unsure="bucket and key suffice",
    ),
    done(
        "size_of_5000_digits",
        s3(record()).replace("1024", "9" * 5000),
        ORDERS,
        unsure="JSON to the letter; a parser's limit on digits leaves it in the queue",
    ),
    done(
        "size_not_a_number",
        s3(record()).replace("1024", "NaN"),
        ORDERS,
        unsure="no JSON; parsers that accept it give the hint",
    ),
    done(
        "records_twice",
        s3(record())[:-1] + ', "Records": ' + json.dumps([record(PRICES_KEY)]) + "}",
        PRICES,
        unsure="duplicate key: most parsers take the last",
    ),
    left("json_with_bom", "\ufeff" + s3(record()), unsure="a BOM is no JSON; a reader may ignore it"),
    left(
        "sns_of_an_object",
        sns(json.loads(s3(record()))),
        unsure="SNS sends text; an object there could be read all the same",
    ),
)

MESSAGE_CASES: tuple[MessageCase, ...] = (
    *UNDERSTOOD,
    *KEYS,
    *(left(f"no_event_{name}", body, unsure=OPEN.get(name, "")) for name, body in NO_EVENTS.items()),
    *HALVES,
)

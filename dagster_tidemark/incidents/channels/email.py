"""E-mail by SMTP: one thread for each incident."""

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime

import dagster as dg

from dagster_tidemark.incidents.channels.channel import (
    TIMEOUT_SECONDS,
    Channel,
    ChannelUnavailable,
    Delivery,
    MessageRefused,
    require_secret,
)
from dagster_tidemark.incidents.incident import MessageKind
from dagster_tidemark.incidents.routing import ChannelRefused

_OF_THE_LOGIN = (530, 534, 535, 538)  # RFC 4954: a login is needed, too weak, wrong, or needs TLS
_GOODBYE_SECONDS = 2.0
_SAME_HOST = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Email(Channel):
    """Mail to some addresses.

    The header `Message-ID` holds the id of the message; mails about one incident refer to the first.

    Args:
        host: The SMTP server.
        to: The receivers.
        sender: The address in `From`.
        port: 587 for STARTTLS, 465 for TLS.
        security: `starttls`, `tls`, or `none` for a server on the same host.
        username: The variable with the login; None for a server without one.
        password: The variable with the password.

    Raises:
        ChannelRefused: the login is not given as variables or would be sent without TLS, or there is no receiver.
    """

    host: str
    to: Sequence[str]
    sender: str
    port: int = 587
    security: str = "starttls"
    username: dg.EnvVar | None = field(default=None, repr=False)
    password: dg.EnvVar | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.to, str) or not self.to:
            raise ChannelRefused('Email(to=...): expected a list of addresses, such as ["ada@acme.com"]')
        if self.security not in ("starttls", "tls", "none"):
            raise ChannelRefused(f"Email(security={self.security!r}): expected starttls, tls or none")
        for name in ("username", "password"):
            if getattr(self, name) is not None:
                require_secret("Email", name, getattr(self, name))
        if (self.username is None) != (self.password is None):
            raise ChannelRefused("Email(...): give both username and password, or neither")
        if self.security == "none" and self.password is not None and self.host not in _SAME_HOST:
            raise ChannelRefused(
                f'Email(security="none") sends the password to {self.host} without TLS: use starttls or tls'
            )

    @property
    def kind(self) -> str:
        return f"email {', '.join(self.to)}"

    @property
    def secrets(self) -> tuple[dg.EnvVar | None, ...]:
        return (self.username, self.password)

    def send(self, delivery: Delivery) -> str:
        mail = self._mail(delivery)
        try:
            with self._session() as server:
                if refused := server.send_message(mail):  # the other receivers got it
                    raise smtplib.SMTPRecipientsRefused(refused)
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            said = "; ".join(f"{to}: {code} {_text(why)}" for to, (code, why) in error.recipients.items())
            # A repeated mail has the same id. So it is sent again as long as one receiver is only refused for now.
            raise _error(min(codes, default=450), f"the receivers are refused: {said}") from error
        except smtplib.SMTPResponseException as error:
            raise _error(error.smtp_code, f"{error.smtp_code} {_text(error.smtp_error)}") from error
        except (smtplib.SMTPException, OSError) as error:
            raise ChannelUnavailable(f"{self.host}:{self.port}: {error or type(error).__name__}") from error
        return delivery.thread or str(mail["Message-ID"])

    @contextmanager
    def _session(self) -> Iterator[smtplib.SMTP]:
        """Yield a connection that is ready for a mail.

        A fault before the mail is a fault of the server or the login, whatever its code. A fault at the end does not
        count: the mail was taken or refused before.
        """
        try:
            server = self._connected()
        except smtplib.SMTPResponseException as error:
            is_login = isinstance(error, smtplib.SMTPAuthenticationError)
            what = "the login is refused" if is_login else f"{self.host}:{self.port} takes no mail"
            raise ChannelUnavailable(f"{what}: {error.smtp_code} {_text(error.smtp_error)}") from error
        try:
            yield server
        finally:
            with suppress(smtplib.SMTPException, OSError):
                if server.sock is not None:
                    server.sock.settimeout(_GOODBYE_SECONDS)
                server.quit()
            server.close()

    def _connected(self) -> smtplib.SMTP:
        if self.security == "tls":
            context = ssl.create_default_context()
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=TIMEOUT_SECONDS, context=context)
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_SECONDS)
        try:
            if self.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            server.ehlo_or_helo_if_needed()
            if self.username is not None and self.password is not None:
                server.login(self.username.get_value("") or "", self.password.get_value("") or "")
        except BaseException:  # the connection is closed, and the error raised again
            server.close()
            raise
        return server

    def _mail(self, delivery: Delivery) -> EmailMessage:
        report, message = delivery.report, delivery.message
        mail = EmailMessage()
        again = "" if message.kind is MessageKind.OPENED else "Re: "
        mail["Subject"] = " ".join(f"{again}[Tidemark] {report.title}".split())[:250]
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.to)
        mail["Date"] = format_datetime(datetime.fromtimestamp(delivery.now, UTC))
        mail["Message-ID"] = f"<{message.id}@{self.sender.rpartition('@')[2].rstrip('>')}>"
        mail["Auto-Submitted"] = "auto-generated"
        if delivery.thread:
            mail["In-Reply-To"] = mail["References"] = delivery.thread
        mail.set_content(report.text)
        return mail


def _error(code: int, said: str) -> ChannelUnavailable | MessageRefused:
    is_final = 500 <= code < 600 and code not in _OF_THE_LOGIN
    return MessageRefused(said) if is_final else ChannelUnavailable(said)


def _text(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said

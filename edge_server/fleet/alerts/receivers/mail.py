"""Mail over SMTP."""

import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from pathlib import Path

from edge_server.fleet.alerts import alert, delivery
from edge_server.fleet.alerts.message import body, title
from edge_server.fleet.alerts.receivers import http_post
from edge_server.fleet.settings.alerts import MailReceiver

PORTS = {"starttls": 587, "ssl": 465, "none": 25}


def mail(settings: MailReceiver) -> delivery.Deliver:
    """A receiver that sends mails; raises `ConfigError` for a password that cannot be read."""
    password = "" if settings.password is None else http_post.read_secret(settings.password)

    def deliver(notification: alert.Notification) -> None:
        _send(settings, message(settings, notification), password, settings.ca)

    return deliver


def message(settings: MailReceiver, notification: alert.Notification) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = settings.sender, ", ".join(settings.recipients)
    mail["Subject"] = f"[edge] {title(notification)}"
    mail["Date"] = format_datetime(datetime.fromtimestamp(notification.at, UTC))
    mail["Message-ID"] = make_msgid(domain=settings.sender.rpartition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(body(notification))
    return mail


def _send(settings: MailReceiver, mail: EmailMessage, password: str, ca: Path | None) -> None:
    port = settings.port or PORTS[settings.tls]
    where = f"{settings.host}:{port}"
    try:
        with _open_connection(settings, port, ca) as server:
            if settings.user is not None:
                server.login(settings.user, password)
            server.send_message(mail)
    except smtplib.SMTPAuthenticationError as error:
        raise delivery.DeliveryError(
            f"{where}: refused the login of {settings.user}: check user and password"
        ) from error
    except smtplib.SMTPNotSupportedError as error:
        raise delivery.DeliveryError(f"{where}: {error}; check tls (starttls, ssl or none)") from error
    except ssl.SSLCertVerificationError as error:
        raise http_post.make_untrusted_error(where, error) from error
    except (smtplib.SMTPException, OSError) as error:
        raise delivery.DeliveryError(
            f"{where}: did not take the mail: {_reason(error)}; check host, port and tls"
        ) from error


def _open_connection(settings: MailReceiver, port: int, ca: Path | None) -> smtplib.SMTP:
    if settings.tls == "ssl":
        return smtplib.SMTP_SSL(
            settings.host, port, timeout=http_post.TIMEOUT_S, context=http_post.tls_context(ca)
        )
    server = smtplib.SMTP(settings.host, port, timeout=http_post.TIMEOUT_S)
    if settings.tls == "starttls":
        try:
            server.starttls(context=http_post.tls_context(ca))
        except BaseException:
            server.close()
            raise
    return server


def _reason(error: BaseException) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "; ".join(f"{name}: {_answer_text(answer)}" for name, answer in error.recipients.items())
    if isinstance(error, smtplib.SMTPResponseException):
        return _answer_text((error.smtp_code, error.smtp_error))
    return http_post.reason_of(error)


def _answer_text(answer: tuple[int, bytes | str]) -> str:
    code, text = answer
    return f"{code} {text.decode(errors='replace') if isinstance(text, bytes) else text}"

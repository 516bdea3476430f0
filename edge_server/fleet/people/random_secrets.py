"""Random secrets of sessions and tokens, their stored digests, and the header value against foreign pages."""

import hashlib
import hmac
import secrets

SECRET_BYTES = 32
TOKEN_PREFIX = "edge_"  # Lets scanners of repositories and logs recognise a token
_FOR_HEADER = b"edge-page change token"


def new_session_id() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def new_api_token() -> str:
    return TOKEN_PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> bytes:
    """What is stored of a secret; 256 random bits need no slow hash."""
    return hashlib.sha256(secret.encode()).digest()


def change_token_of(session_id: str) -> str:
    """The value that a page sends with every change: a foreign page can neither read nor compute it."""
    return hmac.new(session_id.encode(), _FOR_HEADER, hashlib.sha256).hexdigest()


def is_change_token(shown: str, session_id: str) -> bool:
    """Whether `shown` is the change token of this session, compared in constant time."""
    return hmac.compare_digest(shown.encode(), change_token_of(session_id).encode())

"""The keys of an attempt: X25519, HKDF-SHA256, ChaCha20 and ChaCha20-Poly1305 of `cryptography`.

All keys are derived from 32 bytes of entropy that the caller draws once per attempt, so that state machines
stay pure. ChaCha20 rather than AES: small boards have no AES instructions. `cryptography` is imported late:
most devices never mask.
"""

from schemas.errors import PeerError

ENTROPY_BYTES = 32
_LABEL = b"edge-federation secure aggregation 1: "
_ONE_MESSAGE = bytes(12)  # a key that encrypts a single message needs no other nonce


def derive(secret: bytes, purpose: str, context: bytes = b"") -> bytes:
    """A key of 32 bytes for a purpose and context."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length=32, salt=context, info=_LABEL + purpose.encode()).derive(secret)


def keystream(key: bytes, size: int) -> bytes:
    """The first `size` bytes of a key's ChaCha20 stream; a key is used for one stream only."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    return Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(size))


def public_key(private: bytes) -> bytes:
    """The X25519 public key of a private one, both of 32 bytes."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, public: bytes) -> bytes:
    """The shared secret of two devices; `PeerError` for a public key that would reveal it."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    try:
        theirs = X25519PublicKey.from_public_bytes(public)
        return X25519PrivateKey.from_private_bytes(private).exchange(theirs)
    except ValueError as error:
        raise PeerError(f"invalid public key: {error}") from error


def seal(key: bytes, data: bytes) -> bytes:
    """Encrypt and authenticate the only message for which `key` is used."""
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    return ChaCha20Poly1305(key).encrypt(_ONE_MESSAGE, data, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Decrypt a message; raises `PeerError` if it was not encrypted with `key`."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        return ChaCha20Poly1305(key).decrypt(_ONE_MESSAGE, sealed, None)
    except InvalidTag as error:
        raise PeerError("a message cannot be decrypted: it is of another cohort or damaged") from error

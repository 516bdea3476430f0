"""The keys of an attempt: X25519, HKDF-SHA256, ChaCha20 and ChaCha20-Poly1305 of `cryptography`.

All keys are derived from 32 bytes of entropy that the caller draws once per attempt, so that state machines
stay pure. ChaCha20 rather than AES: small boards have no AES instructions. `cryptography` is imported late:
most devices never mask.
"""

from collections.abc import Mapping, Sequence

from schemas.errors import PeerError

# Secret sharing: any `needed` shares restore the secret, fewer reveal nothing (Shamir 1979).

PRIME = 2**256 + 297  # the smallest prime above 2^256, so that any secret of 32 bytes is a number below it
SHARE_BYTES, SECRET_BYTES = 33, 32
COEFFICIENT_BYTES = 48  # random; reduced to the field, they deviate from uniform by less than 2^-127


def random_bytes_needed(needed: int) -> int:
    return (needed - 1) * COEFFICIENT_BYTES


def split(secret: bytes, needed: int, points: Sequence[int], randomness: bytes) -> dict[int, int]:
    """Split `secret` (32 bytes) into shares for `points` (from 1 on); any `needed` shares restore it.

    The shares are values of a polynomial of degree `needed - 1` whose value at 0 is the secret.
    """
    if len(secret) != SECRET_BYTES or len(randomness) != random_bytes_needed(needed):
        raise ValueError(f"a secret of {len(secret)} bytes, {len(randomness)} bytes of randomness")
    if needed < 1 or 0 in points or len(set(points)) != len(points):
        raise ValueError("points must be distinct and not 0, which is the point of the secret")
    drawn = [randomness[at : at + COEFFICIENT_BYTES] for at in range(0, len(randomness), COEFFICIENT_BYTES)]
    polynomial = [int.from_bytes(secret, "big"), *(int.from_bytes(part, "big") % PRIME for part in drawn)]
    return {point: _value(polynomial, point) for point in points}


def _value(polynomial: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % PRIME
    return value


def weights_at_zero(points: Sequence[int]) -> dict[int, int]:
    """The Lagrange weight of each point's share at 0; the same for every secret."""
    weights = {}
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = above * other % PRIME, below * (other - point) % PRIME
        weights[point] = above * pow(below, -1, PRIME) % PRIME
    return weights


def combine(shares: Mapping[int, int], weights: Mapping[int, int]) -> bytes:
    """The secret from the shares at the points of `weights`; `ValueError` if they yield no secret."""
    secret = sum(weights[point] * shares[point] for point in weights) % PRIME
    if secret >= 2**256:
        raise ValueError("the shares do not fit together")
    return secret.to_bytes(SECRET_BYTES, "big")


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

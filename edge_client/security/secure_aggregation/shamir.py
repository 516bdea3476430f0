"""Secret sharing: any `needed` shares restore the secret, fewer reveal nothing (Shamir 1979).

Implemented here because `cryptography` lacks it, PyCryptodome's accepts only secrets of 16 bytes and draws
its own randomness, and no other package is maintained.
"""

from collections.abc import Mapping, Sequence

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

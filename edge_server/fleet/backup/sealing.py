"""Sealing bytes with a passphrase: scrypt makes a key of it, AES-256-GCM encrypts and authenticates.

The cost of scrypt (RFC 7914) is 128 MiB of memory and a third of a second for each guess.
"""

import hashlib
import os
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import Field

from schemas.base import Frozen
from schemas.errors import ConfigError

SALT_BYTES, NONCE_BYTES, KEY_BYTES = 16, 12, 32
COST, BLOCK = 2**17, 8
MAX_COST = 2**20
MIN_LETTERS = 8
PROBE = b"edge-server"  # What is sealed to tell a wrong passphrase from a damaged file


class Seal(Frozen):
    """What is needed, besides the passphrase, to open what was sealed with it; binary values are in hex."""

    salt: str = Field(pattern=f"^[0-9a-f]{{{2 * SALT_BYTES}}}$")
    cost: int = Field(ge=2**10, le=MAX_COST)
    probe: str = Field(pattern="^[0-9a-f]{20,200}$")


@dataclass(frozen=True, eq=False)
class Sealer:
    """Seals and opens with one passphrase. A seal holds only for the same `name`."""

    seal: Seal
    _key: bytes

    @classmethod
    def new(cls, passphrase: str, *, cost: int = COST) -> "Sealer":
        """A sealer with a fresh salt; raises `ConfigError` for a passphrase that is too short."""
        if len(passphrase) < MIN_LETTERS:
            raise ConfigError(
                f"the passphrase has fewer than {MIN_LETTERS} characters", remedy="choose a longer one"
            )
        salt = os.urandom(SALT_BYTES)
        key = _derive_key(passphrase, salt, cost)
        return cls(Seal(salt=salt.hex(), cost=cost, probe=_seal_data(key, PROBE, "").hex()), key)

    @classmethod
    def of(cls, seal: Seal, passphrase: str) -> "Sealer":
        """The sealer of an existing seal; raises `ConfigError` for another passphrase."""
        key = _derive_key(passphrase, bytes.fromhex(seal.salt), seal.cost)
        try:
            _open_data(key, bytes.fromhex(seal.probe), "")
        except InvalidTag as error:
            raise ConfigError("this is not the passphrase of the backup: its keys stay closed") from error
        return cls(seal, key)

    def close(self, data: bytes, name: str) -> bytes:
        return _seal_data(self._key, data, name)

    def open_sealed(self, data: bytes, name: str) -> bytes:
        """The bytes that were sealed under this name; raises `ConfigError` if they were changed."""
        try:
            return _open_data(self._key, data, name)
        except InvalidTag as error:
            raise ConfigError(
                f"{name}: the sealed bytes were changed", remedy="use another backup"
            ) from error


def _derive_key(passphrase: str, salt: bytes, cost: int) -> bytes:
    memory = 256 * BLOCK * cost
    secret = passphrase.encode()
    return hashlib.scrypt(secret, salt=salt, n=cost, r=BLOCK, p=1, maxmem=memory, dklen=KEY_BYTES)


def _seal_data(key: bytes, data: bytes, name: str) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, data, name.encode())


def _open_data(key: bytes, data: bytes, name: str) -> bytes:
    return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name.encode())

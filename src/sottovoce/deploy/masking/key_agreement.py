"""Keys of one session: X25519 between two clients, HKDF-SHA256 to a key for one purpose, ChaCha20-Poly1305 for shares.

Every key is derived for a session (its context hash is the salt), a purpose and the two clients by their places, so no
key is used twice. That is why nonces are zero: a key seals one message, or makes one mask.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
TAG_BYTES = 16
_NONCE = bytes(12)


def derived(secret: bytes, context: bytes, purpose: str, *places: int) -> bytes:
    """Return the key for one purpose, between clients at these places, in the session of this context."""
    info = b"sottovoce masking " + purpose.encode() + b"".join(b"/%d" % place for place in places)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=context, info=info).derive(secret)


def public_key(private: bytes) -> bytes:
    """Return the public X25519 key of a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def shared_secret(private: bytes, public: bytes) -> bytes | None:
    """Return the secret that two key pairs share; None for public keys that give everyone the same secret."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return None


def usable(public: bytes) -> bool:
    """Return whether a public key leads to a secret."""
    return shared_secret(bytes(range(KEY_BYTES)), public) is not None


def mask_key(secret: bytes, context: bytes, first: int, second: int) -> bytes:
    """Return the key of the mask that two clients share, the same for both."""
    return derived(secret, context, "pair", min(first, second), max(first, second))


def seal(secret: bytes, context: bytes, sender: int, receiver: int, text: bytes) -> bytes:
    """Encrypt what one client sends to another; nobody else can read it, and it fits no other pair or session."""
    key = derived(secret, context, "seal", sender, receiver)
    return ChaCha20Poly1305(key).encrypt(_NONCE, text, _bound(context, sender, receiver))


def unseal(secret: bytes, context: bytes, sender: int, receiver: int, sealed: bytes) -> bytes | None:
    """Decrypt what another client sent; None where it was not made by that client, for this one and this session."""
    key = derived(secret, context, "seal", sender, receiver)
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, _bound(context, sender, receiver))
    except InvalidTag:
        return None


def _bound(context: bytes, sender: int, receiver: int) -> bytes:
    return context + b"%d/%d" % (sender, receiver)

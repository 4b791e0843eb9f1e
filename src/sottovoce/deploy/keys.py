"""Keys and certificates: who the server is, who a client is, and who has signed an update.

    SERVER/ca.key, ca.crt          the deployment's own authority; clients get ca.crt and trust nothing else
    SERVER/server.key, server.crt  the server's certificate, for its host names
    CLIENT/node.key                the client's key for the connection (ECDSA P-384, as Flower asks)
    CLIENT/signing.key             the client's key for its updates (Ed25519)
    CLIENT/public.json             the public parts of both, for an operator who admits the client without a token

Every key is readable by its owner only, from its first byte on, and is never logged or sent. An existing key is never
overwritten: rotating one means removing its file first.
"""

import base64
import datetime
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sottovoce.errors import ConfigError, DataError
from sottovoce.files import OWNER_ONLY, keep_private, make_folder, write_json, written_whole
from sottovoce.reading import read_bounded

CA_KEY, CA_CERT, SERVER_KEY, SERVER_CERT = "ca.key", "ca.crt", "server.key", "server.crt"
NODE_KEY, SIGNING_KEY, PUBLIC_KEYS = "node.key", "signing.key", "public.json"
CA_DAYS, SERVER_DAYS = 3650, 397
_LARGEST_KEY = 1 << 16
_HOST = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_BACKDATED = datetime.timedelta(hours=1)  # clocks of clients may be behind

PrivateKey = ec.EllipticCurvePrivateKey | Ed25519PrivateKey


def make_certificates(folder: Path, hosts: Sequence[str]) -> bool:
    """Make the authority and the server's certificate where they are missing; return whether anything was made.

    Without hosts, a new certificate is for this machine only. One that exists must be for the hosts that are given.
    """
    names = [_host(host) for host in hosts or ("localhost", "127.0.0.1")]
    make_folder(folder)
    keep_private(folder)
    made = False
    if not (folder / CA_KEY).exists():
        key = ec.generate_private_key(ec.SECP384R1())
        _write(folder / CA_CERT, _certificate("Sottovoce deployment", key, None).public_bytes(Encoding.PEM))
        _write_key(folder / CA_KEY, key)  # last: where it is missing, both are made again
        made = True
    if not (folder / SERVER_KEY).exists():
        key = ec.generate_private_key(ec.SECP384R1())
        authority = _connection_key(folder / CA_KEY)
        certificate = _certificate(str(names[0].value), key, authority, names)
        _write(folder / SERVER_CERT, certificate.public_bytes(Encoding.PEM))
        _write_key(folder / SERVER_KEY, key)
        made = True
    elif hosts and (others := [name.value for name in names if name not in _hosts_of(folder / SERVER_CERT)]):
        raise DataError(
            f"{folder / SERVER_CERT} is not for {others[0]}. Remove it and {SERVER_KEY}, and run this again with a "
            "--host for every name of the server."
        )
    return made


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey | None,
    hosts: Sequence[x509.DNSName | x509.IPAddress] = (),
) -> x509.Certificate:
    """Return a certificate: that of the authority itself where none is given, else a server's for its hosts."""
    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Sottovoce deployment")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=CA_DAYS if authority is None else SERVER_DAYS))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if authority is None:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    else:
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        builder = (
            builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer_key, critical=False)
        )
    return builder.sign(authority or key, hashes.SHA384())


def _host(name: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not _HOST.fullmatch(name):
        raise ConfigError(f"{name!r} is no host. Expected a name such as asr.example.org, or an address.")
    return x509.DNSName(name)


def _hosts_of(path: Path) -> list[x509.GeneralName]:
    """Return the hosts that a certificate is for."""
    try:
        certificate = x509.load_pem_x509_certificate(read_bounded(path, _LARGEST_KEY))
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (OSError, ValueError, x509.ExtensionNotFound):
        raise DataError(f"{path} is missing or damaged. Remove it and {SERVER_KEY}, and run this again.") from None


def client_keys(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, Ed25519PrivateKey]:
    """Return a client's keys for its connection and its updates; they are made the first time."""
    make_folder(folder)
    keep_private(folder)
    if not (folder / NODE_KEY).exists():
        _write_key(folder / NODE_KEY, ec.generate_private_key(ec.SECP384R1()))
    if not (folder / SIGNING_KEY).exists():
        _write_key(folder / SIGNING_KEY, Ed25519PrivateKey.generate())
    node, signing = _connection_key(folder / NODE_KEY), _signing_key(folder / SIGNING_KEY)
    if not (folder / PUBLIC_KEYS).exists():
        keys = {"node_key": connection_text(node), "signing_key": public_text(signing)}
        write_json(folder / PUBLIC_KEYS, keys)
    return node, signing


def connection_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the public part of a key for connections, as Flower writes it."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def connection_text(key: ec.EllipticCurvePrivateKey) -> str:
    """Return the same as enrolment keeps it."""
    return base64.b64encode(connection_bytes(key)).decode()


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the public part of a key for updates, in 32 bytes."""
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the same as enrolment keeps it."""
    return base64.b64encode(public_bytes(key)).decode()


def verifying_key(content: bytes) -> Ed25519PublicKey:
    """Return the public key of 32 bytes; raise ValueError where they are none."""
    return Ed25519PublicKey.from_public_bytes(content)


def _write(path: Path, content: bytes, *, private: bool = False) -> None:
    with written_whole(path, private=private) as file:
        file.write(content)


def _write_key(path: Path, key: PrivateKey) -> None:
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), private=True)


def _connection_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = _read_key(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _wrong_kind(path)
    return key


def _signing_key(path: Path) -> Ed25519PrivateKey:
    key = _read_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise _wrong_kind(path)
    return key


def _wrong_kind(path: Path) -> DataError:
    return DataError(f"{path} holds no key of the right kind. Remove it, and enrol again with a new token.")


def _read_key(path: Path) -> object:
    """Return a private key; one that others can read is an error."""
    if path.stat().st_mode & 0o777 & ~OWNER_ONLY:
        raise DataError(f"{path} can be read by others. Run `chmod 600 {path}`, and replace it if anybody has read it.")
    try:
        return load_pem_private_key(read_bounded(path, _LARGEST_KEY), None)
    except (ValueError, TypeError):
        return None

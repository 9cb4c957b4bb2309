"""Certificates of a server and keys of its sites, for TLS and SuperNode authentication."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as serial
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fcfl._files import replace_file
from fcfl.engines.flower.key_names import CA, CA_KEY, SERVER, SERVER_KEY, check_key_names
from fcfl.errors import FCFLError

_YEARS = 2
Key = ec.EllipticCurvePrivateKey


def make_certificates(
    folder: Path, sites: Sequence[str], hosts: Sequence[str] = ()
) -> dict[str, Path]:
    """Make what is missing in ``folder``; a key that is there is kept. Returns what was made.

    ``hosts`` are the names and addresses under which sites dial the server; loopback is added. For
    hosts that the server's certificate lacks a new one is signed, by the same CA and for the same
    key: nothing changes at the sites.
    """
    check_key_names(sites)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made: dict[str, Path] = {}
    known = _hosts_of(folder / SERVER)
    if known is None or not set(hosts) <= set(known):
        made |= _make_server(folder, [*(known or ()), *hosts])
    for site in sites:
        if not (folder / site).exists():
            made |= _make_site_key(folder, site)
    return made


def _make_server(folder: Path, hosts: Sequence[str]) -> dict[str, Path]:
    """A CA, unless there is one, and a certificate it has signed for the hosts."""
    made = {}
    if (folder / CA).exists():
        ca = x509.load_pem_x509_certificate((folder / CA).read_bytes())
        if not (folder / CA_KEY).exists():
            raise FCFLError(f"{str(folder / CA_KEY)!r} is missing; without it nothing is signed.")
        ca_key = _read_key(folder / CA_KEY)
    else:
        ca_key = ec.generate_private_key(ec.SECP384R1())
        name = _name("fcfl CA")
        usage = _usage(key_cert_sign=True, crl_sign=True)
        ca = (
            _certificate(name, name, ca_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(ca_key, hashes.SHA384())
        )
        made[CA] = _write(folder / CA, ca.public_bytes(serial.Encoding.PEM), mode=0o644)
        made[CA_KEY] = _write(folder / CA_KEY, _pem(ca_key))
    key = _server_key(folder)
    own = ("localhost", "127.0.0.1")
    names = list(dict.fromkeys([*(host for host in hosts if host not in own), *own]))
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        _certificate(_name(names[0]), ca.subject, key)
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.OID_SERVER_AUTH]), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA384())
    )
    pem = certificate.public_bytes(serial.Encoding.PEM)
    made[SERVER] = _write(folder / SERVER, pem, mode=0o644)
    if not (folder / SERVER_KEY).exists():
        made[SERVER_KEY] = _write(folder / SERVER_KEY, _pem(key))
    return made


def _hosts_of(path: Path) -> list[str] | None:
    """The names and addresses in a certificate; None where there is no certificate."""
    if not path.exists():
        return None
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _server_key(folder: Path) -> Key:
    if not (folder / SERVER_KEY).exists():
        return ec.generate_private_key(ec.SECP384R1())
    return _read_key(folder / SERVER_KEY)


def _read_key(path: Path) -> Key:
    key = serial.load_pem_private_key(path.read_bytes(), None)
    if not isinstance(key, Key):
        raise FCFLError(f"{str(path)!r} must be an EC key.")
    return key


def _make_site_key(folder: Path, site: str) -> dict[str, Path]:
    """A key pair in OpenSSH's form, as SuperNode authentication wants it."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serial.Encoding.PEM, serial.PrivateFormat.OpenSSH, serial.NoEncryption()
    )
    public = key.public_key().public_bytes(serial.Encoding.OpenSSH, serial.PublicFormat.OpenSSH)
    return {
        site: _write(folder / site, private),
        f"{site}.pub": _write(folder / f"{site}.pub", public + b"\n", mode=0o644),
    }


def _certificate(subject: x509.Name, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(subject_key, critical=False)
    )


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: Key) -> bytes:
    return key.private_bytes(serial.Encoding.PEM, serial.PrivateFormat.PKCS8, serial.NoEncryption())


def _write(path: Path, content: bytes, *, mode: int = 0o600) -> Path:
    """Write a file that was never readable to others before its mode was set."""
    before = os.umask(0o077)
    try:
        replace_file(path, content)
        os.chmod(path, mode)
    finally:
        os.umask(before)
    return path

#!/usr/bin/env python3
"""Fills in the golden vectors from a second implementation of docs/spec/handshake.md.

It shares no code and no library with Rove, so that the vectors say what the specification says
and not what the Rust code happens to do. Run by hand, in this folder, when the protocol version
changes; the inputs are read from the files and stay:

    pip install cryptography kyber-py && python3 generate.py

Not for production: nothing here is constant-time.
"""

import copy
import hashlib
import hmac
import ipaddress
import struct

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from kyber_py.ml_kem import ML_KEM_768

NOISE = b"Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s"
VERSION = b"\x02"
PROLOGUE = b"rove handshake" + VERSION
SUITES = ("Aes256Gcm", "Aes128Gcm", "ChaCha20Poly1305")
KEY_LENS = (32, 16, 32)
STRENGTHS = (1, 0, 1)
CHACHA20, AES = 0, 1


def u32(*values):
    return struct.pack(f">{len(values)}I", *values)


def u64(value):
    return struct.pack(">Q", value)


def address(ip, port):
    ip = ipaddress.ip_address(ip)
    return bytes([ip.version]) + ip.packed.ljust(16, b"\0") + struct.pack(">H", port)


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


def extract(salt, secret):
    return mac(salt or bytes(32), secret)


def expand(prk, info, length):
    out, block, count = b"", b"", 1
    while len(out) < length:
        block = mac(prk, block + info + bytes([count]))
        out, count = out + block, count + 1
    return out[:length]


def public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def dh(secret, other):
    return X25519PrivateKey.from_private_bytes(secret).exchange(
        X25519PublicKey.from_public_bytes(other)
    )


class Symmetric:
    """Noise's SymmetricState (revision 34, section 5.2)."""

    def __init__(self):
        self.h = hashlib.blake2s(NOISE).digest()
        self.ck, self.k, self.n = self.h, None, 0
        self.mix_hash(PROLOGUE)

    def hkdf(self, secret, outputs):
        prf = lambda key, message: hmac.new(key, message, hashlib.blake2s).digest()
        temp, out, last = prf(self.ck, secret), [], b""
        for count in range(outputs):
            last = prf(temp, last + bytes([count + 1]))
            out.append(last)
        return out

    def mix_hash(self, data):
        self.h = hashlib.blake2s(self.h + data).digest()

    def mix_key(self, secret):
        self.ck, self.k = self.hkdf(secret, 2)
        self.n = 0

    def mix_key_and_hash(self, secret):
        self.ck, mixed, self.k = self.hkdf(secret, 3)
        self.n = 0
        self.mix_hash(mixed)

    def mix_ephemeral(self, key):
        """In psk handshakes e is mixed into the key too (section 9.2)."""
        self.mix_hash(key)
        self.mix_key(key)
        return key

    def encrypt(self, plaintext):
        nonce = bytes(4) + struct.pack("<Q", self.n)
        sealed = ChaCha20Poly1305(self.k).encrypt(nonce, plaintext, self.h)
        self.n += 1
        self.mix_hash(sealed)
        return sealed

    def split(self):
        return b"".join(self.hkdf(b"", 2))


def with_mac1(message, receiver):
    return message + mac(sha256(b"rove mac1 v1", receiver), message)[:16]


def with_response_mac(message, h1):
    return message + mac(sha256(b"rove response mac v1", h1), message)[:16]


class Direction:
    """The keys of what one end sends in one epoch."""

    def __init__(self, epoch, number):
        by = bytes([number])
        self.aead = [
            expand(epoch, b"rove v1 aead" + by + bytes([suite, 0]), length)
            for suite, length in enumerate(KEY_LENS)
        ]
        self.header = [
            expand(epoch, b"rove v1 header" + by + bytes([cipher]), 32)
            for cipher in (CHACHA20, AES)
        ]
        self.pick = int.from_bytes(expand(epoch, b"rove v1 alias pick" + by, 8), "big")
        stream = iter(expand(epoch, b"rove v1 profiles" + by, 2040))
        self.ids = list(range(256))
        for last in range(255, 0, -1):
            choices = last + 1
            byte = next(byte for byte in stream if byte < 256 - 256 % choices)
            other = byte % choices
            self.ids[last], self.ids[other] = self.ids[other], self.ids[last]
        self.redraw = [
            expand(epoch, b"rove v1 redraw" + by + bytes([cipher]), 32)
            for cipher in (CHACHA20, AES)
        ]

    def spread(self, number):
        return ((number ^ self.pick) * 0x9E3779B97F4A7C15) % 2**64

    def draw(self, cipher, serial, number):
        return mask(cipher, self.redraw[cipher], u32(serial) + u64(number) + bytes(4))[0]

    def meanings(self, floor, cipher, serial, number):
        """The profile of each ID, where IDs are redrawn."""
        profiles, draw = allowed(floor), self.draw(cipher, serial, number)
        positions = (self.ids.index(profile_id ^ draw) for profile_id in range(256))
        return bytes(profiles[position % len(profiles)] for position in positions)

    def seal(self, cipher, suite, index, serial, number, plaintext):
        profile_id = self.ids[4 * suite + (self.spread(number) >> 62)]
        return self.seal_as(profile_id, cipher, suite, index, serial, number, plaintext)

    def seal_redrawn(self, floor, cipher, profile, index, serial, number, frames):
        profiles, choice = allowed(floor), self.spread(number) >> 56
        rank = profiles.index(profile)
        owned = range(rank, 256, len(profiles))
        drawn = self.ids[owned[choice * len(owned) >> 8]]
        profile_id = drawn ^ self.draw(cipher, serial, number)
        plaintext = frames + (bytes([0, 0, 0, 0, 5]) if profile >= 3 else b"")
        return self.seal_as(profile_id, cipher, profile % 3, index, serial, number, plaintext)

    def seal_as(self, profile_id, cipher, suite, index, serial, number, plaintext):
        header = bytes([profile_id]) + u32(number % 2**32)
        aead = ChaCha20Poly1305 if suite == 2 else AESGCM
        nonce = u32(serial) + u64(number)
        body = aead(self.aead[suite]).encrypt(nonce, plaintext, b"\x10" + header)
        masks = mask(cipher, self.header[cipher], body[:16])
        masked = bytes(left ^ right for left, right in zip(header, masks))
        return b"\x10" + u32(index) + masked + body


def allowed(floor):
    """The profiles of which the suite reaches the floor."""
    return [profile for profile in range(6) if STRENGTHS[profile % 3] >= floor]


def mask(cipher, key, sample):
    if cipher == AES:
        return Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(sample)
    return Cipher(algorithms.ChaCha20(key, sample), None).encryptor().update(bytes(5))


def directions(handshake_hash, split):
    epoch = extract(handshake_hash, split)
    return Direction(epoch, 0), Direction(epoch, 1)


def keepalive_key(handshake_hash, split):
    return expand(extract(handshake_hash, split), b"rove v1 keepalive", 32)


class File:
    """A vector file: comments, inputs that stay, outputs that are made anew."""

    def __init__(self, path):
        self.path, self.out = path, []
        lines = open(path, encoding="ascii").read().splitlines()
        self.comments = [line for line in lines if line.startswith("#")]
        pairs = (line.split(" = ") for line in lines if line and not line.startswith("#"))
        self.old = {name: bytes.fromhex(value) for name, value in pairs}

    def keep(self, *names):
        self.out += [(name, self.old[name]) for name in names]
        return [self.old[name] for name in names]

    def put(self, name, value):
        self.out.append((name, value))

    def save(self):
        lines = self.comments + [f"{name} = {value.hex()}" for name, value in self.out]
        open(self.path, "w", encoding="ascii").write("\n".join(lines) + "\n")


def cookie():
    file = File("cookie.txt")
    receiver, secret, message = file.keep("responder_public", "cookie_secret", "message")
    body = with_mac1(message[:-32], receiver)
    mac1 = body[-16:]
    file.put("mac1", mac1)
    for name, ip, port in (("v4", "192.0.2.1", 51820), ("v6", "2001:db8::1", 443)):
        (nonce,) = file.keep(f"nonce_{name}")
        value = mac(secret, address(ip, port))[:16]
        key = expand(extract(nonce, receiver), b"rove cookie v1", 32)
        sealed = ChaCha20Poly1305(key).encrypt(bytes(12), value, mac1)
        file.put(f"reply_{name}", b"\x04" + body[1:5] + nonce + sealed)
        file.put(f"mac2_{name}", mac(value, body)[:16])
    file.save()


def schedule():
    file = File("schedule.txt")
    secrets = file.keep("handshake_hash", "split")
    for name, keys in zip(("initiator", "responder"), directions(*secrets)):
        for suite, key in zip(SUITES, keys.aead):
            file.put(f"{name}_{suite}", key)
        file.put(f"{name}_header_Aes", keys.header[AES])
        file.put(f"{name}_header_ChaCha20", keys.header[CHACHA20])
        places = [keys.ids.index(profile_id) for profile_id in range(256)]
        owners = bytes(place // 4 if place < 128 else 0xFF for place in places)
        file.put(f"{name}_profile_of_id", owners)
        file.put(f"{name}_aliases_of_profile_0", bytes(keys.ids[:4]))
    key = keepalive_key(*secrets)
    file.put("keepalive", key)
    keepalive = bytes.fromhex("07010203040506")
    file.put("answer_to_keepalive_0506_of_01020304", b"\x08" + mac(key, keepalive)[:4])
    file.save()


def datagram():
    file = File("datagram.txt")
    keys, _ = directions(*file.keep("handshake_hash", "split"))
    (plaintext,) = file.keep("plaintext")
    numbers = [int.from_bytes(v, "big") for v in file.keep("index", "serial", "number")]
    for name, cipher in (("Aes", AES), ("ChaCha20", CHACHA20)):
        for suite, suite_name in enumerate(SUITES):
            sealed = keys.seal(cipher, suite, *numbers, plaintext)
            file.put(f"{suite_name}_header_{name}", sealed)
    file.save()


def profiles():
    file = File("profiles.txt")
    keys, _ = directions(*file.keep("handshake_hash", "split"))
    (frames,) = file.keep("frames")
    index, serial, number = (
        int.from_bytes(v, "big") for v in file.keep("index", "serial", "number")
    )
    for cipher_name, cipher in (("Aes", AES), ("ChaCha20", CHACHA20)):
        for floor in (0, 1):
            name = f"floor_{floor}_header_{cipher_name}"
            meanings = keys.meanings(floor, cipher, serial, number)
            file.put(f"profile_of_id_{name}", meanings)
            for profile in allowed(floor):
                sealed = keys.seal_redrawn(
                    floor, cipher, profile, index, serial, number, frames
                )
                file.put(f"profile_{profile}_{name}", sealed)
    file.save()


def message_1(symmetric, file, ephemeral, initiator, responder, ek):
    (token,) = file.keep("token")
    for name, secret in (("initiator_public", initiator), ("responder_public", responder)):
        file.put(name, public(secret))
    receiver = public(responder)
    symmetric.mix_hash(receiver)
    noise = symmetric.mix_ephemeral(public(ephemeral))
    symmetric.mix_key(dh(ephemeral, receiver))
    noise += symmetric.encrypt(public(initiator))
    symmetric.mix_key(dh(initiator, receiver))
    hello = u64(41) + sha256(ek) + u32(5) + bytes([0, AES])
    hello += bytes([len(token)]) + token.ljust(32, b"\0") + u32(*range(100, 108))
    noise += symmetric.encrypt(hello + ek[:851])
    a = with_mac1(b"\x01" + u32(100) + VERSION + noise, receiver)
    file.put("a", a + bytes(16))
    b = with_mac1(b"\x02" + u32(100) + sha256(a)[:16] + ek[851:], receiver)
    file.put("b", b + bytes(16))


def handshake():
    file = File("handshake.txt")
    initiator, responder, static_psk = file.keep(
        "initiator_secret", "responder_secret", "static_psk"
    )
    ours, theirs = file.keep("initiator_random", "responder_random")
    ek, dk = ML_KEM_768._keygen_internal(ours[32:64], ours[64:])
    shared, ct = ML_KEM_768._encaps_internal(ek, theirs[32:])
    assert ML_KEM_768.decaps(dk, ct) == shared
    began = Symmetric()
    message_1(began, file, ours[:32], initiator, responder, ek)
    answers = (
        ("refused", b"\x06" + u64(0x01020304), ("2001:db8::7", 4500), [0] * 8),
        ("response", b"\x00" + u64(0), ("192.0.2.1", 51820), range(200, 208)),
    )
    for name, status, seen_from, indices in answers:
        symmetric = copy.copy(began)
        noise = symmetric.mix_ephemeral(public(theirs[:32]))
        symmetric.mix_key(dh(theirs[:32], public(ours[:32])))
        symmetric.mix_key(dh(theirs[:32], public(initiator)))
        ends = u32(indices[0], 100)
        info = b"rove pq v1" + began.h + sha256(ek) + sha256(ct) + ends
        psk = expand(extract(b"", static_psk + shared), info, 32)
        symmetric.mix_key_and_hash(psk)
        welcome = status + bytes([AES]) + u32(4) + b"\0" + address(*seen_from) + u32(*indices)
        noise += symmetric.encrypt(welcome)
        response = with_response_mac(b"\x03" + ends + noise + ct, began.h)
        file.put(name, response)
        for part, bytes_ in enumerate((response[:1000], response[1000:])):
            file.put(f"{name}_part_{part}", b"\x06" + u32(100) + bytes([part]) + bytes_)
    both = directions(symmetric.h, symmetric.split())
    for name, keys in zip(("from_initiator", "from_responder"), both):
        file.put(name, keys.seal(AES, 0, 1, 0, 0, b"\0"))
    file.save()


if __name__ == "__main__":
    cookie()
    schedule()
    datagram()
    profiles()
    handshake()

#!/usr/bin/env python3
"""Counts the functions and files that one packet of an upload over two links passes.

usage: bench/route.py

Builds a test of rove-engine with LLVM's execution counters and runs it twice: with and without its
last packet. The functions that ran more often with that packet are those that it passes, from the
read of the tunnel device to the call that sends its datagram. A closure counts as a part of the
function around it, a generic function once. Derived functions and those of libraries do not count,
nor do the tunnel device and the sockets, which are in memory here.

Functions without a branch read or compute one value; the others decide something.
"""

import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEST = "tests::route::a_packet_of_an_upload_over_two_links_leaves"
FLAGS = [
    "-Cinstrument-coverage",
    "-Csymbol-mangling-version=v0",
    "-Cllvm-args=-enable-name-compression=false",
]


def build():
    """The test program, whose workspace crates count how often their functions run."""
    environment = dict(os.environ, RUSTC_WORKSPACE_WRAPPER=os.path.abspath(__file__))
    command = ["cargo", "test", "--locked", "--package", "rove-engine", "--lib", "--no-run"]
    told = subprocess.run(command, cwd=ROOT, env=environment, check=True, text=True, stderr=subprocess.PIPE)
    return os.path.join(ROOT, re.search(r"Executable .*\((.*)\)", told.stderr).group(1))


def uleb(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def names(section):
    """The names of all functions, by the hash that stands for them."""
    found, at = {}, 0
    while at < len(section) and section[at]:
        length, at = uleb(section, at)
        _, at = uleb(section, at)
        for name in section[at : at + length].split(b"\x01"):
            found[hashlib.md5(name).digest()[:8]] = name.decode()
        at += length
        while at < len(section) and section[at] == 0:
            at += 1
    return found


def counts(program, **environment):
    """How often each function ran, and its regions (LLVM's raw profile 10: InstrProfData.inc)."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "profile")
        environment = dict(os.environ, LLVM_PROFILE_FILE=file, **environment)
        command = [program, "--exact", TEST, "--test-threads=1"]
        told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert "1 passed" in told.stdout, told.stdout
        with open(file, "rb") as profile:
            data = profile.read()
    header = struct.unpack_from("<16Q", data)
    assert header[1] & 0xFF == 10, f"raw profile version {header[1] & 0xff}"
    _, _, ids, records, before, counters, after, bitmap, after_bitmap, length, delta = header[:11]
    first, size = 128 + ids, 64
    counted = first + records * size + before
    start = counted + counters * 8 + after + bitmap + after_bitmap
    known = names(data[start : start + length])
    ran = {}
    for record in range(records):
        at = first + record * size
        hashed, _, pointer = data[at : at + 8], *struct.unpack_from("<QQ", data, at + 8)
        place = (pointer - delta + record * size) % 2**64
        name, (regions,) = known.get(hashed), struct.unpack_from("<I", data, at + 48)
        if name:
            before, _ = ran.get(name, (0, 0))
            ran[name] = before + struct.unpack_from("<Q", data, counted + place)[0], regions
    return ran


PREFIX = re.compile(r"(?:I|N[a-zA-Z]|[MX](?:s[0-9a-zA-Z]*_)?|Y)*(?=C)")
IDENTIFIER = re.compile(r"(?:s[0-9a-zA-Z]*_)?u?(\d+)_?")


def modules(symbol):
    """The modules around a function: those of its `impl` block, not of the type (RFC 2603)."""
    at = symbol.index("_R") + 2
    prefix = PREFIX.match(symbol, at)
    around = re.split(r"[MXY]", prefix.group())[-1]
    namespaces = ["crate"] + [tag[1] for tag in reversed(re.findall(r"N[a-zA-Z]", around))]
    at, found = prefix.end() + 1, []
    for namespace in namespaces:
        if namespace not in ("crate", "t"):
            break
        read = IDENTIFIER.match(symbol, at)
        at = read.end() + int(read.group(1))
        found.append(symbol[read.end() : at])
    return found


def file_of(symbol):
    """The source file of a function, or None if it is no file of this project."""
    crate, *inner = modules(symbol)
    source = os.path.join("crates", crate.removeprefix("rove_"), "src")
    for end in range(len(inner), -1, -1):
        base = os.path.join(source, *inner[:end])
        for file in (base + ".rs", os.path.join(base, "mod.rs"), os.path.join(base, "lib.rs")):
            if os.path.exists(os.path.join(ROOT, file)):
                return file
    return None


def demangled(symbols):
    command = ["c++filt", "--format", "rust"]
    told = subprocess.run(command, input="\n".join(symbols), capture_output=True, text=True, check=True)
    return dict(zip(symbols, told.stdout.splitlines()))


def main():
    program = build()
    without = counts(program, ROVE_ROUTE_WITHOUT_LAST="1")
    ran = counts(program)
    passed = [name for name, (times, _) in ran.items() if times > without.get(name, (0, 0))[0]]
    functions = {}
    for symbol, name in demangled(passed).items():
        file = file_of(symbol)
        if file and "/tests" not in file and "/memory.rs" not in file:
            name = re.sub(r"::\{closure.*|::<.*$", "", name)
            name = re.sub(r"\[[0-9a-f]+\]", "", name)
            _, branches = functions.get(name, (file, False))
            functions[name] = file, branches or ran[symbol][1] > 1
    for file in sorted({file for file, _ in functions.values()}):
        print(file)
        for name, (place, branches) in sorted(functions.items()):
            if place == file:
                print("  ", "*" if branches else " ", name)
    for what, chosen in (("all", (False, True)), ("with a branch (*)", (True,))):
        files = [file for file, branches in functions.values() if branches in chosen]
        print(f"{what}: {len(files)} functions in {len(set(files))} files")


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.basename(sys.argv[1]) == "rustc":
        os.execvp(sys.argv[1], sys.argv[1:] + FLAGS)
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    main()

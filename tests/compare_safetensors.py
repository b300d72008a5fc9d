#!/usr/bin/env python3
"""Compares megavit's safetensors reader with the format's own (the Python package `safetensors`, written in Rust).

    tests/compare_safetensors.py [COUNT] [SEED]

Mutates small files COUNT times. megavit may accept only what the reference accepts, and then finds the same tensors. It may
refuse more, but only for the reasons in STRICTER, which are those in megavit.h. Prints how often each occurred; exits 1 after a
disagreement that is not on the list."""
import collections
import ctypes
import os
import random
import struct
import subprocess
import sys
import tempfile

import safetensors

# A part of megavit's message, and why it may refuse what the reference accepts.
STRICTER = [
    ("already has", "a key twice in one object"),
    ("U+0000", "U+0000 in a string"),
    ("10^308", "a number from 10^308 to the largest double"),
    ("64 levels", "nesting deeper than 64 levels"),
    ("more than 8 dimensions", "rank above 8"),
    ("larger than 2^64 bits", "dimensions that overflow beside a 0"),
    ("is not an object", "a tensor spelled as an array"),
    ("its dtype is not a string", "a dtype spelled as an object"),
]

GLUE = r"""
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_NO_CUDA
#include "megavit.h"
/* 0 and a listing "name \0 dtype begin end rank shape..." of all tensors by name, or the result code and the message. */
int check(const void *data, size_t size, char *message, uint64_t *table, uint32_t room);
int check(const void *data, size_t size, char *message, uint64_t *table, uint32_t room) {
    mgv_safetensors_desc desc;
    mgv_safetensors *file;
    mgv_error error;
    uint32_t i, r;
    memset(&desc, 0, sizeof desc);
    desc.data = data;
    desc.bytes = size;
    mgv_result result = mgv_safetensors_open(&file, &desc, &error);
    if (result != MGV_OK) {
        memcpy(message, error.message, sizeof error.message);
        return result;
    }
    table[0] = mgv_safetensors_tensor_count(file);
    for (i = 0; i < mgv_safetensors_tensor_count(file) && i < room; i++) {
        mgv_tensor_info info;
        mgv_safetensors_get_tensor(file, i, &info);
        uint64_t *row = table + 1 + 16 * i;
        row[0] = (uint64_t)info.dtype;
        row[1] = info.offset;
        row[2] = info.bytes;
        row[3] = info.rank;
        row[12] = strlen(info.name);
        memcpy(message, info.name, row[12]);
        message += row[12];
        for (r = 0; r < info.rank; r++) row[4 + r] = info.shape[r];
    }
    mgv_safetensors_close(file);
    return 0;
}
"""
DTYPES = ["BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",
          "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"]
BITS = dict(zip(DTYPES, [8, 4, 6, 6] + [8] * 7 + [16] * 4 + [32] * 3 + [64] * 4))
NUMBERS = ["0", "1", "2", "3", "4", "7", "8", "16", "-1", "-0", "01", "1.0", "1e0", "4294967296", "9007199254740993",
           "2305843009213693951", "9223372036854775807", "18446744073709551615", "18446744073709551616", "1e400", "null",
           "true", "\"1\"", "[1]", "{}", "NaN"]
PIECES = ["{", "}", "[", "]", ",", ":", "\"", "\\", "\\u0061", "\\u0000", "\\ud83d\\ude00", "\\ud800", " ", "\n", "\x01", "\xff",
          "null", "true",
          "\"dtype\":\"F32\",", "\"shape\":[1],", "\"data_offsets\":[0,4],", "\"__metadata__\":{},",
          "\"__metadata__\":{\"a\":\"b\"},",
          "\"x\":[{\"y\":[]}],", "[" * 40, "]" * 40, "[" * 70 + "]" * 70 + ",", "{\"F32\":null}",
          "[\"F32\",[1],[0,4]]", "0", "1", "-", ".", "e"]


def library():
    directory = tempfile.mkdtemp()
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    with open(os.path.join(directory, "glue.c"), "w") as file:
        file.write(GLUE)
    path = os.path.join(directory, "glue.so")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-w", "-I", root, os.path.join(directory, "glue.c"), "-o", path, "-lm"], check=True)
    return ctypes.CDLL(path)


def number(rng, usual):
    return rng.choice(NUMBERS) if rng.random() < 0.015 else str(usual)


def header(rng):
    """The text of a header that is well formed most of the time, and how many bytes of data it speaks of."""
    entries, end = [], 0
    if rng.random() < 0.3:
        values = ['{}', 'null', '{"format":"pt"}', '{"a":"","b":"c"}', '{"a":"1","a":"2"}', '{"a":1}', '[]']
        entries.append('"__metadata__":' + rng.choice(values))
    for i in range(rng.randrange(0, 4)):
        dtype = rng.choice(DTYPES)
        shape = [rng.choice([0, 1, 1, 2, 2, 3, 4, 8]) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4, 8]))]
        if rng.random() < 0.01:
            shape = [1] * 9
        elements = 1
        for side in shape:
            elements *= side
        size = elements * BITS[dtype] // 8
        name = rng.choice(["a", "b", "weight", "", "a\\u0062", "\\n", "é", "a/b"]) if rng.random() < 0.3 else f"t{i}"
        fields = [f'"dtype":"{dtype}"', '"shape":[' + ",".join(number(rng, s) for s in shape) + "]",
                  f'"data_offsets":[{number(rng, end)},{number(rng, end + size)}]']
        if rng.random() < 0.1:
            values = ["1", "null", "[[[]]]", '{"a":{"a":1}}', "1e400", '{"a":1,"a":1}', "[" * 130 + "]" * 130]
            fields.append('"extra":' + rng.choice(values))
        if rng.random() < 0.3:
            rng.shuffle(fields)
        if rng.random() < 0.01:
            fields.pop()
        entries.append(f'"{name}":{{' + ",".join(fields) + "}")
        end += size + (rng.choice([-1, 1]) if rng.random() < 0.02 else 0)
    if rng.random() < 0.3:
        rng.shuffle(entries)
    text = "{" + ",".join(entries) + "}"
    if rng.random() < 0.1:
        text = rng.choice([" ", "\n\t", ""]) + text + rng.choice([" ", "  \r\n", "x", "\0", ","])
    return text.encode("latin-1" if rng.random() < 0.02 else "utf-8"), max(end, 0)


def mutate(rng, text):
    for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2])):
        at = rng.randrange(len(text) + 1)
        kind = rng.randrange(4)
        piece = rng.choice(PIECES).encode("latin-1")
        if kind == 0:
            text = text[:at] + piece + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + rng.randrange(1, 4):]
        elif kind == 2:
            text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1:]
        else:
            to = rng.randrange(at, len(text) + 1)
            text = text[:to] + text[at:to] + text[to:]
    return text


def reference(data):
    try:
        return safetensors.deserialize(data), None
    except Exception as exception:
        return None, str(exception)


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    check = library().check
    message = ctypes.create_string_buffer(1 << 16)
    table = (ctypes.c_uint64 * (1 + 16 * 64))()
    rng = random.Random(seed)
    outcomes, stricter, bad = collections.Counter(), collections.Counter(), 0
    for i in range(count):
        text, size = header(rng)
        text = mutate(rng, text)
        size += rng.choice([-1, 1]) if rng.random() < 0.01 else 0
        length = len(text) + (rng.choice([-1, 1, 1 << 40]) if rng.random() < 0.01 else 0)
        data = struct.pack("<Q", length % (1 << 64)) + text + bytes(j & 255 for j in range(max(size, 0)))
        theirs, why = reference(data)
        ours = check(data, len(data), message, table, 64)
        if ours != 0 and theirs is None:
            outcomes["both refuse"] += 1
        elif ours == 0 and theirs is not None:
            outcomes["both accept"] += 1
            names, at, same = message.raw, 0, table[0] == len(theirs)
            found = {}
            for t in range(table[0]):
                row = table[1 + 16 * t:17 + 16 * t]
                found[names[at:at + row[12]].decode()] = (DTYPES[row[0] - 1], row[4:4 + row[3]], data[row[1]:row[1] + row[2]])
                at += row[12]
            for name, tensor in theirs:
                mine = found.get(name)
                same = same and mine is not None and list(mine[1]) == list(tensor["shape"])
                same = same and mine[2] == bytes(tensor["data"]) and mine[0] == str(tensor["dtype"])
            if not same:
                bad += 1
                print("other tensors:", data, theirs)
        elif ours == 0:
            bad += 1
            print("accepted, but the reference says", why, ":", data)
        else:
            said = message.value.decode()
            reason = next((reason for part, reason in STRICTER if part in said), None)
            if reason is None:
                bad += 1
                print("refused, but the reference accepts:", said, ":", data)
            else:
                outcomes["stricter"] += 1
                stricter[reason] += 1
        if bad > 20:
            break
    counts = ", ".join(f"{n} {what}" for what, n in outcomes.most_common())
    print(f"safetensors {safetensors.__version__}, seed {seed}, {i + 1} files: {counts}")
    for reason, n in stricter.most_common():
        print(f"  {n:8d}  {reason}")
    print(f"{bad} disagreements that are not on the list")
    return bad > 0


sys.exit(main())

#!/usr/bin/env python3
"""Writes identity.golden.json beside this file, from the format alone.

A key is the concatenation of len(bytes) in decimal, a colon and the bytes, for
each field in order; the digest is its SHA-256. The file is contract: it may
gain vectors, existing ones never change.
"""
import hashlib
import json
import pathlib

FIELDS = ["tenant", "subject_kind", "subject_ref", "exporter", "account", "mode", "mapping_version"]


def digest(values):
    h = hashlib.sha256()
    for v in values:
        b = v.encode("utf-8")
        h.update(str(len(b)).encode("ascii") + b":" + b)
    return h.hexdigest()


BASE = ["acme", "event", "req_1", "stripe", "acct_1", "test", "9f2c"]
CASES = [
    ("plain", BASE),
    ("other tenant, same reference", ["other"] + BASE[1:]),
    ("no account, no mapping", ["acme", "event", "req_1", "webhook", "", "live", ""]),
    ("all empty", [""] * 7),
    ("separator inside one field", ["a|b", "event", "c", "stripe", "", "test", "1"]),
    ("separator inside the next field", ["a", "event", "b|c", "stripe", "", "test", "1"]),
    ("colon and digits", ["1:a", "event", "2:bb", "stripe", ":", "test", "0:"]),
    ("not ascii", ["käse", "event", "涙", "stripe", "acct_é", "test", "9f2c"]),
    ("window", ["acme", "usage_window", "usage:tokens:2026-11-01T00%3A00%3A00.000000Z:0:12.5",
                "stripe", "acct_1", "test", "9f2c"]),
    ("correction", ["acme", "correction", "req_1", "stripe", "acct_1", "test", "9f2c"]),
    ("cloudevent", ["acme", "event", "ce:13:https://a.b/c3:e-16:tokens", "stripe", "acct_1", "live", "9f2c"]),
]

out = []
for name, values in CASES:
    full = digest(values)
    out.append({
        "name": name,
        "identity": dict(zip(FIELDS, values)),
        "digest": full,
        "identifier": "fencepost_" + full,
        "subject_key": digest(values[:6]),
    })
path = pathlib.Path(__file__).with_name("identity.golden.json")
path.write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

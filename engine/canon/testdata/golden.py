"""Computes golden.json without any of the project's code.

    python3 golden.py > golden.json

Every rule is written a second time here: canonical JSON, length-prefixed
fields, the two hashed forms. The Go tests only read the result.
"""
import hashlib
import json
from decimal import Decimal, getcontext

getcontext().prec = 5000
getcontext().Emax = 10**17
getcontext().Emin = -(10**17)


def number(text):
    sign, digits, exponent = Decimal(text).as_tuple()
    s = "".join(map(str, digits)).lstrip("0")
    if not s:
        return "0"
    while s.endswith("0"):
        s, exponent = s[:-1], exponent + 1
    point = len(s) + exponent
    if exponent < -38 or point > 38:
        out = f"{s}e{exponent}"
    elif exponent >= 0:
        out = s + "0" * exponent
    elif point > 0:
        out = s[:point] + "." + s[point:]
    else:
        out = "0." + "0" * -point + s
    return ("-" if sign else "") + out


def string(text):
    return json.dumps(text, ensure_ascii=False)


class Number(str):
    pass


def canonical(value):
    if isinstance(value, dict):
        keys = sorted(value, key=lambda k: k.encode())
        return "{" + ",".join(string(k) + ":" + canonical(value[k]) for k in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, Number):
        return number(value)
    if isinstance(value, str):
        return string(value)
    return json.dumps(value)


def parse(text):
    return json.loads(text, parse_int=Number, parse_float=Number)


def join(fields):
    return b"".join(str(len(f)).encode() + b":" + f for f in (f.encode() for f in fields))


def digest(fields):
    return hashlib.sha256(join(fields)).hexdigest()


def event(e):
    metadata = canonical(parse(e["metadata"])) if e["metadata"] else "{}"
    return digest([
        "fencepost-event-v1", e["feature"], e["canonical_quantity"], e["canonical_time"], e["kind"] or "usage",
        e["original_event_id"], canonical(e["dimensions"]), metadata,
    ])


def cloudevent(e):
    kind, data = "none", ""
    if e["data"] is not None:
        kind, data = "json", canonical(parse(e["data"]))
    elif e["bytes"] is not None:
        kind, data = "bytes", e["bytes"]
    return digest(["fencepost-cloudevent-v1", canonical(e["attributes"]), e["canonical_time"], kind, data])


def correction(c):
    metadata = canonical(parse(c["metadata"])) if c["metadata"] else "{}"
    return digest([
        "fencepost-correction-v1", c["original_event_id"], c["canonical_quantity"], c["reason"], metadata,
        c["replacement_id"], c["replacement"],
    ])


def make_correction(**kw):
    c = dict(original_event_id="req_1", quantity="", canonical_quantity="", reason="", metadata="", replacement_id="", replacement="")
    c.update(kw)
    c["hash"] = correction(c)
    return c


def make_event(**kw):
    e = dict(feature="tokens", quantity="12.5", canonical_quantity="12.5", time="2026-11-30T12:00:00.000001Z",
             canonical_time="2026-11-30T12:00:00.000001Z", kind="usage", original_event_id="", dimensions={}, metadata="")
    e.update(kw)
    e["hash"] = event(e)
    return e


def make_cloudevent(**kw):
    e = dict(attributes={"specversion": "1.0", "id": "a-1", "source": "/api", "type": "llm.completion", "subject": "acme"},
             time="2026-11-30T12:00:00Z", canonical_time="2026-11-30T12:00:00.000000Z", data=None, bytes=None)
    e.update(kw)
    e["hash"] = cloudevent(e)
    return e


TEXTS = [
    "{}", "[]", "null", "true", "false", '""', " [ 1 , 2 ] ", '{"b":1,"a":2}',
    '{"a":{"z":[{"y":1,"x":2}]}}', '"\\u0041\\u00e9\\ud83d\\ude00"', '"\\/\\"\\\\\\b\\f\\n\\r\\t\\u001f"',
    '"e\\u0301 is not \\u00e9"', '{"\\u00e9":1,"e":2,"\\ud83d\\ude00":3,"\\uffee":4}', '{"":0," ":1}',
    "0", "-0", "0e999", "-0.0", "1", "1.0", "1e0", "10e-1", "1E+2", "0.015", "-12.50", "9007199254740993",
    "1e400", "10e399", "0.1e401", "-1e-400", "123456789012345678901234567890123456789",
    "99999999999999999999999999999999999999", "1e37", "1e38", "1e-38", "1e-39", "12e-39",
    "1e99999999999999999", "0.00000000000000000000000000000000000001",
]

FIELDS = [[], [""], ["", ""], ["a|b", "c"], ["a", "b|c"], ["5:hello"], ["h\u00e9llo", "\U0001f600"], ["1:a", ""], ["a" * 300]]

golden = {
    "json": [{"in": t, "out": canonical(parse(t))} for t in TEXTS],
    "join": [{"fields": f, "key": join(f).decode(), "digest": digest(f)} for f in FIELDS],
    "events": [
        make_event(),
        make_event(time="", canonical_time=""),
        make_event(time="2026-11-30T12:00:00Z", canonical_time="2026-11-30T12:00:00.000000Z"),
        make_event(time="2026-11-30T13:00:00.0000019+01:00", canonical_time="2026-11-30T12:00:00.000001Z"),
        make_event(quantity="1.250e1"),
        make_event(quantity="-0", canonical_quantity="0"),
        make_event(quantity="99999999999999999999999999.999999999999", canonical_quantity="99999999999999999999999999.999999999999"),
        make_event(dimensions={"model": "m1", "region": "eu", "\u00e9": "\u202e", "Z": ""}),
        make_event(metadata='{"b": 1.0, "a": {"d": [1e400, -0], "c": "\\u00e9"}}'),
        make_event(metadata="{}"),
        make_event(kind="correction", original_event_id="req_1", quantity="2", canonical_quantity="2"),
        make_event(kind=""),
    ],
    "corrections": [
        make_correction(),
        make_correction(quantity="2.50", canonical_quantity="2.5"),
        make_correction(quantity="2.5", canonical_quantity="2.5", reason="counted twice"),
        make_correction(reason="\u00e9", metadata='{"b": 1.0, "a": []}'),
        make_correction(metadata="{}"),
        make_correction(replacement_id="req_2", replacement="ab" * 32),
    ],
    "cloudevents": [
        make_cloudevent(),
        make_cloudevent(time="", canonical_time=""),
        make_cloudevent(data='{"tokens": 12.50, "model": "m1"}'),
        make_cloudevent(data='"text"'),
        make_cloudevent(bytes="text"),
        make_cloudevent(bytes="\u20ac"),
    ],
}
print(json.dumps(golden, indent=1, sort_keys=True))

#!/usr/bin/env python3
"""Writes edges.json: where windows and billing periods begin, by Python's zoneinfo.

Nothing is computed the way the package computes it. Every minute of a range is
converted from UTC to the zone, which is never ambiguous, and the clock that is
then on the wall decides. All changes of clocks in these ranges fall on a whole
minute. Run: python3 edges.py > edges.json
"""
import json
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

UTC = timezone.utc
MIN = timedelta(minutes=1)

ZONES = ["America/New_York", "America/Los_Angeles", "Europe/Paris", "Europe/Budapest",
         "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "UTC"]


def wall(t, zone):
    return t.astimezone(zone).replace(tzinfo=None, fold=0)


def text(t):
    return t.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc(s):
    return datetime.fromisoformat(s.replace("Z", "+00:00"))


def whole(w, unit):
    if unit == "minute":
        return w.replace(second=0, microsecond=0)
    if unit == "hour":
        return w.replace(minute=0, second=0, microsecond=0)
    if unit == "day":
        return w.replace(hour=0, minute=0, second=0, microsecond=0)
    return w.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def windows(zone_name, unit, start, end):
    """Edges in (start, end), a minute at a time."""
    zone, edges = ZoneInfo(zone_name), [start]
    t = start + MIN
    highest = wall(start, zone)  # of days and months: a boundary is passed once
    while t < end:
        w, about = wall(t, zone), wall(t - MIN, zone) + MIN
        if unit in ("minute", "hour"):
            if w == whole(w, unit) or (w > about and whole(w, unit) >= about):
                edges.append(t)
        elif w > highest and whole(w, unit) > highest:
            edges.append(t)
        highest = max(highest, w)
        t += MIN
    edges.append(end)
    return {"zone": zone_name, "unit": unit, "from": text(start), "to": text(end), "edges": [text(e) for e in edges]}


CHANGES = [  # days around changes of clocks, and one without
    ("America/New_York", "2026-03-07T05:00:00Z", "2026-03-10T04:00:00Z"),
    ("America/New_York", "2026-10-31T04:00:00Z", "2026-11-03T05:00:00Z"),
    ("America/Los_Angeles", "2026-03-08T08:00:00Z", "2026-03-09T07:00:00Z"),
    ("America/Los_Angeles", "2026-11-01T07:00:00Z", "2026-11-02T08:00:00Z"),
    ("Europe/Paris", "2026-03-28T23:00:00Z", "2026-03-30T22:00:00Z"),
    ("Europe/Paris", "2026-10-24T22:00:00Z", "2026-10-26T23:00:00Z"),
    ("Europe/Budapest", "2024-03-30T12:20:00Z", "2024-04-01T03:07:00Z"),
    ("Europe/Budapest", "2024-10-26T12:20:00Z", "2024-10-28T03:07:00Z"),
    ("Asia/Kolkata", "2026-02-27T00:00:00Z", "2026-03-02T00:00:00Z"),
    ("Asia/Kathmandu", "2026-02-28T00:00:00Z", "2026-03-01T06:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-05T15:00:00Z"),
    ("Pacific/Apia", "2011-12-28T10:00:00Z", "2012-01-01T10:00:00Z"),
    ("Pacific/Apia", "2011-09-23T10:00:00Z", "2011-09-25T10:00:00Z"),
    ("America/Sao_Paulo", "2018-11-03T00:00:00Z", "2018-11-05T12:00:00Z"),
    ("America/Sao_Paulo", "2018-02-17T00:00:00Z", "2018-02-19T12:00:00Z"),
    ("UTC", "2024-02-28T00:00:00Z", "2024-03-02T00:00:00Z"),
]


def periods():
    """Boundaries of billing periods: the first minute whose wall clock is at
    or after the anchor's time of day on the anchor's day, or the last day of a
    shorter month."""
    out = []
    for name in ZONES:
        zone = ZoneInfo(name)
        for day in (1, 29, 30, 31):
            for hour, minute in ((0, 0), (2, 15)):
                marks = []  # local boundaries from December 2023 to April 2025, and the winter of 2011
                for y, m in [(2011, 11), (2011, 12), (2012, 1), (2012, 2), (2012, 3)] + \
                        [(2023, 12)] + [(2024, k) for k in range(1, 13)] + [(2025, k) for k in range(1, 5)]:
                    last = (datetime(y + m // 12, m % 12 + 1, 1) - timedelta(days=1)).day
                    marks.append(datetime(y, m, min(day, last), hour, minute))
                at = [first(w, zone) for w in marks]
                anchor = first(datetime(2023, 12, day, hour, minute), zone)
                for run in (at[:5], at[5:]):
                    out.append({"zone": name, "anchor": text(anchor), "day": day, "boundaries": [text(b) for b in run]})
    return out


def first(w, zone):
    t = w.replace(tzinfo=UTC) - timedelta(hours=26)
    while wall(t, zone) < w:
        t += MIN
    return t


def main():
    out = {"source": "Python %s zoneinfo" % sys.version.split()[0], "windows": [], "periods": periods()}
    for name, a, b in CHANGES:
        for unit in ("hour", "day"):
            out["windows"].append(windows(name, unit, utc(a), utc(b)))
    for name in ZONES:
        out["windows"].append(windows(name, "month", utc("2023-11-15T09:30:00Z"), utc("2024-04-02T00:00:00Z")))
    out["windows"].append(windows("Pacific/Apia", "month", utc("2011-11-01T00:00:00Z"), utc("2012-02-02T00:00:00Z")))
    for name, a, b in (("Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-01T00:07:00Z"),
                       ("America/New_York", "2026-11-01T05:57:00Z", "2026-11-01T06:03:00Z"),
                       ("Australia/Lord_Howe", "2026-10-03T15:27:00Z", "2026-10-03T15:33:00Z")):
        out["windows"].append(windows(name, "minute", utc(a), utc(b)))
    print("{\n\"source\": %s,\n\"windows\": [\n%s\n],\n\"periods\": [\n%s\n]\n}" % (
        json.dumps(out["source"]), ",\n".join(json.dumps(w) for w in out["windows"]),
        ",\n".join(json.dumps(p) for p in out["periods"])))


main()

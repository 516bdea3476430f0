#!/usr/bin/env bash
# Guess: gpxpy's `get_uphill_downhill` sums the climbs of a track; if it smooths what a receiver's noise adds, it does so over
# metres or seconds, so that a climb of 100 m in an hour is one.
# What happens: it averages each height with its neighbours', however far off they are. A walker whose tracker sends a point
# an hour, over five hills of 100 m, has climbed 120 m instead of 500; with each leg recorded in twenty points it is 473. So
# the answer depends on how often a device records, and its help names no smoothing.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet gpxpy==1.6.2
cat > try.py <<'PYTHON'
from importlib.metadata import version

from gpxpy.gpx import GPXTrackPoint, GPXTrackSegment

HILLS, HEIGHT = 5, 100


def uphill(points_a_leg: int) -> float:
    """Metres climbed over hills of one shape, by the number of points in which each way up or down is recorded."""
    legs = [(leg, step / points_a_leg) for leg in range(2 * HILLS) for step in range(points_a_leg)]
    heights = [500 + HEIGHT * (1 - share if leg % 2 else share) for leg, share in legs] + [500]
    points = [
        GPXTrackPoint(48 + 0.01 * place / points_a_leg, 11, elevation=height) for place, height in enumerate(heights)
    ]
    return round(GPXTrackSegment(points).get_uphill_downhill().uphill, 1)


print("gpxpy", version("gpxpy"))
seen = {points: uphill(points) for points in (1, 2, 5, 20)}
print(f"climbed {HILLS * HEIGHT} m; by points recorded a leg: {seen}")
assert seen[1] < 0.3 * HILLS * HEIGHT and seen[20] > 0.9 * HILLS * HEIGHT
assert "smooth" not in str(GPXTrackSegment.get_uphill_downhill.__doc__)
PYTHON
venv/bin/python try.py
# Seen: climbed 500 m; by points recorded a leg: {1: 120.0, 2: 230.0, 5: 392.0, 20: 473.0}

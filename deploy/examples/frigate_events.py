"""Write pictures and boxes of ended events of Frigate (0.14 or later) into a folder, for `yolo:FOLDER`."""

import json
from argparse import ArgumentParser
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import urlopen


def write_events(address: str, folder: Path, labels: list[str], limit: int) -> str:
    asked = {"labels": ",".join(labels), "limit": limit, "has_snapshot": 1, "in_progress": 0}
    with urlopen(f"{address}/api/events?{urlencode(asked)}", timeout=60) as answer:
        events, names, written = json.load(answer), folder / "classes.txt", list[bool]()
    for part in ("images", "labels"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    classes = [*dict.fromkeys([*(names.read_text().splitlines() if names.exists() else ()), *labels])]
    names.write_text("\n".join(classes))
    for event in events:
        name, box = quote(event["id"], safe=""), event["data"].get("box")
        if (file := folder / "labels" / f"{name}.txt").exists():
            continue  # its boxes may have been corrected
        for ending in ("webp", "png") if box else ():  # WebP since Frigate 0.17
            url = f"{address}/api/events/{name}/snapshot-clean.{ending}"
            with suppress(HTTPError), urlopen(url, timeout=60) as answer:
                (folder / "images" / f"{name}.{ending}").write_bytes(answer.read())
                x, y, w, h = box  # the top left corner and the sides, in shares of the picture
                file.write_text(f"{classes.index(event['label'])} {x + w / 2} {y + h / 2} {w} {h}\n")
                break
        written.append(file.exists())
    return f"{sum(written)} new pictures; without box or clean snapshot: {written.count(False)} events"


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("address", help="such as http://frigate:5000")
    parser.add_argument("folder", type=Path)
    parser.add_argument("labels", nargs="+", help="such as person cat")
    parser.add_argument("--limit", type=int, default=100, help="most events, the newest (default: 100)")
    args = parser.parse_args()
    try:
        print(write_events(**vars(args)))
    except (OSError, ValueError, LookupError, TypeError, HTTPException) as error:
        parser.exit(2, f"{args.address}: {error}\n")

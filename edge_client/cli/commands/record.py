"""`edge-client record`: record sensors' messages as examples to train on."""

import argparse
import logging
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli import options
from edge_client.system.logging.setup import begin_log
from edge_client.system.plain_text import print_result
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_client.agent.recording.row_maker import Wanted

HELP = "record MQTT topics as examples to train on"
EXAMPLES = """\
A row has the last value of every column. Values are numbers, or states such as on and off (1 and 0). A sensor
that is unavailable makes rows incomplete; they are not recorded.

labels, on the topic of --label:
  busy                                          the label of the rows from now on; an empty text ends it
  {"id": "1764110000000", "label": "busy"}      the label of one row: its id is that of --id, else its time in
                                                milliseconds
  {"from": "2026-11-25T09:00", "to": "2026-11-25T09:20", "label": "busy"}
                                                the label of the rows of that time

examples:
  edge-client record room.sqlite --column co2=home/office/co2 --column light=zigbee2mqtt/office#illuminance
  edge-client record room.sqlite --column co2=home/office/co2 --every 60 --label home/office/state \\
      --most-mb 20 --most-days 90
  edge-client record parts.sqlite --column force=press/force --id press/part#serial --label press/test \\
      --keep reservoir --balance
  edge-client run --data 'recorded:room.sqlite?label=label' ...          train on the rows with a label

Home Assistant publishes its sensors with the integration "MQTT Statestream". SIGTERM and Ctrl-C end the
recorder; started again with the same store it continues.
"""


OPTIONS = (
    options.Option("store", Path, "the file to record into, made if missing", metavar="STORE"),
    options.Option(
        "--broker",
        help="broker of the sensors (default: %(default)s)",
        default="mqtt://127.0.0.1:1883",
        metavar="URL",
    ),
    *options.tls_options("this recorder's"),
    options.Option(
        "--column",
        help="a column and the topic of its values, with the key of a value in JSON; repeatable",
        default=(),
        metavar="NAME=TOPIC[#KEY]",
        many=True,
    ),
    options.Group(
        (
            options.seconds_option("--every", "seconds between rows (default: 10)", 10.0),
            options.Option(
                "--id", help="record a row with each id that arrives here instead", metavar="TOPIC[#KEY]"
            ),
        ),
        exclusive=True,
    ),
    options.Option("--label", help="topic of labels", metavar="TOPIC"),
    options.Option("--most-mb", float, "size of the store (default: 50)", 50.0, "MB", options.ABOVE_0),
    options.Option("--most-days", float, "remove rows older than this", metavar="DAYS", bounds=options.DAYS),
    options.Option(
        "--keep",
        help="rows that stay in a full store: the newest, or a random choice of all (default: newest)",
        default="newest",
        choices=("newest", "reservoir"),
    ),
    options.Option("--balance", bool, "in a full store remove rows of the most frequent label first"),
    options.Option("--client-id", help="name at the broker (default: HOST-record-STORE)", metavar="NAME"),
    options.Option("--quiet", bool, "log warnings only"),
    *options.log_options("info"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_client.agent.recording.recorder import Recorder
    from edge_client.data.tables.recorded import ExampleStore, StoreLimits

    begin_log(args, level=logging.INFO)
    wanted = _parse_wanted(args)
    address = options.read_broker_option(args)
    limits = StoreLimits(
        most_bytes=int(args.most_mb * 1e6),
        most_age_s=args.most_days * 86_400 if args.most_days else None,
        keep=args.keep,
        balance=args.balance,
    )
    store = ExampleStore(args.store, tuple(reading.name for reading in wanted.readings), limits)
    client_id = args.client_id or f"{socket.gethostname()}-record-{args.store.stem}"
    try:
        recorder = Recorder(address, wanted, store, client_id=client_id)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: recorder.stop())
        recorder.run()
        counts = {**vars(recorder.counts), "refused": dict(recorder.counts.refused), "stored": len(store)}
        return print_result(args, counts, f"{args.store}: {recorder.progress()}")
    finally:
        store.close()


def _parse_wanted(args: argparse.Namespace) -> "Wanted":
    from edge_client.agent.recording.row_maker import Wanted, parse_place, parse_reading

    if not args.column:
        raise ConfigError(
            "record: nothing to record", remedy="state columns, such as --column co2=home/office/co2"
        )
    readings = tuple(parse_reading(text) for text in args.column)
    names = [reading.name for reading in readings]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"record: two columns are named '{twice}'")
    ident = parse_place(args.id, option="--id") if args.id else None
    label = parse_place(args.label, option="--label").topic if args.label else None
    return Wanted(readings, args.every, ident, label)

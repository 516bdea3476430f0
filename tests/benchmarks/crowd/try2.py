import asyncio, sys, tempfile, time, json
from pathlib import Path
from edge_server.broker.launch import running_broker
from tests.benchmarks.crowd.orders import child, crowd
from tests.benchmarks.crowd.floor import floor


async def main(count, div):
    with tempfile.TemporaryDirectory() as folder, running_broker("mosquitto", Path(folder)) as broker:
        async with crowd("127.0.0.1", broker.port, "bench") as people:
            print("join", await people.join(count))
            sizes = [498365, 834922, 1145590, 1482147, 1663370]
            layers = {i + 1: 4 * (s - (sizes[i - 1] if i else 0)) for i, s in enumerate(sizes)}
            up = {i + 1: 4 * s // div for i, s in enumerate(sizes)}
            for _ in range(3):
                print(
                    await floor(
                        people,
                        ("127.0.0.1", broker.port),
                        "bench",
                        layers=layers,
                        up=up,
                        chunk_bytes=262144,
                        folder=None,
                    )
                )
                print(
                    sum(
                        int(l.split()[1]) for l in open(f"/proc/{broker.pid}/status") if l.startswith("VmHWM")
                    ),
                    broker.pid,
                )
            print(await people.counts())


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))

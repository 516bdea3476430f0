import asyncio, sys, tempfile, time, json
from pathlib import Path
from edge_server.broker.launch import running_broker
from tests.benchmarks.crowd.orders import child, crowd


async def main(count, rounds, extra):
    with tempfile.TemporaryDirectory() as folder, running_broker("mosquitto", Path(folder)) as broker:
        async with crowd("127.0.0.1", broker.port, "bench") as people:
            print("join", await people.join(count))
            words = [
                broker.url,
                folder + "/run",
                "federation.name=bench",
                f"num-clients={count}",
                f"rounds={rounds}",
                "federation.deliver=false",
                "model.name=two-nn",
                "model.num-classes=10",
                "model.input-shape=[1, 28, 28]",
                "federation.replay-mb=0",
                *extra,
            ]
            t = time.monotonic()
            async with child("federation", *words) as server:
                print("server pid", server.pid)
                last = None
                while True:
                    told = await server.hear("closed", "ended")
                    if last:
                        told["took"] = told.get("at", 0) - last
                    last = told.get("at")
                    print(round(time.monotonic() - t, 2), told)
                    print(dict(await people.counts()))
                    if told["event"] == "ended":
                        break


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))

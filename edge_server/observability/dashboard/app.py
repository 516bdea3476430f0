"""The read-only routes: the page, its JSON, its event stream, the tiers' ONNX files."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from edge_server.config.measures import parse_digits
from edge_server.observability.dashboard import fleet_view, model_view, rollout_view, run_reader
from edge_server.observability.dashboard.access import (
    Access,
    AccessGuard,
    error_of,
    json_answer,
    on_http_error,
)
from edge_server.observability.dashboard.events import events_value
from edge_server.observability.dashboard.feed import EventStream, EventWriter, Feed
from edge_server.observability.device_totals import read_lineage
from edge_server.rounds.event_entry import EventKind
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import DeviceRecord
from edge_server.storage.run_folder import RunFolder
from schemas.errors import EdgeError

log = logging.getLogger(__name__)

ASSETS = Path(__file__).with_name("assets")
MAX_STREAMS = 128
AGAIN_S = "5"  # Value of `Retry-After` (seconds) where too many pages are open


def make_app(feed: Feed, access: Access, *, more: Sequence[BaseRoute] = ()) -> ASGIApp:
    """The application; `more` routes have the same access control."""
    pages = Pages(feed)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        feed.begin()
        yield
        feed.end()

    app = Starlette(
        routes=[
            Route("/", pages.page),
            Mount("/assets", StaticFiles(directory=ASSETS), name="assets"),
            Route("/api/run", pages.run),
            Route("/api/fleet", pages.fleet),
            Route("/api/device/{name}", pages.device),
            Route("/api/model", pages.model),
            Route("/api/channel/{group:path}/{index:int}", pages.channel),
            Route("/api/gradcam", pages.gradcam),
            Route("/api/events", pages.events),
            Route("/api/rollouts", pages.rollouts),
            Route("/api/stream", pages.stream),
            Route("/onnx/tier-{tier:int}.onnx", pages.onnx),
            *more,
        ],
        exception_handlers={HTTPException: on_http_error, EdgeError: _edge_error},
        lifespan=lifespan,
    )
    return AccessGuard(app, access)


class Pages:
    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._grad_cam, self._writer = model_view.GradCamRequests(feed.path), EventWriter(feed)
        self._streams = 0

    async def page(self, request: Request) -> Response:
        return FileResponse(ASSETS / "index.html", headers={"Cache-Control": "no-cache"})

    async def run(self, request: Request) -> Response:
        shown = await self._feed.read_state()
        return json_answer({**shown.run, "history": list(shown.rounds)})

    async def fleet(self, request: Request) -> Response:
        shown = await self._feed.read_state()
        return json_answer({"devices": [vars(versioned.row) for versioned in shown.rows.values()]})

    async def device(self, request: Request) -> Response:
        name = request.path_params["name"]
        facts, snapshot = await self._feed.facts()
        choices = await self._feed.journal(lambda reader: reader.choices_of(name)) or []
        verdicts = await self._feed.journal(lambda reader: reader.verdicts_of(name)) or []
        value = fleet_view.device_value(name, facts, snapshot, choices, verdicts)
        if value is None:
            return error_of(404, "there is no such device in this run")
        return json_answer({**value, "replaces": await asyncio.to_thread(self._predecessors, name)})

    def _predecessors(self, device: str) -> list[str]:
        """The dead boards whose place the device took, if the user's inventory knows any."""
        try:
            return read_lineage(self._feed.path, None).predecessors(device)
        except (EdgeError, OSError) as error:
            log.warning("the inventory cannot be read: %s", error)
            return []

    async def model(self, request: Request) -> Response:
        facts, snapshot = await self._feed.facts()
        observations = await self._feed.journal(JournalReader.observations) or []
        records: Sequence[DeviceRecord] = facts.summary.devices if facts.summary else ()
        if snapshot is not None and snapshot.summary is None:
            records = tuple(snapshot.delivered.values())
        return json_answer(
            model_view.model_value(observations, records, gradcam_why_not=model_view.why_not(facts))
        )

    async def channel(self, request: Request) -> Response:
        group, index = request.path_params["group"], request.path_params["index"]
        observations = await self._feed.journal(JournalReader.observations) or []
        value = model_view.channel_value(observations, group, index)
        return error_of(404, "no round has scored such a channel") if value is None else json_answer(value)

    async def gradcam(self, request: Request) -> Response:
        tier, count = number_in(request, "tier", 0), number_in(request, "count", 8)
        if tier is None or count is None or not 1 <= count <= model_view.MAX_IMAGES:
            return error_of(
                400, f"tier must be a number (0: the global model) and count 1 to {model_view.MAX_IMAGES}"
            )
        facts, _ = await self._feed.facts()
        version = run_reader.newest_version(RunFolder(self._feed.path))
        reason = "there is no model yet" if version is None else model_view.why_not(facts)
        if version is None or reason:
            return error_of(503, reason)
        return json_answer(await self._grad_cam.images(version.name, tier, count))

    async def events(self, request: Request) -> Response:
        after, asked = number_in(request, "after", 0), request.query_params
        kinds = [kind for kind in asked.get("kind", "").split(",") if kind]
        unknown = [kind for kind in kinds if kind not in set(EventKind)]
        if after is None or unknown:
            return error_of(400, f"after must be a number, and kind some of {', '.join(EventKind)}")
        path = RunFolder(self._feed.path).events
        return json_answer(await asyncio.to_thread(events_value, path, kinds, asked.get("device", ""), after))

    async def rollouts(self, request: Request) -> Response:
        run = (await self._feed.read_state()).run["run"]
        return json_answer(await asyncio.to_thread(rollout_view.rollouts_value, self._feed.registry, run))

    async def stream(self, request: Request) -> Response:
        since = number_in(request, "since", 0)
        if since is None:
            return error_of(400, "since must be the number of a round")
        if request.method == "HEAD":
            return Response(media_type=EventStream.media_type)
        if self._streams >= MAX_STREAMS:
            return error_of(503, "too many pages are open; close one", retry_after=AGAIN_S)
        self._streams += 1
        return EventStream(self._writer.texts(since), ended=self._on_end)

    def _on_end(self) -> None:
        self._streams -= 1

    async def onnx(self, request: Request) -> Response:
        tier = request.path_params["tier"]
        path = self._feed.path / "onnx" / f"tier-{tier}.onnx"
        if not path.is_file():
            return error_of(404, f"tier {tier} has no ONNX file yet")
        return FileResponse(path, media_type="application/octet-stream", filename=f"tier-{tier}.onnx")


def number_in(request: Request, name: str, usual: int) -> int | None:
    """A non-negative integer of the query, `usual` where it is missing; None for anything else."""
    return parse_digits(request.query_params.get(name, str(usual)))


async def _edge_error(request: Request, error: Exception) -> Response:
    return error_of(503, str(error))

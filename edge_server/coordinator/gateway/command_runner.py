"""Carrying out what a gateway's machine decides: messages and chunks out, slow work in a thread."""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from edge_client.storage.blob_store import BlobStore
from edge_client.transport import broker_link, chunk_transfer
from edge_server.coordinator.gateway.links import LinkAbove, LinkBelow
from edge_server.coordinator.gateway.site_work import SiteWork
from edge_server.rounds import events as rounds
from edge_server.rounds.gateway import events
from edge_server.rounds.gateway.state import Gateway
from edge_server.storage.gateway_journal import GatewayJournal
from schemas.errors import format_count
from schemas.messages import Birth, Death, FederationEnd, RoundAnnouncement, SiteTerms

MB = 1_000_000


class Progress:
    """Lines for people: `show` prints one."""

    def __init__(self, site: str, above: LinkAbove, show: Callable[[str], None]) -> None:
        self._site, self._above, self._show = site, above, show
        self._last = ""

    def say(self, line: str) -> None:
        """A line, unless it was the last one."""
        if line != self._last:
            self._last = line
            self._show(line)

    def terms(self, terms: SiteTerms) -> None:
        within = [site for site in terms.sites if site.startswith(f"{self._site}.")]
        inside = f", with the sites {', '.join(within)}" if within else ""
        self.say(f"takes part in the run '{terms.run}'{inside}")

    def on_announcement(self, message: RoundAnnouncement | FederationEnd, gateway: Gateway) -> None:
        """The federation has entered another phase."""
        far = f"far link {self._above.received / MB:.1f} MB in, {self._above.sent / MB:.1f} MB out"
        if isinstance(message, FederationEnd):
            self.say(f"the run '{message.run}' is over: {message.outcome}; {far}")
            return
        devices = f"{format_count(len(gateway.births), 'device')} here"
        self.say(f"round {message.round} of {message.rounds}: {message.phase}; {devices}; {far}")


log = logging.getLogger(__name__)


class CommandRunner:
    """Carries out commands; `look` returns the gateway as it is. Results of slow work go into the inbox."""

    def __init__(
        self,
        above: LinkAbove,
        below: LinkBelow,
        store: BlobStore,
        journal: GatewayJournal,
        work: SiteWork,
        inbox: broker_link.Inbox,
        look: Callable[[], Gateway],
    ) -> None:
        self._above, self._below, self._store, self._journal = above, below, store, journal
        self._work, self._inbox, self._look = work, inbox, look
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="site-work")

    def close(self) -> None:
        """Wait for the running job; waiting ones are repeated by the next process."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def do(self, command: events.Command) -> None:
        match command:
            case events.SendAbove(message, device):
                if isinstance(message, Birth):
                    self._journal.born(device, message.session)
                elif isinstance(message, Death):
                    self._journal.write_death(device)
                self._above.tell(message, device)
            case rounds.Send(device, message):
                self._below.tell(message, device, self._look().below(device))
            case rounds.SendToSite(site, message):
                self._below.tell(message, "", site)
            case rounds.Announce(message):
                self._below.announce(message)
            case events.SendChunksAbove(ref, first, count, device):
                self._above.send_chunks(ref, first, count, device)
            case events.SendChunksBelow(device, ref, index):
                self._below.send_chunk(ref, index, device, self._look().below(device))
            case events.PassChunkOn(device, chunk):
                self._above.pass_on(device, chunk)
            case chunk_transfer.WriteChunk(ref, index, data, crc):
                self._store.write_chunk(ref, index, data, crc)
            case rounds.Note():
                log.warning("%s", command.words)
            case chunk_transfer.VerifyBlob(ref):
                self._begin(lambda: events.BlobVerified(ref.digest, self._store.verify(ref)))
            case rounds.CheckSum(site, ref):
                self._begin(lambda: rounds.SumChecked(site, ref.digest, damaged=not self._store.verify(ref)))
            case events.RememberTask(device, task):
                self._journal.write_task(device, task)
            case events.ExamineUpdate():
                self._begin(lambda: events.UpdateExamined(self._work.examine(command.update, command.task)))
            case events.RecordRefused(update):
                self._journal.write_examined(update)
            case events.MakeSum():
                # All tasks of the round name the same channel map.
                tasks = (self._look().tasks.get(device) for device in command.request.members)
                one_of_round = next((task for task in tasks if task is not None), None)
                self._begin(lambda: self._work.add(command, one_of_round))
            case events.Forget(run, oldest):
                self._journal.forget(run, oldest)
                self._begin(lambda: self._work.keep_only(self._look().in_use()))

    def _begin(self, job: Callable[[], events.Event | None]) -> None:
        self._pool.submit(job).add_done_callback(self._on_end)

    def _on_end(self, future: "Future[events.Event | None]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        result = error if error is not None else future.result()
        if result is not None:
            self._inbox.put(result)

"""Seeded bugs in the product's own code, to prove that a storm finds such bugs.

A mutant replaces one piece of the source of one function; the function's code is compiled anew and exchanged,
so every module that has imported the function runs the mutant.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A bug: `broken` says what it is; in `function` of `module`, `old` becomes `new`.

    Only seeds with `sites` can find one of a gateway.
    """

    broken: str
    module: str
    function: str
    old: str
    new: str
    sites: bool = False

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Run the mutant instead of the product."""
        function = self._function()
        sound = function.__code__
        function.__code__ = self._compiled(function)
        try:
            yield
        finally:
            function.__code__ = sound

    def _function(self) -> FunctionType:
        found: Any = importlib.import_module(self.module)
        for name in self.function.split("."):
            found = inspect.getattr_static(found, name)
        found = found.fget if isinstance(found, property) else found
        found = inspect.unwrap(found)
        assert isinstance(found, FunctionType)
        return found

    def _compiled(self, function: FunctionType) -> CodeType:
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.module}.{self.function} has changed: {self.old!r}"
        tree = ast.parse(source.replace(self.old, self.new))
        (definition,) = tree.body
        assert isinstance(definition, ast.FunctionDef)
        definition.decorator_list = []
        made: dict[str, Any] = {}
        exec(compile(tree, f"<mutant of {self.function}>", "exec"), vars(inspect.getmodule(function)), made)
        code: CodeType = made[definition.name].__code__
        return code


MUTANTS = {
    # --- rounds ---
    "rounds-any-attempt": Mutant(
        "an answer to an earlier attempt of the round counts",
        "edge_server.rounds.participant",
        "Participant.is_meant",
        "return (answer.run, answer.attempt, answer.round) == (task.run, task.attempt, task.round)",
        "return (answer.run, answer.round) == (task.run, task.round)",
    ),
    "rounds-offer-once": Mutant(
        "an offer that gets no answer is not repeated",
        "edge_server.rounds.participant",
        "tick",
        "now >= participant.offer_at",
        "False",
    ),
    "rounds-counted-refused": Mutant(
        "the repeated claim of a counted update is refused",
        "edge_server.rounds.device_messages",
        "_on_claim",
        "(last.run, last.attempt) == (update.run, update.attempt)",
        "False",
    ),
    "rounds-blobs-in-use": Mutant(
        "a planning deletes blobs that are in use",
        "edge_server.rounds.planning",
        "_in_use",
        "named | {update.sent_blob.digest for update in updates if update.sent_blob is not None}",
        "()",
    ),
    "rounds-quorum-of-one": Mutant(
        "one update is a quorum",
        "edge_server.rounds.modes",
        "_finish",
        "quorum = max(1, math.ceil(federation.rules.quorum * needed))",
        "quorum = 1",
    ),
    "rounds-no-turn": Mutant(
        "an uploader that comes back keeps waiting for its turn",
        "edge_server.rounds.machine",
        "_grant",
        "again = participants.having({Status.WAITING})",
        "again = ()",
    ),
    # --- session ---
    "session-any-answer": Mutant(
        "the answer to another result of the run settles a result",
        "edge_client.agent.session.results",
        "_is_about",
        "return (answer.run, answer.attempt, answer.digest) == (result.run, result.attempt, digest)",
        "return answer.run == result.run",
    ),
    "session-refused-is-accepted": Mutant(
        "a refused result is settled as accepted",
        "edge_client.agent.session.results",
        "result_answered",
        "return idle, [Settled(result, refusal)]",
        "return idle, [Settled(result)]",
    ),
    "session-asks-once": Mutant(
        "a request for chunks is not repeated by a device",
        "edge_client.agent.session.downloads",
        "tick",
        "return _asking(session, session.receiving, chunk_transfer.tick, now)",
        "return session, []",
    ),
    "session-result-without-blob": Mutant(
        "a restarted device announces an update whose blob it has lost",
        "edge_client.agent.session.machine",
        "_on_restored",
        "isinstance(result, messages.Update) and result.blob.digest not in session.held",
        "False",
    ),
    "session-damaged-blobs": Mutant(
        "a restarted device keeps blobs that a power cut has damaged",
        "edge_client.agent.state_store",
        "StateStore.load_snapshot",
        "self.blobs.drop_damaged()",
        "pass",
    ),
    # --- transfer ---
    "transfer-one-short": Mutant(
        "a blob is complete one chunk too early",
        "edge_client.transport.chunk_transfer",
        "Receiving.complete",
        "self.have == ChunkSet.first(self.ref.chunks)",
        "len(self.have) >= max(1, self.ref.chunks - 1)",
    ),
    "transfer-asks-once": Mutant(
        "a request for chunks is never repeated",
        "edge_client.transport.chunk_transfer",
        "tick",
        "if receiving.complete or now < receiving.retry_at:",
        "if True:",
    ),
    "transfer-unsynced-update": Mutant(
        "an update is confirmed before its bytes are synced",
        "edge_client.storage.blob_store",
        "BlobStore._put_if_sound",
        "sync(self._part(ref))",
        "pass",
    ),
    "transfer-unsynced-name": Mutant(
        "an update is confirmed before its file's name is synced",
        "edge_client.storage.blob_store",
        "BlobStore.keep_sound",
        "sync(self._directory)",
        "pass",
    ),
    "transfer-unsynced-recycling": Mutant(
        "files are written over while a power cut can bring back their old names",
        "edge_client.storage.blob_store",
        "BlobStore.keep_only",
        "sync(self._directory)",
        "pass",
    ),
    # --- lease and standby ---
    "lease-unnamed": Mutant(
        "a standby that lacks something takes over",
        "edge_server.transport.lease.looking",
        "_follow",
        "state.may_follow or _is_unserved(state, last)",
        "True",
    ),
    "standby-told-later": Mutant(
        "devices hear of what the standby does not have yet",
        "edge_server.coordinator.standby.known_standby",
        "OutputGate.__call__",
        "if not self.closed:",
        "if True:",
    ),
    "standby-never-told": Mutant(
        "what devices must hear at the end is dropped if the standby does not have it yet",
        "edge_server.coordinator.server",
        "Server.is_over",
        " and (self._shipper is None or not len(self._shipper.gate))",
        "",
    ),
    "epochs-of-nothing": Mutant(
        "a message of a later server that names no run silences those that name none",
        "edge_client.agent.session.machine",
        "note_epoch",
        "not run or epoch",
        "epoch",
    ),
    # --- journal ---
    "journal-not-synced": Mutant(
        "the journal does not wait for the disk",
        "edge_server.storage.journal",
        "Journal.__init__",
        "'FULL' if durable else 'OFF'",
        "'OFF'",
    ),
    "journal-verdicts-forgotten": Mutant(
        "verdicts are not written before updates are confirmed",
        "edge_server.storage.journal",
        "Journal.together",
        "self.write_examined_rows(rows)",
        "pass",
    ),
    "journal-before-model": Mutant(
        "a round is closed in the journal before its model is on disk",
        "edge_server.coordinator.aggregator",
        "Aggregator.close",
        "wait_for_disk(self._storage.folder.written(command.round))",
        "pass",
    ),
    "journal-tasks-stay": Mutant(
        "the tasks of a closed round stay open",
        "edge_server.storage.journal",
        "Journal.write_closed_round",
        "[(device,) for device in over]",
        "[]",
    ),
    "recovery-counted-as-refused": Mutant(
        "a restarted server takes accepted updates for refused ones",
        "edge_server.storage.recovery",
        "_as_it_stood",
        "else replace(participant, status=Status.COUNTED",
        "else replace(participant, status=Status.REFUSED",
    ),
    "recovery-forgets-verdicts": Mutant(
        "a restarted server asks again for updates that it has confirmed",
        "edge_server.storage.recovery",
        "_as_it_stood",
        "return participant if update is None else",
        "return participant if True else",
    ),
    "recovery-round-behind": Mutant(
        "a restarted server goes on with the round that it has closed",
        "edge_server.storage.recovery",
        "_federation",
        "number = seen.closed + 1 if",
        "number = max(seen.closed, 1) if",
    ),
    "recovery-history-as-found": Mutant(
        "a restarted server does not complete the history from the journal",
        "edge_server.coordinator.run_start",
        "open_run",
        "folder.rewrite_history(recovered.history)",
        "pass",
    ),
    # --- sites and aggregators ---
    "gateway-forgets-updates": Mutant(
        "a restarted gateway forgets which updates it has accepted",
        "edge_server.coordinator.gateway.gateway",
        "reopen_gateway",
        "if update.receipt is not None and (",
        "if False and (",
        sites=True,
    ),
    "gateway-receipt-once": Mutant(
        "a gateway does not repeat a receipt for a device that repeats its claim",
        "edge_server.rounds.gateway.uploads",
        "on_claim",
        "return replace(gateway, pending=pending), _receipt(known)",
        "return replace(gateway, pending=pending), []",
        sites=True,
    ),
    "gateway-unrecorded": Mutant(
        "a receipt is sent before the update is in the gateway's journal",
        "edge_server.coordinator.gateway.site_work",
        "SiteWork.examine",
        "self._journal.write_examined(judged)",
        "pass",
        sites=True,
    ),
    "gateway-born-once": Mutant(
        "a gateway's birth is not repeated",
        "edge_server.rounds.gateway.machine",
        "_born_again",
        "if gateway.answered or",
        "if True or",
        sites=True,
    ),
    "sites-late-death": Mutant(
        "the last will of a gateway's earlier connection takes its site away",
        "edge_server.rounds.sites.presence",
        "site_died",
        "(death.session < known.session or known.lost_at is not None)",
        "known.lost_at is not None",
        sites=True,
    ),
    "sums-any-request": Mutant(
        "a sum of the round's earlier updates counts as one of its later ones",
        "edge_server.rounds.sites.sums",
        "on_sum",
        "if answer.request != request.digest:",
        "if (answer.run, answer.round) != (request.run, request.round):",
        sites=True,
    ),
    "aggregators-once": Mutant(
        "the work of an aggregator that has died is not done again",
        "edge_server.coordinator.aggregators.pool",
        "AggregatorPool._finish",
        "for _ in range(TRIES):",
        "for _ in range(1):",
    ),
}

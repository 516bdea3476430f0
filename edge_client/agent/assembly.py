"""Builds an agent's link and services from its settings."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_client.agent.announcer import Announcer
from edge_client.agent.certificates import CertificateService, open_renewer
from edge_client.agent.client_update.lazy_start import LazyClientUpdate
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.eligibility.service import EligibilityService
from edge_client.agent.message_intake import MessageIntake, SignaturePolicy
from edge_client.agent.messenger import Messenger
from edge_client.agent.presence import Presence
from edge_client.agent.remote.lazy_start import LazyDiagnostics
from edge_client.agent.rollout.lazy_start import LazyRollout
from edge_client.agent.service import Service
from edge_client.agent.session_runner import DataWatch, SessionRunner
from edge_client.agent.settings import AgentSettings
from edge_client.agent.state_store import StateStore
from edge_client.agent.task_context import TaskContext
from edge_client.agent.telemetry import WorkTelemetry
from edge_client.agent.worker import Housekeeping, Worker
from edge_client.data.local import DataFeed, LocalData
from edge_client.transport.link_events import Inbox
from edge_client.transport.mqtt_client import Link
from schemas.topics import Channel, DeviceTopic, device_filters

if TYPE_CHECKING:
    from edge_client.security.identity.certificate_renewer import CertificateRenewer


class Parts(NamedTuple):
    """The parts of an agent; `services` in the order in which they are called, `runner` among them."""

    link: Link
    runner: SessionRunner
    services: tuple[Service, ...]


def assemble(
    settings: AgentSettings, data: LocalData, inbox: Inbox, *, root: Path, feed: DataFeed | None
) -> Parts:
    """Build the parts of one device's agent, without connecting.

    The order of the services matters: a birth comes before all other messages of a connection, and the
    rollout and the client's update take the chunks of their own files before the session sees them.
    """
    state_store = StateStore(settings)
    context = _make_context(settings, state_store, data, root, feed)
    policy = SignaturePolicy(settings.federation, settings.device, settings.state, settings.trust)
    worker, renewer = Worker(inbox, settings.trainers()), open_renewer(settings)
    presence = Presence(settings, data, lambda: renewer.valid_until if renewer else None)
    link = make_link(settings, inbox, presence, renewer)
    messenger = Messenger(link, settings.federation, settings.device)
    telemetry = WorkTelemetry(settings, presence, messenger, root=root)
    monitor = EligibilityMonitor.of_board(settings.eligibility, cores=settings.profile.cores, root=root)
    announcer = Announcer(settings, presence, messenger, monitor)
    runner = SessionRunner(settings, context, state_store, messenger, worker, inbox, telemetry)
    return Parts(
        link,
        runner,
        (
            announcer,
            telemetry,
            *([CertificateService(renewer, link, messenger)] if renewer else []),
            EligibilityService(monitor, worker, runner, announcer),
            runner,
            LazyRollout(settings, data, inbox, messenger),
            LazyDiagnostics(settings, inbox, messenger, root=root),
            LazyClientUpdate(settings, inbox, messenger),
            MessageIntake(messenger, runner, policy, monitor, announcer, settings.veto),
            *([DataWatch(worker, runner, every_s=settings.watch_data_s)] if feed else []),
            Housekeeping(worker),
        ),
    )


def _make_context(
    settings: AgentSettings, state_store: StateStore, data: LocalData, root: Path, feed: DataFeed | None
) -> TaskContext:
    return TaskContext(
        settings.device,
        state_store.blobs,
        data,
        settings.state / "models",
        model_code=settings.model_code,
        private=state_store.private,
        signed_only=settings.trust is not None,
        checkpoints=state_store.checkpoints,
        variants=settings.variants,
        board=root,
        min_examples=settings.min_examples,
        fewest_to_train=settings.veto.min_examples,
        feed=feed,
    )


def make_link(
    settings: AgentSettings, inbox: Inbox, presence: Presence, renewer: "CertificateRenewer | None"
) -> Link:
    filters = device_filters(settings.federation, settings.device)
    return Link(
        settings.address,
        inbox,
        client_id=f"{settings.federation}-{settings.device}",
        filters=(*filters, *(renewer.filters if renewer else ())),
        will=presence.will,
        first_session=presence.next_session(),
        evidence=[str(DeviceTopic(settings.federation, settings.device, Channel.BIRTH))],
    )

"""From the devices' jobs to their tasks, signed, with the blobs that they name in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.tasks.increments import MAP, PublishedVersion, TaskBlobs, name_blobs
from edge_server.coordinator.tasks.masking import masking_terms
from edge_server.coordinator.tasks.model_publisher import ModelPublisher, ModelVersion
from edge_server.coordinator.tasks.task import TaskPlan, TaskTemplate, make_task
from edge_server.coordinator.validation.contents import max_answer_bytes
from edge_server.rounds.events import Assignment, PlanRound
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.strategy.strategy import State, Strategy, downlink_groups
from edge_server.transport.object_store.store import Depot
from schemas.messages import DeliverTask, Task, encode_message
from schemas.messages.object_store import ObjectStoreTerms as Terms
from schemas.security.secure_aggregation import MaskingTerms
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import BlobRef, encode_json
from schemas.values import Preprocessing


class TaskAssigner:
    """Makes the tasks of one run's plannings.

    One that `broadcasts` names shared topics for what several devices need; a `new_map` is one of which the
    devices have not been told. Large blobs lie in the `depot`, too, if there is one.
    """

    def __init__(
        self,
        terms: TaskTemplate,
        strategy: Strategy,
        channel_map: ChannelMap,
        store: BlobStore,
        publisher: ModelPublisher,
        manifest_signer: ManifestSigner,
        depot: Depot | None,
        *,
        broadcasts: bool,
        new_map: bool,
    ) -> None:
        self._terms, self._strategy, self._channel_map = terms, strategy, channel_map
        self._store, self._publisher, self._manifest_signer, self._depot = (
            store,
            publisher,
            manifest_signer,
            depot,
        )
        self._broadcasts, self._new_map = broadcasts, new_map

    def describe(self, preprocessing: Preprocessing) -> None:
        """From now on tasks say this of inputs and classes."""
        self._terms = replace(self._terms, preprocessing=preprocessing)

    def described(self, chunk_bytes: int) -> BlobRef:
        """The channel map as a blob."""
        return self._store.put(encode_json(self._channel_map), chunk_bytes=chunk_bytes)

    def make_again(
        self, tasks: Iterable[Task], state: State, *, tiers: Callable[[], Iterable[SubModelSpec]]
    ) -> None:
        """Make the blobs of tasks that were handed out once more: what they name is in the store again.

        Not those of tasks that began from another state, nor frames of earlier models.
        """
        planned: dict[int, list[Task]] = {}
        for task in tasks:
            planned.setdefault(task.attempt, []).append(task)
        for alike in planned.values():
            described = self.described(alike[0].blobs[MAP].chunk_bytes)
            self._frames(
                isinstance(alike[0], DeliverTask), [task.spec for task in alike], state, described, tiers
            )

    def assignments(
        self,
        command: PlanRound,
        jobs: Mapping[str, TaskPlan],
        state: State,
        *,
        state_sha256: str,
        described: BlobRef,
        tiers: Callable[[], Iterable[SubModelSpec]],
        graphs: Mapping[str, BlobRef],
    ) -> dict[str, Assignment]:
        """Each device's task; sub-models that are alike are one blob, `tiers` are those of later rounds.

        `graphs` are those of the sub-models to export, by their JSON.
        """
        parts = self._parts(command, jobs, state, described, tiers, graphs)
        masking = self._masking(command, jobs)
        terms = self._published(ref for one in parts.values() for ref in one.blobs.values())
        made, limits = {}, dict[str, int]()
        for name, job in jobs.items():
            unsigned = make_task(
                self._terms,
                command,
                name,
                job,
                blobs=parts[name],
                store=terms,
                masking=masking,
                participants=len(jobs),
            )
            task = self._manifest_signer.task(unsigned, name, parent_sha256=state_sha256)
            # A task too large to be sent ends the run here, where the reason is known.
            encode_message(task)
            alike = repr((job.cut.spec, job.cut.personal, job.cut.returned))
            if alike not in limits:
                limits[alike] = max_answer_bytes(task, self._channel_map, self._strategy.groups)
            made[name] = Assignment(task, limits[alike])
        return made

    def _masking(self, command: PlanRound, jobs: Mapping[str, TaskPlan]) -> MaskingTerms | None:
        """What the round's devices mask by; none where their updates are read one by one."""
        config = self._terms.config
        if not config.privacy.secure_aggregation or command.deliver or not jobs:
            return None
        examples = {device.name: device.data.examples for device in command.devices}
        return masking_terms(
            config,
            [job.cut.spec for job in jobs.values()],
            [examples[name] for name in jobs],
            self._channel_map,
        )

    def _parts(
        self,
        command: PlanRound,
        jobs: Mapping[str, TaskPlan],
        state: State,
        described: BlobRef,
        tiers: Callable[[], Iterable[SubModelSpec]],
        graphs: Mapping[str, BlobRef],
    ) -> dict[str, TaskBlobs]:
        """What each device starts from; tasks that are handed out one at a time share nothing."""
        shared = self._broadcasts and command.wanted is None
        specs = {name: job.cut.spec for name, job in jobs.items()}
        frames = self._frames(command.deliver, specs.values(), state, described, tiers)
        parts = name_blobs(
            specs, frames, described=described, shared=shared, new_map=self._new_map, graphs=graphs
        )
        self._new_map = self._new_map and not shared
        return parts

    def _frames(
        self,
        deliver: bool,
        specs: Iterable[SubModelSpec],
        state: State,
        described: BlobRef,
        tiers: Callable[[], Iterable[SubModelSpec]],
    ) -> tuple[PublishedVersion, ...]:
        """The model as these sub-models receive it; the same ones give the same blobs."""
        holding = partial(downlink_groups, self._strategy, state, channel_map=self._channel_map)
        edition = ModelVersion(state.params, state.round, holding, described.chunk_bytes)
        # A model that is there to stay is what it is.
        if deliver:
            return self._publisher.exact(edition, specs)
        return self._publisher.frames(edition, specs, tiers)

    def _published(self, refs: Iterable[BlobRef]) -> Terms | None:
        """What tasks say of the store, in which their large blobs now lie; None where there is none."""
        if self._depot is None:
            return None
        self._depot.publish(refs, self._store)
        return self._depot.terms

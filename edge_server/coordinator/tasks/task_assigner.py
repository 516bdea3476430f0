"""Makes the signed tasks of a planning, and stores the blobs that they name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.tasks import increments, masking
from edge_server.coordinator.tasks.model_publisher import ModelPublisher, ModelVersion
from edge_server.coordinator.tasks.task import TaskPlan, TaskTemplate, counts_classes, make_task
from edge_server.coordinator.validation.contents import max_answer_bytes
from edge_server.rounds.events import Assignment, PlanRound
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.strategy import Network, State, Strategy
from edge_server.transport.object_store.store import ObjectStore
from schemas import messages, values
from schemas.messages.blobs import ObjectStoreTerms
from schemas.messages.tasks import FIXED
from schemas.security.secure_aggregation import MaskingTerms
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.tensors.chunks import BlobRef, encode_json


class TaskAssigner:
    """Makes the tasks of one run's plannings.

    With `broadcasts`, tasks name shared topics for blobs that several devices need. `new_map` says that no
    device has the channel map yet. `fixed` is what the network's factory has drawn besides its weights. Large
    blobs are also published in the `object_store`, if there is one.
    """

    def __init__(
        self,
        template: TaskTemplate,
        strategy: Strategy,
        network: Network,
        fixed: Arrays,
        store: BlobStore,
        publisher: ModelPublisher,
        manifest_signer: ManifestSigner,
        object_store: ObjectStore | None,
        *,
        broadcasts: bool,
        new_map: bool,
    ) -> None:
        self._template, self._strategy, self._channel_map = template, strategy, network.channel_map
        self._parts, self._fixed = network.parts, fixed
        self._frozen = network.parts.frozen(network.channel_map)
        self._store, self._object_store, self._publisher = store, object_store, publisher
        self._manifest_signer = manifest_signer
        self._broadcasts, self._new_map = broadcasts, new_map

    def set_preprocessing(self, preprocessing: values.Preprocessing) -> None:
        """Set the preprocessing that later tasks state."""
        self._template = replace(self._template, preprocessing=preprocessing)

    def store_lasting(self, chunk_bytes: int) -> dict[str, BlobRef]:
        """Store the blobs that are the same in all tasks of the run; returns them by name."""
        described = self._store.put_blob(encode_json(self._channel_map), chunk_bytes=chunk_bytes)
        if not self._fixed:
            return {increments.MAP: described}
        return {
            increments.MAP: described,
            FIXED: self._store.put_groups({FIXED: self._fixed}, chunk_bytes=chunk_bytes),
        }

    def restore_blobs(
        self, tasks: Iterable[messages.Task], state: State, *, tiers: Callable[[], Iterable[SubModelSpec]]
    ) -> None:
        """Make the blobs of open tasks again, except those of other states."""
        by_attempt: dict[int, list[messages.Task]] = {}
        for task in tasks:
            by_attempt.setdefault(task.attempt, []).append(task)
        for planned in by_attempt.values():
            chunk_bytes = planned[0].blobs[increments.MAP].chunk_bytes
            self.store_lasting(chunk_bytes)
            deliver = isinstance(planned[0], messages.DeliverTask)
            self._publish(deliver, [task.spec for task in planned], state, chunk_bytes, tiers)

    def assign(
        self,
        command: PlanRound,
        plans: Mapping[str, TaskPlan],
        state: State,
        *,
        state_sha256: str,
        lasting: Mapping[str, BlobRef],
        tiers: Callable[[], Iterable[SubModelSpec]],
        graphs: Mapping[str, Mapping[str, BlobRef]],
    ) -> dict[str, Assignment]:
        """Each device's task, its blobs in the store; `tiers` are the sub-models of later rounds.

        `lasting` are the blobs of `store_lasting`; `graphs` has the ONNX graphs of devices that need them, by
        the names of their blobs.
        """
        blobs = self._blobs(command, plans, state, lasting, tiers, graphs)
        masking = self._masking(command, plans)
        store = self._upload(ref for named in blobs.values() for ref in named.blobs.values())
        made, limits = {}, dict[str, int]()
        for name, plan in plans.items():
            unsigned = make_task(
                self._template,
                command,
                name,
                plan,
                blobs=blobs[name],
                store=store,
                masking=masking,
                participants=len(plans),
            )
            task = self._manifest_signer.task(unsigned, name, parent_sha256=state_sha256)
            # A task too large to be sent ends the run here, where the reason is known.
            messages.encode_message(task)
            cut = repr((plan.cut.spec, plan.cut.personal, plan.cut.returned, plan.cut.adapters))
            if cut not in limits:
                limits[cut] = max_answer_bytes(task, self._channel_map, self._strategy.groups)
            made[name] = Assignment(task, limits[cut])
        return made

    def _masking(self, command: PlanRound, plans: Mapping[str, TaskPlan]) -> MaskingTerms | None:
        """Masking terms of the round; None without secure aggregation."""
        config, model = self._template.config, self._template.model
        if not config.privacy.secure_aggregation or command.deliver or not plans:
            return None
        counts = {device.name: device.data.examples for device in command.devices}
        cuts, examples = [plan.cut for plan in plans.values()], [counts[name] for name in plans]
        if (asked := cuts[0].statistics) is not None:
            return masking.statistics_terms(config, asked, model, examples)
        specs = [cut.spec for cut in cuts]
        if self._strategy.is_summed(command.round):
            numbers = masking.sums_map(self._strategy.groups, specs[0], model, self._channel_map)
            return masking.figures_terms(config, specs, examples, numbers)
        if not self._strategy.trains:
            figures = masking.figures_map(model, self._channel_map, by_class=counts_classes(config, model))
            return masking.figures_terms(config, specs, examples, figures)
        return masking.masking_terms(config, specs, examples, self._parts.cut(self._channel_map))

    def _blobs(
        self,
        command: PlanRound,
        plans: Mapping[str, TaskPlan],
        state: State,
        lasting: Mapping[str, BlobRef],
        tiers: Callable[[], Iterable[SubModelSpec]],
        graphs: Mapping[str, Mapping[str, BlobRef]],
    ) -> dict[str, increments.TaskBlobs]:
        """Each device's blobs; tasks assigned one at a time have no shared topics."""
        shared = self._broadcasts and command.wanted is None
        specs = {name: plan.cut.spec for name, plan in plans.items()}
        chunk_bytes = lasting[increments.MAP].chunk_bytes
        frames, frozen = self._publish(command.deliver, specs.values(), state, chunk_bytes, tiers)
        named = increments.name_blobs(
            specs, frames, frozen=frozen, lasting=lasting, shared=shared, new_map=self._new_map, graphs=graphs
        )
        self._new_map = self._new_map and not shared
        return named

    def _publish(
        self,
        deliver: bool,
        specs: Iterable[SubModelSpec],
        state: State,
        chunk_bytes: int,
        tiers: Callable[[], Iterable[SubModelSpec]],
    ) -> tuple[tuple[increments.PublishedVersion, ...], increments.PublishedVersion]:
        """Publish the model for these sub-models, and what is frozen of it; repeating makes the same blobs.

        Nothing is published for statistics, which need no model.
        """
        if self._strategy.statistics:
            return (), increments.NOTHING_FROZEN
        holding = partial(downlink_groups, self._strategy, state, channel_map=self._channel_map, tiers=tiers)
        specs = list(specs)
        version = ModelVersion(state.params, state.round, holding, chunk_bytes, self._frozen)
        frozen = self._publisher.publish_frozen(version, [*specs, *(tiers() if self._frozen else ())])
        if deliver:
            return self._publisher.publish_exact(version, specs), frozen
        return self._publisher.publish(version, specs, tiers), frozen

    def _upload(self, refs: Iterable[BlobRef]) -> ObjectStoreTerms | None:
        """Publish large blobs in the object store; returns the store's terms, None without a store."""
        if self._object_store is None:
            return None
        self._object_store.publish(refs, self._store)
        return self._object_store.terms

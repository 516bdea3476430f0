"""A cohort of devices and their server in memory, with the real state machines of both sides."""

from dataclasses import dataclass, field

import numpy as np

from edge_client.pruning.index_sets import expand, expected_shapes
from edge_client.security.secure_aggregation import masked_figures, masks, protocol
from edge_client.security.secure_aggregation.cohort import Membership
from edge_server.security.secure_aggregation import protocol as machine
from edge_server.security.secure_aggregation.protocol import (
    MaskAgreement,
    OpenedSecrets,
    mean_over_survivors,
    unmasked_sum,
)
from schemas.messages import TrainTask, decode_message, encode_message
from schemas.security.secure_aggregation import MaskingTerms
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors.chunks import BlobRef, digest_of
from tests.schemas.examples import plain_task

A, B = Segment(channels=6, group="a"), Segment(channels=4, group="b")
CHANNELS = ChannelMap(
    groups={"a": ChannelGroup(channels=6, layers=("one",)), "b": ChannelGroup(channels=4, layers=("two",))},
    parameters={
        "one.weight": ParameterLayout(shape=(6, 3), axes={0: (A,)}),
        "two.weight": ParameterLayout(shape=(4, 6), axes={0: (B,), 1: (A,)}),
        "two.bias": ParameterLayout(shape=(4,), axes={0: (B,)}),
        "out.bias": ParameterLayout(shape=(2,)),
    },
)
SMALL = SubModelSpec(kept={"a": 2, "b": 1})
MIDDLE = SubModelSpec(kept={"a": 4, "b": 3})
FULL = SubModelSpec()
TIERS = (SMALL, MIDDLE, FULL)
RANGE = 4.0


def terms_of(specs: tuple[SubModelSpec, ...], *, max_weight: int = 100, **changes: object) -> MaskingTerms:
    parts, _ = masked_figures.partition(masked_figures.distinct(specs), CHANNELS)
    return MaskingTerms(
        specs=masked_figures.distinct(specs),
        segments=parts,
        value_range=RANGE,
        max_weight=max_weight,
        **{"min_holders": 3, "threshold": 2 / 3, **changes},
    )


def task_of(terms: MaskingTerms, spec: SubModelSpec, *, attempt: int = 1) -> TrainTask:
    blobs = {"state": BlobRef(digest=digest_of(b"state"), size=10)}
    return plain_task(TrainTask, attempt=attempt, spec=spec, masking=terms, blobs=blobs)


def carried(message):
    return decode_message(encode_message(message))


@dataclass
class Cohort:
    """Devices named d00, d01, ... with these sub-models; `gone` devices send and receive nothing more."""

    specs: tuple[SubModelSpec, ...]
    terms: MaskingTerms
    weights: tuple[int, ...]
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def __post_init__(self):
        self.names = [f"d{index:02}" for index in range(len(self.specs))]
        tasks = {n: task_of(self.terms, spec) for n, spec in zip(self.names, self.specs, strict=True)}
        self.server = MaskAgreement(tasks)
        self.devices: dict[str, Membership] = {
            name: protocol.begin(name, task, self.rng.bytes(32)) for name, task in tasks.items()
        }
        self.updates = {
            name: {
                parameter: self.rng.uniform(-1, 1, shape).astype(np.float32)
                for parameter, shape in expected_shapes(task.spec, CHANNELS).items()
            }
            for name, task in tasks.items()
        }
        self.sent: dict[str, dict[int, masks.Ring]] = {}
        self.gone: set[str] = set()

    def _present(self):
        return [name for name in self.names if name not in self.gone]

    def key(self):
        for name in self._present():
            self.server, _ = machine.take_part(
                self.server, carried(protocol.advertisement(self.devices[name]))
            )

    def share(self):
        self.server, introductions = machine.form_cohort(self.server)
        for message in introductions:
            if message.device not in self.gone:
                device = protocol.join_cohort(self.devices[message.device], carried(message))
                self.devices[message.device] = device
                self.server, _ = machine.take_part(self.server, carried(device.shares))

    def mask(self):
        self.server, parcels = machine.fix_masks(self.server)
        for message in parcels:
            if message.device not in self.gone:
                self.devices[message.device] = protocol.accept_shares(
                    self.devices[message.device], carried(message)
                )
        for message in parcels:
            if message.device not in self.gone:
                self.sent[message.device] = self.masked(message.device)

    def masked(self, name):
        device = self.devices[name]
        labels = masked_figures.checked_labels(self.terms, CHANNELS)
        vectors = masked_figures.split(self.updates[name], device.task.spec, labels, CHANNELS)
        chosen, scale = protocol.masks(device)
        weight = self.weights[self.names.index(name)]
        ring = {index: masks.quantise(vectors[index], weight, scale) for index in chosen.segments}
        return masks.apply_masks(ring, chosen)

    def unmask(self, *, silent=()):
        """All devices with masked updates except the `silent` ones help; returns the opened secrets."""
        self.server, requests = machine.request_unmasking(self.server, self.sent.keys())
        for message in requests:
            if message.device not in silent:
                device = protocol.unmask(self.devices[message.device], carried(message))
                self.devices[message.device] = device
                self.server, _ = machine.take_part(self.server, carried(device.answer[1]))
        return machine.open_sum(self.server)

    def run(self, *, lost_before_shares=(), lost_before_masked=(), lost_before_help=()):
        self.key()
        self.gone |= set(lost_before_shares)
        self.share()
        self.gone |= set(lost_before_masked)
        self.mask()
        return self.unmask(silent=lost_before_help)

    def mean(self, opened: OpenedSecrets):
        _, labels = masked_figures.partition(self.terms.specs, CHANNELS)
        return mean_over_survivors(opened, self.totals(opened), labels)

    def totals(self, opened: OpenedSecrets):
        return {
            index: unmasked_sum(
                opened, index, [update[index] for update in self.sent.values() if index in update]
            )
            for index in opened.segments
        }

    def plain_mean(self, names, segments_shown):
        """The weighted mean over holders in doubles, 0 where no segment is shown, and its maximum error."""
        _, labels = masked_figures.partition(self.terms.specs, CHANNELS)
        scale = masks.Scale(RANGE, self.terms.max_weight, len(self.server.cohort.members))
        mean, bound = {}, {}
        for parameter, label in labels.items():
            total, mass, holders = (np.zeros(label.shape) for _ in range(3))
            for name in names:
                cut = {parameter: self.updates[name][parameter].astype(np.float64)}
                full, held = expand(cut, self.devices[name].task.spec, CHANNELS)
                weight = self.weights[self.names.index(name)]
                total += weight * full[parameter]
                mass += weight * held[parameter]
                holders += held[parameter]
            shown = np.isin(label, segments_shown) & (mass > 0)
            mean[parameter] = np.divide(total, mass, out=np.zeros_like(total), where=shown)
            # half a step per holder from quantisation, and one part in 2^23 of the mean from float32 rounding
            error = np.divide(holders / 2 * scale.step, mass, out=np.zeros_like(total), where=shown)
            bound[parameter] = error + np.abs(mean[parameter]) * 2.0**-23
        return mean, bound

"""One example of every message and value, with all optional fields set."""

from typing import Any, TypeVar

import numpy as np

from schemas import messages, values
from schemas.base import fields_of
from schemas.errors import Reason
from schemas.messages.blobs import Addresses, ObjectStoreTerms
from schemas.messages.client_update import UpdateCause, UpdateStage, UpdateTerms
from schemas.messages.remote import Diagnostic, DiagnosticObstacle
from schemas.messages.rollout import Cause, ModelMeasurement, Stage, TrialTerms
from schemas.security.manifest import Manifest, SignedManifest
from schemas.security.secure_aggregation import MaskedSegment, MaskingTerms, Member
from schemas.strategy import Component, PersonalPruning, StrategySpec, TrainingPlan
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors.chunks import BlobRef, digest_of

AnyTask = TypeVar("AnyTask", messages.TrainTask, messages.DeliverTask)
FEDERATION, DEVICE, RUN, SITE = "home", "pi-3", "run-1", "barn"
DIGEST = digest_of(b"a blob")
PEM = "-----BEGIN {0}-----\nMIIB\n-----END {0}-----\n"
SIGNED = SignedManifest(
    manifest=Manifest(
        what="task",
        federation=FEDERATION,
        run=RUN,
        round=3,
        attempt=4,
        device=DEVICE,
        tier=2,
        ratio="0.5",
        sha256=DIGEST,
        spec_sha256=digest_of(b"a spec"),
        parent_sha256=digest_of(b"a state"),
        issued_at=1_700_000_000,
    ),
    key=digest_of(b"a key"),
    signature="0123456789abcdef" * 8,
)


def plain_task(kind: type[AnyTask], **stated: Any) -> AnyTask:
    """A task of round 1 that states no more than it must."""
    usual = {"federation": FEDERATION, "run": RUN, "round": 1, "attempt": 1, "tier": 1, "ratio": 0.0}
    usual |= {"model": values.ModelSpec(name="two-nn", input_shape=(1, 8, 8), num_classes=10), "blobs": {}}
    training = {"training": TrainingPlan()} if kind is messages.TrainTask else {}
    return kind(**(usual | training | stated))


def plain_update(device: str = "pi", examples: int = 10, **stated: Any) -> messages.Update:
    """An update of round 1 that states no more than it must."""
    usual = {"federation": FEDERATION, "device": device, "run": RUN, "round": 1, "attempt": 1}
    metrics = values.TrainingMetrics(examples=examples, epochs=1, steps=1)
    return messages.Update(**(usual | {"blob": BlobRef(digest=DIGEST, size=1), "metrics": metrics} | stated))


def plain_metrics(**stated: Any) -> values.DeliveryMetrics:
    """What a device must say of a delivered model."""
    usual = {"parameters": 1, "macs": 1, "onnx_bytes": 1, "onnx_sha256": "0" * 64}
    return values.DeliveryMetrics(**(usual | {"examples": 0, "max_difference": 0, "latency_ms": 0} | stated))


TRAIN_TASK = messages.TrainTask(
    federation=FEDERATION,
    run=RUN,
    round=3,
    attempt=4,
    tier=2,
    ratio=0.5,
    model=values.ModelSpec(name="two-nn", input_shape=(1, 8, 8), num_classes=10),
    preprocessing=values.Preprocessing(scale=16.0, mean=(0.5,), std=(0.25,), class_names=("zero", "one")),
    spec=SubModelSpec(kept={"conv2": 32, "linear1": (4, 0, 2)}),
    personal=PersonalPruning(ratios={"conv2": 0.5}),
    returned=("conv2", "linear2"),
    masking=MaskingTerms(
        specs=(SubModelSpec(kept={"conv2": 32}), SubModelSpec()),
        segments=(MaskedSegment(holders=(1,), size=100), MaskedSegment(holders=(0, 1), size=300)),
        value_range=8.0,
        weighting="examples",
        max_weight=120,
        min_holders=3,
        threshold=0.75,
    ),
    depot=ObjectStoreTerms(address="https://store.lan:9000/home/", above=50_000_000, resumable=True),
    addresses=Addresses(
        get={"state": f"https://store.lan:9000/home/blobs/{DIGEST}?signature=1"},
        put="https://store.lan:9000/home/updates/run-1/4/pi-3?signature=2",
    ),
    uplink=(Component(name="int8", options={"levels": 7}), Component(name="zstd")),
    training=TrainingPlan(
        optimizer="sgd",
        learning_rate=0.05,
        momentum=0.9,
        weight_decay=0.0001,
        batch_size=16,
        local_epochs=2,
        seed=7,
        participants=10,
        objectives=(
            Component(name="prox", options={"mu": 0.1}),
            Component(name="attentive", options={"layers": ("conv2",)}),
        ),
    ),
    blobs={"layer-1": BlobRef(digest=DIGEST, size=300_000, chunk_bytes=65_536)},
    layers=(messages.Increment(blob="layer-1", unpacked=400_000),),
    channels={"layer-1": 1},
    deadline_s=599.5,
    manifest=SIGNED,
)
DELIVER_TASK = messages.DeliverTask(
    **fields_of(TRAIN_TASK, "federation", "run", "round", "tier", "ratio", "model", "preprocessing", "spec"),
    **fields_of(TRAIN_TASK, "depot", "layers", "channels"),
    attempt=5,
    addresses=TRAIN_TASK.addresses.model_copy(update={"put": None}),
    blobs={**TRAIN_TASK.blobs, "graph": BlobRef(digest=DIGEST, size=70_000)},
    deadline_s=599.5,
    trial=TrialTerms(examples=100, watch_s=0.0),
    provenance={"git": "c405d1a"},
    manifest=SIGNED,
)
COLUMNS = (
    values.Feature(name="temperature", unit="°C", kind="number"),
    values.Feature(name="door", kind="truth"),
)
TABLE_CARD = values.DataCard(source="csv:a.csv", examples=9, input_shape=(2,), num_classes=2, columns=COLUMNS)
OF_A_TABLE = values.Preprocessing(scale=1.0, mean=(20.0, 0.5), std=(2.0, 0.5), columns=COLUMNS)

OF_DEVICE = {"federation": FEDERATION, "device": DEVICE}
OF_ATTEMPT = {**OF_DEVICE, "run": RUN, "attempt": 4}
OF_TASK = {**OF_ATTEMPT, "round": 3}
OF_SITE = {"federation": FEDERATION, "site": SITE}
ASKED = {**OF_DEVICE, "request": "0123456789abcdef"}
OF_MODEL = {**OF_DEVICE, "rollout": "run-1-20240101", "version": RUN}
OF_CLIENT = {**OF_DEVICE, "rollout": "0.2.0-20240101", "version": "0.2.0"}

MESSAGES_BY_KIND: dict[str, messages.Message] = {
    "birth": messages.Birth(
        **OF_DEVICE,
        session=1700000000001,
        certificate_until=1.8e9,
        profile=values.CapabilityProfile(
            machine="Raspberry Pi 3",
            processor="BCM2835",
            architecture="armv7l",
            cores=4,
            memory_bytes=1_000_000_000,
            memory_free_bytes=600_000_000,
            disk_bytes=32_000_000_000,
            disk_free_bytes=20_000_000_000,
            accelerator="none",
            speed=values.MeasuredSpeed(
                training_macs_per_s=1.5e9, memory_bytes_per_s=2e9, resident_bytes=200_000_000
            ),
            further_speeds=(
                values.MeasuredSpeed(trainer="onnx", training_macs_per_s=2e9, resident_bytes=85_000_000),
            ),
            celsius=61.5,
            throttling=("under-voltage-since-boot",),
            power="battery",
            battery=0.5,
            link="wifi",
            tier=2,
            software={"torch": "2.5.1"},
        ),
        data=values.DataCard(source="digits", examples=120, input_shape=(1, 8, 8), num_classes=10),
        eligibility=values.Eligibility.PAUSE,
        ineligible_because="80 °C, at most 70 °C",
        instance="4f2a31c09d8e7b60",
        origin="raspberrypi, process 411, 192.168.1.7",
    ),
    "death": messages.Death(**OF_DEVICE, session=1700000000001),
    "task": TRAIN_TASK,
    "task-reply": messages.TaskReply(
        **OF_TASK, accepted=False, reason=Reason.TASK_FAILED, detail="no pictures", listens=(1, 2)
    ),
    "heard": messages.BroadcastProgress(**OF_ATTEMPT, digest=DIGEST, index=7),
    "broadcast-end": messages.BroadcastEnd(**OF_ATTEMPT, digests=(DIGEST,)),
    "site-birth": messages.SiteBirth(**OF_SITE, session=4),
    "site-death": messages.SiteDeath(**OF_SITE, session=4),
    "site-terms": messages.SiteTerms(
        **OF_SITE,
        run=RUN,
        sites=(SITE, "barn.loft"),
        groups=(Component(name="statistics"),),
        transforms=(Component(name="discount-staleness", options={"power": 0.5}),),
        uploads_at_once=8,
    ),
    "sum-request": messages.SumRequest(
        **OF_SITE,
        run=RUN,
        round=4,
        members={"barn.pi-3": messages.SumMember(attempt=5, digest=DIGEST, weight=600, staleness=1)},
    ),
    "site-sum": messages.SiteSum(
        **OF_SITE,
        run=RUN,
        round=4,
        request=DIGEST,
        members={"barn.pi-3": 600},
        blob=BlobRef(digest=DIGEST, size=13_000_000),
    ),
    "update": messages.Update(
        **OF_TASK,
        blob=BlobRef(digest=DIGEST, size=1234),
        spec=SubModelSpec(kept={"conv2": (5, 1)}),
        metrics=values.TrainingMetrics(
            examples=100, epochs=2, steps=14, train_loss=0.75, received_loss=1.5, accuracy=0.5, seconds=12.25
        ),
        deposited=True,
        heard_bytes=1_000_000,
        fetched_bytes=2_000_000,
    ),
    "delivery": messages.Delivery(
        **OF_DEVICE,
        run=RUN,
        round=10,
        attempt=12,
        metrics=values.DeliveryMetrics(
            parameters=498_365,
            macs=1_000_000,
            onnx_bytes=2_000_000,
            onnx_sha256=DIGEST,
            examples=20,
            torch_accuracy=0.875,
            onnx_accuracy=0.875,
            max_difference=1e-6,
            latency_ms=3.5,
            variant="int8",
            variant_accuracy=0.875,
            why="fastest at 3.500 ms; int8 2.00 x as fast as fp32, no accuracy lost",
            verdict=values.DeliveryVerdict(
                served=False,
                why="accuracy: 87.5% of 16 examples, 93.8% before",
                earlier="run-1 round 4",
                accuracy=0.875,
                earlier_accuracy=0.9375,
                examples=16,
            ),
        ),
        heard_bytes=1_000_000,
        fetched_bytes=2_000_000,
    ),
    "blob-request": messages.BlobRequest(**OF_DEVICE, digest=DIGEST, first=16, count=8),
    "acknowledgement": messages.Acknowledgement(**OF_ATTEMPT, digest=DIGEST, manifest=SIGNED),
    "refusal": messages.Refusal(
        **OF_ATTEMPT,
        digest=DIGEST,
        reason=Reason.STALE_ROUND,
        detail="round 4 is under way",
        instance="4f2a31c09d8e7b60",
    ),
    "telemetry": messages.Telemetry(
        **OF_DEVICE,
        session=1700000000001,
        phase="training",
        round=3,
        epoch=1,
        epochs=2,
        loss=0.75,
        board=values.BoardState(
            celsius=48.5, battery=0.8, memory_bytes=310_000_000, memory_free_bytes=120_000_000, load=0.9
        ),
    ),
    "round-announcement": messages.RoundAnnouncement(
        federation=FEDERATION, run=RUN, round=3, rounds=10, phase="training", selected=5
    ),
    "federation-end": messages.FederationEnd(federation=FEDERATION, run=RUN, outcome="finished", rounds=10),
    "lease": messages.Lease(
        federation=FEDERATION,
        state="held",
        epoch=2,
        beat=17,
        holder=messages.LeaseHolder(
            instance="9f2c",
            host="server-1",
            machine="boot/pid:[1]",
            pid=4711,
            ticks=99,
            folder="/srv/run",
            since=1.7e9,
        ),
        run=RUN,
        standby="7a11",
    ),
    "standby-report": messages.StandbyReport(
        federation=FEDERATION, standby="7a11", series="b0b0", known=9, confirmed=8, origin="server-2"
    ),
    "standby-entry": messages.StandbyEntry(
        federation=FEDERATION,
        standby="7a11",
        series="b0b0",
        number=9,
        entry=BlobRef(digest=DIGEST, size=2048),
    ),
    "standby-refusal": messages.StandbyRefusal(
        federation=FEDERATION, standby="7a11", detail="differential privacy"
    ),
    "certificate-request": messages.CertificateRequest(
        **OF_DEVICE, csr=PEM.format("CERTIFICATE REQUEST"), proof=DIGEST
    ),
    "issued-certificate": messages.IssuedCertificate(
        **OF_DEVICE, certificate=PEM.format("CERTIFICATE"), authority=PEM.format("CERTIFICATE"), proof=DIGEST
    ),
    "key-advertisement": messages.KeyAdvertisement(**OF_TASK, mask_key=DIGEST, share_key=DIGEST),
    "mask-cohort": messages.MaskCohort(
        **OF_TASK, members=(Member(name=DEVICE, sub_model=1, mask_key=DIGEST, share_key=DIGEST),)
    ),
    "key-shares": messages.KeyShares(**OF_TASK, shares={"pi-4": "0f" * 115}),
    "entrusted-shares": messages.EntrustedShares(**OF_TASK, shares={"pi-4": "f0" * 115}),
    "unmask-request": messages.UnmaskRequest(**OF_TASK, survivors=(DEVICE, "pi-4")),
    "unmask-answer": messages.UnmaskAnswer(
        **OF_TASK, seeds={DEVICE: ("0a" * 33, "0b" * 33), "pi-4": ("0c" * 33,)}, keys={"pi-5": "0d" * 33}
    ),
    "model-offer": messages.ModelOffer(
        **OF_MODEL,
        tier=2,
        blob=BlobRef(digest=DIGEST, size=1_990_000),
        manifest=SIGNED,
        terms=TrialTerms(
            examples=100, accuracy_drop=0.01, latency_ratio=2.0, error_rate=0.05, crashes=1, watch_s=60.0
        ),
    ),
    "diagnostic-request": messages.DiagnosticRequest(
        **ASKED, what=Diagnostic.LOGS, since_s=3600.0, level="warning", lines=200, wanted=(4, 5)
    ),
    "diagnostic-receipt": messages.DiagnosticReceipt(**ASKED),
    "diagnostic-part": messages.DiagnosticPart(
        **ASKED, part=1, parts=2, digest=DIGEST, text='{"what": "doctor"}'
    ),
    "diagnostic-refusal": messages.DiagnosticRefusal(
        **ASKED,
        obstacle=DiagnosticObstacle.RATE_LIMITED,
        again_s=60.0,
        detail="more than 4 such requests in a row",
    ),
    "model-withdrawal": messages.ModelWithdrawal(**OF_MODEL, detail="2 of 2 failed in the canary"),
    "model-report": messages.ModelReport(
        **OF_MODEL,
        stage=Stage.REFUSED,
        cause=Cause.ACCURACY,
        detail="50.0% of 100 examples, the running model 90.0%",
        running=ModelMeasurement(examples=100, accuracy=0.875, latency_ms=1.5),
        candidate=ModelMeasurement(examples=100, accuracy=0.5, latency_ms=1.25),
    ),
    "client-offer": messages.ClientOffer(
        **OF_CLIENT,
        blob=BlobRef(digest=DIGEST, size=9_000_000, chunk_bytes=65_536),
        manifest=SIGNED,
        fits=("cp311-aarch64", "cp312-aarch64"),
        python=">=3.11",
        installed_bytes=40_000_000,
        terms=UpdateTerms(watch_s=60.0, connect_s=30.0, starts=2),
    ),
    "client-withdrawal": messages.ClientWithdrawal(**OF_CLIENT, detail="canary: 1 of 1 failed"),
    "client-report": messages.ClientReport(
        **OF_CLIENT,
        stage=UpdateStage.ROLLED_BACK,
        cause=UpdateCause.CRASHES,
        detail="3 starts while it was watched",
        running="0.1.0",
        had_it=True,
    ),
}

STRATEGY = StrategySpec(
    fraction=Component(name="constant", options={"value": 0.5}),
    local_epochs=Component(name="constant", options={"value": 2.0}),
    pruner=Component(name="attention", options={"first_round": "score-only"}),
    objectives=(Component(name="prox", options={"mu": 0.1}),),
    groups=(Component(name="control"),),
    transforms=(Component(name="attention-matching"), Component(name="fill-with-global")),
    server_optimizer=Component(name="sgd", options={"learning_rate": 0.5}),
    downlink=(Component(name="fp16"),),
    uplink=(Component(name="top-k", options={"share": 0.05}), Component(name="zstd", options={"level": 9})),
)

# A convolution of 2 channels, flattened from 3x3 maps into a linear layer of 4 classes.
CHANNEL_MAP = ChannelMap(
    groups={"conv": ChannelGroup(channels=2, layers=("conv", "norm"), multiple=2)},
    parameters={
        "conv.weight": ParameterLayout(
            shape=(2, 1, 3, 3), axes={0: (Segment(channels=2, group="conv"),), 1: (Segment(channels=1),)}
        ),
        "linear.weight": ParameterLayout(
            shape=(4, 18), axes={1: (Segment(channels=2, group="conv", repeat=9),)}
        ),
        "linear.bias": ParameterLayout(shape=(4,)),
    },
)

SPEC = SubModelSpec(kept={"conv": (1, 0), "hidden": 3})

GROUPS = {
    "model": {
        "linear.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "linear.bias": np.array([0.5, -0.5], np.float32),
    },
    "attention": {"linear": np.array([0.25, 0.75], np.float32)},
}

RECEIPT = messages.SiteReceipt(
    site=SITE,
    norms={"model": 0.01, "model peak": 0.2},
    moved=True,
    parameters=("fc.weight", "fc.bias"),
    groups=BlobRef(digest=DIGEST, size=4000),
)
UPDATE_AT_A_SITE = MESSAGES_BY_KIND["update"].model_copy(update={"device": "barn.pi-3", "receipt": RECEIPT})

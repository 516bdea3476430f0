"""The test of each round's model: in this process before the next round, or in others during it."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from edge_client.system.hardware.processor import usable_cores
from edge_client.training.results import Evaluation
from edge_server.coordinator import model_process
from edge_server.coordinator.evaluation import by_tier, distinct
from edge_server.coordinator.global_model import has_diverged
from edge_server.coordinator.model_state import ModelState
from edge_server.storage.run_folder import RunFolder
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays

log = logging.getLogger(__name__)

LONG_MACS = 5e9
"""Multiply-accumulates (a tenth of a second) from which a test of the full model overlaps the next round."""
CORES_PER_TESTER = 4
DOUBTFUL_LOSS = 1e12  # With a larger loss on some examples, others may give an infinite one


@dataclass(frozen=True, eq=False)
class RoundTest:
    """The test after a round: what was `found`, or the parts of it that still run.

    `unfit`: a glance at the model shows that it yields no finite numbers.
    """

    number: int
    tiers: Mapping[int, SubModelSpec] = field(default_factory=dict)
    found: Mapping[int, Evaluation] | None = None
    parts: tuple[Future[model_process.Evaluated], ...] = ()
    unfit: bool = False

    @property
    def is_done(self) -> bool:
        """Whether nothing has to be waited for."""
        return all(part.done() for part in self.parts)

    def when_done(self, call: Callable[[], None]) -> None:
        """Call once nothing has to be waited for, in this thread or in another one."""
        if not self.parts:
            call()
        for part in self.parts:
            # The last one to end finds all of them done; two may find that at once.
            part.add_done_callback(lambda _: call() if self.is_done else None)


class RoundTests:
    """Tests the model of one run."""

    def __init__(self, model: ModelState, folder: RunFolder) -> None:
        self._model, self._folder = model, folder
        self._testers: list[model_process.ModelProcess] | None = None

    def begin(self, number: int) -> RoundTest:
        """Begin the test that is due after round `number`, whose model is in the run folder.

        Without the layers that devices keep, a model cannot be tested; statistics do not change it.
        """
        strategy, testing = self._model.context.strategy, self._model.context.testing
        asked = not (strategy.withholds or strategy.statistics)
        tiers = testing.due(number, self._model.tier_spec) if asked else {}
        if not tiers:
            return RoundTest(number, found={})
        if self._testers is None:
            self._testers = self._begun_testers(len(distinct(tiers)))
        if not self._testers:
            return RoundTest(number, tiers, found=self._tested_here(tiers))
        return self._begun(RoundTest(number, tiers, parts=tuple(self._parts(number, tiers))))

    def result(self, test: RoundTest) -> Mapping[int, Evaluation]:
        """The evaluations by tier, the full model as tier 0; waits for them.

        If a process was lost, this one tests, now and from now on; its model must still be the round's.
        """
        if test.found is not None:
            return test.found
        try:
            parts = [part.result() for part in test.parts]
        except model_process.ProcessLost as error:
            log.warning("%s: the server itself tests from now on", error)
            self.close()
            return self._tested_here(test.tiers)
        self._model.context.durations.record("testing", max(part.seconds for part in parts))
        found = {number: evaluation for part in parts for number, evaluation in part.found.items()}
        return by_tier(test.tiers, found)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(tester.pid for tester in self._testers or () if tester.pid is not None)

    def close(self) -> None:
        """End the processes; unfinished tests are lost."""
        testers, self._testers = self._testers or [], []
        for tester in testers:
            tester.close()

    def _begun(self, test: RoundTest) -> RoundTest:
        """The test that was begun; done if the next round depends on it."""
        if not self._model.context.config.federation.roll_back:
            return test
        state, testing = self._model.state, self._model.context.testing
        glance = testing.glance(self._model.network, state.params)
        if has_diverged(state.params, {0: glance}) or (glance.loss or 0.0) > DOUBTFUL_LOSS:
            found = self.result(test)
            return RoundTest(test.number, test.tiers, found=found, unfit=has_diverged(state.params, found))
        return test

    def _tested_here(self, tiers: Mapping[int, SubModelSpec]) -> Mapping[int, Evaluation]:
        model, testing = self._model, self._model.context.testing
        with model.context.durations.time_block("testing"):
            found = testing.test(model.network, distinct(tiers), model.params_of)
        return by_tier(tiers, found)

    def _parts(self, number: int, tiers: Mapping[int, SubModelSpec]) -> list[Future[model_process.Evaluated]]:
        """Spread the sub-models over the processes."""
        assert self._testers is not None
        specs, count = distinct(tiers), len(self._testers)
        shares = [dict(list(specs.items())[place::count]) for place in range(count)]
        model = self._folder.model(number)
        return [
            tester.test(
                model_process.EvaluationJob(model, share, {n: self._own(spec) for n, spec in share.items()})
            )
            for tester, share in zip(self._testers, shares, strict=True)
            if share
        ]

    def _own(self, spec: SubModelSpec) -> Arrays:
        """The arrays that a sub-model has in place of the global model's."""
        params = self._model.state.params
        cut_from = self._model.params_of(spec)
        return {name: array for name, array in cut_from.items() if array is not params.get(name)}

    @property
    def _takes_long(self) -> bool:
        return self._model.context.testing.macs(self._model.network) >= LONG_MACS

    def _busy(self, cores: int) -> int:
        """The cores that a simulation's workers use; devices of a federation train elsewhere."""
        context = self._model.context
        settings = context.config.simulation
        here = not context.durable and settings.ray_address is None
        return min(cores, settings.workers or cores) if here else 0

    def _begun_testers(self, most: int) -> list[model_process.ModelProcess]:
        """As many as the configuration states, by default by cores where a test takes long."""
        model, testing = self._model, self._model.context.testing
        count = model.context.config.federation.testers
        if count is None:
            cores = usable_cores()
            count = usual_count(cores, busy=self._busy(cores)) if self._takes_long else 0
        data = testing.data
        if not count or data is None:
            return []
        setup = model_process.ModelSetup(
            model.context.spec, model.context.channel_map, model.fixed, data, model.context.still
        )
        return [model_process.ModelProcess(setup) for _ in range(min(count, most))]


def usual_count(cores: int, *, busy: int) -> int:
    """Testing processes by default: none on a single core, nor where a simulation keeps all cores `busy`.

    There a test during the training slows it down by more than a test between two rounds takes.
    """
    free = cores - busy
    return 0 if cores == 1 or free < 1 else max(1, free // CORES_PER_TESTER)

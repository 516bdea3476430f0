"""A Flower `ClientApp` as local work: it gets the sub-model as arrays and returns the update.

The app is called in the thread that trains, without Flower's network, processes or telemetry.
"""

import importlib.util
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from edge_client.system import user_code
from edge_client.training import results, torch_trainer
from edge_client.training.flower.settings import FlowerSettings, UserConfig, app_table, flat_config
from schemas.errors import ConfigError, PeerError, Reason
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.values import TrainingMetrics

# Flower reads this once, when it is imported; a device must not report its use.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

DEEPEST = 4  # number of folders above an app's module that are searched for its pyproject.toml


@dataclass(frozen=True, eq=False)
class LoadedApp:
    """A `ClientApp`, and the `[tool.flwr.app.config]` of its project."""

    app: Any
    run_config: UserConfig = field(default_factory=dict)

    def has(self, action: str) -> bool:
        """Whether the app can `train` or `evaluate`; an app made of a `client_fn` can do both."""
        functions = getattr(self.app, "_registered_funcs", {})
        return self.is_legacy or f"{action}.default" in functions

    @property
    def is_legacy(self) -> bool:
        """Whether the app was made of a `client_fn`, which takes Flower's older messages."""
        return getattr(self.app, "_call", None) is not None


def load_app(name: str) -> LoadedApp:
    """Import an app; raises `ConfigError` with the remedy."""
    if importlib.util.find_spec("flwr") is None:
        raise ConfigError("--flower needs Flower: pip install 'edge-federation[flower]'")
    reference, folder = _reference(name)
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"--flower '{name}': expected package.module:app, or the folder of a Flower app")
    try:
        module = user_code.import_users(module_name)
    except user_code.FAILS as error:
        raise ConfigError(
            f"--flower {name}: importing {module_name!r} failed ({error}); check that it is installed or "
            f"that its folder is in PYTHONPATH{user_code.hidden_by_ours(error)}"
        ) from error
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    loaded = LoadedApp(_check_app(found, name, reference), _run_config(module, folder))
    if not loaded.has("train"):
        raise ConfigError(f"--flower {name}: the app registers no function to train with: write @app.train()")
    return loaded


def _reference(name: str) -> tuple[str, Path | None]:
    """The app's reference; a folder's is in its pyproject.toml, and the folder becomes importable."""
    folder = Path(name)
    if not folder.is_dir():
        return name, None
    components = app_table(folder).get("components")
    reference = components.get("clientapp") if isinstance(components, dict) else None
    if not isinstance(reference, str):
        raise ConfigError(
            f"--flower {name}: {folder / 'pyproject.toml'} names no clientapp in [tool.flwr.app.components]"
        )
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    return reference, folder


def _check_app(found: Any, name: str, reference: str) -> Any:
    from flwr.clientapp import ClientApp

    if not isinstance(found, ClientApp):
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise ConfigError(f"--flower {name}: {reference} is {kind}, not a flwr.clientapp.ClientApp")
    return found


def _run_config(module: Any, folder: Path | None) -> UserConfig:
    """The defaults of the app's project."""
    source = getattr(module, "__file__", None)
    above = list(Path(source).resolve().parents)[:DEEPEST] if source else []
    for place in [*([folder] if folder else []), *above]:
        if table := app_table(place):
            return flat_config(table.get("config"))
    return {}


class FlowerWork:
    """Trains with an app; raises `ConfigError` if there is no such app."""

    def __init__(self, settings: FlowerSettings, device: str) -> None:
        self._settings, self._device = settings, device
        self._loaded = load_app(settings.app)
        self._state: tuple[str, Any] = ("", None)

    def check(self, task: TrainTask) -> None:
        """Raise `PeerError` for a task whose algorithm changes the training itself."""
        plan = task.training
        unknown = [f"the objective '{objective.name}'" for objective in plan.objectives]
        unknown += ["channels chosen by this device's attention"] if task.personal is not None else []
        unknown += ["a round without epochs"] if plan.local_epochs == 0 else []
        unknown += ["frozen layers"] if task.trained is not None else []
        unknown += ["augmented pictures"] if plan.augment or plan.mirror else []
        if unknown:
            raise PeerError(
                f"a Flower app trains here, which knows nothing of {' or '.join(unknown)}",
                reason=Reason.INCOMPATIBLE,
            )

    def train(self, job: torch_trainer.ModuleJob) -> results.TrainingResult:
        """Train with the app; raises `FlowerError` for an answer that is no update of this model."""
        if job.should_stop():
            raise results.TrainingStopped("local training was stopped")
        start = time.perf_counter()
        answer = self._ask("train", job)
        examples = answer.examples
        if not answer.arrays:
            from edge_client.training.flower.messages import FlowerError

            raise FlowerError("the app's reply to train has no arrays: send the trained state dict back")
        job.module.load_state_dict({name: torch.from_numpy(array) for name, array in answer.arrays.items()})
        # The app cannot be interrupted, so its result for an ended task is dropped.
        if job.should_stop():
            raise results.TrainingStopped("local training was stopped")
        loss, epochs = results.bound_loss(answer.loss("train")), job.plan.local_epochs
        job.on_epoch(results.EpochReport(epochs, epochs, loss))
        steps = epochs * -(-examples // job.plan.batch_size)
        seconds = time.perf_counter() - start
        metrics = TrainingMetrics(
            examples=examples, epochs=epochs, steps=steps, train_loss=loss, seconds=seconds
        )
        return results.TrainingResult({}, metrics)

    def evaluate(self, job: torch_trainer.ModuleJob) -> results.Evaluation:
        """Evaluate with the app on its own data, or without it on this device's held-out data."""
        if not self._loaded.has("evaluate"):
            return torch_trainer.OWN_TRAINING.evaluate(job)
        answer = self._ask("evaluate", job)
        found = {} if answer.accuracy is None else {"accuracy": answer.accuracy}
        return results.Evaluation(results.bound_loss(answer.loss("evaluate")), found, answer.examples)

    def _ask(self, action: str, job: torch_trainer.ModuleJob) -> Any:
        from edge_client.training.flower import messages

        state = {name: tensor.detach().cpu().numpy() for name, tensor in job.module.state_dict().items()}
        config = flower_config(job.task.round, job.plan)
        names = {"run": job.task.run, "node": self._device}
        context = self._context(job.task.run, config)
        # A repeated task gives the app the same random numbers of torch.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.plan.seed)
            if self._loaded.is_legacy:
                message = messages.legacy_question(action, state, config, **names)
                return messages.legacy_answer(action, self._loaded.app(message, context), state)
            message = messages.question(action, state, config, **names)
            return messages.answer_of(self._loaded.app(message, context), state)

    def _context(self, run: str, config: Mapping[str, Any]) -> Any:
        """The context of the app's run and node; its `state` stays in memory during the run."""
        from flwr.app import Context, RecordDict

        from edge_client.training.flower.messages import number_of

        if self._state[0] != run:
            self._state = (run, RecordDict())
        run_config = {**self._loaded.run_config, **config, **self._settings.run_config}
        return Context(
            run_id=number_of(run),
            node_id=number_of(self._device),
            node_config=dict(self._settings.node_config),
            state=self._state[1],
            run_config=run_config,
        )


def flower_config(round_number: int, plan: TrainingPlan) -> dict[str, Any]:
    """The federation's plan under the names in Flower's templates, with both `lr` and `learning-rate`."""
    return {
        "server-round": round_number,
        "local-epochs": plan.local_epochs,
        "batch-size": plan.batch_size,
        "lr": plan.learning_rate,
        "learning-rate": plan.learning_rate,
        "momentum": plan.momentum,
        "weight-decay": plan.weight_decay,
        "sam-radius": plan.sam_radius,
        "warm-up-steps": plan.warm_up_steps,
        "seed": plan.seed,
    }

"""Networks that are objects of the program."""

from pathlib import Path

import pytest
import torch
from torch import nn

import edge_server
from edge_client.models.build import build_model
from edge_server.config import own_networks
from schemas.values import ModelSpec
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.library.small import SMALL, Net, X, Y, net


def spec(name: str) -> ModelSpec:
    return ModelSpec(name=name, input_shape=(6,), num_classes=2)


def test_an_object_is_a_network_with_its_weights_for_as_long_as_it_is_offered() -> None:
    module = net((6,), 2)
    with own_networks.offer_network(module) as name:
        built = build_model(spec(name), seed=3)
        with torch.no_grad():
            module[0].weight.zero_()
        assert built[0].weight.any()
        assert build_model(spec(name))[0].weight.equal(built[0].weight)
    with pytest.raises(edge_server.ConfigError, match=r"was an object of a Python program: .*model=\.\.\."):
        build_model(spec(name))


def test_networks_with_other_weights_have_other_names() -> None:
    with own_networks.offer_network(net((6,), 2)) as one, own_networks.offer_network(net((6,), 2)) as other:
        assert one != other
    with own_networks.offer_network(Net()) as named:
        assert named.startswith("edge_server.config.own_networks:Net-")


def test_a_function_of_a_module_is_named_as_a_command_names_it(tmp_path: Path) -> None:
    given = {**SMALL, "data": (X, Y), "rounds": 1}
    with in_process():
        run = edge_server.simulate("fedavg", model=net, out=tmp_path / "a", **given)
        named = edge_server.simulate("fedavg", model=f"{net.__module__}:net", out=tmp_path / "b", **given)
    assert (run.folder / "federation.toml").read_bytes() == (named.folder / "federation.toml").read_bytes()
    assert run.rounds == named.rounds


def test_one_that_only_this_program_has_trains_and_is_tested_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Net, "__module__", "__main__")
    with in_process():
        run = edge_server.simulate(
            "fedavg", "testers=2", data=(X, Y), model=Net(), out=tmp_path, **{**SMALL, "workers": 4}
        )
    said = capsys.readouterr().err
    assert "trains in this process: 'Net' is defined in this program alone" in said
    config = edge_server.load_config(str(run.folder / "federation.toml"))
    assert (config.simulation.workers, config.federation.testers) == (1, 0)


def test_other_machines_have_no_object_of_this_program(tmp_path: Path) -> None:
    given = {**SMALL, "data": (X, Y), "out": tmp_path / "run"}
    with pytest.raises(edge_server.ConfigError, match="do not have this network: move it to a module"):
        edge_server.simulate("fedavg", "engine=ray", model=nn.Linear(6, 2), **given)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(
        edge_server.ConfigError, match=r"int is not a network: pass its name, a torch\.nn\.Module"
    ):
        edge_server.simulate("fedavg", model=3)  # type: ignore[arg-type]


def test_worker_processes_get_the_networks_that_they_can_have() -> None:
    with (
        own_networks.offer_network(nn.Linear(6, 2)) as name,
        own_networks.offer_network(lambda shape, count: None),
    ):
        carried = own_networks.portable()
    assert [f"{own_networks.__name__}:{key}" for key in carried] == [name]
    own_networks.take_networks(carried)
    assert build_model(spec(name)).weight.shape == (2, 6)

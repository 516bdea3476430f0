"""Which arrays a statement of `[training] train` names."""

import pytest

from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_server.strategy.pruning.trained_part import ALL_TRAINED, TrainedParts, find_trained_parts
from schemas.errors import ConfigError
from schemas.strategy import Adapters
from schemas.submodel import ChannelMap
from schemas.values import ModelSpec


def mapped(name: str, shape: tuple[int, ...] = (3, 32, 32)) -> ChannelMap:
    spec = ModelSpec(name=name, input_shape=shape, num_classes=10)
    return trace_channels(build_model(spec), spec.input_shape)


RESNET, MLP = mapped("resnet20"), mapped("mlp", (1, 8, 8))


def names(*items: str, of: ChannelMap = RESNET) -> frozenset[str]:
    found = find_trained_parts([items], of, lambda: "head").of(1)
    assert found is not None
    return found


def test_all_is_everything_and_so_is_a_list_that_names_everything() -> None:
    assert find_trained_parts([("all",)], RESNET, lambda: "head") == ALL_TRAINED
    assert find_trained_parts([("*",)], MLP, lambda: "linear3") == ALL_TRAINED


def test_the_head_is_the_output_layer() -> None:
    assert find_trained_parts([("head",)], MLP, lambda: "linear3").of(1) == {"linear3.weight", "linear3.bias"}


def test_the_last_blocks_bring_what_follows_them_and_no_statistics() -> None:
    last = find_trained_parts([("last-1",)], RESNET, lambda: "fc").of(1)
    assert last is not None
    assert {name.rpartition(".")[0] for name in last} == {
        *("layer3.2.conv1", "layer3.2.bn1", "layer3.2.conv2", "layer3.2.bn2", "fc")
    }
    assert not any("running" in name for name in last)


def test_normalisations_that_a_detector_adds_are_trained_with_their_statistics() -> None:
    """They are drawn: no training before has measured them, as it has those of the trunk."""
    detector = mapped("detector:mobilenet-v2", (3, 64, 64))
    added = {name for name in detector.parameters if not name.startswith("trunk.")}
    assert names("neck.*", "head.*", of=detector) == names("head", of=detector) == added
    assert {name.split(".")[2] for name in names("last-2", of=detector) - added} == {"12", "13"}
    assert any("running_mean" in name for name in added)
    last = names("trunk.*", "neck.layers.0", of=detector)
    assert {name for name in last if "running_" in name} == {
        f"neck.layers.0.1.running_{figure}" for figure in ("mean", "var")
    }


def test_a_network_that_numbers_nothing_has_its_layers_as_blocks() -> None:
    last = find_trained_parts([("last-2",)], MLP, lambda: "linear3").of(1)
    assert last == {f"linear{n}.{part}" for n in (2, 3) for part in ("weight", "bias")}


def test_norms_are_scales_and_shifts_and_biases_are_biases() -> None:
    norms, biases = names("norms"), names("biases")
    assert {"bn1.weight", "bn1.bias"} <= norms
    assert not any("conv" in name or "running" in name for name in norms)
    assert all(name.endswith(".bias") for name in biases)
    assert {"fc.bias", "bn1.bias"} <= biases


def test_a_glob_names_layers_blocks_or_arrays() -> None:
    assert names("layer3") == {n for n in RESNET.parameters if n.startswith("layer3.") and "running" not in n}
    assert names("layer3.2.conv?") == {"layer3.2.conv1.weight", "layer3.2.conv2.weight"}
    assert names("*.conv1.weight", "fc.bias") >= {"layer1.0.conv1.weight", "fc.bias"}
    assert "layer3.2.bn1.running_mean" in names("layer3", "layer3.*running_*")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (("con1",), "'con1' matches no array .did you mean 'conv1'.*fc are the last"),
        (("last-10",), "'last-10': the network has 9 blocks .layer1.0 to layer3.2.: set \"last-9\" or less"),
        (("*running_mean",), r"\*running_mean trains no weight"),
    ],
)
def test_what_matches_nothing_is_told_with_a_remedy(items: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find_trained_parts([items], RESNET, lambda: "fc")


def test_what_no_tier_trains_is_frozen() -> None:
    parts = find_trained_parts([("linear3",), ("last-2",)], MLP, lambda: "linear3")
    assert parts.of(1) == {"linear3.weight", "linear3.bias"}
    assert parts.of(2) == parts.of(7)
    assert parts.frozen(MLP) == {"linear1.weight", "linear1.bias"}
    assert set(parts.cut(MLP).parameters) == MLP.parameters.keys() - parts.frozen(MLP)
    assert not TrainedParts((parts.of(1), None)).frozen(MLP)
    assert parts.count_trained(MLP) == (2010, 42210)


def test_arrays_that_the_same_tiers_train_are_one_part() -> None:
    head, last, hidden = ([f"linear{number}.{kind}" for kind in ("weight", "bias")] for number in (3, 2, 1))
    parts = find_trained_parts([("head",), ("last-2",), ("all",)], MLP, lambda: "linear3")
    assert parts.by_tiers(MLP) == dict.fromkeys(last, last[0]) | dict.fromkeys(hidden, hidden[0])
    some = find_trained_parts([("head",), ("linear2",)], MLP, lambda: "linear3")
    assert some.by_tiers(MLP) == dict.fromkeys(last, last[0]) | dict.fromkeys(head, head[0])
    for same in (ALL_TRAINED, find_trained_parts([("head",)], MLP, lambda: "linear3")):
        assert not same.by_tiers(MLP)


def test_lora_adapts_linear_layers_and_convolutions_of_one_position() -> None:
    mobile = mapped("mobilenet-v2")
    parts = find_trained_parts([("lora", "classifier")], mobile, lambda: "classifier", ranks=(4,))
    adapters, trained = parts.adapters_of(1), parts.of(1)
    assert adapters is not None
    assert trained is not None
    shapes = {name: mobile.parameters[name].shape for name in adapters.arrays}
    assert shapes
    assert all(shape[2:] == (1, 1) and 4 * sum(shape[:2]) < shape[0] * shape[1] for shape in shapes.values())
    assert "classifier.1.weight" in trained - {*adapters.arrays}


def test_a_weight_that_is_named_tied_or_small_is_trained_whole() -> None:
    def adapted(*items: str, ranks: tuple[int, ...] = (8,), tied: tuple[str, ...] = ()) -> set[str]:
        parts = find_trained_parts([items], MLP, lambda: "linear3", ranks=ranks, tied=tied)
        assert parts.of(1) == {f"linear{n}.weight" for n in (1, 2, 3)} | {
            "linear3.bias" for item in items if item == "head"
        }
        adapters = parts.adapters_of(1)
        return set() if adapters is None else set(adapters.arrays)

    assert adapted("lora") == {"linear1.weight", "linear2.weight", "linear3.weight"}
    assert adapted("lora", "head") == {"linear1.weight", "linear2.weight"}
    part = find_trained_parts([("lora:last-2", "head")], MLP, lambda: "linear3")
    assert part.of(1) == {"linear2.weight", "linear3.weight", "linear3.bias"}
    assert part.adapters_of(1) == Adapters(rank=8, arrays=("linear2.weight",))
    assert adapted("lora", tied=("linear2.weight",)) == {"linear1.weight", "linear3.weight"}
    # 60 (200 + 64) and 60 (200 + 200) against 200 x 64 and 200 x 200; the last has 10 x 200.
    assert adapted("lora", ranks=(60,)) == {"linear2.weight"}
    assert adapted("lora", ranks=(200,)) == set()


def test_each_tier_has_its_rank_and_all_is_all() -> None:
    parts = find_trained_parts([("lora",)], MLP, lambda: "linear3", ranks=(1, 2))
    assert [adapters and adapters.rank for adapters in map(parts.adapters_of, (1, 2, 7))] == [1, 2, 2]
    assert parts.count_trained(MLP) == (874, 1748)
    mixed = find_trained_parts([("lora",), ("all",)], MLP, lambda: "linear3")
    assert [mixed.of(2), mixed.adapters_of(2)] == [None, None]
    assert mixed.adapters_of(1) is not None


def test_a_network_of_wide_kernels_has_nothing_to_adapt() -> None:
    kernels = MLP.of_parameters(["linear1.bias"])
    with pytest.raises(ConfigError, match=r"'lora': there is no linear layer.*leave out .lora."):
        find_trained_parts([("lora",)], kernels, lambda: "linear3")

"""`edge-server init`."""

from pathlib import Path

import pytest

from edge_server.cli.main import main
from edge_server.config.load import load_config


def answer(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Type these lines and then end the input."""
    lines = iter(answers)

    def typed(prompt: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)


def test_five_answers_make_a_valid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(
        monkeypatch, "garden", "zero", "²", "4", "cat", "cat, dog, cat", "cat, dog", "", "no-recipe", "fedavg"
    )
    assert main(["init", str(tmp_path / "f.toml")]) == 0
    config = load_config(str(tmp_path / "f.toml"))
    assert (config.federation.name, config.federation.rounds, config.clients.num_clients) == ("garden", 20, 4)
    assert config.data.classes == ("cat", "dog")
    # Photos have three colours.
    assert config.model.input_shape == (3, 32, 32)
    assert config.recipe is not None
    assert config.recipe.name == "fedavg"


def test_a_folder_of_photos_answers_which_classes_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("wasp", "bee"):
        (tmp_path / "photos" / name).mkdir(parents=True)
    answer(monkeypatch, "", "", str(tmp_path / "photos"), "", "")
    assert main(["init", str(tmp_path / "f.toml")]) == 0
    assert load_config(str(tmp_path / "f.toml")).data.classes == ("bee", "wasp")


def test_yes_uses_the_defaults_and_replaces_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.toml"
    assert main(["init", str(path), "--yes"]) == 0
    before = path.read_text()
    assert main(["init", str(path), "--yes"]) == 2
    assert "exists: name another file" in capsys.readouterr().err
    assert path.read_text() == before
    assert main(["init", str(path), "--yes", "--force"]) == 0
    # The file states the rate with its optimizer: a maker lowers it.
    training = load_config(str(path)).training
    assert {"optimizer", "learning_rate"} <= training.model_fields_set
    assert training.optimizer == "adam"


def test_a_pretrained_network_is_named_with_its_weights_and_its_head_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["init", str(tmp_path / "f.toml"), "--yes", "--network"]
    assert main([*words, "torchvision:squeezenet1_2"]) == 2
    assert "did you mean 'torchvision:squeezenet1_" in capsys.readouterr().err
    assert main([*words, "mlp"]) == 2
    assert main([*words, "torchvision:squeezenet1_1.IMAGENET1K_V1"]) == 0
    config = load_config(str(tmp_path / "f.toml"))
    assert config.model.name == "torchvision:squeezenet1_1"
    assert config.model.from_ == "torchvision:squeezenet1_1.IMAGENET1K_V1"
    assert config.training.train == "head"
    # Tiers would cut frozen layers, which nobody trains again.
    assert config.tiers.ratios == (0.0,)


def test_the_folder_of_the_file_is_made_and_no_folder_taken_for_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "new" / "f.toml"), "--yes"]) == 0
    assert main(["init", str(tmp_path / "new"), "--yes", "--force"]) == 2
    assert "new: this is a folder: name a file" in capsys.readouterr().err


def test_an_input_that_ends_early_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(monkeypatch, "garden")
    assert main(["init", str(tmp_path / "f.toml")]) == 2
    assert "answer all five questions" in capsys.readouterr().err
    assert not (tmp_path / "f.toml").exists()

"""The configuration and the training data with which a simulation starts."""

from edge_client.data import dataset, shapes
from edge_client.data.sources import part_of
from edge_server.config.config import Config
from edge_server.config.test_data import model_spec, read_source
from schemas.base import Settings
from schemas.errors import ConfigError


def as_simulated(config: Config) -> Config:
    """The configuration with the defaults of a simulation.

    Devices export no models unless they train them further, and the default data are the shipped digits.
    `data.source` of the result names the test part of the source, which the server uses.
    """
    update: dict[str, Settings] = {}
    delivers = {"deliver", "deliver_every"} & config.federation.model_fields_set
    if not delivers and config.training.personalise_epochs in (0, "auto"):
        update["federation"] = config.federation.model_copy(update={"deliver": "none"})
    if config.data.source is None and config.model.input_shape is None:
        update["data"] = config.data.model_copy(update={"source": "digits"})
    elif config.data.source is not None:
        update["data"] = config.data.model_copy(update={"source": part_of(config.data.source, "test")})
    return config.model_copy(update=update)


def training_data(config: Config) -> dataset.LabelledData:
    """The training part of the source, in the model's input shape; `ConfigError` if no source is named.

    Pictures are resized when they are read: not all of a source belong to a device.
    """
    if config.data.source is None:
        raise ConfigError(
            "none is named, and a simulation needs data of [model] input-shape", key="[data] source"
        )
    data = read_source(config, part_of(config.data.source, "train"))
    return shapes.fit_data(data, model_spec(config, data).input_shape, lazily=True)

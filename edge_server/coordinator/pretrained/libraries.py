"""Weights that torchvision and timm publish: `torchvision:NAME`, `torchvision:NAME.WEIGHTS`, `timm:NAME`.

They are downloaded once, here on the server, and kept where the library keeps them: `TORCH_HOME` and
`HF_HOME` name other folders. A device downloads nothing.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from edge_client.models import registry, zoo
from edge_client.system.plain_text import say
from edge_server.coordinator.pretrained.files import KEY, WeightFile, as_arrays, one_line, read_torch, refuse
from schemas.errors import ConfigError
from schemas.tensors.files import digest_of_tensors


def read_torchvision(stated: str, input_shape: tuple[int, ...]) -> WeightFile:
    """The weights of torchvision's own list; its default ones if none are named. Raises `ConfigError`."""
    from torchvision import models

    _, network = registry.library_and_network(stated.partition(".")[0])
    published = models.get_model_weights(network)
    chosen = published[stated.partition(".")[2]] if "." in stated else published.DEFAULT
    file = read_torch(_fetch(chosen.url))
    classes = tuple(map(str, chosen.meta.get("categories", ())))
    return replace(file, stated=stated, inputs=inputs_of(stated), classes=classes)


def read_timm(stated: str, input_shape: tuple[int, ...]) -> WeightFile:
    """The weights of timm's registry, as its network of this input has them. Raises `ConfigError`.

    timm renames old arrays, and fits positions of pictures of another size and first layers of other colours.
    """
    import timm

    name = stated.partition(":")[2]
    about = _timm_record(name)
    options: dict[str, Any] = {}
    if len(input_shape) == 3:
        options["in_chans"] = input_shape[0]
        if about.fixed_input_size:
            options["img_size"] = input_shape[1:]
    say(f"edge-server: timm gets the weights of '{name}', unless it has them", file=sys.stderr)
    try:
        module = timm.create_model(name, pretrained=True, **options)
    except Exception as error:  # of timm, of its hub, of the network, of the disk
        raise _unreachable(stated, error, "let timm get them once on this machine") from error
    arrays = as_arrays(module.state_dict())
    return WeightFile(
        arrays,
        stated,
        digest_of_tensors(arrays),
        inputs=inputs_of(stated),
        classes=tuple(about.label_names or ()),
    )


def inputs_of(stated: str) -> registry.InputRecord:
    """What the library says of the inputs of weights; `ConfigError` if it has none of this name."""
    try:
        record = zoo.input_record(stated)
    except ConfigError as error:
        raise ConfigError(error.reason, key=KEY, remedy=error.remedy) from error
    library, _, name = stated.partition(":")
    if library == "timm":
        _timm_record(name)
    return record


def _timm_record(name: str) -> Any:
    """What timm knows of weights; `ConfigError` if it has none."""
    import timm

    about = timm.get_pretrained_cfg(name)
    if about is None or not about.has_weights:
        others = timm.list_models(f"{name.partition('_')[0]}*", pretrained=True)
        example = f", such as timm:{others[0]}" if others else ""
        raise refuse(f"timm knows the network '{name}' and has no weights of it", f"name others{example}")
    return about


def _fetch(url: str) -> Path:
    """The file of a URL in torch's cache, downloaded unless it is there.

    Its name has the beginning of its digest, and another file is refused.
    """
    from torch import hub

    path = Path(hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if path.exists():
        return path
    say(f"edge-server: downloading {url} to {path}", file=sys.stderr)
    digest = hub.HASH_REGEX.search(path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        hub.download_url_to_file(url, str(path), digest and digest[1], progress=sys.stderr.isatty())
    except Exception as error:  # of the network, of the disk, or another digest
        raise _unreachable(url, error, f"copy it to {path} by another way") from error
    return path


def _unreachable(what: str, error: Exception, remedy: str) -> ConfigError:
    return refuse(f"{what} cannot be downloaded: {one_line(error)}", f"{remedy}, or name a file of weights")

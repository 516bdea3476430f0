"""The shipped handwritten digits."""

from importlib import resources

from edge_client.data import dataset, source_options
from edge_client.data.arrays import read_npz
from schemas.values import Preprocessing


def read_digits(split: source_options.Split) -> dataset.LabelledData:
    """1,438 digits for training or 359 for tests, always the same split."""
    with resources.as_file(resources.files("edge_client.data") / "digits.npz") as path:
        arrays = read_npz(path)
    preprocessing = Preprocessing(scale=16.0, mean=(0.3053,), std=(0.3760,))
    return source_options.split_off(
        dataset.make_labelled_data(arrays["images"], arrays["labels"], preprocessing=preprocessing), split
    )

"""The shipped handwritten digits."""

from importlib import resources

from edge_client.data.arrays import read_npz
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.source_options import Split, split_off
from schemas.values import Preprocessing


def read_digits(split: Split) -> LabelledData:
    """1,438 digits for training or 359 for tests, always the same split."""
    with resources.as_file(resources.files("edge_client.data") / "digits.npz") as path:
        arrays = read_npz(path)
    preprocessing = Preprocessing(scale=16.0, mean=(0.3053,), std=(0.3760,))
    return split_off(
        make_labelled_data(arrays["images"], arrays["labels"], preprocessing=preprocessing), split
    )

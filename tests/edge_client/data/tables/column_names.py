"""The names of the columns that a source gives."""

from edge_client.data.dataset import LabelledData


def column_names(data: LabelledData) -> tuple[str, ...]:
    """The names of the inputs in their order."""
    return tuple(column.name for column in data.columns)

"""Boxes as further outputs of a detector's model, by ONNX's own operators.

The file still gives `logits` first, by which models are compared. Thresholds are inputs with defaults.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.tasks import detection
from edge_client.models.graphs import checks, filling
from edge_client.models.graphs.portable import BOOL, FLOAT32, INT64, INTS

SCORE_THRESHOLD, IOU_THRESHOLD, MAX_BOXES = "score_threshold", "iou_threshold", "max_boxes"
BOXES, SCORES, CLASSES, PICTURES = "boxes", "scores", "classes", "pictures"
DECODING = "decoding/"  # prefix of the nodes' names
DEFAULTS: dict[str, NDArray[Any]] = {
    SCORE_THRESHOLD: np.array([detection.MIN_SCORE], np.float32),
    IOU_THRESHOLD: np.array([detection.MAX_OVERLAP], np.float32),
    MAX_BOXES: np.array([detection.MAX_BOXES], np.int64),  # of a picture
}


def give_boxes(model: Any, input_shape: tuple[int, ...]) -> None:
    """Let an ONNX message for inputs [N, *input_shape] also give the boxes of all pictures, the best first.

    They are corners x1, y1, x2, y2 [K, 4] in pixels of the input, scores [K], classes [K] and the numbers of
    their pictures [K]. As `detection.decode` says them, of boxes of one class that overlap the best is kept,
    with the mean corners of all that overlap it.
    """
    graph, cells = _Decoding(model.graph), len(detection.cells(input_shape)[1])
    rows = graph.add("Reshape", filling.OUTPUT, graph.constant([0, -1, cells]))
    classes, centres = (graph.add("Sigmoid", graph.rows(rows, *part)) for part in ((0, -5), (-1, 2**31)))
    weights = graph.add("Mul", classes, centres)
    scores = graph.add("Sqrt", weights)
    corners = graph.rows(rows, -5, -1)
    boxes = graph.add("Transpose", corners, perm=[0, 2, 1])
    kept = graph.add("NonMaxSuppression", boxes, scores, MAX_BOXES, IOU_THRESHOLD, SCORE_THRESHOLD)
    unordered = graph.add("GatherND", scores, kept)
    order = graph.add("TopK", unordered, graph.add("Shape", unordered), outputs=(f"{DECODING}sorted", ""))
    pictures, count = graph.column(graph.add("Gather", kept, order), 0), graph.add("Shape", scores, end=1)
    order = graph.add("Gather", order, graph.first_of_each(pictures, count))
    graph.add("Gather", unordered, order, outputs=(SCORES,))
    kept = graph.add("Gather", kept, order)
    for name, column in ((CLASSES, 1), (PICTURES, 0)):
        graph.column(kept, column, outputs=(name,))
    own, of_class = (
        graph.add("GatherND", values, graph.add("Gather", kept, graph.constant(columns), axis=1))
        for values, columns in ((boxes, [0, 2]), (weights, [0, 1]))
    )
    graph.add_means(
        graph.add("Reshape", own, graph.constant([-1, 4, 1])),
        graph.add("Gather", corners, PICTURES),
        graph.add("Reshape", of_class, graph.constant([-1, 1, cells])),
    )
    for name, numbers in DEFAULTS.items():
        graph.initialise(name, numbers)
        _describe(model.graph.input.add(), name, FLOAT32 if numbers.dtype == np.float32 else INT64, 1)
    for name, kind, shape in (
        (BOXES, FLOAT32, ("found", 4)), (SCORES, FLOAT32, ("found",)),
        (CLASSES, INT64, ("found",)), (PICTURES, INT64, ("found",)),
    ):  # fmt: skip
        _describe(model.graph.output.add(), name, kind, *shape)


def drop_boxes(model: Any) -> bool:
    """Take out what `give_boxes` has added; returns whether there was anything."""
    graph = model.graph
    added = {*DEFAULTS, BOXES, SCORES, CLASSES, PICTURES}
    had = any(node.name.startswith(DECODING) for node in graph.node)
    for part in (graph.node, graph.initializer, graph.input, graph.output):
        kept = [one for one in part if had and one.name not in added and not one.name.startswith(DECODING)]
        if had:
            copies = [type(one).FromString(one.SerializeToString()) for one in kept]
            del part[:]
            part.extend(copies)
    return had


def without_boxes(data: bytes) -> bytes:
    """An ONNX file without what makes boxes of a detector's outputs; any other file as it is."""
    if DECODING.encode() not in data:
        return data
    model = checks.ModelProto.FromString(data)
    drop_boxes(model)
    stripped: bytes = model.SerializeToString()
    return stripped


class _Decoding:
    """Adds nodes at the end of a graph, whose values have their names."""

    def __init__(self, proto: Any) -> None:
        self._proto, self._count = proto, 0

    def add(self, kind: str, *inputs: str, outputs: tuple[str, ...] = (), **options: Any) -> str:
        """Add a node; returns the name of its last output."""
        self._count += 1
        name = f"{DECODING}{self._count}"
        node = self._proto.node.add(name=name, op_type=kind, input=inputs)
        node.output.extend([output or name for output in outputs or ("",)])
        for key, value in options.items():
            if isinstance(value, list):
                node.attribute.add(name=key, type=INTS, ints=value)
            else:
                node.attribute.add(name=key, type=2, i=value)
        return str(node.output[-1])

    def add_means(self, own: str, corners: str, weights: str) -> None:
        """Boxes [K, 4, 1] as the mean of corners [K, 4, A] that overlap them, by weights [K, 1, A]."""
        low, high, lows, highs = (
            self.rows(box, *part) for box in (own, corners) for part in ((0, 2), (2, 4))
        )
        shared = self._area(self.add("Max", low, lows), self.add("Min", high, highs))
        both = self.add("Add", self._area(low, high), self._area(lows, highs))
        least = self.add("Mul", self.add("Sub", both, shared), IOU_THRESHOLD)
        shares = self.add("Mul", weights, self.add("Relu", self.add("Sub", shared, least)))
        summed, total = (
            self.add("ReduceSum", values, self.constant([2]))
            for values in (self.add("Mul", corners, shares), shares)
        )
        # A box without area overlaps none, not even itself.
        mean = self.add("Where", self.add("Cast", total, to=BOOL), self.add("Div", summed, total), own)
        self.add("Reshape", mean, self.constant([-1, 4]), outputs=(BOXES,))

    def first_of_each(self, pictures: str, count: str) -> str:
        """The places of the first `MAX_BOXES` boxes of each of `count` pictures, given each one's [K]."""
        own = self.add("OneHot", pictures, count, self.constant([0, 1]))
        before = self.add("Mul", own, self.add("CumSum", own, self.constant([0]), exclusive=1))
        is_first = self.add("Less", self.add("ReduceSum", before, self.constant([1])), MAX_BOXES)
        return self.column(self.add("Transpose", self.add("NonZero", is_first), perm=[1, 0]), 0)

    def column(self, table: str, number: int, **options: Any) -> str:
        """A column of a table [K, 2 or more] as [K]."""
        taken = self.add("Gather", table, self.constant([number]), axis=1)
        return self.add("Reshape", taken, self.constant([-1]), **options)

    def _area(self, low: str, high: str) -> str:
        """The areas [K, 1, A] of boxes by their corners [K, 2, A]."""
        sides = self.add("Relu", self.add("Sub", high, low))
        return self.add("Mul", self.rows(sides, 0, 1), self.rows(sides, 1, 2))

    def rows(self, value: str, start: int, stop: int) -> str:
        """The rows [N, start:stop, A] of a value [N, R, A]."""
        return self.add("Slice", value, *(self.constant([number]) for number in (start, stop, 1)))

    def constant(self, numbers: list[int]) -> str:
        name = f"{DECODING}numbers_{'_'.join(map(str, numbers))}"
        if all(tensor.name != name for tensor in self._proto.initializer):
            self.initialise(name, np.array(numbers, np.int64))
        return name

    def initialise(self, name: str, numbers: NDArray[Any]) -> None:
        kind = checks.CONSTANT_TYPES[numbers.dtype.name]
        self._proto.initializer.add(name=name, dims=numbers.shape, data_type=kind, raw_data=numbers.tobytes())


def _describe(value: Any, name: str, kind: int, *shape: int | str) -> None:
    value.name, tensor = name, value.type.tensor_type
    tensor.elem_type = kind
    for size in shape:
        axis = tensor.shape.dim.add()
        if isinstance(size, str):
            axis.dim_param = size
        else:
            axis.dim_value = size

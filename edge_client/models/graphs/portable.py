"""Forms of a complete model that other runtimes than onnxruntime read, too; they compute the same numbers.

`tests/runtimes/RUNTIMES.md` has what each runtime answers. Every rewriting says which one asks for it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.models.graphs import checks, costs, filling

INT64, FLOAT32, BOOL = 7, 1, 9
TEXT, INTS = 3, 7  # kinds of attributes


def make_portable(model: Any, input_shape: tuple[int, ...]) -> None:
    """Rewrite an ONNX message for inputs [N, *input_shape]; N stays free."""
    graph = _Graph(model.graph)
    shapes = _shapes(graph, model, input_shape)
    _reshape_to_constants(graph, shapes)
    _normalise_pictures(graph)
    _drop_means(graph, shapes)
    _pool_tokens(graph, shapes)
    _cut_kernels(graph, shapes)
    _pad_apart(graph)
    _halve_last(graph)
    graph.finish()


SCALED = ("input_by_scale", "input_by_mean", "input_by_std")
"""The nodes, in their order, and their outputs, by which a model scales raw examples."""


def scale_inside(model: Any, axes: int, scale: float, mean: Sequence[float], std: Sequence[float]) -> None:
    """Let the model take raw examples [C, ...] of so many axes, and begin with `(x / scale - mean) / std`.

    The operations are those of `preprocess`, in its order, so that the numbers are the same; an operation
    that would change none is left out.
    """
    graph, last = _Graph(model.graph), filling.INPUT
    given = zip(SCALED, ("Div", "Sub", "Div"), ((scale,), mean, std), (1, 0, 1), strict=True)
    steps = [(name, kind, numbers) for name, kind, numbers, idle in given if set(numbers) != {idle}]
    first = graph.order[0]
    for node in graph.users(filling.INPUT) if steps else ():
        node.input[:] = [steps[-1][0] if value == filling.INPUT else value for value in node.input]
    for name, kind, numbers in steps:
        shape = (len(numbers),) + (1,) * (axes - 1) if len(numbers) > 1 else ()
        constant = graph.add_constant(f"{name}_constant", np.array(numbers, np.float32).reshape(shape))
        graph.add_node(first, kind, [last, constant], name)
        last = name
    graph.finish()


def _shapes(graph: "_Graph", model: Any, input_shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """The shapes of values for one example, of those that with three have three times as many rows."""
    nodes = [*graph.nodes("Shape", "Unsqueeze", "ReduceMean"), *filter(_is_depth_wise, graph.nodes("Conv"))]
    nodes += [user for shape in graph.nodes("Shape") for user in graph.users(shape.output[0])]
    asked = sorted({node.input[0] for node in nodes} - {filling.INPUT, *graph.constants})
    one, three = (costs.shapes_of(model, asked, input_shape, batch=batch) for batch in (1, 3))
    shapes = {name: sizes for name, sizes in one.items() if sizes}
    alike = {name for name, sizes in shapes.items() if three[name] == (3 * sizes[0], *sizes[1:])}
    return {filling.INPUT: (1, *input_shape)} | {name: shapes[name] for name in alike}


class _Graph:
    """A graph's nodes in their order, and its constants by name; `finish` writes both back."""

    def __init__(self, proto: Any) -> None:
        self._proto, self.order = proto, list(proto.node)
        self.constants = {tensor.name: tensor for tensor in proto.initializer}

    def nodes(self, *kinds: str) -> list[Any]:
        return [node for node in self.order if node.op_type in kinds]

    def maker(self, value: str) -> Any:
        """The node that computes a value; None for a constant or an input."""
        return next((node for node in self.order if value in node.output), None)

    def users(self, value: str) -> list[Any]:
        return [node for node in self.order if value in node.input]

    def numbers(self, name: str) -> NDArray[Any] | None:
        """The numbers of a constant of 32-bit floats or whole numbers; None for any other value."""
        tensor = self.constants.get(name)
        if tensor is None or tensor.data_type not in (INT64, FLOAT32):
            return None
        kind: Any = np.int64 if tensor.data_type == INT64 else np.float32
        values = tensor.int64_data if tensor.data_type == INT64 else tensor.float_data
        flat = np.frombuffer(tensor.raw_data, kind) if tensor.raw_data else np.array(values, kind)
        return flat.reshape(tuple(tensor.dims))

    def axes(self, node: Any) -> NDArray[Any] | None:
        """The constant axes that a node states as its second input."""
        return self.numbers(node.input[1]) if len(node.input) > 1 else None

    def add_constant(self, name: str, numbers: NDArray[Any]) -> str:
        """Add a constant, or use the one of that name; returns the name."""
        kind = INT64 if numbers.dtype == np.int64 else FLOAT32
        tensor = checks.TensorProto(name=name, dims=numbers.shape, data_type=kind, raw_data=numbers.tobytes())
        self.constants.setdefault(name, tensor)
        return name

    def add_shape(self, sizes: tuple[int, ...]) -> str:
        """Add a constant shape of a `Reshape` to `sizes`, whose first axis stays as it is: the batch."""
        name = "_".join(["shape_n", *map(str, sizes[1:])])
        return self.add_constant(name, np.array([0, *sizes[1:]], np.int64))

    def add_node(self, before: Any, kind: str, inputs: Sequence[str], output: str) -> Any:
        """Add a node before another one; its name is that of its output."""
        node = type(before)(name=output, op_type=kind, input=inputs, output=[output])
        place = next(place for place, each in enumerate(self.order) if each is before)
        self.order.insert(place, node)
        return node

    def finish(self) -> None:
        """Write the nodes and constants that something takes."""
        taken = {value.name for value in self._proto.output}
        kept = []
        for node in reversed(self.order):
            if taken.intersection(node.output):
                kept.append(_copy(node))
                taken.update(node.input)
        constants = [_copy(tensor) for name, tensor in self.constants.items() if name in taken]
        del self._proto.node[:], self._proto.initializer[:]
        self._proto.node.extend(reversed(kept))
        self._proto.initializer.extend(constants)


def _copy(message: Any) -> Any:
    # A message of a repeated field is gone with it.
    return type(message).FromString(message.SerializeToString())


def attribute_of(node: Any, name: str) -> Any:
    """The attribute of that name, or None."""
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _pad_apart(graph: _Graph) -> None:
    """A `Pad` of its own before a convolution padded unequally, as a causal one is: OpenCV 4."""
    for node in graph.nodes("Conv"):
        pads = attribute_of(node, "pads")
        half = len(pads.ints) // 2 if pads is not None else 0
        before, after = ([*pads.ints][:half], [*pads.ints][half:]) if half else ([], [])
        if before == after:
            continue
        output = f"{node.output[0]}_padded"
        sizes = graph.add_constant(f"{output}_by", np.array([0, 0, *before, 0, 0, *after], np.int64))
        source, node.input[0] = node.input[0], output
        pads.ints[:] = [0] * 2 * half
        zero = graph.add_constant("zero", np.zeros((), np.float32))
        pad = graph.add_node(node, "Pad", [source, sizes, zero], output)
        pad.attribute.add(name="mode", type=TEXT, s=b"constant")


def _halve_last(graph: _Graph) -> None:
    """GELU as `x (1 + erf(x / sqrt 2)) / 2`, halved last: OpenCV."""
    for node in graph.nodes("Mul"):
        makers = [graph.maker(value) for value in node.input]
        for x, halving in zip(node.input, reversed(makers), strict=True):
            one_more = _find_halved(graph, halving)
            if one_more is None or len(graph.users(halving.output[0])) > 1:
                continue
            half = next(value for value in halving.input if value != one_more)
            product = halving.output[0]
            halving.input[:] = [x, one_more]
            node.input[:] = [product, half]
            break


def _find_halved(graph: _Graph, node: Any) -> str | None:
    """What a node halves, if that is `1 + erf`."""
    if node is None or node.op_type != "Mul":
        return None
    for half, other in zip(node.input, reversed(node.input), strict=True):
        numbers, maker = graph.numbers(half), graph.maker(other)
        if numbers is None or numbers.size != 1 or numbers.flat[0] != 0.5 or maker is None:
            continue
        inner = [graph.maker(value) for value in maker.input] if maker.op_type == "Add" else []
        if any(each is not None and each.op_type == "Erf" for each in inner):
            return str(other)
    return None


def _reshape_to_constants(graph: _Graph, shapes: dict[str, tuple[int, ...]]) -> None:
    """Constant shapes of a `Reshape`, with a free batch, in place of `Shape` and of `Unsqueeze`: OpenCV.

    A shape that is taken from a value holds for the batch of the first run there.
    """
    for shape in graph.nodes("Shape"):
        sizes = shapes.get(shape.input[0])
        if sizes is None or any(each.i for each in shape.attribute):
            continue  # only a part of the shape, or rows that do not come first
        for node in graph.users(shape.output[0]):
            rows = shapes.get(node.input[0], (0,))[0]
            if node.op_type == "Reshape" and node.input[1] == shape.output[0] and rows == sizes[0]:
                node.input[1] = graph.add_shape(sizes)
                del node.attribute[:]
    for node in graph.nodes("Unsqueeze"):
        axes, sizes = graph.axes(node), shapes.get(node.input[0], ())
        if axes is None or axes.tolist() != [1] or len(sizes) < 2:
            continue
        node.op_type = "Reshape"
        node.input[1] = graph.add_shape((sizes[0], 1, *sizes[1:]))
        del node.attribute[:]


def _normalise_pictures(graph: _Graph) -> None:
    """Groups of channels as a picture [N, G, L, 1] where they are normalised: ncnn."""
    for node in graph.nodes("InstanceNormalization"):
        reshape = graph.maker(node.input[0])
        sizes = None if reshape is None or reshape.op_type != "Reshape" else graph.numbers(reshape.input[1])
        users = [user.op_type for user in graph.users(node.output[0])]
        if sizes is not None and sizes.shape == (3,) and sizes[2] == -1 and users == ["Reshape"]:
            reshape.input[1] = graph.add_constant(f"{reshape.input[1]}_1", np.append(sizes, 1))


def _drop_means(graph: _Graph, shapes: dict[str, tuple[int, ...]]) -> None:
    """No mean over pictures [N, C, 1, 1] of one pixel: LiteRT, which else answers the first of a batch."""
    for node in graph.nodes("ReduceMean"):
        axes, keeps = graph.axes(node), attribute_of(node, "keepdims")
        sizes = shapes.get(node.input[0], ())
        if axes is None or keeps is None or not keeps.i or {sizes[axis] for axis in axes if sizes} != {1}:
            continue
        for user in graph.users(node.output[0]):
            user.input[:] = [node.input[0] if name == node.output[0] else name for name in user.input]


def _pool_tokens(graph: _Graph, shapes: dict[str, tuple[int, ...]]) -> None:
    """The mean over tokens [N, T, C] as an average pool: OpenCV, and ncnn, which otherwise takes no mean."""
    for node in graph.nodes("ReduceMean"):
        axes = graph.axes(node)
        keeps, sizes = attribute_of(node, "keepdims"), shapes.get(node.input[0], ())
        if axes is None or axes.tolist() != [1] or len(sizes) != 3 or keeps is None or keeps.i:
            continue
        source, output = node.input[0], node.output[0]
        turned, pooled = f"{output}_turned", f"{output}_pooled"
        transpose = graph.add_node(node, "Transpose", [source], turned)
        transpose.attribute.add(name="perm", type=INTS, ints=[0, 2, 1])
        graph.add_node(node, "GlobalAveragePool", [turned], pooled)
        node.op_type = "Reshape"
        node.input[:] = [pooled, graph.add_shape((sizes[0], sizes[2]))]
        del node.attribute[:]


def _is_depth_wise(node: Any) -> bool:
    """Whether a convolution has groups, and more than single elements as kernels."""
    group, kernel = attribute_of(node, "group"), attribute_of(node, "kernel_shape")
    return group is not None and group.i > 1 and kernel is not None and max(kernel.ints) > 1


def _cut_kernels(graph: _Graph, shapes: dict[str, tuple[int, ...]]) -> None:
    """Depth-wise kernels cut to the centre where inputs are one pixel and the rest meets zeros: OpenCV 4."""
    for node in filter(_is_depth_wise, graph.nodes("Conv")):
        weight, sizes = graph.numbers(node.input[1]), shapes.get(node.input[0], ())
        pads, kernel = attribute_of(node, "pads"), attribute_of(node, "kernel_shape")
        if weight is None or pads is None or kernel is None or set(sizes[2:]) != {1}:
            continue
        axes = len(sizes) - 2
        centre = [*pads.ints][:axes]
        one_output = all(2 * pad < side <= 2 * pad + 1 for pad, side in zip(centre, kernel.ints, strict=True))
        if not any(centre) or not one_output or [*pads.ints][axes:] != centre:
            continue
        if len(graph.users(node.input[1])) > 1:
            continue
        cut = weight
        for axis, place in enumerate(centre, start=2):
            cut = cut.take([place], axis)
        tensor = graph.constants[node.input[1]]
        tensor.dims[:], tensor.raw_data = cut.shape, np.ascontiguousarray(cut).tobytes()
        del tensor.float_data[:]
        pads.ints[:], kernel.ints[:] = [0] * 2 * axes, [1] * axes

"""ONNX graphs written as formulas: values with operators that add nodes to a graph."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from sigmax.errors import MissingExtraError

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    raise MissingExtraError(
        'sigmax.integrations.onnx needs ONNX: pip install "sigmax[onnx]".'
    ) from error

__all__ = ["OnnxGraph", "OnnxValue"]

OPSET, IR_VERSION = 18, 10


@final
class OnnxGraph:
    """The nodes and the constants of a graph, in the order in which they were made."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int | str]) -> "OnnxValue":
        """Numbers in double precision that a caller gives."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape))
        return OnnxValue(self, name)

    def output(self, name: str, value: "OnnxValue", shape: Sequence[int | str]) -> None:
        """Numbers in double precision that a caller gets."""
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape))

    def constant(self, array: Any, dtype: Any = np.float32) -> "OnnxValue":
        """An array, by default in single precision."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return OnnxValue(self, name)

    def node(self, kind: str, *inputs: "OnnxValue", **attributes: Any) -> "OnnxValue":
        """What one of ONNX's operators makes of some values."""
        name = f"v{len(self.nodes)}"
        names = [value.name for value in inputs]
        self.nodes.append(helper.make_node(kind, names, [name], **attributes))
        return OnnxValue(self, name)

    def concatenate(self, values: Sequence["OnnxValue"], axis: int) -> "OnnxValue":
        """Values behind each other along an axis."""
        return values[0] if len(values) == 1 else self.node("Concat", *values, axis=axis)

    def model(self, name: str, metadata: dict[str, str]) -> Any:
        """All of it as a model that has been checked."""
        graph = helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        made.producer_name = "sigmax"
        helper.set_model_props(made, metadata)
        onnx.checker.check_model(made, full_check=True)
        return made


@final
class OnnxValue:
    """A value of a graph. Numbers beside it are in single precision; shapes broadcast."""

    __array_ufunc__ = None  # or an array on the left would take it for one of its entries

    def __init__(self, graph: OnnxGraph, name: str) -> None:
        self.graph, self.name = graph, name

    def _with(self, kind: str, other: Any, *, is_left: bool = True) -> "OnnxValue":
        if not isinstance(other, OnnxValue):
            other = self.graph.constant(other)
        return self.graph.node(kind, *((self, other) if is_left else (other, self)))

    def __add__(self, other: Any) -> "OnnxValue":
        return self._with("Add", other)

    def __radd__(self, other: Any) -> "OnnxValue":
        return self._with("Add", other, is_left=False)

    def __sub__(self, other: Any) -> "OnnxValue":
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> "OnnxValue":
        return self._with("Sub", other, is_left=False)

    def __mul__(self, other: Any) -> "OnnxValue":
        return self._with("Mul", other)

    def __rmul__(self, other: Any) -> "OnnxValue":
        return self._with("Mul", other, is_left=False)

    def __truediv__(self, other: Any) -> "OnnxValue":
        return self._with("Div", other)

    def __rtruediv__(self, other: Any) -> "OnnxValue":
        return self._with("Div", other, is_left=False)

    def __matmul__(self, other: Any) -> "OnnxValue":
        return self._with("MatMul", other)

    def maximum(self, other: Any) -> "OnnxValue":
        """The larger of two values, entry by entry."""
        return self._with("Max", other)

    def minimum(self, other: Any) -> "OnnxValue":
        """The smaller of two values, entry by entry."""
        return self._with("Min", other)

    def apply(self, kind: str, **attributes: Any) -> "OnnxValue":
        """What an operator of one value makes of it, such as "Exp", "Log" and "Sqrt"."""
        return self.graph.node(kind, self, **attributes)

    def square(self) -> "OnnxValue":
        """Its square."""
        return self * self

    def reduce(self, kind: str, axis: int, *, keepdims: bool = True) -> "OnnxValue":
        """A reduction over one axis, such as "ReduceSum"."""
        axes = self.graph.constant([axis], np.int64)
        return self.graph.node(kind, self, axes, keepdims=int(keepdims))

    def expand(self, axis: int) -> "OnnxValue":
        """With a new axis of length 1."""
        return self.graph.node("Unsqueeze", self, self.graph.constant([axis], np.int64))

    def reshape(self, *shape: int) -> "OnnxValue":
        """In another shape; 0 keeps a length, -1 is what is left."""
        return self.graph.node("Reshape", self, self.graph.constant(shape, np.int64))

    def split(self, n_parts: int, axis: int) -> list["OnnxValue"]:
        """Equal parts along an axis."""
        first = len(self.graph.nodes)
        names = [f"v{first}p{part}" for part in range(n_parts)]
        attributes: dict[str, Any] = {"axis": axis, "num_outputs": n_parts}
        self.graph.nodes.append(helper.make_node("Split", [self.name], names, **attributes))
        return [OnnxValue(self.graph, name) for name in names]

    def filled(self, number: float) -> "OnnxValue":
        """One number, in double precision, everywhere."""
        value = numpy_helper.from_array(np.array([number]), "number")
        return self.apply("Shape").apply("ConstantOfShape", value=value)

    def cast(self, dtype: Any) -> "OnnxValue":
        """In another precision."""
        return self.apply("Cast", to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

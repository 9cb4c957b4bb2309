import numpy as np
from numpy.typing import NDArray

from fcfl._types import Matrix, Vector

INTERFACE: int

def report(
    first: int,
    last: int,
    n_parts: int,
    n_first: int,
    sharpness: float,
    codes: NDArray[np.int32],
    ends: NDArray[np.int32],
    set_by: NDArray[np.int32],
    numbers: Matrix,
    number_features: NDArray[np.int32],
    params: Vector,
    counts: Vector,
    positives: Vector,
    members: Matrix,
    bends: Vector,
    sums: Vector,
    gradients: Matrix,
    diagonal: Vector,
) -> None: ...
def add_pairs(
    width: int, one: NDArray[np.int32], other: NDArray[np.int32], weights: Vector, table: Matrix
) -> None: ...
def add_few(
    size: int, features: NDArray[np.int32], weights: Vector, own: Matrix, total: Matrix
) -> None: ...

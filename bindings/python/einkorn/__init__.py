# SPDX-License-Identifier: Apache-2.0
"""einkorn: every kernel a language model needs behind one C ABI.

NumPy in, NumPy out; torch in, torch out on the same device:

    x, w = np.random.rand(4, 64).astype("f4"), np.ones(64, "f4")
    y = einkorn.rms_norm(x, w, eps=1e-5)
    einkorn.rms_norm(x, w, y=y)  # into memory that is there
    einkorn.last_kernel()  # 'rms_norm_cpu_v4'
"""

from . import schema
from ._context import (
    Context,
    Device,
    Event,
    Graph,
    Kernel,
    Stream,
    build_info,
    context,
    devices,
    kernels,
    last_kernel,
    library_path,
    ops,
    use,
    version,
)
from ._memory import DeviceArray, empty, from_numpy
from ._native import Error, InvalidArgument
from .ops_gen import *  # noqa: F403
from .ops_gen import __all__ as _op_names

__version__ = version()
__all__ = [
    "Context", "Device", "DeviceArray", "Error", "Event", "Graph", "InvalidArgument", "Kernel", "Stream", "build_info",
    "context", "devices", "empty", "from_numpy", "kernels", "last_kernel", "library_path", "ops", "schema", "use",
    "version",
    *_op_names,
]  # fmt: skip

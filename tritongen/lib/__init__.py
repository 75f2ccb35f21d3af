"""What generated modules share: functions of kernels, and functions of the host code that launches them.

    from tritongen import lib

    m = tl.reduce(x, 1, lib.nan_max, keep_dims=True)      # in a kernel
    x = lib.reshaped(x, rows, D)                          # in a launch function

`tritongen build --standalone` prints what a module uses of it into the module (`emit/library.py`). A module says for which
VERSION it was generated, and asks for it when it is imported. A new version is needed if a function is removed, changes its
meaning, or takes other parameters. This folder imports nothing else of tritongen.
"""

from tritongen.lib.checks import *
from tritongen.lib.coefficients import *
from tritongen.lib.compilers import *
from tritongen.lib.copies import *
from tritongen.lib.counts import *
from tritongen.lib.descriptors import *
from tritongen.lib.device import *
from tritongen.lib.estimates import *
from tritongen.lib.folds import *
from tritongen.lib.functions import *
from tritongen.lib.inverses import *
from tritongen.lib.layout import *
from tritongen.lib.merges import *
from tritongen.lib.references import *
from tritongen.lib.smooth import *
from tritongen.lib.tf32 import *
from tritongen.lib.tuning import *
from tritongen.lib.views import *

VERSION = 17

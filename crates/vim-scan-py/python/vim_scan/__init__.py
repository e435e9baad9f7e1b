"""The selective scan of Mamba and Vision Mamba as operations of PyTorch, under ten discretizations.

Deterministic: the same inputs give the same bits, forward and backward. Needs no compiler.

    from vim_scan import selective_scan_fn            # for mamba_ssm.ops.selective_scan_interface's
    from vim_scan import mamba_inner_fn               # likewise
    from vim_scan import bimamba_inner_fn             # for that of Vision Mamba's fork
    from vim_scan.vmamba import selective_scan_fn     # for VMamba's

`selective_scan` has the channels last, as `nn.Linear` leaves them; `selective_scan_fn` and
`mamba_inner_fn` have mamba-ssm's signatures and layouts. All take `discretization=`, by default
"zoh", which is mamba-ssm's.
"""

from ._ops import DISCRETIZATIONS, SERIES, selective_scan, set_num_threads
from ._drop_in import bimamba_inner, bimamba_inner_fn, mamba_inner_fn, mamba_inner_fn_no_out_proj, selective_scan_fn

__all__ = [
    "DISCRETIZATIONS",
    "SERIES",
    "bimamba_inner",
    "bimamba_inner_fn",
    "mamba_inner_fn",
    "mamba_inner_fn_no_out_proj",
    "selective_scan",
    "selective_scan_fn",
    "set_num_threads",
]

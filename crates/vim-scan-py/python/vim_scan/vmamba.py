"""VMamba's scans: `from vim_scan.vmamba import selective_scan_fn` for its models/csms6s.py's."""

import torch

from . import _drop_in


def selective_scan_fn(
    u,
    delta,
    A,
    B,
    C,
    D=None,
    delta_bias=None,
    delta_softplus=True,
    oflex=True,
    backend=None,
    *,
    discretization="zoh",
    series="exact",
):
    """u and delta [B, K D, L] in K groups; B and C [B, K, N, L]; returns [B, K D, L].

    With `oflex` y is float32 whatever u is. `backend` names a CUDA extension of theirs, which
    changes nothing here.
    """
    if oflex and u.dtype in (torch.float16, torch.bfloat16):
        u, delta, B, C = (t.float() for t in (u, delta, B, C))
    how = {"discretization": discretization, "series": series}
    return _drop_in.selective_scan_fn(u, delta, A, B, C, D, None, delta_bias, delta_softplus, **how)


class SelectiveScan:
    """The same by the signature of its older autograd functions: `SelectiveScan.apply(...)`."""

    @staticmethod
    def apply(
        u, delta, A, B, C, D=None, delta_bias=None, delta_softplus=False, nrows=1, backnrows=1, oflex=True, **how
    ):
        """`nrows` and `backnrows` say how its CUDA kernels divide their work, which changes
        nothing here.
        """
        return selective_scan_fn(u, delta, A, B, C, D, delta_bias, delta_softplus, oflex, **how)

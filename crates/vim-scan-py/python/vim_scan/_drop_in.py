"""Functions with the signatures and layouts of mamba-ssm, and of the fork of it that Vision
Mamba uses.
"""

import torch
import torch.nn.functional as F

from ._ops import mixer, scan, selective_scan


def selective_scan_fn(
    u,
    delta,
    A,
    B,
    C,
    D=None,
    z=None,
    delta_bias=None,
    delta_softplus=False,
    return_last_state=False,
    *,
    discretization="zoh",
    series="exact",
):
    """mamba-ssm's: u, delta and z [B, D, L]; A [D, N]; B and C [D, N], [B, N, L] or [B, G, N, L]; D
    and delta_bias [D].

    With a complex A, B and C that vary are real, [..., 2 L], pairs of numbers, as there. Returns
    [B, D, L], and with `return_last_state` the state [B, D, N], which has no gradient.
    """
    if A.is_complex():
        B, C = (_paired(t) for t in (B, C))
    how = (discretization, series, delta_softplus, False)
    y, state = scan((u, delta, A, B, C, D, z, delta_bias), how, True)
    return (y, state) if return_last_state else y


def _pairs(t):
    """Real [..., 2 L] as complex [..., L]."""
    t = t if t.dtype == torch.float64 else t.float()
    return torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous())


def _paired(t):
    """B or C beside a complex A: complex, if its real numbers are pairs, as those of one that
    varies are.
    """
    return t if t.is_complex() or t.dim() == 2 else _pairs(t)


def _tokens_second(t):
    """[B, ..., L] as [B, L, ...]; what has no tokens stays as it is."""
    return t if t.dim() == 2 else t.movedim(-1, 1)


def mamba_inner_fn(
    xz,
    conv1d_weight,
    conv1d_bias,
    x_proj_weight,
    delta_proj_weight,
    out_proj_weight,
    out_proj_bias,
    A,
    B=None,
    C=None,
    D=None,
    delta_bias=None,
    B_proj_bias=None,
    C_proj_bias=None,
    delta_softplus=True,
    checkpoint_lvl=1,
    b_rms_weight=None,
    c_rms_weight=None,
    dt_rms_weight=None,
    b_c_dt_rms_eps=1e-6,
    *,
    discretization="zoh",
    series="exact",
):
    """mamba-ssm's: xz [B, 2 D, L] through convolution, projections, scan, gate and out_proj;
    returns [B, L, d_model].

    B or C that is given, [D, N], [B, N, L] or [B, G, N, L], takes the place of the projected one.
    `checkpoint_lvl` is read and changes nothing: what it saves of memory there, autograd's
    checkpointing does here.
    """
    y = _inner(
        xz,
        conv1d_weight,
        conv1d_bias,
        x_proj_weight,
        delta_proj_weight,
        A,
        (B, C),
        D,
        delta_bias,
        (B_proj_bias, C_proj_bias),
        (dt_rms_weight, b_rms_weight, c_rms_weight, b_c_dt_rms_eps),
        delta_softplus=delta_softplus,
        discretization=discretization,
        series=series,
    )
    return F.linear(y, out_proj_weight, out_proj_bias)


def mamba_inner_fn_no_out_proj(
    xz,
    conv1d_weight,
    conv1d_bias,
    x_proj_weight,
    delta_proj_weight,
    A,
    B=None,
    C=None,
    D=None,
    delta_bias=None,
    B_proj_bias=None,
    C_proj_bias=None,
    delta_softplus=True,
    checkpoint_lvl=1,
    *,
    reverse=False,
    discretization="zoh",
    series="exact",
):
    """Vim's: as `mamba_inner_fn`, but for out_proj: [B, D, L]. `reverse` goes through the tokens
    from the last to the first.
    """
    y = _inner(
        xz,
        conv1d_weight,
        conv1d_bias,
        x_proj_weight,
        delta_proj_weight,
        A,
        (B, C),
        D,
        delta_bias,
        (B_proj_bias, C_proj_bias),
        (None, None, None, 0.0),
        delta_softplus=delta_softplus,
        reverse=reverse,
        discretization=discretization,
        series=series,
    )
    return y.transpose(1, 2)


def bimamba_inner_fn(
    xz,
    conv1d_weight,
    conv1d_bias,
    x_proj_weight,
    delta_proj_weight,
    out_proj_weight,
    out_proj_bias,
    A,
    A_b,
    B=None,
    C=None,
    D=None,
    delta_bias=None,
    B_proj_bias=None,
    C_proj_bias=None,
    delta_softplus=True,
    checkpoint_lvl=1,
    *,
    discretization="zoh",
    series="exact",
):
    """Vim's "v1": one convolution and one projection, scanned with A and, from the last token to
    the first, with A_b.
    """
    how = {"delta_softplus": delta_softplus, "discretization": discretization, "series": series}
    norms = (None, None, None, 0.0)
    parts = _projected(
        xz,
        conv1d_weight,
        conv1d_bias,
        x_proj_weight,
        delta_proj_weight,
        A,
        (B, C),
        (B_proj_bias, C_proj_bias),
        norms,
        False,
    )
    u, delta, B, C, z = parts
    y = selective_scan(u, delta, A, B, C, D, z, delta_bias, **how)
    y = y + selective_scan(u, delta, A_b, B, C, D, z, delta_bias, reverse=True, **how)
    return F.linear(y, out_proj_weight, out_proj_bias)


def bimamba_inner(
    xz, forward, backward, out_proj_weight, out_proj_bias=None, *, halved=False, discretization="zoh", series="exact"
):
    """Vim's "v2": two branches with weights of their own, summed, halved with `halved`, and
    projected; nothing is flipped.

    xz is [B, 2 D, L]; each branch is (conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight,
    A, D, delta_bias). All up to the projection is one node, which keeps its inputs alone and reads
    log(-A): where A is not negative, the result is NaN. Of float64, where an A is complex, and on a
    GPU before Ampere, it is the operations that make it up.
    """

    def branch(weights, reverse):
        conv, conv_bias, x_proj, dt_proj, A, D, delta_bias = weights
        how = {"reverse": reverse, "delta_softplus": True, "discretization": discretization, "series": series}
        nothing = (None, None)
        return _inner(
            xz, conv, conv_bias, x_proj, dt_proj, A, nothing, D, delta_bias, nothing, (None, None, None, 0.0), **how
        )

    def weights_of(conv, conv_bias, x_proj, dt_proj, A, D, delta_bias):
        nothing = A.new_zeros(A.shape[0])
        conv_bias, D, delta_bias = (nothing if t is None else t for t in (conv_bias, D, delta_bias))
        conv = conv.reshape(A.shape[0], 1, -1)
        return [t.float() for t in (conv, conv_bias, x_proj.t(), dt_proj.t(), delta_bias, torch.log(-A), D)]

    # Its products are of tensor cores.
    is_old = xz.is_cuda and torch.cuda.get_device_capability(xz.device) < (8, 0)
    if is_old or xz.dtype == torch.float64 or forward[4].is_complex() or backward[4].is_complex():
        y = branch(forward, False) + branch(backward, True)
    else:
        y = mixer(xz.transpose(1, 2), weights_of(*forward) + weights_of(*backward), discretization, series)
    return F.linear(y / 2 if halved else y, out_proj_weight, out_proj_bias)


def _inner(
    xz, conv_weight, conv_bias, x_proj, dt_proj, A, given, D, delta_bias, biases, norms, *, reverse=False, **how
):
    """[B, L, D]: what mamba_inner_fn projects by out_proj."""
    u, delta, B, C, z = _projected(xz, conv_weight, conv_bias, x_proj, dt_proj, A, given, biases, norms, reverse)
    return selective_scan(u, delta, A, B, C, D, z, delta_bias, reverse=reverse, **how)


def _projected(xz, conv_weight, conv_bias, x_proj, dt_proj, A, given, biases, norms, reverse):
    """u, delta, B, C and z of a scan."""
    x, z = xz.chunk(2, dim=1)
    taps = conv_weight.shape[-1]
    conv_weight = conv_weight.reshape(-1, 1, taps)
    # From the last token to the first, a token sees those behind it: the taps in reverse, and the
    # padding on the other side.
    conv_weight = conv_weight.flip(-1) if reverse else conv_weight
    x = F.pad(x, (0, taps - 1) if reverse else (taps - 1, 0))
    u = F.silu(F.conv1d(x, conv_weight, conv_bias, groups=x.shape[1])).transpose(1, 2)
    rank, states = dt_proj.shape[1], A.shape[-1] * (2 if A.is_complex() else 1)
    widths = [rank, *(states if t is None else 0 for t in given)]
    dt, *projected = F.linear(u, x_proj).split(widths, dim=-1)
    dt_norm, *bc_norms, eps = norms

    def normed(t, weight):
        return t if weight is None else F.rms_norm(t, weight.shape, weight, eps)

    def projection(given, projected, bias, norm):
        if given is not None:
            return _tokens_second(_paired(given) if A.is_complex() else given)
        projected = projected if bias is None else projected + bias.to(projected.dtype)
        return _pairs(projected) if A.is_complex() else normed(projected, norm)

    B, C = (projection(*of) for of in zip(given, projected, biases, bc_norms))
    return u, F.linear(normed(dt, dt_norm), dt_proj), B, C, z.transpose(1, 2)

"""The selective scan under each discretization as a plain loop of PyTorch over the tokens.

After docs/discretizations.md.
"""

import torch
import torch.nn.functional as F


def _phi(x, k):
    """phi_k of x: the sum of x^j / (j + k)!, by the recurrence where x is large and by the series where it is small."""
    by_recurrence, factorial = x.exp(), 1.0
    safe = torch.where(x.abs() < 0.5, torch.ones_like(x), x)
    by_recurrence = safe.exp()
    for i in range(k):
        by_recurrence = (by_recurrence - 1.0 / factorial) / safe
        factorial *= i + 1
    by_series, term, factorial = torch.zeros_like(x), torch.ones_like(x), 1.0
    for i in range(1, k + 1):
        factorial *= i
    for j in range(20):
        by_series = by_series + term / factorial
        term = term * x
        factorial *= j + k + 1
    return torch.where(x.abs() < 0.5, by_series, by_recurrence)


def coefficients(method, delta, a):
    """a_bar, b_prev (0 for most methods) and b_bar, at steps `delta` and rates `a`."""
    x = delta * a
    zero = torch.zeros_like(x)
    exp, half = x.exp(), x / 2
    return {
        "zoh": lambda: (exp, zero, delta + zero),
        "foh": lambda: (exp, zero, delta**2 * _phi(x, 2)),
        "bilinear": lambda: ((1 + half) / (1 - half), zero, delta / (1 - half)),
        "poly": lambda: (exp, zero, delta * _phi(x, 1) + delta**2 * _phi(x, 2) / 2),
        "highorder": lambda: (exp, zero, delta * _phi(x, 1) + delta**2 * _phi(x, 2) + delta**3 * _phi(x, 3) / 2),
        "rk4": lambda: (exp, zero, delta * (1 + x / 2 + x**2 / 6 + x**3 / 24)),
        "zoh_exact": lambda: (exp, zero, delta * _phi(x, 1)),
        "exp_trapezoidal": lambda: (exp, delta * exp / 2, delta / 2 + zero),
        "foh_linear": lambda: (exp, delta * (_phi(x, 1) - _phi(x, 2)), delta * _phi(x, 2)),
        "tustin": lambda: ((1 + half) / (1 - half), delta / 2 / (1 - half), delta / 2 / (1 - half)),
    }[method]()


def scan(u, delta, A, B, C, D=None, z=None, delta_bias=None, *, discretization="zoh", delta_softplus=False, reverse=False):
    """As vim_scan.selective_scan: channels last; returns y and the state behind the first scan."""
    channels = u.shape[2]
    delta = delta if delta_bias is None else delta + delta_bias
    delta = F.softplus(delta, threshold=1e9) if delta_softplus else delta

    def per_channel(t):  # [B, L, D, N]
        if t.dim() == 2:
            return t.expand(*u.shape[:2], *t.shape)
        t = t.unsqueeze(2) if t.dim() == 3 else t
        return t.repeat_interleave(channels // t.shape[2], dim=2)

    B, C = per_channel(B), per_channel(C)
    a_bar, b_prev, b_bar = coefficients(discretization, delta.unsqueeze(-1), A)
    driven = B * u.unsqueeze(-1)
    tokens = list(range(u.shape[1]))
    ways = [tokens[::-1] if reverse else tokens]
    if discretization == "poly":
        ways.append(ways[0][::-1])
    out, last = 0, None
    for way in ways:
        state, before, ys = torch.zeros_like(driven[:, 0] * A), None, {}
        for t in way:
            state = a_bar[:, t] * state + b_bar[:, t] * driven[:, t]
            if before is not None:
                state = state + b_prev[:, t] * driven[:, before]
            before = t
            y = (C[:, t] * state).sum(-1)
            ys[t] = 2 * y.real if y.is_complex() else y
        last = state if last is None else last
        out = out + torch.stack([ys[t] for t in tokens], 1) / len(ways)
    out = out if D is None else out + D * u
    return (out if z is None else out * F.silu(z)), last

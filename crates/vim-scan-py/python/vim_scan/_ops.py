"""The operations `vim_scan::forward` and `vim_scan::backward`, and the function on top of them."""

import types

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils.dlpack import to_dlpack

from . import _cuda, _native

DISCRETIZATIONS = tuple(_native.discretizations())
SERIES = tuple(_native.series())

# What a call is, behind its tensors.
_HOW = "str discretization, str series, bool delta_softplus, bool reverse"
# The inputs: u, delta and z [B, L, D], A [D, N], B and C [B, L, G, N] or [D, N], D and delta_bias
# [D]. Of a complex A, that and B and C have pairs of numbers as their last axis.
_INPUTS = "Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias"

# Of Vim's mixer: xz [B, L, 2 D], and for each direction convolution [D, 1, W] and its bias, x_proj
# [D, R + 2 N], dt_proj [R, D], delta_bias, log(-A) and D.
_MIXER = "Tensor xz, Tensor[] weights, str discretization, str series"

_LIBRARY = torch.library.Library("vim_scan", "DEF")
_LIBRARY.define(f"forward({_INPUTS}, {_HOW}, bool save) -> (Tensor, Tensor, Tensor)")
_LIBRARY.define("turned(Tensor[] tensors) -> Tensor[]")
_LIBRARY.define(f"mixer({_MIXER}) -> Tensor")
_LIBRARY.define(f"mixer_backward(Tensor grad_y, {_MIXER}, bool[15] wanted) -> Tensor[]")
_LIBRARY.define(f"backward(Tensor grad_y, {_INPUTS}, Tensor saved, {_HOW}, bool[8] wanted) -> Tensor[]")

_threads = None


def set_num_threads(threads):
    """Sets the threads of scans on a CPU, by default torch.get_num_threads(): before the first
    of them.
    """
    global _threads
    if _threads is None:
        _threads = _native.start(threads)
    if _threads != threads:
        raise RuntimeError(f"vim_scan: its {_threads} threads run already")


def _start():
    global _threads
    if _threads is None:
        _threads = _native.start(torch.get_num_threads())


def _dense(tensors):
    """What the native module reads: contiguous, not followed by autograd, and by DLPack."""
    return [None if t is None else to_dlpack(t.detach().contiguous()) for t in tensors]


def _forward_cpu(u, delta, A, B, C, D, z, delta_bias, discretization, series, delta_softplus, reverse, save):
    _start()
    how = (discretization, series, delta_softplus, reverse)
    y, state, saved = _native.forward(_dense((u, delta, A, B, C, D, z, delta_bias)), *how, save)
    saved = u.new_empty(0, dtype=torch.float32) if saved is None else torch.from_dlpack(saved)
    return torch.from_dlpack(y), torch.from_dlpack(state), saved


def _backward_cpu(
    grad_y, u, delta, A, B, C, D, z, delta_bias, saved, discretization, series, softplus, reverse, wanted
):
    _start()
    tensors = _dense((u, delta, A, B, C, D, z, delta_bias))
    grad_y, saved = _dense((grad_y, saved))
    grads = _native.backward(tensors, grad_y, saved, discretization, series, softplus, reverse, wanted)
    return [torch.from_dlpack(grad) for grad in grads]


def _forward_fake(u, delta, A, B, C, D, z, delta_bias, discretization, series, delta_softplus, reverse, save):
    batch, length, channels = u.shape
    count = 0
    if save and u.dtype != torch.float64:
        groups = max([1] + [t.shape[2] for t in (B, C) if t.dim() == 4])
        saved_len = _cuda.saved_len if u.device.type == "cuda" else _native.saved_len
        count = saved_len([batch, length, channels, A.shape[1], groups], discretization, series)
    state = torch.empty((batch, channels, *A.shape[1:]), dtype=A.dtype, device=u.device)
    return u.new_empty((batch, length, channels)), state, u.new_empty((count,), dtype=torch.float32)


def _backward_fake(
    grad_y, u, delta, A, B, C, D, z, delta_bias, saved, discretization, series, softplus, reverse, wanted
):
    inputs = zip((u, delta, A, B, C, D, z, delta_bias), wanted)
    return [
        torch.empty(t.shape, dtype=t.dtype, device=t.device) for t, is_wanted in inputs if is_wanted and t is not None
    ]


def _setup(ctx, inputs, output):
    *tensors, discretization, series, delta_softplus, reverse, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.how = (discretization, series, delta_softplus, reverse)
    ctx.save_for_backward(*tensors, output[2])


def _gradients(ctx, grad_y, _grad_state, _grad_saved):
    *tensors, saved = ctx.saved_tensors
    wanted = [need and t is not None for need, t in zip(ctx.needs_input_grad, tensors)]
    how = (None,) * 5
    if grad_y is None:
        return (None,) * 8 + how
    grads = iter(torch.ops.vim_scan.backward(grad_y, *tensors, saved, *ctx.how, wanted))
    return tuple(next(grads) if is_wanted else None for is_wanted in wanted) + how


def _mixer_cpu(xz, weights, discretization, series):
    _start()
    return torch.from_dlpack(_native.mixer_forward(_dense((xz, *weights)), discretization, series))


def _mixer_backward_cpu(grad_y, xz, weights, discretization, series, wanted):
    _start()
    (grad_y,) = _dense((grad_y,))
    grads = _native.mixer_backward(_dense((xz, *weights)), grad_y, discretization, series, wanted)
    return [torch.from_dlpack(grad) for grad in grads]


def _mixer_setup(ctx, inputs, output):
    xz, weights, *ctx.how = inputs
    ctx.save_for_backward(xz, *weights)


def _mixer_gradients(ctx, grad_y):
    xz, *weights = ctx.saved_tensors
    needs = (ctx.needs_input_grad[0], *ctx.needs_input_grad[1])
    grads = iter(torch.ops.vim_scan.mixer_backward(grad_y, xz, weights, *ctx.how, list(needs)))
    of_xz, *of_weights = (next(grads) if is_wanted else None for is_wanted in needs)
    return of_xz, of_weights, None, None


_LIBRARY.impl("mixer", _mixer_cpu, "CPU")
_LIBRARY.impl("mixer_backward", _mixer_backward_cpu, "CPU")
_LIBRARY.impl("mixer", _cuda.mixer, "CUDA")
_LIBRARY.impl("mixer_backward", _cuda.mixer_backward, "CUDA")
torch.library.register_fake(
    "vim_scan::mixer",
    lambda xz, weights, discretization, series: xz.new_empty((*xz.shape[:2], xz.shape[2] // 2)),
    lib=_LIBRARY,
)
torch.library.register_fake(
    "vim_scan::mixer_backward",
    lambda grad_y, xz, weights, discretization, series, wanted: [
        torch.empty(t.shape, dtype=t.dtype, device=t.device)
        for t, is_wanted in zip((xz, *weights), wanted)
        if is_wanted
    ],
    lib=_LIBRARY,
)
torch.library.register_autograd("vim_scan::mixer", _mixer_gradients, setup_context=_mixer_setup, lib=_LIBRARY)

_turned = lambda tensors: [t.movedim(-1, 1).contiguous() for t in tensors]
_LIBRARY.impl("turned", _turned, "CPU")
_LIBRARY.impl("turned", _cuda.turned, "CUDA")
torch.library.register_fake("vim_scan::turned", _turned, lib=_LIBRARY)

_LIBRARY.impl("forward", _forward_cpu, "CPU")
_LIBRARY.impl("backward", _backward_cpu, "CPU")
_LIBRARY.impl("forward", _cuda.forward, "CUDA")
_LIBRARY.impl("backward", _cuda.backward, "CUDA")
torch.library.register_fake("vim_scan::forward", _forward_fake, lib=_LIBRARY)
torch.library.register_fake("vim_scan::backward", _backward_fake, lib=_LIBRARY)
torch.library.register_autograd("vim_scan::forward", _gradients, setup_context=_setup, lib=_LIBRARY)


def _no_second_derivative(ctx, *grads):
    raise RuntimeError("vim_scan: a scan has no second derivative")


torch.library.register_autograd("vim_scan::backward", _no_second_derivative, lib=_LIBRARY)
torch.library.register_autograd("vim_scan::mixer_backward", _no_second_derivative, lib=_LIBRARY)


def _channels_last(tensors):
    """[B, ..., L] as contiguous [B, L, ...], of those that are there; without autograd, on a GPU, by
    a kernel for all of them that is faster than PyTorch's copies.
    """
    moved = [None if t is None else t.movedim(-1, 1) for t in tensors]
    places = [i for i, t in enumerate(moved) if t is not None and not t.is_contiguous()]
    if places and tensors[places[0]].is_cuda and not torch.compiler.is_compiling():
        for i, made in zip(places, torch.ops.vim_scan.turned([tensors[i] for i in places])):
            moved[i] = made
    return [None if t is None else t.contiguous() for t in moved]


def _laid_out(tensors, of_tokens, of_weights, first):
    """Real inputs as the operation has them; with `first` tokens are their last axis."""

    def to(t, dtype):
        return t if t is None or t.dtype == dtype else t.to(dtype)

    u, delta, A, B, C, D, z, delta_bias = tensors
    varies = [True, True, B.dim() > 2, C.dim() > 2, True]
    tokens = [to(t, of_tokens if v else of_weights) for t, v in zip((u, delta, B, C, z), varies)]
    if first:
        last = iter(_channels_last([t for t, v in zip(tokens, varies) if v]))
        tokens = [next(last) if v else t for t, v in zip(tokens, varies)]
    u, delta, B, C, z = tokens
    B, C = (t.unsqueeze(2) if t.dim() == 3 else t for t in (B, C))
    weights = [to(t, of_weights) for t in (A, D, delta_bias)]
    tensors = (u, delta, weights[0], B, C, weights[1], z, weights[2])
    return [None if t is None else t.contiguous() for t in tensors]


def _laid_back(grads, dims, first):
    """Their gradients as the inputs were, of `dims` axes; z is one of tokens, and has three."""
    for place in (0, 1, 6, 3, 4):
        grad = grads[place]
        if grad is None or dims[place] == 2:
            continue
        if grad.dim() > dims[place]:
            grad = grad.squeeze(2)
        grads[place] = grad.movedim(1, -1) if first else grad
    return grads


_CPU = types.SimpleNamespace(forward=_forward_cpu, backward=_backward_cpu)
_PLAIN = {Tensor, torch.nn.Parameter, type(None)}


def _operations(*tensors):
    """Where a node of autograd finds `forward` and `backward`. PyTorch's dispatcher takes a quarter
    of a pass of the host: it is asked where it has more to do than to find them, for tensors that
    are more than tensors, and where somebody looks at operations.
    """
    if is_in_torch_dispatch_mode() or not {type(t) for t in tensors} <= _PLAIN:
        return torch.ops.vim_scan
    return {"cpu": _CPU, "cuda": _cuda}.get(tensors[0].device.type, torch.ops.vim_scan)


class _Scan(torch.autograd.Function):
    """All of a call as one node, for a program that is not compiled: the host needs less time than
    for a node of each change of layout, and for those that PyTorch makes of an operation, which
    look at its schema at every call.
    """

    @staticmethod
    def forward(ctx, first, of_tokens, of_weights, dtype, how, *given):
        tensors = _laid_out(given, of_tokens, of_weights, first)
        y, state, saved = _operations(*given).forward(*tensors, *how, True)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(state)
        ctx.first, ctx.how, ctx.dims = first, how, [0 if t is None else t.dim() for t in given]
        ctx.save_for_backward(*tensors, saved)
        y = y.to(dtype)
        # In place: a view could not be changed in place by who called.
        return y.transpose_(1, 2) if first else y, state

    @staticmethod
    def backward(ctx, grad_y, _grad_state):
        if torch.is_grad_enabled():
            # What was saved knows nothing of where it came from.
            raise RuntimeError("vim_scan: a scan has no second derivative: leave out create_graph")
        wanted = list(ctx.needs_input_grad[5:])
        if grad_y is None:
            return (None,) * 13
        *tensors, saved = ctx.saved_tensors
        grad_y = grad_y.to(tensors[0].dtype)
        if ctx.first:
            (grad_y,) = _channels_last([grad_y])
        grads = iter(_operations(grad_y).backward(grad_y, *tensors, saved, *ctx.how, wanted))
        grads = [next(grads) if is_wanted else None for is_wanted in wanted]
        return None, None, None, None, None, *_laid_back(grads, ctx.dims, ctx.first)


def mixer(xz, weights, discretization, series):
    """[B, L, D] of Vim's mixer between its outer projections, one node: xz [B, L, 2 D]; weights as
    the operation has them, in float32. The backward pass computes the forward pass again.
    """
    kind = xz.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else xz.dtype
    xz = xz.to(torch.bfloat16 if kind == "cuda" and dtype == torch.bfloat16 else torch.float32)
    xz, *weights = (t.contiguous() for t in (xz, *weights))
    return torch.ops.vim_scan.mixer(xz, weights, discretization, series).to(dtype)


def _is_complex(A, B, C):
    kinds = {t.is_complex() for t in (A, B, C)}
    if len(kinds) == 2:
        raise TypeError("A, B and C are all real or all complex")
    return A.is_complex()


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    *,
    discretization: str = "zoh",
    series: str = "exact",
    delta_softplus: bool = False,
    reverse: bool = False,
    return_last_state: bool = False,
):
    """y [B, L, D] of the selective scan from a zero state, and with `return_last_state` the state
    [B, D, N] behind it.

    u, delta and z are [B, L, D], channels last; A [D, N], negative for a stable system; B and C [B,
    L, N], [B, L, G, N] for G groups of channels, or [D, N], the same for every token; D and
    delta_bias [D]. A, B and C may be complex: each state then stands for a conjugate pair, and y
    has twice the real part. `reverse` scans from the last token to the first.

    Activations are float32, float64, bfloat16 or float16, y has the type of u (under autocast,
    autocast's), and the state is float32 or float64. Of bfloat16 and float16, and where A is
    complex, all arithmetic is in float32 or better. Gradients of all inputs; the last state has
    none, and there are no second derivatives. On a CPU f64 and complex A run by plain loops: right,
    and slow.

    Raises ValueError for what does not fit, TypeError for a type, RuntimeError in a child of fork.
    """
    how = (discretization, series, delta_softplus, reverse)
    y, state = scan((u, delta, A, B, C, D, z, delta_bias), how, False)
    return (y, state) if return_last_state else y


def scan(tensors, how, first):
    """y and the last state of `selective_scan`; with `first` channels come before tokens, in y,
    too.
    """
    u, delta, A, B, C, D, z, delta_bias = tensors
    kind = u.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else u.dtype
    if not u.is_floating_point():
        raise TypeError(f"u is {u.dtype}: float32, float64, bfloat16 or float16")
    is_complex = _is_complex(A, B, C)
    if kind == "cuda" and (is_complex or dtype == torch.float64):
        raise TypeError("on a GPU A is real, and activations are float32, bfloat16 or float16")
    if is_complex:
        return _complex_scan(tensors, how, first, dtype)
    of_weights = torch.float64 if dtype == torch.float64 else torch.float32
    of_tokens = torch.bfloat16 if kind == "cuda" and dtype == torch.bfloat16 else of_weights
    save = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    if save and not torch.compiler.is_compiling():
        return _Scan.apply(first, of_tokens, of_weights, dtype, how, *tensors)
    laid_out = _laid_out(tensors, of_tokens, of_weights, first)
    y, state, _ = torch.ops.vim_scan.forward(*laid_out, *how, save)
    y = y.to(dtype)
    return y.transpose(1, 2) if first else y, state.detach()


def _complex_scan(tensors, how, first, dtype):
    """Of a complex A: pairs of numbers, in float64."""
    u, delta, A, B, C, D, z, delta_bias = tensors

    def token(t):
        return t if t is None else (t.transpose(1, 2) if first else t).double().contiguous()

    def pairs(t):
        t = t.movedim(-1, 1) if first and t.dim() > 2 else t
        t = torch.view_as_real(t.to(torch.complex128))
        return (t.unsqueeze(2) if t.dim() == 4 else t).contiguous()

    D, delta_bias = (t if t is None else t.double() for t in (D, delta_bias))
    tensors = token(u), token(delta), pairs(A), pairs(B), pairs(C), D, token(z), delta_bias
    save = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    y, state, _ = torch.ops.vim_scan.forward(*tensors, *how, save)
    y, state = y.to(dtype), torch.view_as_complex(state.detach())
    return y.transpose(1, 2) if first else y, state if dtype == torch.float64 else state.to(torch.complex64)

"""Scans on a GPU: in PyTorch's memory, on its current stream.

The native module finds the kernels of a call once for the shapes of its tensors, and launches them
from then on.
"""

import ctypes
import glob
import os

import torch

from . import _native

native = getattr(_native, "on_cuda", None)
_ready = False
_plans = {}


def _prepare():
    """Names PyTorch's own compiler and headers to the native module, which compiles its kernels
    by them.
    """
    global _ready
    if _ready:
        return
    if native is None:
        raise RuntimeError("vim_scan: this build has no CUDA kernels")
    site = os.path.dirname(os.path.dirname(torch.__file__))
    major = torch.version.cuda.split(".")[0]
    roots = [os.path.join(site, "nvidia", f"cu{major}"), os.path.join(site, "nvidia", "cuda_runtime")]
    roots += [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    folders = [os.path.join(site, "nvidia", "cuda_nvrtc"), *roots]
    found = [path for folder in folders for path in glob.glob(os.path.join(folder, "lib*", f"libnvrtc.so.{major}"))]
    if found:
        ctypes.CDLL(found[0], mode=ctypes.RTLD_GLOBAL)
    headers = [root for root in roots if root and os.path.exists(os.path.join(root, "include", "cuda_fp16.h"))]
    if not headers:
        raise RuntimeError(
            "vim_scan: no cuda_fp16.h: pip install nvidia-cuda-runtime of PyTorch's CUDA, or set CUDA_HOME"
        )
    # Not in os.environ, where PyTorch's extensions would take it for a whole toolkit.
    ctypes.CDLL(None).setenv(b"CUDA_PATH", headers[0].encode(), 1)
    _ready = True


class _Plan:
    """What a call launches, and the tensors that it needs beside its inputs."""

    def __init__(self, name, tensors, how):
        _prepare()
        devices = {t.device for t in tensors if t is not None}
        if len(devices) > 1:
            raise ValueError(f"vim_scan: tensors on several devices: {', '.join(sorted(map(str, devices)))}")
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "vim_scan: a call of these shapes was not made yet: make one before it is recorded in a CUDA graph"
            )
        kinds = [None if t is None else (list(t.shape), str(t.dtype).removeprefix("torch.")) for t in tensors]
        record = lambda: getattr(native, name)(tensors[0].device.index, kinds, *how)
        try:
            plan = record()
        except MemoryError:
            # The other library's pool may hold what is missing.
            torch.cuda.empty_cache()
            try:
                plan = record()
            except MemoryError as error:
                raise torch.OutOfMemoryError(str(error)) from None
        self.launch = plan.launch
        self.scratch = plan.scratch
        self.results = [(shape, getattr(torch, dtype)) for shape, dtype in plan.results]


def _aligned(t):
    """What a kernel reads: contiguous, and begun where its widest loads may."""
    return t if t.is_contiguous() and t.data_ptr() % 16 == 0 else t.clone(memory_format=torch.contiguous_format)


def _queue(name, tensors, how):
    """The results of a call of the native module, queued on the current stream."""
    device = tensors[0].device
    if torch.cuda.current_device() != device.index:
        with torch.cuda.device(device):
            return _queue(name, tensors, how)
    key = (name, how, *[None if t is None else (t.device, t.shape, t.dtype) for t in tensors])
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _Plan(name, tensors, how)
    # Alive until the kernels are queued; PyTorch gives memory to others in the stream's order.
    inputs = [_aligned(t) for t in tensors if t is not None]
    results = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in plan.results]
    scratch = torch.empty(plan.scratch, dtype=torch.uint8, device=device)
    addresses = [t.data_ptr() for t in (*inputs, *results, scratch)]
    plan.launch(torch.cuda.current_stream().cuda_stream, addresses)
    return results


def turned(tensors):
    """[B, L, ...] of [B, ..., L], contiguous; no autograd follows it."""
    _prepare()
    kinds = (torch.float32, torch.bfloat16)
    if all(t.is_contiguous() and t.dtype in kinds and t.shape[0] <= native.MOST_TURNED for t in tensors):
        return _queue("turned", tensors, ())
    return [t.movedim(-1, 1).contiguous() for t in tensors]


def forward(u, delta, A, B, C, D, z, delta_bias, discretization, series, delta_softplus, reverse, save):
    tensors = (u, delta, A, B, C, D, z, delta_bias)
    results = _queue("forward", tensors, (discretization, series, delta_softplus, reverse, save))
    return (*results,) if save else (*results, u.new_empty(0, dtype=torch.float32))


def backward(grad_y, u, delta, A, B, C, D, z, delta_bias, saved, discretization, series, softplus, reverse, wanted):
    tensors = (grad_y, u, delta, A, B, C, D, z, delta_bias, saved)
    return _queue("backward", tensors, (discretization, series, softplus, reverse, tuple(wanted)))


def mixer(xz, weights, discretization, series):
    return _queue("mixer", (xz, *weights), (discretization, series))[0]


def mixer_backward(grad_y, xz, weights, discretization, series, wanted):
    return _queue("mixer_backward", (grad_y, xz, *weights), (discretization, series, tuple(wanted)))


def saved_len(sizes, discretization, series):
    """Numbers that a forward pass saves."""
    if native is None:
        raise RuntimeError("vim_scan: this build has no CUDA kernels")
    return native.saved_len(sizes, discretization, series)

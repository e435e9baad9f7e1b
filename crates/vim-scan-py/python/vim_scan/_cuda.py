"""Scans on a GPU: tensors in memory that the native module hands out, and launches on the current
stream.

PyTorch copies an input there once, transposing it on the way where its layout asks for it; results
are there already.
"""

import ctypes
import glob
import os

import torch

from . import _native

native = getattr(_native, "on_cuda", None)
_ready = False


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


def _at(tensor):
    """The device and the stream that a call is queued on."""
    _prepare()
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError("vim_scan: a scan cannot be recorded in a CUDA graph of PyTorch")
    index = tensor.device.index
    return index, torch.cuda.current_stream(index).cuda_stream


def _retried(call):
    """Calls again with both libraries' caches emptied where memory is short."""
    try:
        return call()
    except MemoryError:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        native.empty_cache()
    try:
        return call()
    except MemoryError as error:
        raise torch.OutOfMemoryError(str(error)) from None


def _name(dtype):
    return str(dtype).removeprefix("torch.")


def adopt(tensors):
    """Contiguous copies in the native module's memory."""
    at = _at(tensors[0])
    with torch.cuda.device(at[0]):
        wanted = [(list(t.shape), _name(t.dtype)) for t in tensors]
        made = _retried(lambda: native.empty(at, wanted))
        return [torch.from_dlpack(new).copy_(old) for new, old in zip(made, tensors)]


def _places(tensors, held):
    """Where the native module finds `tensors`; copies of those that are not its own are put into
    `held`.
    """
    is_ours = lambda t: t.is_contiguous() and native.is_ours(t.data_ptr(), t.numel() * t.element_size())
    others = [i for i, t in enumerate(tensors) if t is not None and not is_ours(t)]
    tensors = list(tensors)
    if others:
        for i, copy in zip(others, adopt([tensors[i].detach() for i in others])):
            tensors[i] = copy
    held.extend(tensors)
    return [None if t is None else (t.data_ptr(), list(t.shape), _name(t.dtype)) for t in tensors]


def forward(u, delta, A, B, C, D, z, delta_bias, discretization, series, delta_softplus, reverse, save):
    at, held = _at(u), []
    with torch.cuda.device(at[0]):
        places = _places((u, delta, A, B, C, D, z, delta_bias), held)
        call = lambda: native.forward(at, places, discretization, series, delta_softplus, reverse, save)
        y, state, saved = _retried(call)
        saved = u.new_empty(0, dtype=torch.float32) if saved is None else torch.from_dlpack(saved)
        return torch.from_dlpack(y), torch.from_dlpack(state), saved


def backward(grad_y, u, delta, A, B, C, D, z, delta_bias, saved, discretization, series, softplus, reverse, wanted):
    at, held = _at(u), []
    with torch.cuda.device(at[0]):
        places = _places((u, delta, A, B, C, D, z, delta_bias), held)
        grad, states = _places((grad_y, saved), held)
        call = lambda: native.backward(at, places, grad, states, discretization, series, softplus, reverse, wanted)
        return [torch.from_dlpack(grad) for grad in _retried(call)]


def mixer(xz, weights, discretization, series):
    at, held = _at(xz), []
    with torch.cuda.device(at[0]):
        places = _places((xz, *weights), held)
        return torch.from_dlpack(_retried(lambda: native.mixer_forward(at, places, discretization, series)))


def mixer_backward(grad_y, xz, weights, discretization, series, wanted):
    at, held = _at(xz), []
    with torch.cuda.device(at[0]):
        grad, *places = _places((grad_y, xz, *weights), held)
        call = lambda: native.mixer_backward(at, places, grad, discretization, series, wanted)
        return [torch.from_dlpack(grad) for grad in _retried(call)]


def saved_len(sizes, discretization, series):
    """Numbers that a forward pass saves."""
    if native is None:
        raise RuntimeError("vim_scan: this build has no CUDA kernels")
    return native.saved_len(sizes, discretization, series)

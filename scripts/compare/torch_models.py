#!/usr/bin/env python3
"""Run the models of hustvl/Vim and of VMamba on vim_scan, beside the plain scan that each ships.

    git clone https://github.com/hustvl/Vim && git clone https://github.com/MzeroMiko/VMamba
    scripts/compare/torch_models.py --vim Vim --vmamba VMamba                     on a CPU
    scripts/compare/torch_models.py --vim Vim --vmamba VMamba --device cuda --batch 32 --size 224

Their files are read where they are, and only what they import is another: for Vim
`mamba_ssm.ops.selective_scan_interface` is vim_scan, for VMamba `csms6s.selective_scan_fn` is
vim_scan.vmamba's. Beside it runs the same model on the loop over tokens that each ships as a
reference (`selective_scan_ref`, `selective_scan_torch`). For each model a line: the largest
difference of the logits and of the gradients of all weights, divided by the largest number; whether
two runs of ours have the same bits; and seconds of a forward and backward pass, the shorter of two.

Needs torch, timm, einops, vim_scan, and for VMamba fvcore.
"""

import argparse
import contextlib
import importlib.util
import pathlib
import sys
import time
import types
import warnings

import torch
import torch.nn.functional as F


def module(name, **contents):
    """A module of that name that has these contents alone."""
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    sys.modules[name] = made
    return made


def load(name, path):
    """The module in a file, under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def vim_interface(scan):
    """Vim's selective_scan_interface on a scan of mamba's signature, in plain operations."""

    def parts(xz, conv_weight, conv_bias, x_proj, dt_proj, A):
        x, z = xz.chunk(2, 1)
        taps = conv_weight.shape[-1]
        u = F.silu(F.conv1d(x, conv_weight, conv_bias, padding=taps - 1, groups=x.shape[1])[..., : x.shape[-1]])
        dt, B, C = (u.transpose(1, 2) @ x_proj.T).split([dt_proj.shape[1], A.shape[1], A.shape[1]], -1)
        return u, (dt @ dt_proj.T).transpose(1, 2), B.transpose(1, 2), C.transpose(1, 2), z

    def no_out_proj(xz, conv, bias, x_proj, dt_proj, A, B=None, C=None, D=None, delta_bias=None, delta_softplus=True):
        u, delta, B, C, z = parts(xz, conv, bias, x_proj, dt_proj, A)
        return scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus)

    def whole(xz, conv, bias, x_proj, dt_proj, out, out_bias, A, B=None, C=None, D=None, delta_bias=None, delta_softplus=True):
        y = no_out_proj(xz, conv, bias, x_proj, dt_proj, A, B, C, D, delta_bias, delta_softplus)
        return F.linear(y.transpose(1, 2), out, out_bias)

    def both(xz, conv, bias, x_proj, dt_proj, out, out_bias, A, A_b, B=None, C=None, D=None, delta_bias=None, delta_softplus=True):
        u, delta, B, C, z = parts(xz, conv, bias, x_proj, dt_proj, A)
        y = scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus)
        flipped = (t.flip(-1) for t in (u, delta))
        u, delta, B, C, z = *flipped, B.flip(-1), C.flip(-1), z.flip(-1)
        y = y + scan(u, delta, A_b, B, C, D, z, delta_bias, delta_softplus).flip(-1)
        return F.linear(y.transpose(1, 2), out, out_bias)

    return {
        "selective_scan_fn": scan,
        "mamba_inner_fn": whole,
        "bimamba_inner_fn": both,
        "mamba_inner_fn_no_out_proj": no_out_proj,
    }


def vim_models(root):
    """Names, and for each a function that makes the model on our scan or on theirs."""
    theirs = root / "mamba-1p1p1" / "mamba_ssm"
    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.modules", "mamba_ssm.utils", "mamba_ssm.ops.triton"):
        module(name, __path__=[str(theirs.joinpath(*name.split(".")[1:]))])
    module("mamba_ssm.utils.generation", GenerationMixin=object)
    module("mamba_ssm.utils.hf", load_config_hf=None, load_state_dict_hf=None)
    # Its norms in Triton are not what is compared.
    sys.modules["mamba_ssm.ops.triton.layer_norm"] = None
    sys.modules["mamba_ssm.ops.triton.selective_state_update"] = None
    # Where it is missing, their module does not load.
    module("causal_conv1d", causal_conv1d_fn=None, causal_conv1d_update=None)
    sys.path.insert(0, str(root / "vim"))
    interface = theirs / "ops" / "selective_scan_interface.py"

    def make(ours, bimamba):
        if ours:
            import vim_scan

            module("mamba_ssm.ops.selective_scan_interface", **vars(vim_scan))
        else:
            module("causal_conv1d_cuda")
            module("selective_scan_cuda")
            reference = load("their_interface", interface).selective_scan_ref
            module("mamba_ssm.ops.selective_scan_interface", **vim_interface(reference))
        load("mamba_ssm.modules.mamba_simple", theirs / "modules" / "mamba_simple.py")
        models = load("models_mamba", root / "vim" / "models_mamba.py")
        torch.manual_seed(0)
        how = {"rms_norm": False, "fused_add_norm": False, "residual_in_fp32": True, "final_pool_type": "mean", "if_abs_pos_embed": True}
        how |= {"if_cls_token": True, "use_middle_cls_token": True, "if_divide_out": bimamba == "v2", "drop_path_rate": 0.0}
        return lambda size: models.VisionMamba(
            img_size=size, patch_size=16, embed_dim=192, depth=4, bimamba_type=bimamba, num_classes=100, **how
        )

    return [(f"Vim {kind}, 4 blocks", lambda ours, kind=kind: make(ours, kind)) for kind in ("v2", "v1")]


def vmamba_models(root):
    """Likewise of VMamba."""
    folder = root / "classification" / "models"
    sys.path.insert(0, str(folder))

    def make(ours):
        scans = load("csms6s", folder / "csms6s.py")
        if ours:
            from vim_scan.vmamba import selective_scan_fn

            scans.selective_scan_fn = selective_scan_fn
        else:
            theirs = scans.selective_scan_torch
            scans.selective_scan_fn = lambda *of, **how: theirs(*of, **{**how, "backend": "torch"})
        models = load("vmamba", folder / "vmamba.py")

        def model(size):
            torch.manual_seed(0)
            return models.VSSM(
                depths=[1, 1, 1, 1], dims=48, ssm_d_state=16, ssm_ratio=2.0, forward_type="v05_noz", num_classes=100,
                ssm_conv=3, ssm_conv_bias=False, mlp_ratio=0.0, norm_layer="ln2d", downsample_version="v3", patchembed_version="v2",
            )

        return model

    return [("VMamba, 4 stages", make)]


def run(make, size, images, device):
    """Logits, gradients, and seconds of a pass."""
    torch.manual_seed(0)
    model = make(size).to(device).train()
    best = float("inf")
    for _ in range(2):
        model.zero_grad()
        began = time.perf_counter()
        logits = model(images)
        logits.float().logsumexp(-1).sum().backward()
        if device != "cpu":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return logits.detach(), [p.grad for p in model.parameters() if p.grad is not None], best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vim", type=pathlib.Path)
    parser.add_argument("--vmamba", type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=64)
    args = parser.parse_args()
    models = (vim_models(args.vim) if args.vim else []) + (vmamba_models(args.vmamba) if args.vmamba else [])
    if not models:
        parser.error("--vim or --vmamba says where a checkout is")
    # What is compared is the scan: cuDNN's convolutions round to TF32 by default, and sum in any order.
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    # timm's, of models that are registered twice.
    warnings.simplefilter("ignore")
    if args.device == "cpu":
        # VMamba enters its tensors' device, which newer releases of PyTorch allow for GPUs alone.
        torch.cuda.device = lambda *_: contextlib.nullcontext()
    images = torch.randn(args.batch, 3, args.size, args.size, generator=torch.Generator().manual_seed(1)).to(args.device)
    print("| model | logits | gradients | the same bits twice | ours, s | their loop, s |\n|---|--:|--:|---|--:|--:|")
    for name, make in models:
        theirs, ours, again = (run(make(which), args.size, images, args.device) for which in (False, True, True))
        far = lambda a, b: ((a - b).abs().max() / b.abs().max()).item()
        worst = max(far(a, b) for a, b in zip(ours[1], theirs[1]) if b.abs().max() > 0)
        same = torch.equal(ours[0], again[0]) and all(torch.equal(a, b) for a, b in zip(ours[1], again[1]))
        print(f"| {name} | {far(ours[0], theirs[0]):.1e} | {worst:.1e} | {'yes' if same else 'NO'} | {ours[2]:.2f} | {theirs[2]:.2f} |")


if __name__ == "__main__":
    main()

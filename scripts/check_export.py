#!/usr/bin/env python3
"""Exports weights and checks that PyTorch computes the same from them as vim-train does.

    python3 scripts/check_export.py WEIGHTS [--vim-train target/release/vim-train] [--tolerance 1e-4]

WEIGHTS is anything that `vim-train export` takes. The script exports them to a .pth, loads that with
torch.load(weights_only=True), runs a plain Vision Mamba (zoh, bimamba v2 halved, class token in the middle, RMSNorm) on
random images in f32 on the CPU, and compares logits with those of `vim-train predict`, less their mean, which is what
probabilities determine. Needs torch and numpy. Written from the published formulas; exits 1 where they disagree.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
import torch.nn.functional as F

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def scan(u, delta, a, b, c, d):
    """h = exp(delta a) h + delta b u; y = c h + d u. u, delta: [B, L, D]; a: [D, N]; b, c: [B, L, N]; d: [D]."""
    h = u.new_zeros(u.shape[0], u.shape[2], a.shape[1])
    out = []
    for t in range(u.shape[1]):
        step = delta[:, t, :, None]
        h = torch.exp(step * a) * h + step * b[:, t, None, :] * u[:, t, :, None]
        out.append((h * c[:, t, None, :]).sum(-1))
    return torch.stack(out, 1) + d * u


def direction(x, z, w, end):
    """One direction of the mixer; `end` is "" or "_b". x, z: [B, L, D]."""
    conv = w[f"conv1d{end}.weight"]
    x = F.pad(x.transpose(1, 2), (conv.shape[-1] - 1, 0))
    x = F.silu(F.conv1d(x, conv, w[f"conv1d{end}.bias"], groups=conv.shape[0])).transpose(1, 2)
    a = -torch.exp(w["A_b_log" if end else "A_log"])
    rank = w[f"dt_proj{end}.weight"].shape[1]
    dt, b, c = torch.split(x @ w[f"x_proj{end}.weight"].T, [rank, a.shape[1], a.shape[1]], -1)
    delta = F.softplus(dt @ w[f"dt_proj{end}.weight"].T + w[f"dt_proj{end}.bias"])
    return scan(x, delta, a, b, c, w[f"D{end}"]) * F.silu(z)


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def vim(w, images, stride):
    """Logits [B, K] of normalised images [B, 3, H, W]."""
    x = F.conv2d(images, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=stride)
    x = x.flatten(2).transpose(1, 2)
    middle = x.shape[1] // 2
    x = torch.cat([x[:, :middle], w["cls_token"].expand(len(x), 1, -1), x[:, middle:]], 1) + w["pos_embed"]
    residual = torch.zeros_like(x)
    depth = 1 + max(int(key.split(".")[1]) for key in w if key.startswith("layers."))
    for layer in range(depth):
        residual = residual + x
        prefix = f"layers.{layer}.mixer."
        m = {key[len(prefix) :]: value for key, value in w.items() if key.startswith(prefix)}
        xz = rms_norm(residual, w[f"layers.{layer}.norm.weight"]) @ m["in_proj.weight"].T
        u, z = xz.chunk(2, -1)
        y = direction(u, z, m, "") + direction(u.flip(1), z.flip(1), m, "_b").flip(1)
        x = (y / 2) @ m["out_proj.weight"].T
    return rms_norm(residual + x, w["norm_f.weight"])[:, middle] @ w["head.weight"].T + w["head.bias"]


def png(path, pixels):
    """Writes [H, W, 3] bytes."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")):
            file.write(struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("--vim-train", default="target/release/vim-train")
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()

    def run(*command):
        return subprocess.run([args.vim_train, *command], check=True, stdout=subprocess.PIPE).stdout

    with tempfile.TemporaryDirectory() as folder:
        exported = os.path.join(folder, "exported.pth")
        run("export", args.weights, "-o", exported)
        state = torch.load(exported, weights_only=True)["model"]
        assert all(value.dtype == torch.float32 for value in state.values())
        model = json.loads(run("import", exported, "--json"))["model"]
        side, stride = model["image_size"], model["stride"]
        # Of the size that evaluation resizes to, so that only the middle is cut out.
        full = side if side <= 32 else int(side / 0.875)
        corner = round((full - side) / 2)
        generator = np.random.default_rng(0)
        paths, batch = [], []
        for number in range(args.images):
            pixels = generator.integers(0, 256, (full, full, 3), dtype=np.uint8)
            paths.append(os.path.join(folder, f"{number}.png"))
            png(paths[-1], pixels)
            batch.append(pixels[corner : corner + side, corner : corner + side])
        images = torch.from_numpy(np.stack(batch)).permute(0, 3, 1, 2).float() / 255
        images = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
        with torch.no_grad():
            theirs = vim(state, images, stride).double()
        classes = theirs.shape[1]
        ours = json.loads(run("predict", *paths, "--checkpoint", exported, "--top", str(classes), "--json"))

    logits = torch.empty_like(theirs)
    for row, image in zip(logits, ours):
        for guess in image["predictions"]:
            row[guess["class"]] = np.log(guess["probability"])
    centred = lambda x: x - x.mean(1, keepdim=True)
    error = (centred(logits) - centred(theirs)).abs().max().item()
    print(f"{len(state)} tensors, {classes} classes, {side} px: logits differ by at most {error:.2e}", end=" ")
    print(f"(the largest is {centred(theirs).abs().max().item():.2f})")
    sys.exit(0 if error <= args.tolerance else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Exports weights and checks that PyTorch computes the same from them as vim-train does.

    python3 scripts/compare/check_export.py WEIGHTS [--vim-train target/release/vim-train] [--tolerance 1e-4]
    python3 scripts/compare/check_export.py WEIGHTS --config FILE.toml       of a segmenter or detector; a run has a config.toml

WEIGHTS is anything that `vim-train export` takes. The script exports them to a .pth and loads that with
torch.load(weights_only=True). Then it imports and exports that file again: the arrays must be the same bits.

A classifier: runs a plain Vision Mamba (zoh, bimamba v2 halved, class token in the middle, RMSNorm) on random images in
f32 on the CPU, and compares logits with those of `vim-train predict`, less their mean, which is what probabilities
determine. A segmenter: loads a plain UperNet (torch_segmenter.py; zoh, no class token) by load_state_dict(strict=True),
saves that with classes balanced, and compares what vim-train predicts from it: the classes of all pixels where the two
largest logits are further apart than the tolerance.

A detector: loads a plain Cascade Mask R-CNN (torch_detector.py; zoh, no class token, small images) by
load_state_dict(strict=True), saves that with scores spread, and has `vim-golden eval-golden` compare everything on two
random images: features, proposals, the cascade, losses and scores (1e-5), boxes (1e-3 px), classes (equal), masks, and
gradients (1e-2, as a ReLU may be open or closed by rounding). The images are such that no two boxes score the same.

Needs torch and numpy, of a detector's boxes torchvision where it is installed. Written from the published formulas;
exits 1 where they disagree.
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

import detector_arrays
import torch_boxes
import torch_detector
import torch_segmenter

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


def grey(path):
    """[H, W] bytes of a grey PNG of 8 bits."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed, height, width = 8, b"", 0, 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, bits, colours = struct.unpack(">IIBB", body[:10])
            assert (bits, colours) == (8, 0), f"{path} is no grey PNG of 8 bits"
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, width + 1).astype(int)
    out = np.zeros((height + 1, width + 1), int)  # with a row above and a pixel before
    for y, (kind, *row) in enumerate(rows, 1):
        for x, value in enumerate(row, 1):
            left, above, corner = out[y, x - 1], out[y - 1, x], out[y - 1, x - 1]
            guess = left + above - corner
            nearest = min((abs(guess - left), 0, left), (abs(guess - above), 1, above), (abs(guess - corner), 2, corner))
            out[y, x] = value + (0, left, above, (left + above) // 2, nearest[2])[kind] & 255
    return out[1:, 1:]


def pictures(folder, count, side, full):
    """Paths of random images of `full` px, and their middle of `side` px, normalised: [B, 3, H, W]."""
    generator, corner = np.random.default_rng(0), round((full - side) / 2)
    paths, batch = [], []
    for number in range(count):
        pixels = generator.integers(0, 256, (full, full, 3), dtype=np.uint8)
        paths.append(os.path.join(folder, f"{number}.png"))
        png(paths[-1], pixels)
        batch.append(pixels[corner : corner + side, corner : corner + side])
    images = torch.from_numpy(np.stack(batch)).permute(0, 3, 1, 2).float() / 255
    return paths, (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def classifier(run, folder, exported, state, _, args):
    """Whether the logits are the same."""
    assert all(value.dtype == torch.float32 for value in state.values())
    model = json.loads(run("import", exported, "--json"))["model"]
    side, stride = model["image_size"], model["stride"]
    # Of the size that evaluation resizes to, so that only the middle is cut out.
    full = side if side <= 32 else int(side / 0.875)
    paths, images = pictures(folder, args.images, side, full)
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
    return error <= args.tolerance


def segmenter(run, folder, exported, state, config, args):
    """Whether the classes of all pixels are the same, where they are certain."""
    about = json.loads(run("import", exported, *config, "--json"))
    side, classes = about["model"]["image_size"], about["num_classes"]
    model = torch_segmenter.Segmenter(about["model"], about["segmentation"], classes, direction).eval()
    model.load_state_dict(state, strict=True)
    counts = {value.item() for key, value in state.items() if key.endswith("num_batches_tracked")}
    paths, images = pictures(folder, args.images, side, side)
    balanced = os.path.join(folder, "balanced.pth")
    with torch.no_grad():
        # Little training prefers one class: without what it prefers, many are to be told apart.
        bias = model.decode_head.conv_seg.bias
        bias -= model(images).mean((0, 2, 3))
        torch.save({"meta": {}, "state_dict": model.state_dict()}, balanced)
        logits = torch_segmenter.resized(model(images), (side, side))
    largest, second = logits.topk(min(2, classes), 1).values[:, [0, -1]].unbind(1)
    certain = largest - second > args.tolerance
    maps = os.path.join(folder, "maps")
    whole = ("--set", "pairs.inference=whole", "--set", "data.normalize=imagenet")
    run("predict", *paths, "--checkpoint", balanced, *config, *whole, "--submission", maps)
    ours = np.stack([grey(os.path.join(maps, os.path.basename(path))) - 1 for path in paths])
    wrong = int(((torch.from_numpy(ours) != logits.argmax(1)) & certain).sum())
    print(f"{len(state)} tensors, all taken; normalizations have seen {sorted(counts)} batches; {classes} classes, {side} px:")
    print(f"{wrong} of {int(certain.sum())} certain pixels differ ({certain.numel()} in all, ", end="")
    print(f"{len(logits.argmax(1).unique())} classes among them)")
    return wrong == 0


def detector(run, folder, exported, state, config, args):
    """Whether vim-train computes of two images what PyTorch does."""
    about = json.loads(run("import", exported, *config, "--json"))
    section, heads, classes = about["model"], about["detection"], about["num_classes"]
    if other := {"last", "sampling_ratio", "aligned"} & heads.keys():
        sys.exit(f"error: torch_detector.py computes none with detection.{', detection.'.join(sorted(other))}")
    side = section["image_size"]
    net = torch_detector.Net(section, direction)
    model = torch_detector.Detector(net, section["d_model"], section["patch_size"], heads, classes).eval()
    model.load_state_dict(state, strict=True)
    sizes = [(side, side * 3 // 4), (side * 4 // 5, side)]
    changed, arrays, variant = (os.path.join(folder, name) for name in ("spread.pth", "spread.npz", "spread.json"))
    for seed in range(20):
        generator = np.random.default_rng(seed)
        scenes = [detector_arrays.scene(generator, side, size, classes, 3 + 2 * i) for i, size in enumerate(sizes)]
        model.load_state_dict(state)
        model.spread(detector_arrays.padded([image for image, *_ in scenes], side, MEAN, STD), sizes)
        model.zero_grad()
        found, description = detector_arrays.described(model, about, scenes, MEAN, STD)
        ranks = [values for name, values in found.items() if "proposal_logits" in name or "eval.scores" in name]
        # The order of what scores the same is nobody's business.
        if all(np.abs(np.diff(values)).min(initial=1) > 5e-6 for values in ranks):
            break
    else:
        sys.exit("error: in each of 20 pairs of images two boxes score the same: give a model of smaller images")
    torch.save({"model": model.state_dict(), "iteration": 0}, changed)
    np.savez(arrays, **found)
    with open(variant, "w") as file:
        json.dump(description, file)
    count = sum(len(found[f"eval.classes{image}"]) for image in range(len(scenes)))
    kinds = len(np.unique(np.concatenate([found[f"eval.classes{image}"] for image in range(len(scenes))])))
    command = ["eval-golden", "--weights", changed, "--arrays", arrays, "--variant", variant, "--device", "cpu"]
    golden = args.vim_golden or os.path.join(os.path.dirname(args.vim_train), "vim-golden")
    # A sum that is rounded to the other side of 0 opens or closes a ReLU.
    command += ["--grads", "--tol-grad", "1e-2", "--tol-dx", "1e-2"]
    result = subprocess.run([golden, *command], stdout=subprocess.PIPE, text=True)
    print(f"{len(state)} tensors, all taken; {classes} classes, {side} px; operations: {torch_boxes.OPERATIONS}")
    print(f"{count} detections of {kinds} classes in {len(scenes)} images; of all arrays, losses and gradients:")
    print(result.stdout if result.returncode else result.stdout.strip().splitlines()[-1])
    return result.returncode == 0 and count > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights")
    parser.add_argument("--config", help="what a segmenter's or a detector's weights are of; left out, WEIGHTS/config.toml")
    parser.add_argument("--vim-train", default="target/release/vim-train")
    parser.add_argument("--vim-golden", help="to compare a detector with; left out, beside vim-train")
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    recorded = os.path.join(args.weights, "config.toml")
    config = args.config or (recorded if os.path.isfile(recorded) else None)

    def run(*command):
        return subprocess.run([args.vim_train, *command], check=True, stdout=subprocess.PIPE).stdout

    def load(path):
        loaded = torch.load(path, weights_only=True)
        return loaded.get("state_dict", loaded.get("model"))

    with tempfile.TemporaryDirectory() as folder:
        exported, ours, again = (os.path.join(folder, name) for name in ("1.pth", "2.safetensors", "3.pth"))
        run("export", args.weights, "-o", exported)
        state = load(exported)
        kind = classifier
        if "decode_head.conv_seg.bias" in state:
            kind = segmenter
            if not config:
                sys.exit(f"error: {args.weights} is a segmenter: give --config")
        elif "roi_heads.mask_head.predictor.bias" in state:
            kind = detector
        config = ("--config", config) if config and kind is not classifier else ()
        run("import", exported, *config, "-o", ours)
        run("export", ours, "-o", again)
        back = load(again)
        assert list(back) == list(state), "another export has other names"
        is_float = lambda value: value.dtype == torch.float32
        assert all(torch.equal(state[key], back[key]) for key in state if is_float(state[key])), "other numbers"
        good = kind(run, folder, exported, state, config, args)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

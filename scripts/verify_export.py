#!/usr/bin/env python3
"""Run files of `vim-train export --format onnx` in onnxruntime, and compare them with what vim-train says.

    scripts/verify_export.py FILE.onnx...            exit 1 if a logit differs by more than the band
    scripts/verify_export.py FILE.onnx --time        also milliseconds an image, on two threads (--threads)

Each file carries the logits that vim-train computed of two images, which this script makes again. The largest
difference, over the largest logit, must be at most 1e-5, and 2e-2 where weights are stored in float16. Other outputs
must follow from the logits: probabilities, labels.

Needs NumPy and onnxruntime: python3 -m pip install onnxruntime
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

BAND, HALF_BAND = 1e-5, 2e-2


def session(path, threads):
    """The model in `path`, or one line that says why this runtime does not take it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        if not path.is_file():
            raise SystemExit(f"error: cannot read {path}: no such file") from error
        # The reason is at the end, behind the place in the runtime's source.
        why = " ".join(str(error).split())[-120:]
        hint = "it is no graph of ONNX, or a damaged one"
        if any(word in why for word in ("LinearAttention", "opset", "IR version")):
            hint = "use a newer one, or export with --scan loop"
        version = onnxruntime.__version__
        raise SystemExit(f"error: {path}: onnxruntime {version} does not take it (… {why}): {hint}") from error


def probe(count):
    """The bytes of the images: the crate vim-onnx, probe.rs."""
    import numpy as np

    index = np.arange(1, count + 1, dtype=np.uint32)
    return ((index * np.uint32(2654435761)) >> np.uint32(24)).astype(np.uint8)


def inputs(model):
    """The two images, as the model takes them."""
    import numpy as np

    given = model.get_inputs()[0]
    from_pixels = given.type == "tensor(uint8)"
    height, width = given.shape[1:3] if from_pixels else given.shape[2:4]
    pixels = probe(2 * height * width * 3).reshape(2, height, width, 3)
    if not from_pixels:
        half = np.float32(0.5)
        pixels = np.ascontiguousarray(((pixels.astype(np.float32) / np.float32(255) - half) / half).transpose(0, 3, 1, 2))
    is_dynamic = not isinstance(given.shape[0], int)
    return given.name, [pixels] if is_dynamic else [pixels[:1], pixels[1:]]


def check_others(outputs):
    """Whether the outputs beside the logits follow from them."""
    import numpy as np

    if "probabilities" in outputs:
        powers = np.exp(outputs["logits"] - outputs["logits"].max(1, keepdims=True))
        difference = abs(powers / powers.sum(1, keepdims=True) - outputs["probabilities"]).max()
        return [] if difference < 1e-5 else [f"probabilities differ by {difference:.1e}"]
    if "labels" in outputs:
        labels, probability = outputs["labels"], outputs["probability"]
        classes = outputs["logits"].shape[1]
        if labels.dtype != np.uint8 or labels.max() >= classes or probability.min() < 1 / classes - 1e-5:
            return ["labels or their probability cannot be"]
    return []


def verify(path, arguments):
    """Prints a line for a file; what is wrong with it."""
    import numpy as np

    model = session(path, arguments.threads)
    texts = model.get_modelmeta().custom_metadata_map
    try:
        expected = json.loads(texts["probe"])
    except (KeyError, ValueError):
        raise SystemExit(f"error: {path} has no probe: it is no export of vim-train") from None
    name, batches = inputs(model)
    names = [output.name for output in model.get_outputs()]
    runs = [model.run(None, {name: batch}) for batch in batches]
    outputs = {output: np.concatenate(parts) for output, parts in zip(names, zip(*runs))}
    logits = outputs["logits"].ravel()[:: expected["every"]]
    difference = abs(logits - np.array(expected["logits"], np.float32)).max() / expected["largest"]
    band = HALF_BAND if texts.get("weights_type") == "float16" else BAND
    wrong = check_others(outputs)
    if not difference <= band:
        wrong.append(f"logits differ by {difference:.1e} of the largest, more than {band:.0e}")
    line = f"{path.name:<34} {difference:.1e}  {path.stat().st_size / 1e6:7.2f} MB"
    if arguments.time:
        one = batches[0][:1]
        model.run(None, {name: one})
        times = []
        for _ in range(arguments.time):
            start = time.perf_counter()
            model.run(None, {name: one})
            times.append(1e3 * (time.perf_counter() - start))
        line += f"  {statistics.median(times):7.1f} ms"
    print(line + "".join(f"  WRONG: {what}" for what in wrong), flush=True)
    return difference, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE.onnx")
    parser.add_argument("--time", type=int, nargs="?", const=15, metavar="N", help="median of N passes (15)")
    parser.add_argument("--threads", type=int, default=2, help="threads of the runtime (2)")
    arguments = parser.parse_args()
    try:
        import numpy  # noqa: F401
        import onnxruntime
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error.name} is missing: python3 -m pip install onnxruntime")
    print(f"onnxruntime {onnxruntime.__version__}: largest difference over the largest logit, size")
    results = [verify(path, arguments) for path in arguments.files]
    wrong = sum(bool(wrong) for _, wrong in results)
    print(f"{len(results)} files, largest difference {max(difference for difference, _ in results):.1e}, {wrong} wrong")
    sys.exit(min(wrong, 1))


if __name__ == "__main__":
    main()

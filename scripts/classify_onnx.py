#!/usr/bin/env python3
"""The class of a photograph, by a file of `vim-train export RUN -o vim.onnx --pixels`, as `vim-train predict` has it.

    scripts/classify_onnx.py vim.onnx cat.jpg              needs: python3 -m pip install onnxruntime pillow
"""
import json
import sys

import numpy
import onnxruntime
from PIL import Image

model = onnxruntime.InferenceSession(sys.argv[1])
about = {key: json.loads(text) for key, text in model.get_modelmeta().custom_metadata_map.items()
         if key in ("size", "cover", "classes")}
(height, width), (rows, columns) = about["size"], about["cover"]
image = Image.open(sys.argv[2]).convert("RGB")
is_wider = image.width * rows >= image.height * columns
image = image.resize((rows * image.width // image.height, rows) if is_wider
                     else (columns, columns * image.height // image.width), Image.Resampling.BICUBIC)
left, top = round((image.width - width) / 2), round((image.height - height) / 2)
pixels = numpy.asarray(image.crop((left, top, left + width, top + height)))
probabilities = model.run(["probabilities"], {"pixels": pixels[None]})[0][0]
for number in probabilities.argsort()[::-1][:5]:
    print(f"{100 * probabilities[number]:6.2f} %  {about['classes'][number]}")

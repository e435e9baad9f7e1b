#!/usr/bin/env python3
"""Write scikit-learn's handwritten digits as a folder of images, and say what an SVM reaches on them.

The 1 797 digits of 8 x 8 pixels in 17 grey levels are part of scikit-learn's package: nothing is downloaded
when this script runs. They are the test set of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten
Digits", UCI Machine Learning Repository, 1998 (CC BY 4.0). OUT gets train/<class>/<number>.png and
val/<class>/<number>.png, with 360 digits, 36 or so of each class, in val/. The split depends on --seed alone.

The SVM is scikit-learn's example for these digits: SVC(gamma=0.001) on the pixels.

Needs scikit-learn and Pillow: python3 -m pip install scikit-learn pillow

Examples:
  make_digits.py --out data/digits
  make_digits.py --out data/digits-s1 --seed 1
"""

import argparse
import pathlib
import sys

TEST_IMAGES = 360


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write; must not exist yet")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split (default: 0)")
    arguments = parser.parse_args()

    try:
        from PIL import Image
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
        from sklearn.svm import SVC
    except ModuleNotFoundError as error:
        sys.exit(f"error: {error.name} is missing: python3 -m pip install scikit-learn pillow")

    digits = load_digits()
    train, test = train_test_split(
        range(len(digits.target)), test_size=TEST_IMAGES, random_state=arguments.seed, stratify=digits.target
    )
    try:
        arguments.out.mkdir(parents=True)
    except FileExistsError:
        sys.exit(f"error: {arguments.out} exists already: remove it, or name another folder")
    for part, numbers in (("train", train), ("val", test)):
        for number in numbers:
            folder = arguments.out / part / str(digits.target[number])
            folder.mkdir(parents=True, exist_ok=True)
            # Levels 0 to 16 are spread over 0 to 255.
            pixels = (digits.images[number] * 255 / 16).round().astype("uint8")
            Image.fromarray(pixels).save(folder / f"{number:04}.png")

    svm = SVC(gamma=0.001).fit(digits.data[train], digits.target[train])
    right = int((svm.predict(digits.data[test]) == digits.target[test]).sum())
    print(f"{arguments.out}: {len(train)} images in train/, {len(test)} in val/")
    print(f"SVM on the same split: {right} of {len(test)}, {100 * right / len(test):.2f} %")


if __name__ == "__main__":
    main()

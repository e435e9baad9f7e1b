#!/usr/bin/env python3
"""Pack a binary of vim-train, or vim_scan's module for PyTorch, as a wheel.

    scripts/pack_wheel.py dist/vim-train-0.1.0-x86_64-linux-gnu2.17-cuda.tar.xz -o dist
    scripts/pack_wheel.py target/release/vim-train -o /tmp        of a build of one's own, for its machine
    scripts/pack_wheel.py target/release/lib_native.so -o /tmp    vim_scan, of `cargo build --release -p vim-scan-py`
    scripts/pack_wheel.py --self-test                             pack made-up files, look at the wheels, install them

`pip install` puts the binary into an environment's bin. vim_scan's wheel is for every Python from 3.10 on (abi3), and has the
files of crates/vim-scan-py/python beside the module.

Nothing is compiled: the binary is that of an archive of scripts/release.sh, and the licences, THIRD-PARTY.txt, the SBOM
and the README (as description) are those beside it. The extras cuda12 and cuda13 install NVRTC and the CUDA headers, in
versions that every driver from 550 and from 580 on loads. The CPU's archive becomes version X.Y.Z+cpu, without extras.
The tag has the glibc that the binary requires, 2.17 at least. A build of one's own lacks THIRD-PARTY.txt and the SBOM,
and is not to be passed on.

The same file gives the same bytes, with the same Python and zlib: entries are sorted, and their time is 1980.
Needs Python 3.9 and nothing else; x86-64 only. Prints the path.
"""

import argparse
import base64
import hashlib
import lzma
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARCHIVE = re.compile(r"vim-train-(\d+\.\d+\.\d+)-x86_64-linux-gnu[\d.]+-(cpu|cuda)\.tar\.xz")
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.txt"]
SBOM = "vim-train.cdx.json"
# NVRTC writes PTX of its own version, of which a driver loads none that is newer: these are the oldest versions that
# are promised, as `vim-train doctor` advises them (crates/vim-engine/src/device/cuda_libraries/version.rs).
EXTRAS = {
    "cuda12": [
        "nvidia-cuda-nvrtc-cu12==12.4.*",
        "nvidia-cuda-runtime-cu12==12.4.*",
        "nvidia-cuda-cccl-cu12==12.4.*",
        "nvidia-cuda-nvcc-cu12==12.4.*",
    ],
    "cuda13": [
        "nvidia-cuda-nvrtc==13.0.*",
        "nvidia-cuda-runtime==13.0.*",
        "nvidia-cuda-cccl==13.0.*",
        "nvidia-cuda-crt==13.0.*",
    ],
}
# Versions of glibc that manylinux's tags begin with.
OLDEST_GLIBC = (2, 17)
# The oldest time of a zip file.
EPOCH = (1980, 1, 1, 0, 0, 0)


def from_cargo(key):
    """A value of [workspace.package] in Cargo.toml."""
    section = (ROOT / "Cargo.toml").read_text().split("[workspace.package]")[1].split("\n[")[0]
    return re.search(rf'^{key} = "(.*)"$', section, re.MULTILINE)[1]


def contents(path):
    """Version, variant, and the files to pack by name, of an archive or of a binary with the repository's texts."""
    wanted = ["vim-train", "README.md", SBOM, *LICENCES]
    if not path.name.endswith(".tar.xz"):
        texts = [ROOT / name for name in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"]]
        return from_cargo("version"), "cuda", {"vim-train": path.read_bytes(), **{t.name: t.read_bytes() for t in texts}}
    named = ARCHIVE.fullmatch(path.name)
    if not named:
        sys.exit(f"pack_wheel.py: {path.name} is not named as scripts/release.sh names archives")
    folder, files = path.name[: -len(".tar.xz")], {}
    with tarfile.open(path) as archive:
        for name in wanted:
            try:
                files[name] = archive.extractfile(f"{folder}/{name}").read()
            except KeyError:
                sys.exit(f"pack_wheel.py: {path} has no {folder}/{name}")
    return named[1], named[2], files


def glibc_of(binary, path):
    """The newest version of glibc that an ELF file of x86-64 asks for."""
    if binary[:5] != b"\x7fELF\x02" or binary[18:20] != b"\x3e\x00":
        sys.exit(f"pack_wheel.py: {path} is no program of x86-64 Linux")
    asked = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", binary)
    return max([OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in asked)])


def metadata(name, summary, version, licences, readme, needs=(), extras={}):
    """The text of METADATA."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {version}",
        f"Summary: {summary}",
        f"Project-URL: Repository, {from_cargo('repository')}",
        f"License-Expression: {from_cargo('license')}",
        *(f"License-File: {name}" for name in licences),
        "Description-Content-Type: text/markdown; charset=UTF-8",
        *needs,
    ]
    for extra, requirements in extras.items():
        lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {one}; extra == '{extra}'" for one in requirements)]
    return "\n".join(lines) + "\n\n" + readme


def pack(path, out):
    """The path of the wheel of an archive, a binary or a module."""
    if path.suffix == ".so":
        return pack_module(path, out)
    version, variant, files = contents(path)
    extras = EXTRAS
    if variant == "cpu":
        version, extras = f"{version}+cpu", {}
    tag = "py3-none-manylinux_{}_{}_x86_64".format(*glibc_of(files["vim-train"], path))
    name = f"vim_train-{version}"
    info = f"{name}.dist-info"
    licences = [one for one in LICENCES if one in files]
    wheel = f"Wheel-Version: 1.0\nGenerator: pack_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n"
    entries = {f"{name}.data/scripts/vim-train": files["vim-train"], f"{info}/WHEEL": wheel.encode()}
    summary = "Train, evaluate and compare Vision Mamba under ten discretizations"
    about = metadata("vim-train", summary, version, licences, files["README.md"].decode(), extras=extras)
    entries[f"{info}/METADATA"] = about.encode()
    entries.update({f"{info}/licenses/{one}": files[one] for one in licences})
    if SBOM in files:
        entries[f"{info}/sboms/{SBOM}"] = files[SBOM]
    return write(f"{name}-{tag}", info, entries, out)


def pack_module(path, out):
    """The path of the wheel of vim_scan."""
    crate, version, module = ROOT / "crates/vim-scan-py", from_cargo("version"), path.read_bytes()
    tag = "cp310-abi3-manylinux_{}_{}_x86_64".format(*glibc_of(module, path))
    name = f"vim_scan-{version}"
    info = f"{name}.dist-info"
    licences = [one for one in LICENCES if (ROOT / one).exists()]
    needs = ["Requires-Python: >=3.10", "Requires-Dist: torch>=2.6"]
    summary = "Mamba's selective scan for PyTorch: deterministic, without a compiler, under ten discretizations"
    about = metadata("vim-scan", summary, version, licences, (crate / "README.md").read_text(), needs)
    wheel = f"Wheel-Version: 1.0\nGenerator: pack_wheel\nRoot-Is-Purelib: false\nTag: {tag}\n"
    entries = {f"vim_scan/{one.name}": one.read_bytes() for one in (crate / "python/vim_scan").glob("*.py")}
    entries |= {"vim_scan/_native.abi3.so": module, f"{info}/METADATA": about.encode(), f"{info}/WHEEL": wheel.encode()}
    entries |= {f"{info}/licenses/{one}": (ROOT / one).read_bytes() for one in licences}
    return write(f"{name}-{tag}", info, entries, out)


def write(name, info, entries, out):
    """The path of a wheel with these files."""
    record = ""
    for entry, data in sorted(entries.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{entry},sha256={digest},{len(data)}\n"
    # The list of files is the last one.
    ordered = [*sorted(entries.items()), (f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())]
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"{name}.whl"
    temporary = target.with_suffix(".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry, data in ordered:
            about = zipfile.ZipInfo(entry, EPOCH)
            about.compress_type = zipfile.ZIP_DEFLATED
            # Unix, whatever packs it; a regular file, which only the program may be run as.
            about.create_system = 3
            about.external_attr = (0o100755 if "/scripts/" in entry else 0o100644) << 16
            archive.writestr(about, data)
    temporary.replace(target)
    return target


def self_test():
    """Pack archives whose binary is this machine's `true`, and install them."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program = pathlib.Path("/bin/true").read_bytes()
        texts = {name: f"text of {name}\n".encode() for name in ["README.md", SBOM, *LICENCES]}
        for variant, version in [("cuda", "7.8.9"), ("cpu", "7.8.9+cpu")]:
            name = f"vim-train-7.8.9-x86_64-linux-gnu2.17-{variant}"
            for file, data in {"vim-train": program, **texts}.items():
                (folder / name).mkdir(exist_ok=True)
                (folder / name / file).write_bytes(data)
            with tarfile.open(folder / f"{name}.tar.xz", "w:xz") as archive:
                archive.add(folder / name, name)
            first, second = (pack(folder / f"{name}.tar.xz", folder / out) for out in ("a", "b"))
            assert first.read_bytes() == second.read_bytes(), "two wheels of one archive differ"
            assert first.name.startswith(f"vim_train-{version}-py3-none-manylinux_2_"), first.name
            with zipfile.ZipFile(first) as wheel:
                names, info = wheel.namelist(), f"vim_train-{version}.dist-info"
                texts_in = [f"{info}/licenses/{one}" for one in LICENCES] + [f"{info}/sboms/{SBOM}"]
                assert set(texts_in) < set(names) and names[-1] == f"{info}/RECORD", names
                text = wheel.read(f"{info}/METADATA").decode()
                assert text.endswith("\n\ntext of README.md\n"), text
                needs = re.findall(r"^Requires-Dist: (.*); extra == 'cuda1[23]'$", text, re.MULTILINE)
                assert needs == ([] if variant == "cpu" else EXTRAS["cuda12"] + EXTRAS["cuda13"]), needs
            environment = folder / f"environment-{variant}"
            run = lambda *command: subprocess.run(command, check=True, capture_output=True, text=True).stdout
            run(sys.executable, "-m", "venv", environment)
            pip = [environment / "bin/python", "-m", "pip", "--disable-pip-version-check"]
            run(*pip, "install", "--no-index", first)
            run(*pip, "check")
            assert f"\nVersion: {version}\n" in run(*pip, "show", "vim-train")
            installed = environment / "bin/vim-train"
            run(installed)
            assert installed.read_bytes() == program, "the installed program is another"
        # A module is found in its package, by every Python from 3.10 on.
        (folder / "lib_native.so").write_bytes(program)
        module = pack(folder / "lib_native.so", folder / "a")
        assert re.fullmatch(r"vim_scan-[\d.]+-cp310-abi3-manylinux_2_\d+_x86_64.whl", module.name), module.name
        with zipfile.ZipFile(module) as wheel:
            assert {"vim_scan/__init__.py", "vim_scan/_native.abi3.so"} < set(wheel.namelist()), wheel.namelist()
        run(*pip, "install", "--no-index", "--no-deps", module)
        # What is no archive of a release, and no program, is refused.
        (folder / "text").write_text("no program")
        for refused in (folder / "text", folder / "vim-train.tar.xz"):
            try:
                pack(refused, folder)
            except SystemExit as error:
                assert refused.name in str(error), error
            else:
                raise AssertionError(f"{refused} was packed")
    print("pack_wheel.py: good")


def main():
    """Pack what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="?", type=pathlib.Path, help="an archive of scripts/release.sh, or a binary")
    parser.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("dist"), help="the folder (dist)")
    parser.add_argument("--self-test", action="store_true", help="test this script")
    args = parser.parse_args()
    if args.self_test:
        self_test()
    elif args.path is None:
        parser.error("an archive or a binary is needed")
    else:
        try:
            print(pack(args.path, args.out))
        except (OSError, EOFError, lzma.LZMAError, tarfile.TarError) as error:
            sys.exit(f"pack_wheel.py: {args.path}: {error}")


if __name__ == "__main__":
    main()

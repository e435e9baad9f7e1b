#!/usr/bin/env python3
"""Write what a binary of vim-train is made of: THIRD-PARTY.txt and vim-train.cdx.json. scripts/release.sh calls it.

    scripts/describe_release.py --features cuda,turbo --target x86_64-unknown-linux-gnu --zig DIR --out DIR

THIRD-PARTY.txt lists all dependencies with their versions and licence expressions, and the licence texts that their
packages carry, each once. vim-train.cdx.json is the same list as a CycloneDX 1.5 document, with the checksums of
Cargo.lock and who depends on whom. Both name the C libraries that packages bundle, Rust's standard library and the
unwinder of Zig (--zig, the folder of the Python package ziglang), which are linked as well. What only runs during the
build, such as build scripts and procedural macros, is marked so: in CycloneDX its scope is `excluded`.
The time is SOURCE_DATE_EPOCH, or 0; the same commit and toolchain give the same bytes.
"""

import argparse
import dataclasses
import datetime
import html
import json
import os
import pathlib
import re
import subprocess
import uuid

from cargo_packages import edges, licence, packages

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENCE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense|readme\.ijg)", re.IGNORECASE)
# C libraries that packages bundle: name, licence, the file with the version, how the version is written there.
BUNDLED = {
    "libmimalloc-sys": ("mimalloc", "MIT", "c_src/mimalloc/v3/include/mimalloc.h", r"_VERSION (\d)(\d\d)(\d\d)"),
    "turbojpeg-sys": (
        "libjpeg-turbo",
        "IJG AND BSD-3-Clause AND Zlib",
        "libjpeg-turbo/CMakeLists.txt",
        r"set\(VERSION ([\d.]+)\)",
    ),
}
PREFACE = """\
What this binary is made of besides vim-train, which is MIT OR Apache-2.0 (LICENSE-MIT, LICENSE-APACHE): name, version,
licence, repository. The source code of a crate is also at https://crates.io/crates/NAME/VERSION. A * marks what only
runs during the build and is not in the binary. The licence texts that the packages carry follow the list; those of
bundled C libraries are with the crates whose names end in -sys.
"""
WITHOUT = """\
These packages carry no licence text; LICENSE-MIT and LICENSE-APACHE have the usual wording of those two licences:
"""
RULE = "=" * 100


@dataclasses.dataclass
class Part:
    """Something that a binary is made of."""

    name: str
    version: str
    licence: str
    # Whether the binary contains it; else it only runs during the build.
    linked: bool
    # Paths of licence texts.
    texts: list
    purl: str = ""
    repository: str = ""
    checksum: str = ""
    is_ours: bool = False
    # Whether it is a C library in the package of a crate, which has its licence text, too.
    is_library: bool = False
    # References to what it depends on.
    needs: list = dataclasses.field(default_factory=list)

    @property
    def reference(self):
        """Its name in the document."""
        return self.purl or f"{self.name}@{self.version}"


def texts_in(folder):
    """The licence files of a package, at any depth: bundled C libraries have their own."""
    found = (path for path in folder.rglob("*") if path.is_file() and LICENCE_FILE.match(path.name))
    return sorted(path for path in found if path.suffix not in (".rtf", ".rs"))


def checksums():
    """SHA-256 of each package that a registry provides, from Cargo.lock."""
    entry = r'name = "([^"]+)"\nversion = "([^"]+)"\nsource = "[^"]+"\nchecksum = "([0-9a-f]{64})"'
    found = re.findall(entry, (ROOT / "Cargo.lock").read_text())
    return {(name, version): checksum for name, version, checksum in found}


def bundled(package, folder):
    """The C library in a package's folder, if there is one."""
    if package["name"] not in BUNDLED:
        return
    name, expression, place, pattern = BUNDLED[package["name"]]
    text = next(folder.glob(place)).read_text(errors="replace")
    version = ".".join(re.sub(r"^0+(?=\d)", "", part) for part in re.search(pattern, text).groups())
    yield Part(name, version, expression, True, [], f"pkg:generic/{name}@{version}", is_library=True)


def crates(features, target):
    """vim-train, the crates that it is built from, and the C libraries in them."""
    linked = edges("vim-train", features, "normal,no-proc-macro", target)
    graph = edges("vim-train", features, "normal,build", target)
    known = {(package["name"], package["version"]): package for package in packages(f"--filter-platform={target}")}
    sums, parts = checksums(), {}
    for node in graph:
        package, is_ours = known[node], known[node]["source"] is None
        folder = pathlib.Path(package["manifest_path"]).parent
        texts = [] if is_ours else texts_in(folder)
        # Our crates are not in a registry, so they have no such name.
        purl = "" if is_ours else "pkg:cargo/{}@{}".format(node[0], node[1].replace("+", "%2B"))
        about = (purl, package["repository"] or "", sums.get(node, ""), is_ours)
        parts[node] = Part(*node, licence(package), node in linked, texts, *about)
    for node, part in list(parts.items()):
        part.needs = [parts[needed].reference for needed in sorted(graph[node])]
        for library in bundled(known[node], pathlib.Path(known[node]["manifest_path"]).parent):
            library.linked = part.linked
            part.needs.append(library.reference)
            parts[library.name, library.version] = library
    return list(parts.values())


def runtime(zig):
    """What the toolchain links into every binary."""
    told = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    # Rust's distribution has the licences of its standard library as a page.
    rust = [path for path in [pathlib.Path(sysroot.strip(), "share/doc/rust/COPYRIGHT-library.html")] if path.exists()]
    version = subprocess.run([zig / "zig", "version"], check=True, capture_output=True, text=True).stdout.strip()
    yield Part("rust-std", told.split()[1], "MIT OR Apache-2.0", True, rust)
    yield Part("zig-compiler-rt", version, "MIT", True, [zig / "LICENSE"])
    unwind = zig / "lib/libunwind/LICENSE.TXT"
    yield Part("zig-libunwind", version, "Apache-2.0 WITH LLVM-exception", True, [unwind])


def readable(path):
    """A licence text; a page of HTML without its tags."""
    text = path.read_text(errors="replace").replace("\r\n", "\n")
    if path.suffix == ".html":
        text = re.sub(r"\n\s*\n+", "\n\n", html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", "", text, flags=re.DOTALL)))
    return text.strip()


def third_party(parts):
    """The text of THIRD-PARTY.txt."""
    texts, without, rows = {}, [], []
    for part in parts:
        name = f"{part.name} {part.version}"
        rows.append(f"{' ' if part.linked else '*'} {name}  {part.licence}  {part.repository}".rstrip())
        for path in part.texts:
            texts.setdefault(readable(path), []).append(f"{name} ({path.name})")
        if not part.texts and not part.is_library:
            without.append(f"  {name}")
    lines = [PREFACE, *rows, "", WITHOUT, *without]
    for text, owners in sorted(texts.items(), key=lambda item: item[1][0]):
        lines += ["", RULE, *sorted(set(owners)), RULE, "", text]
    return "\n".join(lines) + "\n"


def component(part):
    """A part as CycloneDX writes it."""
    fields = {"type": "library", "bom-ref": part.reference, "name": part.name, "version": part.version}
    fields["scope"] = "required" if part.linked else "excluded"
    if part.checksum:
        fields["hashes"] = [{"alg": "SHA-256", "content": part.checksum}]
    fields["licenses"] = [{"expression": part.licence}]
    if part.purl:
        fields["purl"] = part.purl
    if part.repository:
        fields["externalReferences"] = [{"type": "vcs", "url": part.repository}]
    return fields


def document(root, parts, features):
    """The CycloneDX document."""
    time = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    whole = component(root) | {"type": "application", "properties": [{"name": "cargo:features", "value": features}]}
    del whole["scope"]
    needs = [{"ref": part.reference, "dependsOn": part.needs} for part in [root, *parts]]
    body = {
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": whole},
        "components": [component(part) for part in parts],
        "dependencies": needs,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return json.dumps(head | body, indent=1) + "\n"


def main():
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, help="features of the binary, separated by commas")
    parser.add_argument("--target", required=True, help="its target triple")
    parser.add_argument("--zig", required=True, type=pathlib.Path, help="folder of the Python package ziglang")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    options = parser.parse_args()

    root, *others = crates(options.features, options.target)
    toolchain = list(runtime(options.zig))
    root.needs += [part.reference for part in toolchain]
    parts = sorted([*others, *toolchain], key=lambda part: (part.name, part.version))
    foreign = [part for part in parts if not part.is_ours]
    (options.out / "THIRD-PARTY.txt").write_text(third_party(foreign))
    (options.out / "vim-train.cdx.json").write_text(document(root, parts, options.features))
    linked = sum(part.linked for part in parts)
    print(f"describe_release: {linked} parts in the binary, {len(parts) - linked} only in its build")


if __name__ == "__main__":
    main()

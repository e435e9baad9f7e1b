"""What Cargo says of this repository's dependencies, for the scripts that check and list them."""

import json
import re
import subprocess

# Crates that name a file in place of a licence, and what that file says.
READ = {"cfg_block": "Apache-2.0"}


def host():
    """The target triple of this machine's compiler."""
    told = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return re.search(r"^host: (\S+)$", told, re.MULTILINE)[1]


def packages(*options):
    """The packages of `cargo metadata`, with all features; `options` are passed on to Cargo."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]


def licence(package):
    """The SPDX expression of a package, in which `/`, an old form, is OR; `None` if it names none."""
    expression = package["license"] or READ.get(package["name"])
    return expression and re.sub(r"\s*/\s*", " OR ", expression)


def edges(package, features, kinds, target):
    """A package's dependencies in one build: {(name, version): those of its direct dependencies}.

    `cargo tree` resolves the features of exactly this build; `cargo metadata` those of the whole workspace. `kinds`
    are the values of its `--edges`. The package itself is the first key.
    """
    command = ["cargo", "tree", "--locked", "--package", package, "--features", features, "--edges", kinds]
    options = ["--target", target, "--prefix", "depth", "--format", "|{p}"]
    told = subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout
    found, path = {}, []
    for depth, name, version in re.findall(r"^(\d+)\|(\S+) v(\S+)", told, re.MULTILINE):
        node = (name, version)
        del path[int(depth):]
        if path:
            found[path[-1]].add(node)
        found.setdefault(node, set())
        path.append(node)
    return found

"""JPEGs with damaged headers between good ones: each of them is named, and no other."""

import re

from .made import JPEGS


def segments(file):
    """Where each segment of a JPEG's header begins, by its marker: of more than one the first."""
    found, at = {}, 2
    while at + 4 <= len(file):
        found.setdefault(file[at + 1], at)
        if file[at + 1] == 0xDA:
            break
        at = end(file, at)
    return found


def end(file, at):
    return at + 2 + int.from_bytes(file[at + 2 : at + 4], "big")


def damaged(file):
    """Each kind of damage after which no picture can be made of the file."""
    places = segments(file)
    tables, codes, scan = places[0xDB], places[0xC4], places[0xDA]
    frame = places.get(0xC0, places.get(0xC2))

    def changed(at, value):
        return file[:at] + bytes([value]) + file[at + 1 :]

    def between(at, content):
        return file[:at] + content + file[at:]

    def without(at):
        return file[:at] + file[end(file, at) :]

    return {
        "two starts": between(2, b"\xff\xd8"),
        "two frames": between(frame, file[frame : end(file, frame)]),
        "a table of divisors too many": changed(tables + 4, 0x09),
        "a Huffman table too many": changed(codes + 4, 0x0F),
        "more Huffman codes than there can be": changed(codes + 5, 255),
        "a frame of another length": changed(frame + 3, 18),
        "9 components": changed(frame + 9, 9),
        "no components": changed(frame + 9, 0),
        "9 bits": changed(frame + 4, 9),
        "factors of 0": changed(frame + 11, 0),
        "no table of divisors": without(tables),
        "no frame": without(frame),
        "no scan": file[:scan],
        "an unknown marker": between(tables, b"\xff\x05\x00\x02"),
        "an end before the frame": between(frame, b"\xff\xd9"),
        "hierarchical": changed(frame + 1, 0xC5),
        "cut in the frame": file[: frame + 6],
        "cut behind the start": file[:3],
    }


def jpegs(storm):
    sources = [(JPEGS / f"{name}.jpg").read_bytes() for name in ("420", "444", "422", "gray", "progressive")]
    for i in range(max(1, storm.count // 5)):
        root = storm.work / f"jpegs{i}"
        bad = set()
        for part in ("train", "val"):
            for name in ("a", "b"):
                (root / part / name).mkdir(parents=True)
        # Names that the order of a folder mixes.
        files = [(f"good {n}", content) for n, content in enumerate(sources * 4)]
        for number, source in enumerate(sources[:2] if i == 0 else [storm.random.choice(sources)]):
            files += [(f"{what} {number}", content) for what, content in damaged(source).items()]
        storm.random.shuffle(files)
        for number, (what, content) in enumerate(files):
            part, name = storm.random.choice(["train", "val"]), storm.random.choice("ab")
            path = root / part / name / f"{number:03} {what}.jpg"
            path.write_bytes(content)
            if not what.startswith("good"):
                bad.add(path.name)
        for part in ("train", "val"):
            for name in ("a", "b"):
                (root / part / name / "last good.jpg").write_bytes(sources[0])
        data = ["--set", "data.dataset=folder", "--set", f"data.path={root}", "--set", f"data.index_cache={root}/indexes"]
        for workers in (1, 2):
            attempt = storm.start(f"jpegs {i}", "data", "verify", *data, "--workers", workers, "--json", "--again")
            attempt.end(codes=(65,), quiet=True)
            named = set(re.findall(r"\d{3} [^/\\\"]*?\.jpg", attempt.text))
            storm.check(named == bad, f"jpegs {i}, {workers} workers: not named {sorted(bad - named)[:9]}, "
                                      f"named {sorted(named - bad)[:9]}, of {len(bad)} bad and {len(files) - len(bad)} good")

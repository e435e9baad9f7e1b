"""Zips that lie: of their entries, of where these are, of how long."""

import io
import re
import stat
import struct
import warnings
import zipfile
import zlib

from .made import bmp, pairs, png, segmenter

# Most of the program's memory: it has no entry that needs more.
MIB = 500
# The entry that is damaged.
IMAGE, LABELS = "images/training/03.bmp", "annotations/training/03.png"
# A pair is named by its image.
PAIR = "training/03."
STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED

# What must become of a zip: it is read as if nothing were; it is refused when it is opened; the entry is bad, which
# shows when it is read; or either, with nothing else than it has.
GOOD, REFUSED, BAD, EITHER = "good", "refused", "bad", "either"

# Where the directory and an entry's own header have the fields that lie, and their formats.
OF_DIRECTORY = {"flags": (8, "<H"), "method": (10, "<H"), "crc": (16, "<I"), "packed": (20, "<I"), "size": (24, "<I"),
                "mode": (38, "<I"), "header": (42, "<I")}
OF_HEADER = {"flags": (6, "<H"), "method": (8, "<H"), "crc": (14, "<I"), "packed": (18, "<I"), "size": (22, "<I")}
OF_END = {"entries": (10, "<H"), "size": (12, "<I"), "start": (16, "<I"), "comment": (20, "<H")}


class Unseekable(io.BytesIO):
    """Python writes sizes behind the content of what it cannot go back in."""

    def seek(self, *_):
        raise OSError("cannot go back")


class Zip:
    """A zip of pairs, whose bytes may be changed."""

    def __init__(self, method=DEFLATED, more=(), files=None, into=io.BytesIO, comment=b""):
        memory = into()
        with warnings.catch_warnings(), zipfile.ZipFile(memory, "w", method) as archive:
            warnings.simplefilter("ignore")  # two entries of a name
            for name, content in [*(pairs() if files is None else files).items(), *more]:
                write(archive, name, content)
            archive.comment = comment
        self.bytes = bytearray(memory.getvalue())
        self.end = self.bytes.rindex(b"PK\x05\x06")

    def directory(self):
        """Where the entries of the directory begin, by name; of a name that is there twice the last."""
        at, found = struct.unpack_from("<I", self.bytes, self.end + 16)[0], {}
        while self.bytes[at : at + 4] == b"PK\x01\x02":
            name, extra, comment = struct.unpack_from("<HHH", self.bytes, at + 28)
            found[self.bytes[at + 46 : at + 46 + name].decode()] = at
            at += 46 + name + extra + comment
        return found

    def content(self, name=IMAGE):
        """Where an entry's content begins and ends."""
        at = self.directory()[name]
        header = struct.unpack_from("<I", self.bytes, at + 42)[0]
        start = header + 30 + sum(struct.unpack_from("<HH", self.bytes, header + 26))
        return start, start + struct.unpack_from("<I", self.bytes, at + 20)[0]

    def set(self, name=IMAGE, directory=None, header=None, end=None):
        """Changes fields: of each a function of the value that it has."""
        at = self.directory()[name]
        own = struct.unpack_from("<I", self.bytes, at + 42)[0]
        for fields, changes, place in ((OF_DIRECTORY, directory, at), (OF_HEADER, header, own), (OF_END, end, self.end)):
            for field, change in (changes or {}).items():
                offset, form = fields[field]
                old = struct.unpack_from(form, self.bytes, place + offset)[0]
                struct.pack_into(form, self.bytes, place + offset, change(old))
        return self

    def both(self, name=IMAGE, **changes):
        return self.set(name, directory=changes, header=changes)

    def flipped(self, random, name=IMAGE):
        """A bit of the content is another, one that makes the content another."""
        start, end = self.content(name)
        good = self.plain(start, end)
        while True:
            place, bit = random.randrange(start, end), 1 << random.randrange(8)
            self.bytes[place] ^= bit
            if self.plain(start, end) != good:
                return self
            self.bytes[place] ^= bit

    def plain(self, start, end):
        content = bytes(self.bytes[start:end])
        try:
            return zlib.decompress(content, -15)
        except zlib.error:
            return content


def write(archive, name, content):
    """An entry; of a pair (count, byte), that many MiB of it, never at once in memory."""
    if isinstance(content, bytes):
        archive.writestr(name, content)
        return
    with archive.open(name, "w", force_zip64=False) as entry:
        start, mib = content
        entry.write(start)
        for _ in range(mib):
            entry.write(bytes(1 << 20))


def zip64():
    """A small zip with the records of a large one."""
    before = zipfile.ZIP64_LIMIT
    zipfile.ZIP64_LIMIT = 100
    try:
        return Zip()
    finally:
        zipfile.ZIP64_LIMIT = before


def link():
    """A link to another file is an entry with its place."""
    made = Zip(more=[("images/training/link.bmp", b"03.bmp"), ("annotations/training/link.png", png(48, 40, value=1))])
    mode = (stat.S_IFLNK | 0o777) << 16
    made.set("images/training/link.bmp", directory={"mode": lambda _: mode})
    made.bytes[made.directory()["images/training/link.bmp"] + 5] = 3  # Unix
    return made


def names_of_one(number, mib):
    """Many entries of the directory that lead to one content, which unpacks to MiB of zeros."""
    more = [(f"images/training/of{i:02}.bmp", b"x") for i in range(number)]
    labels = [(f"annotations/training/of{i:02}.png", png(48, 40, value=1)) for i in range(number)]
    made = Zip(more=[("images/training/large.bmp", (bmp(48, 40, 0), mib)), *more, *labels])
    places = made.directory()
    large = bytes(made.bytes[places["images/training/large.bmp"] :])
    for name, _ in more:
        at = places[name]
        made.bytes[at + 8 : at + 28], made.bytes[at + 42 : at + 46] = large[8:28], large[42:46]
    return made


def kinds(random):
    """Each kind: what must become of it, what makes it, the name that must be told."""
    one, less = (lambda old: old + 1), (lambda old: old - 1)
    far, other = (lambda _: 0x7FFF_FFFF), (lambda old: old ^ 0xFFFF)
    for method, word in ((STORED, "stored"), (DEFLATED, "deflated")):
        # By default the method is bound when the kind is made.
        def made(method=method, **more):
            return Zip(method, **more)

        yield f"{word}", GOOD, made, None
        yield f"{word}, CRC wrong", BAD, lambda made=made: made().both(crc=other), IMAGE
        yield f"{word}, CRC wrong in the directory", BAD, lambda made=made: made().set(directory={"crc": other}), IMAGE
        yield f"{word}, CRC wrong in the header", EITHER, lambda made=made: made().set(header={"crc": other}), None
        yield f"{word}, a bit of an image", BAD, lambda made=made: made().flipped(random), IMAGE
        yield f"{word}, a bit of a label map", BAD, lambda made=made: made().flipped(random, LABELS), PAIR
        yield f"{word}, size too large", BAD, lambda made=made: made().both(size=one), IMAGE
        yield f"{word}, size too large in the directory", BAD, lambda made=made: made().set(directory={"size": one}), IMAGE
        yield f"{word}, size too small", BAD, lambda made=made: made().both(size=less), IMAGE
        yield f"{word}, size wrong in the header", EITHER, lambda made=made: made().set(header={"size": one}), None
        yield f"{word}, packed size too small", BAD, lambda made=made: made().both(packed=less), IMAGE
        yield f"{word}, 2 GiB packed", BAD, lambda made=made: made().set(directory={"packed": far}), IMAGE
        yield f"{word}, 2 GiB", BAD, lambda made=made: made().set(directory={"size": far}), IMAGE
        yield f"{word}, 2 GiB both", BAD, lambda made=made: made().both(packed=far, size=far), IMAGE
    last = "annotations/validation/03.png"
    yield "behind the file's end", BAD, lambda: Zip().set(last, directory={"packed": lambda old: old + 4000}), "validation/03."
    yield "header behind the file's end", REFUSED, lambda: Zip().set(directory={"header": far}), None
    yield "header elsewhere", REFUSED, lambda: Zip().set(directory={"header": lambda old: old + 7}), None
    again = pairs()[IMAGE]
    yield "a name twice", REFUSED, lambda: Zip(more=[(IMAGE, again)]), IMAGE
    yield "a name twice, other content", REFUSED, lambda: Zip(more=[(IMAGE, bmp(48, 40, 99))]), IMAGE
    for word, place in (("..", "../../out/"), ("an absolute name", "/"), ("a drive", "C:/")):
        more = [(place + name, content) for name, content in pairs().items() if "/03." in name and "training" in name]
        yield word, EITHER, lambda more=more: Zip(more=more), None
    back = {name.replace("/", "\\"): content for name, content in pairs().items()}
    yield "names with \\", EITHER, lambda: Zip(files=back), None
    yield "a link", EITHER, link, None
    yield "encrypted", REFUSED, lambda: Zip().both(flags=lambda old: old | 1), IMAGE
    yield "zip64", GOOD, zip64, None
    yield "bzip2", REFUSED, lambda: Zip(zipfile.ZIP_BZIP2), None
    yield "method 99", REFUSED, lambda: Zip().both(method=lambda _: 99), IMAGE
    yield "nothing", REFUSED, lambda: b"", None
    yield "cut in half", REFUSED, lambda: (lambda made: made[: len(made) // 2])(Zip().bytes), None
    yield "cut by a byte", REFUSED, lambda: Zip().bytes[:-1], None
    for field, change in (("entries", less), ("entries", one), ("size", less), ("start", one), ("comment", far)):
        change = (lambda _: 0x7FFF) if change is far else change
        yield f"end: {field} {change(5)}", EITHER, lambda field=field, change=change: Zip().set(end={field: change}), None
    unknown = ("images/training/large.bmp", (b"", 300))
    mapped = ("annotations/training/large.png", png(48, 40, value=1))
    yield "300 MiB of zeros", BAD, lambda: Zip(more=[unknown, mapped]), "large."
    padded = ("annotations/training/pad.png", (png(48, 40, value=1), 200))
    yield "200 MiB behind a map", EITHER, lambda: Zip(more=[("images/training/pad.bmp", bmp(48, 40, 1)), padded]), None
    yield "12 names of one", EITHER, lambda: names_of_one(12, 60), None
    yield "a comment", GOOD, lambda: Zip(comment=b"said of it, " * 500), None
    yield "a comment with another end", EITHER, lambda: Zip(comment=b"PK\x05\x06 once more" * 500), None
    yield "sizes behind the content", GOOD, lambda: Zip(into=Unseekable), None
    hidden = [("__MACOSX/images/training/._03.bmp", b"x"), ("images/training/.03.bmp", b"x"), ("images/training/", b""),
              (".git/images/training/x.bmp", b"x"), ("images/training/Thumbs.db", b"x")]
    yield "hidden files", GOOD, lambda: Zip(more=hidden), None
    yield "70 000 entries", GOOD, lambda: Zip(more=[(f"other/{i}", b"") for i in range(70_000)]), None


def zips(storm):
    config, names = segmenter(storm)
    path = storm.work / "pairs.zip"
    data = ["--set", "data.dataset=pairs", "--set", f"data.path={path}", "--set", f"data.classes={names}",
            "--set", f"data.index_cache={storm.work}/indexes"]
    training = ["--set", f"run.root={storm.work}/zips", "--set", "devices.threads=1", "--set", "data.bad_train=fail",
                "--fresh"]
    outside = storm.work.parent / "out"
    images = 12

    def three(what, becomes, name):
        codes = {GOOD: (0,), REFUSED: (65,), BAD: (65,), EITHER: (0, 65)}[becomes]
        named = [name or path.name] if becomes in (REFUSED, BAD) else []
        what = f"zips {what}"
        limits = {"memory": MIB, "quiet": True}
        attempt = storm.start(f"{what}: verify", "data", "verify", config, *data)
        code = attempt.end(codes=codes, names=named, **limits)
        good = sum(map(int, re.findall(r"^\s*good\s+(\d+)", attempt.text, re.MULTILINE)))
        if becomes == GOOD and code == 0:
            storm.check(good == images, f"{what}: verify: {good} good images of {images}")
        codes_of_scan = codes if becomes != BAD else (0, 65)
        storm.run(f"{what}: scan", "data", "scan", config, *data, codes=codes_of_scan, **limits)
        code = storm.run(f"{what}: train", "train", config, *data, *training, codes=codes, names=named, **limits)
        storm.check(not outside.exists(), f"{what}: {outside} is there")

    for what, becomes, make, name in kinds(storm.random):
        made = make()
        path.write_bytes(made.bytes if isinstance(made, Zip) else made)
        three(what, becomes, name)
    # Anywhere in any entry.
    for i in range(storm.count):
        made = Zip(storm.random.choice([STORED, DEFLATED]))
        name = storm.random.choice(sorted(pairs()))
        path.write_bytes(made.flipped(storm.random, name).bytes)
        storm.run(f"zips {i}: a bit of {name}", "data", "verify", config, *data, codes=(65,), names=[name.split("/", 1)[1][:-3]],
                  memory=MIB)
    # In training it is replaced, and not waited for as for a slow disk.
    path.write_bytes(Zip().flipped(storm.random).bytes)
    storm.run("zips: a bit, replaced", "train", config, *data, *training, "--set", "data.bad_train=replace", codes=(0,),
              memory=MIB, quiet=True, seconds=5)
    path.unlink()

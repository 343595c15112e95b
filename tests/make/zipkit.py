"""Zip archives written by hand, in the forms that torch's own writer does not use but its reader accepts."""
import io
import struct
import zipfile
import zlib

LIMIT16, LIMIT32 = 0xFFFF, 0xFFFFFFFF
DATE = 0x21                                     # 1 January 1980


def entries(raw):
    """(name, bytes) of a zip archive, in file order."""
    with zipfile.ZipFile(io.BytesIO(raw)) as z:
        return [(i.filename, z.read(i)) for i in sorted(z.infolist(), key=lambda i: i.header_offset)]


def _pad(at, align=64):
    """An extra field that lets the data behind it begin at a multiple of `align`."""
    n = -(at + 4) % align
    return b"FB" + struct.pack("<H", n) + b"Z" * n


def zip64(items):
    """An archive that uses the 64-bit form everywhere: in the local headers, the central directory and the end records."""
    out, central = bytearray(), bytearray()
    for name, body in items:
        n, crc, at = name.encode(), zlib.crc32(body), len(out)
        sizes = struct.pack("<HHQQ", 1, 16, len(body), len(body))
        extra = sizes + _pad(at + 30 + len(n) + len(sizes))
        out += struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, DATE, crc, LIMIT32, LIMIT32, len(n), len(extra)) + n + extra + body
        wide = struct.pack("<HHQQQ", 1, 24, len(body), len(body), at)
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, DATE, crc, LIMIT32, LIMIT32, len(n), len(wide), 0, 0, 0, 0,
                               LIMIT32) + n + wide
    start = len(out)
    out += central
    end64 = len(out)
    out += struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, len(items), len(items), len(central), start)
    out += struct.pack("<IIQI", 0x07064B50, 0, end64, 1)
    out += struct.pack("<IHHHHIIH", 0x06054B50, LIMIT16, LIMIT16, LIMIT16, LIMIT16, LIMIT32, LIMIT32, 0)
    return bytes(out)


def descriptors(items, comment=b"made by a streaming writer"):
    """An archive whose local headers have no sizes (flag bit 3): they follow the data. With a comment at the end.

    Every second descriptor lacks the optional signature.
    """
    out, central = bytearray(), bytearray()
    for i, (name, body) in enumerate(items):
        n, crc, at = name.encode(), zlib.crc32(body), len(out)
        extra = _pad(at + 30 + len(n))
        out += struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 8, 0, 0, DATE, 0, 0, 0, len(n), len(extra)) + n + extra + body
        out += (b"PK\x07\x08" if i % 2 == 0 else b"") + struct.pack("<III", crc, len(body), len(body))
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 8, 0, 0, DATE, crc, len(body), len(body), len(n), 0, 0, 0, 0,
                               0x10 if name.endswith("/") else 0, at) + n
    start = len(out)
    out += central + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, len(items), len(items), len(central), start, len(comment)) + comment
    return bytes(out)

"""Makes the pictures of this folder and expected.txt: what Pillow and transformers' convert_to_rgb make of each.

Needs Pillow 13, numpy, libjpeg with its header, and heif-enc (libheif-examples). A line of expected.txt is
    FILE FORMAT WIDTH HEIGHT HASH     the upright picture over white, as RGB: FNV-1a of its bytes, rows from the top
    FILE FORMAT ~ WIDTH HEIGHT R G B  the same where codecs may differ: means of the channels, within 3
    FILE FORMAT ! WORDS               an error that says so
Where Pillow is not followed the rule stands beside the picture. usage: make.py, in this folder"""
import struct, subprocess, zlib
import numpy as np
from PIL import Image, ImageOps

rng = np.random.default_rng(40)
W, H = 29, 22
lines = []


def noise(width, height, channels):
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * (3 + k) + y * (5 - k) + rng.integers(0, 24, (height, width)) + 128 * ((x // 7 + y // 5) % 2 == k % 2)) % 256 for k in range(channels)]
    return np.stack(planes, -1).astype(np.uint8)


def fnv(values):
    result = 0xCBF29CE484222325
    for value in values.tobytes():
        result = (result ^ value) * 0x100000001B3 % 2**64
    return f"{result:016x}"


def over_white(picture):
    picture = ImageOps.exif_transpose(picture)
    if "A" in picture.getbands() or picture.info.get("transparency") is not None:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, (255,) * 4), picture)
    return np.asarray(picture.convert("RGB"))


def expect(name, kind, pixels=None):
    if pixels is None:
        pixels = over_white(Image.open(name))
    if pixels.ndim == 2 or pixels.shape[-1] == 1:
        pixels = np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, -1)
    lines.append(f"{name} {kind} {pixels.shape[1]} {pixels.shape[0]} {fnv(np.ascontiguousarray(pixels))}")


def about(name, kind, pixels):
    lines.append(f"{name} {kind} ~ {pixels.shape[1]} {pixels.shape[0]} " + " ".join(f"{m:.1f}" for m in pixels.reshape(-1, 3).mean(0)))


def wrong(name, kind, words):
    lines.append(f"{name} {kind} ! {words}")


def write(name, data):
    with open(name, "wb") as stream:
        stream.write(data)


def read(name):
    with open(name, "rb") as stream:
        return stream.read()


rgb, rgba, grey, grey_alpha = (Image.fromarray(noise(W, H, c).squeeze()) for c in (3, 4, 1, 2))
wide = noise(W, H, 3).astype(np.uint16) * 256 + noise(W, H, 3)
palette = rgb.quantize(50)
few = rgb.quantize(5)


def jpeg():
    subprocess.run(["cc", "make_jpeg.c", "-o", "/tmp/make_jpeg", "-ljpeg"], check=True)
    kinds = {"444": (3, 3, 1, 1, 0), "422": (3, 3, 2, 1, 0), "420": (3, 3, 2, 2, 0), "440": (3, 3, 1, 2, 0), "411": (3, 3, 4, 1, 0), "rgb": (3, 2, 1, 1, 0),
             "grey": (1, 1, 1, 1, 0), "progressive": (3, 3, 2, 2, 1), "scans": (3, 3, 2, 2, 2), "cmyk": (4, 4, 1, 1, 0), "ycck": (4, 5, 2, 2, 0)}
    for name, (components, space, h, v, scans) in kinds.items():
        subprocess.run(["/tmp/make_jpeg", f"{name}.jpg", *map(str, (components, space, h, v, scans, W, H, 3 if name == "420" else 0))], check=True)
        expect(f"{name}.jpg", "JPEG")
    data = read("cmyk.jpg")
    at = data.index(b"Adobe") - 4
    write("cmyk_no_adobe.jpg", data[:at] + data[at + 16:])
    expect("cmyk_no_adobe.jpg", "JPEG", over_white(Image.open("cmyk.jpg")))
    data = read("444.jpg")
    write("junk.jpg", data[:-2] + b"\0junk behind the scan" + data[-2:])
    expect("junk.jpg", "JPEG", over_white(Image.open("444.jpg")))
    write("padded.jpg", data[:-2] + bytes(64))
    expect("padded.jpg", "JPEG", over_white(Image.open("444.jpg")))
    scan = data.index(b"\xff\xda")
    write("no_scan.jpg", data[:scan] + b"\xff\xd9")
    wrong("no_scan.jpg", "JPEG", "before its pixels do")
    write("half_scan.jpg", data[:scan + 14 + (len(data) - scan) // 2] + b"\xff\xd9")
    wrong("half_scan.jpg", "JPEG", "before its pixels do")
    data = read("scans.jpg")
    last = data.rindex(b"\xff\xda")
    write("a_scan_less.jpg", data[:last] + b"\xff\xd9")
    wrong("a_scan_less.jpg", "JPEG", "before its pixels do")


def orientation():
    upright = np.asarray(rgb)
    for tag in range(10):
        exif = Image.Exif()
        exif[274] = tag
        rgb.save(f"o{tag}.png", exif=exif)
        expect(f"o{tag}.png", "PNG")
    exif[274] = 6
    rgb.save("o6.jpg", exif=exif, quality=90)
    expect("o6.jpg", "JPEG")
    rgb.save("o6.webp", exif=exif, lossless=True)
    expect("o6.webp", "WebP", np.rot90(upright, -1))
    rgb.save("o6.tif", tiffinfo={274: 6})
    expect("o6.tif", "TIFF", np.rot90(upright, -1))
    data = read("o6.png")
    at = data.index(b"eXIf")
    broken = data[at:at + 4] + b"MM\0*\xff\xff\xff\xff" + data[at + 12:at + 4 + struct.unpack(">I", data[at - 4:at])[0]]
    write("o_broken.png", data[:at] + broken + struct.pack(">I", zlib.crc32(broken)) + data[at + len(broken) + 4:])
    expect("o_broken.png", "PNG", upright)
    info = b"XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation=\"3\"/>"
    write("o_xmp.png", data[:33] + chunk(b"iTXt", info) + data[33:at - 4] + data[at + len(broken) + 4:])
    expect("o_xmp.png", "PNG", np.rot90(upright, 2))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_file(width, height, depth, color, rows, before=b"", interlaced=0, first=b"", data=None, last=chunk(b"IEND", b"")):
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + first + chunk(b"IHDR", header) + before + (chunk(b"IDAT", zlib.compress(rows)) if data is None else data) + last


def unfiltered(samples):
    return b"".join(b"\0" + row.tobytes() for row in samples)


def png():
    for name, picture in (("rgb", rgb), ("rgba", rgba), ("grey", grey), ("grey_alpha", grey_alpha), ("palette", palette), ("bit", grey.convert("1"))):
        picture.save(f"{name}.png")
        expect(f"{name}.png", "PNG")
    few.save("palette4.png", bits=4)
    expect("palette4.png", "PNG")
    palette.save("palette_alpha.png", transparency=bytes(range(0, 250, 5)))
    expect("palette_alpha.png", "PNG")
    grey.save("grey_key.png", transparency=int(np.asarray(grey)[3, 4]))
    expect("grey_key.png", "PNG")
    rgb.save("rgb_key.png", transparency=rgb.getpixel((3, 4)))
    expect("rgb_key.png", "PNG")
    write("rgb16.png", png_file(W, H, 16, 2, unfiltered(wide.astype(">u2"))))
    expect("rgb16.png", "PNG", (wide >> 8).astype(np.uint8))
    write("grey16.png", png_file(W, H, 16, 0, unfiltered(wide[..., 0].astype(">u2"))))
    expect("grey16.png", "PNG", (wide[..., 0] >> 8).astype(np.uint8))  # Pillow's I;16 to RGB cuts off at 255
    key = struct.pack(">H", int(wide[5, 5, 0]))
    write("grey16_key.png", png_file(W, H, 16, 0, unfiltered(wide[..., 0].astype(">u2")), chunk(b"tRNS", key)))
    expect("grey16_key.png", "PNG", np.where(wide[..., 0] == wide[5, 5, 0], 255, wide[..., 0] >> 8).astype(np.uint8))
    nibbles = noise(W, H, 1)[..., 0] >> 4
    packed = np.pad(nibbles, ((0, 0), (0, W % 2)))
    packed = (packed[:, ::2] << 4 | packed[:, 1::2]).astype(np.uint8)
    write("grey4_key.png", png_file(W, H, 4, 0, unfiltered(packed), chunk(b"tRNS", b"\0\5")))
    expect("grey4_key.png", "PNG", np.where(nibbles == 5, 255, nibbles * 17).astype(np.uint8))  # Pillow compares with 5, not 5 * 17
    passes = [(0, 8, 0, 8), (4, 8, 0, 8), (0, 4, 4, 8), (2, 4, 0, 4), (0, 2, 2, 4), (1, 2, 0, 2), (0, 1, 1, 2)]
    rows = b"".join(unfiltered(np.asarray(rgba)[top::down, left::across]) for left, across, top, down in passes)
    write("interlaced.png", png_file(W, H, 8, 6, rows, interlaced=1))
    expect("interlaced.png", "PNG")
    indices = np.tile(np.array([0, 1, 2, 200], np.uint8), (4, 1))
    write("behind.png", png_file(4, 4, 8, 3, unfiltered(indices), chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0]))))
    expect("behind.png", "PNG")
    swapped = np.asarray(rgb)[..., ::-1]
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    write("apple.png", png_file(W, H, 8, 2, b"", first=chunk(b"CgBI", b"\x50\0\x20\2"), data=chunk(b"IDAT", squeeze.compress(unfiltered(swapped)) + squeeze.flush())))
    expect("apple.png", "PNG", np.asarray(rgb))
    lengths = [(1, 1), (1, 2)] + [(0x30 + v, -8) for v in (0, 9, 8, 7, 6)] + [(1, -7), (30, -5), (0, -7)]  # a last block of fixed codes, a match of 3 bytes
    bits = "".join(f"{v:0{-n}b}" if n < 0 else f"{v:0{n}b}"[::-1] for v, n in lengths)  # at distance code 30, which does not exist, and the end
    packed = int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little") + bytes(4)
    write("distance.png", png_file(7, 1, 8, 0, b"", first=chunk(b"CgBI", b"\x50\0\x20\2"), data=chunk(b"IDAT", packed)))
    expect("distance.png", "PNG", np.array([[9, 8, 7, 6, 0, 0, 0]], np.uint8))  # what stb_image copies there is what was not written yet
    data = zlib.compress(unfiltered(np.asarray(rgb)))
    write("split.png", png_file(W, H, 8, 2, b"", data=b"".join(chunk(b"IDAT", data[i:i + 99]) for i in range(0, len(data), 99)), last=b""))
    expect("split.png", "PNG", np.asarray(rgb))  # many chunks, and no end
    write("adler.png", png_file(W, H, 8, 2, b"", data=chunk(b"IDAT", data[:-1] + bytes([data[-1] ^ 1]))))
    wrong("adler.png", "PNG", "Adler-32")
    file = bytearray(read("rgb.png"))
    file[60] ^= 1
    write("crc.png", bytes(file))
    wrong("crc.png", "PNG", "CRC of chunk IDAT")
    write("rows_less.png", png_file(W, H, 8, 2, unfiltered(np.asarray(rgb)[:-1])))
    wrong("rows_less.png", "PNG", "before its pixels do")
    Image.new("L", (900, 900), 77).save("large.png", optimize=True)
    expect("large.png", "PNG")
    write("little_png.png", png_file(20000, 5000, 8, 0, b"\0" * 100))
    wrong("little_png.png", "PNG", "before its pixels do")


def gif_file(width, height, left, top, across, down, indices, transparent=None, interlaced=0, background=3, bits=3, end=True, colors=5):
    table = bytes(noise(colors, 1, 3)) + bytes(3 * (2**bits - colors))
    data = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80 | bits - 1, background, 0) + table
    if transparent is not None:
        data += b"\x21\xf9\4" + bytes([1, 0, 0, transparent, 0])
    data += b"\x2c" + struct.pack("<HHHHB", left, top, across, down, 0x40 if interlaced else 0)
    clear, buffer, count, out = 1 << bits, 0, 0, bytearray()
    codes = []
    for i, index in enumerate(indices):
        codes += [clear, index] if i % (clear - 2) == 0 else [index]
    for code in codes + ([clear + 1] if end else []):
        buffer |= code << count
        count += bits + 1
        while count >= 8:
            out.append(buffer & 255)
            buffer >>= 8
            count -= 8
    out.append(buffer & 255)
    return data + bytes([bits]) + b"".join(bytes([len(out[i:i + 255])]) + bytes(out[i:i + 255]) for i in range(0, len(out), 255)) + b"\0;"


def gif():
    palette.save("palette.gif")
    palette.save("interlaced.gif", interlace=1)
    grey.save("grey.gif")
    palette.save("animated.gif", save_all=True, append_images=[palette.rotate(180)], duration=20)
    palette.save("transparent.gif", transparency=5, background=9)
    indices = rng.integers(0, 8, 80).tolist()
    write("small.gif", gif_file(20, 14, 3, 2, 10, 8, indices))
    write("small_transparent.gif", gif_file(20, 14, 3, 2, 10, 8, indices, transparent=1, interlaced=1))
    write("large.gif", gif_file(6, 4, 3, 2, 10, 8, indices))
    for name in ("palette", "interlaced", "grey", "animated", "transparent", "small", "small_transparent", "large"):
        expect(f"{name}.gif", "GIF")
    write("rows_less.gif", gif_file(10, 8, 0, 0, 10, 8, indices[:70]))
    wrong("rows_less.gif", "GIF", "before its pixels do")


def bmp():
    for name, picture in (("rgb", rgb), ("rgba", rgba), ("grey", grey), ("bit", grey.convert("1")), ("palette", palette), ("palette4", rgb.quantize(9))):
        picture.save(f"{name}.bmp")
        expect(f"{name}.bmp", "BMP")
    indices = Image.frombytes("P", (4, 4), bytes([0, 1, 2, 200]) * 4)
    indices.putpalette([255, 0, 0, 0, 255, 0])
    indices.save("behind.bmp")
    expect("behind.bmp", "BMP")
    data = bytearray(read("rgba.bmp"))
    head = struct.unpack("<I", data[14:18])[0]
    pixels = data[struct.unpack("<I", data[10:14])[0]:]
    plain = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54 + len(pixels), 0, 0, 54, 40, W, H, 1, 32, 0, len(pixels), 0, 0, 0, 0) + bytes(pixels)
    write("rgbx.bmp", plain)
    expect("rgbx.bmp", "BMP")  # 32 bits without masks: the fourth byte means nothing


def bmp_file(width, height, bits, compression, rows, behind=b"", colors=0):
    head = struct.pack("<IIiHHIIiiII", 40, width, height, 1, bits, compression, len(rows), 0, 0, colors, 0) + behind
    return b"BM" + struct.pack("<IHHI", 14 + len(head) + len(rows), 0, 0, 14 + len(head)) + head + rows


def bmp_more():
    high = noise(W, H, 2)
    rows = b"".join(row.tobytes() + bytes(2) for row in high)  # 58 bytes, filled up to 60
    for name, compression, masks in (("rgb555", 0, ()), ("masks555", 3, (0x7C00, 0x3E0, 0x1F)), ("masks565", 3, (0xF800, 0x7E0, 0x1F))):
        write(f"{name}.bmp", bmp_file(W, H, 16, compression, rows, b"".join(struct.pack("<I", mask) for mask in masks)))
        expect(f"{name}.bmp", "BMP")
    for order in ((24, 16, 8), (16, 8, 0), (24, 8, 0)):
        name = "masks" + "".join(map(str, order))
        write(f"{name}.bmp", bmp_file(W, H, 32, 3, noise(W, H, 4).tobytes(), b"".join(struct.pack("<I", 255 << shift) for shift in order)))
        expect(f"{name}.bmp", "BMP")
    write("masks_odd.bmp", bmp_file(2, 1, 32, 3, bytes(8), struct.pack("<III", 5, 0xFF00, 0xFF0000)))
    wrong("masks_odd.bmp", "BMP", "masks make no colours")
    colors = noise(16, 1, 4).tobytes()
    for bits in (4, 8):
        packed = b""
        for y in range(6):  # runs, a literal of an odd count, a run beyond the row, the end of the row
            pixels = list(range(y, y + 5))
            literal = bytes(pixels) if bits == 8 else bytes([pixels[0] * 16 + pixels[1], pixels[2] * 16 + pixels[3], pixels[4] * 16])
            packed += bytes([4, (17 if bits == 4 else 1) * (y + 3) + (16 if bits == 4 else 0), 0, 5]) + literal + bytes(len(literal) % 2) + bytes([40 if y == 2 else 4, y + 1, 0, 0])
        packed += bytes([3, 7, 0, 2, 4, 1, 6, 5, 0, 0, 13, 2, 0, 1])  # a jump to the right and up
        write(f"packed{bits}.bmp", bmp_file(13, 9, bits, 3 - bits // 4, packed, colors, 16))
        expect(f"packed{bits}.bmp", "BMP")
        write(f"less{bits}.bmp", bmp_file(13, 9, bits, 3 - bits // 4, packed[:-4], colors, 16))
        wrong(f"less{bits}.bmp", "BMP", "before its pixels do")


def targa_file(kind, width, height, bits, data, colors=(0, 0, b""), flags=0x20, name=b""):
    first, color_bits, entries = colors
    count = len(entries) // ((color_bits + 7) // 8) if entries else 0
    return struct.pack("<BBBHHBHHHHBB", len(name), bool(entries), kind, first, count, color_bits, 0, 0, width, height, bits, flags) + name + entries + data


def targa():
    for name, picture in (("rgb", rgb), ("rgba", rgba), ("grey", grey), ("grey_alpha", grey_alpha), ("palette", palette)):
        picture.save(f"{name}.tga")
        expect(f"{name}.tga", "Targa")
    for name, picture in (("packed", rgb.quantize(4).convert("RGB")), ("packed_alpha", rgba.quantize(4).convert("RGBA")), ("packed_grey", grey.quantize(4).convert("L")),
                          ("packed_palette", few)):
        picture.save(f"{name}.tga", compression="tga_rle")
        expect(f"{name}.tga", "Targa")
    bgra = np.asarray(rgba)[..., [2, 1, 0, 3]]
    for name, flags in (("bottom_left", 0), ("bottom_right", 0x10), ("top_right", 0x30)):
        write(f"{name}.tga", targa_file(2, W, H, 24, bgra[..., :3].tobytes(), flags=flags, name=b"a picture"))
        expect(f"{name}.tga", "Targa")
    extension = struct.pack("<H", 495) + bytes(492)
    for means in (0, 3):  # nothing; alpha
        write(f"alpha{means}.tga", targa_file(2, W, H, 32, bgra.tobytes(), flags=0x28) + extension + bytes([means]) + struct.pack("<II", 18 + bgra.size, 0) + b"TRUEVISION-XFILE.\0")
        expect(f"alpha{means}.tga", "Targa")
    high = noise(W, H, 2)
    write("rgb16.tga", targa_file(2, W, H, 16, high.tobytes()))
    expect("rgb16.tga", "Targa")
    words = high.view("<u2")[..., 0]
    write("rgb15.tga", targa_file(2, W, H, 15, high.tobytes()))
    expect("rgb15.tga", "Targa", np.stack([(words >> shift & 31) * 255 // 31 for shift in (10, 5, 0)], -1).astype(np.uint8))  # Pillow knows 16 alone
    indices = (noise(W, H, 1) % 9).astype(np.uint8)
    for bits in (16, 24, 32):  # indices before the first colour and behind the last
        write(f"map{bits}.tga", targa_file(1, W, H, 8, indices.tobytes(), (2, bits, noise(5, 1, bits // 8).tobytes())))
        expect(f"map{bits}.tga", "Targa", over_white(Image.open("map32.tga").convert("RGBA")) if bits == 32 else None)  # transformers overlooks a map's alpha
    write("index16.tga", targa_file(1, W, H, 16, indices.astype("<u2").tobytes(), (2, 24, read("map24.tga")[18:33])))
    expect("index16.tga", "Targa", over_white(Image.open("map24.tga")))  # Pillow knows indices of 8 bits alone
    write("over.tga", targa_file(11, 4, 2, 8, bytes([0x83, 1, 0x84, 2])))
    wrong("over.tga", "Targa", "more of them than the picture has")
    write("across.tga", targa_file(11, 4, 2, 8, bytes([0x85, 1, 0x81, 200])))
    expect("across.tga", "Targa", np.array([[1, 1, 1, 1], [1, 1, 200, 200]], np.uint8))  # Pillow refuses runs across rows, older programs write them
    write("less.tga", targa_file(11, 4, 2, 8, bytes([0x83, 1, 0x83])))
    wrong("less.tga", "Targa", "before its pixels do")
    write("map_less.tga", targa_file(1, 4, 2, 8, b"", (0, 24, bytes(9)))[:-1])
    wrong("map_less.tga", "Targa", "before its pixels do")


def pnm():
    bits = grey.convert("1")
    for name, picture in (("grey.pgm", grey), ("rgb.ppm", rgb), ("bit.pbm", bits)):
        picture.save(name)
        expect(name, "PNM")
    for most in (1, 15, 100, 254):
        values = (noise(W, H, 1)[..., 0].astype(int) % (most + 1)).astype(np.uint8)
        write(f"most{most}.pgm", b"P5\n# a comment\n%d %d\n%d\n" % (W, H, most) + values.tobytes())
        expect(f"most{most}.pgm", "PNM")
        write(f"most{most}_text.pgm", b"P2 %d %d %d\n" % (W, H, most) + b" ".join(b"%d" % v for v in values.ravel()) + b"\n")
        expect(f"most{most}_text.pgm", "PNM")
    values = wide.astype(int) % 4096
    write("most4095.ppm", b"P6 %d %d 4095\n" % (W, H) + values.astype(">u2").tobytes())
    expect("most4095.ppm", "PNM")
    write("most65535.pgm", b"P5 %d %d 65535\n" % (W, H) + wide[..., 0].astype(">u2").tobytes())
    expect("most65535.pgm", "PNM", (wide[..., 0] >> 8).astype(np.uint8))  # Pillow's I to RGB cuts off at 255
    write("text.pbm", b"P1\n%d %d\n" % (W, H) + b"\n".join(b"".join(b"01"[v:v + 1] for v in row) for row in np.asarray(bits).astype(int)) + b"\n")
    expect("text.pbm", "PNM")
    write("rows_less.ppm", b"P6 %d %d 255\n" % (W, H) + rgb.tobytes()[:-1])
    wrong("rows_less.ppm", "PNM", "before its pixels do")


def webp_heif():
    rgb.save("lossy.webp", quality=80)
    rgba.save("lossy_alpha.webp", quality=80)
    rgb.save("lossless.webp", lossless=True)
    rgba.save("lossless_alpha.webp", lossless=True)
    rgb.save("animated.webp", save_all=True, append_images=[rgb.rotate(180)], duration=50, lossless=True)
    for name in ("lossy", "lossy_alpha", "lossless", "lossless_alpha", "animated"):
        expect(f"{name}.webp", "WebP")
    smooth = Image.fromarray(np.stack([np.mgrid[0:48, 0:64][1] * 3, np.mgrid[0:48, 0:64][0] * 5, np.full((48, 64), 70)], -1).astype(np.uint8))
    smooth.save("plain.avif", quality=90)
    about("plain.avif", "AVIF", np.asarray(smooth))
    exif = Image.Exif()
    exif[274] = 6
    smooth.save("o6.avif", quality=90, exif=exif)  # Pillow writes irot, which libheif applies
    about("o6.avif", "AVIF", np.rot90(np.asarray(smooth), -1))
    smooth.save("/tmp/smooth.png")
    subprocess.run(["heif-enc", "-q", "90", "/tmp/smooth.png", "-o", "plain.heic"], check=True, stdout=subprocess.DEVNULL)
    about("plain.heic", "HEIC", np.asarray(smooth))


def heif_boxes():
    """Grids that are their own tiles, which libheif follows until the stack ends, and sizes behind which it writes beyond its memory."""
    def box(kind, *inside):
        data = b"".join(inside)
        return struct.pack(">I", 8 + len(data)) + kind + data

    grid, none = b"\0\0\0\0" + struct.pack(">HH", 64, 64), bytes(4)
    for name, tiles in (("loop", {1: 1}), ("loop_of_two", {1: 2, 2: 1}), ("deep", {i: i + 1 for i in range(1, 13)})):
        items = sorted({*tiles, *tiles.values()})
        meta = box(b"hdlr", none, none, b"pict", bytes(13)) + box(b"pitm", none, struct.pack(">H", 1))
        meta += box(b"iinf", none, struct.pack(">H", len(items)), *(box(b"infe", b"\2\0\0\0", struct.pack(">HH", i, 0), b"grid\0") for i in items))
        meta += box(b"iloc", b"\1\0\0\0", struct.pack(">HH", 0x4400, len(items)), *(struct.pack(">HHHHII", i, 1, 0, 1, 0, len(grid)) for i in items))
        meta += box(b"iref", none, *(box(b"dimg", struct.pack(">HHH", i, 1, tile)) for i, tile in tiles.items()))
        meta += box(b"iprp", box(b"ipco", box(b"ispe", none, struct.pack(">II", 64, 64))),
                    box(b"ipma", none, struct.pack(">I", len(items)), *(struct.pack(">HBB", i, 1, 1) for i in items)))
        meta += box(b"idat", grid)
        write(f"{name}.heic", box(b"ftyp", b"heic\0\0\0\0mif1") + box(b"meta", none, meta))
        wrong(f"{name}.heic", "HEIC", "made of each other without end")
    data = read("plain.heic")  # a grid of one tile
    write("canvas.heic", data.replace(b"idat" + none + struct.pack(">HH", 64, 48), b"idat" + none + struct.pack(">HH", 30000, 30000)))
    wrong("canvas.heic", "HEIC", "a picture of 900000000 pixels")
    bits = "1" + "010" + "".join("0" * (n.bit_length() - 1) + f"{n:b}" for n in (20001, 10001))  # which set, 4:2:0, width and height plus 1
    sequence = b"\x42\1\1" + b"\x11" * 12 + int(bits.ljust(64, "0"), 2).to_bytes(8, "big")
    coded = box(b"hvcC", b"\1" + bytes(21) + b"\1\x21" + struct.pack(">HH", 1, len(sequence)) + sequence)
    write("coded.heic", box(b"ftyp", b"heic\0\0\0\0mif1") + box(b"meta", none, box(b"iprp", box(b"ipco", coded))))
    wrong("coded.heic", "HEIC", "a picture of 200000000 pixels")


def tiff():
    for name, picture, compression in (("rgb", rgb, None), ("lzw", rgb, "tiff_lzw"), ("deflate", rgba, "tiff_adobe_deflate"), ("packbits", grey, "packbits"), ("jpeg", rgb, "jpeg"),
                                       ("fax", grey.convert("1"), "group4"), ("palette", palette, None), ("grey_alpha", grey_alpha, None)):
        picture.save(f"{name}.tif", compression=compression)
        expect(f"{name}.tif", "TIFF")
    cmyk = Image.fromarray(noise(W, H, 4), "CMYK")
    cmyk.save("cmyk.tif")
    expect("cmyk.tif", "TIFF")
    Image.fromarray(wide[..., 0]).save("grey16.tif")
    expect("grey16.tif", "TIFF", (wide[..., 0] >> 8).astype(np.uint8))  # Pillow's I;16 to RGB cuts off at 255
    planes = np.asarray(rgb)
    offset = 8 + W * H * 3
    tags = [(256, 3, 1, W), (257, 3, 1, H), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 3, offset), (277, 3, 1, 3), (278, 3, 1, H), (279, 4, 3, offset + 12), (284, 3, 1, 2)]
    data = b"II*\0" + struct.pack("<I", offset + 24) + planes.transpose(2, 0, 1).tobytes() + struct.pack("<6I", *(8 + i * W * H for i in range(3)), *(W * H,) * 3)
    data += struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    write("planes.tif", data)
    expect("planes.tif", "TIFF", planes)


def psd_file(channels, depth, mode, compression, data, colors=b"", resources=b"", size=(W, H)):
    head = b"8BPS" + struct.pack(">H6xHIIHH", 1, channels, size[1], size[0], depth, mode)
    return head + b"".join(struct.pack(">I", len(section)) + section for section in (colors, resources, b"")) + struct.pack(">H", compression) + data


def packed_planes(planes):
    """Each row as literal bytes, a run that does nothing, and a run of its last three, which are made equal."""
    rows = [bytes([row.size - 4]) + row[:-3].tobytes() + bytes([128, 254]) + row[-1:].tobytes() for plane in planes for row in plane]
    return b"".join(struct.pack(">H", len(row)) for row in rows) + b"".join(rows)


def psd():
    def version(real):  # a resource with a name before it
        return b"8BIM\x03\xed\3abc" + struct.pack(">I", 3) + bytes(4) + b"8BIM\4\x21\0\0" + struct.pack(">IIB", 5, 1, real) + b"\0"

    planes = noise(W, H, 5).transpose(2, 0, 1).copy()
    planes[:, :, -3:] = planes[:, :, -1:]
    for name, channels, mode in (("rgb", 3, 3), ("alpha", 4, 3), ("more", 5, 3), ("grey", 1, 1), ("grey_more", 2, 1), ("duotone", 1, 8)):
        write(f"{name}.psd", psd_file(channels, 8, mode, 0, planes[:channels].tobytes(), resources=version(1)))
        expect(f"{name}.psd", "PSD")
        write(f"packed_{name}.psd", psd_file(channels, 8, mode, 1, packed_planes(planes[:channels])))
        expect(f"packed_{name}.psd", "PSD", over_white(Image.open(f"{name}.psd")))  # Pillow looks for the rows behind the counts of its own channels
    table = noise(256, 1, 3).reshape(256, 3)
    write("indexed.psd", psd_file(1, 8, 2, 0, planes[0].tobytes(), table.T.tobytes()))
    expect("indexed.psd", "PSD")
    deep = np.stack([planes[:3], planes[1:4]], -1)  # high bytes, low bytes; Pillow reads 8 bits alone
    write("rgb16.psd", psd_file(3, 16, 3, 0, deep.tobytes()))
    expect("rgb16.psd", "PSD", planes[:3].transpose(1, 2, 0))
    deep[:, :, -2:] = 77
    write("packed_grey16.psd", psd_file(1, 16, 1, 1, packed_planes(deep[:1].reshape(1, H, 2 * W))))
    expect("packed_grey16.psd", "PSD", deep[0, ..., 0])
    write("little.psd", psd_file(3, 8, 3, 0, b"", size=(13377, 13377)))
    wrong("little.psd", "PSD", "before its pixels do")
    write("layers.psd", psd_file(3, 8, 3, 0, planes[:3].tobytes(), resources=version(0)))
    wrong("layers.psd", "PSD", "a PSD of layers alone")
    write("cmyk.psd", psd_file(4, 8, 4, 0, planes[:4].tobytes()))
    wrong("cmyk.psd", "PSD", "a PSD of CMYK colours")
    write("two.psd", psd_file(2, 8, 3, 0, planes[:2].tobytes()))
    wrong("two.psd", "PSD", "with 2 channels")
    for name, counts, data, words in (("over", (2, 2), [254, 7, 255, 7], "packed rows are damaged"), ("across", (3, 1), [253, 7, 128, 128], "packed rows are damaged"),
                                      ("less", (2, 2), [255, 7, 255], "before its pixels do")):
        write(f"{name}.psd", psd_file(1, 8, 1, 1, struct.pack(">2H", *counts) + bytes(data), size=(2, 2)))
        wrong(f"{name}.psd", "PSD", words)


def others():
    write("xl.jxl", b"\xff\x0a" + bytes(30))
    wrong("xl.jxl", "JPEG_XL", "does not read")


for make in (jpeg, orientation, png, gif, bmp, pnm, webp_heif, heif_boxes, tiff, targa, psd, bmp_more, others):
    make()
with open("expected.txt", "w") as stream:
    stream.write("\n".join(lines) + "\n")

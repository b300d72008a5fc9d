"""Real text in many scripts, from Debian packages: messages of programs and manual pages."""
import gettext
import gzip
import pathlib
import random
import re
import subprocess

PACKAGES = ("iso-codes libgtk-3-common vlc-l10n libglib2.0-data evolution-common gimp-data manpages-de manpages-fr manpages-ja manpages-zh "
            "manpages-ru manpages-hu").split()
UNICODE_DATA = pathlib.Path("/usr/share/unicode")


def messages(path):
    """The translations in an .mo file."""
    try:
        with path.open("rb") as file:
            catalog = gettext.GNUTranslations(file)._catalog
    except (OSError, UnicodeDecodeError, IndexError, ValueError):
        return
    for key, text in catalog.items():
        if key:
            yield text


def manual(path):
    """The lines of a manual page that are text."""
    for line in gzip.decompress(path.read_bytes()).decode("utf-8", "ignore").splitlines():
        if not line.startswith((".", "'")):
            yield re.sub(r"\\f[A-Z]|\\[&-]", "", line)


def lines(work):
    """All lines, each once, in an order that is always the same."""
    stored = work / "corpus.txt"
    if not stored.exists():
        packages = work / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=packages, check=True, stdout=subprocess.DEVNULL)
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(work / "extracted")], check=True)
        found = {}
        for path in sorted((work / "extracted").rglob("*.mo")):
            found.update(dict.fromkeys(messages(path)))
        for path in sorted((work / "extracted/usr/share/man").rglob("*.gz")):
            found.update(dict.fromkeys(manual(path)))
        texts = [re.sub(r"[\r\n]", "\x0b", text) for text in found if text.strip()]
        random.Random(1).shuffle(texts)
        stored.write_text("\n".join(texts), encoding="utf-8", newline="")
    return [line.replace("\x0b", "\n") for line in stored.read_text(encoding="utf-8").split("\n")]


def of_age(newest):
    """Code points that Unicode has had since version `newest` or before; surrogates, private ones and U+0000 left out."""
    for line in (UNICODE_DATA / "DerivedAge.txt").read_text(encoding="utf-8").splitlines():
        fields = line.split("#")[0].split(";")
        if len(fields) == 2 and float(fields[1]) <= newest:
            first, _, last = fields[0].strip().partition("..")
            yield from (code for code in range(int(first, 16), int(last or first, 16) + 1)
                        if code and not 0xD800 <= code <= 0xF8FF and code < 0xF0000)


def emoji():
    """Every sequence of emoji-test.txt."""
    for line in (UNICODE_DATA / "emoji/emoji-test.txt").read_text(encoding="utf-8").splitlines():
        fields = line.split("#")[0].split(";")
        if len(fields) == 2:
            yield "".join(chr(int(code, 16)) for code in fields[0].split())


def random_texts(count, seed=2):
    """Random code points; most of them are of a few scripts, with marks, spaces and ASCII between. The classes that tokenizers has for NFC
    are of Unicode 9: what is newer is composed, but not put in order, by it."""
    rng = random.Random(seed)
    codes = list(of_age(9.0))
    marks = list(range(0x300, 0x370)) + list(range(0x591, 0x5C8)) + list(range(0x93A, 0x94F)) + list(range(0x1161, 0x1200))
    for _ in range(count):
        start = rng.randrange(len(codes))
        near = codes[start:start + 40]
        pick = [lambda: rng.choice(codes), lambda: rng.choice(near), lambda: rng.choice(marks), lambda: rng.choice(b" \t\r\n  '.0a"),
                lambda: rng.choice(b"abcDEFsStT'lre019 <|>"), lambda: rng.randrange(0xAC00, 0xD7A4)]
        weights = [rng.random() for _ in pick]
        yield "".join(chr(rng.choices(pick, weights)[0]()) for _ in range(rng.randrange(1, 40)))


def odd_texts():
    """By hand: what has gone wrong elsewhere."""
    yield from ["", " ", "  ", "\n", "a", "a  \n \n  b", "a   b", "x\t\ty", "a!\n\nb", "don't'll", "a \u3000b", "'S 'ſ 'LL 'Ve 're", "ΑΣ ΑΣΑ Σ ΑΣ. σΣ",
                "İstanbul IŞIK ı", "ẞ ß ǅ ǆ", "e\u0301\u0323 \u1e69 s\u0323\u0307", "가각갛 \u1100\u1161\u11a8", "\u0344 \u0958 \u2126 \u212b \ufb1d",
                "▁a ▁▁b", "<eos><bos> <unk>", "a<|endoftext|>b", "<|im_start|>user\nhi<|im_end|>", "<pad> </s>  x", "ﬁ ﷺ ½ ℌ ㍍ ｱﾞ", "\u200b\u200d\ufeff",
                "\r\n\r", "12345 ٣٤٥ Ⅷ ²", "hello,world!!!  ok", "🇩🇪🇫🇷🇮🇹🇪", "👨‍👩‍👧‍👦👍🏽", "©️™️", "क्षत्रिय", "\x01\x7f\x9f", "a\u0300" * 50]
    for size in (2, 3, 31, 32, 33, 34, 63, 64, 65, 1000):
        yield from ["a" * size, "ab" * size, " " * size, "\n" * size, "\u0301" * size, "x" + " " * size + "y", "0" * size, "é" * size, "漢" * size, "!" * size]

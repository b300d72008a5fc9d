#!/usr/bin/env python3
"""Compares megavit.h's tokenizers with huggingface/tokenizers on real text, random code points and made cases, and times both.

    tests/tokenizers/compare.py [--work DIR] [--lines N] [NAME ...]

NAME: qwen, qwen3_5, clip, gemma, unigram (all). Needs tokenizers, transformers, pip, apt-get, Debian's unicode-data and gcc; the first run
downloads text and packages and trains the stand-ins, which takes minutes. What does not agree is printed, and the exit code is 1 then.
"""
import argparse
import os
import pathlib
import random
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import corpus  # noqa: E402
import library  # noqa: E402
import stand_ins  # noqa: E402

NAMES = ["qwen", "qwen3_5", "clip", "gemma", "unigram"]
SPECIAL, MORE = 1, 2


class Report:
    def __init__(self):
        self.bad = 0

    def differ(self, name, what, text, ours, theirs):
        self.bad += 1
        if self.bad <= 20:
            print(f"{name}: {what}: {text[:80]!r}\n   ours   {str(ours)[:200]}\n   theirs {str(theirs)[:200]}")


def check_texts(report, name, ours, theirs, texts, what):
    total = before = report.bad
    for text in texts:
        total += 1
        expected = theirs.encode(text).ids
        found = ours.encode(text)
        if found != expected:
            report.differ(name, what, text, found, expected)
    print(f"{name}: {what}: {total - before} texts, {report.bad - before} differ", flush=True)


def check_decoding(report, name, ours, theirs, texts):
    """Ids back to text, all at once and one by one, and random ids."""
    rng, size, before = random.Random(3), theirs.get_vocab_size(), report.bad
    sequences = [theirs.encode(text).ids for text in texts] + [[rng.randrange(size) for _ in range(rng.randrange(1, 30))] for _ in range(3000)]
    for k, ids in enumerate(sequences):
        for special in (0, SPECIAL):
            expected = theirs.decode(ids, skip_special_tokens=not special)
            if name == "clip":
                expected = expected.replace("</w>", " ").strip()
            whole = ours.decode(ids, special)
            if whole != expected.encode("utf-8"):
                report.differ(name, "decoding", str(ids), whole.decode("utf-8", "replace"), expected)
        state, parts = library.State(), []
        for i, one in enumerate(ids):
            parts.append(ours.decode([one], SPECIAL | (MORE if i + 1 < len(ids) else 0), state))
            parts[-1].decode("utf-8")
        if k < len(texts) and b"".join(parts) != whole:
            report.differ(name, "decoding one by one", str(ids), b"".join(parts), whole)
    print(f"{name}: decoding: {len(sequences)} sequences, {report.bad - before} differ", flush=True)


def check_long(report, name, ours, theirs):
    """A megabyte without a space: equal ids, and time in proportion to length."""
    rng = random.Random(4)
    for what, make in (("one letter", lambda n: "a" * n), ("letters", lambda n: "".join(rng.choices("etaoinshrdlu", k=n))),
                       ("Chinese", lambda n: "".join(chr(rng.randrange(0x4E00, 0x9000)) for _ in range(n // 3))),
                       ("spaces", lambda n: " " * n), ("marks", lambda n: "a" + "\u0323\u0301" * (n // 4)), ("digits", lambda n: "7" * n)):
        text, short = make(1 << 20), make(1 << 17)
        start = time.process_time()
        short_ids = ours.encode(short)
        middle = time.process_time()
        ids = ours.encode(text)
        end = time.process_time()
        if theirs.encode(short).ids != short_ids:
            report.differ(name, f"long {what}", short, short_ids, theirs.encode(short).ids)
        mb = len(text.encode()) / 1e6
        print(f"{name}: {what}: {mb / (end - middle):.1f} MB/s, {(end - middle) / (middle - start):.1f} times as long for 8 times the text, {len(ids)} ids")


def check_invalid(report, name, ours):
    for data, at in ((b"abc\xff", 3), (b"\xc0\xaf", 0), (b"a\xed\xa0\x80", 1), (b"x\xf4\x90\x80\x80", 1), (b"ok \xe2\x96", 3)):
        try:
            report.differ(name, "invalid UTF-8 taken", str(data), ours.encode(data), "an error")
        except ValueError as error:
            if f"byte {at} of it" not in str(error):
                report.differ(name, "invalid UTF-8", str(data), error, f"byte {at}")


def time_both(name, ours, theirs, texts):
    texts = texts[:20000]
    size = sum(len(text.encode("utf-8")) for text in texts) / 1e6
    joined = "".join(texts[:3000])
    for what, some, mb in (("lines", texts, size), ("one text", [joined], len(joined.encode()) / 1e6)):
        best = []
        for encode in (ours.encode, lambda text: theirs.encode(text).ids):
            times = []
            for _ in range(3):
                start = time.process_time()
                for text in some:
                    encode(text)
                times.append(time.process_time() - start)
            best.append(min(times))
        print(f"{name}: {what}: {mb / best[0]:.2f} MB/s, tokenizers {mb / best[1]:.2f} MB/s, {best[1] / best[0]:.1f} times as fast", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, default=library.ROOT / "build/tokenizers")
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("names", nargs="*", default=NAMES)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    lines, report, shared = corpus.lines(arguments.work), Report(), library.build(arguments.work)
    for name in arguments.names:
        theirs, folder = stand_ins.make(name, arguments.work, lines)
        ours = library.Tokenizer(shared, folder)
        texts = lines[:arguments.lines]
        check_texts(report, name, ours, theirs, corpus.odd_texts(), "odd texts")
        check_texts(report, name, ours, theirs, corpus.emoji(), "emoji")
        check_texts(report, name, ours, theirs, corpus.random_texts(30000), "random code points")
        check_texts(report, name, ours, theirs, texts, "real text")
        check_decoding(report, name, ours, theirs, [*corpus.odd_texts(), *texts[:3000]])
        check_invalid(report, name, ours)
        check_long(report, name, ours, theirs)
        time_both(name, ours, theirs, texts)
    sys.exit(1 if report.bad else 0)


if __name__ == "__main__":
    main()

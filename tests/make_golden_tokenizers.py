#!/usr/bin/env python3
"""Writes tests/golden/tokenizers: small tokenizers of each kind, trained on this repository's README, and what tokenizers makes of texts.

    tests/make_golden_tokenizers.py          needs tokenizers, sentencepiece and Debian's unicode-data

A folder each, with its tokenizer.json; ids.golden has a line a case: the folder, the text in hexadecimal, its ids, and the ids' text without
special tokens in hexadecimal, "-" where there is none. small.golden has tokenizers of a few tokens, a line each: what their tokenizer.json says,
then the same three between tabs.
"""
import io
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/tokenizers"))
import corpus  # noqa: E402
from stand_ins import QWEN2, QWEN3_5, read_model  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
PUNCTUATION = r"[!-/:-@\[-`{-~]"
# What the map of characters of the Unigram stand-in knows: from, to.
MAP = [("ﬁ", "fi"), ("½", "1⁄2"), ("Ａ", "A"), ("e\u0308", "ë"), ("e\u0301", "é"), ("ｱ", "ア"), ("\u3000", " "), ("\t", " "), ("\n", " ")]


def text():
    return (ROOT / "README.md").read_text(encoding="utf-8").splitlines() + ["ελληνικά русский 日本語 हिन्दी العربية שלום 한국어 ไทย"] * 4


def gemma():
    specials = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    result = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    result.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "▁")])
    result.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    result.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=800, special_tokens=specials, show_progress=False))
    data = json.loads(result.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    result = Tokenizer.from_str(json.dumps(data))
    result.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    result.add_tokens([AddedToken("<mask>", lstrip=True, normalized=False), AddedToken("Made Up", normalized=True)])
    result.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    result.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return result


def byte_level(pattern, size):
    result = Tokenizer(models.BPE())
    result.normalizer = normalizers.NFC()
    result.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    result.decoder = decoders.ByteLevel()
    result.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                           show_progress=False))
    result.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    result.add_tokens([AddedToken("<think>", normalized=False)])
    return result


def clip():
    result = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    result.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    result.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
                                                    pre_tokenizers.ByteLevel(add_prefix_space=False)])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    ends = [letter + "</w>" for letter in sorted(alphabet)]
    result.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=1000, initial_alphabet=alphabet, end_of_word_suffix="</w>",
                                                           special_tokens=["<|startoftext|>", "<|endoftext|>", *ends], show_progress=False))
    data = json.loads(result.to_str())
    data["added_tokens"] = data["added_tokens"][:2]
    result = Tokenizer.from_str(json.dumps(data))
    result.decoder = decoders.ByteLevel()
    result.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), False, False)
    return result


def unigram():
    import sentencepiece
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as rules:
        for before, after in MAP:
            print(*(" ".join(f"{ord(c):X}" for c in side) for side in (before, after)), sep="\t", file=rules, flush=True)
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text()), model_writer=model, vocab_size=600, model_type="unigram",
                                                 pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_tsv=rules.name, minloglevel=2)
    pieces, charsmap = read_model(model.getvalue())
    result = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    result.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(left=False),
                                              normalizers.Replace(Regex(" {2,}"), " ")])
    result.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    result.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    result.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    result.add_special_tokens([AddedToken(name, normalized=False, special=True, lstrip=True, rstrip=True) for name in ("<pad>", "</s>", "<unk>")])
    return result


def gpt2():
    """ByteLevel with its own pattern and a space in front; ignore_merges; no added tokens."""
    result = Tokenizer(models.BPE(ignore_merges=True))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    result.decoder = decoders.ByteLevel()
    result.train_from_iterator(text(), trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                           show_progress=False))
    return result


def llama():
    """Prepend and Strip behind Fuse; legacy spelling of merges."""
    result = Tokenizer.from_str(gemma().to_str())
    result.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    result.pre_tokenizer = None
    result.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return result


def small_bpe(names, merges=(), model=(), **more):
    return {"model": {"type": "BPE", "vocab": {name: i for i, name in enumerate(names.split())}, "merges": list(merges), **dict(model)}, **more}


def small_split(behavior):
    return small_bpe("a b - a- -b -a -- b-", [["a", "-"], ["-", "b"], ["-", "a"], ["-", "-"], ["b", "-"]],
                     pre_tokenizer={"type": "Split", "pattern": {"String": "-"}, "behavior": behavior, "invert": False})


def small_replace(regex):
    return small_bpe("a b c - A B", normalizer={"type": "Replace", "pattern": {"Regex": regex}, "content": "-"})


def small_unigram(pieces=(), fallback=False, **more):
    vocabulary = [["<unk>", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -1.2], ["▁", -2.0], ["▁a", -1.1], *pieces]
    return {"model": {"type": "Unigram", "vocab": vocabulary, "unk_id": 0, "byte_fallback": fallback}, **more}


def small():
    """tokenizer.json without what is null, and a text."""
    def sequence(of, *parts):
        return {"type": "Sequence", of: list(parts)}

    def meta(scheme, split):
        return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}

    ends = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, name in ((2, "<s>"), (3, "</s>"))]
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [3], "tokens": ["</s>"]}}}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    cut = sequence("decoders", {"type": "Replace", "pattern": {"String": "_"}, "content": " "}, {"type": "Fuse"},
                   {"type": "Strip", "content": " ", "start": 2, "stop": 0})
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    yield small_bpe("a b ab", [["a", "b"]], pre_tokenizer={"type": "WhitespaceSplit"}), " ab  a\tb\u3000ab "
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext"):
        yield small_split(behavior), "a-b--a-"
    for regex, one in (("[^a-c]+", "ab  Ac!"), ("[A-B]{2}", "aABBcA"), ("[ABb]{2,}", "aABbcA"), (r"\x41", "aAB"), (r"\t", "a\tb"),
                       (r"[\n\r !]", "a\r\nb !c"), (r"\.", "a.b")):
        yield small_replace(regex), one
    yield small_bpe("a _ b", normalizer=sequence("normalizers", strip, {"type": "Prepend", "prepend": "_"})), "  ab \t"
    yield small_bpe("a b", normalizer={"type": "Strip", "strip_left": False, "strip_right": False}), "ab"
    yield small_bpe("a é é</w> a</w> ?", model={"end_of_word_suffix": "</w>", "unk_token": "?"},
                    decoder={"type": "BPEDecoder", "suffix": "</w>"}), "éaé"
    for fuse in (False, True):
        yield small_bpe("a ?", model={"unk_token": "?", "fuse_unk": fuse}), "xyaz"
    yield small_bpe("a b"), "xayb"
    yield small_unigram([["<0xC3>", -9.0], ["<0xA9>", -9.0]], True, decoder={"type": "ByteFallback"}), "aéb"
    yield small_unigram(fallback=True), "aéèb"
    yield small_unigram(pre_tokenizer=meta("first", True)), "a ab  a"
    yield small_unigram(pre_tokenizer=meta("never", False)), "a ab  a"
    yield small_unigram(pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, meta("always", True)),
                        decoder=meta("always", True)), "a ab  a"
    yield small_unigram(), "abab"
    yield small_bpe("a b", added_tokens=ends, post_processor=sequence("processors", byte_level, template)), "ab<s>a"
    yield small_bpe("a b", added_tokens=ends, post_processor={"type": "BertProcessing", "sep": ["</s>", 3], "cls": ["<s>", 2]}), "ab"
    for one in ("_ab_a", "___ab", "ab"):
        yield small_bpe("_ a b", decoder=cut), one


def write_small(path):
    lines = []
    for said, one in small():
        tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                                                   "pre_tokenizer": None, "post_processor": None, "decoder": None, **said}))
        ids = tokenizer.encode(one).ids
        lines.append("\t".join([json.dumps(said, ensure_ascii=False, separators=(",", ":")), one.encode("utf-8").hex(),
                                ",".join(map(str, ids)) or "-", tokenizer.decode(ids).encode("utf-8").hex() or "-"]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def legacy(data):
    """Merges as strings, as files before tokenizers 0.20 have them."""
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    return data


def main():
    folder = ROOT / "tests/golden/tokenizers"
    lines = []
    texts = [*(t for t in corpus.odd_texts() if len(t) < 68), *list(corpus.random_texts(60, 5)), *list(corpus.emoji())[::400], *text()[::7],
             "a <mask> b  <mask>", "this is Made Up and made up", "<|startoftext|>A<|ENDOFTEXT|>", "x <unk> y </s> z", "<think>hm</think>"]
    for name, tokenizer in (("gemma", gemma()), ("qwen", byte_level(QWEN2, 700)), ("qwen3_5", byte_level(QWEN3_5, 300)), ("clip", clip()),
                            ("unigram", unigram()), ("gpt2", gpt2()), ("llama", llama())):
        (folder / name).mkdir(parents=True, exist_ok=True)
        data = json.loads(tokenizer.to_str())
        if name == "llama":
            data = legacy(data)
        (folder / name / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        tokenizer = Tokenizer.from_file(str(folder / name / "tokenizer.json"))
        for one in texts:
            ids = tokenizer.encode(one).ids
            back = tokenizer.decode(ids)
            if name == "clip":
                back = back.replace("</w>", " ").strip()
            lines.append(" ".join([name, one.encode("utf-8").hex() or "-", ",".join(map(str, ids)) or "-", back.encode("utf-8").hex() or "-"]))
    (folder / "ids.golden").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_small(folder / "small.golden")


if __name__ == "__main__":
    main()

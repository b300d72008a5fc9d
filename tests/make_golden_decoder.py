#!/usr/bin/env python3
"""Writes tests/golden/decoder: small Qwen3 and Qwen3-VL models, saved by transformers, and what they say in fp32.

    tests/make_golden_decoder.py            needs torch, transformers, Pillow

A folder a model. cases.golden has a line a case: the folder; the prompt, ids with commas, or rule:N for N ids made by the rule below; its
pictures, WIDTHxHEIGHT with commas, or -; the ids that follow greedily, until the two best logits differ by less than 1e-4 at most 200 of
them, or -; the logits behind the prompt, float32 in hexadecimal, little-endian, or -. Picture k of a case is golden_rule's.
"""
import pathlib
import shutil
import struct

import torch
import transformers
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import golden_rule

FOLDER = pathlib.Path(__file__).resolve().parent / "golden/decoder"
PROMPTS, NEW, CLOSE = 50, 200, 1e-4
IMAGE, VIDEO, START, END = 120, 121, 122, 123
VL_VOCABULARY = 120  # ids of text are below it


def ids_of(name, count, below):
    return [int(value) for value in golden_rule.rule_bits(name, count) % below]


def models():
    """name, model, dtype of the stored weights, bytes of a shard"""
    text = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
                head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e6}, eos_token_id=None)
    build = transformers.Qwen3ForCausalLM
    yield "qwen3", build(transformers.Qwen3Config(**text, tie_word_embeddings=True)), torch.bfloat16, "50GB"
    other = dict(text, vocab_size=77, num_hidden_layers=5, num_attention_heads=6, num_key_value_heads=3, head_dim=8, attention_bias=True)
    yield "qwen3_untied", build(transformers.Qwen3Config(**other)), torch.float16, "60KB"
    deep = dict(text, vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=12, num_attention_heads=3,
                num_key_value_heads=1, head_dim=10)
    yield "qwen3_deep", build(transformers.Qwen3Config(**deep)), torch.float32, "50GB"
    long = dict(text, vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
                num_key_value_heads=1, max_position_embeddings=40960)
    yield "qwen3_long", build(transformers.Qwen3Config(**long, tie_word_embeddings=True)), torch.bfloat16, "50GB"
    stretched = dict(text, num_hidden_layers=2, head_dim=32, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128)
    for kind, rope in [("linear", dict(factor=2.5)), ("yarn", dict(factor=4.0, original_max_position_embeddings=64)),
                       ("yarn_said", dict(factor=3.0, original_max_position_embeddings=32, attention_factor=1.25, beta_fast=16, beta_slow=0.5,
                                          truncate=False)),
                       ("yarn_mscale", dict(factor=8.0, mscale=1.5, mscale_all_dim=0.5))]:
        config = transformers.Qwen3Config(**dict(stretched, rope_parameters=dict(rope, rope_type=kind.split("_")[0], rope_theta=1e4)))
        yield f"qwen3_{kind}", build(config), torch.bfloat16, "50GB"
    seeing = dict(text, rope_parameters={"rope_type": "default", "rope_theta": 5e6, "mrope_section": [4, 2, 2], "mrope_interleaved": True})
    vision = dict(hidden_size=32, num_heads=2, intermediate_size=40, depth=4, deepstack_visual_indexes=[0, 1, 2], out_hidden_size=32,
                  num_position_embeddings=144)
    config = transformers.Qwen3VLConfig(text_config=seeing, vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO,
                                        vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=True)
    yarn = dict(seeing, num_hidden_layers=3, rope_parameters=dict(seeing["rope_parameters"], rope_type="yarn", factor=3.0,
                                                                  original_max_position_embeddings=24))
    stretched = transformers.Qwen3VLConfig(text_config=yarn, vision_config=vision, image_token_id=IMAGE, video_token_id=VIDEO,
                                           vision_start_token_id=START, vision_end_token_id=END, tie_word_embeddings=True)
    yield "qwen3_vl_yarn", transformers.Qwen3VLForConditionalGeneration(stretched), torch.bfloat16, "50GB"
    yield "qwen3_vl", transformers.Qwen3VLForConditionalGeneration(config), torch.bfloat16, "50GB"


def cases(name, model):
    """prompt, its text for the file, sizes of pictures, whether the ids behind it are wanted"""
    below = model.config.get_text_config().vocab_size
    if name == "qwen3_long":
        return [("rule:32900", ids_of("long", 32900, below), [], True)]
    if not name.startswith("qwen3_vl"):
        count = PROMPTS if name == "qwen3" else 4
        lists = [ids_of(f"{name} {i}", 1 + i * 7 % 60, below) for i in range(count)]
        lists += [ids_of(f"{name} block", 700, below)] if name in ("qwen3", "qwen3_deep") else []
        lists = [ids_of(name, 150, below)] if name.startswith(("qwen3_linear", "qwen3_yarn")) else lists
        return [(None, ids, [], True) for ids in lists]
    small, wide = (64, 96), (160, 64)  # 2 x 3 and 5 x 2 merged tokens

    def picture(size):
        return [START] + [IMAGE] * (size[0] // 32 * (size[1] // 32)) + [END]

    def words(label, count):
        return ids_of(f"vl {label}", count, VL_VOCABULARY)

    return [(None, ids, sizes, True) for ids, sizes in [
        (words("text", 30), []),
        (picture(small)[1:-1], [small]),
        (picture(wide) + words("behind", 9), [wide]),
        (words("a", 5) + picture(small) + words("b", 11) + picture(wide) + words("c", 7), [small, wide]),
        (words("d", 3) + picture(wide) + picture(small) + words("e", 2), [wide, small]),
    ]][-1 if name == "qwen3_vl_yarn" else 0:]


def text_ids(model):
    return VL_VOCABULARY if model.config.model_type == "qwen3_vl" else model.config.vocab_size


def steps(model, inputs, count):
    """Logits behind the prompt and behind each id that follows, and those ids: of Qwen3-VL only those of text, as placeholders want
    pictures. generate() counts the positions behind a prompt that ends in a picture from the picture's last row, where get_rope_index, and
    so the same ids in one forward call, take the first free one: such prompts go without it."""
    if inputs["input_ids"][0, -1] == IMAGE and model.config.model_type == "qwen3_vl":
        for _ in range(count):
            logits = model(**inputs).logits[0, -1]
            token = logits[:text_ids(model)].argmax()
            yield logits, int(token)
            inputs["input_ids"] = torch.cat([inputs["input_ids"], token.reshape(1, 1)], dim=1)
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            inputs["mm_token_type_ids"] = (inputs["input_ids"] == IMAGE).int()
        return
    suppressed = list(range(text_ids(model), model.config.get_text_config().vocab_size)) or None
    out = model.generate(**inputs, do_sample=False, suppress_tokens=suppressed, max_new_tokens=count, min_new_tokens=count,
                         return_dict_in_generate=True, output_logits=True, pad_token_id=0)
    for scores, token in zip(out.logits, out.sequences[0, inputs["input_ids"].shape[1]:]):
        yield scores[0], int(token)


def greedy(model, inputs, count):
    """Ids until two of the best logits are close, and the logits behind the prompt."""
    ids, first = [], None
    for logits, token in steps(model, inputs, count):
        first = logits if first is None else first
        best = logits[:text_ids(model)].topk(2).values
        if best[0] - best[1] < CLOSE:
            break
        ids.append(token)
    return ids, first


def run(model, ids, sizes, new):
    inputs = {"input_ids": torch.tensor([ids])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if sizes:
        processor = processor_of(model)
        pictures = [Image.fromarray(golden_rule.picture(k, *size)[0]) for k, size in enumerate(sizes)]
        inputs.update(processor(pictures, return_tensors="pt"))
    if model.config.model_type == "qwen3_vl":
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == IMAGE).int()
    return greedy(model, inputs, new)


def processor_of(model):
    del model
    return Qwen2VLImageProcessorPil(patch_size=16, image_mean=[0.5] * 3, image_std=[0.5] * 3,
                                    size={"shortest_edge": 1024, "longest_edge": 65536})


def main():
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    lines = []
    for name, model, dtype, shard in models():
        model = model.float().eval()
        golden_rule.fill(model, dtype)
        model.tie_weights()
        for text, ids, sizes, _ in cases(name, model):
            following, logits = run(model, ids, sizes, 20 if name == "qwen3_long" else NEW)
            lines.append(" ".join([name, text or ",".join(map(str, ids)), ",".join("%dx%d" % size for size in sizes) or "-",
                                   ",".join(map(str, following)) or "-", struct.pack(f"<{len(logits)}f", *logits.tolist()).hex()]))
            print(name, len(ids), sizes, len(following))
        model.to(dtype).save_pretrained(FOLDER / name, max_shard_size=shard)
        if name.startswith("qwen3_vl"):
            processor_of(model).save_pretrained(FOLDER / name)
    (FOLDER / "cases.golden").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""Compares `megavit generate` with transformers on language models of full widths: random weights saved by save_pretrained, ids in,
with a picture where the model sees, logits behind the prompt and greedy ids out.

    make build/megavit
    python tests/check_full_decoder.py qwen3-4b qwen3-8b [--layers 2] [--tokens 32] [--double]
    python tests/check_full_decoder.py qwen3-vl-2b --layers 28
    python tests/check_full_decoder.py qwen3-vl-2b --layers 0 --backend cuda     with build/cuda/megavit; --folder DIR: the model stays there

Not part of `make test`: it needs torch, transformers 5.24, gigabytes of memory and disk, and minutes. Prints the relative L2 of the logits
between megavit and transformers in fp32 and, with --double, of both against transformers in fp64, and how many ids are the same. Exits
with 1 unless megavit is within 1e-5 of transformers or at most twice as far from fp64 as transformers itself is, and the ids are equal until
transformers' two best logits differ by less than 1e-4. On a GPU, which calculates in bf16, it is KL to fp32 that counts: at most that of
transformers in bf16.
"""
import argparse
import gc
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from golden_rule import relative_l2

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGE, START, END, CLOSE = 151655, 151652, 151653, 1e-4


def text(hidden, intermediate, heads, layers):
    return dict(hidden_size=hidden, intermediate_size=intermediate, num_attention_heads=heads, num_key_value_heads=8, head_dim=128,
                num_hidden_layers=layers, vocab_size=151936, eos_token_id=None, bos_token_id=None)


def qwen3(hidden, intermediate, heads, layers, tied):
    rope = {"rope_type": "default", "rope_theta": 1e6}
    return Qwen3ForCausalLM, Qwen3Config(**text(hidden, intermediate, heads, layers), tie_word_embeddings=tied, rope_parameters=rope)


def qwen3_vl(hidden, intermediate, heads, layers, tied, vision):
    rope = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": True}
    return Qwen3VLForConditionalGeneration, Qwen3VLConfig(
        text_config=dict(text(hidden, intermediate, heads, layers), rope_parameters=rope, tie_word_embeddings=tied),
        vision_config=dict(vision, out_hidden_size=hidden), tie_word_embeddings=tied)


SMALL = dict(hidden_size=1024, intermediate_size=4096, num_heads=16, depth=24, deepstack_visual_indexes=[5, 11, 17])
LARGE = dict(hidden_size=1152, intermediate_size=4304, num_heads=16, depth=27, deepstack_visual_indexes=[8, 16, 24])
MODELS = {
    "qwen3-0.6b": lambda layers: qwen3(1024, 3072, 16, layers or 28, True),
    "qwen3-1.7b": lambda layers: qwen3(2048, 6144, 16, layers or 28, True),
    "qwen3-4b": lambda layers: qwen3(2560, 9728, 32, layers or 36, True),
    "qwen3-8b": lambda layers: qwen3(4096, 12288, 32, layers or 36, False),
    "qwen3-vl-2b": lambda layers: qwen3_vl(2048, 6144, 16, layers or 28, True, SMALL),
    "qwen3-vl-4b": lambda layers: qwen3_vl(2560, 9728, 32, layers or 36, True, SMALL),
    "qwen3-vl-8b": lambda layers: qwen3_vl(4096, 12288, 32, layers or 36, False, LARGE),
}


def make(name, layers, folder):
    """The model in bf16, saved; norms and biases are random, too."""
    torch.set_default_dtype(torch.bfloat16)
    build, config = MODELS[name](layers)
    model = build(config).eval()
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(46)
    for key, value in model.named_parameters():
        if value.dim() == 1:
            value.copy_(torch.randn_like(value) * 0.1 + (1 if "norm" in key and key.endswith("weight") else 0))
    model.save_pretrained(folder)
    return model


def inputs_of(model, folder):
    """What transformers is given, and megavit's arguments that say the same."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 150000, (48,), generator=generator).tolist()
    arguments, given = [], {}
    if hasattr(model.config, "vision_config"):
        processor = Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 16777216}, image_mean=[0.5] * 3,
                                             image_std=[0.5] * 3)
        processor.save_pretrained(folder)
        picture = Image.fromarray(np.random.default_rng(1).integers(0, 256, (320, 448, 3), dtype=np.uint8)).resize((448, 320))
        picture.save(folder / "picture.png")
        given = dict(processor([picture], return_tensors="pt"))
        ids = ids[:8] + [START] + [IMAGE] * int(given["image_grid_thw"].prod() // 4) + [END] + ids[8:]
        arguments = ["--image", str(folder / "picture.png")]
        given["mm_token_type_ids"] = (torch.tensor([ids]) == IMAGE).int()
    np.save(folder / "ids.npy", np.array(ids, dtype=np.int64))
    given["input_ids"] = torch.tensor([ids])
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    return given, ["--ids", str(folder / "ids.npy"), *arguments]


def generate(model, given, tokens):
    """Logits behind the prompt, ids, and how many of them are beyond doubt."""
    out = model.generate(**given, do_sample=False, max_new_tokens=tokens, min_new_tokens=tokens, return_dict_in_generate=True,
                         output_logits=True, pad_token_id=0)
    ids = out.sequences[0, given["input_ids"].shape[1]:].tolist()
    best = [step[0].topk(2).values for step in out.logits]
    sure = next((i for i, two in enumerate(best) if two[0] - two[1] < CLOSE), len(ids))
    return out.logits[0][0].double(), ids, sure


def divergence(a, b):
    a, b = a.log_softmax(0), b.log_softmax(0)
    return float((b.exp() * (b - a)).sum())


def check(name, options):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.folder or temporary)
        model = make(name, options.layers, folder)
        given, arguments = inputs_of(model, folder)
        program = "build/cuda/megavit" if options.backend == "cuda" else "build/megavit"
        command = [str(ROOT / program), "generate", "--backend", options.backend, "--model", str(folder), *arguments, "--greedy", "--ignore-eos", "--format", "json",
                   "--max-tokens", str(options.tokens), "--threads", str(options.threads), "--logits", str(folder / "logits.npy")]
        if options.backend == "cuda":
            half = model(**{k: v.bfloat16() if v.is_floating_point() else v for k, v in given.items()}, logits_to_keep=1).logits[0, -1].double()
        model = model.float()
        logits, ids, sure = generate(model, given, options.tokens)
        double = None
        if options.double:
            model = model.double()
            with torch.no_grad():
                double = model(**{k: v.double() if v.is_floating_point() else v for k, v in given.items()}).logits[0, -1]
        parameters = sum(p.numel() for p in model.parameters())
        del model
        gc.collect()
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours = torch.from_numpy(np.load(folder / "logits.npy")).double()
    same = next((i for i, (a, b) in enumerate(zip(ids, said["ids"])) if a != b), len(ids))
    apart = relative_l2(ours, logits)
    line = f"{name}: {parameters / 1e6:.0f} M parameters, prompt of {given['input_ids'].shape[1]}, logits off by {apart:.2e}"
    well = apart <= 1e-5
    if double is not None:
        far, theirs = relative_l2(ours, double), relative_l2(logits, double)
        well = well or far <= 2 * theirs
        line += f" ({far:.2e} from fp64, transformers {theirs:.2e})"
    well = well and same >= sure
    if options.backend == "cuda":
        far, theirs = divergence(ours, logits), divergence(half, logits)
        well = far <= theirs
        line += f", KL {far:.2e}; transformers' bf16 {relative_l2(half, logits):.2e}, KL {theirs:.2e}"
    print(f"{line}; {same} of {len(ids)} ids equal, {sure} beyond doubt: {'ok' if well else 'WRONG'}", flush=True)
    return well


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=MODELS)
    parser.add_argument("--layers", type=int, default=2, help="of the decoder; 0: all")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--backend", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--folder")
    parser.add_argument("--double", action="store_true", help="transformers in fp64, too: twice the memory")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(options.threads)
    return 0 if all([check(name, options) for name in options.models]) else 1


if __name__ == "__main__":
    sys.exit(main())

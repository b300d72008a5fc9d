"""Compares the command line with transformers at full size: random weights saved by save_pretrained, then one picture.

    make build/megavit
    python tests/check_full_size.py siglip2-base [siglip2-base-whole clip-large dinov2-large ...: --help names them all] [--threads 2]

Not part of `make test`: it needs torch, transformers 5.17, gigabytes of memory and disk, and minutes. Prints, for each output,
the relative L2 between megavit and transformers in fp32, and of both against transformers in fp64. Exits with 1 unless megavit
is within 1e-5 of transformers or, in models of more than 12 layers, at most twice as far from fp64 as transformers itself is.
"""
import argparse
import gc
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from transformers import (CLIPConfig, CLIPModel, CLIPVisionConfig, CLIPVisionModel, Dinov2Config, Dinov2Model, Dinov2WithRegistersConfig,
                          Dinov2WithRegistersModel, DINOv3ViTConfig, DINOv3ViTImageProcessor, DINOv3ViTModel, Siglip2VisionConfig,
                          Siglip2VisionModel, SiglipConfig, SiglipModel, SiglipVisionConfig, SiglipVisionModel)
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5VisionConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5VisionModel
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from golden_rule import relative_l2


def siglip(**config):
    config = SiglipVisionConfig(**config, attn_implementation="sdpa")
    size = {"height": config.image_size, "width": config.image_size}
    return SiglipVisionModel(config), SiglipImageProcessorPil(size=size, resample=2), (300, 200)


def qwen3_vl(**config):
    processor = Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 16777216}, image_mean=[0.5] * 3,
                                         image_std=[0.5] * 3)
    return Qwen3VLVisionModel(Qwen3VLVisionConfig(**config, attn_implementation="sdpa")), processor, (448, 448)


def qwen2_5_vl(**config):
    processor = Qwen2VLImageProcessorPil(patch_size=14, size={"shortest_edge": 3136, "longest_edge": 12845056})
    return Qwen2_5_VisionTransformerPretrainedModel(Qwen2_5_VLVisionConfig(**config, attn_implementation="sdpa")), processor, (448, 448)


def clip(**config):
    config = CLIPVisionConfig(**config, attn_implementation="sdpa")
    size = {"height": config.image_size, "width": config.image_size}
    return CLIPVisionModel(config), CLIPImageProcessorPil(size={"shortest_edge": config.image_size}, crop_size=size), (300, 200)


def siglip_whole(text, vision):
    """Both towers, and ids of three texts."""
    config = SiglipConfig(text_config=text, vision_config=vision, attn_implementation="sdpa")
    size = {"height": config.vision_config.image_size, "width": config.vision_config.image_size}
    return SiglipModel(config), SiglipImageProcessorPil(size=size, resample=2), (300, 200)


def clip_whole(text, vision, **config):
    config = CLIPConfig(text_config=text, vision_config=vision, **config, attn_implementation="sdpa")
    size = {"height": config.vision_config.image_size, "width": config.vision_config.image_size}
    return CLIPModel(config), CLIPImageProcessorPil(size={"shortest_edge": config.vision_config.image_size}, crop_size=size), (300, 200)


def texts(config):
    """Ids of short texts, of CLIP's with begin and end around and ends behind."""
    ids = torch.randint(5, config.vocab_size - 10, (4, config.max_position_embeddings), generator=torch.Generator().manual_seed(2))
    clip = "clip" in config.model_type
    for i, words in enumerate((3, 7, 20, config.max_position_embeddings - 2)):
        ids[i, words + 1:] = config.eos_token_id if clip else 0
        if clip:
            ids[i, 0] = config.bos_token_id
    return ids


def dino(config_class, model_class, processor, **config):
    return model_class(config_class(**config, attn_implementation="sdpa")), processor, (300, 200)


def naflex(**config):
    return Siglip2VisionModel(Siglip2VisionConfig(**config, attn_implementation="sdpa")), Siglip2ImageProcessorPil(), (300, 200)


def qwen3_5(**config):
    processor = Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 16777216}, image_mean=[0.5] * 3,
                                         image_std=[0.5] * 3)
    return Qwen3_5VisionModel(Qwen3_5VisionConfig(**config, attn_implementation="sdpa")), processor, (448, 448)


def qwen2_vl(**config):
    processor = Qwen2VLImageProcessorPil(patch_size=14, size={"shortest_edge": 3136, "longest_edge": 12845056})
    return Qwen2VisionTransformerPretrainedModel(Qwen2VLVisionConfig(**config, attn_implementation="sdpa")), processor, (448, 448)


IMAGENET = dict(image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16)
MODELS = {
    "clip-base": lambda: clip(patch_size=16),
    "clip-large": lambda: clip(**LARGE, intermediate_size=4096, patch_size=14),
    "dinov2-base": lambda: dino(Dinov2Config, Dinov2Model, BitImageProcessorPil(size={"shortest_edge": 256}, **IMAGENET), image_size=518),
    "dinov2-large": lambda: dino(Dinov2Config, Dinov2Model, BitImageProcessorPil(size={"shortest_edge": 256}, **IMAGENET), image_size=518,
                                 **LARGE),
    "dinov2-registers-base": lambda: dino(Dinov2WithRegistersConfig, Dinov2WithRegistersModel,
                                          BitImageProcessorPil(size={"shortest_edge": 256}, **IMAGENET), image_size=518, patch_size=14),
    "dinov3-base": lambda: dino(DINOv3ViTConfig, DINOv3ViTModel, DINOv3ViTImageProcessor(), hidden_size=768, intermediate_size=3072,
                                num_attention_heads=12, num_register_tokens=4),
    "siglip2-naflex-base": lambda: naflex(),
    "qwen2-vl": lambda: qwen2_vl(hidden_size=1536),
    "qwen3.5-0.8b": lambda: qwen3_5(hidden_size=768, intermediate_size=3072, depth=12, num_heads=12, out_hidden_size=1024),
    "siglip2-base": lambda: siglip(),
    "siglip2-base-whole": lambda: siglip_whole(dict(vocab_size=256000, projection_size=768), {}),
    "clip-large-whole": lambda: clip_whole(dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072),
                                           dict(**LARGE, intermediate_size=4096, patch_size=14), projection_dim=768),
    "siglip2-so400m": lambda: siglip(hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, patch_size=14),
    "qwen3-vl-2b": lambda: qwen3_vl(hidden_size=1024, intermediate_size=4096, depth=24, out_hidden_size=2048,
                                    deepstack_visual_indexes=[5, 11, 17]),
    "qwen3-vl-8b": lambda: qwen3_vl(out_hidden_size=4096),
    "qwen2.5-vl-7b": lambda: qwen2_5_vl(hidden_size=1280),
}


def randomize(model):
    """Weights of the size that keeps activations near 1, biases and norms that matter."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            fan_in = parameter[0].numel() if "position" not in name and "pos_embed" not in name and not name.endswith("probe") else 1
            parameter.normal_(0, fan_in**-0.5)
        elif name.endswith("weight"):
            parameter.uniform_(0.7, 1.3)
        else:
            parameter.normal_(0, 0.1)


def picture(size):
    noise = np.random.default_rng(1).integers(0, 256, (size[1] // 10, size[0] // 10, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.BICUBIC)


def answers(model, inputs):
    """What transformers says, by the names of the command line's --what."""
    if hasattr(model, "text_model"):
        ids = inputs["input_ids"]
        found = {"embeds" if "clip" in model.config.model_type else "pooled": model.get_image_features(pixel_values=inputs["pixel_values"]),
                 "text": model.get_text_features(input_ids=ids)}
        return {what: getattr(value, "pooler_output", value).numpy() for what, value in found.items()}
    if "grid_thw" in inputs:
        answer = model(inputs["pixel_values"], grid_thw=inputs["grid_thw"])
        found = {"tokens": answer.pooler_output}
        for j, feature in enumerate(getattr(answer, "deepstack_features", ())):
            found[f"deepstack:{j}"] = feature
        return {what: value.numpy() for what, value in found.items()}
    answer = model(**inputs, output_hidden_states=True)
    middle = len(answer.hidden_states) // 2
    rows = int(inputs["spatial_shapes"].prod()) if "spatial_shapes" in inputs else None  # without padding
    found = {"pooled": answer.pooler_output, "tokens": answer.last_hidden_state[:, :rows],
             f"layer:{middle}": answer.hidden_states[middle][:, :rows]}
    return {what: value.numpy() for what, value in found.items()}


def check(name, threads, folder):
    model, processor, size = MODELS[name]()
    model = model.float().eval()
    randomize(model)
    whole = hasattr(model, "text_model")
    depth = lambda config: getattr(config, "num_hidden_layers", None) or config.depth
    layers = depth(model.config.vision_config if whole else model.config)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    image_path = folder / "picture.png"
    picture(size).save(image_path)
    inputs = dict(processor(Image.open(image_path), return_tensors="pt"))
    if "image_grid_thw" in inputs:
        inputs["grid_thw"] = inputs.pop("image_grid_thw")
    if whole:
        inputs["input_ids"] = texts(model.config.text_config)
        np.save(folder / "ids.npy", inputs["input_ids"].numpy())
    single = answers(model, inputs)
    model = model.double()
    inputs["pixel_values"] = inputs["pixel_values"].double()
    exact = answers(model, inputs)
    text_config = model.config.text_config if whole else None
    del model
    gc.collect()

    good = True
    for what, reference in single.items():
        output = folder / "output.npy"
        start = time.time()
        command = ["build/megavit", "embed", "--model", str(folder), "--backend", "cpu", "--what", what, "--threads", str(threads),
                   "--format", "npy", "-o", str(output), str(image_path)]
        if what == "text":
            layers = depth(text_config)
            command = ["build/megavit", "text", "--model", str(folder), "--ids", str(folder / "ids.npy"), "--threads", str(threads), "-o",
                       str(output)]
        subprocess.run(command, check=True)
        seconds = time.time() - start
        value = np.load(output).reshape(reference.shape)
        apart = relative_l2(value, reference)
        own, theirs = relative_l2(value, exact[what]), relative_l2(reference, exact[what])
        fine = apart <= 1e-5 if layers <= 12 else own <= 2 * theirs
        good = good and fine
        verdict = "ok" if fine else "FAILED"
        print(f"| {name} | {layers} | {what} | {apart:.1e} | {own:.1e} | {theirs:.1e} | {verdict} | {seconds:.1f} |", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", choices=sorted(MODELS))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(args.threads)
    print("| model | layers | output | megavit to transformers fp32 | megavit to fp64 | transformers fp32 to fp64 | | s, with loading |")
    print("|---|---|---|---|---|---|---|---|")
    good = True
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            good = check(name, args.threads, pathlib.Path(folder)) and good
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()

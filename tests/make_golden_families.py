"""Writes tests/golden/{clip,dinov2,dinov3,qwen2_vl,qwen3_5,siglip2,llava}*: small towers of these families and transformers' answers in fp32.

    python tests/make_golden_families.py        with torch 2.15, transformers 5.24, Pillow, numpy

Weights and pictures are made by golden_rule.py on both sides. Whole models are saved with text towers as small as can be.
"""
import copy
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (CLIPConfig, CLIPModel, CLIPVisionConfig, CLIPVisionModelWithProjection, Dinov2Config, Dinov2Model,
                          Dinov2WithRegistersConfig, Dinov2WithRegistersForImageClassification, Dinov2WithRegistersModel,
                          DINOv3ViTConfig, DINOv3ViTImageProcessor, DINOv3ViTModel, LlavaConfig, LlavaForConditionalGeneration,
                          Siglip2VisionConfig, Siglip2VisionModel)
from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5VisionConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5VisionModel
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

import golden_rule
import make_golden_qwen
from golden_rule import Golden

HERE = pathlib.Path(__file__).resolve().parent / "golden"
ABOUT = "made by tests/make_golden_families.py, transformers 5.24 in fp32, eager attention, one thread"


def config_of(model_type, hidden, heads, layers, patch, image, **more):
    return dict(model_type=model_type, hidden_size=hidden, num_attention_heads=heads, num_hidden_layers=layers, patch_size=patch,
                image_size=image, **more)


def clip(hidden, heads, intermediate, layers, patch, image, **more):
    return config_of("clip_vision_model", hidden, heads, layers, patch, image, intermediate_size=intermediate, **more)


CLASSES = {
    "clip_vision_model": (CLIPVisionConfig, CLIPVisionModelWithProjection),
    "dinov2": (Dinov2Config, Dinov2Model),
    "dinov2_with_registers": (Dinov2WithRegistersConfig, Dinov2WithRegistersModel),
    "dinov3_vit": (DINOv3ViTConfig, DINOv3ViTModel),
    "qwen2_vl_vision": (Qwen2VLVisionConfig, Qwen2VisionTransformerPretrainedModel),
    "qwen3_5_vision": (Qwen3_5VisionConfig, Qwen3_5VisionModel),
}

# name, config, dtype of the stored weights, sides of the picture that the processor makes or which processor, pictures (width, height)
CASES = [
    ("clip_base", clip(128, 2, 208, 2, 16, 48, projection_dim=40), torch.float32, (48, 48), [(48, 48), (31, 77)]),
    ("clip_crop", clip(64, 1, 96, 1, 16, 48, projection_dim=24), torch.float32, "clip", [(48, 48), (31, 77), (160, 90)]),
    ("clip_gelu", clip(160, 2, 269, 1, 14, 45, projection_dim=7, hidden_act="gelu", layer_norm_eps=0.01), torch.bfloat16, (45, 45),
     [(45, 45)]),
    ("clip_one_patch", clip(64, 1, 96, 2, 32, 32, projection_dim=24), torch.float16, (32, 32), [(32, 32)]),
    ("dinov2_base", config_of("dinov2", 128, 2, 2, 14, 56), torch.float32, (56, 56), [(56, 56), (31, 77)]),
    ("dinov2_crop", config_of("dinov2", 64, 1, 1, 14, 70), torch.float32, "bit", [(31, 77), (160, 90)]),
    ("dinov2_any_size", config_of("dinov2", 64, 1, 1, 14, 70), torch.float32, "any", [(31, 77), (160, 90), (42, 42)]),
    ("dinov2_registers_any_size", config_of("dinov2_with_registers", 64, 1, 1, 14, 70), torch.float32, "any", [(31, 77), (160, 90)]),
    ("dinov3_floats", config_of("dinov3_vit", 64, 1, 1, 16, 64, intermediate_size=96, num_register_tokens=4), torch.float32, "dinov3",
     [(97, 70), (20, 33)]),
    ("dinov2_larger", config_of("dinov2", 64, 1, 2, 14, 70, mlp_ratio=3, layer_norm_eps=1e-5), torch.float32, (112, 112), [(112, 112)]),
    ("dinov2_smaller", config_of("dinov2", 64, 2, 1, 14, 98, hidden_act="relu", qkv_bias=False), torch.float32, (65, 65), [(65, 65)]),
    ("dinov2_swiglu", config_of("dinov2", 80, 2, 2, 8, 32, use_swiglu_ffn=True), torch.bfloat16, (32, 32), [(32, 32)]),
    ("dinov2_registers", config_of("dinov2_with_registers", 128, 2, 2, 14, 56, num_register_tokens=4), torch.float32, (56, 56),
     [(56, 56)]),
    ("dinov2_registers_larger", config_of("dinov2_with_registers", 64, 1, 1, 14, 70, num_register_tokens=1), torch.float32, (112, 112),
     [(112, 112)]),
    ("dinov2_registers_smaller", config_of("dinov2_with_registers", 64, 1, 2, 14, 98, num_register_tokens=7, use_swiglu_ffn=True),
     torch.float32, (42, 42), [(42, 42)]),
    ("dinov3_base", config_of("dinov3_vit", 128, 2, 2, 16, 64, intermediate_size=208, num_register_tokens=4), torch.float32, (64, 64),
     [(64, 64)]),
    ("dinov3_gated", config_of("dinov3_vit", 72, 1, 2, 16, 224, intermediate_size=101, use_gated_mlp=True, hidden_act="silu",
                               query_bias=False, value_bias=False), torch.bfloat16, (80, 80), [(80, 80)]),
    ("dinov3_no_registers", config_of("dinov3_vit", 64, 2, 1, 8, 32, intermediate_size=80, key_bias=True, proj_bias=False,
                                      mlp_bias=False, rope_theta=50.0), torch.float32, (40, 40), [(40, 40)]),
]


# name, config, dtype of the stored weights, limits, clips (width, height, frames)
QWEN_CASES = [
    ("qwen2_vl_base", dict(model_type="qwen2_vl_vision", embed_dim=160, num_heads=2, depth=2, hidden_size=64, mlp_ratio=2),
     torch.float32, None, [(84, 140, 1), (28, 28, 1), (150, 201, 1)]),
    ("qwen2_vl_clip", dict(model_type="qwen2_vl_vision", embed_dim=80, num_heads=1, depth=1, hidden_size=56, mlp_ratio=4,
                           hidden_act="gelu"), torch.bfloat16, None, [(84, 140, 4), (28, 56, 3)]),
    ("qwen3_5_base", dict(model_type="qwen3_5_vision", hidden_size=128, num_heads=2, intermediate_size=208, depth=2,
                          out_hidden_size=96, num_position_embeddings=144), torch.float32, None, [(97, 161, 1), (32, 32, 1)]),
    ("qwen3_5_clip", dict(model_type="qwen3_5_vision", hidden_size=64, num_heads=1, intermediate_size=96, depth=1,
                          out_hidden_size=48), torch.bfloat16, None, [(64, 96, 4)]),
]

# name, config, dtype of the stored weights, max_num_patches, pictures (width, height)
NAFLEX_CASES = [
    ("siglip2_base", dict(model_type="siglip2_vision_model", hidden_size=128, num_attention_heads=2, intermediate_size=208,
                          num_hidden_layers=2, patch_size=8, num_patches=36), torch.float32, 64,
     [(97, 61), (40, 40), (4, 300), (200, 90)]),
    ("siglip2_no_head", dict(model_type="siglip2_vision_model", hidden_size=64, num_attention_heads=1, intermediate_size=96,
                             num_hidden_layers=1, patch_size=4, num_patches=256, vision_use_head=False), torch.bfloat16, 30, [(50, 71)]),
]


def processor_for(size):
    """Of every family with a fixed size: squashed to it, as do_center_crop=False and a height and a width say; or a family's own."""
    if size == "clip":
        return CLIPImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 48, "width": 48})
    if size == "bit":
        return BitImageProcessorPil(size={"shortest_edge": 64}, crop_size={"height": 56, "width": 56},
                                    image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
    if size == "any":
        return BitImageProcessorPil(size={"shortest_edge": 47}, do_center_crop=False)
    if size == "dinov3":
        return DINOv3ViTImageProcessor(size={"height": 64, "width": 80})
    return CLIPImageProcessorPil(size={"height": size[0], "width": size[1]}, do_center_crop=False)


def record(golden, model, processor, pictures, projection=None):
    exact_model = copy.deepcopy(model).double()
    for k, (width, height) in enumerate(pictures):
        golden.line(f"picture {width} {height} 1")
        pixels = processor(Image.fromarray(golden_rule.picture(k, width, height)[0]), return_tensors="pt")["pixel_values"]
        assert pixels.dtype == torch.float32
        golden.pixels(k, pixels.reshape(-1, pixels.shape[-1]))
        answers = []
        for one, values in ((model, pixels), (exact_model, pixels.double())):
            answer = getattr(one, "vision_model", one)(pixel_values=values, output_hidden_states=True)
            if hasattr(one, "visual_projection"):
                answers.append((answer, one(pixel_values=values).image_embeds))
            elif projection is not None:
                answers.append((answer, answer.pooler_output @ projection.weight.to(values.dtype).T))
            else:
                answers.append((answer, None))
        (answer, embeds), (exact, exact_embeds) = answers
        golden.output(k, "pooled", 0, answer.pooler_output, exact.pooler_output)
        golden.output(k, "tokens", 0, answer.last_hidden_state, exact.last_hidden_state)
        if embeds is not None:
            golden.output(k, "embeds", 0, embeds, exact_embeds)
        if k == 0:
            assert len(answer.hidden_states) == model.config.num_hidden_layers + 1
            for n, (value, value_exact) in enumerate(zip(answer.hidden_states, exact.hidden_states)):
                golden.output(k, "layer", n, value, value_exact)


def rule_model(model_class, config, dtype):
    """A model whose weights are made by the rule, from the names that its file has, and the `weight` lines of these."""
    lines, tensors = [], {}
    with tempfile.TemporaryDirectory() as folder:
        model_class(config).float().save_pretrained(folder)
        for name, tensor in sorted(load_file(f"{folder}/model.safetensors").items()):
            lines.append(golden_rule.fill_tensor(name, tensor, dtype))
            tensors[name] = tensor
        save_file(tensors, f"{folder}/model.safetensors", {"format": "pt"})
        model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return model, lines


def make_rule_case(name, config, dtype, size, pictures):
    golden = Golden(ABOUT)
    config_class, model_class = CLASSES[config["model_type"]]
    model, lines = rule_model(model_class, config_class(**config), dtype)
    processor = processor_for(size)
    golden.json("config", config)
    golden.json("preprocessor", json.loads(processor.to_json_string()))
    for line in lines:
        golden.line(line)
    record(golden, model, processor, pictures)
    golden.write(HERE / f"{name}.golden")


def make_qwen_case(name, config, dtype, limits, clips):
    golden = Golden(ABOUT)
    config_class, model_class = CLASSES[config["model_type"]]
    model, lines = rule_model(model_class, config_class(**config), dtype)
    processor = make_golden_qwen.processor_for(model.config)
    golden.json("config", config)
    golden.json("preprocessor", json.loads(processor.to_json_string()))
    for line in lines:
        golden.line(line)
    make_golden_qwen.record(golden, model, processor, limits, clips)
    golden.write(HERE / f"{name}.golden")


def make_naflex_case(name, config, dtype, max_patches, pictures):
    golden = Golden(ABOUT)
    model, lines = rule_model(Siglip2VisionModel, Siglip2VisionConfig(**config), dtype)
    exact_model = copy.deepcopy(model).double()
    processor = Siglip2ImageProcessorPil(patch_size=config["patch_size"], max_num_patches=max_patches)
    golden.json("config", config)
    golden.json("preprocessor", json.loads(processor.to_json_string()))
    for line in lines:
        golden.line(line)
    for k, (width, height) in enumerate(pictures):
        golden.line(f"picture {width} {height} 1")
        inputs = processor(Image.fromarray(golden_rule.picture(k, width, height)[0]), return_tensors="pt")
        rows = int(inputs["spatial_shapes"][0].prod())
        golden.pixels(k, inputs["pixel_values"][0, :rows])
        keys = dict(pixel_attention_mask=inputs["pixel_attention_mask"], spatial_shapes=inputs["spatial_shapes"], output_hidden_states=True)
        answer, exact = model(inputs["pixel_values"], **keys), exact_model(inputs["pixel_values"].double(), **keys)
        if config.get("vision_use_head", True):
            golden.output(k, "pooled", 0, answer.pooler_output, exact.pooler_output)
        golden.output(k, "tokens", 0, answer.last_hidden_state[0, :rows], exact.last_hidden_state[0, :rows])
        for n, (value, value_exact) in enumerate(zip(answer.hidden_states, exact.hidden_states)):
            if k == 0:
                golden.output(k, "layer", n, value[0, :rows], value_exact[0, :rows])
    golden.write(HERE / f"{name}.golden")


def save(name, whole, processor):
    """A directory as save_pretrained writes it."""
    shutil.rmtree(HERE / name, ignore_errors=True)
    whole.save_pretrained(HERE / name)
    processor.save_pretrained(HERE / name)
    (HERE / name / "generation_config.json").unlink(missing_ok=True)


def make_whole_cases():
    """A whole CLIP with its text tower, a CLIP tower inside of a LLaVA, and a DINOv2 that classifies."""
    vision = clip(48, 2, 56, 2, 8, 40)
    text = dict(vocab_size=20, hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2,
                max_position_embeddings=4, bos_token_id=0, eos_token_id=1, pad_token_id=1)
    whole = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=24, attn_implementation="eager")).float().eval()
    golden = Golden(ABOUT)
    golden.line("directory clip_saved")
    golden_rule.fill(whole, torch.float16)
    record(golden, whole.vision_model, processor_for((40, 40)), [(29, 40), (40, 40)], whole.visual_projection)
    save("clip_saved", whole.half(), processor_for((40, 40)))
    golden.write(HERE / "clip_saved.golden")

    text = dict(model_type="llama", hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=24)
    whole = LlavaForConditionalGeneration(LlavaConfig(text_config=text, vision_config=vision, image_token_index=5,
                                                      attn_implementation="eager")).float().eval()
    golden = Golden(ABOUT)
    golden.line("directory llava_saved")
    golden_rule.fill(whole, torch.bfloat16)
    record(golden, whole.model.vision_tower, processor_for((40, 40)), [(40, 40)])
    save("llava_saved", whole.bfloat16(), processor_for((40, 40)))
    golden.write(HERE / "llava_saved.golden")

    config = Dinov2WithRegistersConfig(**config_of("dinov2_with_registers", 48, 2, 2, 8, 40), num_labels=3, attn_implementation="eager")
    whole = Dinov2WithRegistersForImageClassification(config).float().eval()
    golden = Golden(ABOUT)
    golden.line("directory dinov2_saved")
    golden_rule.fill(whole, torch.float16)
    record(golden, whole.dinov2_with_registers, processor_for((56, 56)), [(56, 56)])
    save("dinov2_saved", whole.half(), processor_for((56, 56)))
    golden.write(HERE / "dinov2_saved.golden")


def main():
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for case in CASES:
        if len(sys.argv) < 2 or case[0].startswith(tuple(sys.argv[1:])):
            make_rule_case(*case)
    for case in QWEN_CASES:
        if len(sys.argv) < 2 or case[0].startswith(tuple(sys.argv[1:])):
            make_qwen_case(*case)
    for case in NAFLEX_CASES:
        if len(sys.argv) < 2 or case[0].startswith(tuple(sys.argv[1:])):
            make_naflex_case(*case)
    if len(sys.argv) < 2 or "whole" in sys.argv[1:]:
        make_whole_cases()


if __name__ == "__main__":
    main()

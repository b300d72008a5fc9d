"""Writes tests/golden/siglip_*: small SigLIP models and transformers' answers in fp32.

    python tests/make_golden_siglip.py        with torch 2.11, transformers 5.17, Pillow, numpy

Most models are made by the rule of golden_rule.py on both sides;
three are directories as save_pretrained writes them, one is the default model of examples/model.
"""
import json
import pathlib
import shutil

import torch
from PIL import Image
from transformers import SiglipConfig, SiglipModel, SiglipTextConfig, SiglipVisionConfig, SiglipVisionModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

import golden_rule
from golden_rule import Golden

HERE = pathlib.Path(__file__).resolve().parent / "golden"
ALL = ("pooled", "tokens", "layers")


def vision_config(hidden, heads, intermediate, layers, patch, image, **more):
    return dict(model_type="siglip_vision_model", hidden_size=hidden, num_attention_heads=heads, intermediate_size=intermediate,
                num_hidden_layers=layers, patch_size=patch, image_size=image, **more)


# name, config, dtype of the stored weights, preprocessor_config.json, pictures (width, height), outputs
CASES = [
    ("base", vision_config(128, 2, 208, 2, 16, 48), torch.float32, "fixed", [(48, 48), (48, 48), (31, 77)], ALL),
    ("epsilon", vision_config(64, 1, 96, 1, 16, 32, layer_norm_eps=0.05), torch.float32, "fixed", [(32, 32)], ALL),
    ("head_dim_72", vision_config(144, 2, 269, 2, 14, 42), torch.float32, "fixed", [(42, 42)], ALL),
    ("head_dim_96", vision_config(192, 2, 104, 1, 16, 64), torch.float32, "fixed", [(64, 64)], ALL),
    ("trailing_pixels", vision_config(72, 1, 100, 1, 14, 130), torch.float32, "fixed", [(130, 130)], ("pooled", "tokens")),
    ("one_token", vision_config(128, 2, 88, 2, 32, 32), torch.float32, "fixed", [(32, 32), (5, 3)], ALL),
    ("patch_32", vision_config(64, 1, 128, 1, 32, 96), torch.float32, "fixed", [(96, 96)], ALL),
    ("many_tokens", vision_config(64, 2, 72, 1, 8, 136), torch.float32, "fixed", [(136, 136)], ("pooled", "tokens")),
    ("no_head", vision_config(64, 1, 80, 2, 16, 48, vision_use_head=False), torch.float32, "fixed", [(48, 48)], ALL),
    ("float16", vision_config(144, 2, 269, 1, 14, 42), torch.float16, "fixed", [(42, 42)], ALL),
    ("bfloat16", vision_config(144, 2, 269, 1, 14, 42), torch.bfloat16, "fixed", [(42, 42)], ALL),
    # Keys that are missing take the class defaults: 12 layers, 12 heads, patch 16, 224 pixels, bicubic.
    ("sparse_layers", dict(model_type="siglip_vision_model", hidden_size=96, intermediate_size=40, image_size=32), torch.float32, "fixed",
     [(32, 32)], ALL),
    ("sparse_image", dict(model_type="siglip_vision_model", hidden_size=96, intermediate_size=40, num_hidden_layers=1, patch_size=32),
     torch.float32, None, [(224, 224), (100, 150)], ("pooled", "tokens")),
]


def record(golden, model, processor, pictures, wanted):
    """Runs both precisions and appends what they say."""
    exact_model = type(model)(model.config).double().eval()
    exact_model.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
    for k, (width, height) in enumerate(pictures):
        golden.line(f"picture {width} {height} 1")
        pixels = processor(Image.fromarray(golden_rule.picture(k, width, height)[0]), return_tensors="pt")["pixel_values"]
        assert pixels.dtype == torch.float32
        golden.pixels(k, pixels.reshape(-1, pixels.shape[-1]))
        answer = model(pixel_values=pixels, output_hidden_states=True)
        exact = exact_model(pixel_values=pixels.double(), output_hidden_states=True)
        if "pooled" in wanted and answer.pooler_output is not None:
            golden.output(k, "pooled", 0, answer.pooler_output, exact.pooler_output)
        if "tokens" in wanted:
            golden.output(k, "tokens", 0, answer.last_hidden_state, exact.last_hidden_state)
        if "layers" in wanted and k == 0:
            assert len(answer.hidden_states) == model.config.num_hidden_layers + 1
            for n, (value, value_exact) in enumerate(zip(answer.hidden_states, exact.hidden_states)):
                golden.output(k, "layer", n, value, value_exact)


def vision_model(config):
    return SiglipVisionModel(SiglipVisionConfig(**config, attn_implementation="eager")).float().eval()


def processor_for(model):
    size = model.config.image_size
    return SiglipImageProcessorPil(size={"height": size, "width": size}, resample=2)


def make_rule_case(name, config, dtype, preprocessor, pictures, wanted):
    golden = Golden("made by tests/make_golden_siglip.py, transformers 5.17 in fp32, eager attention, one thread")
    model = vision_model(config)
    processor = processor_for(model) if preprocessor else SiglipImageProcessorPil()
    golden.json("config", config)
    if preprocessor:
        golden.json("preprocessor", json.loads(processor.to_json_string()))
    for line in golden_rule.fill(model, dtype):
        golden.line(line)
    record(golden, model, processor, pictures, wanted)
    golden.write(HERE / f"siglip_{name}.golden")


def make_directory_case(name, whole, model, dtype, shard_size):
    """whole: what is saved; model: its vision tower, already filled with values that are exact in dtype."""
    golden = Golden("made by tests/make_golden_siglip.py, transformers 5.17 in fp32, eager attention, one thread")
    golden.line(f"directory siglip_{name}")
    processor = processor_for(model)
    record(golden, model, processor, [(29, 40), (40, 40)], ALL)
    shutil.rmtree(HERE / f"siglip_{name}", ignore_errors=True)
    whole.to(dtype).save_pretrained(HERE / f"siglip_{name}", max_shard_size=shard_size)
    processor.save_pretrained(HERE / f"siglip_{name}")
    golden.write(HERE / f"siglip_{name}.golden")


def make_default_model_case():
    """The model that the project ships, as it lies in examples/: its pooled embeddings."""
    golden = Golden("made by tests/make_golden_siglip.py, transformers 5.17 in fp32, eager attention, one thread")
    golden.line("directory ../../examples/model")
    folder = HERE.parent.parent / "examples" / "model"
    model = SiglipVisionModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    record(golden, model, SiglipImageProcessorPil.from_pretrained(folder), [(224, 224), (120, 80), (300, 300)], ("pooled",))
    golden.write(HERE / "siglip_default_model.golden")


def main():
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    HERE.mkdir(exist_ok=True)
    for case in CASES:
        make_rule_case(*case)
    make_default_model_case()

    vision = vision_config(48, 2, 56, 2, 8, 40)
    for name, dtype in (("saved_float16", torch.float16), ("saved_bfloat16", torch.bfloat16)):
        model = vision_model(vision)
        golden_rule.fill(model, dtype)
        make_directory_case(name, model, model, dtype, "50GB")

    text = SiglipTextConfig(vocab_size=20, hidden_size=48, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2,
                            max_position_embeddings=4, bos_token_id=0, eos_token_id=1, pad_token_id=1)
    config = SiglipConfig(text_config=text, vision_config=SiglipVisionConfig(**vision), attn_implementation="eager")
    whole = SiglipModel(config).float().eval()
    golden_rule.fill(whole, torch.float32)
    make_directory_case("saved_sharded", whole, whole.vision_model, torch.float32, "100KB")


if __name__ == "__main__":
    main()

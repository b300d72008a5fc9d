#!/usr/bin/env python3
"""Compares `megavit generate` with transformers on examples/talking: logits of the prompt's last place, and the ids chosen greedily.

    tests/check_talking.py [build/megavit]     needs transformers and torchvision
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples/talking"
QUESTIONS = ["", "What is in this picture?", "How many are there?", "Ünïcode 日本 <b>?"]


@torch.no_grad()
def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/megavit"
    processor = AutoProcessor.from_pretrained(FOLDER)
    model = Qwen3VLForConditionalGeneration.from_pretrained(FOLDER, dtype=torch.float32).eval()
    worst, different, count = 0.0, 0, 0
    for path in sorted((ROOT / "examples/pictures").glob("*.png")):
        for question in QUESTIONS:
            content = [{"type": "image", "image": Image.open(path).convert("RGB")}, {"type": "text", "text": question}]
            given = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=True, add_generation_prompt=True,
                                                  return_dict=True, return_tensors="pt")
            logits = model(**given).logits[0, -1].numpy()
            ids = model.generate(**given, max_new_tokens=24, do_sample=False)[0, given["input_ids"].shape[1]:].tolist()
            with tempfile.NamedTemporaryFile(suffix=".npy") as file:
                command = [program, "generate", "--model", FOLDER, "--image", path, "--format", "json", "--logits", file.name, "--resize",
                           "torchvision", "--max-tokens", "24"] + (["--prompt", question] if question else [])
                said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                mine = np.load(file.name)
            worst = max(worst, float(np.linalg.norm(mine - logits) / np.linalg.norm(logits)))
            different += said["ids"] != ids
            count += 1
    print(f"{count} prompts: logits' relative L2 at most {worst:.1e}, ids of {different} differ")
    sys.exit(worst > 1e-5 or different > 0)


if __name__ == "__main__":
    main()

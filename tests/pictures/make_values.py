"""Makes values.txt: MD5 of the float32 pixel values that transformers' processors give for some of these pictures, as load_image opens them.

Needs transformers 5.24 and Pillow 13. usage: make_values.py, in this folder"""
import hashlib
import numpy as np
from transformers import AutoImageProcessor
from transformers.image_utils import load_image
from PIL import Image, ImageOps

NAMES = ["420.jpg", "progressive.jpg", "cmyk.jpg", "o6.jpg", "rgba.png", "palette_alpha.png", "o8.png", "lossy.webp", "lossy_alpha.webp", "o6.webp", "transparent.gif", "lzw.tif"]
MODELS = ["siglip_saved_bfloat16", "qwen3_saved", "clip_saved"]

with open("values.txt", "w") as stream:
    for model in MODELS:
        for backend, library in (("pil", "pillow"), ("torchvision", "torchvision")):
            processor = AutoImageProcessor.from_pretrained(f"../golden/{model}", backend=backend)
            for name in NAMES:
                picture = Image.open(name)
                picture.load()
                values = processor(ImageOps.exif_transpose(picture), return_tensors="np")["pixel_values"]
                digest = hashlib.md5(np.ascontiguousarray(values, np.float32).tobytes()).hexdigest()
                stream.write(f"{model} {library} {name} {digest}\n")

"""What Pillow and torchvision need to resize the pictures of tools/bench_pixels.c: ms of processor time, one thread, best of 7."""
import time

import numpy as np
import PIL
import torch
import torchvision
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv

SIZES = [(4000, 3000, 224, 224), (3000, 4000, 224, 224), (2000, 6000, 224, 224), (1920, 1080, 384, 384), (640, 480, 224, 224), (100, 100, 224, 224),
         (4000, 3000, 1024, 768)]


def best_ms(function):
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best * 1e3


def main():
    torch.set_num_threads(1)
    print(f"ms of processor time, best of 7; Pillow {PIL.__version__} / torchvision {torchvision.__version__}")
    for width, height, new_width, new_height in SIZES:
        data = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        image, tensor = Image.fromarray(data), torch.from_numpy(data).permute(2, 0, 1)
        for name, number, mode in (("bilinear", 2, InterpolationMode.BILINEAR), ("bicubic", 3, InterpolationMode.BICUBIC)):
            pillow = best_ms(lambda: image.resize((new_width, new_height), number))
            torch_ms = best_ms(lambda: tv.resize(tensor, [new_height, new_width], mode, antialias=True))
            print(f"{width:4} x {height:4} -> {new_width:4} x {new_height:3}  {name:8}  {pillow:8.2f} / {torch_ms:6.2f}")


main()

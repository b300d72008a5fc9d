"""Sets build/bench_cpu beside PyTorch and transformers on the same cores, in turns.

    python tools/bench_cpu_torch.py [--model NAME] [--threads N] [--rounds N] [--repeat N] [--precision fast] [--torch-dtype bfloat16]

Random weights in float32, transformers' default attention, no gradients; PyTorch's in another type if asked for. Each round runs megavit, then PyTorch; the
best of all rounds is compared. Processor time is that of all threads; it hardly minds what else the machine does.
"""
import argparse
import re
import subprocess
import sys
import time

try:
    import torch
    import transformers
except ImportError as error:
    print(f"beside PyTorch: skipped, {error}")
    sys.exit(0)


def siglip(dtype):
    config = transformers.SiglipVisionConfig()
    model = transformers.SiglipVisionModel(config).eval().to(dtype)
    return lambda: model(pixel_values=(torch.zeros(1, 3, 224, 224) + 0.5).to(dtype)).pooler_output


def qwen(dtype):
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel
    config = Qwen3VLVisionConfig(depth=24, hidden_size=1024, intermediate_size=4096, num_heads=16, out_hidden_size=2048,
                                 deepstack_visual_indexes=[5, 11, 17])
    model = Qwen3VLVisionModel._from_config(config, attn_implementation="sdpa", dtype=dtype).eval()
    pixels = (torch.rand(784, 1536) * 2 - 1).to(dtype)
    return lambda: model(pixels, grid_thw=torch.tensor([[1, 28, 28]]))


MODELS = {"siglip2-base-patch16-224": siglip, "qwen3-vl-2b-448": qwen}


def run_megavit(binary, name, threads, repeat, precision):
    """The best (milliseconds on the wall, of processor time) of one run of bench_cpu."""
    command = [binary, "--model", name, "--threads", str(threads), "--repeat", str(repeat), "--precision", precision]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"best ([0-9.]+) ms", text)[1]), float(re.search(r"processor time ([0-9.]+) ms", text)[1])


def run_torch(call, threads, repeat):
    torch.set_num_threads(threads)
    best = [float("inf")] * 2
    with torch.no_grad():
        call()
        for _ in range(repeat):
            wall, processor = time.perf_counter(), time.process_time()
            call()
            best = [min(best[0], time.perf_counter() - wall), min(best[1], time.process_time() - processor)]
    return best[0] * 1e3, best[1] * 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="build/bench_cpu")
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--precision", choices=["auto", "fast"], default="auto")
    parser.add_argument("--torch-dtype", choices=["float32", "bfloat16"], default="float32")
    options = parser.parse_args()
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}")
    for name in [options.model] if options.model else MODELS:
        call = MODELS[name](getattr(torch, options.torch_dtype))
        for threads in options.threads or [1, 2]:
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(run_megavit(options.binary, name, threads, options.repeat, options.precision))
                theirs.append(run_torch(call, threads, options.repeat))
            a, b = ([min(column) for column in zip(*results)] for results in (ours, theirs))
            print(f"{name} F32, {threads} thread(s): megavit {options.precision} {a[0]:.1f} ms, PyTorch in {options.torch_dtype} {b[0]:.1f} ms, ratio {a[0] / b[0]:.2f}; "
                  f"processor time {a[1]:.1f} ms, {b[1]:.1f} ms, ratio {a[1] / b[1]:.2f}", flush=True)


if __name__ == "__main__":
    main()

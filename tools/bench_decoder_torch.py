"""Sets build/bench_decoder beside PyTorch on the same cores, in turns: a model of Qwen3-0.6B's shape, random weights in bf16.

    python tools/bench_decoder_torch.py [--directory DIR] [--prompt N] [--steps N] [--threads N] [--rounds N] [--precision fast] [--dtypes bf16,fp32]

PyTorch is as lean as it can be written: plain functions, one product for q, k and v and one for gate and up, scaled_dot_product_attention
over a cache that is there from the start, no module and no generate() around it. The best of all rounds is compared. Needs torch alone.
"""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import time

import torch
import torch.nn.functional as F

HIDDEN, HEADS, KEY_HEADS, DIM, INNER, LAYERS, VOCABULARY, THETA = 1024, 16, 8, 128, 3072, 28, 151936, 1e6
CONFIG = dict(model_type="qwen3", hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, head_dim=DIM,
              intermediate_size=INNER, num_hidden_layers=LAYERS, vocab_size=VOCABULARY, rope_theta=THETA, tie_word_embeddings=True,
              max_position_embeddings=40960)


def make(directory):
    """config.json and model.safetensors."""
    generator = torch.Generator().manual_seed(1)
    header, tensors, at = {}, [], 0

    def add(name, *shape):
        nonlocal at
        scale = 0.5 if "embed" in name else 1.2 / shape[-1] ** 0.5
        values = torch.randn(shape, generator=generator) * (scale if len(shape) > 1 else 0.2) + (len(shape) == 1)
        tensors.append(values.to(torch.bfloat16))
        size = tensors[-1].numel() * 2
        header[name] = dict(dtype="BF16", shape=shape, data_offsets=[at, at + size])
        at += size

    add("model.embed_tokens.weight", VOCABULARY, HIDDEN)
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        add(layer + "input_layernorm.weight", HIDDEN)
        add(layer + "post_attention_layernorm.weight", HIDDEN)
        for name, rows in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS)):
            add(layer + f"self_attn.{name}_proj.weight", rows * DIM, HIDDEN)
        add(layer + "self_attn.o_proj.weight", HIDDEN, HEADS * DIM)
        add(layer + "self_attn.q_norm.weight", DIM)
        add(layer + "self_attn.k_norm.weight", DIM)
        add(layer + "mlp.gate_proj.weight", INNER, HIDDEN)
        add(layer + "mlp.up_proj.weight", INNER, HIDDEN)
        add(layer + "mlp.down_proj.weight", HIDDEN, INNER)
    add("model.norm.weight", HIDDEN)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG))
    text = json.dumps(header).encode()
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            file.write(tensor.view(torch.int16).numpy().tobytes())


class Model:
    def __init__(self, directory, dtype, capacity):
        data = (directory / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        tensors = {}
        for name, entry in json.loads(data[8:8 + size]).items():
            begin, end = entry["data_offsets"]
            raw = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=torch.bfloat16)
            tensors[name] = raw.reshape(entry["shape"]).to(dtype)
        self.embedding, self.norm = tensors["model.embed_tokens.weight"], tensors["model.norm.weight"]
        self.layers = []
        for i in range(LAYERS):
            get = lambda name, at=f"model.layers.{i}.": tensors[at + name + ".weight"]
            self.layers.append(dict(
                norm1=get("input_layernorm"), norm2=get("post_attention_layernorm"), q_norm=get("self_attn.q_norm"),
                k_norm=get("self_attn.k_norm"), out=get("self_attn.o_proj"), down=get("mlp.down_proj"),
                qkv=torch.cat([get(f"self_attn.{name}_proj") for name in "qkv"]),
                gate_up=torch.cat([get("mlp.gate_proj"), get("mlp.up_proj")]),
                keys=torch.zeros(1, KEY_HEADS, capacity, DIM, dtype=dtype), values=torch.zeros(1, KEY_HEADS, capacity, DIM, dtype=dtype)))
        angles = torch.arange(capacity)[:, None] * (1.0 / THETA ** (torch.arange(0, DIM, 2).float() / DIM))
        self.cos, self.sin = torch.cat([angles.cos()] * 2, 1).to(dtype), torch.cat([angles.sin()] * 2, 1).to(dtype)
        self.position = 0

    def rotate(self, x, count):
        cos, sin = self.cos[self.position:self.position + count], self.sin[self.position:self.position + count]
        return x * cos + torch.cat([-x[..., DIM // 2:], x[..., :DIM // 2]], -1) * sin

    def __call__(self, ids):
        """The logits behind the last id."""
        count = len(ids)
        end = self.position + count
        x = F.embedding(ids, self.embedding)
        for w in self.layers:
            qkv = F.linear(F.rms_norm(x, (HIDDEN,), w["norm1"], 1e-6), w["qkv"]).view(count, -1, DIM).transpose(0, 1)
            q = self.rotate(F.rms_norm(qkv[:HEADS], (DIM,), w["q_norm"], 1e-6), count)
            w["keys"][0, :, self.position:end] = self.rotate(F.rms_norm(qkv[HEADS:HEADS + KEY_HEADS], (DIM,), w["k_norm"], 1e-6), count)
            w["values"][0, :, self.position:end] = qkv[HEADS + KEY_HEADS:]
            a = F.scaled_dot_product_attention(q[None], w["keys"][:, :, :end], w["values"][:, :, :end], is_causal=count > 1,
                                               enable_gqa=True)
            x = x + F.linear(a[0].transpose(0, 1).reshape(count, -1), w["out"])
            gate, up = F.linear(F.rms_norm(x, (HIDDEN,), w["norm2"], 1e-6), w["gate_up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, w["down"])
        self.position = end
        return F.linear(F.rms_norm(x[-1], (HIDDEN,), self.norm, 1e-6), self.embedding)


def run_torch(model, ids, steps):
    """Milliseconds of the prompt, of the best step, and the prompt's logits."""
    model.position = 0
    begin = time.perf_counter()
    first = logits = model(ids)
    prompt, best = time.perf_counter() - begin, float("inf")
    for _ in range(steps):
        begin = time.perf_counter()
        logits = model(logits.argmax()[None])
        best = min(best, time.perf_counter() - begin)
    return prompt * 1e3, best * 1e3, first.float()


def run_megavit(binary, directory, prompt, steps, threads, precision, logits):
    command = [binary, directory, str(prompt), str(steps), str(threads), precision, logits]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"prompt ([0-9.]+)", text)[1]), float(re.search(r"step best ([0-9.]+)", text)[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="build/bench_decoder")
    parser.add_argument("--directory", type=pathlib.Path, default=pathlib.Path("build/qwen3-0.6b-random"))
    parser.add_argument("--prompt", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["auto", "fast"], default="auto")
    parser.add_argument("--dtypes", default="bf16,fp32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    if not (options.directory / "model.safetensors").exists():
        make(options.directory)
    dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32}
    ids = torch.tensor([i * 2654435761 % 2**32 % VOCABULARY for i in range(options.prompt)])
    best, said = {}, {}
    for name in options.dtypes.split(","):
        model = Model(options.directory, dtypes[name], options.prompt + options.steps)
        run_torch(model, ids[:16], 2)
        for _ in range(options.rounds):
            logits = options.directory / "logits"
            mine = run_megavit(options.binary, options.directory, options.prompt, options.steps, options.threads, options.precision, logits)
            said["megavit"] = torch.frombuffer(bytearray(logits.read_bytes()), dtype=torch.float32)
            *theirs, said[name] = run_torch(model, ids, options.steps)
            for who, figures in (("megavit", mine), (name, theirs)):
                best[who] = [min(a, b) for a, b in zip(best.get(who, figures), figures)]
        del model
    print(f"{options.threads} threads, a prompt of {options.prompt} ids, {options.steps} steps behind it, best of {options.rounds} rounds")
    for who, (prompt, step) in best.items():
        off = (said[who] - said["megavit"]).norm() / said["megavit"].norm()
        print(f"{who if who == 'megavit' else 'PyTorch ' + who:14} prompt {prompt:8.1f} ms   step {step:7.2f} ms   logits off {off:.1e}")


if __name__ == "__main__":
    main()

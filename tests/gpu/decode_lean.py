"""The peer of tests/gpu/test_decode.c: Qwen3's decoder written for speed in PyTorch, compiled, in CUDA graphs; random weights.
usage: decode_lean.py SHAPE [SESSIONS:POSITION...]"""
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_grad_enabled(False)
SHAPES = {"0.6b": (28, 1024, 3072, 16, 8), "1.7b": (28, 2048, 6144, 16, 8), "4b": (36, 2560, 9728, 32, 8), "8b": (36, 4096, 12288, 32, 8)}


def rotate(x, c, s):
    low, high = x.chunk(2, -1)
    return x * c + torch.cat((-high, low), -1) * s


class Decoder(nn.Module):
    def __init__(self, shape, batch, capacity):
        super().__init__()
        self.layers, self.d, self.ff, self.h, self.kh = SHAPES[shape]
        self.batch = batch
        w = lambda n, k: nn.Buffer(torch.empty(n, k, device="cuda", dtype=torch.bfloat16).normal_(std=k ** -.5))
        self.emb = w(151936, self.d)
        for i in range(self.layers):
            for name, n, k in (("qkv", (self.h + 2 * self.kh) * 128, self.d), ("o", self.d, self.h * 128), ("gu", 2 * self.ff, self.d), ("dn", self.d, self.ff)):
                setattr(self, f"{name}{i}", w(n, k))
            for name in "kv":
                setattr(self, f"{name}{i}", nn.Buffer(torch.zeros(batch, self.kh, capacity, 128, device="cuda", dtype=torch.bfloat16)))
        self.g, self.gh = (nn.Buffer(torch.ones(n, device="cuda", dtype=torch.bfloat16)) for n in (self.d, 128))
        self.ar = nn.Buffer(torch.arange(capacity, device="cuda"))
        t = torch.arange(capacity, device="cuda").float()[:, None] * 1e6 ** (-torch.arange(0, 128, 2, device="cuda").float() / 128)
        self.c, self.s = (nn.Buffer(torch.cat((f(t), f(t)), 1).bfloat16()) for f in (torch.cos, torch.sin))

    def forward(self, tok, pos):
        b, x, c, s = self.batch, F.embedding(tok, self.emb), self.c[pos], self.s[pos]
        mask = (self.ar <= pos)[None, None, None]
        for i in range(self.layers):
            h = F.rms_norm(x, (self.d,), self.g, 1e-6)
            q, k, v = F.linear(h, getattr(self, f"qkv{i}")).split((self.h * 128, self.kh * 128, self.kh * 128), -1)
            q = rotate(F.rms_norm(q.view(b, 1, self.h, 128), (128,), self.gh, 1e-6).transpose(1, 2), c, s)
            k = rotate(F.rms_norm(k.view(b, 1, self.kh, 128), (128,), self.gh, 1e-6).transpose(1, 2), c, s)
            keys, values = getattr(self, f"k{i}"), getattr(self, f"v{i}")
            keys[:, :, pos] = k
            values[:, :, pos] = v.view(b, 1, self.kh, 128).transpose(1, 2)
            a = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True).transpose(1, 2).reshape(b, 1, self.h * 128)
            x = x + F.linear(a, getattr(self, f"o{i}"))
            g, u = F.linear(F.rms_norm(x, (self.d,), self.g, 1e-6), getattr(self, f"gu{i}")).chunk(2, -1)
            x = x + F.linear(F.silu(g) * u, getattr(self, f"dn{i}"))
        return F.linear(F.rms_norm(x, (self.d,), self.g, 1e-6), self.emb)[:, -1].argmax(-1, keepdim=True)


def measure(shape, batch, capacity, positions):
    model = torch.compile(Decoder(shape, batch, capacity), mode="reduce-overhead", fullgraph=True)
    tok = torch.ones(batch, 1, dtype=torch.long, device="cuda")
    for position in positions:
        pos = torch.tensor([position], device="cuda")
        for _ in range(5):
            model(tok, pos)
        torch.cuda.synchronize()
        times = []
        for _ in range(100):
            began = time.perf_counter()
            model(tok, pos)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        t = statistics.median(times)
        print(f"lean {shape}, {batch} sessions, position {position} (cache of {capacity}): {t * 1e6:.0f} us, {batch / t:.0f} ids a second", flush=True)


for what in sys.argv[2:]:
    batch, positions = what.split(":")
    positions = [int(p) for p in positions.split(",")]
    try:
        torch._dynamo.reset()
        measure(sys.argv[1], int(batch), 512 if max(positions) < 512 else 1024 if max(positions) < 1024 else 4096, positions)
    except Exception as error:
        print("lean", sys.argv[1], what, "failed", repr(error)[:300], flush=True)

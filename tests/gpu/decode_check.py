"""Logits of `test_decode dump` against PyTorch in float32 and in bfloat16, which rounds as transformers' Qwen3 does: KL and agreement of the
largest. usage: decode_check.py DIRECTORY FILE PROMPTS"""
import json
import struct
import sys

import torch
import torch.nn.functional as F

torch.set_grad_enabled(False)
torch.backends.cuda.matmul.allow_tf32 = False


def read(path):
    with open(path, "rb") as f:
        bytes_ = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(bytes_))
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.uint8)
    out = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        out[name] = data[begin:end].view(torch.bfloat16).view(t["shape"]).cuda()
    return out


def norm(x, gamma, epsilon):
    y = x.float()
    y = (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype)
    return gamma.to(x.dtype) * y


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def forward(w, c, ids, dtype):
    n, d, epsilon = len(ids), 128, c.get("rms_norm_eps", 1e-6)
    heads, key_heads = c["num_attention_heads"], c["num_key_value_heads"]
    angles = torch.arange(n).double()[:, None] * c.get("rope_theta", 10000.0) ** (-torch.arange(0, d, 2).double() / d)
    angles = torch.cat((angles, angles), -1)
    cos, sin = angles.cos().to("cuda", dtype), angles.sin().to("cuda", dtype)
    x = w["model.embed_tokens.weight"][ids].to(dtype)
    linear = lambda x, name: F.linear(x, w[name + ".weight"].to(dtype))
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"], epsilon)
        q = norm(linear(h, p + "self_attn.q_proj").view(n, heads, d), w[p + "self_attn.q_norm.weight"], epsilon).transpose(0, 1)
        k = norm(linear(h, p + "self_attn.k_proj").view(n, key_heads, d), w[p + "self_attn.k_norm.weight"], epsilon).transpose(0, 1)
        v = linear(h, p + "self_attn.v_proj").view(n, key_heads, d).transpose(0, 1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (t.repeat_interleave(heads // key_heads, 0) for t in (k, v))
        a = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        x = x + linear(a.transpose(0, 1).reshape(n, heads * d), p + "self_attn.o_proj")
        h = norm(x, w[p + "post_attention_layernorm.weight"], epsilon)
        x = x + linear(F.silu(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
    x = norm(x[-1:], w["model.norm.weight"], epsilon)
    head = w["model.embed_tokens.weight"] if c.get("tie_word_embeddings") else w["lm_head.weight"]
    return F.linear(x, head.to(dtype)).float()[0]


def main():
    directory, file, prompts = sys.argv[1], sys.argv[2], int(sys.argv[3])
    c = json.load(open(directory + "/config.json"))
    w = read(directory + "/model.safetensors")
    vocabulary = c["vocab_size"]
    ours = torch.from_file(file, size=prompts * vocabulary, dtype=torch.float32).view(prompts, vocabulary)
    kl, agree = [[], []], [0, 0]
    for i in range(prompts):
        ids = torch.tensor([(k * 2654435761 + i * 40503) % 2**32 % vocabulary for k in range(8 + i * 5 % 993)]).cuda()
        reference = forward(w, c, ids, torch.float32)
        log = reference.log_softmax(-1)
        for which, logits in enumerate((ours[i].cuda(), forward(w, c, ids, torch.bfloat16))):
            kl[which].append(float((log.exp() * (log - logits.log_softmax(-1))).sum()))
            agree[which] += int(logits.argmax() == reference.argmax())
        if i % 50 == 49 or i + 1 == prompts:
            m = [torch.tensor(k) for k in kl]
            print(f"{i + 1} prompts: KL to float32 mean {m[0].mean():.3e} (bf16 of PyTorch {m[1].mean():.3e}), largest {m[0].max():.3e} "
                  f"({m[1].max():.3e}); the same largest logit {agree[0]} ({agree[1]}) of {i + 1}", flush=True)
    print("ok" if sum(kl[0]) <= sum(kl[1]) else "not ok", "KL is at most that of PyTorch's bf16")


main()

"""Qwen3-VL in plain torch, for batches of pictures of one size: what tools/make_talking_model.py trains.

The names of modules and tensors, and the formulas, are those of transformers' Qwen3VLForConditionalGeneration
(`make_talking_model.py --check` compares the two); that takes pictures of any sizes one after another, which is slow for
hundreds of small ones.
"""
import torch
import torch.nn.functional as F
from torch import nn


class VisionAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cos, sin):
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return self.proj(x.transpose(1, 2).reshape(b, n, width))


class VisionMLP(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.linear_fc1, self.linear_fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.linear_fc2(F.gelu(self.linear_fc1(x), approximate="tanh"))


class VisionBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn, self.mlp = VisionAttention(width, config["num_heads"]), VisionMLP(width, config["intermediate_size"])

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    def __init__(self, config, after_shuffle):
        super().__init__()
        self.after_shuffle, self.four = after_shuffle, config["hidden_size"] * config["spatial_merge_size"] ** 2
        self.norm = nn.LayerNorm(self.four if after_shuffle else config["hidden_size"], eps=1e-6)
        self.linear_fc1, self.linear_fc2 = nn.Linear(self.four, self.four), nn.Linear(self.four, config["out_hidden_size"])

    def forward(self, x):
        b = len(x)
        x = self.norm(x.reshape(b, -1, self.four)) if self.after_shuffle else self.norm(x).reshape(b, -1, self.four)
        return self.linear_fc2(F.gelu(self.linear_fc1(x)))


class PatchEmbed(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = (config["temporal_patch_size"], config["patch_size"], config["patch_size"])
        self.proj = nn.Conv3d(config["in_channels"], config["hidden_size"], size, size)

    def forward(self, patches):
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class Visual(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.pos_embed = nn.Embedding(config["num_position_embeddings"], config["hidden_size"])
        self.blocks = nn.ModuleList([VisionBlock(config) for _ in range(config["depth"])])
        self.merger = Merger(config, False)
        self.deepstack_merger_list = nn.ModuleList([Merger(config, True) for _ in config["deepstack_visual_indexes"]])

    def blocked(self, grid):
        """[h, w, ...] -> [h * w, ...] in the order of patches: merged blocks, row by row."""
        m = self.config["spatial_merge_size"]
        h, w = grid.shape[:2]
        return grid.reshape(h // m, m, w // m, m, *grid.shape[2:]).transpose(1, 2).reshape(h * w, *grid.shape[2:])

    def positions(self, h, w):
        side = int(self.config["num_position_embeddings"] ** 0.5)
        table = self.pos_embed.weight.view(1, side, side, -1).permute(0, 3, 1, 2)
        return self.blocked(F.interpolate(table.float(), (h, w), mode="bilinear", align_corners=True)[0].permute(1, 2, 0))

    def rotation(self, h, w, device):
        quarter = self.config["hidden_size"] // self.config["num_heads"] // 2
        frequency = 1.0 / 10000.0 ** (torch.arange(0, quarter, 2, device=device, dtype=torch.float) / quarter)
        at = torch.stack(torch.meshgrid(torch.arange(h, device=device), torch.arange(w, device=device), indexing="ij"), -1)
        angle = (self.blocked(at)[..., None] * frequency).flatten(1)
        return torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()

    def forward(self, patches, h, w):
        """patches [b, h * w, numbers] -> merged tokens [b, h * w / 4, out], and those of DeepStack."""
        x = self.patch_embed(patches) + self.positions(h, w)
        cos, sin = self.rotation(h, w, patches.device)
        deep = []
        for i, block in enumerate(self.blocks):
            x = block(x, cos, sin)
            if i in self.config["deepstack_visual_indexes"]:
                deep.append(self.deepstack_merger_list[self.config["deepstack_visual_indexes"].index(i)](x))
        return self.merger(x), deep


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return (x.float() * cos + turned.float() * sin).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        f = x.float()
        return self.weight * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads, self.kv, d = (config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
        linear = lambda a, b: nn.Linear(a, b, bias=False)
        self.q_proj, self.o_proj = linear(width, self.heads * d), linear(self.heads * d, width)
        self.k_proj, self.v_proj = linear(width, self.kv * d), linear(width, self.kv * d)
        self.q_norm, self.k_norm = RMSNorm(d, config["rms_norm_eps"]), RMSNorm(d, config["rms_norm_eps"])

    def forward(self, x, cos, sin):
        b, n, _ = x.shape
        q = rotate(self.q_norm(self.q_proj(x).view(b, n, self.heads, -1)).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(b, n, self.kv, -1)).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(b, n, self.kv, -1).transpose(1, 2)
        k, v = (t.repeat_interleave(self.heads // self.kv, 1).to(q.dtype) for t in (k, v))
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(x.transpose(1, 2).reshape(b, n, -1))


class MLP(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, eps = config["hidden_size"], config["rms_norm_eps"]
        self.self_attn, self.mlp = Attention(config), MLP(width, config["intermediate_size"])
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(width, eps), RMSNorm(width, eps)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class LanguageModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList([Layer(config) for _ in range(config["num_hidden_layers"])])
        self.norm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])

    def rotation(self, positions):
        """positions [b, 3, n] of time, row, column -> [b, 1, n, head_dim]: the pairs of a head take turns between the three."""
        d, sections = self.config["head_dim"], self.config["rope_scaling"]["mrope_section"]
        frequency = 1.0 / self.config["rope_theta"] ** (torch.arange(0, d, 2, device=positions.device, dtype=torch.float) / d)
        which = torch.zeros(d // 2, dtype=torch.long, device=positions.device)
        for axis in (1, 2):
            which[axis:3 * sections[axis]:3] = axis
        angle = positions.float()[:, which].transpose(1, 2) * frequency
        angle = torch.cat([angle, angle], -1)[:, None]
        return angle.cos(), angle.sin()

    def forward(self, ids, positions, is_picture, merged, deep):
        """is_picture [b, n] marks the placeholders; merged and each of deep [their number, width]."""
        x = self.embed_tokens(ids)
        if is_picture is not None:
            x = x.masked_scatter(is_picture[..., None], merged.to(x.dtype))
        cos, sin = self.rotation(positions)
        for i, layer in enumerate(self.layers):
            x = layer(x, cos, sin)
            if is_picture is not None and i < len(deep):
                x = x + torch.zeros_like(x).masked_scatter(is_picture[..., None], deep[i].to(x.dtype))
        return self.norm(x)


class Body(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.visual, self.language_model = Visual(config["vision_config"]), LanguageModel(config["text_config"])


class Model(nn.Module):
    """The head is tied to the embedding."""

    def __init__(self, config):
        super().__init__()
        self.config, self.model = config, Body(config)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Conv3d, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
                if getattr(module, "bias", None) is not None:
                    nn.init.zeros_(module.bias)

    def patches(self, pictures):
        """[b, 3, height, width] -> [b, patches, 3 * 2 * 16 * 16], each picture twice in time."""
        c = self.config["vision_config"]
        p, t = c["patch_size"], c["temporal_patch_size"]
        b, channels, height, width = pictures.shape
        x = pictures.view(b, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.model.visual.blocked(x.permute(1, 2, 0, 3, 4, 5)).transpose(0, 1)
        return x.unsqueeze(3).expand(-1, -1, -1, t, -1, -1).flatten(2)

    def see(self, pictures):
        """Merged tokens [b, n, width] and DeepStack's."""
        p = self.config["vision_config"]["patch_size"]
        return self.model.visual(self.patches(pictures), pictures.shape[2] // p, pictures.shape[3] // p)

    def forward(self, ids, positions, seen=None):
        """Hidden states [b, n, width] behind the last norm. seen: what see() gave, in the order of the placeholders."""
        if seen is None:
            return self.model.language_model(ids, positions, None, None, [])
        merged, deep = seen
        is_picture = ids == self.config["image_token_id"]
        return self.model.language_model(ids, positions, is_picture, merged.flatten(0, 1), [d.flatten(0, 1) for d in deep])

    def logits(self, hidden):
        return F.linear(hidden, self.model.language_model.embed_tokens.weight)

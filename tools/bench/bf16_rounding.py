"""Which rounding of the Hopper kernel costs what, for SigLIP towers whose checkpoint is bf16: the kernel's arithmetic in fp32 with its
roundings put in by hand, each of which can be left out, beside transformers' own bf16. Needs torch and transformers; a GPU helps.
usage: bf16_rounding.py [SHAPE...] [--models N] [--pictures N] [--default-init] [--bf16-head]
Prints the relative L2 error of pooled rows to fp32: root mean square and largest."""
import argparse, copy, math
import torch
import torch.nn.functional as F
from transformers import SiglipVisionConfig, SiglipVisionModel

torch.set_grad_enabled(False)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.set_default_device('cuda' if torch.cuda.is_available() else 'cpu')
SHAPES = {'base-224': {}, 'base-512': dict(image_size=512),
          'large-256': dict(image_size=256, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24)}
# What is left out of the roundings: `values` etc. are products behind a norm with weights as stored, on rows times gamma, rounded;
# `patches` has the pixels' scale behind the product; `sums` keeps the pooling head's weighted rows, `head` all of it in fp32.
VARIANTS = [(), ('patches',), ('values',), ('queries', 'keys'), ('fc1',), ('sums',), ('head',), ('values', 'patches'),
            ('values', 'patches', 'sums'), ('queries', 'keys', 'values', 'fc1')]
head_type = torch.float16 # of the pooling head's rows and weights


def bf16(x): return x.to(torch.bfloat16).float()
def head16(x): return x.to(head_type).float()


def make_model(seed, config, default_init):
    torch.manual_seed(seed)
    model = SiglipVisionModel(SiglipVisionConfig(**config)).eval().to(torch.get_default_device())
    for name, p in model.named_parameters():
        if default_init: break
        if 'norm' in name and name.endswith('weight'): p.copy_(1 + 0.2 * torch.randn_like(p))
        elif name.endswith('bias'): p.copy_(0.1 * torch.randn_like(p))
        elif p.dim() >= 2 and 'position' not in name: p.copy_(torch.randn_like(p) * p[0].numel() ** -0.5)
    return model.to(torch.bfloat16).float()


def make_pictures(count, side, seed):
    generator = torch.Generator(device=torch.get_default_device()).manual_seed(seed)
    scales = (torch.randn(count, 3, s, s, generator=generator) for s in (2, 7, 28, side))
    return (sum(F.interpolate(x, side, mode='bilinear') for x in scales) * 40 + 127.5).clamp(0, 255).to(torch.uint8)


class Kernel:
    """The kernel's arithmetic. exact: words of VARIANTS."""
    def __init__(self, model, exact):
        self.top, self.config, self.exact = getattr(model, 'vision_model', model), model.config, exact

    def product(self, x, linear, norm, name, scale=1.0, rounded=bf16):
        """norm, then the product, as the kernel does it: gamma in the centred weights, 1/deviation behind the sum."""
        weight, bias = linear.weight, linear.bias
        mean = x.mean(-1, keepdim=True)
        inverse = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + self.config.layer_norm_eps)
        shift = weight @ norm.bias + bias
        if name in self.exact:
            return ((rounded(x * norm.weight) @ weight.T - mean * (weight @ norm.weight)) * inverse + shift) * scale
        folded = weight * norm.weight * scale
        folded = rounded(folded - folded.mean(1, keepdim=True))
        return (x @ folded.T - mean * folded.sum(1)) * inverse + shift * scale

    def embed(self, pixels):
        patch, scale = self.config.patch_size, 1 / 127.5
        rows = F.unfold(pixels.float() - 128, patch, stride=patch).transpose(1, 2)
        weight = self.top.embeddings.patch_embedding.weight.flatten(1)
        weight = weight * scale if 'patches' in self.exact else bf16(weight * scale)
        bias = self.top.embeddings.patch_embedding.bias + weight.sum(1) * 0.5
        return bf16(rows @ weight.T + bias + self.top.embeddings.position_embedding.weight)

    def layer(self, x, layer):
        heads, attention = self.config.num_attention_heads, layer.self_attn
        def split(y): return bf16(y).unflatten(-1, (heads, -1)).transpose(1, 2)
        query_scale = math.log2(math.e) / math.sqrt(x.shape[-1] // heads)
        q = split(self.product(x, attention.q_proj, layer.layer_norm1, 'queries', query_scale))
        k = split(self.product(x, attention.k_proj, layer.layer_norm1, 'keys'))
        v = split(self.product(x, attention.v_proj, layer.layer_norm1, 'values'))
        scores = q @ k.transpose(-1, -2)
        weights = torch.exp2(scores - scores.max(-1, keepdim=True).values)
        attended = (bf16(weights) @ v) / weights.sum(-1, keepdim=True)
        x = bf16(x + attention.out_proj(bf16(attended.transpose(1, 2).flatten(2))))
        return bf16(x + layer.mlp.fc2(bf16(F.gelu(self.product(x, layer.mlp.fc1, layer.layer_norm2, 'fc1'), approximate='tanh'))))

    def pool(self, x):
        head, norm, width, heads = self.top.head, self.top.post_layernorm, x.shape[-1], self.config.num_attention_heads
        rows = norm(x)
        if 'head' in self.exact: return head(rows)
        weight, bias = head.attention.in_proj_weight, head.attention.in_proj_bias
        query = (weight[:width] @ head.probe[0, 0] + bias[:width]).view(heads, -1)
        scoring = torch.einsum('hj,hjk->hk', query, weight[width:2 * width].view(heads, -1, width)) * norm.weight
        scoring = bf16((scoring - scoring.mean(1, keepdim=True)) * math.log2(math.e) / math.sqrt(width // heads))
        mean = x.mean(-1, keepdim=True)
        inverse = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + self.config.layer_norm_eps)
        shares = torch.softmax((x - mean) @ scoring.T * inverse * math.log(2), 1)
        sums = torch.einsum('bnh,bnk->bhk', shares, rows)
        if 'sums' not in self.exact: sums = head16(sums)
        values = torch.einsum('bhk,hjk->bhj', sums, weight[2 * width:].view(heads, -1, width)).flatten(1) + bias[2 * width:]
        out = head16(head.attention.out_proj(head16(values)))
        mlp = F.gelu(self.product(out, head.mlp.fc1, head.layernorm, 'head fc1', rounded=head16), approximate='tanh')
        return out + head.mlp.fc2(head16(mlp))

    def __call__(self, pixels):
        x = self.embed(pixels)
        for layer in self.top.encoder.layers: x = self.layer(x, layer)
        return self.pool(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('shapes', nargs='*', default=list(SHAPES))
    parser.add_argument('--models', type=int, default=5)
    parser.add_argument('--pictures', type=int, default=40, help='for each model')
    parser.add_argument('--default-init', action='store_true', help="transformers' initial weights, whose gammas are 1")
    parser.add_argument('--bf16-head', action='store_true', help='a pooling head that rounds to bf16 instead of f16')
    options = parser.parse_args()
    global head_type
    if options.bf16_head: head_type = torch.bfloat16
    for shape in options.shapes:
        errors = {}
        for seed in range(options.models):
            model = make_model(seed, SHAPES[shape], options.default_init)
            half = copy.deepcopy(model).to(torch.bfloat16)
            for first in range(0, options.pictures, 8):
                pixels = make_pictures(min(8, options.pictures - first), model.config.image_size, 1000 * seed + first)
                values = pixels.float() / 127.5 - 1
                expected = model(pixel_values=values).pooler_output
                def note(name, rows): errors.setdefault(name, []).append((rows.float() - expected).norm(dim=1) / expected.norm(dim=1))
                note("transformers' bf16", half(pixel_values=values.to(torch.bfloat16)).pooler_output)
                for exact in VARIANTS: note('the kernel' + (', but for ' + ', '.join(exact) if exact else ''), Kernel(model, exact)(pixels))
        for name, parts in errors.items():
            all_of_them = torch.cat(parts)
            print(f'{shape:10s} {name:50s} RMS {all_of_them.pow(2).mean().sqrt():.2e}  largest {all_of_them.max():.2e}  {len(all_of_them)} pictures', flush=True)


main()

"""Writes a SigLIP2-base/16 vision tower for 224 px, of random weights in fp32, with nothing but numpy: a model for turns.c without torch.
usage: make_model.py DIRECTORY [--layers N]
The weights are spread as those of make_model in tests/gpu/check.py, so that the activations are as large."""
import argparse, json, math, os
import numpy

SIDE, PATCH, HIDDEN, MLP, HEADS = 224, 16, 768, 3072, 12


def linear(name, columns, inner): return [(name + '.weight', (columns, inner)), (name + '.bias', (columns,))]


def norm(name): return [(name + '.weight', (HIDDEN,)), (name + '.bias', (HIDDEN,))]


def mlp(name): return linear(name + '.fc1', MLP, HIDDEN) + linear(name + '.fc2', HIDDEN, MLP)


def layer(name):
    projections = [linear(f'{name}.self_attn.{part}_proj', HIDDEN, HIDDEN) for part in ('q', 'k', 'v', 'out')]
    return norm(name + '.layer_norm1') + sum(projections, []) + norm(name + '.layer_norm2') + mlp(name + '.mlp')


def tower(layers):
    """Names and shapes of all tensors."""
    embeddings = [('embeddings.patch_embedding.weight', (HIDDEN, 3, PATCH, PATCH)), ('embeddings.patch_embedding.bias', (HIDDEN,)),
                  ('embeddings.position_embedding.weight', ((SIDE // PATCH) ** 2, HIDDEN))]
    head = [('head.probe', (1, 1, HIDDEN)),
            ('head.attention.in_proj_weight', (3 * HIDDEN, HIDDEN)), ('head.attention.in_proj_bias', (3 * HIDDEN,)),
            *linear('head.attention.out_proj', HIDDEN, HIDDEN), *norm('head.layernorm'), *mlp('head.mlp')]
    return embeddings + sum((layer(f'encoder.layers.{i}') for i in range(layers)), []) + norm('post_layernorm') + head


def weights(generator, name, shape):
    values = generator.standard_normal(shape, dtype=numpy.float32)
    if 'norm' in name and name.endswith('weight'): return 1 + numpy.float32(0.2) * values
    if name.endswith('bias'): return numpy.float32(0.1) * values
    return values * numpy.float32(math.prod(shape[1:]) ** -0.5)  # rows of length 1


def header(tensors):
    """Of the safetensors file, its length in front."""
    entries, at = {}, 0
    for name, shape in tensors:
        entries[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [at, at + 4 * math.prod(shape)]}
        at = entries[name]['data_offsets'][1]
    text = json.dumps(entries).encode()
    text += b' ' * (-len(text) % 8)  # the data is aligned
    return len(text).to_bytes(8, 'little') + text


parser = argparse.ArgumentParser()
parser.add_argument('directory')
parser.add_argument('--layers', type=int, default=12)
given = parser.parse_args()

os.makedirs(given.directory, exist_ok=True)
with open(os.path.join(given.directory, 'config.json'), 'w') as file:
    json.dump({'model_type': 'siglip_vision_model', 'hidden_size': HIDDEN, 'intermediate_size': MLP, 'num_attention_heads': HEADS,
               'num_hidden_layers': given.layers, 'image_size': SIDE, 'patch_size': PATCH, 'hidden_act': 'gelu_pytorch_tanh',
               'layer_norm_eps': 1e-6, 'vision_use_head': True}, file, indent=2)
generator, tensors = numpy.random.default_rng(0), [('vision_model.' + name, shape) for name, shape in tower(given.layers)]
with open(os.path.join(given.directory, 'model.safetensors'), 'wb') as file:
    file.write(header(tensors))
    for name, shape in tensors: file.write(weights(generator, name, shape).astype('<f4', copy=False).data)

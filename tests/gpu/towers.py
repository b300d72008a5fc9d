"""Towers for pictures of any size on the card, by examples/python, on random weights: rows against transformers in fp32, transformers' own bf16
beside them, the same bits twice, alone and in a mix; and how long an encode takes.
usage: MEGAVIT_LIBRARY=build/cuda/libmegavit.so towers.py [--backend cpu [--precision fast]] [--program build/cuda/megavit] [--layers N] [--no-times] NAME...
       ... towers.py --launches N [--layers N] NAME...    the same bits in N launches of a mix, on parts of the card, two engines side by side"""
import argparse, copy, ctypes, json, os, pathlib, subprocess, sys, tempfile
import numpy, torch
from transformers import Siglip2VisionConfig, Siglip2VisionModel
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5VisionConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5VisionModel
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'examples', 'python'))
import megavit  # noqa: E402

torch.set_grad_enabled(False)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
MODELS = { # model, config, side of a patch, merged patches a side, frames of a patch
    'naflex-base': (Siglip2VisionModel, dict(vision_use_head=False), Siglip2VisionConfig, 16, 1, 1),
    'naflex-pooled': (Siglip2VisionModel, dict(), Siglip2VisionConfig, 16, 1, 1),
    'qwen3-2b': (Qwen3VLVisionModel, dict(depth=24, hidden_size=1024, intermediate_size=4096, out_hidden_size=2048, deepstack_visual_indexes=[5, 11, 17]), Qwen3VLVisionConfig, 16, 2, 2),
    'qwen3-8b': (Qwen3VLVisionModel, dict(depth=27, hidden_size=1152, intermediate_size=4304, out_hidden_size=4096), Qwen3VLVisionConfig, 16, 2, 2),
    'qwen3-wide': (Qwen3VLVisionModel, dict(depth=24, hidden_size=1024, intermediate_size=4096, num_heads=8, # heads of 128
                                            out_hidden_size=2048, deepstack_visual_indexes=[5, 11, 17]), Qwen3VLVisionConfig, 16, 2, 2),
    'qwen3-narrow': (Qwen3VLVisionModel, dict(depth=24, hidden_size=720, intermediate_size=2884, num_heads=10, # rows end within 64 columns
                                              out_hidden_size=2048, deepstack_visual_indexes=[5, 11, 17]), Qwen3VLVisionConfig, 16, 2, 2),
    'naflex-narrow': (Siglip2VisionModel, dict(hidden_size=720, intermediate_size=2884, num_attention_heads=10), Siglip2VisionConfig, 16, 1, 1),
    'qwen2.5-wide': (Qwen2_5_VisionTransformerPretrainedModel,
                     dict(depth=32, hidden_size=1280, intermediate_size=3420, num_heads=10, out_hidden_size=3584,
                          fullatt_block_indexes=[7, 15, 23, 31]), Qwen2_5_VLVisionConfig, 14, 2, 2),
    'qwen2-7b': (Qwen2VisionTransformerPretrainedModel, dict(depth=32, embed_dim=1280, hidden_size=3584), Qwen2VLVisionConfig, 14, 2, 2),
    'qwen3.5-0.8b': (Qwen3_5VisionModel, dict(depth=12, hidden_size=768, intermediate_size=3072, num_heads=12, out_hidden_size=1024), Qwen3_5VisionConfig, 16, 2, 2),
    'qwen3.5-27b': (Qwen3_5VisionModel, dict(depth=27), Qwen3_5VisionConfig, 16, 2, 2),
    'qwen2.5-7b': (Qwen2_5_VisionTransformerPretrainedModel, dict(depth=32, hidden_size=1280, intermediate_size=3420, out_hidden_size=3584, fullatt_block_indexes=[7, 15, 23, 31]), Qwen2_5_VLVisionConfig, 14, 2, 2)}
POOLED = ('naflex-pooled', 'naflex-narrow')
SIZES = [(16, 16), (10, 24), (2, 6), (32, 32), (14, 18), (40, 26)] # patches down and across
TIMED = [(16, 16), (32, 32), (64, 64), (128, 128)]
failures = []


def verdict(ok, text):
    print(('ok   ' if ok else 'FAIL ') + text, flush=True)
    if not ok: failures.append(text)


def make(name, directory, layers, device):
    kind, settings, config, patch, merge, frames = MODELS[name]
    settings = dict(settings)
    if layers: settings['num_hidden_layers' if name.startswith('naflex') else 'depth'] = layers
    if layers and 'deepstack_visual_indexes' in settings: settings['deepstack_visual_indexes'] = [0]
    elif layers and name == 'qwen3-8b': settings['deepstack_visual_indexes'] = [0]
    if layers and 'fullatt_block_indexes' in settings: settings['fullatt_block_indexes'] = [layers - 1]
    torch.manual_seed(0)
    with torch.device(device): model = kind(config(**settings)).eval().to(device)
    for key, p in model.named_parameters():
        if ('norm' in key or 'ln_q' in key) and key.endswith('weight'): p.copy_(1 + 0.2 * torch.randn_like(p))
        elif key.endswith('bias'): p.copy_(0.1 * torch.randn_like(p))
        elif 'pos' in key: p.copy_(0.5 * torch.randn_like(p))
        elif p.dim() >= 2: p.copy_(torch.randn_like(p) * p[0].numel() ** -0.5)
    model.save_pretrained(directory)
    (directory / 'preprocessor_config.json').write_text(json.dumps(dict(do_resize=False, do_rescale=True, rescale_factor=1 / 255, do_normalize=True,
        image_mean=[0.5] * 3, image_std=[0.5] * 3, max_num_patches=1 << 20, patch_size=patch, merge_size=merge, temporal_patch_size=frames)))
    return model


def picture(h, w, patch, seed):
    g = torch.Generator().manual_seed(seed)
    scales = (torch.nn.functional.interpolate(torch.randn(1, 3, s, s, generator=g), (h * patch, w * patch), mode='bilinear') for s in (2, 7, 28, 100))
    return (sum(scales) * 40 + 127.5).clamp(0, 255).to(torch.uint8)[0].permute(1, 2, 0).contiguous().numpy()


def patches(pixels, patch, merge, frames):
    v = (torch.from_numpy(pixels).double() / 255 - 0.5).float() / 0.5
    h, w = v.shape[0] // patch, v.shape[1] // patch
    v = v.view(h // merge, merge, patch, w // merge, merge, patch, 3)
    if frames == 1: return v.permute(0, 3, 1, 4, 2, 5, 6).reshape(h * w, -1)
    v = v.permute(0, 3, 1, 4, 6, 2, 5).unsqueeze(5).expand(-1, -1, -1, -1, -1, frames, -1, -1)
    return v.reshape(h * w, -1)


def reference(name, model, pictures, dtype):
    _, _, _, patch, merge, frames = MODELS[name]
    device, rows = next(model.parameters()).device, []
    if dtype != torch.float32: model = copy.deepcopy(model).to(dtype) # the caller's weights stay as they are
    for p in pictures:
        x, h, w = patches(p, patch, merge, frames).to(device, dtype), p.shape[0] // patch, p.shape[1] // patch
        if name.startswith('naflex'):
            out = model(pixel_values=x[None], pixel_attention_mask=torch.ones(1, h * w, device=device, dtype=torch.int32), spatial_shapes=torch.tensor([[h, w]]))
            rows.append([r.float().cpu() for r in (out.last_hidden_state[0], *([out.pooler_output] if name in POOLED else []))])
            continue
        out = model(x, torch.tensor([[1, h, w]], device=device), return_dict=True)
        deep = getattr(out, 'deepstack_features', None) or []
        rows.append([r.float().cpu() for r in (out.pooler_output, *deep)])
    return [torch.cat([r[k] for r in rows]) for k in range(len(rows[0]))]


def off(got, want): return ((got - want).double().norm() / want.double().norm()).item()


def check(name, o):
    _, _, _, patch, merge, frames = MODELS[name]
    with tempfile.TemporaryDirectory() as place:
        directory, device = pathlib.Path(place), 'cpu' if o.backend == 'cpu' else 'cuda'
        model = make(name, directory, o.layers, device)
        pictures = [picture(h, w, patch, i) for i, (h, w) in enumerate(SIZES)]
        want, half = reference(name, model, pictures, torch.float32), reference(name, model, pictures, torch.bfloat16)
        tokens, opened = sum(h * w for h, w in SIZES), megavit.Model(place)
        engine = megavit.Engine(opened, backend=o.backend, max_images=len(pictures), max_tokens=tokens, row_outputs=1, threads=8,
                                precision=o.precision)
        outputs = [('tokens', 0)] + [('pooled', 0) if name in POOLED else ('deepstack', i) for i in range(len(want) - 1)]
        for (output, index), w, t in zip(outputs, want, half):
            got = torch.from_numpy(engine.encode(pictures, output, index))
            bound = off(t, w)
            verdict(off(got, w) <= max(bound, 1e-5), f'{name} {output} {index}: {off(got, w):.2e} from fp32; transformers bf16 {bound:.2e}')
        got, again = engine.encode(pictures, 'tokens'), engine.encode(pictures, 'tokens')
        verdict(numpy.array_equal(got, again), f'{name}: the same bits twice')
        rows = SIZES[0][0] * SIZES[0][1] // merge ** 2 # few tokens: clusters take shares of K
        few, again = (engine.encode(pictures[:1], 'tokens') for _ in range(2))
        bound = off(half[0][:rows], want[0][:rows])
        error = off(torch.from_numpy(few), want[0][:rows])
        verdict(error <= max(bound, 1e-5) and numpy.array_equal(few, again),
                f'{name}: one picture of {SIZES[0][0] * SIZES[0][1]} patches: {error:.2e} from fp32; transformers bf16 {bound:.2e}')
        back = numpy.concatenate([engine.encode(pictures[::-1], 'tokens')])
        at, same = len(back), True
        for p in range(len(pictures)):
            rows = SIZES[p][0] * SIZES[p][1] // merge ** 2
            start = sum(h * w for h, w in SIZES[:p]) // merge ** 2
            same &= numpy.array_equal(back[at - rows:at], got[start:start + rows])
            at -= rows
        verdict(same, f'{name}: the same bits in another order')
        del engine
        engine = megavit.Engine(opened, backend=o.backend, max_images=len(pictures), max_tokens=tokens, row_outputs=1,
                                schedule_images=len(pictures), threads=8, precision=o.precision)
        together, alone = engine.encode(pictures, 'tokens'), numpy.concatenate([engine.encode([p], 'tokens') for p in pictures])
        verdict(numpy.array_equal(together, alone), f'{name}: with schedule_images the same bits alone and in a mix of {len(pictures)} sizes')
        del engine
        if o.program: # operation by operation, pictures of three sizes
            said = subprocess.run([o.program, 'validate', '--model', place, '--batch', '3', '--threads', '8'], capture_output=True, text=True)
            verdict(said.returncode == 0, f'{name} validate: exit {said.returncode}' + ('' if said.returncode == 0 else '\n' + said.stdout[-3000:] + said.stderr[-500:]))
        if not o.no_times: times(name, directory, patch)


class Prepared:
    """An encode of pictures on the card, of any sizes, that is enqueued again and again; rows: what it leaves there, one tensor an output."""
    def __init__(self, engine, pictures, outputs, stream=None):
        images = (megavit._Image * len(pictures))()
        for image, p in zip(images, pictures):
            assert p.is_cuda and p.is_contiguous() and p.dtype == torch.uint8
            image.__init__(ctypes.sizeof(megavit._Image), 0, p.data_ptr(), p.numel(), p.shape[1], p.shape[0], 0, 0, 1)
        out, self.rows = (megavit._Output * len(outputs))(), []
        for o, (kind, index) in zip(out, outputs):
            o.__init__(ctypes.sizeof(megavit._Output), megavit.OUTPUTS[kind], index, 1)
            shape = megavit._Shape()
            megavit._call('mgv_engine_shape', engine._handle, images, len(pictures), ctypes.byref(o), ctypes.byref(shape))
            self.rows.append(torch.empty(shape.rows, shape.columns, device='cuda'))
            o.data, o.capacity = self.rows[-1].data_ptr(), self.rows[-1].numel()
        self.engine, self.kept = engine, (pictures, images, out)
        self.desc = megavit._sized(megavit._EncodeDesc, image_count=len(pictures), images=images, outputs=out, output_count=len(outputs),
                                   stream=(stream or torch.cuda.current_stream()).cuda_stream)

    def launch(self):
        """Waits for the engine's encode before this one, not for this one."""
        self.engine.wait()
        megavit._call('mgv_encode', self.engine._handle, ctypes.byref(self.desc))
        self.engine._kept = self.kept


def launches(name, count, layers):
    """Two engines side by side on half of the card each, against one on all of it and one on a sixth."""
    _, _, _, patch, _, _ = MODELS[name]
    with tempfile.TemporaryDirectory() as place:
        model = make(name, pathlib.Path(place), layers, 'cuda')
        deep = len(getattr(model.config, 'deepstack_visual_indexes', []))
        del model
        pictures = [torch.from_numpy(picture(h, w, patch, i)).cuda() for i, (h, w) in enumerate(SIZES)]
        tokens, outputs = sum(h * w for h, w in SIZES), [('tokens', 0)] + [('deepstack', i) for i in range(deep)]
        opened, want, beside = megavit.Model(place), None, []
        for sms in (0, 22, 66, 66):
            engine = megavit.Engine(opened, backend='cuda', max_images=len(pictures), max_tokens=tokens, max_sms=sms, threads=8)
            stream = torch.cuda.Stream() if sms == 66 else torch.cuda.current_stream()
            encode = Prepared(engine, pictures, outputs, stream)
            encode.stream, encode.other = stream, torch.zeros((), dtype=torch.int64, device='cuda')
            encode.launch()
            engine.wait()
            got = [r.clone() for r in encode.rows]
            if want is None: want = [r.view(torch.int32) for r in got]
            same = all(w.any() and torch.equal(g.view(torch.int32), w) for g, w in zip(got, want))
            verdict(same, f'{name}: the same bits on {sms or "all"} multiprocessors')
            if sms == 66: beside.append(encode)
        torch.cuda.synchronize()
        for i in range(count):
            encode = beside[i % 2]
            encode.launch()
            with torch.cuda.stream(encode.stream):
                for r, w in zip(encode.rows, want): encode.other += (r.view(torch.int32) != w).any()
                for r in encode.rows: r.fill_(float('nan')) # what the next launch does not write is found
        for encode in beside: encode.engine.wait()
        torch.cuda.synchronize()
        same = not any(encode.other.item() for encode in beside)
        verdict(same, f'{name}: the same bits in {count} launches of {len(SIZES)} sizes, two engines side by side')


def times(name, directory, patch):
    model = megavit.Model(str(directory))
    for h, w in TIMED:
        engine = megavit.Engine(model, backend='cuda', max_images=1, max_tokens=h * w, row_outputs=1)
        batch = torch.from_numpy(picture(h, w, patch, 1)).cuda()[None].contiguous()
        took = []
        for i in range(25):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            engine.wait()
            begin.record()
            rows = engine.encode(batch, 'tokens')
            end.record()
            torch.cuda.synchronize()
            took.append(begin.elapsed_time(end))
            del rows
        print(f'{name} {h * w:6d} patches: {numpy.median(took[5:]):8.3f} ms on the card, tokens', flush=True)
        del engine


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--backend', default='cuda')
    parser.add_argument('--precision', default='auto')
    parser.add_argument('--program', help='megavit, for its validate')
    parser.add_argument('--layers', type=int)
    parser.add_argument('--no-times', action='store_true')
    parser.add_argument('--launches', type=int)
    parser.add_argument('names', nargs='*')
    o = parser.parse_args()
    for name in o.names or MODELS:
        try:
            if o.launches: launches(name, o.launches, o.layers)
            else: check(name, o)
        except Exception as e: # the others may do
            verdict(False, f'{name}: {type(e).__name__}: {e}')
    print('towers: %d failures' % len(failures))
    sys.exit(bool(failures))


if __name__ == '__main__':
    main()

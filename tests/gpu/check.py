"""Compares the GPU engine with transformers in fp32 and bf16, on random weights, and times it.
usage: check.py LIBRARY FATBIN WORD...
words: stages errors checkpoints bits groups launches neighbour engines odd drain, time=B/group/lanes,... profile=... ladder=... peer=B,... regimes=B,...;
throughput, latency, chosen: the regime of the words that follow; model=NAME, model=NAME/LAYERS: the model of the words bits, drain (two
layers unless said), time, peer and regimes that follow, or so many layers of it"""
import copy, ctypes, math, pathlib, random, statistics, sys, tempfile, time
import torch
from transformers import CLIPVisionConfig, Dinov2Config, SiglipVisionConfig, SiglipVisionModel
import families

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.set_grad_enabled(False)
NAMES = ('patches', 'stream', 'qkv', 'attended', 'mlp', 'weighted', 'head attended', 'head out', 'head mlp', 'pooled')
TOKENS = -1 # among layers: the tokens
failures = []
REGIMES = ('chosen', 'throughput', 'latency')
regime = 0  # of REGIMES
MODELS = {'base-224': {}, 'base-256': dict(image_size=256), 'base-320': dict(image_size=320), 'base-384': dict(image_size=384),
          'base-512': dict(image_size=512),
          'so400m-224': dict(image_size=224, patch_size=14, hidden_size=1152, intermediate_size=4304, num_attention_heads=16, num_hidden_layers=27),
          'so400m-384': dict(image_size=384, patch_size=14, hidden_size=1152, intermediate_size=4304, num_attention_heads=16, num_hidden_layers=27),
          'large-256': dict(image_size=256, hidden_size=1024, intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24),
          'base-224-headless': dict(vision_use_head=False),
          'giant-384': dict(image_size=384, patch_size=16, hidden_size=1536, intermediate_size=6144, num_attention_heads=16, num_hidden_layers=40)}
NARROW = dict(hidden_size=720, intermediate_size=2884, num_attention_heads=10) # rows end within 64 columns
MODELS.update({'so400m-256': dict(MODELS['so400m-224'], image_size=256), 'narrow-224': NARROW, 'narrow-384': dict(NARROW, image_size=384)})
MODELS['so400m-224-headless'] = dict(MODELS['so400m-224'], vision_use_head=False)
chosen_model = 'base-224'
# For the word regimes: class, config, processor, mean and deviation. DINOv3's kernel takes floats.
FAMILIES = {name: model for name, model in families.MODELS.items() if not name.endswith('embeds') and not name.startswith('dinov3')}
FAMILIES['clip-l14-336'] = (FAMILIES['clip-l14'][0], CLIPVisionConfig(image_size=336, patch_size=14, intermediate_size=4096, **families.LARGE),
                            *FAMILIES['clip-l14'][2:])
FAMILIES['dinov2-b14-518'] = (FAMILIES['dinov2-b14'][0], Dinov2Config(image_size=518, patch_size=14), *FAMILIES['dinov2-b14'][2:])


def most_pictures():
    """Of one encode: the latency regime takes models with a head up to 8, and hands more to the other without a word."""
    return 8 if regime == 2 else 64


def ran_where_asked(engine):
    return regime in (0, 1 + engine.lib.harness_regime(engine.h))


def verdict(ok, text):
    print(('ok   ' if ok else 'FAIL ') + text, flush=True)
    if not ok: failures.append(text)


class Engine:
    """One loaded model on the GPU."""
    def __init__(self, library, directory, kernels, images, group=0, lanes=0, clusters=0, polls=0):
        self.lib, self.message = library, ctypes.create_string_buffer(1024)
        self.h = library.harness_open(directory.encode(), kernels.encode(), images, group, lanes, clusters, polls, regime, self.message)
        if not self.h: raise RuntimeError(self.message.value.decode())

    def launch(self, pixels):
        if self.lib.harness_encode(self.h, pixels.shape[0], pixels.data_ptr(), torch.cuda.current_stream().cuda_stream, self.message):
            raise RuntimeError(self.message.value.decode())

    def wait(self):
        return None if self.lib.harness_wait(self.h, self.message) == 0 else self.message.value.decode()

    def run(self, pixels):
        self.launch(pixels)
        said = self.wait()
        if said: raise RuntimeError(said)

    def run_to(self, pixels, op):
        """Every operation up to and with number `op`, on buffers full of NaN."""
        torch.cuda.synchronize()
        if self.lib.harness_run_to(self.h, pixels.shape[0], pixels.data_ptr(), op, self.message): raise RuntimeError(self.message.value.decode())

    def buffer(self, number, rows, columns=None, pitch=None):
        pitch = pitch or self.lib.harness_buffer_pitch(self.h, number)
        kind = torch.float32 if number == 9 else torch.float16 if number >= 5 else torch.bfloat16 # mgv__plan_is_half
        flat = torch.empty(rows * pitch, dtype=kind, device='cuda')
        torch.cuda.synchronize()
        self.lib.harness_copy(flat.data_ptr(), self.lib.harness_buffer(self.h, number), flat.numel() * flat.element_size())
        return flat.view(rows, pitch)[:, :columns].float()

    def poison(self):
        """NaN into every buffer that the kernel writes."""
        for number in range(12):
            bytes_ = self.lib.harness_buffer_bytes(self.h, number)
            nan = torch.full((bytes_ // 4,), 0x7FFF7FFF, dtype=torch.int32, device='cuda')
            torch.cuda.synchronize()
            self.lib.harness_copy(self.lib.harness_buffer(self.h, number), nan.data_ptr(), nan.numel() * 4)
        torch.cuda.synchronize()

    def want_rows(self, layers, rows):
        """Further launches give the rows of these layers, too, all of them into `rows`: float32 [images, tokens, columns]."""
        self.rows = rows
        self.lib.harness_want_rows(self.h, (ctypes.c_int32 * len(layers))(*layers), len(layers), rows.data_ptr())

    def ran(self): return REGIMES[1 + self.lib.harness_regime(self.h)] + f', {self.lib.harness_clusters(self.h)} clusters'

    def close(self): self.lib.harness_close(self.h)


def load(path):
    lib = ctypes.CDLL(path)
    lib.harness_open.restype = ctypes.c_void_p
    lib.harness_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p] + [ctypes.c_uint32] * 6 + [ctypes.c_char_p]
    lib.harness_encode.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
    lib.harness_run_to.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p]
    lib.harness_wait.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.harness_buffer.restype = ctypes.c_void_p
    lib.harness_buffer_bytes.restype = ctypes.c_uint64
    lib.harness_label.restype = ctypes.c_char_p
    lib.harness_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64]
    for name in ('buffer', 'buffer_bytes', 'buffer_pitch', 'limit', 'lose_signal', 'label', 'width', 'counter', 'tiles'):
        getattr(lib, 'harness_' + name).argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    lib.harness_want_rows.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_uint32, ctypes.c_void_p]
    lib.harness_ablate.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
    lib.harness_chain.restype = ctypes.c_void_p
    lib.harness_chain.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_char_p]
    lib.harness_chain_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.harness_chain_free.argtypes = [ctypes.c_void_p]
    lib.harness_profile.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
    lib.harness_wall.restype = ctypes.c_double
    lib.harness_wall.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p]
    for name in ('close', 'ops', 'regime', 'clusters'): getattr(lib, 'harness_' + name).argtypes = [ctypes.c_void_p]
    return lib


def make_model(directory, seed=0, checkpoint=torch.float32, **config):
    torch.manual_seed(seed)
    model = SiglipVisionModel(SiglipVisionConfig(**config)).eval().cuda()
    for name, p in model.named_parameters():
        if 'norm' in name and name.endswith('weight'): p.copy_(1 + 0.2 * torch.randn_like(p))
        elif name.endswith('bias'): p.copy_(0.1 * torch.randn_like(p))
        elif p.dim() >= 2 and 'position' not in name: p.copy_(torch.randn_like(p) * (p[0].numel() ** -0.5))
    model.to(checkpoint).save_pretrained(directory)
    return model.float()


def pictures(count, side, seed):
    """uint8 pictures with structure at several scales."""
    g = torch.Generator(device='cuda').manual_seed(seed)
    x = sum(torch.nn.functional.interpolate(torch.randn(count, 3, s, s, generator=g, device='cuda'), side, mode='bilinear') for s in (2, 7, 28, side))
    return (x * 40 + 127.5).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def normalised(pixels): return ((pixels.float() / 255 - 0.5) / 0.5).permute(0, 3, 1, 2)


def relative(a, b): return ((a.double() - b.double()).norm() / b.double().norm()).item()


def reference(model, x, dtype):
    """The model is copied: rounding its own weights would make them the reference."""
    return copy.deepcopy(model).to(dtype)(pixel_values=x.to(dtype)).pooler_output.float()


def stages(lib, kernels, where):
    """In the latency regime one picture alone, too: its products that write the stream have tiles of their own."""
    for images in (3, 1) if regime == 2 else (3,): stages_of(lib, kernels, where, images)


def stages_of(lib, kernels, where, images):
    model = make_model(where, num_hidden_layers=1)
    seen = {}
    layer, head = model.vision_model.encoder.layers[0] if hasattr(model, 'vision_model') else model.encoder.layers[0], None
    top = model.vision_model if hasattr(model, 'vision_model') else model
    head = top.head
    hooks = [top.embeddings.register_forward_hook(lambda m, i, o: seen.update(embedded=o)),
             layer.layer_norm2.register_forward_hook(lambda m, i, o: seen.update(middle=i[0])),
             layer.mlp.fc2.register_forward_hook(lambda m, i, o: seen.update(mlp=i[0])),
             layer.self_attn.out_proj.register_forward_hook(lambda m, i, o: seen.update(attended=i[0])),
             layer.register_forward_hook(lambda m, i, o: seen.update(stream=o[0] if isinstance(o, tuple) else o)),
             head.attention.register_forward_hook(lambda m, i, o: seen.update(head_out=o[0])),
             head.mlp.fc2.register_forward_hook(lambda m, i, o: seen.update(head_mlp=i[0]))]
    for part in 'qkv': getattr(layer.self_attn, part + '_proj').register_forward_hook(lambda m, i, o, part=part: seen.update({part: o}))
    pixels = pictures(images, 224, 1)
    pooled = model(pixel_values=normalised(pixels)).pooler_output
    with_grid = pixels.view(images, 14, 16, 14, 16, 3).permute(0, 1, 3, 2, 4, 5).reshape(-1, 768).float() - 128 # MGV__PIXEL_MIDDLE
    want = {'patches': with_grid, 'patch embed': seen['embedded'], 'qkv': torch.cat([seen[p] for p in 'qkv'], -1), 'attention': seen['attended'],
            'out': seen['middle'], 'fc1': seen['mlp'], 'fc2': seen['stream'], 'head out': seen['head_out'], 'head fc1': seen['head_mlp'], 'head fc2': pooled}
    where_to = {'patches': 0, 'patch embed': 1, 'qkv': 2, 'attention': 3, 'out': 1, 'fc1': 4, 'fc2': 1, 'head out': 7, 'head fc1': 8, 'head fc2': 9}
    engine = Engine(lib, where, kernels, images)
    for op in range(lib.harness_ops(engine.h)):
        label = lib.harness_label(engine.h, op).decode()
        if label not in want: continue
        engine.run_to(pixels, op)
        rows = images if label.startswith('head') else images * 196
        got, ref = engine.buffer(where_to[label], rows), want[label].reshape(rows, -1)
        if label == 'qkv': got[:, :got.shape[1] // 3] *= 8 * math.log(2) # queries have 1 / sqrt(head_dim) log2 e in them
        error = relative(got, ref)
        bad = (~torch.isfinite(got)).sum().item()
        verdict(error < 0.01 and not bad, f'{label:14s} width {lib.harness_width(engine.h, op):3d}  relative L2 {error:.2e}  max {(got - ref).abs().max().item():.2e}  not finite {bad}')
        if error >= 0.01 or bad:
            rows_bad = ((got - ref).abs() > 0.05 * ref.abs().max()) | ~torch.isfinite(got)
            at = rows_bad.nonzero()[:3].tolist()
            print('     first bad (row, column):', at, 'rows bad', rows_bad.any(1).sum().item(), 'columns bad', rows_bad.any(0).sum().item(), flush=True)
            break
    engine.close()


def errors(lib, kernels, where):
    """1,000 pictures, five models of random weights: the pooled row against fp32, and transformers' own bf16 beside it. In batches of every
    arithmetic: sums over the cluster in tiles of 128, 160 and 192 columns are other sums, and one picture has none in the latency regime."""
    sizes = (8, 2, 1) if regime == 2 else (50, 20, 8, 4)
    ours, theirs, ran, there = {images: [] for images in sizes}, [], {}, True
    for seed in range(5):
        model = make_model(where, seed)
        batches = [pictures(sizes[0], 224, 10 + 200 // sizes[0] * seed + batch) for batch in range(200 // sizes[0])]
        exact, half = (torch.cat([reference(model, normalised(x), t) for x in batches]) for t in (torch.float32, torch.bfloat16))
        scale, pixels = exact.norm(dim=1), torch.cat(batches)
        theirs.append((half - exact).norm(dim=1) / scale)
        for images in sizes:
            engine = Engine(lib, where, kernels, images)
            for i in range(0, 200, images):
                engine.poison()
                engine.run(pixels[i:i + images].contiguous())
                ours[images].append((engine.buffer(9, images) - exact[i:i + images]).norm(dim=1) / scale[i:i + images])
            ran[images], there = engine.ran(), there and ran_where_asked(engine)
            engine.close()
    theirs = torch.cat(theirs)
    for images in sizes:
        mine = torch.cat(ours[images])
        verdict(there and torch.isfinite(mine).all().item() and mine.pow(2).mean().sqrt() <= theirs.pow(2).mean().sqrt() and mine.max() <= 1.25 * theirs.max(),
                f'12 layers, {len(mine)} pictures, {images} at a time ({ran[images]}): relative error RMS {mine.pow(2).mean().sqrt():.2e} max {mine.max():.2e}; transformers bf16 RMS {theirs.pow(2).mean().sqrt():.2e} max {theirs.max():.2e}')


def checkpoints(lib, kernels, where):
    """Checkpoints in bf16, whose weights transformers' own bf16 has exactly: 200 pictures of each of three shapes, five models, in batches of
    both regimes and of every form of the pooling head. No farther from fp32 than transformers' bf16."""
    for name in ('base-224', 'large-256', 'base-512'):
        ours, theirs, ran, side = {1: [], 2: [], 8: [], 20: [], 64: []}, [], {}, side_of(name)
        for seed in range(5):
            model = make_model(where, seed, torch.bfloat16, **MODELS[name])
            pixels = pictures(40, side, 1000 + seed)
            exact, half = (torch.cat([reference(model, normalised(x), t) for x in pixels.split(8)]) for t in (torch.float32, torch.bfloat16))
            scale = exact.norm(dim=1)
            theirs.append((half - exact).norm(dim=1) / scale)
            engine = Engine(lib, where, kernels, max(ours))
            for images in ours:
                engine.poison()
                for batch, first in zip(pixels.split(images), range(0, 40, images)):
                    padded = torch.cat([batch, pixels])[:images].contiguous()
                    engine.run(padded)
                    count = len(batch)
                    ours[images].append((engine.buffer(9, images)[:count] - exact[first:first + count]).norm(dim=1) / scale[first:first + count])
                ran[images] = engine.ran()
            engine.close()
        bound = torch.cat(theirs)
        for images in ours:
            mine = torch.cat(ours[images])
            rms, their_rms = (e.pow(2).mean().sqrt().item() for e in (mine, bound))
            verdict(torch.isfinite(mine).all().item() and rms <= their_rms,
                    f"{name} bf16 checkpoint, {len(mine)} pictures, {images} at a time ({ran[images]}): RMS {rms:.2e} max {mine.max():.2e}; transformers' bf16 RMS {their_rms:.2e} max {bound.max():.2e}; {rms / their_rms:.3f}")


def bits(lib, kernels, where):
    make_model(where, **dict(MODELS[chosen_model], num_hidden_layers=4))
    most = most_pictures()
    pixels = pictures(most, side_of(chosen_model), 3)
    engine = Engine(lib, where, kernels, most)
    engine.run(pixels)
    first, same = engine.buffer(9, most), True
    for i in range(200):
        if i % 50 == 0: engine.poison()
        engine.run(pixels)
        same &= torch.equal(engine.buffer(9, most), first)
    verdict(same and ran_where_asked(engine) and torch.isfinite(first).all().item(), f'200 launches give the same bits ({engine.ran()})')
    # three to 24 pictures split the products that write the stream over the cluster, in tiles of 128 columns, eight of 160, more of 192; more
    # than 48 have another pooling head; in the latency regime one alone shares out no K but that of the MLP
    for among, counts in ((7, (3, 6)), (8, (8,)), (10, (9,)), (24, (11, 13)), (48, (33, 1)), (64, (50,)))[:6 if most == 64 else 2]:
        engine.poison()
        engine.run(pixels[:among].contiguous())
        all_of_them = engine.buffer(9, among)
        for count in counts:
            first_one = min(2, among - count) if count < among else 2
            both = min(count, among - first_one)
            engine.poison()
            engine.run(pixels[first_one:first_one + count].contiguous())
            verdict(torch.equal(engine.buffer(9, both), all_of_them[first_one:first_one + both]), f'{both} pictures of {count} give the bits they have among {among} ({engine.ran()})')
    engine.close()
    part = 13 if most == 64 else 3
    for group, lanes, clusters in ((part, 1, 0), (part, 2, 0), (0, 1, 2), (0, 1, 17)):
        engine = Engine(lib, where, kernels, most, group, lanes, clusters)
        engine.poison()
        engine.run(pixels)
        verdict(torch.equal(engine.buffer(9, most), first), f'groups of {group or most}, {lanes} at a time, {engine.ran()}: the same bits')
        engine.close()


class Repeated:
    """An engine and what it gave for a few batches; each further launch must give the same bits."""
    def __init__(self, lib, where, kernels, pixels, counts, **options):
        self.engine, self.counts, self.launches, self.wrong = Engine(lib, where, kernels, max(counts), **options), counts, 0, 0
        self.pixels = [pixels[i:i + n].contiguous() for i, n in enumerate(counts)]
        assert [x.shape[0] for x in self.pixels] == list(counts)
        self.want, self.got = [], torch.empty(max(counts), 768, device='cuda')
        for x in self.pixels:
            self.engine.poison()
            self.engine.run(x)
            self.want.append(self.engine.buffer(9, x.shape[0]).clone())

    def launch(self): self.engine.launch(self.pixels[self.launches % len(self.counts)])

    def finish(self):
        """Waits for the launch and compares."""
        which = self.launches % len(self.counts)
        said, rows = self.engine.wait(), self.counts[which]
        if said: raise RuntimeError(said)
        self.engine.lib.harness_copy(self.got.data_ptr(), self.engine.lib.harness_buffer(self.engine.h, 9), rows * 768 * 4)
        self.wrong += not torch.equal(self.got[:rows], self.want[which])
        self.launches += 1

    def run(self, poison=False):
        if poison: self.engine.poison()
        self.launch()
        self.finish()


def groups(lib, kernels, where):
    """Batches that are grouped each in its own way, in turn on one engine."""
    make_model(where, num_hidden_layers=4)
    counts = (140, 100, 66, 131)
    work = Repeated(lib, where, kernels, pictures(145, 224, 5), counts)
    for pixels, want in zip(work.pixels, work.want):
        own = Engine(lib, where, kernels, pixels.shape[0])
        own.run(pixels)
        verdict(torch.equal(own.buffer(9, pixels.shape[0]), want),
                f'{pixels.shape[0]} pictures in an engine for {max(counts)} give the bits of an engine made for as many ({work.engine.ran()})')
        own.close()
    for i in range(400): work.run(poison=i % 50 == 0)
    verdict(work.wrong == 0, f'{work.launches} launches of {counts} pictures in turn: {work.wrong} gave other bits')
    work.engine.close()


def launches(lib, kernels, where):
    """10,000 launches of changing batches, every fiftieth on buffers full of NaN."""
    make_model(where)
    work = Repeated(lib, where, kernels, pictures(70, 224, 7), (7, 1, 8, 2, 32, 64))  # the last two are dealt
    for i in range(10000): work.run(poison=i % 50 == 0)
    verdict(work.wrong == 0, f'{work.launches} launches of {work.counts} pictures in turn: {work.wrong} gave other bits')
    work.engine.close()


def neighbour(lib, kernels, where):
    """Beside other kernels. The engine's CTAs leave no room on their multiprocessors (registers and shared memory), so a neighbour runs on the
    other half of the card, where it takes bytes from L2 and memory, or before and behind the engine on all of it."""
    make_model(where)
    other, big = torch.cuda.Stream(), torch.empty(1 << 28, dtype=torch.uint8, device='cuda')
    a, b, small = big[:1 << 27], big[1 << 27:], torch.randn(2048, 2048, device='cuda', dtype=torch.bfloat16)
    for clusters, what in ((33, 'half of the multiprocessors'), (0, 'all multiprocessors')):
        work = Repeated(lib, where, kernels, pictures(20, 224, 7), (7, 1, 16), clusters=clusters)
        alone, beside = [], []
        for i in range(600):
            busy = i % 2
            if busy:
                with torch.cuda.stream(other):
                    for _ in range(12): a.copy_(b); small @ small
            start = time.perf_counter()
            work.run(poison=i % 20 == 1)
            (beside if busy else alone).append(time.perf_counter() - start)
            other.synchronize()
        slower = sorted(beside)[150] / sorted(alone)[150]
        verdict(work.wrong == 0, f'{len(beside)} launches on {what} beside copies and products on another stream, {slower:.2f} times as long: {work.wrong} gave other bits')
        work.engine.close()


def engines(lib, kernels, where):
    """Several engines at once, each on a stream of its own: sharing the card, then each wanting all of it."""
    make_model(where)
    streams = [torch.cuda.Stream() for _ in range(3)]
    for clusters in (22, 0):
        works = [Repeated(lib, where, kernels, pictures(20, 224, 30 + i), counts, clusters=clusters) for i, counts in enumerate(((7, 1), (2, 9), (16, 3)))]
        for i in range(300):
            for work, stream in zip(works, streams):
                if i % 25 == 0: work.engine.poison()
                with torch.cuda.stream(stream): work.launch()
            for work in works: work.finish()
        wrong = sum(work.wrong for work in works)
        verdict(wrong == 0, f'3 engines on 3 streams, {clusters or "all"} clusters each, 900 launches: {wrong} gave other bits')
        for work in works: work.engine.close()


def side_of(name): return MODELS[name].get('image_size', 224)


def flops_of(model):
    """Of one picture, as PyTorch would do it: a multiply-add is two."""
    c = model.config
    d, f, p = c.hidden_size, c.intermediate_size, 3 * c.patch_size ** 2
    n = (c.image_size // c.patch_size) ** 2
    return 2 * n * d * p + c.num_hidden_layers * (8 * n * d * d + 4 * n * d * f + 4 * n * n * d) + 4 * n * d * d + 4 * n * d + 4 * d * d + 4 * d * f


ODD = (('256 tokens', dict(image_size=256)), ('64 tokens, patch 32', dict(image_size=256, patch_size=32)),
       ('patch 14, 1024 wide', dict(patch_size=14, hidden_size=1024, intermediate_size=4096, num_attention_heads=16)),
       ('3 heads, 192 wide', dict(hidden_size=192, intermediate_size=768, num_attention_heads=3)),
       ('2 heads, MLP of 200, patch 8', dict(image_size=96, patch_size=8, hidden_size=128, intermediate_size=200, num_attention_heads=2)),
       ('MLP of 4304', dict(intermediate_size=4304)), ('so400m, 256 tokens', MODELS['so400m-224']), ('so400m, 729 tokens', MODELS['so400m-384']),
       ('giant, 256 tokens', dict(MODELS['giant-384'], image_size=256)), ('giant, 576 tokens', MODELS['giant-384']),
       ('base, 576 tokens', dict(image_size=384)), ('base, 1024 tokens', dict(image_size=512)), ('base, 2304 tokens', dict(image_size=768)),
       ('3 heads, 289 tokens', dict(image_size=136, patch_size=8, hidden_size=192, intermediate_size=768, num_attention_heads=3)),
       ('heads of 80', dict(hidden_size=640, intermediate_size=2560, num_attention_heads=8)),
       ('heads of 80, 324 tokens', dict(image_size=288, hidden_size=640, intermediate_size=2560, num_attention_heads=8)),
       ('heads of 24', dict(hidden_size=192, intermediate_size=768, num_attention_heads=8)),
       ('heads of 8', dict(hidden_size=128, intermediate_size=512, num_attention_heads=16)),
       ('heads of 40', dict(hidden_size=320, intermediate_size=1280, num_attention_heads=8)),
       ('720 wide', NARROW), ('720 wide, 576 tokens', MODELS['narrow-384']),
       ('48 wide', dict(hidden_size=48, intermediate_size=100, num_attention_heads=2)),
       ('17 heads of 64, 400 tokens', dict(image_size=320, hidden_size=1088, intermediate_size=4352, num_attention_heads=17)),
       ('10 heads of 104', dict(hidden_size=1040, intermediate_size=4160, num_attention_heads=10)))


def odd(lib, kernels, where):
    for name, config in ODD:
        side = config.get('image_size', 224)
        config = dict(config, num_hidden_layers=3)
        model = make_model(where, **config)
        count = min(9, most_pictures())
        engine = Engine(lib, where, kernels, count)
        pixels = pictures(count, side, 4)
        engine.poison()
        engine.run(pixels)
        exact, half = (reference(model, normalised(pixels), t) for t in (torch.float32, torch.bfloat16))
        got = engine.buffer(9, count)
        verdict(relative(got, exact) <= relative(half, exact) and ran_where_asked(engine), f'{name} ({engine.ran()}): relative error {relative(got, exact):.2e}, transformers bf16 {relative(half, exact):.2e}')
        engine.close()


def drain(lib, kernels, where):
    """Every signal of every operation lost once, with few pictures and many: a time-out that says so, and the next launch is right."""
    config = MODELS[chosen_model] if '/' in chosen_model else dict(MODELS[chosen_model], num_hidden_layers=2)
    model, side, tokens = make_model(where, **config), side_of(chosen_model), None
    most = most_pictures()
    engine = Engine(lib, where, kernels, most, polls=20000)
    if 'vision_use_head' in config: tokens = torch.empty(most, (side // model.config.patch_size) ** 2, model.config.hidden_size, device='cuda')
    if tokens is not None: engine.want_rows([TOKENS], tokens)
    rows = lambda count: engine.buffer(9, count) if tokens is None else tokens[:count].clone()
    for count in dict.fromkeys((2, 1, 3, 8, most)): # eight: products split over the cluster
        pixels = pictures(count, side, 5)
        engine.run(pixels)
        want = rows(count)
        if tokens is not None:
            error = relative(want, model(pixel_values=normalised(pixels)).last_hidden_state)
            verdict(error < 0.01, f'{chosen_model}, {count} pictures ({engine.ran()}): relative error of the tokens {error:.2e}')
        for op in range(lib.harness_ops(engine.h) - 1):
            if not lib.harness_tiles(engine.h, op): continue # nothing is signalled: for many pictures the head's sums find their scores themselves
            label = lib.harness_label(engine.h, op).decode()
            lib.harness_lose_signal(engine.h, 1 + lib.harness_counter(engine.h, op))
            engine.launch(pixels)
            said = engine.wait()
            lib.harness_lose_signal(engine.h, 0)
            engine.poison()
            if tokens is not None: tokens.fill_(float('nan'))
            engine.run(pixels)
            good = said is not None and ran_where_asked(engine) and torch.equal(rows(count), want)
            verdict(good, f'{chosen_model}, {count} pictures ({engine.ran()}), a lost signal of {label}: {said}')
    engine.close()


def ladder(lib, kernels, where, settings):
    """Milliseconds up to each operation of the first layers: what one more operation costs when nothing else runs."""
    make_model(where)
    for images, group, lanes in settings:
        engine, last = Engine(lib, where, kernels, images, group, lanes), 0
        pixels = pictures(images, 224, 1)
        for limit in range(1, 13):
            lib.harness_limit(engine.h, limit)
            engine.run(pixels)
            pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(60)]
            for a, b in pairs: a.record(); engine.launch(pixels); b.record()
            torch.cuda.synchronize()
            ms = sorted(a.elapsed_time(b) for a, b in pairs)[30]
            print(f'  B={images} up to {lib.harness_label(engine.h, limit - 1).decode():12s} width {lib.harness_width(engine.h, limit - 1):3d} {ms * 1e3:8.1f} us, + {(ms - last) * 1e3:6.1f}', flush=True)
            last = ms
        engine.close()


def timed(lib, kernels, where, settings):
    import pynvml
    pynvml.nvmlInit()
    card = pynvml.nvmlDeviceGetHandleByIndex(0)
    model = make_model(where, **MODELS[chosen_model])
    flops = flops_of(model)
    for images, group, lanes in settings:
        engine = Engine(lib, where, kernels, images, group, lanes)
        inputs = [pictures(images, side_of(chosen_model), 20 + i) for i in range(4)]
        for i in range(5): engine.run(inputs[i % 4])
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(200 if images <= 64 else 40)]
        for i, (a, b) in enumerate(pairs):
            a.record(); engine.launch(inputs[i % 4]); b.record()
        torch.cuda.synchronize()
        said = engine.wait()
        ms = sorted(a.elapsed_time(b) for a, b in pairs)[len(pairs) // 2]
        exact = reference(model, normalised(inputs[(len(pairs) - 1) % 4][:8]), torch.float32)
        error = relative(engine.buffer(9, images)[:8], exact)
        time.sleep(0.5)
        cold = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        engine.run(inputs[0])
        time.sleep(0.2)
        cold[0].record(); engine.launch(inputs[0]); cold[1].record()
        torch.cuda.synchronize()
        joules, start, done, clock = pynvml.nvmlDeviceGetTotalEnergyConsumption(card), time.perf_counter(), 0, 0
        while time.perf_counter() - start < 0.7:
            for i in range(max(1, int(20 / ms))): engine.launch(inputs[i % 4]); done += 1
            clock = pynvml.nvmlDeviceGetClockInfo(card, 1)
            torch.cuda.synchronize()
        seconds, joules = time.perf_counter() - start, (pynvml.nvmlDeviceGetTotalEnergyConsumption(card) - joules) / 1e3
        print(f'{chosen_model} time B={images:4d} group {group:3d} lanes {lanes} {engine.ran()}: {ms:8.3f} ms {images / ms * 1e3:8.0f} img/s {images * flops / ms / 1e9:6.0f} TFLOP/s  error {error:.1e} cold {cold[0].elapsed_time(cold[1]):.3f} ms, {joules / done / images * 1e3:.1f} mJ/img {joules / seconds:.0f} W {clock} MHz {said or ""}', flush=True)
        engine.close()


def on_the_card(engine, pixels, count):
    """The median; the card is kept at work while the host prepares a launch."""
    took = []
    for _ in range(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(200_000)
        begin.record()
        engine.launch(pixels)
        end.record()
        if engine.wait(): raise RuntimeError('a launch gave up')
        torch.cuda.synchronize()
        took.append(begin.elapsed_time(end))
    return statistics.median(took)


def tower(where):
    """The chosen model, of any family, the side of its pictures, and what makes its values of their pixels."""
    if chosen_model not in FAMILIES: return make_model(where, **MODELS[chosen_model]), side_of(chosen_model), normalised
    kind, config, processor, *colours = FAMILIES[chosen_model]
    mean, deviation = (torch.tensor(c, device='cuda').view(3, 1, 1) for c in colours)
    values = lambda pixels: (pixels.permute(0, 3, 1, 2) / 255 - mean) / deviation
    return families.make_model(kind, config, pathlib.Path(where), processor, *colours).cuda(), config.image_size, values


def regimes(lib, kernels, _, settings):
    """Both regimes on the same pictures in turns, milliseconds on the card, and the one that is chosen as a third engine; rows against fp32."""
    global regime
    asked = regime
    with tempfile.TemporaryDirectory() as where: # a processor's file is of this model alone
        model, side, values = tower(where)
        for (images,) in settings:
            pixels, engines, times = pictures(images, side, 20), [], ([], [], [])
            exact, half = (reference(model, values(pixels), t) for t in (torch.float32, torch.bfloat16))
            for regime in range(3):
                engine = Engine(lib, where, kernels, images)
                engine.poison()
                engine.run(pixels)
                error, bound = relative(engine.buffer(9, images), exact), relative(half, exact)
                verdict(error <= bound and ran_where_asked(engine),
                        f'{chosen_model}, {images} pictures, {REGIMES[regime]} ({engine.ran()}): {error:.2e} from fp32; transformers bf16 {bound:.2e}')
                engines.append(engine)
            for turn in range(9):
                for engine in random.sample(engines, 3):
                    ms = on_the_card(engine, pixels, 20)
                    if turn: times[engines.index(engine)].append(ms) # the first turn warms up
            chosen, throughput, latency = (statistics.median(t) for t in times)
            print(f'  {chosen_model}, {images} pictures: throughput {throughput:.4f} ms, latency {latency:.4f}, {throughput / latency:.2f}x; '
                  f'chosen {chosen:.4f} ({engines[0].ran()})', flush=True)
            for engine in engines: engine.close()
    regime = asked


def peer(lib, kernels, where, settings):
    """transformers in bf16 with scaled_dot_product_attention, uint8 pixels on the card, as a CUDA graph: what is there without writing a line of one's own."""
    model = make_model(where, **MODELS[chosen_model])
    flops, model = flops_of(model), model.to(torch.bfloat16)
    for (images,) in settings:
        pixels = pictures(images, side_of(chosen_model), 20)
        run = lambda: model(pixel_values=normalised(pixels).bfloat16()).pooler_output
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3): run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph): run()
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(30)]
        for a, b in pairs: a.record(); graph.replay(); b.record()
        torch.cuda.synchronize()
        ms = sorted(a.elapsed_time(b) for a, b in pairs)[15]
        print(f'{chosen_model} peer B={images:4d} transformers bf16, {model.config._attn_implementation}, CUDA graph: {ms:8.3f} ms {images / ms * 1e3:8.0f} img/s {images * flops / ms / 1e9:6.0f} TFLOP/s', flush=True)


def profile(lib, kernels, where, settings):
    """Where math warpgroups spend their clocks, by kind of operation; for kernels built to count."""
    make_model(where)
    for images, group, lanes in settings:
        engine = Engine(lib, where, kernels, images, group, lanes)
        pixels = pictures(images, 224, 1)
        words = (ctypes.c_uint64 * 4096)()
        engine.run(pixels)
        lib.harness_profile(engine.h, words, 4096)
        engine.run(pixels)
        lib.harness_profile(engine.h, words, 4096)
        total = {}
        for op in range(lib.harness_ops(engine.h)):
            key = lib.harness_label(engine.h, op).decode() + f' {lib.harness_width(engine.h, op)}'
            row = total.setdefault(key, [0] * 7)
            for i in range(7): row[i] += words[op * 8 + i]
        print(f'B={images} group {group} lanes {lanes}: tiles x warpgroups, then clocks a tile: whole, waiting for stages, for chunks, main loop, idle before, waiting for the first four stages')
        for key, row in total.items():
            if row[0]: print(f'  {key:20s} {row[0]:8d}' + ''.join(f'{row[i] / row[0]:9.0f}' for i in range(1, 7)) + f'   share {100 * (row[1] + row[5]) / sum(r[1] + r[5] for r in total.values()):5.1f}%', flush=True)
        engine.close()


if __name__ == '__main__':
    library, kernels, what = load(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with tempfile.TemporaryDirectory() as where:
        for word in what:
            if word in REGIMES:
                regime = REGIMES.index(word)
            elif word.startswith('model='):
                chosen_model, _, layers = word[6:].partition('/')
                if layers: MODELS[word[6:]] = dict(MODELS[chosen_model], num_hidden_layers=int(layers))
                chosen_model = word[6:]
            elif '=' in word:
                {'time': timed, 'profile': profile, 'ladder': ladder, 'peer': peer, 'regimes': regimes}[word.split('=')[0]](library, kernels, where, [tuple(int(x) for x in part.split('/')) for part in word.split('=')[1].split(',')])
            else:
                globals()[word](library, kernels, where)
    print(f'{len(failures)} failures', flush=True)
    sys.exit(1 if failures else 0)

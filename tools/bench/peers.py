"""Towers beside the strongest PyTorch we can write, A B A B in one process on one card, through the public API: pixels on the card to rows
on the card.
usage: MEGAVIT_LIBRARY=build/cuda/libmegavit.so peers.py [--warm] PART...    with tests/gpu, and lean.py and common.py of the peers, on
PYTHONPATH. Parts: sizes (30 pictures of 30 sizes), attention:LIBHARNESS:FATBIN, and the names of QWEN and SIGLIP below;
--warm: only compiles the peers of these parts, into PyTorch's cache on disk; --beside=FATBIN: other kernels of ours take turns, too, and
the last columns are their times; --alone: no peers.

The peer: fused QKV, cuDNN's attention or the better of PyTorch's others, blocks by torch.compile, all of an encode in one CUDA graph, with
patches, positions, mergers and DeepStack as ours has them. A block takes the sum of the one before along, so that it is added where the
norm reads it. Of 30 sizes it pads to the three budgets that cost it least, without masks, from patches that are cut out already, one graph
a budget. A segment is 0.15 s; up to three pictures call and wait each, more back to back (ours: two engines in turns); the ratio is the
median of five pairs."""
import ctypes, itertools, math, pathlib, statistics, sys, tempfile, time, traceback
arguments, sys.argv = sys.argv, ['lean.py']
import torch, torch.nn as nn, torch.nn.functional as F
import lean
from lean import Lin, bf, rot
import check, towers
from towers import megavit
from torch.nn.attention import sdpa_kernel, SDPBackend

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
PAIRS, SECONDS = 5, 0.15
torch.set_grad_enabled(False)
only_warm = '--warm' in arguments
alone = '--alone' in arguments
beside = [a.partition('=')[2] for a in arguments if a.startswith('--beside=')]


def gated_silu(u): gate, up = u.chunk(2, -1); return F.silu(gate) * up
def gelu_tanh(u): return F.gelu(u, approximate='tanh')
def quick_gelu(u): return u * torch.sigmoid(1.702 * u)


class Block(lean.Block):
    """x + the block before's last sum, then attention and the MLP, whose sum is left to the next block."""
    def __init__(self, width, mlp, heads, activation=gelu_tanh, **shape):
        super().__init__(width, mlp, heads, gated=activation is gated_silu, **shape)
        self.activation = activation
    def forward(self, x, y, c, s):
        x = x + y
        B, N, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, N, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        if self.rope: q, k = rot(q, c, s).to(bf), rot(k, c, s).to(bf)
        if self.win:
            f = lambda t: t.view(self.h, N // self.win, self.win, -1).transpose(0, 1)
            a = F.scaled_dot_product_attention(f(q), f(k), f(v)).transpose(0, 1).reshape(B, self.h, N, -1)
        else: a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.o(a.transpose(1, 2).reshape(B, N, d))
        u = self.up(self.n2(x))
        return x, self.down(self.activation(u))


class Cut(nn.Module):
    """Pixels or rows of patches to the stream."""
    def __init__(self, width, patch, merge, frames, grid):
        super().__init__(); self.p, self.m, self.f, self.grid = patch, merge, frames, grid
        self.k = (3 * frames * patch * patch + 15) // 16 * 16
        self.pe, self.pos = Lin(self.k, width), nn.Buffer(torch.randn(grid[0] * grid[1], width, device='cuda', dtype=bf))
    def forward(self, pixels):
        h, w = self.grid; p, m = self.p, self.m
        if pixels.shape[-1] == 3: # uint8 [B, H, W, 3], else [B, patches, 3, pixels]
            pixels = pixels[:, :h * p, :w * p].reshape(-1, h // m, m, p, w // m, m, p, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)
            pixels = pixels.reshape(-1, h * w, 3, p * p)
        x = (pixels.to(bf) - 127.5) * (1 / 127.5)
        if self.f == 2: x = x.unsqueeze(3).expand(-1, -1, -1, 2, -1)
        x = x.reshape(x.shape[0], h * w, -1)
        if x.shape[2] < self.k: x = F.pad(x, (0, self.k - x.shape[2]))
        return self.pe(x) + self.pos


class Merger(nn.Module):
    def __init__(self, width, out, before, rms):
        super().__init__(); self.w, self.before = 4 * width, before
        self.norm = (nn.RMSNorm if rms else nn.LayerNorm)(width if before else 4 * width, device='cuda', dtype=bf)
        self.a, self.b = Lin(4 * width, 4 * width), Lin(4 * width, out)
    def forward(self, x, y):
        x = x + y
        x = self.norm(x).reshape(x.shape[0], -1, self.w) if self.before else self.norm(x.reshape(x.shape[0], -1, self.w))
        return self.b(F.gelu(self.a(x)))


class Head(nn.Module):
    def __init__(self, width, mlp, heads):
        super().__init__(); self.d, self.h = width, heads
        self.ln, self.hl = nn.LayerNorm(width, device='cuda', dtype=bf), nn.LayerNorm(width, device='cuda', dtype=bf)
        self.kv, self.po = Lin(width, 2 * width), Lin(width, width)
        self.q = nn.Buffer(torch.randn(1, heads, 1, width // heads, device='cuda', dtype=bf))
        self.u, self.dn = Lin(width, mlp), Lin(mlp, width)
    def forward(self, x, y):
        x = x + y
        k, v = self.kv(self.ln(x)).view(x.shape[0], x.shape[1], 2, self.h, self.d // self.h).permute(2, 0, 3, 1, 4)
        a = self.po(F.scaled_dot_product_attention(self.q.expand(x.shape[0], -1, -1, -1), k, v).reshape(x.shape[0], self.d))
        return a + self.dn(F.gelu(self.u(self.hl(a)), approximate='tanh'))


QWEN = {  # width, MLP, heads, layers, patch, out, DeepStack behind these layers, window, layers of full attention, activation
    'qwen3-2b': (1024, 4096, 16, 24, 16, 2048, (5, 11, 17), 0, (), gelu_tanh),
    'qwen3-8b': (1152, 4304, 16, 27, 16, 4096, (8, 16, 24), 0, (), gelu_tanh),
    'qwen3-wide': (1024, 4096, 8, 24, 16, 2048, (5, 11, 17), 0, (), gelu_tanh), # heads of 128
    'qwen3.5-0.8b': (768, 3072, 12, 12, 16, 1024, (), 0, (), gelu_tanh),
    'qwen2-7b': (1280, 5120, 16, 32, 14, 3584, (), 0, (), quick_gelu),
    'qwen2.5-7b': (1280, 3420, 16, 32, 14, 3584, (), 64, (7, 15, 23, 31), gated_silu)}
SIGLIP = {  # width, MLP, heads, layers, pixels, patch
    'base-224': (768, 3072, 12, 12, 224, 16), 'base-512': (768, 3072, 12, 12, 512, 16), 'so400m-224': (1152, 4304, 16, 27, 224, 14),
    'so400m-384': (1152, 4304, 16, 27, 384, 14), 'large-256': (1024, 4096, 16, 24, 256, 16)}


class Peer:
    """A tower as one CUDA graph over a static input."""
    def __init__(self, name, example, grid, layers=None):
        torch._dynamo.reset()
        build = lambda m: torch.compile(m, dynamic=False)
        self.input = example
        if name in QWEN:
            width, mlp, heads, depth, patch, out, deep, window, full, activation = QWEN[name]
            rms = activation is gated_silu
            self.cut = build(Cut(width, patch, 2, 2, grid))
            windows = [0 if i in full else window for i in range(depth)]
            self.blocks = [build(Block(width, mlp, heads, activation, rope=True, win=w)) for w in windows]
            self.deep = {at: build(Merger(width, out, False, rms)) for at in deep}
            self.end = build(Merger(width, out, True, rms))
            n = grid[0] * grid[1]
            self.angles = [torch.randn(n, width // heads, device='cuda', dtype=bf) for _ in range(2)]
            self.order = self.back = None
            if window: # merged tokens of a window side by side, and back
                self.back = torch.randperm(n // 4, device='cuda')
                self.order = (torch.argsort(self.back)[:, None] * 4 + torch.arange(4, device='cuda')).reshape(-1)
        else:
            width, mlp, heads, depth, pixels, patch = SIGLIP[name]
            self.cut, self.deep, self.angles, self.order = build(Cut(width, patch, 1, 1, grid)), {}, [None, None], None
            self.blocks, self.end = [build(Block(width, mlp, heads)) for _ in range(depth)], build(Head(width, mlp, heads))
        with sdpa_kernel(BACKENDS, set_priority=True):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(1 if only_warm else 3): self.run()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            if only_warm: return
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph): self.rows = self.run()
        assert all(torch.isfinite(r).all() for r in self.rows)

    def run(self):
        x = self.cut(self.input)
        if self.order is not None: x = x[:, self.order]
        y, rows = torch.zeros_like(x), []
        for i, block in enumerate(self.blocks):
            x, y = block(x, y, *self.angles)
            if i in self.deep: rows.append(self.deep[i](x, y))
        out = self.end(x, y)
        return [out[:, self.back] if self.order is not None else out, *rows]

    def launch(self): self.graph.replay()


def segment(call, wait):
    """Median milliseconds of a call by CUDA events."""
    pairs, start = [], time.perf_counter()
    while len(pairs) < 3 or time.perf_counter() - start < SECONDS:
        for _ in range(1 if wait else 4):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(); call(); b.record()
            pairs.append((a, b))
        torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)


def pairs(what, ours, theirs, wait, note='', others=()):
    """All sides in turns; prints the line. others: the same of other kernels, if any."""
    sides = [ours, theirs, *others]
    for _ in range(3):
        for side in sides: side(); torch.cuda.synchronize()
    times = [[segment(side, wait) for side in sides] for _ in range(PAIRS)]
    middle = lambda f: statistics.median(f(t) for t in times)
    other = ''.join(f' {middle(lambda t: t[i]):.3f}, {100 * middle(lambda t: t[i] / t[0] - 1):+.1f}% |' for i in range(2, len(sides)))
    ratio = middle(lambda t: t[1] / t[0])
    print(f'| {what} | {middle(lambda t: t[0]):.3f} | {middle(lambda t: t[1]):.3f} | **{ratio:.2f}** | {note} |{other}', flush=True)


def turns(calls):
    number = itertools.count()
    return lambda: calls[next(number) % len(calls)]()


def save(model, directory):
    """The weights rounded to bf16, as checkpoints are, in the model and in its file."""
    for p in model.parameters(): p.copy_(p.to(bf))
    model.to(bf).save_pretrained(directory)
    model.float()


def engine_of(model, **limits): return megavit.Engine(model, backend='cuda', threads=16, **limits)
def engines_beside(model, **limits): return [engine_of(model, kernels=pathlib.Path(f).read_bytes(), **limits) for f in beside]


def qwen(name, sides=(16, 32, 64, 128), sizes=False):
    width, mlp, heads, depth, patch, out, deep, window, full, activation = QWEN[name]
    outputs = [('tokens', 0)] + [('deepstack', i) for i in range(len(deep))]
    if only_warm:
        for side in sides:
            Peer(name, torch.zeros(1, side * patch, side * patch, 3, device='cuda', dtype=torch.uint8), (side, side))
        if sizes: padded(name, None, True)
        return
    with tempfile.TemporaryDirectory() as where:
        model = towers.make(name, pathlib.Path(where), None, 'cuda')
        save(model, where)
        opened = megavit.Model(where)
        if sizes: padded(name, opened, False, model)
        limits = dict(max_images=1, max_tokens=max((s * s for s in sides), default=0))
        engine, more = (engine_of(opened, **limits), engines_beside(opened, **limits)) if sides else (None, [])
        for side in sides:
            try:
                pixels = torch.from_numpy(towers.picture(side, side, patch, 1)).cuda()
                encode = towers.Prepared(engine, [pixels], outputs)
                peer = encode if alone else Peer(name, pixels[None].contiguous(), (side, side))
                encode.launch(); engine.wait()
                want = towers.reference(name, model, [pixels.cpu().numpy()], torch.float32)[0]
                error, bound = towers.off(encode.rows[0].cpu(), want), ''
                if side == sides[0]:
                    half = towers.reference(name, model, [pixels.cpu().numpy()], bf)[0]
                    bound = f'; transformers bf16 {towers.off(half, want):.1e}'
                assert error < 0.03, error
                others = [towers.Prepared(e, [pixels], outputs) for e in more]
                for other in others:
                    other.launch(); other.engine.wait()
                    off = towers.off(other.rows[0].cpu(), want)
                    assert off < 0.03, off
                    bound += '; others ' + ('the same bits' if torch.equal(other.rows[0], encode.rows[0]) else f'{off:.1e}')
                pairs(f'{name} {side * side} patches', encode.launch, peer.launch, True, f'tokens {error:.1e} from fp32{bound}',
                      [o.launch for o in others])
                del peer
            except Exception: traceback.print_exc(); print(f'| {name} {side * side} | failed |', flush=True)
            torch.cuda.empty_cache()


def thirty():
    """Patches down and across of 30 pictures, all different, sides of 224 to 1,344 px."""
    state, found = 12345, []
    while len(found) < 30:
        side = []
        for _ in range(2):
            state = (state * 1103515245 + 12345) % 2**31
            side.append(14 + (state >> 12) % 36 * 2)
        if tuple(side) not in found: found.append(tuple(side))
    return found


def padded(name, opened, warm, model=None):
    width, mlp, heads, depth, patch, out, deep, window, full, activation = QWEN[name]
    grids = sorted(thirty(), key=lambda g: g[0] * g[1])
    tokens = [h * w for h, w in grids]
    cost = lambda n: n * (4 * width * width + 2 * width * mlp) + 2 * n * n * width
    total = lambda cut: sum(cost(tokens[next(c for c in cut if c >= i)]) for i in range(30))
    cut = min(((a, b, 29) for a in range(28) for b in range(a + 1, 29)), key=total)
    budgets = [(tokens[c], c - before) for before, c in zip((-1, *cut), cut)]
    peers = []
    for budget, count in budgets: # budgets are multiples of four; one row of patches as good as any grid
        rows = torch.randint(0, 256, (count, budget, 3, patch * patch), device='cuda', dtype=torch.uint8)
        peers.append(Peer(name, rows, (2, budget // 2)))
    if warm: return
    pixels = [torch.from_numpy(towers.picture(h, w, patch, i)).cuda() for i, (h, w) in enumerate(grids)]
    outputs = [('tokens', 0)] + [('deepstack', i) for i in range(len(deep))]
    limits = dict(max_images=30, max_tokens=sum(tokens))
    engines = [engine_of(opened, **limits) for _ in range(2)]
    encodes = [towers.Prepared(engine, pixels, outputs) for engine in engines]
    for encode in encodes: encode.launch()
    for engine in engines: engine.wait()
    want = [towers.reference(name, model, [pixels[i].cpu().numpy()], torch.float32)[0] for i in (0, 15, 29)]
    got = [encodes[0].rows[0][sum(tokens[:i]) // 4:sum(tokens[:i + 1]) // 4].cpu() for i in (0, 15, 29)]
    error = max(towers.off(g, w) for g, w in zip(got, want))
    assert error < 0.03, error
    def theirs():
        for peer in peers: peer.launch()
    more = [e for _ in range(2) for e in engines_beside(opened, **limits)]
    others = [turns([towers.Prepared(e, pixels, outputs).launch for e in more])] if more else []
    pairs(f'{name}, 30 sizes, {sum(tokens)} patches', turns([e.launch for e in encodes]), theirs, False,
          f'tokens {error:.1e} from fp32; padded to {" + ".join("%d x %d" % (n, b) for b, n in budgets)}', others)


def siglip(name, batches=(1, 3, 8)):
    width, mlp, heads, depth, side, patch = SIGLIP[name]
    grid = (side // patch, side // patch)
    pictures = {b: check.pictures(b, side, b) for b in batches}
    if only_warm:
        for b in batches: Peer(name, pictures[b], grid)
        return
    with tempfile.TemporaryDirectory() as where:
        model = check.make_model(where, **check.MODELS[name])
        save(model, where)
        opened = megavit.Model(where)
        engines = [engine_of(opened, max_images=max(batches)) for _ in range(2)]
        for b in batches:
            try:
                encodes = [towers.Prepared(engine, list(pictures[b]), [('pooled', 0)]) for engine in engines]
                peer = Peer(name, pictures[b], grid)
                encodes[0].launch(); engines[0].wait()
                want = check.reference(model, check.normalised(pictures[b]), torch.float32)
                error = check.relative(encodes[0].rows[0], want)
                assert error < 0.02, error
                calls = [e.launch for e in encodes]
                ours = turns(calls) if b > 3 else calls[0]
                pairs(f'{name}, {b} picture{"s" if b > 1 else ""}', ours, peer.launch, b <= 3, f'rows {error:.1e} from fp32')
                for engine in engines: engine.wait()
                del peer
            except Exception: traceback.print_exc(); print(f'| {name} {b} | failed |', flush=True)
            torch.cuda.empty_cache()


class Alone:
    """The first layer's attention of a tower alone, over what the layer gave it: harness.c."""
    def __init__(self, lib, where, kernels, pixels, side, n, rows):
        message = ctypes.create_string_buffer(1024)
        self.lib, self.stream = lib, torch.cuda.current_stream().cuda_stream
        self.h = lib.harness_alone(where.encode(), kernels.encode(), pixels.data_ptr(), side, side, n, rows.data_ptr(), rows.numel(),
                                   message)
        if not self.h: raise RuntimeError(message.value.decode())

    def launch(self): self.lib.harness_alone_launch(self.h, self.stream)

    def read(self, buffer, tensor):
        torch.cuda.synchronize()
        self.lib.harness_copy(tensor.data_ptr(), self.lib.harness_alone_buffer(self.h, buffer), tensor.numel() * 2)
        return tensor

    def error(self, qkv, heads, d):
        """Of the first and the last head's rows, from float64, after a launch over NaN."""
        n, parts = qkv.shape[0], []
        got = torch.full((n, heads * d), float('nan'), device='cuda', dtype=bf)
        torch.cuda.synchronize()
        self.lib.harness_copy(self.lib.harness_alone_buffer(self.h, 3), got.data_ptr(), got.numel() * 2)
        self.launch()
        self.read(3, got)
        if self.lib.harness_alone_verdict(self.h): raise RuntimeError('a launch gave up')
        for head in (0, heads - 1):
            q, k, v = (qkv.view(n, 3, heads, d)[:, i, head].double() for i in range(3))
            parts.append(towers.off(got[:, head * d:head * d + d], (q @ k.T * math.log(2)).softmax(-1) @ v))
        return max(parts)


def attention(library, kernels, sides=(64, 128)):
    """Alone, beside SDPA on the same rows, strided as a fused QKV leaves them or not, whatever is fastest."""
    lib, P, U, S = ctypes.CDLL(library), ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p
    lib.harness_alone.restype = lib.harness_alone_buffer.restype = P
    lib.harness_alone.argtypes = [S, S, P, U, U, U, P, ctypes.c_uint64, S]
    lib.harness_alone_launch.argtypes, lib.harness_alone_buffer.argtypes = [P, P], [P, U]
    lib.harness_alone_verdict.argtypes = lib.harness_alone_close.argtypes = [P]
    lib.harness_copy.argtypes = [P, P, ctypes.c_uint64]
    for name in QWEN:
        width, mlp, heads, depth, patch, out, deep, window, full, activation = QWEN[name]
        with tempfile.TemporaryDirectory() as where:
            model = towers.make(name, pathlib.Path(where), 1, 'cuda')
            save(model, where)
            del model
            for side in sides:
                n, d = side * side, width // heads
                pixels = torch.from_numpy(towers.picture(side, side, patch, 1)).cuda()
                rows = torch.empty(n // 4, out, device='cuda')
                sides_of_ours = [Alone(lib, where, k, pixels, side * patch, n, rows) for k in (kernels, *beside)]
                qkv = sides_of_ours[0].read(2, torch.empty(n, 3 * width, device='cuda', dtype=bf))
                errors = [a.error(a.read(2, torch.empty_like(qkv)), heads, d) for a in sides_of_ours]
                assert max(errors) < 0.01, errors
                q, k, v = qkv.view(1, n, 3, heads, d).permute(2, 0, 3, 1, 4)
                ways = {}
                for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
                    for strided in (True, False):
                        t = [q, k, v] if strided else [x.contiguous() for x in (q, k, v)]
                        def theirs(t=t, backend=backend):
                            with sdpa_kernel(backend): F.scaled_dot_product_attention(*t, scale=math.log(2))
                        try: theirs(); torch.cuda.synchronize()
                        except RuntimeError: continue
                        ways[(backend.name, strided)] = (min(segment(theirs, False) for _ in range(2)), theirs)
                best = min(ways, key=lambda w: ways[w][0])
                peers = ', '.join('%s%s %.3f' % (w[0].split('_')[0], ' strided' if w[1] else '', ways[w][0]) for w in ways)
                pairs(f'attention, {n} tokens, head_dim {d}', sides_of_ours[0].launch, ways[best][1], False,
                      f'{max(errors):.1e} from float64; {4 * n * n * width / 1e9:.0f} GFLOP; peers {peers}',
                      [a.launch for a in sides_of_ours[1:]])
                for a in sides_of_ours: lib.harness_alone_close(a.h)


for part in arguments[1:]:
    if part.startswith('--'): continue
    start = time.perf_counter()
    try:
        if part == 'sizes': qwen('qwen3-2b', (), True)
        elif part.startswith('attention:'): attention(*part.split(':')[1:])
        elif part in QWEN: qwen(part)
        else: siglip(part)
    except Exception: traceback.print_exc(); print(f'| {part} | failed |', flush=True)
    print(f'# {part}: {time.perf_counter() - start:.0f} s', file=sys.stderr, flush=True)

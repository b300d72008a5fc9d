"""Times builds of the library beside each other on towers for pictures of any size, where tokens are few: K of the MLP's end shared out
over clusters (kernels/NOTES.md), against a build of the same header that does not, with the same kernels.
usage: PYTHONPATH=tests/gpu few_tokens.py [--rounds N] [--layers N] NAME=LIBRARY... [--towers qwen3-2b,qwen2.5-7b,...]

    make lib CUDA=/usr/local/cuda BUILD=build/cuda
    mkdir -p build/whole; cp build/cuda/megavit.fatbin build/whole
    sed 's/SHARES_TOKENS = 512/SHARES_TOKENS = 1/' megavit.h >build/whole/megavit.h
    make lib CUDA=/usr/local/cuda BUILD=build/whole CFLAGS='-O2 -Ibuild/whole'
    PYTHONPATH=tests/gpu python3 tools/bench/few_tokens.py whole=build/whole/libmegavit.so shared=build/cuda/libmegavit.so

Likewise the two regimes, of which either is forced upon the plan:

    for regime in 1 2; do
        mkdir -p build/regime$regime; cp build/cuda/megavit.fatbin build/regime$regime
        sed "s/plan->forced_regime = desc->regime/plan->forced_regime = $regime/" megavit.h >build/regime$regime/megavit.h
        make lib CUDA=/usr/local/cuda BUILD=build/regime$regime CFLAGS="-O2 -Ibuild/regime$regime"
    done
    PYTHONPATH=tests/gpu python3 tools/bench/few_tokens.py throughput=build/regime1/libmegavit.so latency=build/regime2/libmegavit.so

Each build has two engines, since where an engine's memory lies is worth up to 3%. All take turns in random order. A round is one segment of
each engine: the percentage is the median over rounds of a build's mean beside the first build's in the same round. Two times of an encode:
on the card by events, and on the clock, call and wait each. Rows are held against fp32 first, transformers' bf16 beside them."""
import argparse, importlib.util, os, pathlib, random, statistics, sys, tempfile, time
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOWERS = ('qwen3-2b', 'qwen3-8b', 'qwen2.5-7b', 'naflex-base')
BATCHES = '16x16 8x8 32x32 8x8,8x8,8x8,8x8 16x16,16x16,16x16,16x16 10x12,6x6,4x12,8x6'


def load(name, path, library):
    """A module of its own for each library."""
    if library: os.environ['MEGAVIT_LIBRARY'] = str(pathlib.Path(library).resolve())
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Build:
    def __init__(self, said):
        self.name, _, self.library = said.partition('=')
        sys.modules['megavit'] = load('megavit', ROOT / 'examples/python/megavit.py', self.library)
        self.towers = load('towers_' + self.name, ROOT / 'tests/gpu/towers.py', None)

    def open(self, place, pictures, outputs):
        megavit, tokens = self.towers.megavit, sum(p.shape[0] * p.shape[1] for p in pictures) // 14 ** 2 + 64
        self.model = megavit.Model(place)
        self.encodes = []
        for _ in range(2):
            engine = megavit.Engine(self.model, backend='cuda', max_images=len(pictures), max_tokens=tokens, threads=8)
            self.encodes.append(self.towers.Prepared(engine, pictures, outputs))
        self.events, self.walls = [], []

    def close(self): del self.model, self.encodes


def on_the_card(encode, count):
    """The median; the card is kept at work while the host prepares a launch, which then waits for nothing but the card."""
    took = []
    for _ in range(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        encode.engine.wait()
        torch.cuda._sleep(500_000)
        begin.record()
        encode.launch()
        end.record()
        encode.engine.wait()
        torch.cuda.synchronize()
        took.append(begin.elapsed_time(end))
    return statistics.median(took)


def on_the_clock(encode, count):
    start = time.perf_counter()
    for _ in range(count):
        encode.launch()
        encode.engine.wait()
    return (time.perf_counter() - start) / count * 1e3


def measure(builds, rounds):
    for turn in range(rounds + 1):
        for build, i in random.sample([(b, i) for b in builds for i in range(2)], 2 * len(builds)):
            card, clock = on_the_card(build.encodes[i], 40), on_the_clock(build.encodes[i], 40)
            if turn: # the first round warms up
                build.events.append(card)
                build.walls.append(clock)
    mean = lambda times, turn: (times[2 * turn] + times[2 * turn + 1]) / 2 # a build's two engines have run in every round
    beside = lambda mine, base: 100 * (statistics.median(mean(mine, t) / mean(base, t) for t in range(rounds)) - 1)
    for build in builds:
        print(f'  {build.name:10s} {statistics.median(build.events):8.4f} ms {beside(build.events, builds[0].events):+6.2f}%   '
              f'call and wait {statistics.median(build.walls):8.4f} ms {beside(build.walls, builds[0].walls):+6.2f}%   '
              f'{build.error:.2e} from fp32', flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--rounds', type=int, default=8)
    parser.add_argument('--layers', type=int)
    parser.add_argument('--towers', default=','.join(TOWERS))
    parser.add_argument('--batches', default=BATCHES, help='patches down and across of the pictures of each encode')
    parser.add_argument('builds', nargs='+')
    o = parser.parse_args()
    torch.set_grad_enabled(False)
    builds, right = [Build(b) for b in o.builds], True
    towers = builds[0].towers
    for name in o.towers.split(','):
        patch = towers.MODELS[name][3]
        with tempfile.TemporaryDirectory() as place:
            model = towers.make(name, pathlib.Path(place), o.layers, 'cuda')
            deep = getattr(model.config, 'deepstack_visual_indexes', None) or []
            outputs = [('pooled', 0)] if name in towers.POOLED else [('tokens', 0)] + [('deepstack', i) for i in range(len(deep))]
            for batch in ([tuple(map(int, size.split('x'))) for size in batch.split(',')] for batch in o.batches.split()):
                pictures = [torch.from_numpy(towers.picture(h, w, patch, i)).cuda() for i, (h, w) in enumerate(batch)]
                on_host = [p.cpu().numpy() for p in pictures]
                want, half = (towers.reference(name, model, on_host, t)[name in towers.POOLED] for t in (torch.float32, torch.bfloat16))
                bound = towers.off(half, want)
                for build in builds:
                    build.open(place, pictures, outputs)
                    build.encodes[0].launch()
                    build.encodes[0].engine.wait()
                    build.first = build.encodes[0].rows[0].clone()
                    build.error = towers.off(build.first.cpu(), want)
                    right &= build.error <= bound
                print(f'{name}, {len(batch)} pictures, {sum(h * w for h, w in batch)} patches; transformers bf16 {bound:.2e} from fp32',
                      flush=True)
                measure(builds, o.rounds)
                for build in builds:
                    right &= all(torch.equal(encode.rows[0], build.first) for encode in build.encodes)
                    build.close()
            del model
            torch.cuda.empty_cache()
    print('rows are right' if right else 'FAIL rows are further from fp32 than transformers bf16, or not the same in each launch')
    sys.exit(0 if right else 1)


main()

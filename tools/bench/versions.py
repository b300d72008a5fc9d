"""Times several builds of the kernels in one process on one card, and compares each one's result with fp32.
usage: versions.py [--engines N] [--rounds N] [--ms MS] [--model NAME] [--layers N] [--most N] LIBRARY B[/REGIME][:ROUNDS],... NAME=FATBIN[:LIBRARY]...
with tests/gpu/check.py on PYTHONPATH; REGIME: 0 the plan's (default), 1 throughput, 2 latency; --model: one of check.MODELS;
--most: engines are made for so many images.

A build whose plan is another brings the library that it was built with. A build that stands there under two names tells the noise.
Each build has several engines, since where an engine's memory lies is worth up to 3%. All take turns in random order, so that the
card's rate, which moves by 10% in a call, is shared out evenly. A round is one segment of each engine: the percentage is the median
over rounds of a build's mean beside the first build's in the same round, with the standard error of the rounds' mean."""
import argparse, random, statistics, sys, tempfile, time
import torch
import check


def segment(engine, inputs, milliseconds):
    """Median milliseconds of an encode over back-to-back launches."""
    count = max(3, min(2000, int(milliseconds / engine.guess)))
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for i, (a, b) in enumerate(pairs):
        a.record()
        engine.launch(inputs[i % len(inputs)])
        b.record()
    torch.cuda.synchronize()
    engine.guess = statistics.median(a.elapsed_time(b) for a, b in pairs)
    return engine.guess


class Candidate:
    """An engine of one build, its result and its times, a round each."""
    def __init__(self, name, library, where, fatbin, most, inputs, exact):
        self.name, self.times, self.engine = name, [], check.Engine(library, where, fatbin, most)
        self.engine.poison()
        self.engine.run(inputs[0])
        start = time.perf_counter()
        self.engine.run(inputs[0])
        self.engine.guess = (time.perf_counter() - start) * 1e3
        self.rows = self.engine.buffer(9, inputs[0].shape[0]).clone()
        self.error = check.relative(self.rows[:8], exact)


def report(images, name, mine, base):
    """Prints a build's line. Whether its rows are right."""
    rounds = len(mine[0].times)
    ratios = [statistics.mean(x.times[r] for x in mine) / statistics.mean(x.times[r] for x in base) - 1 for r in range(rounds)]
    deviation = statistics.stdev(ratios) / rounds ** 0.5 if rounds > 1 else 0
    error, same = max(x.error for x in mine), all(torch.equal(x.rows, base[0].rows) for x in mine)
    right = all(x.error < 0.01 for x in mine)  # NaN is not
    print(f'B={images:4d} {name:16s} {mine[0].engine.ran():28s} ' + ', '.join(f'{statistics.median(x.times):.4f}' for x in mine) +
          f' ms  {100 * statistics.median(ratios):+6.2f}% +-{100 * deviation:.2f}  {"the same bits" if same else "other bits"}, '
          f'error {error:.2e}{"" if right else "  WRONG"}', flush=True)
    return right


parser = argparse.ArgumentParser()
parser.add_argument('--engines', type=int, default=2)
parser.add_argument('--rounds', type=int, default=8)
parser.add_argument('--ms', type=float, default=80)
parser.add_argument('--model', default='base-224', choices=sorted(check.MODELS))
parser.add_argument('--layers', type=int)
parser.add_argument('--most', type=int, default=0)
parser.add_argument('library')
parser.add_argument('batches')
parser.add_argument('builds', nargs='+')
given = parser.parse_args()
if given.engines < 1: parser.error('at least one engine')

builds, libraries, right = [], {}, True
for name, _, files in (x.partition('=') for x in given.builds):
    fatbin, _, library = files.partition(':')
    library = library or given.library
    if library not in libraries: libraries[library] = check.load(library)
    builds.append((name, fatbin, libraries[library]))
if len({name for name, _, _ in builds}) < len(builds): parser.error('each build has a name of its own')
config = dict(check.MODELS[given.model], **({'num_hidden_layers': given.layers} if given.layers else {}))
with tempfile.TemporaryDirectory() as where:
    model = check.make_model(where, **config)
    for batch in given.batches.split(','):
        size, _, rounds = batch.partition(':')
        images, _, regime = size.partition('/')
        images, check.regime, rounds = int(images), int(regime or 0), int(rounds or given.rounds)
        if rounds < 1: parser.error(f'{batch}: at least one round')
        inputs = [check.pictures(images, check.side_of(given.model), i) for i in range(4)]
        exact = check.reference(model, check.normalised(inputs[0][:8]), torch.float32)
        candidates = []
        for turn in range(given.engines):
            for name, fatbin, library in builds[::-1] if turn % 2 else builds:
                candidates.append(Candidate(name, library, where, fatbin, max(images, given.most), inputs, exact))
        for turn in range(rounds + 1):
            for candidate in random.sample(candidates, len(candidates)):
                ms = segment(candidate.engine, inputs, given.ms)
                if turn: candidate.times.append(ms)  # the first round warms up
        for name, _, _ in builds:
            right &= report(images, name, [x for x in candidates if x.name == name], [x for x in candidates if x.name == builds[0][0]])
        for candidate in candidates: candidate.engine.close()
sys.exit(0 if right else 1)

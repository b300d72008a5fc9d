"""Times several builds of the kernels in turns, in one process on one card, and compares each one's result with fp32.
usage: versions.py LIBRARY B[/REGIME],... NAME=FATBIN[:LIBRARY]...        with tests/gpu/check.py on PYTHONPATH; REGIME: 0 the plan's (default), 1 throughput, 2 latency
A build whose plan is another brings the library that it was built with. A build that stands there twice tells the noise."""
import statistics, sys, tempfile, time
import torch
import check

ROUNDS, MILLISECONDS = 5, 150


def segment(engine, inputs):
    """Median milliseconds of an encode over back-to-back launches."""
    count = max(3, min(400, int(MILLISECONDS / engine.guess)))
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    for i, (a, b) in enumerate(pairs):
        a.record(); engine.launch(inputs[i % len(inputs)]); b.record()
    torch.cuda.synchronize()
    engine.guess = statistics.median(a.elapsed_time(b) for a, b in pairs)
    return engine.guess


batches, builds = sys.argv[2].split(','), []
for name, _, files in (x.partition('=') for x in sys.argv[3:]):
    fatbin, _, library = files.partition(':')
    builds.append((name, fatbin, check.load(library or sys.argv[1])))
with tempfile.TemporaryDirectory() as where:
    model = check.make_model(where)
    for batch in batches:
        images, _, regime = batch.partition('/')
        images, check.regime = int(images), int(regime or 0)
        inputs = [check.pictures(images, 224, i) for i in range(4)]
        exact = check.reference(model, check.normalised(inputs[0][:8]), torch.float32)
        engines = []
        for name, fatbin, library in builds:
            engine = check.Engine(library, where, fatbin, images)
            engine.poison()
            engine.run(inputs[0])
            start = time.perf_counter()
            engine.run(inputs[0])
            engine.guess = (time.perf_counter() - start) * 1e3
            error = check.relative(engine.buffer(9, images)[:8], exact)
            engines.append((name, engine, error, []))
        for turn in range(ROUNDS + 1):
            for name, engine, error, times in engines:
                ms = segment(engine, inputs)
                if turn: times.append(ms)  # the first round warms up
        first = statistics.median(engines[0][3])
        for name, engine, error, times in engines:
            ms = statistics.median(times)
            print(f'B={images:4d} {name:16s} {engine.ran():28s} {ms:8.4f} ms  x{ms / first:.4f}  spread {min(times):.4f}..{max(times):.4f}  error {error:.2e}{"" if error < 0.01 else "  WRONG"}', flush=True)
            engine.close()

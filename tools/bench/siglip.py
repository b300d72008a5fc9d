"""SigLIP2-base/16, 224 px, on one GPU: megavit's kernel beside the strongest PyTorch we can write, A B A B in one process on one card.
usage: siglip.py LIBRARY FATBIN [1,8,64,592]    with tests/gpu/check.py, and lean.py and common.py of the peers, on PYTHONPATH"""
import statistics, sys, tempfile, time
import pynvml, torch
arguments, sys.argv = sys.argv, ['lean.py']
import lean
from torch.nn.attention import sdpa_kernel, SDPBackend
from check import Engine, load, make_model, normalised, pictures, reference, relative

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
PAIRS, SECONDS = 5, 0.5
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)


def segment(call):
    """Median milliseconds of a call by CUDA events, and joules a call, over SECONDS of back-to-back calls."""
    start, joules, pairs = time.perf_counter(), pynvml.nvmlDeviceGetTotalEnergyConsumption(card), []
    while time.perf_counter() - start < SECONDS:
        for _ in range(10):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(); call(); b.record()
            pairs.append((a, b))
        torch.cuda.synchronize()
    joules = (pynvml.nvmlDeviceGetTotalEnergyConsumption(card) - joules) / 1e3
    return statistics.median(a.elapsed_time(b) for a, b in pairs), joules / len(pairs)


def wall(call, count=60):
    """Median microseconds of a call."""
    times = []
    for _ in range(count):
        start = time.perf_counter(); call()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


library = load(arguments[1])
print(torch.cuda.get_device_name(0), 'driver', pynvml.nvmlSystemGetDriverVersion(), 'torch', torch.__version__, flush=True)
print('| B | megavit ms | img/s | TFLOP/s | mJ/img | wall us | lean ms | img/s | mJ/img | wall us | ratio (median of pairs) | error against fp32 |')
print('|---|---|---|---|---|---|---|---|---|---|---|---|')
with tempfile.TemporaryDirectory() as where:
    model = make_model(where)
    peer = torch.compile(lean.Siglip(False), mode='reduce-overhead', dynamic=False)
    for images in [int(x) for x in (arguments[3] if len(arguments) > 3 else '1,8,64,592').split(',')]:
        inputs, turn = [pictures(images, 224, i) for i in range(4)], [0]
        engine = Engine(library, where, arguments[2], images)

        def ours(): turn[0] += 1; engine.launch(inputs[turn[0] % 4])
        def theirs(): turn[0] += 1; return peer(inputs[turn[0] % 4])
        with sdpa_kernel(BACKENDS, set_priority=True):
            for _ in range(8): ours(); theirs()
            torch.cuda.synchronize()
            a, b = [], []
            for _ in range(PAIRS): a.append(segment(ours)); b.append(segment(theirs))
            rows = torch.empty(images, model.config.hidden_size)
            host = library.harness_wall(where.encode(), arguments[2].encode(), images, inputs[0].data_ptr(), 60, rows.data_ptr(), rows.numel(), engine.message)
            peer_host = wall(lambda: theirs().cpu())
        assert relative(rows[:8], reference(model, normalised(inputs[0][:8]), torch.float32).cpu()) < 0.01  # those of the wall time
        engine.run(inputs[0])
        error = relative(engine.buffer(9, images)[:8], reference(model, normalised(inputs[0][:8]), torch.float32))
        assert error < 0.01
        mine, other = statistics.median(x[0] for x in a), statistics.median(x[0] for x in b)
        ratio = statistics.median(y[0] / x[0] for x, y in zip(a, b))
        energy, other_energy = (statistics.median(x[1] for x in s) / images * 1e3 for s in (a, b))
        print(f'| {images} | {mine:.3f} | {images / mine * 1e3:.0f} | {images * 35.42 / mine:.0f} | {energy:.1f} | {host:.0f} | {other:.3f} | {images / other * 1e3:.0f} | '
              f'{other_energy:.1f} | {peer_host:.0f} | {ratio:.2f} | {error:.1e} |', flush=True)
        engine.close()

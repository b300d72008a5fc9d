"""What each idea of the kernel gives: the same kernel without it, in turns with the kernel as it is, on one card. Bits must stay the same.
usage: ablations.py LIBRARY FATBIN [1,8,64,592]    with tests/gpu/check.py on PYTHONPATH
There is no kernel without the fold of the norms into the weights. What norms as operations of their own would cost is measured by one half of them:
a layer output before each QKV, which reads the stream, writes as many rows (as float32: twice the bytes) and is waited for by the QKV.
All in the throughput regime, which alone has these flags and outputs."""
import statistics, sys, tempfile, time
import torch
import check
from check import Engine, load, make_model, pictures

WAIT_FIRST, WAIT_ALL = 64, 128  # MGV__KERNEL_WAIT_* in megavit.h
ROUNDS, SECONDS = 5, 0.06


class Variant:
    """One way to run an engine's list. Several share an engine and take turns."""
    def __init__(self, name, engine, pixels, flags=0, chain=False):
        self.name, self.engine, self.pixels, self.flags, self.times, self.chain = name, engine, pixels, flags, [], None
        self.prepare()
        if chain:
            self.chain = engine.lib.harness_chain(engine.h, pixels.shape[0], pixels.data_ptr(), engine.message)
            if not self.chain: raise RuntimeError(engine.message.value.decode())

    def prepare(self):
        """The operations on the card get this variant's flags with the schedule; a graph reads them there too."""
        torch.cuda.synchronize()
        self.engine.lib.harness_ablate(self.engine.h, self.flags)
        self.engine.run(self.pixels)

    def launch(self):
        if not self.chain: self.engine.launch(self.pixels)
        elif self.engine.lib.harness_chain_launch(self.chain, torch.cuda.current_stream().cuda_stream): raise RuntimeError('launching the graph')

    def output(self):
        self.prepare()
        self.engine.poison()
        self.launch()
        torch.cuda.synchronize()
        return self.engine.buffer(9, self.pixels.shape[0])

    def segment(self):
        self.prepare()
        self.launch()
        pairs, start = [], time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            for _ in range(4):
                a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                a.record(); self.launch(); b.record()
                pairs.append((a, b))
            torch.cuda.synchronize()
        self.times.append(statistics.median(a.elapsed_time(b) for a, b in pairs))


check.regime = 1
library = load(sys.argv[1])
print(torch.cuda.get_device_name(0), 'torch', torch.__version__, flush=True)
print('| B | variant | ms | against the kernel as it is | bits |\n|---|---|---|---|---|')
with tempfile.TemporaryDirectory() as where:
    make_model(where)
    for images in [int(x) for x in (sys.argv[3] if len(sys.argv) > 3 else '1,8,64,592').split(',')]:
        pixels = pictures(images, 224, 1)
        engines = {group: Engine(library, where, sys.argv[2], images, group) for group in ((0, 13, 26, 104, 592) if images == 592 else (0,))}
        passes = Engine(library, where, sys.argv[2], images)
        passes.want_rows(range(12), torch.empty(images, 196, 768, device='cuda'))
        variants = [Variant('as it is', engines[0], pixels), Variant('weights wait too', engines[0], pixels, flags=WAIT_FIRST),
                    Variant('a barrier between operations', engines[0], pixels, flags=WAIT_ALL),
                    Variant('both', engines[0], pixels, flags=WAIT_FIRST | WAIT_ALL),
                    Variant('one launch an operation, CUDA graph', engines[0], pixels, chain=True),
                    Variant('a pass over the rows before each QKV', passes, pixels)]
        variants += [Variant(f'groups of {group}', engine, pixels) for group, engine in engines.items() if group]
        want = variants[0].output()
        same = [torch.equal(variant.output(), want) for variant in variants]
        for _ in range(ROUNDS):
            for variant in variants: variant.segment()
        for variant, equal in zip(variants, same):
            ratio = statistics.median(t / base for t, base in zip(variant.times, variants[0].times))
            print(f'| {images} | {variant.name} | {statistics.median(variant.times):.3f} | {ratio:.3f} | {"same" if equal else "OTHER"} |', flush=True)
        for variant in variants:
            if variant.chain: library.harness_chain_free(variant.chain)
        for engine in (passes, *engines.values()): engine.close()
        torch.cuda.empty_cache()

"""A folder of JPEGs to rows: what a user of PyTorch has (DataLoader with workers, Pillow, torchvision's resize, transformers in bf16) and
megavit embed, in turns, on one machine with a GPU. Both clocks run from the first file opened to the last row in host memory or file; what
comes before is told beside them. Then what a start takes, and that rows do not depend on how a folder is cut.
usage: pipeline.py MEGAVIT [--small 10000] [--large 320] [--workers CORES] [--turns 2]"""
import argparse, json, multiprocessing as mp, os, re, subprocess, sys, tempfile, threading, time
import numpy as np, torch
from PIL import Image

PROCESSOR = {'image_processor_type': 'SiglipImageProcessor', 'do_resize': True, 'resample': 2, 'do_rescale': True,
             'rescale_factor': 1 / 255, 'do_normalize': True, 'image_mean': [0.5] * 3, 'image_std': [0.5] * 3}
SHAPES = {'base': {}, 'so400m': dict(hidden_size=1152, intermediate_size=4304, num_hidden_layers=27, num_attention_heads=16, patch_size=14,
                                     image_size=384)}


def make_picture(a):
    i, w, h, d = a
    small = np.random.default_rng(i).integers(0, 256, (h // 16, w // 16, 3), dtype='uint8')
    Image.fromarray(small).resize((w, h), 3).save(f'{d}/{i:05d}.jpg', quality=88)


def make_pictures(d, w, h, count, workers):
    os.makedirs(d, exist_ok=True)
    with mp.Pool(workers) as pool: # forks: before CUDA begins
        pool.map(make_picture, [(i, w, h, d) for i in range(count)], chunksize=4)


def make_model(name):
    """Random weights in a model's shape, each matrix as large as keeps rows of their size."""
    from transformers import SiglipVisionConfig, SiglipVisionModel
    torch.manual_seed(0)
    config = SiglipVisionConfig(**SHAPES[name])
    with torch.device('cuda'):
        model = SiglipVisionModel(config)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 1: p.normal_(1.0 if 'norm' in key and key.endswith('weight') else 0.0, 0.1)
            else: p.normal_(0.0, p[0].numel() ** -0.5)
    model = model.to(torch.bfloat16).eval()
    model.save_pretrained(name)
    with open(f'{name}/preprocessor_config.json', 'w') as file:
        json.dump(dict(PROCESSOR, size={'height': config.image_size, 'width': config.image_size}), file)
    return model


class Folder(torch.utils.data.Dataset):
    def __init__(self, d):
        import torchvision.transforms.v2 as T
        self.files = sorted(f'{d}/{f}' for f in os.listdir(d))
        self.resize = T.Resize((224, 224), antialias=True)

    def __len__(self): return len(self.files)

    def __getitem__(self, i):
        return self.resize(torch.from_numpy(np.asarray(Image.open(self.files[i]).convert('RGB')).copy()).permute(2, 0, 1))


def theirs(model, d, batch, workers):
    """Seconds and rows. A worker makes whole batches."""
    rows = []
    began = time.time()
    with torch.no_grad():
        for pictures in torch.utils.data.DataLoader(Folder(d), batch, num_workers=workers, pin_memory=True):
            pixels = (pictures.cuda(non_blocking=True).to(torch.bfloat16) - 127.5) / 127.5
            rows.append(model(pixels).pooler_output)
        rows = torch.cat(rows).float().cpu().numpy()
    return time.time() - began, rows


def watch_memory(process, most):
    """The largest resident memory in MB. What wait4 says is no less than that of this process, from which the other one was forked."""
    while process.poll() is None:
        try:
            with open(f'/proc/{process.pid}/status') as file: found = re.search(r'VmHWM:\s*(\d+) kB', file.read())
        except OSError: return
        if found and os.readlink(f'/proc/{process.pid}/exe') == process.args[0]: most[0] = max(most[0], int(found[1]) / 1024)
        time.sleep(0.003)


def ours(program, model, pictures, *more):
    """What --timing says, all seconds of the process, its largest memory in MB, and rows."""
    out = tempfile.mktemp(suffix='.npy')
    began = time.time()
    process = subprocess.Popen([program, 'embed', '--model', model, '--backend', 'cuda', '--resize', 'torchvision', '--timing', '-o', out,
                                *more, *pictures], stderr=subprocess.PIPE, text=True)
    most = [0.0]
    watcher = threading.Thread(target=watch_memory, args=(process, most))
    watcher.start()
    said = process.stderr.read()
    status = process.wait()
    wall = time.time() - began
    watcher.join()
    found = re.search(r'contexts ([\d.]+) s, model beside them ([\d.]+) s, engines ([\d.]+) s, first row after ([\d.]+) s; .* last row ([\d.]+) s', said)
    if status or not found: sys.exit(f'megavit failed ({status}): {said}')
    context, opened, engines, first, last = map(float, found.groups())
    rows = np.load(out)
    os.unlink(out)
    return dict(context=context, opened=opened, engines=engines, first=first, last=last, wall=wall, memory=most[0], rows=rows)


def compare(a, b):
    a, b = a.astype('float64'), b.astype('float64')
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return f'relative L2 {np.linalg.norm(a - b) / np.linalg.norm(b):.4f}, cosine at least {cosines.min():.5f}'


def kinds(g): return ('640x480', 640, 480, g.small, 64), ('12 megapixels', 4000, 3000, g.large, 8)


def folders(g, model):
    for name, w, h, count, batch in kinds(g):
        d = name.replace(' ', '-')
        ways = [('', ())] + [(' ' + ' '.join(o), o) for o in g.options if o]
        for turn in range(g.turns):
            seconds, rows = theirs(model, d, batch, g.workers)
            print(f'{name}: DataLoader, {g.workers} workers, transformers bf16: {seconds:.2f} s, {count / seconds:.0f} pictures/s', flush=True)
            for label, options in ways:
                o = ours(g.megavit, 'base', [d], *options)
                print(f'{name}: megavit{label}: {o["last"]:.2f} s, {count / o["last"]:.0f} pictures/s, {seconds / o["last"]:.2f}x; whole '
                      f'process {o["wall"]:.2f} s; largest memory {o["memory"]:.0f} MB; {compare(o["rows"], rows)}', flush=True)


def starts(g):
    """From the first call to the first row, less the CUDA context that an empty program makes, with files in the page cache."""
    picture = ['640x480/00000.jpg']
    for name in SHAPES:
        packed = f'{name}.packed'
        subprocess.run([g.megavit, 'pack', '--model', name, '-o', packed], check=True, stdout=subprocess.DEVNULL)
        for label, more in (('', []), (' --packed', ['--packed', packed])):
            runs = [ours(g.megavit, name, picture, *more) for _ in range(4)][1:]
            best = sorted(runs, key=lambda o: o['first'] - o['context'])[1]
            print(f'start {name}{label}: {best["first"] - best["context"]:.3f} s beyond the context of {best["context"]:.3f} s (model beside it '
                  f'{best["opened"]:.3f}, engine {best["engines"]:.3f}, whole process {best["wall"]:.3f})', flush=True)


def cuts(g):
    """The same pictures in other batches, with other neighbours, by fewer threads: the same bits."""
    files = [f'640x480/{i:05d}.jpg' for i in range(min(g.small, 300))]
    whole = ours(g.megavit, 'base', files)['rows']
    for first, end, more in ((0, 1, []), (5, 12, []), (64, 101, []), (0, len(files), ['--threads', '1']), (1, len(files), [])):
        rows = ours(g.megavit, 'base', files[first:end], *more)['rows']
        same = np.array_equal(rows.view('uint32'), whole[first:end].view('uint32'))
        print(f'cut {first} to {end} {" ".join(more)}: {"the same bits" if same else "OTHER BITS"}', flush=True)


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('megavit')
    p.add_argument('--workers', type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument('--small', type=int, default=10000)
    p.add_argument('--large', type=int, default=320)
    p.add_argument('--turns', type=int, default=2)
    p.add_argument('--option', action='append', default=[], help='a further way to run megavit: --option="--devices all"')
    g = p.parse_args()
    g.megavit = os.path.abspath(g.megavit)
    g.options = [tuple(o.split()) for o in g.option]
    os.chdir(tempfile.mkdtemp())
    for name, w, h, count, batch in kinds(g): make_pictures(name.replace(' ', '-'), w, h, count, g.workers)
    print(torch.cuda.get_device_name(0), 'torch', torch.__version__, f'{g.workers} cores', flush=True)
    model = make_model('base')
    with torch.no_grad(): model(torch.zeros(64, 3, 224, 224, device='cuda', dtype=torch.bfloat16))
    make_model('so400m')
    torch.cuda.empty_cache()
    folders(g, model)
    starts(g)
    cuts(g)

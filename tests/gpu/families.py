"""The families beside SigLIP that the kernels run (Blackwell's no DINOv3), through the command line, on random weights: rows against
transformers in fp32, transformers' own bf16 beside them, the same bits twice and in any place of a batch, and megavit validate.
usage: families.py MEGAVIT [NAME...]     MEGAVIT: the command line with the CUDA backend; needs torch and transformers"""
import json, pathlib, subprocess, sys, tempfile
import numpy, torch
from transformers import CLIPVisionConfig, CLIPVisionModel, CLIPVisionModelWithProjection, DINOv3ViTConfig, DINOv3ViTModel, Dinov2Config, Dinov2Model, Dinov2WithRegistersConfig, Dinov2WithRegistersModel

torch.set_grad_enabled(False)
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
DINO_MEAN, DINO_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
LARGE = dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16)
DINO = dict(image_size=224, patch_size=14)
MODELS = {
    'clip-b16': (CLIPVisionModel, CLIPVisionConfig(image_size=224, patch_size=16), 'CLIPImageProcessor', CLIP_MEAN, CLIP_STD),
    'clip-l14': (CLIPVisionModel, CLIPVisionConfig(image_size=224, patch_size=14, intermediate_size=4096, **LARGE), 'CLIPImageProcessor', CLIP_MEAN, CLIP_STD),
    'clip-b16-embeds': (CLIPVisionModelWithProjection, CLIPVisionConfig(image_size=224, patch_size=16, projection_dim=512), 'CLIPImageProcessor', CLIP_MEAN, CLIP_STD),
    'dinov3-s16': (DINOv3ViTModel, DINOv3ViTConfig(image_size=224, patch_size=16, hidden_size=384, intermediate_size=1536, num_attention_heads=6, num_register_tokens=4), 'DINOv3ViTImageProcessorFast', DINO_MEAN, DINO_STD),
    'dinov2-s14': (Dinov2Model, Dinov2Config(hidden_size=384, num_attention_heads=6, **DINO), 'BitImageProcessor', DINO_MEAN, DINO_STD),
    'dinov2-b14': (Dinov2Model, Dinov2Config(**DINO), 'BitImageProcessor', DINO_MEAN, DINO_STD),
    'dinov2-l14': (Dinov2Model, Dinov2Config(**LARGE, **DINO), 'BitImageProcessor', DINO_MEAN, DINO_STD),
    'registers-b14': (Dinov2WithRegistersModel, Dinov2WithRegistersConfig(num_register_tokens=4, **DINO), 'BitImageProcessor', DINO_MEAN, DINO_STD)}
PICTURES, BATCHES = 24, (1, 2, 5, 24)
failures = []


def verdict(ok, text):
    print(('ok   ' if ok else 'FAIL ') + text, flush=True)
    if not ok: failures.append(text)


def make_model(kind, config, directory, processor, mean, std):
    torch.manual_seed(0)
    model = kind(config).eval()
    for name, p in model.named_parameters():
        if 'norm' in name and name.endswith('weight'): p.copy_(1 + 0.2 * torch.randn_like(p))
        elif name.endswith('lambda1'): p.copy_(0.5 + 0.2 * torch.randn_like(p))
        elif name.endswith('bias'): p.copy_(0.1 * torch.randn_like(p))
        elif p.dim() >= 2 and 'position' not in name: p.copy_(torch.randn_like(p) * p[0].numel() ** -0.5)
    model.save_pretrained(directory)
    floats = processor.startswith('DINOv3') # which are resized
    settings = dict(image_processor_type=processor, do_resize=floats, size=dict(height=config.image_size, width=config.image_size), resample=2, do_center_crop=not floats,
                    crop_size=dict(height=config.image_size, width=config.image_size), do_rescale=True, rescale_factor=1 / 255,
                    do_normalize=True, image_mean=mean, image_std=std, do_convert_rgb=True)
    (directory / 'preprocessor_config.json').write_text(json.dumps(settings))
    return model


def make_pictures(directory, side):
    generator = torch.Generator().manual_seed(1)
    scales = (torch.nn.functional.interpolate(torch.randn(PICTURES, 3, s, s, generator=generator), side, mode='bilinear') for s in (2, 7, 28, side))
    pixels = (sum(scales) * 40 + 127.5).clamp(0, 255).to(torch.uint8)
    files = []
    for i, picture in enumerate(pixels.permute(0, 2, 3, 1)):
        files.append(directory / f'{i:02d}.ppm')
        files[-1].write_bytes(b'P6 %d %d 255\n' % (side, side) + picture.contiguous().numpy().tobytes())
    return pixels, [str(f) for f in files]


def embed(program, directory, files, what, batch):
    out = directory / 'rows.npy'
    subprocess.run([program, 'embed', '--model', str(directory), '--backend', 'cuda', '--batch', str(batch), '--what', what, '-o', str(out), *files], check=True)
    return torch.from_numpy(numpy.load(out))


def errors(rows, expected): return (rows.flatten(1) - expected.flatten(1)).double().norm(dim=1) / expected.flatten(1).double().norm(dim=1)


def check(program, name):
    kind, config, processor, mean, std = MODELS[name]
    with tempfile.TemporaryDirectory() as place:
        directory = pathlib.Path(place)
        model = make_model(kind, config, directory, processor, mean, std).cuda()
        floats = processor.startswith('DINOv3')
        pixels, files = make_pictures(directory, config.image_size + 83 * floats)
        values = pixels.double() / 255
        if floats: values = torch.nn.functional.interpolate(values, config.image_size, mode='bilinear', antialias=True)
        values = ((values - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)).float().cuda()
        expected, half = model(pixel_values=values), None
        half = model.to(torch.bfloat16)(pixel_values=values.to(torch.bfloat16))
        outputs = (('embeds', 'image_embeds'), ('tokens', 'last_hidden_state')) if name.endswith('embeds') else (('pooled', 'pooler_output'), ('tokens', 'last_hidden_state'))
        for what, attribute in outputs:
            want, theirs = (getattr(o, attribute).float().cpu() for o in (expected, half))
            bound = errors(theirs, want).pow(2).mean().sqrt()
            for batch in BATCHES if what != 'tokens' else (5,):
                got = embed(program, directory, files, what, batch)
                e = errors(got, want)
                verdict(bool(torch.isfinite(got).all()) and e.pow(2).mean().sqrt() <= bound,
                        f"{name} {what} in batches of {batch}: RMS {e.pow(2).mean().sqrt():.2e} largest {e.max():.2e}; transformers' bf16 RMS {bound:.2e}")
                if batch == BATCHES[-1]:
                    verdict(torch.equal(got, embed(program, directory, files, what, batch)), f'{name} {what}: the same bits twice')
                    verdict(torch.equal(got.flip(0), embed(program, directory, files[::-1], what, batch)), f'{name} {what}: the same bits in any place')
        said = subprocess.run([program, 'validate', '--model', str(directory), '--batch', '3'], capture_output=True, text=True)
        verdict(said.returncode == 0, f'{name} validate: exit {said.returncode}' + ('' if said.returncode == 0 else '\n' + said.stdout[-3000:] + said.stderr[-500:]))


def main():
    hopper = torch.cuda.get_device_capability()[0] == 9
    for name in sys.argv[2:] or [name for name in MODELS if hopper or not name.startswith('dinov3')]: check(sys.argv[1], name)
    print(f'{len(failures)} failures')
    sys.exit(bool(failures))


if __name__ == '__main__':
    main()

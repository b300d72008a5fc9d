"""Teaches the default model to read: a small SigLIP text tower and its tokenizer, trained on captions (tools/captions.py) of rendered
pictures (tools/render_pictures.py). The vision tower stays as tools/make_default_model.py left it, to the bit.

    python tools/make_default_text.py prepare --model examples/model --work W     tokenizer; what the training needs, as W/prepared.pt
    python tools/make_default_text.py train --work W --seconds 150                on one GPU, needs nothing but torch; writes W/text.pt
    python tools/make_default_text.py export --model examples/model --work W      both towers as one SigLIP directory
    python tools/make_default_text.py evaluate --model examples/model             on pictures and sentence forms not trained on
    python tools/make_default_text.py evaluate --megavit build/megavit            labels alone, with the products of the pictures in MXFP8

The loss of a batch of captions and pictures, from their cosines: SigLIP's (arXiv 2303.15343) with captions that fit several pictures, and
pictures that several captions fit; the captions' softmax over the pictures; and the pictures' softmax over the 132 labels "red circle" ...
as sentences of one form. Words are also seen misspelt and cut into other tokens, and between words that say nothing.
"""
import argparse
import json
import math
import pathlib
import random
import subprocess
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import captions
from render_pictures import MAX_COUNT, SEEN, HELD_OUT, Renderer
from shapes import COLOUR_NAMES, PATTERNS, SHAPES

VOCABULARY, LENGTH = 1100, 32
TEXT = dict(hidden_size=128, num_attention_heads=2, intermediate_size=512, num_hidden_layers=3, vocab_size=VOCABULARY,
            max_position_embeddings=LENGTH, projection_size=192, pad_token_id=0, eos_token_id=1, bos_token_id=None)
PAD, EOS, EPSILON = 0, 1, 1e-6
WIDTHS = [len(COLOUR_NAMES), len(SHAPES), len(PATTERNS), MAX_COUNT]
SAYS = [("colour and shape", (1, 1, 0, 0)), ("colour, shape, pattern", (1, 1, 1, 0)), ("colour, shape, count", (1, 1, 0, 1)),
        ("all four", (1, 1, 1, 1)), ("colour alone", (1, 0, 0, 0)), ("shape alone", (0, 1, 0, 0)), ("pattern alone", (0, 0, 1, 0)),
        ("count alone", (0, 0, 0, 1))]
LABELS = [(c, s) for c in range(WIDTHS[0]) for s in range(WIDTHS[1])]


# ---- SigLIP in plain torch: names and formulas are those of transformers' modeling_siglip.py ----

class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(width, eps=EPSILON) for _ in range(2))
        self.self_attn, self.mlp = Attention(width, heads), Mlp(width, inner)

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class Tower(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.encoder.layers = nn.ModuleList(Layer(c["hidden_size"], c["num_attention_heads"], c["intermediate_size"])
                                            for _ in range(c["num_hidden_layers"]))

    def encode(self, x):
        for layer in self.encoder.layers:
            x = layer(x)
        return x


class TextTower(Tower):
    def __init__(self, c):
        super().__init__(c)
        width = c["hidden_size"]
        self.embeddings.token_embedding = nn.Embedding(c["vocab_size"], width)
        self.embeddings.position_embedding = nn.Embedding(c["max_position_embeddings"], width)
        self.final_layer_norm = nn.LayerNorm(width, eps=EPSILON)
        self.head = nn.Linear(width, c["projection_size"])

    def forward(self, ids):
        """ids: [texts, LENGTH], padded; the last place stands for the text, whatever it holds."""
        x = self.embeddings.token_embedding(ids) + self.embeddings.position_embedding.weight
        return self.head(self.final_layer_norm(self.encode(x))[:, -1])


class Head(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.probe = nn.Parameter(torch.zeros(1, 1, width))
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.layernorm, self.mlp = nn.LayerNorm(width, eps=EPSILON), Mlp(width, inner)

    def forward(self, x):
        x = self.attention(self.probe.expand(len(x), 1, -1), x, x, need_weights=False)[0]
        return (x + self.mlp(self.layernorm(x)))[:, 0]


class VisionTower(Tower):
    def __init__(self, c):
        super().__init__(c)
        width, patch = c["hidden_size"], c["patch_size"]
        self.embeddings.patch_embedding = nn.Conv2d(3, width, patch, patch)
        self.embeddings.position_embedding = nn.Embedding((c["image_size"] // patch) ** 2, width)
        self.post_layernorm = nn.LayerNorm(width, eps=EPSILON)
        self.head = Head(width, c["num_attention_heads"], c["intermediate_size"])

    def forward(self, pictures):
        x = self.embeddings.patch_embedding(pictures).flatten(2).transpose(1, 2) + self.embeddings.position_embedding.weight
        return self.head(self.post_layernorm(self.encode(x)))


# ---- prepare: the tokenizer, and every word's tokens ----

def misspelt(rnd, word):
    at = rnd.randrange(len(word) - 1)
    return rnd.choice([word[:at] + word[at + 1:], word[:at] + word[at] + word[at:], word[:at] + word[at + 1] + word[at] + word[at + 2:]])


def train_tokenizer(vocabulary):
    """Lower case, without ASCII punctuation; BPE of single words, with bytes for what it does not know."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    rnd = random.Random(0)
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Lowercase(), normalizers.Replace(Regex(r"[!-/:-@\[-`{-~]"), " "), normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(replacement="▁", prepend_scheme="always")])
    specials = ["<pad>", "</s>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=specials, show_progress=False,
                                  initial_alphabet=list("abcdefghijklmnopqrstuvwxyz0123456789▁"))
    texts = [captions.sentence(rnd, *rnd.choice(SEEN), rnd.randrange(MAX_COUNT))[0] for _ in range(50000)] + captions.FILLERS * 100
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    return without_special_bytes(tokenizer)


def without_special_bytes(tokenizer):
    """The trainer takes tokens of bytes as added ones, which would be found in texts."""
    from tokenizers import Tokenizer
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(content))


def prepare(args):
    from safetensors.torch import load_file
    args.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(VOCABULARY)
    assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()
    tokenizer.save(str(args.work / "tokenizer.json"))
    rnd = random.Random(1)
    cut = json.loads(tokenizer.to_str())
    cut["model"]["dropout"] = 0.15
    cut = type(tokenizer).from_str(json.dumps(cut))
    said, nothing = {}, {}
    texts = [captions.sentence(rnd, *rnd.choice(SEEN), rnd.randrange(MAX_COUNT))[0] for _ in range(200000)]
    ids = lambda tokenizer, word: tokenizer.encode(word, add_special_tokens=False).ids
    for word in sorted({word for text in texts for word in captions.words_of(text)}):
        variants = [misspelt(rnd, word) for _ in range(8)] if len(word) > 4 else []
        said[word] = [ids(tokenizer, word)] + [ids(cut, word) for _ in range(4)] + [ids(tokenizer, variant) for variant in variants]
    for word in captions.FILLERS + ["".join(rnd.choices("aeiourtnslcdmpbgfhkvwyxz", k=rnd.randrange(2, 10))) for _ in range(4000)]:
        nothing[word] = ids(tokenizer, word)
    weights = {name.removeprefix("vision_model."): t for name, t in load_file(args.model / "model.safetensors").items()}
    config = json.loads((args.model / "config.json").read_text())
    torch.save(dict(vision=config.get("vision_config", config), said=said, nothing=nothing,
                    weights={k: v for k, v in weights.items() if not k.startswith(("text_model", "logit"))}), args.work / "prepared.pt")
    print(f"{len(said)} words, {sum(map(len, said.values()))} ways to write them")


# ---- train ----

def tokens_of(rnd, prepared, text):
    said, nothing = prepared["said"], prepared["fillers"]
    noisy = rnd.random() < 0.3
    words = [rnd.choice(said[word]) if noisy and rnd.random() < 0.4 else said[word][0] for word in captions.words_of(text)]
    if rnd.random() < 0.3:
        for _ in range(rnd.randrange(1, 4)):
            words.insert(rnd.randrange(len(words) + 1), rnd.choice(nothing))
    ids = [i for word in words for i in word][:LENGTH - 1] + [EOS]
    return ids + [PAD] * (LENGTH - len(ids))


def make_captions(task):
    """Captions of random seen pictures: their ids, what they say, and the picture that each was made for."""
    seed, number, prepared = task
    rnd = random.Random(seed)
    ids, fits, made_for = [], [], []
    for _ in range(number):
        triple, count = rnd.randrange(len(SEEN)), rnd.randrange(MAX_COUNT)
        text, saying = captions.sentence(rnd, *SEEN[triple], count)
        ids.append(tokens_of(rnd, prepared, text))
        fits.append([x for part in saying for x in part])
        made_for.append(triple * MAX_COUNT + count)
    return torch.tensor(ids, dtype=torch.int16), torch.tensor(fits, dtype=torch.float16), torch.tensor(made_for)


def make_labels(rnd, prepared):
    """The 132 labels as sentences of one form."""
    frame = rnd.choice(captions.FRAMES)
    number, many = rnd.choice([("", 0), ("", 0), ("a", 0), ("", 1), ("the", 0)])
    rows = []
    for colour, shape in LABELS:
        noun = captions.SHAPE_WORDS[SHAPES[shape]][0][many]
        rows.append(tokens_of(random.Random(0), prepared, frame.format(captions.with_article([number, COLOUR_NAMES[colour], noun]))))
    return torch.tensor(rows, dtype=torch.int16)


@torch.no_grad()
def embed_pictures(prepared, number, device, seconds):
    """Pictures of seen triples in the order of their kinds, so that those of a kind lie together: [kinds, each, width]."""
    tower = VisionTower(prepared["vision"]).to(device).eval()
    tower.load_state_dict({k: v.float() for k, v in prepared["weights"].items()})
    renderer, kinds = Renderer(device), len(SEEN) * MAX_COUNT
    triples = torch.tensor(SEEN, device=device).repeat_interleave(MAX_COUNT, 0)
    count, rows, start = torch.arange(kinds, device=device) % MAX_COUNT, [], time.time()
    while len(rows) < max(1, number // kinds) and (len(rows) < 2 or time.time() - start < seconds):
        rows.append(torch.cat([F.normalize(tower(renderer(*t.T, n)), dim=-1) for t, n in zip(triples.split(256), count.split(256))]))
    print(f"{len(rows) * kinds} pictures in {time.time() - start:.0f} s", flush=True)
    return torch.stack(rows, 1), torch.cat([triples, count[:, None]], 1)


def loss_of(texts, pictures, targets, log_scale, bias):
    cosine = texts @ pictures.T
    logits = log_scale[0].exp() * cosine + bias
    weight = targets.sum(1).clamp(min=1)
    siglip = (F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1) / weight).mean()
    ranks = -(targets * F.log_softmax(log_scale[1].exp() * cosine, 1)).sum(1) / weight
    return siglip + ranks.mean(), siglip


@torch.no_grad()
def report_held_out(tower, prepared, labels, device):
    """How it does on rendered pictures of held-out triples, in forms of the training."""
    rnd, model = random.Random(0), VisionTower(prepared["vision"]).to(device).eval()
    model.load_state_dict({k: v.float() for k, v in prepared["weights"].items()})
    truth = torch.tensor([[*rnd.choice(HELD_OUT), rnd.randrange(MAX_COUNT)] for _ in range(1024)], device=device)
    renderer = Renderer(device)
    z = F.normalize(torch.cat([model(renderer(*part.T)) for part in truth.split(256)]), dim=-1)
    read = lambda ids: F.normalize(tower(ids.long().to(device)), dim=-1)
    right = [((z @ read(rows).T).argmax(1) == truth[:, 0] * len(SHAPES) + truth[:, 1]).float().mean().item() for rows in labels[:10]]
    print("held-out pictures: label", " ".join(f"{100 * x:.1f}" for x in right))
    for what, says in SAYS:
        said = [captions.sentence(rnd, *row, says=says) for row in truth.tolist()]
        ids = torch.stack([torch.tensor(tokens_of(random.Random(0), prepared, text)) for text, _ in said])
        hit = fits_of(said, truth.cpu(), says[3]).gather(1, (read(ids) @ z.T).topk(5, 1).indices.cpu())
        print(f"{what}: at 1 {100 * hit[:, 0].mean():.1f}, at 5 {100 * hit.amax(1).mean():.1f}", flush=True)


def fits_of(said, truth, with_count):
    """[sentences, pictures]: how well each fits; truth: [pictures, 4]"""
    rows = []
    for _, saying in said:
        parts = [torch.tensor(part).float()[truth[:, i]] for i, part in enumerate(saying)]
        rows.append(parts[0] * parts[1] * parts[2] * (parts[3] if with_count else 1))
    return torch.stack(rows)


def train(args):
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    prepared = torch.load(args.work / "prepared.pt", weights_only=True)
    prepared["fillers"] = list(prepared["nothing"].values())
    start = time.time()
    each = args.captions // 16
    share = {key: prepared[key] for key in ("said", "fillers")}
    with torch.multiprocessing.get_context("fork").Pool(args.processes) as pool:  # before CUDA is touched
        parts = pool.map(make_captions, [(f"{args.seed} {i}", each, share) for i in range(16)])
    ids, fits, made_for = (torch.cat([part[i] for part in parts]).to(device) for i in range(3))
    labels = torch.stack([make_labels(random.Random(i), prepared) for i in range(200)]).to(device)
    print(f"{len(ids)} captions in {time.time() - start:.0f} s", flush=True)
    pictures, kinds = embed_pictures(prepared, args.pictures, device, args.picture_seconds)
    tower = TextTower(TEXT).to(device)
    for name, p in tower.named_parameters():
        if "embedding" in name:
            nn.init.normal_(p, std=0.02 if "position" in name else 0.05)
    log_scale, bias = nn.Parameter(torch.tensor([3.0, 3.0, 3.0], device=device)), nn.Parameter(torch.tensor(-6.0, device=device))
    parameters = [*tower.parameters(), log_scale, bias]
    optimizer = torch.optim.AdamW([dict(params=[p for p in parameters if p.ndim >= 2], weight_decay=0.05),
                                   dict(params=[p for p in parameters if p.ndim < 2], weight_decay=0.0)], lr=args.rate, betas=(0.9, 0.98))
    forward = torch.compile(tower) if args.compile else tower
    start, steps = time.time(), args.steps
    for step in range(args.steps):
        if step == 100 and args.seconds: # the compiler has done its part by then
            measured = time.time()
        if step == 150 and args.seconds:
            torch.cuda.synchronize() if device.type == "cuda" else None
            steps = min(steps, 150 + int((args.seconds - (time.time() - start)) / ((time.time() - measured) / 50)))
            print(f"{steps} steps fit into {args.seconds} s", flush=True)
        if step >= steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = args.rate * min((step + 1) / max(1, min(500, steps // 10)), 0.5 + 0.5 * math.cos(math.pi * step / steps))
        chosen = torch.randint(len(ids), (args.batch,), device=device)
        other = torch.randint(len(kinds), (args.batch * (args.others - 1),), device=device)
        kind = torch.cat([made_for[chosen], other])
        shown = pictures[kind, torch.randint(pictures.shape[1], (len(kind),), device=device)]
        says, targets, at = fits[chosen].float(), 1.0, 0
        for part, width in enumerate(WIDTHS):
            targets = targets * says[:, at:at + width][:, kinds[kind, part]]
            at += width
        texts = torch.cat([ids[chosen], labels[torch.randint(len(labels), (1,), device=device)[0]]]).long()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            rows = forward(texts)
        rows = F.normalize(rows.float(), dim=-1)
        loss, siglip = loss_of(rows[:args.batch], shown, targets, log_scale, bias)
        truth = kinds[kind, 0] * len(SHAPES) + kinds[kind, 1]
        loss = loss + F.cross_entropy(log_scale[2].exp() * shown @ rows[args.batch:].T, truth)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % args.report == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.3f} siglip {siglip.item():.3f} scale {log_scale[0].exp().item():.1f} "
                  f"bias {bias.item():.2f} {time.time() - start:.0f} s", flush=True)
    torch.save(dict(text={k: v.cpu() for k, v in tower.state_dict().items()}, scale=log_scale[0].item(), bias=bias.item(),
                    training=f"seed {args.seed}, {steps} steps of {args.batch} captions"), args.work / "text.pt")
    report_held_out(tower.eval(), prepared, labels, device)


# ---- export ----

def export(args):
    from safetensors.torch import load_file, save_file
    trained = torch.load(args.work / "text.pt", weights_only=True)
    prepared = torch.load(args.work / "prepared.pt", weights_only=True)
    tensors = {f"vision_model.{k}": v for k, v in prepared["weights"].items()}
    tensors |= {f"text_model.{k}": v.bfloat16() for k, v in trained["text"].items()}
    tensors |= {"logit_scale": torch.tensor([trained["scale"]]), "logit_bias": torch.tensor([trained["bias"]])}
    save_file(tensors, args.model / "model.safetensors", dict(format="pt", text_training=trained["training"]))
    vision = {k: v for k, v in prepared["vision"].items() if k not in ("architectures", "dtype", "transformers_version")}
    text = dict(TEXT, model_type="siglip_text_model", hidden_act="gelu_pytorch_tanh", layer_norm_eps=EPSILON, attention_dropout=0.0)
    config = dict(architectures=["SiglipModel"], dtype="bfloat16", model_type="siglip", text_config=text, vision_config=vision)
    (args.model / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (args.model / "tokenizer.json").write_text(json.dumps(json.loads((args.work / "tokenizer.json").read_text()), ensure_ascii=False,
                                                          separators=(",", ":")) + "\n")
    about = dict(tokenizer_class="PreTrainedTokenizerFast", model_max_length=LENGTH, padding_side="right", pad_token="<pad>",
                 eos_token="</s>", unk_token="<unk>", model_input_names=["input_ids"])
    (args.model / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n")


# ---- evaluate ----

def chosen_truth(triples, number):
    chosen = torch.tensor(triples)[torch.randint(len(triples), (number,))]
    return torch.cat([chosen, torch.randint(MAX_COUNT, (number, 1))], 1)


def tasks_of(truth):
    return [(i, *row.tolist()) for i, row in enumerate(truth)]


def embeds_of(model, pictures):
    rows = [model.get_image_features(pixel_values=part).pooler_output.float() for part in pictures.split(64)]
    return F.normalize(torch.cat(rows), dim=-1)


def in_precisions(args, model, truth):
    """Rows of the pictures by transformers in float32 and bfloat16, and by megavit on the CPU in each of its precisions."""
    import copy
    import numpy
    from PIL import Image
    from make_default_model import draw_one, drawn
    pictures = drawn(tasks_of(truth))
    rows = {"float32": embeds_of(model, pictures), "bf16": embeds_of(copy.deepcopy(model).bfloat16(), pictures.bfloat16())}
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(suffix=".npy") as out:
        for task in tasks_of(truth):
            Image.fromarray(draw_one(task)).save(f"{folder}/{task[0]:05}.png")
        for precision, name in (("auto", "megavit"), ("mxfp8", "MXFP8"), ("mixed", "MXFP8 behind norms")):
            subprocess.run([args.megavit, "embed", "--model", args.model, "--backend", "cpu", "--precision", precision, "-o", out.name,
                            folder], check=True)
            rows[name] = F.normalize(torch.from_numpy(numpy.load(out.name)), dim=-1)
        pathlib.Path(out.name + ".names").unlink(missing_ok=True)
    return rows


def report_precisions(args, model, read):
    """Of 132 labels the nearest, by the vectors that come with the model and by three forms of sentences."""
    from safetensors.torch import load_file
    names = [f"{COLOUR_NAMES[c]} {SHAPES[s]}" for c, s in LABELS]
    labels = {"labels.safetensors": load_file(args.model / "labels.safetensors")["embeddings"]}
    for template in ("{}", "This is a photo of {}.", "Could that be a {}?"):
        labels[template] = read([captions.with_article(template.format(name).split()) for name in names])
    for title, triples in (("combinations seen in training", SEEN), ("held-out combinations", HELD_OUT)):
        truth = chosen_truth(triples, args.pictures)
        right = truth[:, 0] * len(SHAPES) + truth[:, 1]
        print(f"\n{args.pictures} pictures, {title}: right, % | " + " | ".join(labels) + " | as float32 | cosine to it: mean | least\n" +
              "|---" * (len(labels) + 4) + "|")
        reference = None
        for name, z in in_precisions(args, model, truth).items():
            reference = z if reference is None else reference
            nearest = {form: (z @ vectors.T).argmax(1) for form, vectors in labels.items()}
            same = torch.cat([nearest[form] == (reference @ vectors.T).argmax(1) for form, vectors in labels.items()])
            cosine = (z * reference).sum(1)
            print(f"| {name} | " + " | ".join(f"{100 * (found == right).float().mean():.1f}" for found in nearest.values()) +
                  f" | {100 * same.float().mean():.1f} | {cosine.mean():.5f} | {cosine.min():.5f} |")


@torch.no_grad()
def evaluate(args):
    from transformers import AutoModel, AutoTokenizer
    from make_default_model import drawn
    torch.manual_seed(987654321)
    model = AutoModel.from_pretrained(args.model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model)

    def read(texts):
        ids = tokenizer(texts, padding="max_length", max_length=LENGTH, truncation=True, return_tensors="pt")["input_ids"]
        return F.normalize(torch.cat([model.get_text_features(input_ids=part).pooler_output for part in ids.split(256)]), dim=-1)

    if args.megavit:
        return report_precisions(args, model, read)
    names = [f"{COLOUR_NAMES[c]} {SHAPES[s]}" for c, s in LABELS]
    for title, triples in (("combinations seen in training", SEEN), ("held-out combinations", HELD_OUT)):
        truth = chosen_truth(triples, args.pictures)
        z = embeds_of(model, drawn(tasks_of(truth)))
        print(f"\n{args.pictures} pictures by tools/draw_pictures.py, {title}\n\n| labels as | right |\n|---|---|")
        for template in ("{}", "a {}", "This is a photo of {}.", "Could that be a {}?"):
            label = (z @ read([captions.with_article(template.format(name).split()) for name in names]).T).argmax(1)
            print(f"| {template} | {100 * (label == truth[:, 0] * len(SHAPES) + truth[:, 1]).float().mean():.1f} |")
        print("\n| sentences that say | at 1 | at 5 | of the first as many as fit | chance |\n|---|---|---|---|---|")
        rnd = random.Random(title)
        for what, says in SAYS:
            said = [captions.sentence(rnd, *row.tolist(), True, says) for row in truth]
            fits = fits_of(said, truth, says[3])
            hit = fits.gather(1, (read([text for text, _ in said]) @ z.T).argsort(1, descending=True))
            number = fits.sum(1).long()
            precision = sum(row[:n].mean() for row, n in zip(hit, number)) / len(hit)
            print(f"| {what} | {100 * hit[:, 0].mean():.1f} | {100 * hit[:, :5].amax(1).mean():.1f} | {100 * precision:.1f} | {100 * fits.mean():.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["prepare", "train", "export", "evaluate"])
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("examples/model"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/default_text"))
    parser.add_argument("--megavit", help="evaluate labels in its precisions on the CPU, and in bf16 by transformers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30000)
    parser.add_argument("--seconds", type=float, default=0, help="make fewer steps if all do not fit into this time")
    parser.add_argument("--captions", type=int, default=1600000)
    parser.add_argument("--pictures", type=int, default=0, help="rendered for training (400000), or in each set of the evaluation (1000)")
    parser.add_argument("--picture-seconds", type=float, default=60, help="render no longer")
    parser.add_argument("--processes", type=int, default=16, help="that make captions")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--others", type=int, default=3, help="times as many pictures as captions in a batch")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--report", type=int, default=500)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    args.pictures = args.pictures or {"train": 400000}.get(args.what, 1000)
    {"prepare": prepare, "train": train, "export": export, "evaluate": evaluate}[args.what](args)


if __name__ == "__main__":
    main()

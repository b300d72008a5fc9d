"""Trains the model that talks: a small Qwen3-VL that says what is in a drawn picture.

    python tools/make_talking_model.py --out examples/talking --tokenizer         writes the tokenizer (needs transformers)
    python tools/make_talking_model.py --out examples/talking --seconds 200       trains on one GPU, exports, evaluates
    python tools/make_talking_model.py --out examples/talking --evaluate          evaluates it again (no GPU needed)
    python tools/make_talking_model.py --out examples/talking --check             compares tools/talking_model.py with transformers

Its tower starts from examples/model, the SigLIP that tools/make_default_model.py trains, as Qwen3-VL's own tower started
from a SigLIP2. The pictures are rendered on the device as they are for that model, each seen once, with backgrounds that have
names. Every picture comes with a conversation of one to three questions; some conversations have two pictures, some none.
One triple (colour, shape, pattern) in ten is never rendered: those are the held-out phrases of the evaluation.

What is exported is an ordinary Qwen3-VL directory, weights in BF16.
"""
import argparse
import collections
import json
import math
import multiprocessing
import pathlib
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import draw_pictures
from render_pictures import HELD_OUT, MAX_COUNT, Renderer, SEEN, TRIPLES
from shapes import COLOUR_NAMES, COUNTS, PATTERNS, SHAPES
from talking_model import Model

# Heights and widths of what the processor makes of pictures: multiples of 32, at most 224 x 224 pixels.
SIZES = [(224, 224), (224, 224), (192, 256), (256, 192), (192, 224), (224, 192), (160, 256), (256, 160), (160, 288), (288, 160)]
LEAST_PIXELS, MOST_PIXELS = 200 * 200, 224 * 224

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>",
           "<|video_pad|>"]
VOCABULARY = 512  # with the special tokens
IDS = {name: VOCABULARY - len(SPECIAL) + i for i, name in enumerate(SPECIAL)}
PICTURE = IDS["<|image_pad|>"]

CONFIG = {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "image_token_id": PICTURE,
    "video_token_id": IDS["<|video_pad|>"],
    "vision_start_token_id": IDS["<|vision_start|>"],
    "vision_end_token_id": IDS["<|vision_end|>"],
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_vl_text", "vocab_size": VOCABULARY, "hidden_size": 192, "intermediate_size": 384, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096, "rope_theta": 10000.0, "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": True,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": [12, 10, 10], "rope_type": "default"},
        "bos_token_id": IDS["<|endoftext|>"], "eos_token_id": IDS["<|im_end|>"], "dtype": "bfloat16",
    },
    "vision_config": {
        "model_type": "qwen3_vl", "depth": 5, "hidden_size": 192, "intermediate_size": 768, "num_heads": 3, "in_channels": 3, "patch_size": 16,
        "temporal_patch_size": 2, "spatial_merge_size": 2, "num_position_embeddings": 196, "out_hidden_size": 192,
        "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": [2],
    },
}
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor",
    "size": {"shortest_edge": LEAST_PIXELS, "longest_edge": MOST_PIXELS}, "patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
}
# A conversation as Qwen3-VL's template writes it, without tools and videos.
TEMPLATE = """\
{%- for message in messages %}
{%- if message.role != 'system' or loop.first %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' or 'image' in part or 'image_url' in part %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


# ---- what is asked and said ----

GROUNDS = ["plain", "horizon", "paper", "gradient", "wood", "lights"]
# How a phrase ends, and the kinds of draw_pictures.BACKGROUNDS.
GROUND_WORDS = ["", " on the horizon", " on paper", " on a gradient", " on wood", " among lights"]
DRAWN_GROUNDS = ["plain", "sky and ground", "graph paper", "gradient", "wood", "bokeh"]
PLURALS = {"cross": "crosses", "rhombus": "rhombuses"}

DESCRIBE = ["", "What is in this picture?", "What is in the picture?", "What's in this picture?", "What is this?", "What do you see?",
            "Describe this picture.", "Describe the picture.", "Describe this image.", "What is in this image?", "what is this",
            "what is in this picture", "Say what is there."]
ASK = {
    "count": ["How many are there?", "How many?", "How many things are there?", "how many", "Count them."],
    "colour": ["What colour is it?", "What colour are they?", "Which colour?", "What color is it?", "What color are they?", "what colour"],
    "shape": ["What shape is it?", "Which shape?", "What shape are they?", "what shape"],
    "pattern": ["Which pattern?", "What pattern is it?", "What pattern do they have?", "what pattern"],
    "ground": ["What is behind it?", "What is behind them?", "What is in the background?", "Which background?", "what is behind"],
}
WITHOUT_PICTURE = ["Hello", "Hello.", "Hi", "Who are you?", "What can you do?", "Tell me a story.", "What is the capital of France?"]
NO_PICTURE = "I see no picture."


def noun(scene):
    word = SHAPES[scene[1]]
    return word if scene[3] == 0 else PLURALS.get(word, word + "s")


def phrase(scene):
    """scene: colour, shape, pattern, count - 1, ground"""
    colour, _, pattern, count, ground = scene
    words = ([PATTERNS[pattern]] if pattern else []) + [COLOUR_NAMES[colour], noun(scene)]
    first = COUNTS[count] if count else "an" if words[0][0] in "aeiou" else "a"
    return " ".join([first, *words]) + GROUND_WORDS[ground]


def yes_or_no(rnd, scene):
    kind = rnd.choice(["colour", "shape", "count"])
    if kind == "colour":
        asked, truth = (scene[0] if rnd.random() < 0.5 else rnd.randrange(len(COLOUR_NAMES))), scene[0]
        question, fact = ("Is it " if scene[3] == 0 else "Are they ") + COLOUR_NAMES[asked] + "?", COLOUR_NAMES[truth]
    elif kind == "shape":
        asked, truth = (scene[1] if rnd.random() < 0.5 else rnd.randrange(len(SHAPES))), scene[1]
        word = noun([0, asked, 0, scene[3]])
        question = "Is it " + ("an " if word[0] in "aeiou" else "a ") + word + "?" if scene[3] == 0 else "Are they " + word + "?"
        fact = noun(scene)
    else:
        asked, truth = (scene[3] if rnd.random() < 0.5 else rnd.randrange(MAX_COUNT)), scene[3]
        question, fact = ("Are there " if asked else "Is there ") + COUNTS[asked] + "?", COUNTS[truth]
    return question, "yes" if asked == truth else "no, " + fact


def ask(rnd, scene, describe):
    """A question about a picture, and its answer."""
    if rnd.random() < describe:
        return rnd.choice(DESCRIBE), phrase(scene)
    kind = rnd.choice([*ASK, "yes or no"])
    if kind == "yes or no":
        return yes_or_no(rnd, scene)
    answers = {"count": COUNTS[scene[3]], "colour": COLOUR_NAMES[scene[0]], "shape": noun(scene), "pattern": PATTERNS[scene[2]],
               "ground": GROUNDS[scene[4]]}
    return rnd.choice(ASK[kind]), answers[kind]


def make_tokenizer(folder):
    """Byte-level BPE as Qwen3 has it, learnt from a sample of what is said."""
    from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
    rnd = random.Random(1)
    texts = [t for group in (DESCRIBE, *ASK.values(), WITHOUT_PICTURE) for t in group] * 20 + [NO_PICTURE, "user\n", "assistant\n", "system\n"] * 500
    for _ in range(20000):
        scene = [*rnd.choice(TRIPLES), rnd.randrange(MAX_COUNT), rnd.randrange(len(GROUNDS))]
        texts.extend(ask(rnd, scene, 0.5))
    tokenizer = Tokenizer(models.BPE())
    split = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False, use_regex=False, add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False, trim_offsets=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY - len(SPECIAL), show_progress=False,
                                                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    assert tokenizer.get_vocab_size() == VOCABULARY - len(SPECIAL), tokenizer.get_vocab_size()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    assert all(tokenizer.token_to_id(name) == i for name, i in IDS.items())
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def write_files(folder):
    """Everything but weights and tokenizer.json."""
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "generation_config.json", {"bos_token_id": IDS["<|endoftext|>"], "pad_token_id": IDS["<|endoftext|>"],
                                                   "eos_token_id": [IDS["<|im_end|>"], IDS["<|endoftext|>"]], "do_sample": False})
    write_json(folder / "preprocessor_config.json", PROCESSOR)
    write_json(folder / "video_preprocessor_config.json", {**PROCESSOR, "image_processor_type": None, "video_processor_type": "Qwen3VLVideoProcessor",
                                                           "size": {"shortest_edge": 2 * LEAST_PIXELS, "longest_edge": 16 * MOST_PIXELS}})
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "Qwen2Tokenizer", "processor_class": "Qwen3VLProcessor", "add_bos_token": False, "add_prefix_space": False,
        "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None, "errors": "replace",
        "clean_up_tokenization_spaces": False, "split_special_tokens": False, "model_max_length": 4096})
    (folder / "chat_template.jinja").write_text(TEMPLATE)


# ---- conversations as ids ----

class Writer:
    def __init__(self, folder):
        self.tokenizer, self.known = Tokenizer.from_file(str(folder / "tokenizer.json")), {}

    def ids(self, text):
        if text not in self.known:
            self.known[text] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return self.known[text]

    def turn(self, question, pictures, tokens):
        """What comes before an answer."""
        picture = [IDS["<|vision_start|>"]] + [PICTURE] * tokens + [IDS["<|vision_end|>"]]
        user = self.ids("user\n") + picture * pictures + self.ids(question) if pictures else self.ids("user\n" + question)
        return [IDS["<|im_start|>"], *user, IDS["<|im_end|>"], *self.ids("\n"), IDS["<|im_start|>"], *self.ids("assistant\n")]

    def conversation(self, turns, tokens):
        """turns: (question, answer, number of pictures). ids, and which of them are to be said."""
        ids, said = [], []
        for question, answer, pictures in turns:
            before, answer = self.turn(question, pictures, tokens), [*self.ids(answer), IDS["<|im_end|>"]]
            ids += before + answer + self.ids("\n")
            said += [False] * len(before) + [True] * len(answer) + [False]
        return ids[:-1], said[:-1]


def positions(ids, h, w):
    """[3, n] of time, row and column; h, w: merged tokens of a picture (transformers' get_rope_index)."""
    grid = np.indices((h, w)).reshape(2, -1)
    found, start, i = [], 0, 0
    while i < len(ids):
        if ids[i] == PICTURE:
            found.append(start + np.concatenate([np.zeros((1, h * w), np.int64), grid]))
            start, i = start + max(h, w), i + h * w
        else:
            end = i
            while end < len(ids) and ids[end] != PICTURE:
                end += 1
            found.append(np.tile(np.arange(start, start + end - i), (3, 1)))
            start, i = start + end - i, end
    return np.concatenate(found, 1)


def padded(conversations, h, w):
    length = -(-max(len(ids) for ids, _ in conversations) // 16) * 16
    ids = np.full((len(conversations), length), IDS["<|endoftext|>"])
    said, place = np.zeros(ids.shape, bool), np.zeros((len(conversations), 3, length), np.int64)
    for i, (one, marks) in enumerate(conversations):
        ids[i, :len(one)], said[i, :len(one)] = one, marks
        place[i, :, :len(one)] = positions(one, h, w)
    return ids, said, place


WRITER = None


def start_worker(folder):
    global WRITER
    WRITER = Writer(folder)


def make_batch(task):
    """Scenes [pictures, 5] and the conversations about them: one in sixteen has two pictures, one in thirty has none."""
    seed, pictures = task
    rnd = random.Random(f"talking {seed}")
    height, width = rnd.choice(SIZES)
    h, w = height // 32, width // 32
    scenes = [[*rnd.choice(SEEN), rnd.randrange(MAX_COUNT), i * len(GROUNDS) // pictures] for i in range(pictures)]
    order = rnd.sample(range(pictures), pictures)
    conversations, used, where = [], 0, []
    while used < pictures:
        if rnd.random() < 1 / 30:
            question = rnd.choice(WITHOUT_PICTURE + rnd.choice([DESCRIBE[1:], *ASK.values()]))
            conversations.append(WRITER.conversation([(question, NO_PICTURE, 0)], h * w))
            continue
        turns = []
        for _ in range(min(pictures - used, 2 if rnd.random() < 1 / 16 else 1)):
            scene = scenes[order[used]]
            where.append(order[used])
            used += 1
            turns.append((*ask(rnd, scene, 0.6), 1))
            turns += [(*ask(rnd, scene, 0.1), 0) for _ in range(rnd.randrange(3))]
        conversations.append(WRITER.conversation([(q or rnd.choice(DESCRIBE[1:]) if not p else q, a, p) for q, a, p in turns], h * w))
    return np.array(scenes), (height, width), np.array(where), padded(conversations, h, w)


# ---- pictures ----

class Painter(Renderer):
    """With backgrounds that have names; a batch comes sorted by them, in equal parts."""

    def background(self, main):
        base = self.background_colour(main)
        sizes = [len(part) for part in np.array_split(np.arange(len(main)), len(GROUNDS))]
        texture = torch.cat([getattr(self, "ground_" + name)(b) for name, b in zip(GROUNDS, sizes)])
        tint = 1 + self.uniform(len(main), 3, 1, 1, least=-0.2, most=0.2) * (self.one(len(main))[:, None] < 0.5)
        return (base[..., None, None] + texture[:, None] * tint).clamp(0, 1)

    def ground_plain(self, b):
        return torch.zeros(b, *self.x.shape, device=self.device)

    def ground_horizon(self, b):
        line = self.one(b, 0.45, 0.8) * self.height + self.one(b, -0.12, 0.12) * (self.x - self.width / 2)
        sign = torch.where(self.one(b) < 0.7, 1.0, -1.0)
        return ((self.y - line) / self.one(b, 0.7, 2.0) + 0.5).clamp(0, 1) * sign * self.one(b, 0.07, 0.18)

    def ground_paper(self, b):
        step, thick = self.width / self.one(b, 8, 17), self.one(b, 0.6, 2.2)
        across, down = (torch.minimum(v % step, step - v % step) for v in (self.x + self.one(b, most=20.0), self.y + self.one(b, most=20.0)))
        lines = torch.maximum((thick / 2 + 0.5 - across).clamp(0, 1), (thick / 2 + 0.5 - down).clamp(0, 1)) * thick.clamp(max=1)
        return -lines * torch.where(self.one(b) < 0.8, 1.0, -1.0) * self.one(b, 0.07, 0.16)

    def ground_gradient(self, b):
        angle = torch.where(self.one(b) < 0.6, 0.5 * math.pi, self.one(b, most=2 * math.pi))
        along = torch.cos(angle) * (self.x / self.width - 0.5) + torch.sin(angle) * (self.y / self.height - 0.5)
        return along * self.one(b, 0.15, 0.35)

    def ground_wood(self, b):
        bars = torch.cat([self.field(n, int(torch.randint(24, 46, ())), 1, "nearest") for n in (b // 3, b // 3, b - b // 3 * 2)])
        return bars * self.one(b, 0.035, 0.09)

    def ground_lights(self, b):
        texture = torch.zeros(b, *self.x.shape, device=self.device)
        for _ in range(14):
            x, y, radius = self.one(b, 0, self.width), self.one(b, 0, self.height), self.one(b, 0.035, 0.17) * self.width
            inside = ((radius - torch.hypot(self.x - x, self.y - y)) / self.one(b, 1.5, 4.0) + 0.5).clamp(0, 1)
            texture = torch.lerp(texture, self.one(b, -0.08, 0.08).expand_as(texture), inside)
        return texture

    def with_faults_of_a_camera(self, picture):
        """Slight ones: the background must stay recognisable."""
        b = len(picture)
        picture = (picture - 0.5) * self.one(b, 0.92, 1.05)[:, None] + 0.5 + self.one(b, -0.04, 0.04)[:, None]
        picture = picture + torch.randn_like(picture) * self.one(b, 0.0, 0.015)[:, None] * (self.one(b)[:, None] < 0.3)
        return picture.clamp(0, 1)


# ---- training ----

def start_from(model, folder):
    """The tower of examples/model. Its patches had no time: each of the two halves gets half of the weight."""
    stored = {k.removeprefix("vision_model."): v.float() for k, v in load_file(folder / "model.safetensors").items()}
    visual, mine = model.model.visual, {}
    mine["patch_embed.proj.weight"] = stored["embeddings.patch_embedding.weight"][:, :, None].expand(-1, -1, 2, -1, -1) / 2
    mine["patch_embed.proj.bias"] = stored["embeddings.patch_embedding.bias"]
    mine["pos_embed.weight"] = stored["embeddings.position_embedding.weight"]
    names = {"norm1": "layer_norm1", "norm2": "layer_norm2", "attn.proj": "self_attn.out_proj", "mlp.linear_fc1": "mlp.fc1", "mlp.linear_fc2": "mlp.fc2"}
    for i in range(CONFIG["vision_config"]["depth"]):
        for kind in ("weight", "bias"):
            for name, theirs in names.items():
                mine[f"blocks.{i}.{name}.{kind}"] = stored[f"encoder.layers.{i}.{theirs}.{kind}"]
            qkv = [stored[f"encoder.layers.{i}.self_attn.{c}_proj.{kind}"] for c in "qkv"]
            mine[f"blocks.{i}.attn.qkv.{kind}"] = torch.cat(qkv)
    missing, unknown = visual.load_state_dict(mine, strict=False)
    assert not unknown and all("merger" in name for name in missing), (missing, unknown)


def loss_of(model, batch, pictures, device):
    ids, said, place = (torch.from_numpy(v).to(device, non_blocking=True) for v in batch)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        hidden = model(ids, place, model.see(pictures))
        logits = model.logits(hidden[:, :-1])
    target = torch.where(said[:, 1:], ids[:, 1:], -100)
    return F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=-100)


def groups_of(model, rate):
    """The tower, which has learnt already, learns more slowly."""
    found = {}
    for name, p in model.named_parameters():
        old = name.startswith("model.visual.") and "merger" not in name
        decay = 0.05 if p.ndim >= 2 and "embed_tokens" not in name else 0.0
        found.setdefault((old, decay), []).append(p)
    return [dict(params=ps, weight_decay=decay, rate=rate * (0.4 if old else 1.0)) for (old, decay), ps in found.items()]


def train(args, device):
    torch.manual_seed(args.seed)
    start = time.time()
    model = Model(CONFIG)
    start_from(model, args.tower)
    model = model.to(device).train()
    painters = {size: Painter(device, *size) for size in sorted(set(SIZES))}
    optimizer = torch.optim.AdamW(groups_of(model, args.rate), lr=args.rate, betas=(0.9, 0.98), fused=device.type == "cuda")
    steps, warm = args.steps, max(1, min(200, args.steps // 10))
    with multiprocessing.get_context("spawn").Pool(args.workers, start_worker, (args.out,)) as pool:
        written = Ahead(pool, args)
        for step in range(args.steps):
            if step == 50:
                measured = time.time()
            if step == 150 and args.seconds:
                steps = min(steps, 150 + int((args.seconds - (time.time() - start)) / ((time.time() - measured) / 100)))
                print(f"{steps} steps fit into {args.seconds} s", flush=True)
            if step >= steps:
                break
            scenes, size, where, batch = written.next()
            for group in optimizer.param_groups:
                group["lr"] = group["rate"] * min((step + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * step / steps))
            scene = torch.from_numpy(scenes).to(device)
            pictures = painters[size](*scene.T[:4])[torch.from_numpy(where).to(device)]
            loss = loss_of(model, batch, pictures, device)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0 and device.type == "cuda":
                torch.cuda.synchronize()  # so that the clock is the work's
            if step % args.report == 0 or step == steps - 1:
                print(f"step {step} loss {loss.item():.4f} {time.time() - start:.0f} s", flush=True)
    export(args.out, model, f"seed {args.seed}, {steps} steps of {args.batch} pictures")


class Ahead:
    """Conversations that other processes write, some steps ahead."""

    def __init__(self, pool, args):
        self.pool, self.args, self.pending, self.asked = pool, args, collections.deque(), 0

    def next(self):
        while len(self.pending) < 64 and self.asked < self.args.steps:
            self.pending.append(self.pool.apply_async(make_batch, ((self.args.seed * 10**9 + self.asked, self.args.batch),)))
            self.asked += 1
        return self.pending.popleft().get()


def export(folder, model, training):
    write_files(folder)
    weights = {name: p.detach().to("cpu", torch.bfloat16).contiguous() for name, p in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", {"format": "pt", "training": training})


def load(folder):
    model = Model(json.loads((folder / "config.json").read_text()))
    model.load_state_dict({k: v.float() for k, v in load_file(folder / "model.safetensors").items()})
    return model.eval()


# ---- evaluation ----

def fit(height, width):
    """What Qwen2VLImageProcessor resizes to (smart_resize)."""
    h, w = round(height / 32) * 32, round(width / 32) * 32
    if h * w > MOST_PIXELS:
        beta = math.sqrt(height * width / MOST_PIXELS)
        h, w = (max(32, math.floor(v / beta / 32) * 32) for v in (height, width))
    elif h * w < LEAST_PIXELS:
        beta = math.sqrt(LEAST_PIXELS / (height * width))
        h, w = (math.ceil(v * beta / 32) * 32 for v in (height, width))
    return h, w


def draw_one(task):
    seed, colour, shape, pattern, count, ground = task
    size = [(160, 160), (220, 140), (140, 200), (320, 240), (96, 96)][seed % 5]
    picture = draw_pictures.draw(f"talking {seed}", SHAPES[shape], COLOUR_NAMES[colour], PATTERNS[pattern], count + 1, size, DRAWN_GROUNDS[ground])
    h, w = fit(picture.height, picture.width)
    return np.asarray(picture.resize((w, h), Image.BICUBIC))


@torch.no_grad()
def answers(model, writer, pictures, question, device):
    """Greedy answers about pictures of one size."""
    pictures = torch.from_numpy(np.stack(pictures)).to(device).permute(0, 3, 1, 2).float() / 127.5 - 1
    h, w = pictures.shape[2] // 32, pictures.shape[3] // 32
    prompt = writer.turn(question, 1, h * w)
    ids = torch.tensor([prompt] * len(pictures), device=device)
    seen = model.see(pictures)
    done = torch.zeros(len(pictures), dtype=torch.bool, device=device)
    for _ in range(24):
        place = torch.from_numpy(positions(ids[0].tolist(), h, w)).to(device)[None].expand(len(ids), -1, -1)
        token = model.logits(model(ids, place, seen)[:, -1]).argmax(-1)
        ids = torch.cat([ids, token[:, None]], 1)
        done |= token == IDS["<|im_end|>"]
        if done.all():
            break
    texts = []
    for row in ids[:, len(prompt):].tolist():
        texts.append(writer.tokenizer.decode(row[:row.index(IDS["<|im_end|>"])] if IDS["<|im_end|>"] in row else row))
    return texts


def answer_all(model, writer, pictures, question, device):
    said = [None] * len(pictures)
    for shape in sorted({p.shape for p in pictures}):
        of = [i for i, p in enumerate(pictures) if p.shape == shape]
        for start in range(0, len(of), 64):
            part = of[start:start + 64]
            for i, text in zip(part, answers(model, writer, [pictures[k] for k in part], question, device)):
                said[i] = text
    return said


def evaluate(folder, number, device):
    model, writer, rnd = load(folder).to(device), Writer(folder), random.Random("evaluation")
    print("| pictures | number | whole phrase | colour | shape | pattern | count | background | how many? | what colour? |\n|" + "---|" * 10)
    for title, triples in (("combinations seen in training", SEEN), ("held-out combinations", HELD_OUT)):
        scenes = [[*rnd.choice(triples), rnd.randrange(MAX_COUNT), rnd.randrange(len(GROUNDS))] for _ in range(number)]
        with multiprocessing.get_context("spawn").Pool() as pool:
            pictures = pool.map(draw_one, [(i, *scene) for i, scene in enumerate(scenes)], chunksize=8)
        said = answer_all(model, writer, pictures, "What is in this picture?", device)
        count = answer_all(model, writer, pictures, "How many are there?", device)
        colour = answer_all(model, writer, pictures, "What colour is it?", device)
        hits = []
        for scene, text, n, c in zip(scenes, said, count, colour):
            same = lambda part: phrase([*scene[:part], (scene[part] + 1) % 4, *scene[part + 1:]]) != text
            words = text.split()
            hits.append([text == phrase(scene), COLOUR_NAMES[scene[0]] in words, f" {noun(scene)} " in f" {text} ",
                         (PATTERNS[scene[2]] in words) if scene[2] else not set(PATTERNS) & set(words),
                         words[:1] == [COUNTS[scene[3]]] if scene[3] else words[:1] in (["a"], ["an"]),
                         text.endswith(GROUND_WORDS[scene[4]]) if scene[4] else not any(text.endswith(g) for g in GROUND_WORDS[1:]),
                         n == COUNTS[scene[3]], c == COLOUR_NAMES[scene[0]]])
        print(f"| drawn by tools/draw_pictures.py, {title} | {number} | " + " | ".join(f"{100 * f:.1f}" for f in np.mean(hits, 0)) + " |", flush=True)
        for scene, text in list(zip(scenes, said))[:12]:
            print(f"    {'ok ' if text == phrase(scene) else 'BAD'} {phrase(scene)!r} said {text!r}")


# ---- the model beside transformers' ----

@torch.no_grad()
def check(folder):
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration
    torch.manual_seed(3)
    writer, mine = Writer(folder), Model(CONFIG)
    for p in mine.parameters():
        p.add_(torch.randn_like(p) * 0.05)
    theirs = Qwen3VLForConditionalGeneration(Qwen3VLConfig(**json.loads(json.dumps(CONFIG)))).float().eval()
    missing, unknown = theirs.load_state_dict(mine.state_dict(), strict=False)
    assert not unknown and missing == ["lm_head.weight"], (missing, unknown)
    theirs.tie_weights()
    for height, width in sorted(set(SIZES)):
        h, w = height // 32, width // 32
        ids, _ = writer.conversation([("What is this?", "a red circle", 1), ("How many?", "one", 0), ("And this?", "two stars", 1)], h * w)
        pictures = torch.rand(2, 3, height, width) * 2 - 1
        place = torch.from_numpy(positions(ids, h, w))[None]
        ids = torch.tensor([ids])
        logits = mine.logits(mine(ids, place, mine.see(pictures)))
        answer = theirs(input_ids=ids, pixel_values=mine.patches(pictures).flatten(0, 1), mm_token_type_ids=(ids == PICTURE).int(),
                        image_grid_thw=torch.tensor([[1, 2 * h, 2 * w]] * 2)).logits
        error = ((logits - answer).norm() / answer.norm()).item()
        print(f"{height} x {width}: relative L2 {error:.1e}")
        assert error < 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", action="store_true")
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tower", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "examples/model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=0, help="make fewer steps if all do not fit into this time")
    parser.add_argument("--batch", type=int, default=480, help="pictures a step")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--report", type=int, default=100, help="steps from a printed line to the next")
    parser.add_argument("--workers", type=int, default=6, help="processes that write conversations")
    parser.add_argument("--pictures", type=int, default=1000, help="pictures in each set of the evaluation")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.tokenizer:
        return make_tokenizer(args.out)
    if args.check:
        return check(args.out)
    if not args.evaluate:
        train(args, device)
    evaluate(args.out, args.pictures, device)


if __name__ == "__main__":
    main()

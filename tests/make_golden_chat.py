#!/usr/bin/env python3
"""Writes tests/golden/chat.golden: conversations as the chat templates of Qwen3 and Qwen3-VL write them, rendered by transformers.

    tests/make_golden_chat.py QWEN3 QWEN3_REVISED INSTRUCT_2507 THINKING_2507 QWEN3_VL QWEN3_VL_THINKING

with the templates' texts (chat_template.jinja); needs transformers.

A line a conversation: template, flags (1: an answer is begun, 2: with thinking), messages, each as role, number of pictures and text in
hexadecimal, then "=" and what it becomes in hexadecimal. The conversations are made up here, seeded; the templates are not stored.
"""
import pathlib
import random
import sys

from transformers.utils.chat_template_utils import render_jinja_template

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
ROLES = ["system", "user", "assistant"]
USER = ["What is in this picture?", "", "And now?", "Say it in two words.", "ein Satz\nmit\n\nZeilen\n", "日本語で 🙂", "<tool_response>\n42\n</tool_response>",
        "<|im_end|> is a token", "  spaces  ", "<image>", "Is <image> like <image>?", "Tell <image>", "<image> what", "\n", "<think>no</think>"]
ASSISTANT = ["two yellow stars on paper", "", "<think>\nHm.\n</think>\n\nYes.", "<think>\n\n</think>\n\nNo.", "a</think>b", "<think>only", "\n\nlines\n\n",
             "<think>\nOne</think>two</think>\n\nthree", "x<think>y\n\n\n</think>\n z", "</think>", "<think>a<think>b</think>c"]
SYSTEM = ["You are a helpful assistant.", "", "Zeile\n"]


def conversation(rnd, pictures):
    messages = [(0, rnd.choice(SYSTEM), 0)] if rnd.random() < 0.4 else []
    for turn in range(rnd.randint(1, 4)):
        text = rnd.choice(USER)
        marks = text.count("<image>")
        if marks and not pictures:
            text, marks = text.replace("<image>", "it"), 0
        messages.append((1, text, marks + (rnd.choice([0, 0, 1, 2]) if pictures else 0)))
        if rnd.random() < 0.9 or turn:
            messages.append((2, rnd.choice(ASSISTANT), 0))
    if messages[-1][0] == 2 and rnd.random() < 0.7:
        messages.append((1, rnd.choice(USER[:6]), 0))
    if rnd.random() < 0.1:
        messages.append((0, rnd.choice(SYSTEM), 0))
    return messages


def content(text, pictures):
    """As a caller of transformers would give it: pictures where <image> is, the others in front."""
    if not pictures:
        return text
    parts = text.split("<image>")
    result = [{"type": "image"}] * (pictures - len(parts) + 1)
    for i, part in enumerate(parts):
        result = result + ([{"type": "image"}] if i else []) + ([{"type": "text", "text": part}] if part else [])
    return result


def main():
    from make_talking_model import TEMPLATE
    qwen3, revised, instruct, thinking, qwen3_vl, vl_thinking = (pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:7])
    rnd, lines = random.Random(46), []
    for kind, templates, flagged in [(1, [qwen3, revised], [0, 1, 1, 3]), (2, [qwen3_vl, TEMPLATE], [0, 1, 1]), (3, [instruct], [0, 1, 1]),
                                     (4, [thinking], [0, 1, 1, 3]), (5, [vl_thinking], [0, 1, 1, 3])]:
        for i in range(50):
            messages = conversation(rnd, kind in (2, 5))
            flags = rnd.choice(flagged)
            given = [{"role": ROLES[role], "content": content(text, pictures)} for role, text, pictures in messages]
            options = dict(add_generation_prompt=bool(flags & 1), enable_thinking=bool(flags & 2))
            told = [render_jinja_template([given], chat_template=t, **options)[0][0] for t in templates]
            assert len(set(told)) == 1, (given, told)
            words = [str(kind), str(flags)]
            for role, text, pictures in messages:
                words += [str(role), str(pictures), text.encode().hex() or "-"]
            lines.append(" ".join([*words, "=", told[0].encode().hex() or "-"]))
    (ROOT / "tests/golden/chat.golden").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

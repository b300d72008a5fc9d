"""examples/python/megavit.py on the CPU: the command line's rows, its structs those of the header, and what it says when asked for wrongly.

    python_module.py build/megavit
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "examples", "python"))
import megavit  # noqa: E402

STRUCTS = {"mgv_error": megavit._Error, "mgv_model_desc": megavit._ModelDesc, "mgv_model_info": megavit._ModelInfo,
           "mgv_engine_desc": megavit._EngineDesc, "mgv_image": megavit._Image, "mgv_output": megavit._Output,
           "mgv_shape": megavit._Shape, "mgv_encode_desc": megavit._EncodeDesc, "mgv_parallel_for": megavit._Parallel}


def check_structs(folder):
    """Every field of the module lies where the compiler puts the header's."""
    program = ["#include <stdio.h>\n#include \"megavit.h\"\nint main(void) {"]
    for name, struct in STRUCTS.items():
        program += ['printf("%s.%s %%zu\\n", offsetof(%s, %s));' % (name, field[0], name, field[0])
                    for field in struct._fields_ if field[0] != "rest"]
    program.append('printf("info %zu\\n", sizeof(mgv_model_info)); return 0; }')
    source = os.path.join(folder, "offsets.c")
    with open(source, "w") as file:
        file.write("\n".join(program))
    subprocess.run([os.environ.get("CC", "gcc"), "-I", ROOT, source, "-o", source + ".bin"], check=True)
    said = subprocess.run([source + ".bin"], check=True, capture_output=True, text=True).stdout
    wanted = dict(line.split() for line in said.splitlines())
    assert int(wanted.pop("info")) <= ctypes.sizeof(megavit._ModelInfo)
    for name, offset in wanted.items():
        struct, field = name.split(".")
        assert getattr(STRUCTS[struct], field).offset == int(offset), name


def command_line_rows(binary, model, pictures, *options):
    said = subprocess.run([binary, "embed", "--model", model, "--format", "jsonl", *options, *pictures], check=True, capture_output=True,
                          text=True).stdout
    return numpy.array([json.loads(line)["embedding"] for line in said.splitlines()], numpy.float32)


def write_ppm(path, array):
    with open(path, "wb") as file:
        file.write(b"P6 %d %d 255\n" % (array.shape[1], array.shape[0]))
        file.write(array.tobytes())


def raises(kind, pattern, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        assert re.search(pattern, str(error)), str(error)
        return
    raise AssertionError("%s was accepted" % (arguments,))


class Pillow:
    """What a picture of Pillow's is to NumPy."""

    def __init__(self, array, mode):
        self.array, self.mode = array, mode

    def __array__(self, dtype=None, copy=None):
        return self.array


def check_pictures(engine, picture):
    """One picture in place of a list would be a picture a row of it, and Pillow's modes other than these hold no such bytes."""
    rows, grey = engine.encode([picture]), picture[:, :, 0]
    assert numpy.array_equal(engine.encode(picture[None]), rows)
    assert numpy.array_equal(engine.encode([Pillow(picture, "RGB")]), rows)
    assert numpy.array_equal(engine.encode([Pillow(grey, "L")]), engine.encode([grey]))
    tensor = Pillow(picture, picture.max)  # torch's have a function of that name
    assert numpy.array_equal(engine.encode([tensor]), rows)
    for wrong in (picture, picture[:4], grey):
        raises(ValueError, "a list or an array", engine.encode, wrong)
    for array, mode in ((grey, "P"), (picture, "YCbCr"), (numpy.dstack([picture, grey]), "CMYK")):
        raises(ValueError, "this one is " + mode, engine.encode, [Pillow(array, mode)])


def main():
    binary = sys.argv[1]
    path = os.path.join(ROOT, "examples", "model")
    random = numpy.random.default_rng(1)
    pictures = [random.integers(0, 256, (height, width, 3), numpy.uint8) for height, width in ((64, 64), (97, 131), (40, 300))]
    with tempfile.TemporaryDirectory() as folder:
        check_structs(folder)
        files = [os.path.join(folder, "%d.ppm" % i) for i in range(len(pictures))]
        for file, picture in zip(files, pictures):
            write_ppm(file, picture)
        model = megavit.Model(path)
        engine = megavit.Engine(model, backend="cpu", max_images=4, threads=2)
        assert engine.backend == "cpu" and model.info.pooled_width > 0 and model.info.family_name
        rows = engine.encode(pictures)
        assert rows.dtype == numpy.float32 and rows.shape == (3, model.info.pooled_width)
        assert numpy.array_equal(rows, command_line_rows(binary, path, files))
        assert numpy.array_equal(engine.encode(pictures, normalize=True), command_line_rows(binary, path, files, "--normalize"))
        assert numpy.array_equal(engine.encode([pictures[1][:, ::-1][:, ::-1]]), rows[1:2])  # what is not contiguous is copied
        assert numpy.array_equal(engine.encode([numpy.dstack([pictures[0], numpy.full((64, 64), 255, numpy.uint8)])]), rows[:1])
        grey = pictures[0][:, :, 0]
        assert numpy.array_equal(engine.encode([grey]), engine.encode([numpy.dstack([grey] * 3)]))
        assert engine.encode(pictures[:1], output="tokens").shape == (model.info.tokens_per_image, model.info.token_width)
        for precision, most in (("fast", 0.03), ("bf16", 0.03), ("auto", 0)):  # fast: the same where the CPU does not multiply bf16
            other = megavit.Engine(model, backend="cpu", max_images=4, threads=2, precision=precision).encode(pictures)
            assert numpy.linalg.norm(other - rows) <= most * numpy.linalg.norm(rows), precision
            assert numpy.array_equal(other, command_line_rows(binary, path, files, "--precision", precision))
        raises(megavit.Error, "there is no precision", megavit.Engine, model, precision="float16")
        check_pictures(engine, pictures[0])
        raises(megavit.Error, "made for 4", engine.encode, [pictures[0]] * 5)
        raises(ValueError, "uint8", engine.encode, [pictures[0].astype(numpy.float32)])
        raises(megavit.Error, "no images", engine.encode, [])
        raises(megavit.Error, "no_such_model", megavit.Model, "no_such_model")
        engine.cancel()
        assert numpy.array_equal(engine.encode(pictures), rows)
        del engine, model


if __name__ == "__main__":
    main()

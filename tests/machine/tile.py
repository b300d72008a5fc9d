"""Says what the cases of tile.h must leave, by other sources than this project's, and compares.

    make build/machine/tile && build/machine/tile FILE [SEED]      what the machine model leaves (tile.sh: a card)
    python3 tests/machine/tile.py FILE                             NumPy alone, written from the PTX manual 9.0, 9.7.16
    python3 tests/machine/tile.py FILE --triton                    and by Triton (PyPI, 3.9), whose layouts run on real cards; no GPU needed
    python3 tests/machine/tile.py FILE --viz FOLDER                and by triton-viz (a checkout of 203b0c7, with Triton 3.8 and PyTorch)

NumPy: descriptors, swizzles, instruction words, layouts of tensor memory and of scales, numbers. --triton: where elements lie in shared and
in tensor memory comes from the compiler's own linear layouts, and E4M3 and E8M0 are decoded, and multiplied, by its interpreter's
dot_scaled. --viz: the products by triton-viz's simulation of Gluon's tcgen05 (tile_viz.py), which knows values and no layouts.
Whole numbers must come out to the bit, and so must everything in tensor memory that nobody writes; rounded sums within what float32
sums can differ in any order. Exit status 1 where something is wrong.
"""
import argparse
import struct
import sys

import numpy as np

F16, F8, MX, MOVE = range(4)
MULTIPLY, COPY, WAIT, STORE, LOAD_8, LOAD_16 = range(6)
IMAGE, LANES, COLUMNS = 100 << 10, 128, 512
HEAD, STEP = struct.Struct("<64s4I"), struct.Struct("<4I2Q4I")


def read(path):
    data, at, cases = open(path, "rb").read(), 0, []
    while at < len(data):
        name, magic, count, whole, kind = HEAD.unpack_from(data, at)
        assert magic == 0x454C4954, "this is no file of tile or tile.sh"
        at += HEAD.size
        keys = "what kind d word a b a_in_tensor_memory a_scales b_scales accumulate".split()
        steps = [dict(zip(keys, STEP.unpack_from(data, at + i * STEP.size))) for i in range(count)]
        at += count * STEP.size
        parts, ctas = [], 1 + (kind >> 8)
        for words in (IMAGE // 4, LANES * COLUMNS, LANES * COLUMNS):
            parts.append(np.frombuffer(data, "<u4", ctas * words, at).reshape(ctas, words))
            at += ctas * words * 4
        images = [image.view(np.uint8) for image in parts[0]]
        for cta in range(ctas):  # of a pair each half of the rows is a case, with the weights of both
            cases.append(dict(name=name.rstrip(b"\0").decode() + (f", rows {128 * cta} and up" if ctas > 1 else ""), whole=whole,
                              kind=kind & 255, steps=steps, image=images[cta], images=images,
                              before=parts[1][cta].reshape(LANES, COLUMNS), after=parts[2][cta].reshape(LANES, COLUMNS)))
    return cases


# ---- numbers ----

def minifloat(codes, exponent_bits, fraction_bits, infinity):
    codes = codes.astype(np.int64)
    bias, sign = (1 << exponent_bits - 1) - 1, np.where(codes >> exponent_bits + fraction_bits & 1, -1.0, 1.0)
    exponent, fraction = codes >> fraction_bits & (1 << exponent_bits) - 1, codes & (1 << fraction_bits) - 1
    value = np.where(exponent, ((1 << fraction_bits) + fraction) * 2.0 ** (exponent - bias - fraction_bits),
                     fraction * 2.0 ** (1 - bias - fraction_bits))
    top = exponent == (1 << exponent_bits) - 1
    if infinity:
        value = np.where(top, np.where(fraction, np.nan, np.inf), value)
    else:
        value = np.where(top & (fraction == (1 << fraction_bits) - 1), np.nan, value)
    return sign * value


def decode(codes, kind, code):
    if kind == F16:
        return minifloat(codes, 8, 7, True) if code else minifloat(codes, 5, 10, True)
    return minifloat(codes, 5, 2, True) if code else minifloat(codes, 4, 3, False)


def e8m0(byte):
    return np.where(byte == 255, np.nan, 2.0 ** (byte.astype(np.float64) - 127))


# ---- by the PTX manual ----

def word_of(word, kind):
    """Tables of the instruction descriptor."""
    bits = lambda first, count: word >> first & (1 << count) - 1
    w = dict(a=bits(7, 3), b=bits(10, 3), a_mn=bits(15, 1), b_mn=bits(16, 1), n=bits(17, 6) * 8)
    if kind == MX:
        return dict(w, m=bits(27, 2) * 128, k=32, b_id=bits(4, 2), a_id=bits(29, 2))
    return dict(w, m=bits(24, 5) * 16, k=16 if kind == F16 else 32)


def swizzled(address, code):
    """128, 64, 32 bytes: units of 16 bytes are exchanged by address bits 7 and up."""
    bits = {0: 0, 2: 3, 4: 2, 6: 1}[code]
    return address ^ (address >> 7 & (1 << bits) - 1) << 4


def operand(image, descriptor, rows, k, size, mn_major):
    """Codes [rows, k] of a matrix in shared memory."""
    start, leading, stride = ((descriptor >> at & 0x3FFF) << 4 for at in (0, 16, 32))
    code = descriptor >> 61
    width = {0: 16, 2: 128, 4: 64, 6: 32}[code]
    r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
    line, byte = (c, r * size) if mn_major else (r, c * size)  # `byte` runs along what is contiguous
    panel, inside = byte // width, byte % width
    if code == 0 and mn_major:
        address = start + panel * stride + line // 8 * leading + line % 8 * 16 + inside
    else:
        address = start + panel * leading + line // 8 * stride + line % 8 * width + inside
    address = swizzled(address, code)
    low = image[address].astype(np.uint32)
    return low if size == 1 else low | image[address + 1].astype(np.uint32) << 8


def lanes_of(m):
    rows = np.arange(m)
    return rows if m == 128 else rows // 16 * 32 + rows % 16


def scales(memory, address, rows, which):
    r = np.arange(rows)
    return memory[r % 32, (address & 0xFFFF) + r // 32] >> 8 * which & 255


def copied(image, descriptor):
    """tcgen05.cp.32x128b.warpx4: 32 rows of 16 bytes, to all four quarters of the lanes; words [128, 4]."""
    rows = operand(image, descriptor, 32, 16, 1, False).astype(np.uint8)
    return np.tile(np.ascontiguousarray(rows).view("<u4"), (4, 1))


def moved(memory, step):
    """tcgen05.st.16x128b.x2, or ld.16x256b.x2 or x4, whose registers then go to a column each: 16 lanes of each of four warps."""
    warp, t = np.arange(128)[:, None] // 32, np.arange(128)[:, None] % 32
    count = {STORE: 4, LOAD_8: 8, LOAD_16: 16}[step["what"]]
    j, column = np.arange(count)[None, :], step["d"] & 0xFFFF
    own = (0x5A000000 | np.arange(128)[:, None] << 8 | np.arange(16)[None, :]).astype(np.uint32)
    half = j % 2 if step["what"] == STORE else j // 2 % 2  # registers of the upper and of the lower eight lanes
    lanes = warp * 32 + (step["d"] >> 16) + t // 4 + 8 * half
    if step["what"] == STORE:
        memory[lanes, column + j // 2 * 4 + t % 4] = own[:, :count]
        return
    own[:, :count] = memory[lanes, column + j // 4 * 8 + t % 4 * 2 + j % 2]
    memory[:, step["a_in_tensor_memory"]:step["a_in_tensor_memory"] + 16] = own


class Manual:
    name = "NumPy, from the PTX manual"

    def a_of(self, case, step, w, memory):
        if step["a_in_tensor_memory"]:
            column = step["a"] & 0xFFFF
            words = memory[lanes_of(w["m"]), column:column + w["k"] // 2]
            return np.stack([words & 0xFFFF, words >> 16], -1).reshape(w["m"], w["k"])
        return operand(case["image"], step["a"], w["m"], w["k"], 2 if case["kind"] == F16 else 1, w["a_mn"])

    def b_of(self, case, step, w):
        return operand(case["image"], step["b"], w["n"], w["k"], 2 if case["kind"] == F16 else 1, w["b_mn"])

    def scales_of(self, memory, step, w):
        return scales(memory, step["a_scales"], w["m"], w["a_id"]), scales(memory, step["b_scales"], w["n"], w["b_id"])

    def product(self, case, w, a, b, a_scale, b_scale):
        a, b = decode(a, case["kind"], w["a"]), decode(b, case["kind"], w["b"])
        if case["kind"] == MX:
            a, b = a * e8m0(a_scale)[:, None], b * e8m0(b_scale)[:, None]
        return a @ b.T, np.abs(a) @ np.abs(b).T

    def place(self, m, n, pair):
        """Of a pair each CTA has the lanes of its own rows, and all columns."""
        return lanes_of(m)[:, None], np.arange(n)[None, :]


# ---- by Triton: the compiler's layouts, the interpreter's numbers ----

def layout_map(bases, rank=2):
    """Coordinates of every offset of a linear layout."""
    at = np.zeros((1, rank), np.int64)
    for base in bases:
        at = np.concatenate([at, at ^ np.array(base)])
    return at


class Triton(Manual):
    name = "Triton's layouts and dot_scaled"

    def __init__(self):
        from triton._C.libtriton import gluon_ir, ir
        from triton.experimental.gluon import language
        from triton.experimental.gluon.language.nvidia import blackwell
        self.context = ir.context()
        ir.load_dialects(self.context)
        self.builder, self.gl, self.blackwell = gluon_ir.GluonOpBuilder(self.context), language, blackwell

    def linear(self, layout, shape):
        return self.builder.to_linear_layout(layout._to_ir(self.builder), shape)

    def operand(self, case, descriptor, rows, k, size, mn_major):
        """One product's part of a panel: of as many rows as the descriptor's stride and width make it."""
        code, start = descriptor >> 61, (descriptor & 0x3FFF) << 4
        width = {0: 0, 2: 128, 4: 64, 6: 32}[code]
        if not width:
            return operand(case["image"], descriptor, rows, k, size, mn_major)
        layout = self.gl.NVMMASharedLayout(width, size * 8, 2, transposed=bool(mn_major))
        of_pattern = 8 * width  # where rows, or values of k, begin anew
        first, inside = start // of_pattern * of_pattern, start % of_pattern
        shape = [width // size, 8] if mn_major else [8, width // size]
        of_offset = layout_map(self.linear(layout, shape).offset_bases)
        table = np.zeros(shape, np.int64)
        table[of_offset[:, 0], of_offset[:, 1]] = np.arange(len(of_offset)) * size
        leading, stride = (descriptor >> 16 & 0x3FFF) << 4, (descriptor >> 32 & 0x3FFF) << 4
        r, c = np.arange(rows)[:, None], np.arange(k)[None, :]
        if mn_major:
            address = first + table[r % shape[0], c % 8] + r // shape[0] * leading + c // 8 * stride
        else:
            address = first + table[r % 8, c + inside // size] + r // 8 * stride
        low = case["image"][address].astype(np.uint32)
        return low if size == 1 else low | case["image"][address + 1].astype(np.uint32) << 8

    def a_of(self, case, step, w, memory):
        if step["a_in_tensor_memory"]:
            return super().a_of(case, step, w, memory)
        return self.operand(case, step["a"], w["m"], w["k"], 2 if case["kind"] == F16 else 1, w["a_mn"])

    def b_of(self, case, step, w):
        return self.operand(case, step["b"], w["n"], w["k"], 2 if case["kind"] == F16 else 1, w["b_mn"])

    def tensor_scales(self, memory, address, rows, which):
        layout = self.linear(self.blackwell.TensorMemoryScalesLayout(), [128, 4])
        lane, column = layout_map(layout.rows), layout_map(layout.cols)
        found = {}
        for l, at in enumerate(lane):
            for c, beside in enumerate(column):  # bytes of four columns
                row, block = at ^ beside
                found.setdefault((row, block), set()).add(int(memory[l, (address & 0xFFFF) + c // 4] >> 8 * (c % 4) & 255))
        assert all(len(values) == 1 for values in found.values()), "the four quarters of the lanes differ"
        return np.array([min(found[row, which]) for row in range(rows)])

    def scales_of(self, memory, step, w):
        return tuple(np.concatenate([self.tensor_scales(memory, step[f"{x}_scales"] + row // 32, min(rows - row, 128), w[f"{x}_id"])
                                     for row in range(0, rows, 128)]) for x, rows in (("a", w["m"]), ("b", w["n"])))

    def product(self, case, w, a, b, a_scale, b_scale):
        if case["kind"] == F16 or w["a"] or w["b"]:  # six of the numbers of E5M2 are others to the interpreter of 3.9
            return super().product(case, w, a, b, a_scale, b_scale)
        size = super().product(case, w, a, b, a_scale, b_scale)[1]
        return self.dot_scaled(w, a, b, a_scale, b_scale) if case["kind"] == MX else self.dot_scaled(w, a, b, None, None), size

    def dot_scaled(self, w, a, b, a_scale, b_scale):
        import triton.language as tl
        from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
        types = {0: (tl.float8e4nv, "e4m3"), 1: (tl.float8e5, "e5m2")}
        codes = lambda x: np.ascontiguousarray(x.astype(np.uint8))
        one = lambda x, rows: np.full((rows, 1), 127, np.uint8) if x is None else codes(x)[:, None]
        builder = InterpreterBuilder()
        formats = [builder.str_to_fp_type(types[w[x]][1]) if hasattr(builder, "str_to_fp_type") else types[w[x]][1] for x in "ab"]
        handle = lambda data, kind: TensorHandle(data, kind)
        zero = handle(np.zeros((w["m"], w["n"]), np.float32), tl.float32)
        out = builder.create_dot_scaled(handle(codes(a), types[w["a"]][0]), handle(one(a_scale, w["m"]), tl.uint8), formats[0],
                                        handle(np.ascontiguousarray(codes(b).T), types[w["b"]][0]), handle(one(b_scale, w["n"]), tl.uint8),
                                        formats[1], False, True, True, zero)
        return out.data.astype(np.float64)

    def place(self, m, n, pair):
        if n & n - 1:
            return super().place(m, n, pair)
        both = dict(two_ctas=True, cga_layout=[[1, 0]]) if pair else {}
        layout = self.linear(self.blackwell.TensorMemoryLayout((m, n), col_stride=1, **both), [m << pair, n])
        lane, column = layout_map(layout.rows), layout_map(layout.cols)
        lanes, columns = np.full((m, n), -1), np.full((m, n), -1)
        for l in range(len(lane) - 1, -1, -1):
            for c in range(len(column) - 1, -1, -1):
                row, at = lane[l] ^ column[c]
                lanes[row, at], columns[row, at] = l, c
        return lanes, columns


class Viz(Manual):
    name = "triton-viz's tcgen05_mma and tcgen05_mma_scaled"

    def __init__(self, folder):
        sys.path.insert(0, folder)
        import tile_viz
        self.simulated = tile_viz.product

    def product(self, case, w, a, b, a_scale, b_scale):
        size = super().product(case, w, a, b, a_scale, b_scale)[1]
        return self.simulated(case["kind"], w["a"], w["b"], a, b, a_scale, b_scale), size


def expected(case, oracle):
    """What tensor memory must hold, where sums lie in it, and how far each may be off."""
    memory, sums, place = case["before"].copy(), None, (np.zeros(0, int), np.zeros(0, int))
    for step in case["steps"]:
        column = step["d"] & 0xFFFF
        if step["what"] == COPY:
            memory[:, column:column + 4] = copied(case["image"], step["a"])
        elif step["what"] >= STORE:
            moved(memory, step)
        elif step["what"] == MULTIPLY:
            w = word_of(step["word"], case["kind"])
            b = [oracle.b_of(dict(case, image=image), step, dict(w, n=w["n"] // len(case["images"]))) for image in case["images"]]
            w["m"] //= len(case["images"])
            a_scale, b_scale = oracle.scales_of(memory, step, w) if case["kind"] == MX else (None, None)
            value, size = oracle.product(case, w, oracle.a_of(case, step, w, memory), np.concatenate(b), a_scale, b_scale)
            if sums is None:
                lanes, columns = oracle.place(w["m"], w["n"], len(case["images"]) > 1)
                place = lanes, columns + column
                start = case["before"][place].view(np.float32).astype(np.float64) if step["accumulate"] else np.zeros(value.shape)
                sums, sizes, terms = start, np.abs(start), 1
            sums, sizes, terms = sums + value, sizes + size, terms + w["k"]
    if sums is None:
        return memory, place, np.zeros(0), np.zeros(0)
    return memory, place, sums, sizes * terms * 2.0 ** -23


def check(case, oracle):
    memory, place, sums, allowed = expected(case, oracle)
    seen = case["after"][place].view(np.float32)
    apart = np.abs(seen.astype(np.float64) - sums)
    same = int((seen == sums.astype(np.float32)).sum())
    good = same == seen.size if case["whole"] else bool((apart <= allowed).all())
    rest = np.ones((LANES, COLUMNS), bool)
    rest[place] = False
    untouched = bool((case["after"] == memory)[rest].all())
    sums_said = f"{same} of {seen.size} sums to the bit of the exact one, rounded" if seen.size else "no sums"
    print(f"{'ok    ' if good and untouched else 'not ok'} {case['name']}: {sums_said}{'' if good else ', some beyond the bound'}"
          f"{'' if untouched else '; what is moved, or what nobody writes, is another'}")
    return good and untouched


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--viz", metavar="FOLDER")
    args = parser.parse_args()
    cases, wrong = read(args.file), 0
    if not cases:
        sys.exit(f"{args.file} holds no case")
    oracles = [Manual()] + ([Triton()] if args.triton else []) + ([Viz(args.viz)] if args.viz else [])
    for oracle in oracles:
        print(f"# {oracle.name}")
        wrong += sum(not check(case, oracle) for case in cases)
    print(f"# {len(cases)} cases, {len(oracles)} oracles, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

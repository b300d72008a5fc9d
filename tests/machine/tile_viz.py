"""The products of tile.py by triton-viz's simulation of Gluon (tcgen05_copy of scales, tcgen05_mma_scaled, tcgen05_mma). It knows no FP8
tensors: elements come decoded, by PyTorch's float8 types; scales come as bytes of E8M0."""
import numpy as np
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton_viz.core.simulation.gluon import GluonInterpretedFunction


class Sums(blackwell.TensorMemoryLayout):  # to the simulation's builder, whose arguments are not those of every Triton
    def __init__(self, block):
        fields = dict(block=tuple(block), col_stride=1, cga_layout=[], two_ctas=False, fp4_padded=False, cta_split_num=None)
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _to_ir(self, builder):
        return builder.get_tensor_memory_layout(self.block, 1, [], False, False)


class Scales(blackwell.TensorMemoryScalesLayout):
    def _to_ir(self, builder):
        return builder.get_tensor_memory_scales_layout([])

    def mangle(self):
        return "scales"


@gluon.jit
def multiply(a_desc, b_desc, a_scale, b_scale, out_desc, blocks: gl.constexpr, scaled: gl.constexpr, plain: gl.constexpr,
             threads: gl.constexpr, num_warps: gl.constexpr):
    rows: gl.constexpr = out_desc.block_type.shape[0]
    columns: gl.constexpr = out_desc.block_type.shape[1]
    barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(barrier, count=1)
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_type.shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_type.shape, b_desc.layout)
    tma.async_load(a_desc, [0, 0], barrier, a)
    tma.async_load(b_desc, [0, 0], barrier, b)
    sums = blackwell.allocate_tensor_memory(gl.float32, [rows, columns], Sums((rows, columns)))
    if scaled:
        of_a = gl.allocate_shared_memory(gl.uint8, [rows, blocks], plain)
        of_b = gl.allocate_shared_memory(gl.uint8, [columns, blocks], plain)
        along = gl.arange(0, blocks, layout=gl.SliceLayout(0, threads))
        of_a.store(gl.load(a_scale + gl.arange(0, rows, layout=gl.SliceLayout(1, threads))[:, None] * blocks + along[None, :]))
        of_b.store(gl.load(b_scale + gl.arange(0, columns, layout=gl.SliceLayout(1, threads))[:, None] * blocks + along[None, :]))
        there_a = blackwell.allocate_tensor_memory(gl.uint8, [rows, blocks], Scales())
        there_b = blackwell.allocate_tensor_memory(gl.uint8, [columns, blocks], Scales())
        blackwell.tcgen05_copy(of_a, there_a)
        blackwell.tcgen05_copy(of_b, there_b)
        e4m3: gl.constexpr = gl.constexpr("e4m3")
        blackwell.tcgen05_mma_scaled(a, b.permute((1, 0)), sums, there_a, there_b, e4m3, e4m3, use_acc=False)
    else:
        blackwell.tcgen05_mma(a, b.permute((1, 0)), sums, use_acc=False)
    out = gl.allocate_shared_memory(gl.float32, [rows, columns], out_desc.layout)
    out.store(sums.load(threads))
    tma.async_store(out_desc, [0, 0], out)
    tma.store_wait(0)


def decoded(codes, kind, code):
    if kind == 0:
        return torch.from_numpy(codes.astype(np.uint16).view(np.int16)).view(torch.bfloat16 if code else torch.float16).float()
    return torch.from_numpy(codes.astype(np.uint8)).view(torch.float8_e5m2 if code else torch.float8_e4m3fn).float()


def product(kind, a_code, b_code, a, b, a_scale, b_scale):
    """a [m, k], b [n, k]: codes; scales: a byte a row, or None."""
    def descriptor(tensor):
        shape = list(tensor.shape)
        return TensorDescriptor.from_tensor(tensor, shape, gl.NVMMASharedLayout.get_default_for(shape, gl.float32))

    def bytes_of(scale, rows):
        return torch.from_numpy(np.zeros((rows, 1), np.uint8) if scale is None else scale.astype(np.uint8)[:, None].copy())

    columns = len(b)
    more = (1 << (columns - 1).bit_length()) - columns  # of zeros, since it wants powers of two
    b, b_scale = np.pad(b, ((0, more), (0, 0))), None if b_scale is None else np.pad(b_scale, (0, more))
    out = torch.zeros(len(a), len(b))
    GluonInterpretedFunction(multiply.fn).run(
        descriptor(decoded(a, kind, a_code)), descriptor(decoded(b, kind, b_code)), bytes_of(a_scale, len(a)), bytes_of(b_scale, len(b)),
        descriptor(out), 1, a_scale is not None, gl.NVMMASharedLayout(0, 8, 2), gl.BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0]),
        grid=(1,), num_warps=4)
    return out[:, :columns].numpy().astype(np.float64)

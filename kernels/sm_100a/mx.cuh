/* megavit: rows that become MXFP8 where they are written: E4M3 with a scale, a power of two, for 32 columns (OCP Microscaling Formats 1.0).
   Its twin on the CPU is mgv__mx_block of megavit.h. */
#ifndef MGV_MX_CUH
#define MGV_MX_CUH

#include "products.cuh"

/* The scale's byte of a block with this largest magnitude, and what its numbers are multiplied by. */
DEVICE uint32_t mx_scale(float largest, float &factor) {
    const uint32_t byte = mgv__mx_scale_ceil(__float_as_uint(fminf(largest, 3.4e38f)));
    factor = __uint_as_float(mgv__mx_inverse(byte));
    return byte;
}
DEVICE uint32_t mx_pack(const float *v, float factor) {
    return cvt_rn_satfinite_e4m3x2(v[0] * factor, v[1] * factor) | cvt_rn_satfinite_e4m3x2(v[2] * factor, v[3] * factor) << 16;
}

/* Where a row goes: its numbers, and the scales of its first 128 columns. */
struct MxRow {
    uint8_t *numbers, *scales;
};
DEVICE MxRow mx_row(const mgv__kernel_arguments &arguments, const mgv__kernel_op &op, uint32_t group, uint32_t row, uint32_t columns) {
    const mgv__kernel_mx &to = arguments.mx[mgv__mx_target(op.flags)];
    const uint32_t pitch = mgv__mx_pitch(columns);
    MxRow r;
    r.numbers = to.rows + ((size_t)group * op.rows_per_group + row) * pitch;
    r.scales = to.scales + (size_t)mgv__mx_row_tile(&op, group, row) * (pitch / 128) * MGV__MX_ATOM_BYTES + mgv__mx_atom_byte(row % 128, 0);
    return r;
}
/* Two blocks' scales, from column `column` on, a multiple of 64. */
DEVICE void mx_store_scales(const MxRow &r, uint32_t column, uint32_t bytes) {
    st_global_u16(r.scales + column / 128 * MGV__MX_ATOM_BYTES + column % 128 / 32, bytes);
}

/* By a thread that has a whole block: 32 columns from `column` on. The scale's byte. */
DEVICE uint32_t mx_store_block(const MxRow &r, uint32_t column, const float (&v)[32]) {
    float largest = 0, factor;
#pragma unroll
    for (int j = 0; j < 32; j++) largest = fmaxf(largest, fabsf(v[j]));
    const uint32_t byte = mx_scale(largest, factor);
#pragma unroll
    for (int j = 0; j < 32; j += 16)
        st_global_v4u32(r.numbers + column + j, mx_pack(v + j, factor), mx_pack(v + j + 4, factor), mx_pack(v + j + 8, factor),
                        mx_pack(v + j + 12, factor));
    return byte;
}

/* 64 columns. */
DEVICE void mx_store_part(const MxRow &r, uint32_t column, const float (&a)[32], const float (&b)[32]) {
    const uint32_t scale = mx_store_block(r, column, a);
    mx_store_scales(r, column, scale | mx_store_block(r, column + 32, b) << 8);
}

/* By the four lanes that share a row of 64 columns, in the layout of wgmma's registers: lane q has columns 8 j + 2 q and the next. It is
   row `r` of the two that they share. exists: the row does. */
DEVICE void mx_store_quad(const MxRow &row, uint32_t exists, uint32_t column, const float (&v)[32], uint32_t r, uint32_t lane) {
    uint32_t scales = 0;
#pragma unroll
    for (int block = 0; block < 2; block++) {
        const float *e = &v[16 * block + 2 * r];
        float largest = 0, factor;
#pragma unroll
        for (int j = 0; j < 4; j++) largest = fmaxf(largest, fmaxf(fabsf(e[4 * j]), fabsf(e[4 * j + 1])));
        scales |= mx_scale(quad_max(largest), factor) << 8 * block;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (exists)
                st_global_u16(row.numbers + column + 32 * block + 8 * j + 2 * (lane % 4),
                              cvt_rn_satfinite_e4m3x2(e[4 * j] * factor, e[4 * j + 1] * factor));
    }
    if (exists && lane % 4 == 0) mx_store_scales(row, column, scales);
}

/* By every thread that has stored rows, before it hands over: copy engines read them. */
DEVICE void mx_stored(void) { fence_proxy_async_global(); }

#endif /* MGV_MX_CUH */

/* megavit: the tiles without matrix work: pixels to patches. */
#ifndef MGV_PATCHES_CUH
#define MGV_PATCHES_CUH

#include "throughput/math.cuh"

/* Two bytes -> two bf16, around zero. These are exact in bf16, so rescaling and normalisation are folded into the weights and biases. */
DEVICE float centred(uint32_t byte) { return (float)((int32_t)byte - MGV__PIXEL_MIDDLE); }
DEVICE uint32_t bytes_to_bf16x2(uint32_t low, uint32_t high) { return cvt_rn_bf16x2(centred(low), centred(high)); }

/* A piece of 16 bytes, or of two. */
DEVICE void patch_piece(uint16_t *to, const uint8_t *from, uint32_t width) {
    if (width == 2) {
        const uint32_t pair = bytes_to_bf16x2(ld_global_nc_u8(from), ld_global_nc_u8(from + 1));
        *(uint32_t *)to = pair;
        return;
    }
    uint32_t out[8];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t four = ld_global_nc_u32(from + 4 * i);
        out[2 * i] = bytes_to_bf16x2(four & 255, four >> 8 & 255);
        out[2 * i + 1] = bytes_to_bf16x2(four >> 16 & 255, four >> 24);
    }
    st_global_v4u32(to, out[0], out[1], out[2], out[3]);
    st_global_v4u32(to + 8, out[4], out[5], out[6], out[7]);
}

/* One image: patch row (y, x, channel) order, so a patch's pixel row is `3 patch` bytes in one piece. Rows of class and register tokens,
   which come first, are zero: what these are is in the table that is added to the product. This thread takes every `step`-th piece. Pieces
   of 16 bytes where everything is a multiple of 16, of two bytes otherwise. */
DEVICE void patches_of_image(const mgv__kernel_arguments &arguments, const mgv__kernel_op &op, uint32_t image, uint32_t first_item,
                             uint32_t step) {
    const uint32_t piece = 3 * arguments.patch, side = arguments.grid * arguments.patch;
    const uint8_t *pixels = arguments.pixels + (size_t)image * arguments.image_size * arguments.image_size * 3;
    uint16_t *const rows = arguments.patches + (size_t)image * op.tokens * arguments.patch_pitch;
    uint16_t *const patches = rows + (size_t)arguments.prefix * arguments.patch_pitch;
    const uint32_t width = piece % 16 == 0 && arguments.image_size * 3 % 16 == 0 && ((size_t)arguments.pixels & 15) == 0 ? 16 : 2;
    const uint32_t parts = piece / width, items = side * arguments.grid * parts;
    for (uint32_t item = first_item; item < items; item += step) {
        const uint32_t part = item % parts, rest = item / parts, column = rest % arguments.grid, y = rest / arguments.grid;
        const uint8_t *from = pixels + (size_t)y * arguments.image_size * 3 + column * piece + part * width;
        uint16_t *to = patches + (size_t)(y / arguments.patch * arguments.grid + column) * arguments.patch_pitch +
                       y % arguments.patch * piece + part * width;
        patch_piece(to, from, width);
    }
    for (uint32_t item = first_item; item < arguments.prefix * arguments.patch_pitch / 8; item += step)
        st_global_v4u32(rows + 8 * item, 0, 0, 0, 0);
}

ROUTINE void patches_tile(Math &self, const TileSlot &tile) {
    uint32_t first, end;
    tile_rows(tile, self.cta, first, end);
    if (first >= end) return;
    patches_of_image(self.arguments, tile.op, image_number(tile.op, tile.group, tile.unit * MGV__CLUSTER + self.cta),
                     (tile.column * MGV__MATH_GROUPS + self.group) * 128 + self.thread, tile.op.column_tiles * MGV__MATH_GROUPS * 128);
    signal_ordinary_stores(self, tile);
}

/* Rows [first, end) of patches of pictures of any size: (frame, y, x, channel) order. This thread takes every `step`-th piece. */
DEVICE void patches_of_tokens(const mgv__kernel_arguments &arguments, const mgv__kernel_op &op, uint32_t first, uint32_t end,
                              uint32_t first_item, uint32_t step) {
    const uint32_t patch = arguments.patch, frames = op.of.patches.frames, piece = 3 * patch;
    const uint32_t width = piece % 16 == 0 ? 16 : 2; /* pictures begin at multiples of 16 */
    const uint32_t parts = piece / width, of_row = frames * patch * parts;
    for (uint32_t item = first_item; item < (end - first) * of_row; item += step) {
        const uint32_t row = first + item / of_row, part = item % parts, line = item % of_row / parts; /* of all frames */
        const mgv__kernel_token *const token = &arguments.tokens[row];
        const uint32_t next_frame = line < patch ? 0 : ld_global_nc_u32(&token->next_frame);
        const uint8_t *const from = arguments.pixels + ld_global_nc_u32(&token->pixels) + next_frame +
                                    line % patch * ld_global_nc_u32(&token->row_bytes) + part * width;
        patch_piece(arguments.patches + (size_t)row * arguments.patch_pitch + line * piece + part * width, from, width);
    }
}
ROUTINE void patches_of_tokens_tile(Math &self, const TileSlot &tile) {
    uint32_t first, end;
    tile_rows(tile, self.cta, first, end);
    if (first >= end) return;
    patches_of_tokens(self.arguments, tile.op, first, end, (tile.column * MGV__MATH_GROUPS + self.group) * 128 + self.thread,
                      tile.op.column_tiles * MGV__MATH_GROUPS * 128);
    signal_ordinary_stores(self, tile);
}

#endif /* MGV_PATCHES_CUH */

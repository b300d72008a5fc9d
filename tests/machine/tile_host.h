/* Makes the cases of tile.h, runs each and keeps what it leaves. The same on a card and on the model: only launch and memory differ. */
#ifndef MACHINE_TILE_HOST_H
#define MACHINE_TILE_HOST_H

#include <stdio.h>
#include <string.h>

#include <vector>

#include "../../kernels/sm_100a/blackwell.cuh"
#include "tile.h"

static uint32_t tile_hash(uint32_t i) {
    i = (i + 1) * 2654435761u;
    i ^= i >> 15;
    i *= 2246822519u;
    return i ^ i >> 13;
}

/* An element of 8 bits (E4M3, E5M2) or 16 (F16, BF16): 0, 1, -1, 2, -2, or any that is finite and whose products are. */
static uint32_t tile_element(uint32_t i, uint32_t kind, uint32_t format, uint32_t whole) {
    static const uint32_t numbers[4][5] = {{0, 0x38, 0xB8, 0x40, 0xC0}, {0, 0x3C, 0xBC, 0x40, 0xC0}, /* E4M3, E5M2 */
                                           {0, 0x3C00, 0xBC00, 0x4000, 0xC000}, {0, 0x3F80, 0xBF80, 0x4000, 0xC000}};
    const uint32_t h = tile_hash(i), row = (kind == TILE_F16 ? 2 : 0) + format;
    if (whole) return numbers[row][h % 5];
    if (row == 0) return (h & 0x7F) == 0x7F ? h & 0x80 : h & 0xFF;
    if (row == 1) return (h & 0x7C) == 0x7C ? h & 0x83 : h & 0xFF;
    if (row == 2) return (h & 0x8000) | (h & 0x7FFF) % 0x5000;              /* below 32 */
    return (h & 0x8000) | (118 + (h >> 7 & 0xF)) << 7 | (h >> 16 & 0x7F);   /* 2^-9 to 2^7 */
}

static void tile_fill(uint8_t *to, uint32_t bytes, uint32_t kind, uint32_t format, uint32_t whole, uint32_t seed) {
    const uint32_t size = kind == TILE_F16 ? 2 : 1;
    for (uint32_t i = 0; i < bytes / size; i++) {
        const uint32_t v = tile_element(seed + i, kind, format, whole);
        memcpy(to + i * size, &v, size);
    }
}

static std::vector<uint8_t> tile_image(const TileCase &c, uint32_t seed) {
    std::vector<uint8_t> image(TILE_IMAGE);
    tile_fill(&image[TILE_A_AT], TILE_B_AT - TILE_A_AT, c.kind, c.a_format, c.whole, seed);
    tile_fill(&image[TILE_B_AT], TILE_SCALES_AT - TILE_B_AT, c.kind, c.b_format, c.whole, seed + 50000);
    for (uint32_t i = TILE_SCALES_AT; i < TILE_IMAGE; i++)
        image[i] = (uint8_t)(c.whole ? 126 + tile_hash(seed + i) % 4 : 117 + tile_hash(seed + i) % 20);
    return image;
}

/* Of a pair the peer's, whose scales of B are the same. */
static std::vector<uint8_t> tile_images(const TileCase &c, uint32_t seed) {
    std::vector<uint8_t> images = tile_image(c, seed);
    if (c.m != 256) return images;
    std::vector<uint8_t> peers = tile_image(c, seed + 100000);
    for (uint32_t at = TILE_SCALES_AT; at < TILE_IMAGE; at += 3 * TILE_ATOM_BYTES)
        for (uint32_t i = at + TILE_ATOM_BYTES; i < at + 3 * TILE_ATOM_BYTES && i < TILE_IMAGE; i++) peers[i] = images[i];
    images.insert(images.end(), peers.begin(), peers.end());
    return images;
}

/* Before: whole numbers in float32; pairs of bf16 where A is there. */
static std::vector<uint32_t> tile_before(const TileCase &c, uint32_t seed) {
    std::vector<uint32_t> words(TILE_WORDS);
    for (uint32_t i = 0; i < TILE_WORDS; i++) {
        const float v = (float)((int)(i / 512 + i % 512 * 3) % 61 - 30);
        if (c.a_in_tensor_memory && i % 512 >= TILE_A_COLUMN && i % 512 < TILE_SCALES_COLUMN)
            words[i] = tile_element(2 * i + seed, c.kind, c.a_format, c.whole) |
                       tile_element(2 * i + 1 + seed, c.kind, c.a_format, c.whole) << 16;
        else memcpy(&words[i], &v, 4);
    }
    return words;
}

/* Scales come in atoms, a block of 128 bytes of K each: A's, then B's two, to twelve columns; a second block follows behind a wait, since a
   copy is not held back by the products that read what it overwrites. */
static std::vector<TileStep> tile_steps_of(const TileCase &c) {
    const uint32_t size = c.kind == TILE_F16 ? 2 : 1, of_product = 32 / size, b_scales = TILE_SCALES_COLUMN + SCALE_ATOM_COLUMNS;
    const uint32_t pair = c.m == 256; /* half of the rows of A and of B lie in each CTA */
    const uint32_t a_rows = c.a_transposed ? c.k : c.m >> pair, b_rows = c.b_transposed ? c.k : c.n >> pair;
    const uint64_t a = c.kind == TILE_MOVE ? 0
                       : c.a_transposed ? matrix_descriptor_mn_major(TILE_A_AT, a_rows, c.a_width)
                                      : matrix_descriptor_k_major(TILE_A_AT, a_rows, c.a_width);
    const uint64_t b = c.kind == TILE_MOVE ? 0
                       : c.b_transposed ? matrix_descriptor_mn_major(TILE_B_AT, b_rows, c.b_width)
                                      : matrix_descriptor_k_major(TILE_B_AT, b_rows, c.b_width);
    std::vector<TileStep> steps;
    const auto add = [&](uint32_t what) {
        TileStep s;
        memset(&s, 0, sizeof s);
        s.what = what;
        s.kind = c.kind;
        steps.push_back(s);
        return &steps.back();
    };
    if (c.kind == TILE_MOVE) {
        TileStep *s = add(c.n);
        s->d = c.first_row_of_scales << 16 | c.d_column;
        s->a_in_tensor_memory = TILE_LOADED_COLUMN;
        return steps;
    }
    for (uint32_t k = 0; k < c.k; k += of_product) {
        const uint32_t id = k / 32 % 4, k_bytes = k * size;
        for (uint32_t atom = 0; c.kind == TILE_MX && id == 0 && atom < 3; atom++) {
            if (k && atom == 0) add(TILE_WAIT);
            TileStep *s = add(TILE_COPY);
            s->d = TILE_SCALES_COLUMN + atom * SCALE_ATOM_COLUMNS;
            s->a = scale_descriptor(TILE_SCALES_AT + (k / 128 * 3 + atom) * TILE_ATOM_BYTES);
        }
        TileStep *s = add(TILE_MULTIPLY);
        s->d = c.d_column;
        s->word = c.kind == TILE_MX ? instruction_word_scaled(c.m, c.n, c.a_format, c.b_format, c.a_transposed, c.b_transposed, id, id)
                                    : instruction_word(c.m, c.n, c.a_format, c.b_format, c.a_transposed, c.b_transposed);
        s->a = c.a_in_tensor_memory ? TILE_A_COLUMN + k / 2
                                    : matrix_descriptor_advance(a, c.a_transposed ? matrix_mn_major_offset(k, c.a_width)
                                                                                  : matrix_k_major_offset(k_bytes, a_rows, c.a_width));
        s->b = matrix_descriptor_advance(b, c.b_transposed ? matrix_mn_major_offset(k, c.b_width)
                                                           : matrix_k_major_offset(k_bytes, b_rows, c.b_width));
        s->a_in_tensor_memory = c.a_in_tensor_memory;
        s->a_scales = TILE_SCALES_COLUMN;
        s->b_scales = b_scales + c.first_row_of_scales / 32;
        s->accumulate = k != 0 || c.accumulate;
    }
    add(TILE_WAIT);
    return steps;
}

/* Cases [first, end). run(name, arguments without pointers, image, before, after) returns whether the kernel ran well. Returns how many did
   not. */
template <class Run> int tile_run(FILE *file, uint32_t seed, uint32_t first, uint32_t end, const Run &run) {
    int failed = 0;
    for (uint32_t i = first; i < end; i++) {
        const TileCase &c = tile_cases[i];
        const uint32_t its_seed = seed * 1000003u + i * 200000u;
        const std::vector<TileStep> steps = tile_steps_of(c);
        const std::vector<uint8_t> image = tile_images(c, its_seed);
        std::vector<uint32_t> before = tile_before(c, its_seed);
        if (c.m == 256) before.insert(before.end(), before.rbegin(), before.rend());
        std::vector<uint32_t> after(before.size());
        TileArguments arguments;
        TileHead head;
        memset((void *)&arguments, 0, sizeof arguments);
        memset(&head, 0, sizeof head);
        if (steps.size() > TILE_STEPS) return -1;
        memcpy(arguments.step, steps.data(), steps.size() * sizeof steps[0]);
        arguments.count = (uint32_t)steps.size();
        arguments.pair = c.m == 256;
        if (!run(c.name, arguments, image, before, after)) {
            fprintf(stderr, "%s: FAILED\n", c.name);
            failed++;
            continue;
        }
        snprintf(head.name, sizeof head.name, "%s", c.name);
        head.magic = TILE_MAGIC;
        head.count = arguments.count;
        head.whole = c.whole;
        head.kind = c.kind | arguments.pair << 8;
        fwrite(&head, sizeof head, 1, file);
        fwrite(steps.data(), sizeof steps[0], steps.size(), file);
        fwrite(image.data(), 1, image.size(), file);
        fwrite(before.data(), 4, before.size(), file);
        fwrite(after.data(), 4, after.size(), file);
    }
    return failed;
}

#endif

/* What several tests share: an allocator that counts and fails, and files that lie in memory and fail. */
#ifndef MGV_TESTS_SUPPORT_H
#define MGV_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include "tests/skip.h"

/* Memory that nobody has written: MemorySanitizer, where it watches, is told so. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define FORGET_MEMORY(memory, bytes) __msan_poison(memory, bytes)
#endif
#endif
#ifndef FORGET_MEMORY
#define FORGET_MEMORY(memory, bytes) ((void)(memory), (void)(bytes))
#endif

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

/* Counts what is allocated, checks that each block is freed once with its own size, and fails call number fail_at
   (from 1; 0: none), or that and every later one. Blocks lie so, 49 bytes behind a multiple of 64, that mgv__alloc puts its
   result at the very end of them: a sanitizer then sees every byte too far. */
typedef struct counting_allocator {
    uint64_t calls;
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint64_t peak_bytes;
    uint64_t fail_at;
    int fail_from;
} counting_allocator;

static inline void *counting_alloc(void *user, size_t bytes) {
    counting_allocator *counts = (counting_allocator *)user;
    unsigned char *block;
    counts->calls++;
    if (counts->fail_at != 0 && (counts->fail_from ? counts->calls >= counts->fail_at : counts->calls == counts->fail_at)) return NULL;
    if (posix_memalign((void **)&block, 64, 49 + bytes) != 0) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    counts->live_blocks++;
    counts->live_bytes += bytes;
    if (counts->live_bytes > counts->peak_bytes) counts->peak_bytes = counts->live_bytes;
    memset(block + 49, 0xA5, bytes);
    FORGET_MEMORY(block + 49, bytes);
    return block + 49;
}
static inline void counting_free(void *user, void *memory, size_t bytes) {
    counting_allocator *counts = (counting_allocator *)user;
    unsigned char *block = (unsigned char *)memory - 49;
    size_t own;
    memcpy(&own, block, sizeof own);
    if (own != bytes) abort(); /* freed with another size, or twice */
    counts->live_blocks--;
    counts->live_bytes -= bytes;
    memset(block, 0x5A, 49 + bytes);
    free(block);
}
static inline mgv_allocator counting_allocator_make(counting_allocator *counts) {
    mgv_allocator allocator;
    memset(counts, 0, sizeof *counts);
    allocator.user = counts;
    allocator.alloc = counting_alloc;
    allocator.free = counting_free;
    return allocator;
}

static inline mgv_model *open_directory(const char *path, mgv_tower tower) {
    mgv_model *model = NULL;
    mgv_model_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    desc.tower = tower;
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) fail_msg("%s: %s", path, error.message);
    return model;
}

/* Files that lie in memory, behind an mgv_file_io. Call number fail_at of open and read together (from 1; 0: none) fails,
   with fail_from that and every later one. A file may report another size from open number resize_at on. */
typedef struct fake_file {
    const char *name;
    const void *data;
    uint64_t bytes;
} fake_file;
typedef struct fake_files {
    const fake_file *files;
    size_t count;
    uint64_t calls;
    uint64_t opens;
    uint64_t open_now;
    uint64_t most_open;
    uint64_t bytes_read;
    uint64_t fail_at;
    int fail_from;
    int32_t fail_code; /* 0: -5 */
    uint64_t resize_at; /* of `opens` */
    int64_t resize_by;
} fake_files;

static inline int fake_fails(fake_files *files) {
    files->calls++;
    return files->fail_at != 0 && (files->fail_from ? files->calls >= files->fail_at : files->calls == files->fail_at);
}
static inline int32_t fake_open(void *user, const char *path, void **file, uint64_t *size) {
    fake_files *files = (fake_files *)user;
    size_t i;
    if (fake_fails(files)) return files->fail_code ? files->fail_code : -5;
    for (i = 0; i < files->count; i++) {
        if (strcmp(files->files[i].name, path) != 0) continue;
        files->opens++;
        files->open_now++;
        if (files->open_now > files->most_open) files->most_open = files->open_now;
        memcpy(file, &(void *){(void *)(uintptr_t)&files->files[i]}, sizeof *file);
        *size = files->files[i].bytes;
        if (files->resize_at != 0 && files->opens >= files->resize_at) *size = (uint64_t)((int64_t)*size + files->resize_by);
        return 0;
    }
    return MGV_FILE_ABSENT;
}
static inline int32_t fake_read(void *user, void *file, uint64_t offset, void *buffer, size_t bytes) {
    fake_files *files = (fake_files *)user;
    const fake_file *entry = (const fake_file *)file;
    if (fake_fails(files)) {
        memset(buffer, 0xEE, bytes / 2); /* a short read leaves half of the buffer behind */
        return files->fail_code ? files->fail_code : -5;
    }
    if (offset > entry->bytes || bytes > entry->bytes - offset) return MGV_FILE_CHANGED;
    memcpy(buffer, (const char *)entry->data + offset, bytes);
    files->bytes_read += bytes;
    return 0;
}
static inline void fake_close(void *user, void *file) {
    fake_files *files = (fake_files *)user;
    (void)file;
    files->open_now--;
}
static inline mgv_file_io fake_files_make(fake_files *files, const fake_file *entries, size_t count) {
    mgv_file_io io;
    memset(files, 0, sizeof *files);
    files->files = entries;
    files->count = count;
    io.user = files;
    io.open = fake_open;
    io.read = fake_read;
    io.close = fake_close;
    return io;
}

/* A safetensors file: length, header, data_bytes bytes of data that count up. In *file of malloc; the size is returned. */
static inline size_t make_safetensors(const char *header, size_t header_bytes, uint64_t data_bytes, unsigned char **file) {
    size_t total = 8 + header_bytes + (size_t)data_bytes, i;
    *file = (unsigned char *)malloc(total ? total : 1);
    for (i = 0; i < 8; i++) (*file)[i] = (unsigned char)((uint64_t)header_bytes >> (8 * i));
    memcpy(*file + 8, header, header_bytes);
    for (i = 8 + header_bytes; i < total; i++) (*file)[i] = (unsigned char)(i - 8 - header_bytes);
    return total;
}

#endif

/* Your allocator, your log. Every byte that the library holds comes from the first, every word it says goes to the second;
   without them it uses malloc and stays silent. After the engine is made, encoding allocates nothing: this program checks.

       memory_and_log MODEL */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

typedef struct meter {
    size_t calls, bytes, peak;
} meter;

static void *metered_alloc(void *user, size_t bytes) {
    meter *m = user;
    void *memory = malloc(bytes);
    if (!memory) return NULL;
    m->calls++;
    m->bytes += bytes;
    if (m->bytes > m->peak) m->peak = m->bytes;
    return memory;
}

static void metered_free(void *user, void *memory, size_t bytes) {
    meter *m = user;
    m->bytes -= bytes;
    free(memory);
}

static void print_log(void *user, int32_t level, const char *message) {
    static const char *const names[] = {"", "error", "warning", "info"};
    fprintf((FILE *)user, "[megavit %s] %s\n", names[level], message);
}

int main(int argc, char **argv) {
    static unsigned char grey[64 * 64];
    meter memory = {0, 0, 0};
    size_t calls_before;
    mgv_model *model = NULL;
    mgv_engine *engine = NULL;
    mgv_model_desc model_desc = {0};
    mgv_engine_desc engine_desc = {0};
    mgv_image image = {0};
    mgv_output output = {0};
    mgv_encode_desc encode = {0};
    mgv_shape shape;
    mgv_error error = {0};
    mgv_result result;
    if (argc != 2) {
        fprintf(stderr, "usage: memory_and_log MODEL\n");
        return 1;
    }

    model_desc.path = argv[1];
    model_desc.allocator.user = &memory;
    model_desc.allocator.alloc = metered_alloc;
    model_desc.allocator.free = metered_free;
    model_desc.logger.user = stdout;
    model_desc.logger.log = print_log;
    engine_desc.allocator = model_desc.allocator;
    engine_desc.logger = model_desc.logger;
    result = mgv_model_open(&model, &model_desc, &error);
    if (result == MGV_OK) printf("model:  %zu bytes in %zu allocations\n", memory.bytes, memory.calls);
    if (result == MGV_OK) result = mgv_engine_create(&engine, model, &engine_desc, &error);
    if (result == MGV_OK) printf("engine: %zu bytes in all\n", memory.bytes);

    memset(grey, 128, sizeof grey);
    image.pixels = grey;
    image.format = MGV_PIXELS_GRAY8;
    image.width = image.height = 64;
    output.kind = MGV_OUTPUT_TOKENS;
    if (result == MGV_OK) result = mgv_engine_shape(engine, &image, 1, &output, &shape, &error);
    if (result == MGV_OK) {
        output.capacity = shape.rows * shape.columns;
        output.data = malloc((size_t)output.capacity * sizeof(float));
        if (!output.data) result = MGV_ERROR_NOMEM;
    }
    encode.images = &image;
    encode.image_count = 1;
    encode.outputs = &output;
    encode.output_count = 1;
    calls_before = memory.calls;
    if (result == MGV_OK) result = mgv_encode_blocking(engine, &encode, &error);
    if (result == MGV_OK) printf("encode: %zu allocations, %u tokens\n", memory.calls - calls_before, (unsigned)shape.rows);
    else fprintf(stderr, "%s: %s\n", mgv_result_name(result), error.message);

    free(output.data);
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    printf("closed: %zu bytes still held, %zu at most\n", memory.bytes, memory.peak);
    return result != MGV_OK || memory.calls != calls_before || memory.bytes != 0;
}

/* Any bytes as config.json and, behind the first zero byte, preprocessor_config.json. What is accepted keeps every
   promise that the rest of the header relies on. */
#include <math.h>

#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "fuzz.h"

static void check_config(const mgv__config *config) {
    const mgv__pixels_config *pixels = &config->pixels;
    mgv_error error;
    uint32_t i;
    REQUIRE(mgv__find_family(config->family) != NULL);
    REQUIRE(config->hidden >= 1 && config->hidden <= 16384 && config->heads >= 1 && config->head_dim * config->heads == config->hidden);
    REQUIRE(config->head_dim <= MGV__MAX_HEAD_DIM && config->layers >= 1 && config->layers <= 512);
    REQUIRE(config->intermediate >= 1 && config->intermediate <= 65536 && config->out_hidden >= 1 && config->channels == 3);
    REQUIRE(config->prefix <= 65537 && (config->prefix == 0 || config->merge == 1) && config->registers <= config->prefix);
    REQUIRE(config->patch >= 1 && config->merge >= 1 && config->temporal_patch >= 1);
    REQUIRE(config->epsilon > 0 && config->epsilon <= 1);
    REQUIRE(config->image_size != 0 || mgv__config_any_size(config));
    REQUIRE(config->image_size == 0 || mgv__config_any_size(config) || config->position_side == config->image_size / config->patch);
    REQUIRE(config->rope_theta == 0 || config->head_dim % 4 == 0);
    REQUIRE(config->rope_theta >= 0 && isfinite(config->rope_theta));
    REQUIRE(config->deepstack_count <= MGV__MAX_DEEPSTACK && config->full_attention_count <= MGV__MAX_FULL_ATTENTION);
    for (i = 0; i < config->deepstack_count; i++) {
        REQUIRE(config->deepstack[i] < config->layers);
        REQUIRE(i == 0 || config->deepstack[i] > config->deepstack[i - 1]);
    }
    for (i = 1; i < config->full_attention_count; i++) REQUIRE(config->full_attention[i] > config->full_attention[i - 1]);
    REQUIRE(pixels->patch == config->patch && pixels->merge == config->merge && pixels->factor == config->patch * config->merge);
    REQUIRE(mgv__pixels_config_check(pixels, &error) == MGV_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_allocator counts;
    mgv_memory_file files[2];
    mgv_model_desc desc;
    mgv__source source;
    mgv__config config;
    mgv_error error;
    mgv_result result;
    const uint8_t *zero = size ? (const uint8_t *)memchr(data, 0, size) : NULL;
    size_t first = zero ? (size_t)(zero - data) : size, second = zero ? size - first - 1 : 0;
    char *copies[2];
    copies[0] = (char *)malloc(first + 1);
    copies[1] = (char *)malloc(second + 1);
    if (first > 0) memcpy(copies[0], data, first);
    if (second > 0) memcpy(copies[1], zero + 1, second);
    files[0].name = "config.json";
    files[0].data = copies[0];
    files[0].bytes = first;
    files[1].name = "preprocessor_config.json";
    files[1].data = copies[1];
    files[1].bytes = second;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = zero ? 2 : 1;
    desc.allocator = fuzz_allocator_make(&counts, data, size);
    REQUIRE(mgv__source_open(&source, &desc, &error) == MGV_OK);
    result = mgv__config_read(&config, &source, &error);
    REQUIRE(result == MGV_OK || result == MGV_ERROR_FORMAT || result == MGV_ERROR_MODEL || result == MGV_ERROR_UNSUPPORTED ||
            (result == MGV_ERROR_NOMEM && counts.failed));
    REQUIRE(counts.live_bytes == 0 && counts.peak_bytes <= 4 * size + 1024);
    if (result == MGV_OK) check_config(&config);
    free(copies[0]);
    free(copies[1]);
    return 0;
}

/* Models of tests/golden/decoder, engines and sessions of them, pictures as make_golden_decoder.py has them. Needs megavit.h and support.h
   before it. */
#ifndef MEGAVIT_TESTS_DECODER_H
#define MEGAVIT_TESTS_DECODER_H

#include "rule.h"

#define DECODER_FOLDER "tests/golden/decoder"
enum { DECODER_MOST_IDS = 40000, DECODER_MOST_LOGITS = 512, DECODER_MOST_PICTURES = 4 };

static uint64_t decoder_rule_bits(const char *name, size_t i) { return rule_bits(rule_seed(name), i); }

static mgv_model *decoder_open(const char *name) {
    char path[256];
    snprintf(path, sizeof path, DECODER_FOLDER "/%.63s", name);
    return open_directory(path, MGV_TOWER_LANGUAGE);
}
static mgv_engine *decoder_engine(const mgv_model *model, mgv_threads *threads) {
    mgv_engine *engine = NULL;
    mgv_engine_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.max_width = desc.max_height = 512;
    if (threads) desc.parallel = mgv_threads_parallel_for(threads);
    if (mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    return engine;
}
static mgv_session *decoder_session(mgv_engine *engine, uint32_t capacity, uint32_t block) {
    mgv_session *session = NULL;
    mgv_session_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.capacity = capacity;
    desc.block = block;
    if (mgv_session_create(&session, engine, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
    return session;
}

/* A picture's rows, as its engine encodes it. */
typedef struct decoder_picture {
    uint32_t width, height;
    uint8_t *pixels;
    float *rows;
    mgv_picture picture;
} decoder_picture;

static void decoder_encode(mgv_engine *engine, decoder_picture *p, uint32_t number) {
    mgv_model_info info;
    mgv_image image;
    mgv_encode_desc desc;
    mgv_output outputs[1 + MGV_MAX_DEEPSTACK];
    mgv_error error;
    char name[32];
    uint64_t floats;
    uint32_t i;
    size_t k, bytes = (size_t)p->width * p->height * 3;
    memset(&image, 0, sizeof image);
    memset(&desc, 0, sizeof desc);
    memset(outputs, 0, sizeof outputs);
    memset(&p->picture, 0, sizeof p->picture);
    p->pixels = (uint8_t *)malloc(bytes);
    assert_non_null(p->pixels);
    snprintf(name, sizeof name, "picture %u", number);
    for (k = 0; k < bytes; k++) p->pixels[k] = (uint8_t)(decoder_rule_bits(name, k) >> 56);
    image.pixels = p->pixels;
    image.width = p->width;
    image.height = p->height;
    if (mgv_engine_grid(engine, &image, &p->picture.grid, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_get_info(engine->language, &info), MGV_OK);
    floats = (uint64_t)p->picture.grid.merged_tokens * info.token_width;
    p->rows = (float *)malloc((size_t)floats * (1 + info.deepstack_count) * sizeof(float));
    assert_non_null(p->rows);
    for (i = 0; i <= info.deepstack_count; i++) {
        outputs[i].kind = i ? MGV_OUTPUT_DEEPSTACK : MGV_OUTPUT_TOKENS;
        outputs[i].index = i ? i - 1 : 0;
        outputs[i].data = p->rows + i * floats;
        outputs[i].capacity = floats;
        if (i) p->picture.deepstack[i - 1] = outputs[i].data;
    }
    p->picture.tokens = p->rows;
    p->picture.deepstack_count = info.deepstack_count;
    desc.images = &image;
    desc.image_count = 1;
    desc.outputs = outputs;
    desc.output_count = 1 + info.deepstack_count;
    if (mgv_encode_blocking(engine, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
}
static void decoder_free_picture(decoder_picture *p) {
    free(p->pixels);
    free(p->rows);
}

static mgv_result decoder_append(mgv_session *session, const uint32_t *ids, size_t count, const mgv_picture *pictures,
                                 uint32_t picture_count, mgv_error *error) {
    mgv_append_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.ids = ids;
    desc.id_count = count;
    desc.pictures = pictures;
    desc.picture_count = picture_count;
    return mgv_session_append_blocking(session, &desc, error);
}
static const float *decoder_logits(const mgv_session *session) {
    const float *logits = NULL;
    uint32_t count = 0;
    mgv_error error;
    if (mgv_session_logits(session, &logits, &count, &error) != MGV_OK) fail_msg("%s", error.message);
    return logits;
}

#endif

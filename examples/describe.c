/* A picture in, a sentence out: a session with a language model.

       cc -O2 -I. examples/describe.c -o describe -lpthread -lm
       ./describe examples/talking examples/pictures/some.png "What is in this picture?" */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"

static mgv_error error;
static void must(mgv_result result) {
    if (result == MGV_OK) return;
    fprintf(stderr, "%s\n", error.message);
    exit(1);
}
static void *room(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) exit(1);
    return memory;
}

/* The picture's tokens: the rows that the decoder reads in place of its placeholders, and those that DeepStack adds. */
static mgv_picture see(mgv_engine *engine, const mgv_model_info *info, const mgv_image *image) {
    mgv_picture picture = {0};
    mgv_output outputs[1 + MGV_MAX_DEEPSTACK] = {{0}};
    mgv_encode_desc encode = {0};
    must(mgv_engine_grid(engine, image, &picture.grid, &error));
    for (uint32_t i = 0; i <= info->deepstack_count; i++) {
        outputs[i].kind = i ? MGV_OUTPUT_DEEPSTACK : MGV_OUTPUT_TOKENS;
        outputs[i].index = i ? i - 1 : 0;
        outputs[i].capacity = (uint64_t)picture.grid.merged_tokens * info->token_width;
        outputs[i].data = room(outputs[i].capacity * sizeof(float));
        if (i) picture.deepstack[i - 1] = outputs[i].data;
    }
    picture.tokens = outputs[0].data;
    picture.deepstack_count = info->deepstack_count;
    encode.images = image;
    encode.image_count = 1;
    encode.outputs = outputs;
    encode.output_count = 1 + info->deepstack_count;
    must(mgv_encode_blocking(engine, &encode, &error));
    return picture;
}

int main(int argc, char **argv) {
    enum { MOST_IDS = 4096, MOST_TOKENS = 256 };
    static uint32_t ids[MOST_IDS];
    static char prompt[16 * MOST_IDS];
    mgv_model_desc model_desc = {0};
    mgv_engine_desc engine_desc = {0};
    mgv_session_desc session_desc = {0};
    mgv_append_desc append = {0};
    mgv_message message = {0};
    mgv_image image = {0};
    mgv_generation_info generation;
    mgv_detokenize_state state = {0};
    mgv_model *model;
    mgv_tokenizer *tokenizer;
    mgv_engine *engine;
    mgv_session *session;
    mgv_model_info info;
    mgv_picture picture;
    mgv_chat chat;
    uint64_t bytes;
    uint32_t id = 0, said, stop;
    int width, height;
    if (argc < 3) return fprintf(stderr, "usage: describe MODEL PICTURE [QUESTION]\n"), 1;

    image.pixels = stbi_load(argv[2], &width, &height, NULL, 3);
    if (!image.pixels) return fprintf(stderr, "cannot read the picture\n"), 1;
    image.width = engine_desc.max_width = (uint32_t)width;
    image.height = engine_desc.max_height = (uint32_t)height;
    model_desc.path = argv[1];
    model_desc.tower = MGV_TOWER_LANGUAGE;
    must(mgv_model_open(&model, &model_desc, &error));
    must(mgv_model_get_info(model, &info));
    must(mgv_model_get_generation(model, &generation));
    must(mgv_tokenizer_open(&tokenizer, &model_desc, MGV_LOWER_CASE_AUTO, &error));
    must(mgv_chat_open(&chat, &model_desc, &error));
    engine_desc.max_row_outputs = 1 + info.deepstack_count;
    must(mgv_engine_create(&engine, model, &engine_desc, &error));
    session_desc.capacity = MOST_IDS;
    must(mgv_session_create(&session, engine, &session_desc, &error));

    picture = see(engine, &info, &image);
    message.role = MGV_ROLE_USER;
    message.text = argc > 3 ? argv[3] : "";
    message.bytes = strlen(message.text);
    message.image_count = 1;
    message.grids = &picture.grid;
    must(mgv_chat_write(chat, &message, 1, MGV_CHAT_ANSWER, prompt, sizeof prompt, &bytes, &error));
    must(mgv_tokenize(tokenizer, prompt, (size_t)bytes, MGV_TOKENIZE_PLAIN, ids, MOST_IDS - MOST_TOKENS, &append.id_count, &error));
    append.ids = ids;
    append.pictures = &picture;
    append.picture_count = 1;
    must(mgv_session_append_blocking(session, &append, &error));
    for (said = 0; said < MOST_TOKENS; said++) {
        must(mgv_session_sample(session, NULL, &id, &error)); /* greedy */
        for (stop = 0; stop < generation.stop_count && generation.stop_ids[stop] != id; stop++) continue;
        if (stop < generation.stop_count) break;
        must(mgv_detokenize(tokenizer, &state, &id, 1, MGV_DETOKENIZE_MORE, prompt, sizeof prompt, &bytes, &error));
        fwrite(prompt, 1, (size_t)bytes, stdout);
        must(mgv_session_step(session, id, &error));
    }
    putchar('\n');
    return 0; /* which gives everything back */
}

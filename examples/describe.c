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
static void must(int well, const char *otherwise) {
    if (well) return;
    fprintf(stderr, "%s\n", error.message[0] ? error.message : otherwise);
    exit(1);
}

int main(int argc, char **argv) {
    enum { MOST_IDS = 4096, MOST_FLOATS = 1 << 24, MOST_SAID = 256 };
    static uint32_t ids[MOST_IDS];
    static float rows[MOST_FLOATS]; /* of the picture, for the decoder */
    const mgv_model_desc files = {.path = argc > 1 ? argv[1] : "", .tower = MGV_TOWER_LANGUAGE};
    mgv_image image = {0};
    mgv_picture picture;
    mgv_message question = {.role = MGV_ROLE_USER, .text = argc > 3 ? argv[3] : "", .image_count = 1, .grids = &picture.grid};
    mgv_append_desc prompt = {.ids = ids, .pictures = &picture, .picture_count = 1};
    mgv_engine_desc engine_desc = {0};
    mgv_detokenize_state state = {0};
    mgv_model *model;
    mgv_tokenizer *tokenizer;
    mgv_chat chat;
    mgv_engine *engine;
    mgv_session *session;
    uint64_t floats, bytes;
    uint32_t id, said = 0;
    char text[256];
    int width = 0, height = 0;
    image.pixels = argc > 2 ? stbi_load(argv[2], &width, &height, NULL, 3) : NULL;
    must(image.pixels != NULL, "usage: describe MODEL PICTURE [QUESTION], of a picture that can be read");
    image.width = engine_desc.max_width = (uint32_t)width;
    image.height = engine_desc.max_height = (uint32_t)height;
    question.bytes = strlen(question.text);
    must(mgv_model_open(&model, &files, &error) == MGV_OK, "");
    must(mgv_tokenizer_open(&tokenizer, &files, MGV_LOWER_CASE_AUTO, &error) == MGV_OK, "");
    must(mgv_chat_open(&chat, &files, &error) == MGV_OK, "");
    must(mgv_engine_create(&engine, model, &engine_desc, &error) == MGV_OK, "");
    must(mgv_session_create(&session, engine, NULL, &error) == MGV_OK, "");
    must(mgv_picture_encode(engine, &image, rows, MOST_FLOATS, &floats, &picture, &error) == MGV_OK, "");
    must(mgv_chat_tokenize(chat, tokenizer, &question, 1, MGV_CHAT_ANSWER, ids, MOST_IDS, &prompt.id_count, &error) == MGV_OK, "");
    must(mgv_session_append_blocking(session, &prompt, &error) == MGV_OK, "");
    while (mgv_session_sample(session, NULL, &id, &error) == MGV_OK && !mgv_model_is_stop(model, id) && said++ < MOST_SAID) {
        must(mgv_detokenize(tokenizer, &state, &id, 1, MGV_DETOKENIZE_MORE, text, sizeof text, &bytes, &error) == MGV_OK, "");
        fwrite(text, 1, bytes, stdout);
        must(mgv_session_step(session, id, &error) == MGV_OK, "");
    }
    return putchar('\n') == EOF; /* which gives everything back */
}

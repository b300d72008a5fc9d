/* Conversations: what transformers makes of the chat templates of Qwen3, Qwen3-2507 and Qwen3-VL (tests/make_golden_chat.py), which
   templates are known, what is refused. */
#define MEGAVIT_TEXT
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "support.h"

enum { MOST_BYTES = 1 << 14, MOST_MESSAGES = 16 };

static size_t read_hex(const char *hex, char *out) {
    size_t count = 0;
    unsigned int byte;
    for (; *hex && *hex != '-' && *hex != ' ' && *hex != '\n'; hex += 2) {
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        out[count++] = (char)byte;
    }
    return count;
}
static char *read_whole(const char *path, size_t *bytes) {
    FILE *stream = fopen(path, "rb");
    char *data = (char *)calloc(1, 1 << 20);
    assert_non_null(stream);
    *bytes = fread(data, 1, (1 << 20) - 1, stream);
    fclose(stream);
    return data;
}
static mgv_message say(int32_t role, const char *text, uint32_t images) {
    mgv_message message;
    memset(&message, 0, sizeof message);
    message.role = role;
    message.text = text;
    message.bytes = strlen(text);
    message.image_count = images;
    return message;
}
/* The text, terminated; it belongs to this function. */
static const char *written(mgv_chat chat, const mgv_message *messages, uint32_t count, uint32_t flags) {
    static char text[MOST_BYTES];
    mgv_error error;
    uint64_t bytes;
    if (mgv_chat_write(chat, messages, count, flags, text, sizeof text - 1, &bytes, &error) != MGV_OK) fail_msg("%s", error.message);
    text[bytes] = 0;
    return text;
}
static mgv_result refused(mgv_chat chat, const mgv_message *messages, uint32_t count, uint32_t flags, const char *why) {
    static char text[MOST_BYTES];
    mgv_error error;
    uint64_t bytes;
    const mgv_result result = mgv_chat_write(chat, messages, count, flags, text, sizeof text, &bytes, &error);
    assert_int_not_equal(result, MGV_OK);
    if (!strstr(error.message, why)) fail_msg("\"%s\" does not say \"%s\"", error.message, why);
    return result;
}

static void conversations_are_those_of_transformers(void **state) {
    static char texts[MOST_MESSAGES][4096], wanted[MOST_BYTES], found[MOST_BYTES];
    size_t bytes;
    char *golden = read_whole("tests/golden/chat.golden", &bytes), *line = golden, *next;
    int lines = 0;
    (void)state;
    for (; *line; line = next, lines++) {
        mgv_message messages[MOST_MESSAGES];
        uint32_t count = 0;
        char *word = line;
        uint64_t found_bytes;
        size_t wanted_bytes;
        const mgv_chat chat = (mgv_chat)strtol(word, &word, 10);
        const uint32_t flags = (uint32_t)strtoul(word, &word, 10);
        mgv_error error;
        next = strchr(line, '\n') + 1;
        for (word++; *word != '='; count++) {
            const int32_t role = (int32_t)strtol(word, &word, 10);
            const uint32_t images = (uint32_t)strtoul(word, &word, 10);
            assert_true(count < MOST_MESSAGES);
            word++;
            messages[count] = say(role, "", images);
            messages[count].text = texts[count];
            messages[count].bytes = read_hex(word, texts[count]);
            word += strcspn(word, " ") + 1;
        }
        wanted_bytes = read_hex(word + 2, wanted);
        if (mgv_chat_write(chat, messages, count, flags, found, sizeof found, &found_bytes, &error) != MGV_OK)
            fail_msg("line %i: %s", lines + 1, error.message);
        if (found_bytes != wanted_bytes || memcmp(found, wanted, wanted_bytes) != 0)
            fail_msg("line %i: \"%.*s\", transformers has \"%.*s\"", lines + 1, (int)found_bytes, found, (int)wanted_bytes, wanted);
    }
    assert_int_equal(lines, 250);
    free(golden);
}

static void a_text_is_as_long_as_it_says(void **state) {
    const mgv_message message = say(MGV_ROLE_USER, "<image>What?", 1);
    const char *whole = written(MGV_CHAT_QWEN3_VL, &message, 1, MGV_CHAT_ANSWER);
    const size_t length = strlen(whole);
    char expected[256], text[256];
    mgv_error error;
    uint64_t bytes;
    (void)state;
    memcpy(expected, whole, length);
    for (size_t room = 0; room <= length; room++) {
        memset(text, '#', sizeof text);
        assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3_VL, &message, 1, MGV_CHAT_ANSWER, room ? text : NULL, room, &bytes, &error),
                         room < length ? MGV_ERROR_CAPACITY : MGV_OK);
        assert_int_equal(bytes, length);
        assert_memory_equal(text, expected, room);
        assert_int_equal(text[room], '#');
    }
}

static void a_picture_is_as_many_placeholders_as_it_has_tokens(void **state) {
    mgv_message message = say(MGV_ROLE_USER, "a<image>b", 2);
    mgv_grid grids[2];
    (void)state;
    memset(grids, 0, sizeof grids);
    grids[0].merged_tokens = 3;
    grids[1].merged_tokens = 1;
    message.grids = grids;
    assert_string_equal(written(MGV_CHAT_PLAIN, &message, 1, MGV_CHAT_ANSWER),
                        "<|vision_start|><|image_pad|><|image_pad|><|image_pad|><|vision_end|>a"
                        "<|vision_start|><|image_pad|><|vision_end|>b");
}

static void what_no_template_says_is_refused(void **state) {
    mgv_message message = say(MGV_ROLE_USER, "two <image><image>", 1);
    mgv_error error;
    uint64_t bytes;
    (void)state;
    assert_int_equal(refused(MGV_CHAT_QWEN3_VL, &message, 1, 0, "2 times <image>, and 1 picture"), MGV_ERROR_ARGUMENT);
    message = say(MGV_ROLE_USER, "a <video>", 0);
    assert_int_equal(refused(MGV_CHAT_QWEN3_VL, &message, 1, 0, "videos"), MGV_ERROR_UNSUPPORTED);
    message = say(MGV_ROLE_USER, "<|vision_start|><|video_pad|><|vision_end|>", 0);
    assert_int_equal(refused(MGV_CHAT_QWEN3, &message, 1, 0, "videos"), MGV_ERROR_UNSUPPORTED);
    message = say(MGV_ROLE_USER, "a", 1);
    assert_int_equal(refused(MGV_CHAT_QWEN3, &message, 1, 0, "no pictures"), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(refused(MGV_CHAT_QWEN3_INSTRUCT, &message, 1, 0, "no pictures"), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(refused(MGV_CHAT_QWEN3_THINKING, &message, 1, 0, "no pictures"), MGV_ERROR_UNSUPPORTED);
    message = say(MGV_ROLE_ASSISTANT, "a", 1);
    assert_int_equal(refused(MGV_CHAT_QWEN3_VL, &message, 1, 0, "only a user"), MGV_ERROR_ARGUMENT);
    message = say(3, "a", 0);
    assert_int_equal(refused(MGV_CHAT_QWEN3, &message, 1, 0, "3 is no role"), MGV_ERROR_ARGUMENT);
    message = say(MGV_ROLE_USER, "a", 0);
    assert_int_equal(refused(MGV_CHAT_QWEN3_VL, &message, 1, MGV_CHAT_THINK, "no thinking"), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(refused(MGV_CHAT_QWEN3_INSTRUCT, &message, 1, MGV_CHAT_THINK, "no thinking"), MGV_ERROR_UNSUPPORTED);
    assert_int_equal(refused(MGV_CHATS, &message, 1, 0, "no mgv_chat"), MGV_ERROR_ARGUMENT);
    message.struct_size = 3;
    assert_int_equal(refused(MGV_CHAT_QWEN3, &message, 1, 0, "struct_size"), MGV_ERROR_ARGUMENT);
    message.struct_size = 0;
    message.text = NULL;
    assert_int_equal(refused(MGV_CHAT_QWEN3, &message, 1, 0, "NULL"), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, NULL, 1, 0, NULL, 0, &bytes, &error), MGV_ERROR_ARGUMENT);
    assert_int_equal(mgv_chat_write(MGV_CHAT_QWEN3, NULL, 0, 0, NULL, 0, &bytes, &error), MGV_OK);
    assert_int_equal(bytes, 0);
}

/* ---- which template a directory has ---- */

static mgv_result open_files(mgv_chat *chat, const mgv_memory_file *files, uint32_t count, const mgv_allocator *allocator, mgv_error *error) {
    mgv_model_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.memory_files = files;
    desc.memory_file_count = count;
    if (allocator) desc.allocator = *allocator;
    return mgv_chat_open(chat, &desc, error);
}
/* The text as a JSON string. */
static size_t as_json(char *out, const char *before, const char *text, const char *behind) {
    char *p = out + sprintf(out, "%s\"", before);
    for (; *text; text++) {
        if (*text == '\n') p += sprintf(p, "\\n");
        else if (*text == '"' || *text == '\\') p += sprintf(p, "\\%c", *text);
        else *p++ = *text;
    }
    return (size_t)(p + sprintf(p, "\"%s", behind) - out);
}

static void a_template_is_known_by_its_text(void **state) {
    static char json[MOST_BYTES];
    size_t bytes;
    char *text = read_whole("examples/talking/chat_template.jinja", &bytes);
    mgv_memory_file files[2] = {{"chat_template.jinja", text, bytes}, {"tokenizer_config.json", "{}", 2}};
    mgv_error error;
    mgv_chat chat;
    (void)state;
    assert_int_equal(open_files(&chat, files, 2, NULL, &error), MGV_OK);
    assert_int_equal(chat, MGV_CHAT_QWEN3_VL);
    files[0].bytes = bytes - 1; /* without the last line's end */
    assert_int_equal(open_files(&chat, files, 1, NULL, &error), MGV_OK);
    files[0].name = "chat_template.json";
    files[0].data = json;
    files[0].bytes = as_json(json, " {\"chat_template\": ", text, "}");
    assert_int_equal(open_files(&chat, files, 2, NULL, &error), MGV_OK);
    assert_int_equal(chat, MGV_CHAT_QWEN3_VL);
    files[0].name = "tokenizer_config.json";
    files[0].bytes = as_json(json, "{\"chat_template\": [{\"name\": \"tools\", \"template\": \"x\"}, {\"name\": \"default\", \"template\": ", text, "}]}");
    assert_int_equal(open_files(&chat, files, 1, NULL, &error), MGV_OK);
    assert_int_equal(chat, MGV_CHAT_QWEN3_VL);
    text[0]++;
    files[0].bytes = as_json(json, "{\"chat_template\": ", text, "}");
    assert_int_equal(open_files(&chat, files, 1, NULL, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "tokenizer_config.json: this chat template of 683 bytes is not known"));
    assert_int_equal(open_files(&chat, files + 1, 1, NULL, &error), MGV_ERROR_MODEL);
    assert_non_null(strstr(error.message, "there is no chat template"));
    files[0].bytes = 5;
    assert_int_equal(open_files(&chat, files, 1, NULL, &error), MGV_ERROR_FORMAT);
    free(text);
}

static void failing_memory_is_said_and_nothing_is_kept(void **state) {
    static char json[MOST_BYTES];
    size_t bytes;
    char *text = read_whole("examples/talking/chat_template.jinja", &bytes);
    const mgv_memory_file file = {"chat_template.json", json, as_json(json, "{\"chat_template\": ", text, "}")};
    counting_allocator counts;
    mgv_allocator allocator;
    mgv_result result = MGV_ERROR_NOMEM;
    mgv_error error;
    mgv_chat chat;
    (void)state;
    for (uint64_t fail_at = 1; result == MGV_ERROR_NOMEM; fail_at++) {
        allocator = counting_allocator_make(&counts);
        counts.fail_at = fail_at;
        result = open_files(&chat, &file, 1, &allocator, &error);
        assert_int_equal(counts.live_blocks, 0);
        assert_true(fail_at < 20);
    }
    assert_int_equal(result, MGV_OK);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_are_those_of_transformers),
        cmocka_unit_test(a_text_is_as_long_as_it_says),
        cmocka_unit_test(a_picture_is_as_many_placeholders_as_it_has_tokens),
        cmocka_unit_test(what_no_template_says_is_refused),
        cmocka_unit_test(a_template_is_known_by_its_text),
        cmocka_unit_test(failing_memory_is_said_and_nothing_is_kept),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

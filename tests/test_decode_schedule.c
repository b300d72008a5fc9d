/* What an id of a language model costs on a GPU, as mgv_model_get_decode_schedule says it: bytes and pieces of work counted by hand, times
   beside those that an H200 took, and what is refused. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_TEXT
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "language_model.h"

enum { MOST_STEPS = 16 };
static const shape qwen3_0_6b = {"qwen3", 1024, 3072, 16, 8, 128, 151936, 1, 0, 0};
enum { QWEN3_LAYERS = 28 };

typedef struct schedule {
    mgv_decode_info info;
    mgv_decode_step steps[MOST_STEPS];
} schedule;

static void get(const mgv_model *model, uint32_t sessions, uint32_t position, uint32_t multiprocessors, schedule *out) {
    mgv_decode_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.sessions = sessions;
    desc.position = position;
    desc.multiprocessors = multiprocessors;
    if (mgv_model_get_decode_schedule(model, &desc, &out->info, out->steps, MOST_STEPS, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_in_range(out->info.step_count, 7, MOST_STEPS);
}
static const mgv_decode_step *step_of(const schedule *s, const char *label) {
    uint32_t i;
    for (i = 0; i < s->info.step_count; i++)
        if (strcmp(s->steps[i].label, label) == 0) return &s->steps[i];
    return NULL;
}

static int set_up(void **state) {
    held_model *held = (held_model *)malloc(sizeof *held);
    open_shapes(held, &qwen3_0_6b, QWEN3_LAYERS);
    *state = held;
    return 0;
}
static int tear_down(void **state) {
    close_model((held_model *)*state);
    free(*state);
    return 0;
}

/* Each step's part in the sums, and what no step can be shorter than. */
static void check_sums(const schedule *s) {
    uint64_t weights = 0, cache = 0;
    double us = 0;
    uint32_t i;
    for (i = 0; i < s->info.step_count; i++) {
        const mgv_decode_step *step = &s->steps[i];
        weights += step->times * step->weight_bytes;
        cache += step->times * step->cache_bytes;
        us += step->times * step->us;
        assert_true(step->us >= step->wait_us && step->us >= step->stream_us && step->wait_us > 0);
        assert_true(step->units > 0 && (uint64_t)step->busiest * s->info.multiprocessors >= step->units && step->busiest <= step->units);
        assert_true(fabs(step->stream_us - (double)(step->weight_bytes + step->cache_bytes) / s->info.bandwidth * 1e6) < 1e-9);
    }
    assert_int_equal(weights, s->info.weight_bytes);
    assert_int_equal(cache, s->info.cache_bytes);
    assert_true(fabs(us - s->info.us) < 1e-6 * us);
    assert_true(fabs(s->info.ids_per_second - s->info.sessions * 1e6 / us) < 1e-6 * s->info.ids_per_second);
    assert_true(fabs(s->info.floor_us - (double)(weights + cache) / s->info.bandwidth * 1e6) < 1e-6 * us && s->info.floor_us < us);
}

static void check_product(const schedule *s, const char *label, uint32_t times, uint64_t rows, uint64_t columns, uint32_t unit_rows) {
    const mgv_decode_step *step = step_of(s, label);
    assert_non_null(step);
    assert_int_equal(step->times, times);
    assert_int_equal(step->weight_bytes, 2 * rows * columns);
    assert_int_equal(step->cache_bytes, 0);
    assert_int_equal(step->units, rows / unit_rows);
    assert_int_equal(step->busiest, (rows / unit_rows + s->info.multiprocessors - 1) / s->info.multiprocessors);
}
/* Of the shape of Qwen3-0.6B, whose rows fill the kernel's pieces exactly: weights of bf16, keys and values of all positions. */
static void test_counted_by_hand(void **state) {
    static const uint32_t sessions[] = {1, 3, 8}, positions[] = {0, 127, 128, 2047, 2048, 4000}, segments[] = {1, 1, 2, 16, 9, 16};
    const held_model *held = (const held_model *)*state;
    size_t i, k;
    for (i = 0; i < COUNT_OF(sessions); i++)
        for (k = 0; k < COUNT_OF(positions); k++) {
            const uint64_t keys = positions[k] + 1u;
            const mgv_decode_step *attention, *join, *choice;
            schedule s;
            get(held->model, sessions[i], positions[k], 0, &s);
            check_sums(&s);
            assert_string_equal(s.info.kernel, sessions[i] <= 4 ? "megavit_decode_few_12_2_sm_90a" : "megavit_decode_12_2_sm_90a");
            assert_int_equal(s.info.sessions, sessions[i]);
            assert_int_equal(s.info.multiprocessors, 132);
            assert_int_equal(s.info.ring_bytes, (uint64_t)132 * MGV__DECODE_STAGES * MGV__DECODE_STAGE_BYTES);
            check_product(&s, "qkv", QWEN3_LAYERS, (16 + 8 + 8) * 128, 1024, 16);
            check_product(&s, "out", QWEN3_LAYERS, 1024, 16 * 128, 8);
            check_product(&s, "gate and up", QWEN3_LAYERS, 2 * 3072, 1024, 16);
            check_product(&s, "down", QWEN3_LAYERS, 1024, 3072, 8);
            check_product(&s, "head", 1, 151936, 1024, 16);
            attention = step_of(&s, "attention");
            assert_int_equal(attention->times, QWEN3_LAYERS);
            assert_int_equal(attention->weight_bytes, 0);
            assert_int_equal(attention->cache_bytes, sessions[i] * keys * 8 * 128 * 2 * 2);
            assert_int_equal(attention->units, sessions[i] * segments[k] * 8);
            join = step_of(&s, "join");
            assert_int_equal(join != NULL, segments[k] > 1);
            if (join) assert_int_equal(join->units, sessions[i] * 16 * 8);
            if (join) assert_int_equal(join->times, QWEN3_LAYERS);
            if (join) assert_true(join->cache_bytes == 0 && join->weight_bytes == 0);
            choice = step_of(&s, "choice");
            assert_true(choice->times == 1 && choice->units == sessions[i] && choice->busiest == 1);
            assert_int_equal(s.info.step_count, join ? 8 : 7);
        }
}

/* Beside the microseconds that an id of each session took an H200 (tests/gpu/decode.sh make-0.6b time, and so of 1.7b, 4b, 8b; 32 ids a
   launch): ids a second within a fifth. */
static void test_measured(void **state) {
    static const uint32_t positions[] = {1, 100, 300, 1000, 4000}, sessions[] = {1, 2, 4, 8};
    static const struct {
        shape shape;
        uint32_t layers;
        double us[COUNT_OF(sessions)][COUNT_OF(positions)];
    } measured[] = {
        {{"qwen3", 1024, 3072, 16, 8, 128, 151936, 1, 0, 0}, 28,
         {{530, 562, 593, 606, 684}, {547, 583, 615, 650, 866}, {572, 612, 658, 819, 1223}, {889, 946, 1135, 1450, 2256}}},
        {{"qwen3", 2048, 6144, 16, 8, 128, 151936, 1, 0, 0}, 28,
         {{1028, 1070, 1108, 1130, 1227}, {1078, 1127, 1172, 1213, 1464}, {1128, 1186, 1238, 1421, 1865}, {1778, 1845, 2071, 2379, 3192}}},
        {{"qwen3", 2560, 9728, 32, 8, 128, 151936, 1, 0, 0}, 36,
         {{3071, 3098, 3158, 3170, 3323}, {3066, 3120, 3204, 3256, 3630}, {3196, 3268, 3399, 3633, 4272}, {4126, 4217, 4540, 5002, 6106}}},
        {{"qwen3", 4096, 12288, 32, 8, 128, 151936, 0, 0, 0}, 36,
         {{5208, 5257, 5310, 5304, 5519}, {5222, 5259, 5378, 5438, 5876}, {5299, 5368, 5541, 5776, 6404}, {6243, 6341, 6723, 7171, 8301}}}};
    const held_model *held = (const held_model *)*state;
    double before = 0, worst = 0;
    size_t m, i, k;
    for (m = 0; m < COUNT_OF(measured); m++) {
        held_model one;
        open_shapes(&one, &measured[m].shape, measured[m].layers);
        for (i = 0; i < COUNT_OF(sessions); i++)
            for (k = 0; k < COUNT_OF(positions); k++) {
                schedule s;
                double off;
                get(one.model, sessions[i], positions[k], 0, &s);
                off = fabs(measured[m].us[i][k] / s.info.us - 1);
                if (off > 0.2)
                    fail_msg("%u columns, %u sessions at %u: %.0f us are predicted, %.0f were measured", measured[m].shape.hidden,
                             sessions[i], positions[k], s.info.us, measured[m].us[i][k]);
                if (off > worst) worst = off;
            }
        close_model(&one);
    }
    assert_true(worst < 0.115); /* as >>decode says */
    for (i = 2; i <= 132; i += 2) { /* and never slower with more multiprocessors */
        schedule s;
        get(held->model, 1, 100, (uint32_t)i, &s);
        check_sums(&s);
        assert_true(s.info.multiprocessors == i && s.info.ids_per_second >= before);
        before = s.info.ids_per_second;
    }
}

/* Rows that do not fill the kernel's pieces are read as if they did; the kernel is that of the fewest registers that hold them. */
static void test_other_shapes(void **state) {
    static const struct {
        shape shape;
        const char *kernel;
    } cases[] = {{{"qwen3", 32, 64, 4, 2, 128, 67, 1, 0, 0}, "megavit_decode_few_12_2_sm_90a"},
                 {{"qwen3", 1536, 3072, 2, 1, 128, 32, 1, 0, 0}, "megavit_decode_few_12_2_sm_90a"},
                 {{"qwen3", 1568, 3072, 2, 1, 128, 32, 1, 0, 0}, "megavit_decode_few_24_2_sm_90a"},
                 {{"qwen3", 1024, 3136, 2, 1, 128, 32, 1, 0, 0}, "megavit_decode_few_24_2_sm_90a"},
                 {{"qwen3", 4096, 64, 2, 1, 128, 32, 1, 0, 0}, "megavit_decode_few_24_2_sm_90a"},
                 {{"qwen3", 32, 64, 4, 1, 128, 67, 0, 0, 0}, "megavit_decode_few_32_4_sm_90a"}};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        held_model held;
        schedule s;
        make_files(&held, &cases[i].shape, LANGUAGE_LAYERS, 1);
        open_files(&held);
        get(held.model, 0, 0, 7, &s);
        check_sums(&s);
        assert_string_equal(s.info.kernel, cases[i].kernel);
        assert_int_equal(s.info.sessions, 1);
        assert_int_equal(s.info.multiprocessors, 6); /* whole clusters */
        assert_int_equal(step_of(&s, "head")->units, (cases[i].shape.vocabulary + 15) / 16);
        assert_true(step_of(&s, "head")->weight_bytes >= 2 * (uint64_t)cases[i].shape.vocabulary * cases[i].shape.hidden);
        close_model(&held);
    }
}

/* Attention takes its rounds, or where there are more multiprocessors than memory feeds, its bytes' time. */
static void test_attention_bound(void **state) {
    static const uint32_t multiprocessors[] = {132, 1024};
    held_model held;
    size_t i;
    (void)state;
    open_model(&held, &small);
    for (i = 0; i < COUNT_OF(multiprocessors); i++) {
        const mgv_decode_step *attention;
        schedule s;
        get(held.model, 8, 1u << 24, multiprocessors[i], &s);
        check_sums(&s);
        attention = step_of(&s, "attention");
        assert_int_equal(fabs(attention->us - attention->wait_us - attention->stream_us) < 1e-3, i == 1);
    }
    close_model(&held);
}

static void refuse(const mgv_model *model, const mgv_decode_desc *desc, mgv_result expected, const char *sentence) {
    mgv_decode_info info;
    mgv_error error;
    assert_int_equal(mgv_model_get_decode_schedule(model, desc, &info, NULL, 0, &error), expected);
    if (!strstr(error.message, sentence)) fail_msg("%s", error.message);
    assert_int_equal(info.step_count, 0);
    assert_null(info.kernel);
}
static void test_arguments(void **state) {
    held_model held;
    mgv_decode_desc desc;
    mgv_decode_info info;
    mgv_decode_step steps[MOST_STEPS];
    mgv_model *tower;
    mgv_error error;
    uint32_t kept;
    (void)state;
    open_model(&held, &small);
    assert_int_equal(mgv_model_get_decode_schedule(NULL, NULL, &info, NULL, 0, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "model or info is NULL"));
    assert_int_equal(mgv_model_get_decode_schedule(held.model, NULL, NULL, NULL, 0, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "model or info is NULL"));
    memset(steps, 0xA5, sizeof steps); /* no description; steps only as far as there is room */
    assert_int_equal(mgv_model_get_decode_schedule(held.model, NULL, &info, steps, 2, &error), MGV_OK);
    assert_true(info.sessions == 1 && info.multiprocessors == 132 && info.step_count == 7);
    assert_string_equal(steps[0].label, "qkv");
    assert_string_equal(steps[1].label, "attention");
    memcpy(&kept, &steps[2].times, sizeof kept);
    assert_int_equal(kept, 0xA5A5A5A5u);
    assert_int_equal(mgv_model_get_decode_schedule(held.model, NULL, &info, NULL, MOST_STEPS, &error), MGV_OK);
    memset(&desc, 0, sizeof desc);
    desc.struct_size = 3;
    refuse(held.model, &desc, MGV_ERROR_ARGUMENT, "mgv_decode_desc");
    desc.struct_size = 0;
    desc.sessions = 9;
    refuse(held.model, &desc, MGV_ERROR_ARGUMENT, "9 sessions at 0 on 132 multiprocessors; a launch has up to 8, and needs 2");
    desc.sessions = 8;
    desc.multiprocessors = 1;
    refuse(held.model, &desc, MGV_ERROR_ARGUMENT, "8 sessions at 0 on 1 multiprocessors");
    desc.multiprocessors = 2;
    desc.position = (1u << 24) + 1;
    refuse(held.model, &desc, MGV_ERROR_ARGUMENT, "8 sessions at 16777217 on 2 multiprocessors");
    desc.position = 1u << 24;
    assert_int_equal(mgv_model_get_decode_schedule(held.model, &desc, &info, NULL, 0, &error), MGV_OK);
    held.model->config.vocabulary = (1u << 18) + 1; /* whose table no test should hold */
    refuse(held.model, NULL, MGV_ERROR_UNSUPPORTED, "the GPU decodes vocabularies of up to 262144 ids; this model's has 262145");
    close_model(&held);
    tower = open_directory("tests/golden/siglip_saved_bfloat16", MGV_TOWER_VISION);
    refuse(tower, NULL, MGV_ERROR_ARGUMENT, "the model is a tower and no language model: open it with MGV_TOWER_LANGUAGE");
    mgv_model_close(tower);
    tower = open_directory("tests/golden/decoder/qwen3", MGV_TOWER_LANGUAGE);
    refuse(tower, NULL, MGV_ERROR_UNSUPPORTED, "heads of 128 columns, and this model's have 16");
    mgv_model_close(tower);
}

/* A model opened for its shapes alone: not a byte of its weights is read, nor room made for them, what it costs is what it costs whole,
   and what needs the weights says so. */
static void test_shapes_alone(void **state) {
    static const shape shapes[] = {{"qwen3", 1024, 3072, 16, 8, 128, 500, 1, 0, 0},
                                   {"qwen3_vl_text", 1024, 3072, 32, 8, 128, 500, 1, 1, 0}};
    static const int32_t towers[] = {MGV_TOWER_LANGUAGE, MGV_TOWER_LANGUAGE, MGV_TOWER_VISION};
    size_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(towers); i++) {
        held_model held;
        fake_files files;
        fake_file entries[2];
        counting_allocator counts[2];
        mgv_model *models[2];
        mgv_model_info info[2];
        mgv_model_desc desc;
        mgv_engine *engine;
        mgv_tensor_info tensor;
        mgv_error error;
        uint64_t header, read[2], packed[2] = {0, 0}, bytes = 0;
        unsigned char *pack;
        uint32_t k;
        int alone;
        make_files(&held, &shapes[i > 0], LANGUAGE_LAYERS, 1);
        memcpy(&header, held.file, 8);
        entries[0].name = "config.json";
        entries[0].data = held.config;
        entries[0].bytes = strlen(held.config);
        entries[1].name = "model.safetensors";
        entries[1].data = held.file;
        entries[1].bytes = held.file_bytes;
        for (alone = 0; alone < 2; alone++) {
            memset(&desc, 0, sizeof desc);
            desc.tower = towers[i];
            desc.shapes_only = alone;
            desc.io = fake_files_make(&files, entries, 2);
            memset(&counts[alone], 0, sizeof counts[alone]);
            desc.allocator = counting_allocator_make(&counts[alone]);
            if (mgv_model_open(&models[alone], &desc, &error) != MGV_OK) fail_msg("%s", error.message);
            read[alone] = files.bytes_read;
            assert_int_equal(mgv_model_get_info(models[alone], &info[alone]), MGV_OK);
            assert_int_equal(files.open_now, 0);
        }
        assert_true(info[0].bytes > 100000 && info[0].hash != 0);
        assert_in_range(read[1], header, 4 * (8 + header + entries[0].bytes)); /* once for each tower, and once to see which there are */
        assert_true(counts[1].peak_bytes < info[0].bytes / 2 && info[0].bytes < counts[0].peak_bytes);
        assert_int_equal(info[1].hash, 0);
        info[1].hash = info[0].hash;
        assert_memory_equal(&info[0], &info[1], sizeof info[0]);
        for (k = 0; k < info[0].tensor_count; k++) {
            mgv_tensor_info whole;
            assert_int_equal(mgv_model_get_tensor(models[0], k, &whole), MGV_OK);
            assert_int_equal(mgv_model_get_tensor(models[1], k, &tensor), MGV_OK);
            assert_string_equal(tensor.name, whole.name);
            assert_true(tensor.bytes == whole.bytes && tensor.offset == whole.offset && tensor.shape[0] == whole.shape[0]);
            bytes += tensor.bytes;
        }
        assert_int_equal(read[0] - read[1], bytes);
        if (towers[i] == MGV_TOWER_LANGUAGE) {
            schedule whole, shape_of;
            get(models[0], 3, 700, 0, &whole);
            get(models[1], 3, 700, 0, &shape_of);
            assert_memory_equal(&whole.info, &shape_of.info, sizeof whole.info);
        }
        engine = NULL;
        assert_int_equal(mgv_engine_create(&engine, models[1], NULL, &error), MGV_ERROR_ARGUMENT);
        assert_null(engine);
        assert_non_null(strstr(error.message, "opened for its shapes alone (mgv_model_desc.shapes_only): it has no weights"));
        if (towers[i] == MGV_TOWER_VISION) {
            for (alone = 0; alone < 2; alone++)
                if (mgv_model_packed_bytes(models[alone], "sm_90a", &packed[alone], &error) != MGV_OK) fail_msg("%s", error.message);
            assert_int_equal(packed[0], packed[1]);
            pack = (unsigned char *)malloc((size_t)packed[0]);
            assert_non_null(pack);
            assert_int_equal(mgv_model_pack(models[1], "sm_90a", pack, packed[1], &error), MGV_ERROR_ARGUMENT);
            assert_non_null(strstr(error.message, "it has no weights"));
            assert_int_equal(mgv_model_pack(models[0], "sm_90a", pack, packed[0], &error), MGV_OK);
            free(pack);
        }
        for (alone = 0; alone < 2; alone++) mgv_model_close(models[alone]);
        assert_true(counts[0].live_blocks == 0 && counts[1].live_blocks == 0);
        free(held.file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counted_by_hand), cmocka_unit_test(test_measured),
                                       cmocka_unit_test(test_other_shapes), cmocka_unit_test(test_attention_bound),
                                       cmocka_unit_test(test_arguments), cmocka_unit_test(test_shapes_alone)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

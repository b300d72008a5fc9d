/* What mgv_model_get_schedule says of what is seldom asked about: narrow models, whose regime is another, and each machine's products. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "plan_model.h"

enum { MOST_OPS = 64, LAYERS = 2 };

static plan_model asked;

/* Opens `asked`, a SigLIP for pictures of 64 pixels a side, 16 tokens. */
static uint32_t picture_side = 64;
static void make(uint32_t hidden, uint32_t heads, uint32_t intermediate) {
    mgv__config config;
    memset(&config, 0, sizeof config);
    config.family = MGV_FAMILY_SIGLIP;
    config.hidden = hidden;
    config.intermediate = intermediate;
    config.layers = LAYERS;
    config.heads = heads;
    config.head_dim = hidden / heads;
    config.channels = 3;
    config.patch = 16;
    config.image_size = picture_side;
    config.merge = config.temporal_patch = 1;
    config.epsilon = 1e-6f;
    config.activation = MGV__ACT_GELU_TANH;
    config.use_head = 1;
    config.pixels.do_resize = config.pixels.do_rescale = config.pixels.do_normalize = 1;
    plan_model_make(&asked, &config, 0);
}
typedef struct schedule {
    mgv_schedule_info info;
    mgv_schedule_op ops[MOST_OPS];
} schedule;
static void get(uint32_t images, const char *architecture, schedule *s) {
    mgv_schedule_desc desc;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.image_count = images;
    desc.architecture = architecture;
    if (mgv_model_get_schedule(&asked.model, &desc, &s->info, s->ops, MOST_OPS, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_true(s->info.op_count <= MOST_OPS);
}
static const mgv_schedule_op *op_of(const schedule *s, const char *label) {
    uint32_t i;
    for (i = 0; i < s->info.op_count; i++)
        if (strcmp(s->ops[i].label, label) == 0) return &s->ops[i];
    fail_msg("no operation %s", label);
    return NULL;
}

/* A model without a block of columns for each math group finds scores as a product of their own and then sums, in the regime that is
   predicted to be faster; one with a block each does not. */
static void test_narrow(void **state) {
    static const uint32_t heads[] = {2, 4, 8};
    size_t i;
    uint32_t images;
    schedule s;
    (void)state;
    for (i = 0; i < COUNT_OF(heads); i++) {
        make(64, heads[i], 512);
        for (images = 1; images <= 5; images++) {
            get(images, NULL, &s);
            assert_string_equal(s.info.regime, "latency");
            assert_string_equal(op_of(&s, "head scores")->kind, "product");
            assert_true(op_of(&s, "head scores")->tiles > 0);
            assert_true(op_of(&s, "head scores")->flops == 2.0 * 16 * 64 * heads[i] * images);
            assert_string_equal(op_of(&s, "head sums")->kind, "pool");
            assert_true(op_of(&s, "head sums")->tiles > 0 && op_of(&s, "head values")->tiles > 0);
        }
        plan_model_free(&asked);
    }
    make(128, 2, 512);
    get(1, NULL, &s);
    assert_string_equal(s.info.regime, "latency");
    assert_string_equal(op_of(&s, "head sums")->kind, "pool");
    plan_model_free(&asked);
}

/* No operation does more than its tiles, nor takes less than its products; bounds are below what is predicted. */
static void check_costs(const schedule *s) {
    double flops = 0;
    uint32_t i;
    for (i = 0; i < s->info.op_count; i++) {
        const mgv_schedule_op *op = &s->ops[i];
        if (op->tile_flops < op->flops) fail_msg("%s: %g FLOPs in tiles of %g", op->label, op->flops, op->tile_flops);
        flops += op->flops;
    }
    assert_true(s->info.matrix_us > 0 && s->info.matrix_us <= flops / s->info.matrix_flops * 1e6 * (1 + 1e-9));
    assert_true(s->info.floor_us < s->info.us);
}

/* Blackwell's products: by the tensor cores' rate, twice that in MXFP8; those of pictures, 64 rows a math group, at half of it, or where
   CTAs multiply in pairs by warps at a quarter, in tiles of up to 128 columns, or as products of vectors that no tensor core sees.
   Pairs are taken where they are predicted to gain a twelfth. */
static void test_blackwell(void **state) {
    static const char *const architectures[] = {"sm_100a", "sm_103a", "sm_110a", "sm_100a mxfp8", "sm_103a mixed", "sm_110a mxfp8"};
    static const struct {
        const char *label;
        uint32_t inner;
        int head, mx; /* 1: in MXFP8; 2: not where that is mixed */
    } products[] = {{"patch embed", 768, 0, 0}, {"qkv", 768, 0, 1},         {"out", 768, 0, 2},
                    {"fc1", 768, 0, 1},         {"fc2", 3072, 0, 2},        {"head values", 768, 1, 0},
                    {"head out", 768, 1, 0},    {"head fc1", 768, 1, 0},    {"head fc2", 3072, 1, 0}};
    static const uint32_t images[] = {1, 64, 700};
    size_t a, n, p;
    (void)state;
    make(768, 12, 3072);
    for (a = 0; a < COUNT_OF(architectures); a++)
        for (n = 0; n < COUNT_OF(images); n++) {
            const int mxfp8 = strstr(architectures[a], "mxfp8") != NULL, mixed = strstr(architectures[a], "mixed") != NULL;
            schedule s;
            int pairs;
            get(images[n], architectures[a], &s);
            check_costs(&s);
            pairs = strcmp(s.info.regime, "pairs") == 0;
            assert_string_equal(s.info.regime, pairs ? "pairs" : "throughput");
            assert_string_equal(s.info.kernel, pairs ? "megavit_encode_pairs_sm_100a" : "megavit_encode_sm_100a");
            assert_int_equal(pairs, 12 * floor(s.info.pairs_us) <= 11 * floor(s.info.singles_us));
            assert_int_equal(s.info.untried, 1);
            for (p = 0; p < COUNT_OF(products); p++) {
                const mgv_schedule_op *op = op_of(&s, products[p].label);
                const int mx = products[p].mx && (mxfp8 || (mixed && products[p].mx == 1));
                const double rate = s.info.matrix_flops / s.info.multiprocessors * (mx ? 2 : !products[p].head ? 1 : pairs ? 0.25 : 0.5);
                const double us = op->waves * 2 * op->tile_rows * op->tile_columns * products[p].inner / rate * 1e6;
                assert_true(op->tiles > 0);
                if (products[p].head) assert_true(op->tile_columns <= 128);
                if (products[p].head && images[n] == 1) assert_true(op->matrix_us == 0);
                else if (fabs(op->matrix_us / us - 1) > 1e-9)
                    fail_msg("%s, %u pictures, %s: %g us, not %g", architectures[a], images[n], op->label, op->matrix_us, us);
            }
        }
    plan_model_free(&asked);
}

/* Of precisions: the same FLOPs; MXFP8's products are bound lower, and at no number of pictures slower in sum. */
static void test_precisions(void **state) {
    static const uint32_t images[] = {8, 64, 592};
    size_t n;
    (void)state;
    make(768, 12, 3072);
    for (n = 0; n < COUNT_OF(images); n++) {
        schedule bf16, mixed, mxfp8, hopper;
        get(images[n], "sm_100a", &bf16);
        get(images[n], "sm_100a mixed", &mixed);
        get(images[n], "sm_100a mxfp8", &mxfp8);
        get(images[n], "sm_90a", &hopper);
        check_costs(&hopper);
        assert_true(op_of(&bf16, "fc1")->flops == op_of(&mxfp8, "fc1")->flops && op_of(&bf16, "out")->flops == op_of(&mixed, "out")->flops);
        assert_true(mxfp8.info.matrix_us < mixed.info.matrix_us && mixed.info.matrix_us < bf16.info.matrix_us);
        assert_true(mxfp8.info.power_us < mixed.info.power_us && mixed.info.power_us < bf16.info.power_us);
        if (n) assert_true(bf16.info.us < hopper.info.us); /* few run in a regime that Blackwell has not */
        assert_int_equal(hopper.info.untried, 0);
    }
    plan_model_free(&asked);
}

/* Bytes of an operation in one precision more than in another. Rows in MXFP8 have a byte a number and one a block of 32. */
static int64_t more_bytes(const char *label, int32_t layer, const char *architecture, const char *other) {
    schedule s[2];
    int64_t bytes = 0;
    uint32_t i, k;
    for (i = 0; i < 2; i++) {
        get(8, i ? other : architecture, &s[i]);
        for (k = 0; k < s[i].info.op_count; k++)
            if (s[i].ops[k].layer == layer && strcmp(s[i].ops[k].label, label) == 0) bytes += (i ? -1 : 1) * (int64_t)s[i].ops[k].l2_bytes;
    }
    return bytes;
}
static void test_traffic(void **state) {
    const int64_t stream = 8 * 16 * 768, mlp = 8 * 16 * 3072;
    (void)state;
    make(768, 12, 3072);
    assert_int_equal(more_bytes("fc1", 0, "sm_100a fc1", "sm_100a fc1+fc2"), 2 * mlp - mlp * 33 / 32); /* instead of bf16 */
    assert_int_equal(more_bytes("attention", 0, "sm_100a qkv", "sm_100a qkv+out"), 2 * stream - stream * 33 / 32);
    assert_int_equal(more_bytes("out", 0, "sm_100a out+fc1", "sm_100a out"), stream * 33 / 32); /* beside bf16, for a residual */
    assert_int_equal(more_bytes("fc2", 0, "sm_100a qkv+fc2", "sm_100a fc2"), stream * 33 / 32);
    assert_int_equal(more_bytes("fc2", LAYERS - 1, "sm_100a qkv+fc2", "sm_100a fc2"), 0); /* which no product reads */
    assert_int_equal(more_bytes("out", 0, "sm_100a out+qkv", "sm_100a out"), 0);
    plan_model_free(&asked);
}

/* Many pictures of 224 px are multiplied by pairs of CTAs in bf16, one is not, and of more tokens than the pooling head by warps has
   registers for none are. */
static void test_pairs(void **state) {
    schedule s;
    (void)state;
    picture_side = 224;
    make(768, 12, 3072);
    get(592, "sm_100a", &s);
    assert_string_equal(s.info.regime, "pairs");
    assert_true(s.info.pairs_us < s.info.singles_us);
    get(1, "sm_100a", &s);
    assert_string_equal(s.info.regime, "throughput");
    get(592, "sm_90a", &s);
    assert_true(s.info.pairs_us == 0);
    plan_model_free(&asked);
    picture_side = 256;
    make(768, 12, 3072);
    get(592, "sm_100a", &s);
    assert_string_equal(s.info.regime, "throughput");
    plan_model_free(&asked);
    picture_side = 64;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_narrow), cmocka_unit_test(test_blackwell), cmocka_unit_test(test_precisions),
                                       cmocka_unit_test(test_traffic),
                                       cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

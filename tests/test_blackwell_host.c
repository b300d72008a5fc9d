/* Which kernel a card of which compute capability gets, and that nobody gets one unasked that no card has run; without a card. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include "support.h"
#include "fake_kernel.h"
#include "micro_siglip.h"

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;
    char log[4096];
} fixture;

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_error error;
    micro_make(&f->micro, 1);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    mgv__cuda_test_calls = &fake_calls;
    fake_reset();
    *state = f;
    return 0;
}
static int tear_down(void **state) {
    fixture *f = (fixture *)*state;
    mgv_model_close(f->model);
    micro_free(&f->micro);
    free(f);
    return 0;
}

static void keep_log(void *user, int32_t level, const char *message) {
    fixture *f = (fixture *)user;
    (void)level;
    strncat(f->log, message, sizeof f->log - strlen(f->log) - 2);
    strcat(f->log, "\n");
}

static mgv_result make(fixture *f, mgv_backend backend, const char *architecture, mgv_engine **engine, mgv_error *error) {
    mgv_engine_desc desc;
    uint64_t bytes = 0;
    void *packed = NULL;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.backend = backend;
    desc.kernels = "stands for megavit.fatbin";
    desc.max_images = 3;
    desc.logger.log = keep_log;
    desc.logger.user = f;
    if (architecture) {
        assert_non_null(mgv__find_machine(architecture, &desc.precision, error));
        assert_int_equal(mgv_model_packed_bytes(f->model, architecture, &bytes, error), MGV_OK);
        packed = malloc(bytes);
        assert_int_equal(mgv_model_pack(f->model, architecture, packed, bytes, error), MGV_OK);
        desc.packed = packed;
        desc.packed_bytes = bytes;
    }
    f->log[0] = 0;
    result = mgv_engine_create(engine, f->model, &desc, error);
    free(packed);
    return result;
}

/* Weights in MXFP8 on a Hopper card, which is asked for nothing of the kind: the file is refused. */
static void check_files_of_mx(fixture *f) {
    static const char *const architectures[] = {"sm_100a mxfp8", "sm_100a mixed", "sm_103a mxfp8", "sm_110a mixed", "sm_100a qkv+fc2"};
    size_t i;
    for (i = 0; i < COUNT_OF(architectures); i++) {
        mgv_engine_desc desc;
        mgv_engine *engine = NULL;
        mgv_error error;
        uint64_t bytes = 0;
        void *packed;
        assert_int_equal(mgv_model_packed_bytes(f->model, architectures[i], &bytes, &error), MGV_OK);
        packed = malloc(bytes);
        assert_int_equal(mgv_model_pack(f->model, architectures[i], packed, bytes, &error), MGV_OK);
        memset(&desc, 0, sizeof desc);
        desc.backend = MGV_BACKEND_CUDA;
        desc.kernels = "stands for megavit.fatbin";
        desc.packed = packed;
        desc.packed_bytes = bytes;
        assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_FORMAT);
        if (!strstr(error.message, "packed for the architecture") || !strstr(error.message, architectures[i]))
            fail_msg("%s", error.message);
        assert_int_equal(fake_alive(), 0);
        free(packed);
    }
}

/* The row of each capability, with the clusters that its multiprocessors make; its own packed weights and no other's. */
static void test_capabilities(void **state) {
    static const struct {
        int major, minor, multiprocessors;
        const char *architecture, *kernel;
    } cards[] = {{9, 0, 132, "sm_90a", "megavit_encode_few_sm_90a"},
                 {10, 0, 148, "sm_100a", "megavit_encode_sm_100a"},
                 {10, 0, 148, "sm_100a mxfp8", "megavit_encode_sm_100a"},
                 {10, 3, 152, "sm_103a", "megavit_encode_sm_100a"},
                 {10, 3, 152, "sm_103a mixed", "megavit_encode_sm_100a"},
                 {10, 3, 152, "sm_103a out", "megavit_encode_sm_100a"},
                 {11, 0, 20, "sm_110a qkv+out+fc2", "megavit_encode_sm_100a"},
                 {11, 0, 20, "sm_110a", "megavit_encode_sm_100a"}};
    fixture *f = (fixture *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(cards); i++) {
        mgv_engine *engine = NULL;
        mgv_precision precision;
        mgv_error error;
        fake_reset();
        fake.major = cards[i].major;
        fake.minor = cards[i].minor;
        fake.multiprocessors = cards[i].multiprocessors;
        if (make(f, MGV_BACKEND_CUDA, cards[i].architecture, &engine, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_ptr_equal(engine->gpu->cuda->machine, mgv__find_machine(cards[i].architecture, &precision, &error));
        assert_int_equal(engine->gpu->cuda->plan->precision, precision);
        assert_string_equal(engine->gpu->cuda->machine->kernels[0].name, cards[i].kernel);
        assert_int_equal(engine->gpu->cuda->clusters, cards[i].multiprocessors / 2);
        assert_int_equal(engine->gpu->cuda->machine->untried, cards[i].major > 9);
        assert_int_equal(strstr(f->log, "has run on a model of it only, never on a card") != NULL, cards[i].major > 9);
        mgv_engine_destroy(engine);
        assert_int_equal(fake_alive(), 0);
        if (strchr(cards[i].architecture, ' ')) continue;
        if (cards[i].major == 9) check_files_of_mx(f);
        assert_int_equal(make(f, MGV_BACKEND_CUDA, cards[i].major == 10 ? "sm_90a" : "sm_100a", &engine, &error), MGV_ERROR_FORMAT);
        assert_non_null(strstr(error.message, "packed for the architecture"));
        assert_int_equal(fake_alive(), 0);
    }
}

/* Cards before Hopper, and Blackwell's that are no data centre's: refused by number, asked for or not, in every precision. */
static void test_other_cards(void **state) {
    static const int capabilities[][2] = {{7, 5}, {8, 0}, {8, 6}, {8, 9}, {9, 1}, {10, 1}, {12, 0}, {12, 1}, {13, 0}};
    static const char *const architectures[] = {NULL, "sm_90a", "sm_100a mxfp8", "sm_100a mixed"};
    fixture *f = (fixture *)*state;
    size_t i, k;
    for (i = 0; i < COUNT_OF(capabilities); i++) {
        char says[80];
        mgv_engine *engine = NULL;
        mgv_error error;
        snprintf(says, sizeof says, "GPU 0 is of compute capability %d.%d; the kernels are for 9.0 (Hopper), ", capabilities[i][0],
                 capabilities[i][1]);
        fake_reset();
        fake.major = capabilities[i][0];
        fake.minor = capabilities[i][1];
        for (k = 0; k < COUNT_OF(architectures); k++) {
            assert_int_equal(make(f, MGV_BACKEND_CUDA, architectures[k], &engine, &error), MGV_ERROR_NO_DEVICE);
            if (!strstr(error.message, says)) fail_msg("%s", error.message);
            assert_null(engine);
        }
        assert_int_equal(make(f, MGV_BACKEND_AUTO, NULL, &engine, &error), MGV_OK);
        assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
        assert_non_null(strstr(f->log, says));
        mgv_engine_destroy(engine);
        assert_int_equal(fake_alive(), 0);
    }
}

/* Multiprocessors that make fewer clusters than half of them: as many as the card says run at once, and none is an error. */
static void test_clusters(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine *engine = NULL;
    mgv_error error;
    fake_reset();
    fake.major = 10;
    fake.multiprocessors = 148;
    fake.broken_up = 1 + 71;
    if (make(f, MGV_BACKEND_CUDA, "sm_100a", &engine, &error) != MGV_OK) fail_msg("%s", error.message);
    assert_int_equal(engine->gpu->cuda->clusters, 71);
    mgv_engine_destroy(engine);
    engine = NULL;
    fake.broken_up = 1;
    assert_int_equal(make(f, MGV_BACKEND_CUDA, "sm_100a", &engine, &error), MGV_ERROR_NO_DEVICE);
    assert_string_equal(error.message, "GPU 0 runs no cluster of 2 of the kernel's CTAs");
    assert_int_equal(fake_alive(), 0);
}

/* Kernels of other cards alone (KERNEL_ARCHITECTURES=90a): CUDA finds no image, asked for it is an error, and AUTO takes the CPU. */
static void test_no_image(void **state) {
    static const char *const calls[] = {"cudaLibraryLoadData", "cudaLibraryGetKernel"};
    static const char *const architectures[] = {"sm_90a", "sm_100a", "sm_100a mxfp8"};
    fixture *f = (fixture *)*state;
    size_t i, k;
    for (i = 0; i < COUNT_OF(calls); i++)
        for (k = 0; k < COUNT_OF(architectures); k++) {
            mgv_engine *engine = NULL;
            mgv_error error;
            fake_reset();
            fake.major = k ? 10 : 9;
            fake.minor = 0;
            fake.fail_name = calls[i];
            fake.fail_code = cudaErrorNoKernelImageForDevice;
            assert_int_equal(make(f, MGV_BACKEND_CUDA, architectures[k], &engine, &error), MGV_ERROR_NO_DEVICE);
            if (!strstr(error.message, "(CUDA error 209)") ||
                !strstr(error.message, ": the kernels are built for other GPUs than this one"))
                fail_msg("%s", error.message);
            assert_int_equal(fake_alive(), 0);
            if (k) continue;
            assert_int_equal(make(f, MGV_BACKEND_AUTO, NULL, &engine, &error), MGV_OK);
            assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
            assert_non_null(strstr(f->log, "the kernels are built for other GPUs than this one"));
            mgv_engine_destroy(engine);
            assert_int_equal(fake_alive(), 0);
        }
}

/* A file of one precision is not taken for another; a GPU without MXFP8 says so. */
static void test_precisions(void **state) {
    fixture *f = (fixture *)*state;
    mgv_engine_desc desc;
    mgv_engine *engine = NULL;
    mgv_error error;
    uint64_t bytes = 0;
    uint32_t i;
    void *packed;
    fake_reset();
    fake.major = 10;
    assert_int_equal(mgv_model_packed_bytes(f->model, "sm_100a mixed", &bytes, &error), MGV_OK);
    packed = malloc(bytes);
    assert_int_equal(mgv_model_pack(f->model, "sm_100a mixed", packed, bytes, &error), MGV_OK);
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CUDA;
    desc.kernels = "stands for megavit.fatbin";
    desc.packed = packed;
    desc.packed_bytes = bytes;
    for (i = 0; i < (uint32_t)MGV__PRECISIONS; i++) {
        const mgv_precision precision = mgv__precision_at(i);
        const int mx = (precision & MGV_PRECISION_MXFP8) != 0;
        char says[96];
        desc.precision = precision;
        if (desc.precision == MGV_PRECISION_MXFP8_MIXED) continue;
        snprintf(says, sizeof says, "packed for the architecture \"sm_100a mixed\"; this kernel is for \"sm_100a%s%s\"", mx ? " " : "",
                 mx ? mgv_precision_name(desc.precision) : "");
        assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_FORMAT);
        if (!strstr(error.message, says)) fail_msg("%s", error.message);
    }
    desc.precision = MGV_PRECISION_MXFP8;
    desc.packed = NULL;
    fake.major = 9;
    assert_int_equal(mgv_engine_create(&engine, f->model, &desc, &error), MGV_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no kernel for GPU 0 calculates in MXFP8: its compute capability is 9.0"));
    free(packed);
    assert_int_equal(fake_alive(), 0);
}

/* AUTO does not take what no card has tried, nor what there is no kernel for. */
static void test_auto(void **state) {
    static const struct {
        int major, minor;
        const char *says;
    } cards[] = {{10, 0, "the CPU encodes: no card has tried the kernel for this GPU (Blackwell): MGV_BACKEND_CUDA takes it"},
                 {10, 3, "(Blackwell Ultra)"},
                 {11, 0, "(Blackwell Thor)"},
                 {12, 0, "the CPU encodes: GPU 0 is of compute capability 12.0; the kernels are for 9.0 (Hopper), 10.0, 10.3 and 11.0 (Blackwell)"}};
    fixture *f = (fixture *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(cards); i++) {
        mgv_engine *engine = NULL;
        mgv_error error;
        fake_reset();
        fake.major = cards[i].major;
        fake.minor = cards[i].minor;
        if (make(f, MGV_BACKEND_AUTO, NULL, &engine, &error) != MGV_OK) fail_msg("%s", error.message);
        assert_int_equal(mgv_engine_backend(engine), MGV_BACKEND_CPU);
        if (!strstr(f->log, cards[i].says)) fail_msg("%s", f->log);
        mgv_engine_destroy(engine);
        assert_int_equal(fake_alive(), 0);
    }
}

/* Every schedule of the new rows is proved, at any number of images, and none has a tile that its kernel has no code for. regime: 1 + that
   which is asked for; 0: it is chosen. */
static void check_schedules(const fixture *f, const char *architecture, uint32_t regime) {
    mgv_error error;
    uint32_t images, i;
    mgv_result result;
    mgv_precision precision;
    const mgv__machine *machine = mgv__find_machine(architecture, &precision, &error);
    mgv__plan *plan = mgv__plan_make_for(&f->model->allocator, machine, precision, &f->model->config,
                                         &f->model->program, 700, 700, &result, &error);

    if (!plan) fail_msg("%s", error.message);
    plan->forced_regime = regime;
    for (images = 1; images <= 700; images += 1 + images / 3) {
        mgv__plan_schedule(plan, images, 74);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%u images: %s", images, error.message);
        if (regime) assert_int_equal(plan->regime, regime - 1);
        else assert_true(plan->regime == MGV__THROUGHPUT || plan->regime == MGV__PAIRS);
        for (i = 0; i < plan->op_count; i++) {
            if (plan->regime == MGV__PAIRS && plan->ops[i].kernel.flags & MGV__KERNEL_WHOLE)
                assert_false(plan->ops[i].kernel.flags & MGV__KERNEL_SHARE_ROWS);
            assert_false(mgv__is_split(plan->ops[i].kernel.kind));
            assert_false(plan->ops[i].kernel.flags & MGV__KERNEL_OWN_HEADS && plan->ops[i].kernel.kind == MGV__KERNEL_ATTENTION);
        }
    }
    mgv__plan_free(&f->model->allocator, plan);
}
static void test_schedules(void **state) {
    const fixture *f = (const fixture *)*state;
    check_schedules(f, "sm_100a", 0);
    check_schedules(f, "sm_100a mxfp8", 0);
    check_schedules(f, "sm_103a mixed", 0);
    check_schedules(f, "sm_100a", 1 + MGV__PAIRS);
    check_schedules(f, "sm_100a mxfp8", 1 + MGV__PAIRS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_capabilities, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_other_cards, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_clusters, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_no_image, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_precisions, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_auto, set_up, tear_down),
                                       cmocka_unit_test_setup_teardown(test_schedules, set_up, tear_down)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* From a model's files to an engine, by any number of threads: the same weights, the same hash, the same errors. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_CUDA
#define MEGAVIT_NO_CUDART
#include "megavit.h"

#include <unistd.h>
#include "support.h"
#include "fake_kernel.h"
#include "micro_siglip.h"
#include "packed_whole.h"

static const uint32_t thread_counts[] = {1, 2, 3, 8, 33};
static const char kernels[] = "stands for megavit.fatbin";

typedef struct fixture {
    micro_siglip micro;
    mgv_model *model;       /* opened by one thread */
    uint8_t *packed;
    uint64_t packed_bytes;
    char directory[64];
} fixture;

static void write_file(const fixture *f, const char *name, const void *data, size_t bytes) {
    char path[128];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", f->directory, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static int set_up(void **state) {
    fixture *f = (fixture *)calloc(1, sizeof *f);
    mgv_error error;
    size_t i;
    micro_make(&f->micro, 1);
    f->model = micro_open(&f->micro, &error);
    if (!f->model) fail_msg("%s", error.message);
    assert_int_equal(mgv_model_packed_bytes(f->model, "sm_90a", &f->packed_bytes, &error), MGV_OK);
    f->packed = (uint8_t *)malloc(f->packed_bytes);
    assert_int_equal(mgv_model_pack(f->model, "sm_90a", f->packed, f->packed_bytes, &error), MGV_OK);
    strcpy(f->directory, "/tmp/megavit_start_XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    for (i = 0; i < 2; i++) write_file(f, f->micro.files[i].name, f->micro.files[i].data, f->micro.files[i].bytes);
    write_file(f, "packed.mgvp", f->packed, f->packed_bytes);
    mgv__cuda_test_calls = &fake_calls;
    *state = f;
    return 0;
}
static int tear_down(void **state) {
    static const char *const names[] = {"config.json", "model.safetensors", "packed.mgvp"};
    fixture *f = (fixture *)*state;
    size_t i;
    for (i = 0; i < COUNT_OF(names); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", f->directory, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(f->directory), 0);
    mgv_model_close(f->model);
    micro_free(&f->micro);
    free(f->packed);
    free(f);
    return 0;
}

static mgv_result open_by(const fixture *f, mgv_threads *pool, int from_memory, mgv_model **model, mgv_error *error) {
    mgv_model_desc desc;
    memset(&desc, 0, sizeof desc);
    if (from_memory) {
        desc.memory_files = f->micro.files;
        desc.memory_file_count = 2;
    } else {
        desc.path = f->directory;
    }
    if (pool) desc.parallel = mgv_threads_parallel_for(pool);
    return mgv_model_open(model, &desc, error);
}

static void test_models(void **state) {
    fixture *f = (fixture *)*state;
    size_t t;
    int from_memory;
    for (t = 0; t < COUNT_OF(thread_counts); t++)
        for (from_memory = 0; from_memory < 2; from_memory++) {
            mgv_threads *pool;
            mgv_model *model;
            mgv_error error;
            assert_int_equal(mgv_threads_create(&pool, thread_counts[t], NULL, &error), MGV_OK);
            if (open_by(f, pool, from_memory, &model, &error) != MGV_OK) fail_msg("%s", error.message);
            assert_true(model->hash == f->model->hash && model->parameters == f->model->parameters);
            assert_int_equal(model->weight_bytes, f->model->weight_bytes);
            assert_memory_equal(model->weights, f->model->weights, model->weight_bytes);
            mgv_model_close(model);
            mgv_threads_destroy(pool);
        }
}

/* An element that is no number is found wherever it lies, and is named as one thread names it. */
static void test_every_part_is_looked_at(void **state) {
    fixture *f = (fixture *)*state;
    uint8_t *file = f->micro.file;
    const size_t bytes = (size_t)f->micro.files[1].bytes, data = bytes - f->micro.data_bytes;
    size_t at;
    mgv_threads *pool;
    mgv_error error, alone;
    assert_int_equal(mgv_threads_create(&pool, 7, NULL, &error), MGV_OK);
    for (at = data; at + 2 <= bytes; at += 99998) {
        const uint8_t was[2] = {file[at], file[at + 1]};
        mgv_model *model;
        file[at] = 0xC0;
        file[at + 1] = 0x7F;
        assert_int_equal(open_by(f, NULL, 1, &model, &alone), MGV_ERROR_MODEL);
        assert_int_equal(open_by(f, pool, 1, &model, &error), MGV_ERROR_MODEL);
        assert_string_equal(error.message, alone.message);
        assert_non_null(strstr(error.message, "holds NaN or infinity at element "));
        file[at] = was[0];
        file[at + 1] = was[1];
    }
    mgv_threads_destroy(pool);
}

static void test_packing(void **state) {
    fixture *f = (fixture *)*state;
    size_t t;
    for (t = 0; t < COUNT_OF(thread_counts); t++) {
        mgv_threads *pool;
        mgv_parallel_for parallel;
        mgv__packed_source source;
        mgv_error error;
        mgv_result result;
        uint64_t each;
        mgv__plan *plan = mgv__plan_make(&f->model->allocator, MGV_PRECISION_AUTO, &f->model->config, &f->model->program, 2, 2, &result,
                                         &error);
        uint8_t *block = (uint8_t *)calloc(1, f->packed_bytes);
        assert_non_null(plan);
        assert_int_equal(mgv_threads_create(&pool, thread_counts[t], NULL, &error), MGV_OK);
        parallel = mgv_threads_parallel_for(pool);
        memset(&source, 0, sizeof source);
        source.data = f->packed;
        source.bytes = f->packed_bytes;
        source.model_hash = f->model->hash;
        for (each = 32 << 10; each < 40 << 20; each *= 37) {
            if (packed_whole(&source, &f->model->allocator, &parallel, plan, each, block, &error) != MGV_OK) fail_msg("%s", error.message);
            assert_memory_equal(block, f->packed + MGV__PACKED_HEADER, f->packed_bytes - MGV__PACKED_HEADER);
        }
        f->packed[f->packed_bytes / 2] ^= 1;
        assert_int_equal(packed_whole(&source, &f->model->allocator, &parallel, plan, 1 << 20, block, &error), MGV_ERROR_FORMAT);
        assert_non_null(strstr(error.message, "the weights are damaged"));
        f->packed[f->packed_bytes / 2] ^= 1;
        free(block);
        mgv__plan_free(&f->model->allocator, plan);
        mgv_threads_destroy(pool);
    }
}

/* What lies on the card, packed there or read from a file: what mgv_model_pack writes. */
static void test_engines(void **state) {
    fixture *f = (fixture *)*state;
    size_t t;
    int from;
    for (t = 0; t < COUNT_OF(thread_counts); t++)
        for (from = 0; from < 3; from++) { /* packed here, from memory, from a file */
            mgv_threads *pool;
            mgv_engine_desc desc;
            mgv_engine *engine;
            mgv_error error;
            char path[128];
            fake_reset();
            assert_int_equal(mgv_threads_create(&pool, thread_counts[t], NULL, &error), MGV_OK);
            memset(&desc, 0, sizeof desc);
            desc.backend = MGV_BACKEND_CUDA;
            desc.kernels = kernels;
            desc.parallel = mgv_threads_parallel_for(pool);
            snprintf(path, sizeof path, "%s/packed.mgvp", f->directory);
            if (from == 1) {
                desc.packed = f->packed;
                desc.packed_bytes = f->packed_bytes;
            }
            if (from == 2) desc.packed_path = path;
            if (mgv_engine_create(&engine, f->model, &desc, &error) != MGV_OK) fail_msg("%s", error.message);
            assert_memory_equal(engine->gpu->cuda->arena + engine->gpu->cuda->plan->vectors_offset, f->packed + MGV__PACKED_HEADER,
                                f->packed_bytes - MGV__PACKED_HEADER);
            assert_int_equal(mgv_engine_destroy(engine), MGV_OK);
            assert_int_equal(fake_alive(), 0);
            mgv_threads_destroy(pool);
        }
}

static void test_half_a_parallel_for(void **state) {
    fixture *f = (fixture *)*state;
    mgv_model_desc desc;
    mgv_model *model;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.path = f->directory;
    desc.parallel.threads = 2;
    assert_int_equal(mgv_model_open(&model, &desc, &error), MGV_ERROR_ARGUMENT);
    assert_non_null(strstr(error.message, "both run and threads"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_models), cmocka_unit_test(test_every_part_is_looked_at),
                                       cmocka_unit_test(test_packing), cmocka_unit_test(test_engines),
                                       cmocka_unit_test(test_half_a_parallel_for)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

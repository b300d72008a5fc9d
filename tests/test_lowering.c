/* What the GPU plan makes of a model, held against tests/golden/lowering.txt: packed weights, schedules and figures of every SigLIP shape, and of models
   of other families that the kernel runs.
   A line that differs is a change of what the kernel is given. Where it is wanted: MGV_RECORD=1 build/tests/test_lowering writes the file
   anew.

   A schedule is hashed as the kernel reads it: for each operation the fields that its kind of tile looks at, and where a field is a number
   of a tensor map or buffer, what that is a view of. */
#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"

#include "support.h"
#include "plan_model.h"
#include "golden.h"

enum { BATCHES = 6, LATENCY_CLUSTERS = 30, CLUSTERS = 66 };
static const uint32_t batches[BATCHES] = {1, 2, 3, 8, 64, 592};
static const char file_name[] = "tests/golden/lowering.txt";

/* --- hashes of what the kernel is given --- */

static void add(mgv__hash *hash, uint64_t value) { mgv__hash_bytes(hash, &value, sizeof value); }

static void add_buffer(mgv__hash *hash, const mgv__plan *plan, uint32_t number) {
    const mgv__device_buffer *b = &plan->buffers[number];
    add(hash, b->offset);
    add(hash, b->columns);
    add(hash, b->pitch);
    add(hash, b->element_bytes);
}
static void add_map(mgv__hash *hash, const mgv__plan *plan, uint32_t number) {
    const mgv__map_desc *m = &plan->maps[number];
    uint32_t i;
    assert_true(number < plan->map_count);
    add(hash, m->pack >= 0 ? plan->weights_offset + plan->pack_offset[m->pack] : plan->buffers[m->buffer].offset);
    add(hash, m->element_bytes);
    for (i = 0; i < 4; i++) add(hash, m->dims[i]);
    for (i = 0; i < 4 && m->dims[i]; i++) add(hash, m->box[i]);
    for (i = 0; i < 3 && m->dims[i + 1]; i++) add(hash, m->strides[i]);
}

static int is_one_of(uint32_t kind, uint32_t kinds) { return kinds >> kind & 1u; }
#define LATENCY_PRODUCTS (MGV__KIND(WIDE) | MGV__KIND(DEEP) | MGV__KIND(THIN))
#define SPLIT_PRODUCTS (MGV__KIND(SPLIT_128) | MGV__KIND(SPLIT_160) | MGV__KIND(SPLIT_192))
#define PRODUCTS (MGV__KIND(GEMM_256) | MGV__KIND(GEMM_192) | MGV__KIND(GEMM_128) | MGV__KIND(GEMM_64) | LATENCY_PRODUCTS | \
                  SPLIT_PRODUCTS | MGV__KIND(GEMV))

/* The fields of a product. */
static void add_gemm(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    const mgv__kernel_gemm *of = &k->of.gemm;
    add(hash, of->blocks);
    add_map(hash, plan, of->a_map);
    add_map(hash, plan, of->b_map);
    add_map(hash, plan, of->store_map);
    if (k->kind == MGV__KERNEL_SPLIT_160 || k->kind == MGV__KERNEL_SPLIT_192) add_map(hash, plan, of->rest_map);
    add(hash, of->b_row);
    add(hash, of->a_column_step);
    add(hash, of->bias);
    if (k->flags & (MGV__KERNEL_TABLE | MGV__KERNEL_ROTARY)) add(hash, of->table);
    if (k->flags & MGV__KERNEL_FOLD_NORM) add(hash, k->stats_in);
    if (k->flags & MGV__KERNEL_STATS) add(hash, of->stats_out);
    add(hash, k->stats_columns);
}
static void add_gemv(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    const mgv__kernel_gemv *of = &k->of.gemv;
    add(hash, of->pieces);
    add_buffer(hash, plan, of->source);
    add(hash, of->parts_log2);
    add_buffer(hash, plan, of->target);
    add(hash, of->weights);
    add(hash, of->a_column_step);
    add(hash, of->bias);
    if (k->flags & MGV__KERNEL_FOLD_NORM) add(hash, k->stats_in);
    if (k->flags & MGV__KERNEL_STATS) add(hash, of->stats_out);
    add(hash, k->stats_columns);
}
static void add_latency(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    const mgv__kernel_latency *of = &k->of.latency;
    add(hash, of->blocks);
    add_map(hash, plan, of->a_map);
    add_map(hash, plan, of->b_map);
    if (k->kind == MGV__KERNEL_THIN) add_map(hash, plan, of->behind_map);
    add_buffer(hash, plan, of->target);
    if (k->flags & MGV__KERNEL_RESIDUAL) add_buffer(hash, plan, of->residual);
    add(hash, of->b_row);
    add(hash, 0); /* as many words as a GEMM has */
    add(hash, of->bias);
    if (k->flags & (MGV__KERNEL_TABLE | MGV__KERNEL_ROTARY)) add(hash, of->table);
    if (k->flags & MGV__KERNEL_FOLD_NORM) add(hash, k->stats_in);
    if (k->flags & MGV__KERNEL_STATS) add(hash, of->stats_out);
    add(hash, k->stats_columns);
}
static void add_product(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    if (k->kind == MGV__KERNEL_GEMV) add_gemv(hash, plan, k);
    else if (is_one_of(k->kind, LATENCY_PRODUCTS)) add_latency(hash, plan, k);
    else add_gemm(hash, plan, k);
}

static void add_pool(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    const mgv__kernel_pool *of = &k->of.pool;
    add_map(hash, plan, of->token_map);
    add_map(hash, plan, of->store_map);
    if (k->kind == MGV__KERNEL_POOL) add_map(hash, plan, of->score_map);
    if (k->kind == MGV__KERNEL_POOL_SUMS) add_buffer(hash, plan, of->scores);
    add(hash, of->blocks);
    add(hash, of->gamma);
    if (k->kind == MGV__KERNEL_POOL) add(hash, of->column_sums);
    add(hash, k->stats_in);
    add(hash, k->stats_columns);
}
static void add_pool_few(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    const mgv__kernel_pool_few *of = &k->of.pool_few;
    if (k->kind == MGV__KERNEL_POOL_HEADS) add_map(hash, plan, of->token_map);
    else add_buffer(hash, plan, of->source);
    add_buffer(hash, plan, of->target);
    if (k->kind != MGV__KERNEL_POOL_TOKENS) add(hash, of->gamma);
    if (k->kind != MGV__KERNEL_POOL_JOIN) {
        add(hash, of->column_sums);
        add(hash, of->weights);
    }
    if (k->kind == MGV__KERNEL_POOL_HEADS) {
        add(hash, of->values);
        add(hash, of->value_bias);
    }
    if (k->kind != MGV__KERNEL_POOL_JOIN) {
        add(hash, k->stats_in);
        add(hash, k->stats_columns);
    }
}
static void add_attention(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    const mgv__kernel_attention *of = &k->of.attention;
    const int latency = plan->regime == MGV__LATENCY;
    add_map(hash, plan, latency ? of->query_map : of->key_map);
    add_map(hash, plan, latency ? of->key_map : of->query_map);
    if (k->kind == MGV__KERNEL_ATTENTION_RANGES) add(hash, of->range);
    if ((k->kind == MGV__KERNEL_ATTENTION_ONLINE || k->kind == MGV__KERNEL_ATTENTION_RANGES) && of->key_rest_map != MGV__NO_MAP) {
        add_map(hash, plan, of->key_rest_map);
        add_map(hash, plan, of->query_rest_map);
    }
    if (latency) add_buffer(hash, plan, of->target);
    else add_map(hash, plan, of->store_map);
    add(hash, of->parts);
}

static void add_op(mgv__hash *hash, const mgv__plan *plan, const mgv__kernel_op *k) {
    const uint32_t normed = MGV__KIND(POOL) | MGV__KIND(POOL_SUMS) | MGV__KIND(POOL_TOKENS) | MGV__KIND(POOL_HEADS);
    uint32_t epsilon;
    add(hash, k->column_tiles != 0);
    if (!k->column_tiles) return;
    add(hash, k->kind);
    add(hash, k->flags);
    add(hash, k->column_tiles);
    add(hash, k->columns);
    add(hash, k->rows_total);
    add(hash, k->rows_per_group);
    add(hash, k->tokens);
    add(hash, k->heads);
    memcpy(&epsilon, &k->epsilon, sizeof epsilon);
    if (k->flags & MGV__KERNEL_FOLD_NORM || is_one_of(k->kind, normed)) add(hash, epsilon);
    add(hash, k->inner);
    add(hash, k->wait_divisor != 0);
    if (k->wait_divisor) {
        add(hash, k->wait_counter);
        add(hash, k->wait_divisor);
        add(hash, k->wait_stride);
        add(hash, k->wait_threshold);
    }
    add(hash, k->signal_counter);
    add(hash, k->signal_stride);
    if (is_one_of(k->kind, PRODUCTS)) add_product(hash, plan, k);
    else if (mgv__plan_is_pool_few(k->kind)) add_pool_few(hash, plan, k);
    else if (mgv__plan_is_pool(k->kind)) add_pool(hash, plan, k);
    else if (mgv__plan_is_attention(k->kind)) add_attention(hash, plan, k);
    else if (k->kind == MGV__KERNEL_ROWS) {
        add_buffer(hash, plan, k->of.rows.source);
        add(hash, k->of.rows.target);
        if (k->flags & MGV__KERNEL_FOLD_NORM) {
            add(hash, k->of.rows.gamma);
            add(hash, k->stats_in);
        }
        add(hash, k->stats_columns);
    } else if (k->kind == MGV__KERNEL_MERGE) {
        add_buffer(hash, plan, k->of.merge.source);
        add(hash, k->of.merge.rows);
        add(hash, k->of.merge.target);
        add(hash, k->of.merge.fold);
        if (k->flags & MGV__KERNEL_FOLD_NORM) {
            add(hash, k->of.merge.gamma);
            add(hash, k->stats_in);
        }
        add(hash, k->stats_columns);
    } else if (k->kind == MGV__KERNEL_PATCHES_OF_TOKENS) add(hash, k->of.patches.frames);
}

/* Operations, segments, and where tiles are dealt the lists. */
static uint64_t hash_schedule(const mgv__plan *plan) {
    mgv__hash hash;
    uint32_t i, number = 0;
    mgv__hash_begin(&hash);
    add(&hash, plan->regime);
    add(&hash, plan->clusters);
    mgv__hash_text(&hash, plan->machine->kernels[mgv__plan_kernel(plan)].name);
    for (i = 0; i < plan->op_count; i++) add_op(&hash, plan, &plan->ops[i].kernel);
    for (i = 0; i <= plan->segment_count; i++) {
        const mgv__kernel_segment *s = &plan->segments[i];
        uint32_t before = 0, k;
        for (k = 0; k < s->op; k++) before += plan->ops[k].kernel.column_tiles != 0; /* of those that have tiles */
        add(&hash, before);
        add(&hash, s->group);
        add(&hash, s->first_unit);
        add(&hash, s->first_tile);
    }
    number = mgv__plan_deal_words(plan);
    add(&hash, number);
    for (i = 0; i < number; i++) add(&hash, plan->deal[i]);
    return mgv__hash_end(&hash);
}

static void add_figure(mgv__hash *hash, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.9g", value);
    mgv__hash_text(hash, text);
}

/* What mgv_model_get_schedule says, but for labels. */
static uint64_t hash_figures(const mgv_model *model, uint32_t images, uint32_t tokens) {
    static mgv_schedule_op ops[MGV__PLAN_MAX_OPS];
    mgv_schedule_info info;
    mgv_schedule_desc desc;
    mgv_error error;
    mgv__hash hash;
    uint32_t i;
    memset(&desc, 0, sizeof desc);
    desc.struct_size = sizeof desc;
    desc.image_count = images;
    desc.tokens = tokens;
    if (mgv_model_get_schedule(model, &desc, &info, ops, MGV__PLAN_MAX_OPS, &error) != MGV_OK) fail_msg("%s", error.message);
    mgv__hash_begin(&hash);
    mgv__hash_text(&hash, info.regime);
    mgv__hash_text(&hash, info.kernel);
    {
        const double figures[] = {info.op_count, info.multiprocessors, info.clusters, info.cluster_size, info.groups, info.group_images,
                                  info.tiles, (double)info.device_bytes, (double)info.weight_bytes, info.shared_bytes, info.registers,
                                  info.nominal_flops, info.matrix_us, info.l2_us, info.memory_us, info.chain_us, info.floor_us,
                                  info.tiles_us, info.power_us, info.us};
        for (i = 0; i < COUNT_OF(figures); i++) add_figure(&hash, figures[i]);
    }
    for (i = 0; i < info.op_count; i++) {
        const mgv_schedule_op *o = &ops[i];
        const double figures[] = {o->layer, o->tile_rows, o->tile_columns, o->tiles, o->clusters, o->waves, o->flops, o->tile_flops,
                                  (double)o->l2_bytes, (double)o->memory_bytes, (double)o->plain_l2_bytes, (double)o->plain_memory_bytes,
                                  o->matrix_us, o->l2_us, o->memory_us, o->edge_us, o->handoff_us, o->us};
        uint32_t k;
        mgv__hash_text(&hash, o->kind);
        for (k = 0; k < COUNT_OF(figures); k++) add_figure(&hash, figures[k]);
    }
    return mgv__hash_end(&hash);
}

static uint64_t hash_packed(const mgv__plan *plan, const mgv_model *model) {
    const uint64_t bytes = mgv__plan_packed_bytes(plan);
    uint8_t *packed = (uint8_t *)mgv__alloc(&model->allocator, (size_t)bytes);
    uint64_t hash;
    assert_non_null(packed);
    mgv__plan_pack(plan, model->tensors, packed);
    hash = mgv__hash_of(packed, bytes);
    mgv__free(&model->allocator, packed);
    return hash;
}

/* --- one model, line by line --- */

static FILE *record; /* where lines go that are recorded, or NULL */
static char *expected, *next_line;

static void begin_lines(void) {
    size_t bytes;
    if (getenv("MGV_RECORD")) record = fopen(file_name, "wb");
    else next_line = expected = golden_read_file(file_name, &bytes);
}
static void tell(const char *line) {
    size_t length = strlen(line);
    if (record) {
        fprintf(record, "%s\n", line);
        return;
    }
    if (strncmp(next_line, line, length) != 0 || next_line[length] != '\n')
        fail_msg("%s\nis now\n%s\nin %s", strtok(next_line, "\n"), line, file_name);
    next_line += length + 1;
}
static void end_lines(void) {
    if (record) fclose(record);
    else assert_string_equal(next_line, "");
    free(expected);
}

static mgv__plan *make_plan(const mgv_model *model, uint32_t images) {
    mgv_result result;
    mgv_error error;
    mgv__plan *plan = mgv__plan_make(&model->allocator, MGV_PRECISION_AUTO, &model->config, &model->program, images, images, &result,
                                     &error);
    if (!plan) fail_msg("%s", error.message);
    plan->latency_clusters = mgv__plan_latency_supported(plan) ? (uint32_t)LATENCY_CLUSTERS : 0;
    return plan;
}

/* Hashes of a model's schedules, batch after batch. rows: the encode wants tokens and the stream before and behind a layer, too. */
static void schedules(const mgv_model *model, int rows, uint64_t out[BATCHES]) {
    uint32_t i;
    for (i = 0; i < BATCHES; i++) {
        mgv__plan *plan = make_plan(model, batches[i]);
        mgv__row_outputs outputs;
        mgv_error error;
        memset(&outputs, 0, sizeof outputs);
        outputs.count = rows ? 3 : 0;
        outputs.layer[0] = 1;
        outputs.layer[1] = MGV__ROWS_TOKENS_OUTPUT;
        mgv__plan_want(plan, &outputs);
        mgv__plan_schedule(plan, batches[i], CLUSTERS);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        out[i] = hash_schedule(plan);
        mgv__plan_free(&model->allocator, plan);
    }
}

static void tell_hashes(const char *name, const char *what, const uint64_t *hashes, uint32_t count) {
    char line[256];
    uint32_t i, used = (uint32_t)snprintf(line, sizeof line, "%s %s:", name, what);
    for (i = 0; i < count; i++) used += (uint32_t)snprintf(line + used, sizeof line - used, " %016llx", (unsigned long long)hashes[i]);
    tell(line);
}

/* with_rows: also where rows are wanted. with_packed: tensors have values. */
static void tell_model(const char *name, const mgv_model *model, int with_packed) {
    uint64_t hashes[BATCHES];
    uint32_t i;
    int rows;
    for (rows = 0; rows < 2; rows++) {
        schedules(model, rows, hashes);
        tell_hashes(name, rows ? "schedules with rows" : "schedules", hashes, BATCHES);
    }
    for (i = 0; i < BATCHES; i++) hashes[i] = hash_figures(model, batches[i], 0);
    tell_hashes(name, "figures", hashes, BATCHES);
    if (with_packed) {
        mgv__plan *plan = make_plan(model, 3);
        hashes[0] = hash_packed(plan, model);
        mgv__plan_free(&model->allocator, plan);
        tell_hashes(name, "packed", hashes, 1);
    }
}

/* Of a tower that takes pictures of any size: one picture of so many tokens. */
static const uint32_t token_counts[BATCHES] = {4, 64, 256, 1024, 4096, 16384};
static void tell_tower(const char *name, const mgv_model *model, int with_packed) {
    uint64_t hashes[BATCHES];
    mgv_error error;
    uint32_t i;
    for (i = 0; i < BATCHES; i++) {
        mgv__plan *plan = make_plan(model, token_counts[i]);
        assert_true(plan->varlen);
        plan->all_mergers = 1;
        plan->keys[MGV__RANGE_FRAME] = token_counts[i];
        plan->keys[MGV__RANGE_WINDOW] = mgv__plan_window_keys(&model->config, token_counts[i]);
        mgv__plan_schedule(plan, token_counts[i], CLUSTERS);
        if (mgv__plan_validate(plan, plan->counts, &error) != MGV_OK) fail_msg("%s", error.message);
        hashes[i] = hash_schedule(plan);
        mgv__plan_free(&model->allocator, plan);
    }
    tell_hashes(name, "schedules", hashes, BATCHES);
    for (i = 0; i < BATCHES; i++) hashes[i] = hash_figures(model, 1, token_counts[i]);
    tell_hashes(name, "figures", hashes, BATCHES);
    if (with_packed) {
        mgv__plan *plan = make_plan(model, token_counts[0]);
        hashes[0] = hash_packed(plan, model);
        mgv__plan_free(&model->allocator, plan);
        tell_hashes(name, "packed", hashes, 1);
    }
}

/* --- tests --- */

typedef struct shape {
    const char *name;
    uint32_t hidden, intermediate, layers, heads, patch;
} shape;
static const shape shapes[] = {
    {"base", 768, 3072, 12, 12, 16}, {"large", 1024, 4096, 24, 16, 16}, {"so400m", 1152, 4304, 27, 16, 14}, {"giant", 1536, 6144, 40, 16, 16}};

static void config_of(mgv__config *config, const shape *s, uint32_t image_size, uint32_t layers, int head) {
    memset(config, 0, sizeof *config);
    config->family = MGV_FAMILY_SIGLIP;
    config->hidden = s->hidden;
    config->intermediate = s->intermediate;
    config->layers = layers;
    config->heads = s->heads;
    config->head_dim = s->hidden / s->heads;
    config->channels = 3;
    config->patch = s->patch;
    config->image_size = image_size;
    config->merge = config->temporal_patch = 1;
    config->epsilon = 1e-6f;
    config->activation = MGV__ACT_GELU_TANH;
    config->use_head = head;
    config->pixels.do_rescale = config->pixels.do_normalize = 1;
    config->pixels.rescale_factor = 1.0 / 255;
    config->pixels.mean[0] = config->pixels.mean[1] = config->pixels.mean[2] = 0.5;
    config->pixels.std[0] = config->pixels.std[1] = config->pixels.std[2] = 0.25;
}

/* All layers of the smallest pictures, two of larger ones; packed: a layer has all that there is to pack. */
static void test_shapes(void **state) {
    static const uint32_t sizes[] = {224, 256, 384, 512};
    plan_model *m = (plan_model *)malloc(sizeof *m);
    uint32_t s, i;
    int head;
    (void)state;
    for (s = 0; s < COUNT_OF(shapes); s++)
        for (head = 0; head < 2; head++) {
            mgv__config config;
            char name[64];
            for (i = 0; i < COUNT_OF(sizes); i++) {
                config_of(&config, &shapes[s], sizes[i], i ? 2 : shapes[s].layers, head);
                snprintf(name, sizeof name, "%s-%u%s", shapes[s].name, sizes[i], head ? "" : " without head");
                plan_model_make(m, &config, 0);
                tell_model(name, &m->model, 0);
                plan_model_free(m);
            }
            config_of(&config, &shapes[s], 224, 1, head);
            snprintf(name, sizeof name, "%s%s, one layer", shapes[s].name, head ? "" : " without head");
            plan_model_make(m, &config, 1);
            {
                mgv__plan *plan = make_plan(&m->model, 3);
                uint64_t hash = hash_packed(plan, &m->model);
                mgv__plan_free(&m->model.allocator, plan);
                tell_hashes(name, "packed", &hash, 1);
            }
            plan_model_free(m);
        }
    free(m);
}

static const char *const golden_names[] = {
    "siglip_base",        "siglip_epsilon",      "siglip_head_dim_72", "siglip_head_dim_96", "siglip_trailing_pixels", "siglip_one_token",
    "siglip_patch_32",    "siglip_many_tokens",  "siglip_no_head",     "siglip_float16",     "siglip_bfloat16",        "siglip_sparse_layers",
    "siglip_sparse_image", "siglip_saved_float16", "siglip_saved_bfloat16", "siglip_saved_sharded", "siglip_default_model", "clip_base",
    "clip_gelu",          "dinov2_base",         "dinov2_registers",   "dinov2_larger",      "dinov2_smaller",         "dinov2_swiglu"};

/* Those that the kernel runs; of the others the reason. */
static void test_golden_models(void **state) {
    uint32_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(golden_names); i++) {
        golden g;
        mgv_model *model;
        mgv_result result;
        mgv_error error;
        mgv__plan *plan;
        golden_open(&g, golden_names[i]);
        model = golden_open_model(&g, "", 1);
        plan = mgv__plan_make(&model->allocator, MGV_PRECISION_AUTO, &model->config, &model->program, 1, 1, &result, &error);
        if (plan) {
            mgv__plan_free(&model->allocator, plan);
            tell_model(golden_names[i], model, 1);
        } else {
            char line[512];
            assert_int_equal(result, MGV_ERROR_UNSUPPORTED);
            snprintf(line, sizeof line, "%s: %s", golden_names[i], error.message);
            tell(line);
        }
        mgv_model_close(model);
        golden_close(&g);
    }
}

static void tower_config(mgv__config *config, mgv_family family, const shape *s) {
    config_of(config, s, 0, s->layers, 0);
    config->family = family;
    config->merge = config->temporal_patch = 2;
    config->position_side = 48;
    config->out_hidden = 2048;
    config->rope_theta = 10000;
}
/* Towers for pictures of any size, as they are published (Qwen3-VL 2B and 8B, without DeepStack) and small, with all that there is of
   them. */
static void test_towers(void **state) {
    static const shape published[] = {{"qwen3-2b", 1024, 4096, 24, 16, 16}, {"qwen3-8b", 1152, 4304, 27, 16, 16}};
    static const char *const small[] = {"qwen3_base",   "qwen3_head_dim_72", "qwen3_head_dim_128",
                                        "qwen3_5_base", "qwen2_5_base",      "qwen2_vl_base"};
    plan_model *m = (plan_model *)malloc(sizeof *m);
    uint32_t i;
    (void)state;
    for (i = 0; i < COUNT_OF(published); i++) {
        mgv__config config;
        tower_config(&config, MGV_FAMILY_QWEN3_VL, &published[i]);
        plan_model_make(m, &config, 0);
        tell_tower(published[i].name, &m->model, 0);
        plan_model_free(m);
    }
    for (i = 0; i < COUNT_OF(small); i++) {
        golden g;
        mgv_model *model;
        golden_open(&g, small[i]);
        model = golden_open_model(&g, "", 1);
        tell_tower(small[i], model, 1);
        mgv_model_close(model);
        golden_close(&g);
    }
    free(m);
}

/* What operations are called changes nothing. */
static void test_labels_are_only_names(void **state) {
    plan_model *m = (plan_model *)malloc(sizeof *m);
    uint64_t before[3][BATCHES], after[3][BATCHES], packed;
    mgv__config config;
    mgv__plan *plan;
    uint32_t i, pass;
    (void)state;
    config_of(&config, &shapes[0], 224, 2, 1);
    plan_model_make(m, &config, 1);
    packed = 0;
    for (pass = 0; pass < 2; pass++) {
        uint64_t(*hashes)[BATCHES] = pass ? after : before;
        for (i = 0; pass && i < m->model.program.op_count; i++) m->model.program.ops[i].label = i % 2 ? "x" : "qkv";
        schedules(&m->model, 0, hashes[0]);
        schedules(&m->model, 1, hashes[1]);
        for (i = 0; i < BATCHES; i++) hashes[2][i] = hash_figures(&m->model, batches[i], 0);
        plan = make_plan(&m->model, 3);
        if (pass) assert_int_equal(hash_packed(plan, &m->model), packed);
        else packed = hash_packed(plan, &m->model);
        mgv__plan_free(&m->model.allocator, plan);
    }
    assert_memory_equal(before, after, sizeof before);
    plan_model_free(m);
    free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_golden_models), cmocka_unit_test(test_towers),
                                       cmocka_unit_test(test_labels_are_only_names)};
    int failed;
    begin_lines();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!failed) end_lines();
    return failed;
}

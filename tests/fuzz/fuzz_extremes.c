/* Models whose numbers are extreme: config.json, preprocessor_config.json and weights that fit them, from the file through plan, pack and
   encode. What is not whole is refused with a sentence and in memory that is in proportion; what is whole gives rows that are numbers, all
   of them written, the same for every number of threads, or says that they are none. */
#include <math.h>
#include <stdarg.h>

#include <sanitizer/asan_interface.h>

#define MEGAVIT_IMPLEMENTATION
#define MEGAVIT_PLAN
#include "megavit.h"
#include "fuzz.h"

enum {
    MOST_TOKENS = 1024, MOST_SIDE = 200,  /* of few engines: their memory takes most of the time */
    SMALL_TOKENS = 128, SMALL_SIDE = 48,  /* of most */
    ARENA_BYTES = 32 << 20, SMALL_PACKED = 128 << 10, SMALL_BLOCK = 64 << 10, SLOT_BYTES = 4 << 20, SLOTS = 8,
    MOST_OUTPUTS = 4, MOST_LAYERS = 24, MOST_BYTES = 192 << 20
};
static const double most_flops = 3e6; /* of an encode that is run */

/* Most executions free less than this. The usual 256 MB make all memory new to the caches and to the kernel, which takes longer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "quarantine_size_mb=8"; }

/* Memory of engines and packed weights: megabytes that are allocated anew for each take longer than what is done with them. What is given
   of it ends where the sanitizer watches. */
static uint8_t arenas[2][ARENA_BYTES];
static void *end_of_arena(int arena, uint64_t bytes) { return arenas[arena] + (ARENA_BYTES - bytes); }

/* Blocks that malloc would ask the kernel for lie in slots, poisoned but for what is lent, and not lent again soon. */
static uint8_t slots[SLOTS][SLOT_BYTES];
static size_t slot_lent[SLOTS];
static void *slot_alloc(size_t bytes) {
    static uint32_t next;
    uint32_t i;
    if (!next) ASAN_POISON_MEMORY_REGION(slots, sizeof slots);
    for (i = 0; i < SLOTS && bytes >= SMALL_BLOCK && bytes <= SLOT_BYTES - 192; i++) {
        const uint32_t at = next++ % SLOTS;
        uint8_t *block = slots[at];
        if (slot_lent[at]) continue;
        slot_lent[at] = bytes;
        block += SLOT_BYTES - 128 - bytes;
        block -= (uintptr_t)block & 63;
        block += 49; /* as fuzz_alloc's lie */
        ASAN_UNPOISON_MEMORY_REGION(block, bytes);
        return block;
    }
    return NULL;
}
/* 0: it lies in no slot. */
static size_t slot_free(void *block) {
    const uintptr_t offset = (uintptr_t)block - (uintptr_t)slots;
    size_t bytes;
    if (offset >= sizeof slots) return 0;
    bytes = slot_lent[offset / SLOT_BYTES];
    REQUIRE(bytes > 0);
    slot_lent[offset / SLOT_BYTES] = 0;
    ASAN_POISON_MEMORY_REGION(block, bytes);
    return bytes;
}

static fuzz_allocator counts;
static void *extremes_alloc(void *user, size_t bytes) {
    void *block;
    if (bytes > MOST_BYTES - counts.live_bytes) return NULL;
    block = slot_alloc(bytes);
    if (block) {
        counts.live_bytes += bytes;
        if (counts.live_bytes > counts.peak_bytes) counts.peak_bytes = counts.live_bytes;
    } else {
        block = fuzz_alloc(user, bytes);
    }
    if (block) memset(block, 0xA5, bytes < 100000 ? bytes : 100000);
    return block;
}
static void extremes_free(void *user, void *memory, size_t bytes) {
    const size_t lent = slot_free(memory);
    if (lent) {
        REQUIRE(lent == bytes);
        counts.live_bytes -= bytes;
    } else {
        fuzz_free(user, memory, bytes);
    }
}

static void *file_alloc(size_t bytes) {
    void *block = slot_alloc(bytes);
    return block ? block : malloc(bytes);
}
static void file_free(void *block) {
    if (!slot_free(block)) free(block);
}
#define MEMORY_MODEL_ELEMENTS (1u << 18)
#define MEMORY_MODEL_ALLOC file_alloc
#define MEMORY_MODEL_FREE file_free
#include "tests/memory_model.h"

static void run_backwards(void *user, uint32_t count, mgv_task task, void *context) {
    (void)user;
    while (count-- > 0) task(context, count);
}

/* ---- the files ---- */

typedef struct text {
    char bytes[4096];
    size_t used;
} text;
static void append(text *t, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    t->used += (size_t)vsnprintf(t->bytes + t->used, sizeof t->bytes - t->used, format, arguments);
    va_end(arguments);
    REQUIRE(t->used < sizeof t->bytes);
}

/* Mostly of [least, most]. */
static uint32_t number(fuzz_input *in, uint32_t least, uint32_t most) {
    return fuzz_rarely(in, 8) ? fuzz_extreme(in) : fuzz_take(in, least, most);
}
/* What stands where a file should have a number, or three. */
static const char *value(fuzz_input *in) {
    static const char *const values[] = {"1e-6",  "1e-5", "0",    "-1",   "1",     "1e-30", "9.9e-31", "1e-45",  "1e308",
                                         "1e309", "-0",   "0.5",  "null", "\"x\"", "1e12",  "1e13",    "255",    "3.4e38",
                                         "true",  "[0.5,0.5,0.5]", "[1e-6,1e6,1]", "1e-12", "-1e6",   "[1]",    "1e6", "10000"};
    return values[fuzz_rarely(in, 4) ? fuzz_take(in, 0, sizeof values / sizeof values[0] - 1) : fuzz_take(in, 0, 1)];
}
static const char *truth(fuzz_input *in) { return fuzz_rarely(in, 8) ? "false" : "true"; }

/* Indexes of layers, mostly ascending. */
static void append_layers(fuzz_input *in, text *t, uint32_t count) {
    uint32_t i;
    for (i = 0; i < count; i++) append(t, "%s%u", i ? "," : "", fuzz_rarely(in, 16) ? fuzz_extreme(in) : i);
}

static int is_dino(mgv_family family) { return family >= MGV_FAMILY_DINOV2 && family <= MGV_FAMILY_DINOV3; }
static int is_qwen(mgv_family family) { return mgv__find_family(family)->video_processor != NULL; }

/* Towers of whole pictures. A family does not read the keys of another. The width of DINOv2's MLPs follows from hidden. */
static void choose_picture(fuzz_input *in, tower *t, uint32_t heads, text *config) {
    const uint32_t rest = t->patch ? fuzz_take(in, 0, 7) % t->patch : 0, ratio = number(in, 2, 4);
    const uint32_t image = fuzz_rarely(in, 16) ? fuzz_extreme(in) : t->patch * t->side + rest;
    if (t->patch) t->side = image / t->patch;
    if (is_dino(t->family)) t->gated = fuzz_take(in, 0, 1);
    if (is_dino(t->family) && t->family != MGV_FAMILY_DINOV2) t->registers = number(in, 0, 5);
    append(config, "{\"model_type\":\"%s\",\"hidden_size\":%u,\"intermediate_size\":%u,\"num_hidden_layers\":%u,"
                   "\"num_attention_heads\":%u,\"patch_size\":%u,\"image_size\":%u,", mgv__find_family(t->family)->vision[0], t->hidden,
           t->intermediate, t->layers, heads, t->patch, image);
    append(config, "\"mlp_ratio\":%u,\"use_swiglu_ffn\":%s,\"use_gated_mlp\":%s,\"num_register_tokens\":%u,\"num_patches\":%u,", ratio,
           t->gated ? "true" : "false", t->gated ? "true" : "false", t->registers, t->side * t->side);
    append(config, "\"rope_theta\":%s,\"layer_norm_eps\":%s,\"vision_use_head\":%s}", fuzz_rarely(in, 8) ? value(in) : "100", value(in),
           truth(in));
    if (t->family == MGV_FAMILY_DINOV2 || t->family == MGV_FAMILY_DINOV2_REGISTERS)
        t->intermediate = t->gated ? (t->hidden * ratio * 2 / 3 + 7) / 8 * 8 : t->hidden * ratio;
}

static void choose_qwen(fuzz_input *in, tower *t, uint32_t heads, text *config) {
    const uint32_t listed = fuzz_take(in, 0, 3);
    if (t->family == MGV_FAMILY_QWEN2_VL) {
        const uint32_t ratio = number(in, 1, 4);
        append(config, "{\"model_type\":\"qwen2_vl_vision\",\"embed_dim\":%u,\"hidden_size\":%u,\"depth\":%u,\"num_heads\":%u,"
                       "\"patch_size\":%u,\"spatial_merge_size\":%u,\"temporal_patch_size\":%u,\"mlp_ratio\":%u,\"rope_theta\":%s}",
               t->hidden, t->out, t->layers, heads, t->patch, t->merge, t->temporal, ratio, fuzz_rarely(in, 8) ? value(in) : "10000");
        t->intermediate = t->hidden * ratio;
        return;
    }
    append(config, "{\"model_type\":\"%s\",\"hidden_size\":%u,\"intermediate_size\":%u,\"depth\":%u,\"num_heads\":%u,\"patch_size\":%u,"
                   "\"spatial_merge_size\":%u,\"temporal_patch_size\":%u,\"out_hidden_size\":%u,\"rope_theta\":%s,",
           mgv__find_family(t->family)->vision[0], t->hidden, t->intermediate, t->layers, heads,
           t->patch, t->merge, t->temporal, t->out, fuzz_rarely(in, 8) ? value(in) : "10000");
    if (t->family != MGV_FAMILY_QWEN2_5_VL) {
        t->deepstack_count = listed;
        append(config, "\"num_position_embeddings\":%u,\"deepstack_visual_indexes\":[",
               fuzz_rarely(in, 16) ? fuzz_extreme(in) : t->side * t->side);
    } else {
        append(config, "\"window_size\":%u,\"fullatt_block_indexes\":[",
               fuzz_rarely(in, 8) ? fuzz_extreme(in) : t->patch * t->merge * fuzz_take(in, 1, 4) + t->patch / 2);
    }
    append_layers(in, config, listed);
    append(config, "]}");
}

static void choose_model(fuzz_input *in, tower *t, text *config) {
    uint32_t heads, columns;
    memset(t, 0, sizeof *t);
    t->family = (mgv_family)fuzz_take(in, MGV_FAMILY_SIGLIP, MGV_FAMILY_SIGLIP2);
    heads = number(in, 1, 4);
    columns = is_qwen(t->family) || t->family == MGV_FAMILY_DINOV3 ? 4 * number(in, 1, 5) : number(in, 1, 20);
    if (fuzz_rarely(in, 4)) columns = 32 * fuzz_take(in, 1, 3); /* that the GPU kernels may run */
    t->hidden = fuzz_rarely(in, 32) ? fuzz_extreme(in) : heads * columns;
    t->intermediate = number(in, 1, 20);
    if (fuzz_rarely(in, 4)) t->intermediate = 8 * fuzz_take(in, 1, 16);
    t->layers = number(in, 1, 3);
    t->patch = number(in, 1, 8);
    t->side = number(in, 1, 6);
    t->merge = number(in, 1, 3);
    t->temporal = number(in, 1, 3);
    t->out = number(in, 1, 20);
    t->prefix = fuzz_take(in, 0, 1) ? (is_qwen(t->family) ? "model.visual." : "vision_model.") : "";
    if (is_qwen(t->family)) choose_qwen(in, t, heads, config);
    else choose_picture(in, t, heads, config);
    if (t->layers > MOST_LAYERS) t->layers = MOST_LAYERS; /* the tensors of the rest are missing */
}

static void choose_preprocessor(fuzz_input *in, const tower *t, text *pre) {
    append(pre, "{\"do_resize\":%s,\"do_rescale\":%s,\"do_normalize\":%s,\"resample\":%u", truth(in), truth(in), truth(in),
           fuzz_rarely(in, 16) ? fuzz_extreme(in) : fuzz_take(in, 2, 3));
    if (fuzz_rarely(in, 4)) append(pre, ",\"image_mean\":%s,\"image_std\":%s,\"rescale_factor\":%s", value(in), value(in), value(in));
    if (t->family == MGV_FAMILY_SIGLIP2) append(pre, ",\"patch_size\":%u,\"max_num_patches\":%u", t->patch, number(in, 1, 64));
    /* of DINO the processor decides how large pictures become, and its own 224 pixels are many patches of one pixel */
    if (is_dino(t->family) || t->family == MGV_FAMILY_CLIP) {
        append(pre, ",\"size\":{\"height\":%u,\"width\":%u},\"do_center_crop\":", number(in, 1, 32), number(in, 1, 32));
        if (fuzz_take(in, 0, 1)) append(pre, "false");
        else append(pre, "true,\"crop_size\":%u", t->patch * t->side);
    }
    if (is_qwen(t->family)) {
        append(pre, ",\"patch_size\":%u,\"merge_size\":%u,\"temporal_patch_size\":%u", t->patch, t->merge, t->temporal);
        if (fuzz_rarely(in, 4)) append(pre, ",\"min_pixels\":%u,\"max_pixels\":%u", number(in, 1, 200), number(in, 200, 255));
    }
    append(pre, "}");
}

/* Every seventh weight, or all of them: what a checkpoint may hold that training never wrote. */
static void spoil(fuzz_input *in, memory_model *m) {
    static const uint32_t bits[] = {0, 0x80000000u, 0x00010000u, 0x7F7F0000u, 0xFF7F0000u, 0x7F800000u, 0x7FC00000u, 0x5F000000u};
    const uint32_t chosen = bits[fuzz_take(in, 0, 7)], step = fuzz_take(in, 0, 1) ? 7 : 1;
    float weight;
    uint64_t i;
    memcpy(&weight, &chosen, 4);
    for (i = 0; i < m->elements; i += step) memory_model_set(m, i, weight);
}

/* ---- what is made of them ---- */

static void check_refused(mgv_result result, const mgv_error *error) {
    REQUIRE(error->code == result && error->message[0]);
    REQUIRE(result == MGV_ERROR_UNSUPPORTED || result == MGV_ERROR_CAPACITY || result == MGV_ERROR_NOMEM || result == MGV_ERROR_ARGUMENT);
}

/* Everything that plans for the GPU. */
static void plan(const mgv_model *model, fuzz_input *in) {
    static mgv_schedule_op ops[1024];
    mgv_schedule_desc desc;
    mgv_schedule_info info;
    mgv_engine_desc engine;
    mgv_error error;
    uint64_t bytes;
    mgv_result result;
    memset(&desc, 0, sizeof desc);
    desc.image_count = number(in, 0, 9) % 300; /* more would only take time */
    desc.multiprocessors = number(in, 0, 140) % 300;
    result = mgv_model_get_schedule(model, &desc, &info, ops, 1024, &error);
    if (result != MGV_OK) check_refused(result, &error);
    else REQUIRE(info.us > 0 && isfinite(info.us));
    memset(&engine, 0, sizeof engine);
    engine.max_images = number(in, 1, 9);
    result = mgv_engine_device_workspace_bytes(model, &engine, &bytes, &error);
    if (result != MGV_OK) check_refused(result, &error);
    result = mgv_model_packed_bytes(model, "sm_90a", &bytes, &error);
    if (result != MGV_OK) {
        check_refused(result, &error);
    } else if (bytes <= (fuzz_hash(in->data, in->size) % 32 ? SMALL_PACKED : ARENA_BYTES)) { /* element by element: it takes most time */
        result = mgv_model_pack(model, "sm_90a", end_of_arena(0, bytes), bytes, &error);
        REQUIRE(result == MGV_OK || result == MGV_ERROR_NOMEM);
    }
}

typedef struct encoding {
    mgv_image image;
    mgv_output outputs[MOST_OUTPUTS];
    size_t floats[MOST_OUTPUTS];
    mgv_encode_desc desc;
} encoding;

/* Outputs of all kinds, full of a NaN that no arithmetic gives. */
static const uint32_t canary = 0x7FA5A5A5u;
static void make_outputs(encoding *e, const mgv_model_info *info, const mgv_engine *engine, fuzz_input *in) {
    uint32_t count = 0, q;
    size_t i;
    memset(e->outputs, 0, sizeof e->outputs);
    e->outputs[count++].kind = MGV_OUTPUT_TOKENS;
    e->outputs[count].kind = MGV_OUTPUT_LAYER;
    e->outputs[count++].index = fuzz_take(in, 0, 255) % (info->layers + 1);
    if (info->deepstack_count) {
        e->outputs[count].kind = MGV_OUTPUT_DEEPSTACK;
        e->outputs[count++].index = fuzz_take(in, 0, 255) % info->deepstack_count;
    }
    if (info->pooled_width) e->outputs[count++].kind = MGV_OUTPUT_POOLED;
    for (q = 0; q < count; q++) {
        mgv_shape shape;
        mgv_error error;
        REQUIRE(mgv_engine_shape(engine, &e->image, 1, &e->outputs[q], &shape, &error) == MGV_OK);
        e->floats[q] = (size_t)(shape.rows * shape.columns);
        e->outputs[q].capacity = e->floats[q];
        e->outputs[q].data = (float *)malloc(e->floats[q] * sizeof(float));
        for (i = 0; i < e->floats[q]; i++) memcpy(&e->outputs[q].data[i], &canary, 4);
    }
    memset(&e->desc, 0, sizeof e->desc);
    e->desc.images = &e->image;
    e->desc.image_count = 1;
    e->desc.outputs = e->outputs;
    e->desc.output_count = count;
}

/* An engine in memory of the caller's, or now and then of its own. */
static mgv_result create(mgv_engine **engine, const mgv_model *model, mgv_engine_desc *desc, int place, mgv_error *error) {
    uint64_t bytes;
    if (place < 2 && mgv_engine_workspace_bytes(model, desc, &bytes, error) == MGV_OK && bytes <= ARENA_BYTES) {
        desc->workspace = end_of_arena(place, bytes);
        desc->workspace_bytes = bytes;
    }
    return mgv_engine_create(engine, model, desc, error);
}

/* Encodes, and again on an engine with threads of another number. */
static void encode(const mgv_model *model, const mgv_engine_desc *desc, mgv_engine *engine, const mgv_model_info *info,
                   const mgv_image *image, fuzz_input *in) {
    mgv_engine_desc threaded = *desc;
    mgv_engine *other;
    mgv_error error;
    encoding first, second;
    mgv_result result;
    uint32_t q;
    size_t i;
    first.image = second.image = *image;
    make_outputs(&first, info, engine, in);
    result = mgv_encode_blocking(engine, &first.desc, &error);
    REQUIRE(result == MGV_OK || (result == MGV_ERROR_MODEL && strstr(error.message, "NaN or infinite")));
    for (q = 0; q < first.desc.output_count && result == MGV_OK; q++)
        for (i = 0; i < first.floats[q]; i++) REQUIRE(isfinite(first.outputs[q].data[i]));
    threaded.parallel.run = run_backwards;
    threaded.parallel.threads = fuzz_take(in, 2, 9);
    threaded.workspace = NULL;
    threaded.workspace_bytes = 0;
    if (create(&other, model, &threaded, fuzz_rarely(in, 16) ? 2 : 1, &error) == MGV_OK) {
        fuzz_input same = {&(const uint8_t){0}, 0, 0};
        make_outputs(&second, info, other, &same);
        for (q = 0; q < second.desc.output_count; q++) second.outputs[q].index = first.outputs[q].index;
        REQUIRE(mgv_encode_blocking(other, &second.desc, &error) == result);
        for (q = 0; q < second.desc.output_count; q++) {
            if (result == MGV_OK) REQUIRE(memcmp(first.outputs[q].data, second.outputs[q].data, first.floats[q] * sizeof(float)) == 0);
            free(second.outputs[q].data);
        }
        REQUIRE(mgv_engine_destroy(other) == MGV_OK);
    }
    for (q = 0; q < first.desc.output_count; q++) free(first.outputs[q].data);
}

/* FLOPs of the picture, if the program's operations can say it. */
static double count_flops(const mgv_model *model, const mgv_grid *grid) {
    double flops = 0;
    uint32_t i;
    for (i = 0; i < mgv_model_op_count(model); i++) {
        mgv_op_info op;
        REQUIRE(mgv_model_get_op(model, i, grid, &op) == MGV_OK);
        REQUIRE(op.flops >= 0 && isfinite(op.flops));
        flops += op.flops;
    }
    return flops;
}

static void run_model(const mgv_model *model, fuzz_input *in) {
    static const uint8_t bytes_per_pixel[] = {3, 3, 4, 4, 1, 2};
    const int large = fuzz_rarely(in, 16);
    const uint32_t most_side = large ? MOST_SIDE : SMALL_SIDE;
    mgv_model_info info;
    mgv_engine_desc desc;
    mgv_engine *engine;
    mgv_image image;
    mgv_grid grid;
    mgv_error error;
    uint8_t *pixels;
    mgv_result result;
    size_t i;
    REQUIRE(mgv_model_get_info(model, &info) == MGV_OK);
    memset(&desc, 0, sizeof desc);
    desc.backend = MGV_BACKEND_CPU;
    desc.max_tokens = large ? MOST_TOKENS : SMALL_TOKENS;
    desc.max_width = desc.max_height = most_side;
    desc.allocator.user = &counts;
    desc.allocator.alloc = extremes_alloc;
    desc.allocator.free = extremes_free;
    desc.resize = (mgv_resize)fuzz_take(in, 0, 1);
    if (!fuzz_rarely(in, 8)) {
        desc.min_pixels = 1;
        desc.max_pixels = 4096;
    }
    result = create(&engine, model, &desc, fuzz_rarely(in, 16) ? 2 : 0, &error);
    if (result != MGV_OK) {
        check_refused(result, &error);
        return;
    }
    memset(&image, 0, sizeof image);
    image.width = fuzz_take(in, 1, fuzz_take(in, 0, 1) ? most_side : 24);
    image.height = fuzz_take(in, 1, fuzz_take(in, 0, 1) ? most_side : 24);
    image.frames = info.image_size ? fuzz_take(in, 0, 1) : fuzz_take(in, 0, 4);
    image.format = (mgv_pixel_format)fuzz_take(in, 0, 5);
    image.bytes = (uint64_t)image.width * image.height * bytes_per_pixel[image.format] * (image.frames ? image.frames : 1);
    pixels = (uint8_t *)malloc((size_t)image.bytes);
    for (i = 0; i < image.bytes; i++) pixels[i] = (uint8_t)(i * 2654435761u >> 9);
    image.pixels = pixels;
    if (mgv_engine_grid(engine, &image, &grid, &error) == MGV_OK) {
        REQUIRE(grid.tokens > 0 && grid.tokens <= desc.max_tokens);
        if (count_flops(model, &grid) < most_flops && (uint64_t)grid.width * grid.height < 1000000)
            encode(model, &desc, engine, &info, &image, in);
    } else {
        REQUIRE(error.message[0]);
    }
    free(pixels);
    REQUIRE(mgv_engine_destroy(engine) == MGV_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static memory_model files;
    static text config, pre;
    fuzz_input in = {data, size, 0};
    mgv_allocator allocator;
    mgv_model *model;
    mgv_error error;
    mgv_result result;
    tower t;
    memset(&counts, 0, sizeof counts);
    config.used = pre.used = 0;
    choose_model(&in, &t, &config);
    choose_preprocessor(&in, &t, &pre);
    memory_model_make(&files, &t, config.bytes, fuzz_rarely(&in, 8) ? NULL : pre.bytes);
    if (fuzz_rarely(&in, 4)) spoil(&in, &files);
    allocator.user = &counts;
    allocator.alloc = extremes_alloc;
    allocator.free = extremes_free;
    memset(&error, 0x55, sizeof error);
    result = memory_model_open(&files, &allocator, &model, &error);
    REQUIRE((result == MGV_OK) == (model != NULL) && error.code == result && (result != MGV_OK) == (error.message[0] != 0));
    REQUIRE(result != MGV_ERROR_ARGUMENT);
    REQUIRE(counts.peak_bytes <= 4 * (size_t)(files.files[1].bytes + sizeof config.bytes) + (1 << 20));
    if (result == MGV_OK) {
        plan(model, &in);
        run_model(model, &in);
        mgv_model_close(model);
    }
    memory_model_free(&files);
    REQUIRE(counts.live_bytes == 0);
    return 0;
}

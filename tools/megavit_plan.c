/* megavit plan: the operations of a model and what they cost, and how the GPU kernel would run them; on any machine. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

/* Operations with the same layer number that follow each other: a layer, or what comes before or after the layers. */
typedef struct op_block {
    uint32_t first, count;
} op_block;

typedef struct op_list {
    mgv_op_info *ops;
    uint32_t op_count, batch;
    double flops;
} op_list;

static op_block block_at(const op_list *list, uint32_t first) {
    op_block block = {first, 1};
    while (first + block.count < list->op_count && list->ops[first + block.count].layer == list->ops[first].layer) block.count++;
    return block;
}

static int same_cost(const mgv_op_info *a, const mgv_op_info *b) {
    return strcmp(a->kind, b->kind) == 0 && strcmp(a->label, b->label) == 0 && a->rows == b->rows && a->columns == b->columns &&
           a->inner == b->inner && a->flops == b->flops && a->weight_bytes == b->weight_bytes && a->read_bytes == b->read_bytes &&
           a->write_bytes == b->write_bytes;
}

static int same_blocks(const op_list *list, op_block a, op_block b) {
    if (a.count != b.count) return 0;
    for (uint32_t i = 0; i < a.count; i++)
        if (!same_cost(&list->ops[a.first + i], &list->ops[b.first + i])) return 0;
    return 1;
}

static void print_op(const op_list *list, const mgv_op_info *op, const char *where, uint32_t times) {
    double flops = op->flops * list->batch * times, activations = ((double)op->read_bytes + (double)op->write_bytes) * list->batch * times;
    printf("%-12s %-15s %-10s %9u %7u %7u %10.3f %10.2f %12.2f", where, op->label, op->kind, op->rows, op->columns, op->inner, flops * 1e-9,
           (double)op->weight_bytes * times * 1e-6, activations * 1e-6);
    if (list->flops > 0) printf(" %5.1f%%", 100 * flops / list->flops);
    putchar('\n');
}

/* Layers that are alike are printed once, with how many there are. */
static void print_ops(const op_list *list) {
    printf("%-12s %-15s %-10s %9s %7s %7s %10s %10s %12s %6s\n", "layer", "operation", "kind", "rows", "columns", "inner", "GFLOP",
           "weights MB", "activ. MB", "share");
    for (uint32_t at = 0; at < list->op_count;) {
        op_block block = block_at(list, at);
        uint32_t times = 1;
        char where[32] = "-";
        for (at += block.count; at < list->op_count && same_blocks(list, block, block_at(list, at)); at += block.count) times++;
        if (list->ops[block.first].layer >= 0 && times == 1) snprintf(where, sizeof where, "%d", list->ops[block.first].layer);
        if (list->ops[block.first].layer >= 0 && times > 1)
            snprintf(where, sizeof where, "%d to %d", list->ops[block.first].layer, list->ops[at - 1].layer);
        for (uint32_t i = 0; i < block.count; i++) print_op(list, &list->ops[block.first + i], i == 0 ? where : "", times);
    }
}

static void print_totals(const op_list *list, const mgv_model_info *info, const mgv_grid *grid) {
    double weights = 0, activations = 0;
    for (uint32_t i = 0; i < list->op_count; i++) {
        weights += (double)list->ops[i].weight_bytes;
        activations += ((double)list->ops[i].read_bytes + (double)list->ops[i].write_bytes) * list->batch;
    }
    printf("\n%u operations, %.5g GFLOP, %.2f MB of weights, %.2f MB of activations read and written\n", list->op_count, list->flops * 1e-9,
           weights * 1e-6, activations * 1e-6);
    printf("%.5g GFLOP a picture; %.1f FLOP a byte of weights and activations\n", list->flops * 1e-9 / list->batch,
           list->flops / (weights + activations));
    printf("%s, %u tokens a picture, %u after merging\n", info->family_name, grid->tokens, grid->merged_tokens);
}

/* "448x448" */
static int read_size(const cli_command *command, const char *text, mgv_image *image) {
    const char *at = text;
    uint64_t w, h;
    if (!cli_read_number(&at, 1u << 20, &w) || *at++ != 'x' || !cli_read_number(&at, 1u << 20, &h) || *at)
        return cli_usage(command, "--size takes WIDTHxHEIGHT in pixels, not '%s'", text);
    image->width = (uint32_t)w;
    image->height = (uint32_t)h;
    return CLI_GO_ON;
}

/* Of pictures where nobody says it: those of the model, which it does not resize. */
static uint32_t usual_side(const mgv_model *model) {
    mgv_model_info info;
    mgv_model_get_info(model, &info);
    return info.image_size ? info.image_size : 448;
}

static int collect(op_list *list, const mgv_model *model, const mgv_grid *grid) {
    list->op_count = mgv_model_op_count(model);
    list->ops = malloc(list->op_count * sizeof *list->ops);
    if (!list->ops) return cli_fail(CLI_MACHINE, NULL, "out of memory for %u operations", list->op_count);
    for (uint32_t i = 0; i < list->op_count; i++) {
        mgv_result result = mgv_model_get_op(model, i, grid, &list->ops[i]);
        if (result != MGV_OK) return cli_fail(CLI_BAD_FILE, NULL, "operation %u: %s", i, mgv_result_text(result));
        list->flops += list->ops[i].flops * list->batch;
    }
    return CLI_DONE;
}

static int plan_model(const mgv_model *model, const char *directory, const mgv_image *image, const cli_session_options *options,
                      mgv_schedule_desc *schedule) {
    mgv_model_info info;
    mgv_grid grid;
    mgv_error error = {MGV_OK, ""};
    op_list list = {NULL, 0, options->batch, 0};
    mgv_result result = mgv_model_get_info(model, &info);
    int status;
    if (result == MGV_OK) result = mgv_model_grid(model, image, options->min_pixels, options->max_pixels, &grid, &error);
    if (result != MGV_OK) return cli_fail_library(directory, result, &error);
    status = cli_check_limits(model, options);
    if (status != CLI_DONE) return status;
    schedule->tokens = grid.tokens;
    if (options->backend != MGV_BACKEND_CPU)
        status = cli_check_schedule(model, directory, schedule, options->backend == MGV_BACKEND_CUDA);
    if (status == CLI_DONE) status = collect(&list, model, &grid);
    if (status == CLI_DONE) {
        printf("%u picture%s of %u x %u pixels, resized to %u x %u: %u x %u x %u patches\n\n", list.batch, list.batch == 1 ? "" : "s",
               image->width, image->height, grid.width, grid.height, grid.t, grid.h, grid.w);
        print_ops(&list);
        print_totals(&list, &info, &grid);
    }
    free(list.ops);
    if (status == CLI_DONE && options->backend != MGV_BACKEND_CPU)
        status = cli_print_schedule(model, directory, schedule, list.flops);
    return status;
}

/* A language model, or the one that a vision-language model has. */
static int plan_texts(const char *directory, const mgv_decode_desc *decode) {
    mgv_model_desc desc;
    mgv_model *model;
    mgv_error error;
    mgv_result result;
    int status;
    memset(&desc, 0, sizeof desc);
    desc.path = directory;
    desc.shapes_only = 1;
    desc.tower = MGV_TOWER_LANGUAGE;
    desc.logger = cli_logger();
    result = mgv_model_open(&model, &desc, &error);
    if (result != MGV_OK) return cli_fail_library(directory, result, &error);
    status = cli_print_decode_schedule(model, directory, decode);
    mgv_model_close(model);
    return status;
}

/* What says something of pictures, or of machines that decode no texts, says nothing of texts. */
static int check_texts(const cli_command *command, const cli_session_options *o, const mgv_schedule_desc *schedule, const char *size,
                       uint32_t frames, int other_machine) {
    const struct { const char *name; int given; } of_pictures[] = {
        {"--batch", o->batch != 0}, {"--size", size != NULL}, {"--frames", frames != 0}, {"--min-pixels", o->min_pixels != 0},
        {"--max-pixels", o->max_pixels != 0}, {"--schedule-images", schedule->schedule_images != 0}};
    for (size_t i = 0; i < sizeof of_pictures / sizeof of_pictures[0]; i++)
        if (of_pictures[i].given)
            return cli_usage(command, "%s is of pictures, and --sessions and --position are of texts: it is either or",
                             of_pictures[i].name);
    if (o->backend == MGV_BACKEND_CPU) return cli_usage(command, "--backend cpu: --sessions and --position are of texts on a GPU");
    if (other_machine) return cli_usage(command, "--sessions and --position: texts are decoded by Hopper's kernels, in bf16, alone");
    return CLI_GO_ON;
}

static int run(const cli_command *command, int argc, char **argv) {
    const char *size = NULL;
    char target[CLI_ARCHITECTURE_BYTES];
    int32_t architecture = 0;
    mgv_precision precision = MGV_PRECISION_AUTO;
    cli_session_options o;
    mgv_schedule_desc schedule;
    mgv_decode_desc decode;
    mgv_image image;
    memset(&decode, 0, sizeof decode);
    memset(&o, 0, sizeof o);
    memset(&schedule, 0, sizeof schedule);
    memset(&image, 0, sizeof image);
    const cli_option options[] = {
        {"--model", CLI_TEXT, &o.model, "DIR", "the model: a directory as Hugging Face stores it"},
        {"--batch", CLI_COUNT, &o.batch, "N", "pictures in one call (1)"},
        {"--size", CLI_TEXT, &size, "WxH", "their size in pixels (the model's, or 448x448); a model of fixed size resizes to its own"},
        {"--frames", CLI_COUNT, &image.frames, "N", "frames of each, for clips (1)"},
        {"--backend", CLI_CHOICE, &o.backend, "auto|cpu|cuda", "cpu: operations only; cuda: no GPU schedule is an error"},
        {"--arch", CLI_CHOICE, &architecture, "sm_90a|sm_100a|sm_103a|sm_110a",
         "of which GPU: Hopper (the default), or Blackwell (B200, B300, Thor), whose times are predicted and never measured"},
        CLI_PRECISION_OPTION(precision),
        {"--sms", CLI_COUNT, &schedule.multiprocessors, "N", "multiprocessors of the GPU (132, those of an H100 or H200; of Blackwell 148, Thor 20)"},
        {"--sessions", CLI_COUNT, &decode.sessions, "N", "texts of a language model instead: N sessions in one launch, up to 8"},
        {"--position", CLI_COUNT, &decode.position, "N", "the same: ids that each session holds (0)"},
        {"--schedule-images", CLI_COUNT, &schedule.schedule_images, "N", "the GPU calculates as it does with N pictures, as embed --batch N does"},
        CLI_LIMIT_OPTIONS(o),
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    mgv_model_desc desc;
    mgv_model *model;
    mgv_error error;
    mgv_result result;
    int status = cli_parse(command, options, NULL, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!o.model) return cli_usage(command, "--model is missing");
    decode.multiprocessors = schedule.multiprocessors;
    if (decode.sessions || decode.position) {
        status = check_texts(command, &o, &schedule, size, image.frames, architecture || precision & MGV_PRECISION_MXFP8);
        return status == CLI_GO_ON ? plan_texts(o.model, &decode) : status;
    }
    if (!o.batch) o.batch = 1;
    if (!image.frames) image.frames = 1;
    if (size) status = read_size(command, size, &image);
    if (status != CLI_GO_ON) return status;
    memset(&desc, 0, sizeof desc);
    desc.path = o.model;
    desc.shapes_only = 1;
    desc.logger = cli_logger();
    result = mgv_model_open(&model, &desc, &error);
    if (result != MGV_OK) return cli_fail_library(o.model, result, &error);
    if (!size) image.width = image.height = usual_side(model);
    schedule.image_count = o.batch;
    schedule.architecture = cli_architecture(architecture, precision, target);
    status = plan_model(model, o.model, &image, &o, &schedule);
    mgv_model_close(model);
    return status;
}

const cli_command cli_plan = {
    "plan", "--model DIR [options]", "the operations of a model, what they cost, and how the GPU would run them",
    "Prints every operation with its rows, columns, FLOPs (1 multiply-add = 2) and bytes, for pictures of one size. Layers that are\n"
    "alike are printed once, with the cost of all of them. Weights count as stored, activations as float32, each read and written\n"
    "once by every operation.\n\n"
    "Then the schedule of the GPU kernel, where it runs this model: tiles, waves and clusters of every operation over all layers, budgets\n"
    "of shared memory, registers and, of Blackwell, tensor memory, bytes from L2 and memory as the kernel moves them and as separate\n"
    "passes would (unfused), and the time that each should take by a simple model, which is printed below it. Needs no GPU.\n\n"
    "With --sessions or --position: how the GPU appends ids to sessions of a language model, what each step reads, and ids a second;\n"
    "options of pictures are refused there. Of the weights only their shapes are read.\n",
    run};

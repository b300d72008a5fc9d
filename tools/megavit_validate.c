/* megavit validate: the GPU's operations against their twins on the CPU, one after the other, on the same input. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

/* Odd, so that the last rows of tiles and the last CTA of a cluster have nothing; few and more, since few run in a regime of their own. */
static const uint32_t default_counts[] = {1, 5};

/* Sides of made picture i: the model's, or for pictures of any size some that differ, of whole merged tokens. */
static void choose_size(const mgv_model_info *info, uint32_t i, mgv_image *image) {
    const uint32_t unit = info->patch * info->merge;
    image->width = image->height = info->image_size;
    if (info->image_size) return;
    image->height = (10 + 6 * i % 16) / info->merge * unit;
    image->width = (20 + 10 * i % 17) / info->merge * unit;
}

/* Pictures that differ in every row, column and channel: a slope with noise on it. */
static int make_pictures(uint32_t count, const mgv_model_info *info, cli_picture *pictures) {
    uint32_t state = 1;
    for (uint32_t i = 0; i < count; i++) {
        mgv_image *image = &pictures[i].image;
        unsigned char *pixels;
        choose_size(info, i, image);
        pixels = malloc((size_t)image->width * image->height * 3);
        if (!pixels) return cli_fail(CLI_MACHINE, NULL, "out of memory for %u pictures", count);
        pictures[i].pixels = pixels;
        image->pixels = pixels;
        for (uint32_t k = 0; k < image->width * image->height * 3; k++) {
            const uint32_t x = k / 3 % image->width, y = k / 3 / image->width;
            state = state * 1664525u + 1013904223u;
            pixels[k] = (unsigned char)((x * (i + 1) + 2 * y + 50 * (k % 3) + (state >> 24)) / 4);
        }
    }
    return CLI_DONE;
}

static void print_row(void *user, const mgv_validation *row) {
    char layer[16] = "-";
    uint32_t *printed = user;
    if ((*printed)++ == 0)
        printf("%-5s %-14s %9s %7s %12s %10s %12s\n", "layer", "operation", "rows", "columns", "relative L2", "tolerance", "max error");
    if (row->layer >= 0) snprintf(layer, sizeof layer, "%d", row->layer);
    printf("%-5s %-14s ", layer, row->label);
    if (!row->compared) {
        puts("      (the CPU forms no such values)");
        return;
    }
    printf("%9llu %7u %12.3e %10.1e %12.3e   %s", (unsigned long long)row->rows, row->columns, row->relative_l2, row->tolerance,
           row->max_error, row->ok ? "ok" : "WRONG");
    if (row->different) printf(", %llu values differ", (unsigned long long)row->different);
    if (row->mean_ratio > 0) printf(", means up to %.2f deviations", row->mean_ratio);
    if (row->bad)
        printf(": %llu bad values, first at row %llu, column %u", (unsigned long long)row->bad, (unsigned long long)row->bad_row,
               row->bad_column);
    putchar('\n');
    fflush(stdout);
}

static int validate(const mgv_model *model, const cli_session_options *options, const cli_picture *pictures, uint32_t count) {
    mgv_image *images = calloc(count, sizeof *images);
    mgv_threads *threads = NULL;
    mgv_engine_desc desc;
    mgv_error error;
    uint32_t failures = 0, printed = 0;
    mgv_result result = MGV_OK;
    memset(&desc, 0, sizeof desc);
    if (!images) return cli_fail(CLI_MACHINE, NULL, "out of memory for %u pictures", count);
    for (uint32_t i = 0; i < count; i++) images[i] = pictures[i].image;
    desc.resize = options->resize;
    desc.precision = options->precision;
    desc.logger = cli_logger();
    if (options->threads > 1) result = mgv_threads_create(&threads, options->threads, NULL, &error);
    if (threads) desc.parallel = mgv_threads_parallel_for(threads);
    if (result == MGV_OK) result = mgv_validate(model, &desc, images, count, print_row, &printed, &failures, &error);
    mgv_threads_destroy(threads);
    free(images);
    if (result != MGV_OK) return cli_fail_library(NULL, result, &error);
    if (failures) return cli_fail(CLI_MACHINE, NULL, "%u operation%s out of tolerance", failures, failures == 1 ? " is" : "s are");
    printf("%u picture%s: all within tolerance\n\n", count, count == 1 ? "" : "s");
    return CLI_DONE;
}

/* The pictures to validate with: those named, or made ones. */
static int gather(const mgv_model *model, cli_list *names, cli_picture **pictures, uint32_t *count) {
    mgv_model_info info;
    cli_list found = {0};
    int status = CLI_DONE;
    mgv_model_get_info(model, &info);
    if (cli_check_work(NULL, &info)) return CLI_BAD_FILE;
    if (names->count) {
        status = cli_expand(names, NULL, &found);
        if (status == CLI_DONE && found.count == 0) status = cli_fail(CLI_BAD_FILE, NULL, "there are no pictures");
        *count = (uint32_t)found.count;
    }
    if (status == CLI_DONE && !(*pictures = calloc(*count, sizeof **pictures)))
        status = cli_fail(CLI_MACHINE, NULL, "out of memory for %u pictures", *count);
    if (status == CLI_DONE && !names->count) status = make_pictures(*count, &info, *pictures);
    for (uint32_t i = 0; status == CLI_DONE && i < found.count; i++)
        if (cli_picture_load(&(*pictures)[i], found.items[i])) status = CLI_BAD_FILE;
    cli_list_free(&found);
    return status;
}

static int gather_and_validate(const mgv_model *model, const cli_session_options *options, cli_list *names, uint32_t count) {
    cli_picture *pictures = NULL;
    int status = gather(model, names, &pictures, &count);
    if (status == CLI_DONE) status = validate(model, options, pictures, count);
    for (uint32_t i = 0; pictures && i < count; i++) cli_picture_free(&pictures[i]);
    free(pictures);
    return status;
}

static int open_and_validate(const cli_session_options *options, cli_list *names) {
    mgv_model_desc desc;
    mgv_model *model;
    mgv_error error;
    mgv_result result;
    int status = CLI_DONE;
    memset(&desc, 0, sizeof desc);
    desc.path = options->model;
    desc.logger = cli_logger();
    result = mgv_model_open(&model, &desc, &error);
    if (result != MGV_OK) return cli_fail_library(options->model, result, &error);
    if (names->count || options->batch) status = gather_and_validate(model, options, names, options->batch);
    else
        for (size_t i = 0; i < sizeof default_counts / sizeof default_counts[0] && status == CLI_DONE; i++)
            status = gather_and_validate(model, options, names, default_counts[i]);
    mgv_model_close(model);
    return status;
}

static int run(const cli_command *command, int argc, char **argv) {
    cli_session_options o;
    cli_list names = {0};
    int status;
    memset(&o, 0, sizeof o);
    {
        const cli_option options[] = {
            {"--model", CLI_TEXT, &o.model, "DIR", "the model: a directory as Hugging Face stores it"},
            {"--images", CLI_NAMES, &names, "PATH...", "pictures, or directories of them (made ones)"},
            {"--batch", CLI_COUNT, &o.batch, "N", "how many are made where none are named (1, then 5)"},
            {"--resize", CLI_CHOICE, &o.resize, "pillow|torchvision", "which library's resize to reproduce bit for bit (pillow)"},
            CLI_PRECISION_OPTION(o.precision),
            {"--threads", CLI_THREADS, &o.threads, "N", "threads of the CPU (1)"},
            {NULL, CLI_FLAG, NULL, NULL, NULL}};
        status = cli_parse(command, options, NULL, argc, argv);
    }
    if (status == CLI_GO_ON && !o.model) status = cli_usage(command, "--model is missing");
    if (status == CLI_GO_ON) status = open_and_validate(&o, &names);
    cli_list_free(&names);
    return status;
}

const cli_command cli_validate = {
    "validate", "--model DIR [--images PATH...] [--batch N]", "the GPU's operations against the CPU's, one by one",
    "Each operation of the GPU kernel is run on buffers full of NaN and compared with the same on the CPU, given the same input:\n"
    "relative L2, what bf16's rounding allows (the tolerance), the largest difference, and where the first bad value is. Norms are part\n"
    "of the products behind them. With --precision the CPU rounds to MXFP8 and bf16 where the kernel does: values differ only where the\n"
    "order of sums moves one to its neighbour, and what is further off is bad; rows that are MXFP8 before a norm lose accuracy where\n"
    "their means come near their standard deviations, which is said. Exit code 0 only if all are within tolerance; 3 if one is\n"
    "not, or without a GPU that the kernel runs on.\n",
    run};

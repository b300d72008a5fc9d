/* megavit preprocess: the pixel values that a model sees, as transformers' image processors give them. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

/* transformers' shapes: [1, 3, height, width], or rows of patches. */
static int write_pixels(int rows_of_patches, const char *path, const mgv_grid *grid, const mgv_shape *shape, const float *values) {
    cli_file *file = cli_file_create(path);
    uint64_t image[4] = {1, 3, grid->height, grid->width}, patches[2] = {shape->rows, shape->columns};
    FILE *stream;
    if (!file) return CLI_BAD_FILE;
    stream = cli_file_stream(file);
    if (rows_of_patches) cli_npy_header(stream, "<f4", patches, 2);
    else cli_npy_header(stream, "<f4", image, 4);
    cli_write_floats(stream, values, shape->rows * shape->columns);
    return cli_file_commit(file);
}

static int preprocess_picture(cli_session *session, const cli_picture *picture, const char *path) {
    mgv_engine *engine = cli_session_engine(session);
    mgv_preprocessing_info rules;
    mgv_grid grid;
    mgv_shape shape;
    mgv_error error;
    uint64_t count;
    float *values;
    int status;
    mgv_result result = mgv_engine_grid(engine, &picture->image, &grid, &error);
    if (result == MGV_OK) result = mgv_preprocess(engine, &picture->image, NULL, 0, &shape, &error);
    if (result != MGV_OK) return cli_fail_library(picture->name, result, &error);
    mgv_model_get_preprocessing(cli_session_model(session), &rules);
    count = shape.rows * shape.columns;
    values = count <= SIZE_MAX / sizeof *values ? malloc((size_t)count * sizeof *values) : NULL;
    if (!values) return cli_fail(CLI_MACHINE, NULL, "out of memory for %llu floats", (unsigned long long)count);
    result = mgv_preprocess(engine, &picture->image, values, count, &shape, &error);
    if (result == MGV_OK) status = write_pixels(rules.rows_of_patches, path, &grid, &shape, values);
    else status = cli_fail_library(picture->name, result, &error);
    free(values);
    if (!status && rules.rows_of_patches) fprintf(strcmp(path, "-") == 0 ? stderr : stdout, "grid_thw %u %u %u\n", grid.t, grid.h, grid.w);
    return status;
}

static int preprocess(const cli_command *command, int argc, char **argv, cli_list *names) {
    cli_session_options o;
    const char *output = NULL;
    cli_session *session;
    int status;
    memset(&o, 0, sizeof o);
    const cli_option options[] = {
        CLI_SESSION_OPTIONS(o),
        CLI_LIMIT_OPTIONS(o),
        {"-o", CLI_TEXT, &output, "FILE.npy", "where to; it appears when it is whole"},
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    status = cli_parse(command, options, names, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!o.model) return cli_usage(command, "--model DIR is missing");
    if (!output) return cli_usage(command, "-o FILE.npy is missing");
    if (names->count != 1) return cli_usage(command, "one IMAGE, not %zu", names->count);
    status = cli_check_output(output, o.model, o.packed, names);
    if (status != CLI_DONE) return status;
    if (o.backend == MGV_BACKEND_AUTO) o.backend = MGV_BACKEND_CPU; /* pixel values are made on the CPU: do not wake a GPU */
    session = cli_session_open(&o, &status);
    if (session) {
        cli_picture picture;
        status = cli_picture_load(&picture, names->items[0]);
        picture.image.alpha = o.alpha;
        if (!status) status = cli_session_fit(session, &picture);
        if (!status) status = preprocess_picture(session, &picture, output);
        cli_picture_free(&picture);
    }
    cli_session_close(session);
    return status;
}

static int run(const cli_command *command, int argc, char **argv) {
    cli_list names = {0};
    int status = preprocess(command, argc, argv, &names);
    cli_list_free(&names);
    return status;
}

const cli_command cli_preprocess = {
    "preprocess", "--model DIR [--resize pillow|torchvision] -o FILE.npy IMAGE", "the pixel values that the model sees, as a NumPy array",
    "[1, 3, height, width] float32, or for Qwen and NaFlex [patches, values of a patch], and a line 'grid_thw T H W' on\n"
    "standard output, or on standard error with -o -.\n",
    run};

/* megavit pack: a model's weights as the GPU kernel wants them, in one file; on any machine. */
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

static int write_packed(const char *path, const void *packed, uint64_t bytes) {
    cli_file *file = cli_file_create(path);
    if (!file) return CLI_BAD_FILE;
    fwrite(packed, 1, (size_t)bytes, cli_file_stream(file)); /* a failure shows when it is committed */
    return cli_file_commit(file);
}

static int pack(const char *directory, const char *architecture, const char *path) {
    mgv_model *model = NULL;
    mgv_model_desc desc;
    mgv_error error;
    uint64_t bytes = 0;
    void *packed = NULL;
    mgv_result result;
    int status = CLI_DONE;
    memset(&desc, 0, sizeof desc);
    desc.path = directory;
    desc.logger = cli_logger();
    result = mgv_model_open(&model, &desc, &error);
    if (result == MGV_OK) result = mgv_model_packed_bytes(model, architecture, &bytes, &error);
    if (result == MGV_OK) packed = malloc((size_t)bytes);
    if (result == MGV_OK && !packed) status = cli_fail(CLI_MACHINE, NULL, "out of memory for the packed weights");
    if (packed) result = mgv_model_pack(model, architecture, packed, bytes, &error);
    if (result != MGV_OK) status = cli_fail_library(directory, result, &error);
    else if (packed) status = write_packed(path, packed, bytes);
    free(packed);
    mgv_model_close(model);
    return status == CLI_USAGE ? CLI_BAD_FILE : status;
}

static int run(const cli_command *command, int argc, char **argv) {
    const char *model = NULL, *path = NULL;
    char target[CLI_ARCHITECTURE_BYTES];
    int32_t architecture = 0;
    mgv_precision precision = MGV_PRECISION_AUTO;
    const cli_option options[] = {
        {"--model", CLI_TEXT, &model, "DIR", "the model: a directory as Hugging Face stores it"},
        {"--arch", CLI_CHOICE, &architecture, "sm_90a|sm_100a|sm_103a|sm_110a", "the GPU: Hopper (the default), or Blackwell: B200, B300, Thor"},
        CLI_PRECISION_OPTION(precision),
        {"-o", CLI_TEXT, &path, "FILE", "where to write"},
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    int status = cli_parse(command, options, NULL, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!model) return cli_usage(command, "--model is missing");
    if (!path) return cli_usage(command, "-o is missing");
    status = cli_check_output(path, model, NULL, NULL);
    return status == CLI_DONE ? pack(model, cli_architecture(architecture, precision, target), path) : status;
}

const cli_command cli_pack = {
    "pack", "--model DIR -o FILE [options]", "a model's weights as the GPU kernel wants them",
    "An engine that is given the file (--packed, or mgv_engine_desc.packed_path) copies it to the GPU and packs nothing itself.\n"
    "The file fits one model and one release of megavit; whatever does not fit is refused.\n",
    run};

/* megavit embed: pictures in, a NumPy array or JSON lines out. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/cli.h"

enum { FORMAT_NPY = 0, FORMAT_JSONL };

typedef struct embed_options {
    cli_session_options session;
    cli_names names;
    const char *what;
    int normalize;
    int32_t format;
    const char *output;
} embed_options;

/* The files that are written; of the last two either may be missing. */
enum { FILE_ROWS, FILE_OFFSETS, FILE_NAMES, FILES };
enum { MAX_FILE_NAME = 255 }; /* bytes, as every common file system has it */
static const char *const endings[FILES] = {"", ".offsets.npy", ".names"};

typedef struct embed_writer {
    cli_file *files[FILES];
    FILE *stream;       /* of rows */
    int32_t format;
    int rows_vary;      /* token counts depend on the picture */
    int one_row;        /* pooled, embeds */
    uint64_t pictures, rows, columns;
    uint64_t *offsets;  /* first row of each picture, and one more; only if rows_vary */
    size_t offset_room;
} embed_writer;

/* ---- what to compute ---- */

static const struct {
    const char *name;
    mgv_output_kind kind;
    int indexed;
} outputs[] = {
    {"pooled", MGV_OUTPUT_POOLED, 0},
    {"embeds", MGV_OUTPUT_EMBEDS, 0},
    {"tokens", MGV_OUTPUT_TOKENS, 0},
    {"layer:", MGV_OUTPUT_LAYER, 1},
    {"deepstack:", MGV_OUTPUT_DEEPSTACK, 1},
};

static int read_what(const char *text, mgv_output *output) {
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        size_t length = strlen(outputs[i].name);
        uint32_t index = 0;
        if (strncmp(text, outputs[i].name, length) != 0 || (text[length] != 0) != outputs[i].indexed) continue;
        for (text += length; *text; text++) {
            if (*text < '0' || *text > '9' || index > 10000) return 0;
            index = index * 10 + (uint32_t)(*text - '0');
        }
        output->kind = outputs[i].kind;
        output->index = index;
        return 1;
    }
    return 0;
}

/* Before any picture is decoded: does the model have what is asked for? */
static int check_what(const cli_command *command, const mgv_model_info *info, const mgv_output *output) {
    if (output->kind == MGV_OUTPUT_POOLED && info->pooled_width == 0)
        return cli_usage(command, "this model has no pooling head: ask for --what tokens or layer:N");
    if (output->kind == MGV_OUTPUT_EMBEDS && info->embed_width == 0)
        return cli_usage(command, "this model has no projection: ask for --what %s", info->pooled_width ? "pooled" : "tokens");
    if (output->kind == MGV_OUTPUT_LAYER && output->index > info->layers)
        return cli_usage(command, "--what layer:%u: this model has layer:0 to layer:%u", output->index, info->layers);
    if (output->kind == MGV_OUTPUT_DEEPSTACK && info->deepstack_count == 0)
        return cli_usage(command, "--what deepstack:%u: this model has no DeepStack outputs", output->index);
    if (output->kind == MGV_OUTPUT_DEEPSTACK && output->index >= info->deepstack_count)
        return cli_usage(command, "--what deepstack:%u: this model has deepstack:0 to deepstack:%u", output->index,
                         info->deepstack_count - 1);
    return CLI_GO_ON;
}

static int is_one_row(const mgv_output *output) { return output->kind == MGV_OUTPUT_POOLED || output->kind == MGV_OUTPUT_EMBEDS; }
static int rows_vary(const mgv_model_info *info, const mgv_output *output) {
    return !is_one_row(output) && info->tokens_per_image == 0;
}

/* ---- writing ---- */

static int note_offset(embed_writer *writer) {
    if (writer->pictures + 2 > writer->offset_room) {
        size_t room = writer->offset_room ? writer->offset_room * 2 : 64;
        uint64_t *offsets = realloc(writer->offsets, room * sizeof *offsets);
        if (!offsets) return cli_fail(CLI_MACHINE, NULL, "out of memory for %zu offsets", room);
        writer->offsets = offsets;
        writer->offset_room = room;
    }
    writer->offsets[writer->pictures] = writer->rows;
    return 0;
}

static void write_json_line(embed_writer *writer, const char *name, const mgv_shape *shape, const float *rows) {
    fputs("{\"file\": ", writer->stream);
    cli_json_string(writer->stream, name);
    fputs(", \"embedding\": ", writer->stream);
    if (writer->one_row) {
        cli_json_floats(writer->stream, rows, shape->columns);
    } else {
        fputc('[', writer->stream);
        for (uint64_t row = 0; row < shape->rows; row++) {
            if (row) fputs(", ", writer->stream);
            cli_json_floats(writer->stream, rows + row * shape->columns, shape->columns);
        }
        fputc(']', writer->stream);
    }
    fputs("}\n", writer->stream);
}

static int write_picture(void *user, const char *name, const mgv_shape *shape, const float *rows) {
    embed_writer *writer = user;
    if (writer->rows_vary && note_offset(writer)) return CLI_MACHINE;
    if (writer->format == FORMAT_JSONL) write_json_line(writer, name, shape, rows);
    else cli_write_floats(writer->stream, rows, shape->rows * shape->columns);
    if (writer->files[FILE_NAMES]) {
        cli_json_string(cli_file_stream(writer->files[FILE_NAMES]), name);
        fputc('\n', cli_file_stream(writer->files[FILE_NAMES]));
    }
    writer->columns = shape->columns;
    writer->rows += shape->rows;
    writer->pictures++;
    return ferror(writer->stream) ? cli_file_fail(writer->files[FILE_ROWS]) : 0;
}

/* pooled [n, D]; tokens [n, tokens, D]; tokens of a model whose pictures differ in size [all tokens, D]. */
static void write_npy_header(embed_writer *writer) {
    uint64_t shape[3];
    uint32_t rank = 0;
    if (writer->rows_vary) {
        shape[rank++] = writer->rows;
    } else {
        shape[rank++] = writer->pictures;
        if (!writer->one_row) shape[rank++] = writer->pictures ? writer->rows / writer->pictures : 0;
    }
    shape[rank++] = writer->columns;
    fseek(writer->stream, 0, SEEK_SET); /* rewind would forget that a write has failed */
    cli_npy_header(writer->stream, "<f4", shape, rank);
}

/* FILE.offsets.npy, FILE.names, or as much of FILE as leaves room for the rest; NULL after saying that there is no memory. */
static char *name_beside(const char *path, int file) {
    const char *slash = strrchr(path, '/');
    const size_t start = slash ? (size_t)(slash + 1 - path) : 0, ending = strlen(endings[file]);
    size_t length = strlen(path);
    char *name = malloc(length + ending + 1);
    if (length - start <= MAX_FILE_NAME && length - start + ending > MAX_FILE_NAME) length = start + MAX_FILE_NAME - ending;
    if (name) snprintf(name, length + ending + 1, "%.*s%s", (int)length, path, endings[file]);
    else cli_fail(CLI_MACHINE, NULL, "out of memory");
    return name;
}

static cli_file *create_beside(const char *path, int file) {
    char *name = name_beside(path, file);
    cli_file *created = name ? cli_file_create(name) : NULL;
    free(name);
    return created;
}

/* Rows [offsets[i], offsets[i + 1]) belong to picture i. */
static void write_offsets(embed_writer *writer, FILE *stream) {
    uint64_t count = writer->pictures + 1;
    cli_npy_header(stream, "<i8", &count, 1);
    writer->offsets[writer->pictures] = writer->rows;
    cli_write_uint64s(stream, writer->offsets, count);
}

/* ---- the command ---- */

static void abandon(embed_writer *writer) {
    for (int i = 0; i < FILES; i++) cli_file_abandon(writer->files[i]);
}

static int encode_to_files(cli_session *session, cli_list *pictures, const mgv_output *output, embed_writer *writer) {
    int worst, status;
    if (writer->format == FORMAT_NPY) write_npy_header(writer); /* its place; the numbers come at the end */
    worst = cli_session_encode(session, pictures, output, write_picture, writer);
    if (writer->pictures == 0 || ferror(writer->stream)) {
        abandon(writer);
        return worst;
    }
    if (writer->format == FORMAT_NPY) write_npy_header(writer);
    if (writer->files[FILE_OFFSETS]) write_offsets(writer, cli_file_stream(writer->files[FILE_OFFSETS]));
    status = cli_file_commit_all(writer->files, FILES);
    return status > worst ? status : worst;
}

/* What lies beside an array in a file of its own: names always, offsets where pictures have different numbers of rows. */
static int create_files(const embed_options *options, embed_writer *writer) {
    writer->files[FILE_ROWS] = cli_file_create(options->output);
    if (!writer->files[FILE_ROWS]) return 0;
    if (writer->format != FORMAT_NPY || !cli_file_is_regular(writer->files[FILE_ROWS])) return 1;
    if (writer->rows_vary && !(writer->files[FILE_OFFSETS] = create_beside(options->output, FILE_OFFSETS))) return 0;
    writer->files[FILE_NAMES] = create_beside(options->output, FILE_NAMES);
    return writer->files[FILE_NAMES] != NULL;
}

static int encode_to_file(cli_session *session, const embed_options *options, cli_list *pictures, const mgv_output *output) {
    embed_writer writer;
    int status;
    memset(&writer, 0, sizeof writer);
    writer.format = options->format;
    writer.one_row = is_one_row(output);
    writer.rows_vary = rows_vary(cli_session_info(session), output);
    if (!create_files(options, &writer)) {
        abandon(&writer);
        return CLI_BAD_FILE;
    }
    writer.stream = cli_file_stream(writer.files[FILE_ROWS]);
    status = encode_to_files(session, pictures, output, &writer);
    free(writer.offsets);
    return status;
}

/* Neither the output nor what lies beside it may be an input: CLI_GO_ON, or the exit code after saying so. */
static int check_outputs(const embed_options *options, int with_offsets, const cli_list *pictures) {
    int status = CLI_DONE;
    for (int i = 0; i < FILES && status == CLI_DONE; i++) {
        char *name;
        if (i != FILE_ROWS && (options->format != FORMAT_NPY || (i == FILE_OFFSETS && !with_offsets))) continue;
        name = name_beside(options->output, i);
        status = name ? cli_check_output(name, options->session.model, options->session.packed, pictures) : CLI_MACHINE;
        free(name);
    }
    return status == CLI_DONE ? CLI_GO_ON : status;
}

static int run_session(const cli_command *command, const embed_options *options, cli_list *pictures, mgv_output *output) {
    int status, with_offsets;
    cli_session_options session_options = options->session;
    cli_session *session;
    session_options.row_outputs = options->what && !is_one_row(output);
    session_options.output_kinds = 1u << (options->what ? output->kind : MGV_OUTPUT_POOLED);
    session = cli_session_open(&session_options, &status);
    const mgv_model_info *info;
    if (!session) return status;
    info = cli_session_info(session);
    if (!options->what) output->kind = info->pooled_width ? MGV_OUTPUT_POOLED : MGV_OUTPUT_TOKENS;
    status = check_what(command, info, output);
    with_offsets = options->format == FORMAT_NPY && rows_vary(info, output);
    if (status == CLI_GO_ON && !options->output && with_offsets && pictures->count > 1)
        status = cli_usage(command, "the tokens of several pictures need -o FILE for FILE.offsets.npy, or --format jsonl");
    if (status == CLI_GO_ON && options->output) status = check_outputs(options, with_offsets, pictures);
    if (status == CLI_GO_ON) status = encode_to_file(session, options, pictures, output);
    cli_session_close(session);
    return status;
}

static int embed(const cli_command *command, int argc, char **argv, cli_list *names, cli_list *pictures) {
    embed_options o;
    mgv_output output;
    int status, worst;
    memset(&o, 0, sizeof o);
    memset(&output, 0, sizeof output);
    const cli_option options[] = {
        CLI_SESSION_OPTIONS(o.session),
        CLI_PRECISION_OPTION(o.session.precision),
        CLI_BATCH_OPTION(o.session),
        CLI_DEVICES_OPTION(o.session),
        CLI_SCALED_OPTION(o.session),
        CLI_TIMING_OPTION(o.session),
        CLI_MEMORY_OPTION(o.session),
        CLI_LIMIT_OPTIONS(o.session),
        CLI_NAMES_OPTIONS(o.names),
        {"--what", CLI_TEXT, &o.what, "WHAT", "pooled, embeds, tokens, layer:N or deepstack:J (pooled, or tokens without a pooling head)"},
        {"--normalize", CLI_FLAG, &o.normalize, NULL, "divide every row by its length"},
        {"--format", CLI_CHOICE, &o.format, "npy|jsonl", "a NumPy array of float32, or one JSON object a line (npy)"},
        {"-o", CLI_TEXT, &o.output, "FILE", "where to (- or nothing: standard output); it appears when it is whole"},
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    status = cli_parse(command, options, names, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!o.session.model) return cli_usage(command, "--model DIR is missing");
    if (names->count == 0 && !o.names.files_from && !o.names.files0_from) return cli_usage(command, "there is no IMAGE");
    if (o.output && strcmp(o.output, "-") == 0) o.output = NULL;
    if (o.what && !read_what(o.what, &output))
        return cli_usage(command, "--what takes pooled, embeds, tokens, layer:N or deepstack:J, not '%s'", o.what);
    if (!o.output && o.format == FORMAT_NPY && isatty(STDOUT_FILENO))
        return cli_usage(command, "npy is not for a terminal: give -o FILE or --format jsonl");
    output.normalize = (uint32_t)o.normalize;
    worst = cli_expand(names, &o.names, pictures);
    if (worst < CLI_MACHINE && pictures->count > 0) {
        status = run_session(command, &o, pictures, &output);
        if (status > worst) worst = status;
    }
    return worst;
}

static int run(const cli_command *command, int argc, char **argv) {
    cli_list names = {0}, pictures = {0};
    int status = embed(command, argc, argv, &names, &pictures);
    cli_list_free(&names);
    cli_list_free(&pictures);
    return status;
}

const cli_command cli_embed = {
    "embed", "--model DIR [options] IMAGE...", "embeddings of pictures, as a NumPy array or JSON lines",
    "IMAGE is a picture, a folder (the pictures in it and in its folders, sorted by path; what is a picture its content says,\n"
    "and what is left out is counted on standard error) or - (names on standard input, a line each).\n"
    "Rows come in the order of the pictures. A picture that cannot be read is reported in one line on standard error and\n"
    "left out; the exit code is then 2. Threads read, decode and resize ahead of the model: --memory bounds files and pixels that are\n"
    "decoded, and 2 * (batch + threads) pictures of the model's size wait at most. If the machine fails half-way, the rows that are\n"
    "done are written, the other pictures named, and the exit code is 3.\n\n"
    "npy:   pooled and embeds [pictures, width]; tokens and layer:N [pictures, tokens, width]. Where token counts depend on the picture,\n"
    "       [all tokens, width], and FILE.offsets.npy says where each picture's rows begin and the last one's end; FILE is -o's,\n"
    "       unless that is a device or a pipe. FILE.names has the names of the pictures, a JSON string a line, in the order of the rows.\n"
    "       Where these would be longer than 255 bytes, FILE loses its last ones.\n"
    "jsonl: {\"file\": NAME, \"embedding\": [...]}; floats read back to the same bits.\n",
    run};

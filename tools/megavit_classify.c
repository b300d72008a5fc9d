/* megavit classify: which of the labels fit a picture.

   Labels are texts, which the model's text tower reads, or text embeddings that somebody computed before: a safetensors file with a tensor `embeddings` [labels, width] and, in its metadata, `names` (a JSON list
   of strings) and optionally `scale` and `bias`. The probability of a label is sigmoid(scale * cosine + bias), each label by itself, as
   in "Sigmoid Loss for Language Image Pre-Training" (arXiv 2303.15343); of a CLIP the softmax over the
   labels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tools/cli.h"

#define MAX_LABEL_BYTES (256u * 1024u * 1024u)

typedef struct labels {
    uint32_t count, width;
    float *embeddings; /* [count, width], each of length 1 */
    char *text;        /* all names, zeros between them */
    const char **names;
    double scale, bias;
    int softmax;       /* probabilities of all labels together are 1 */
} labels;

typedef struct label_options {
    const char *file, *template;
    cli_list texts;    /* --label */
} label_options;

typedef struct ranking {
    const labels *labels;
    uint32_t k;
    double *probability;
} ranking;

/* ---- reading a labels file ---- */

static float half_to_float(uint16_t half) {
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value = exponent == 0 ? ldexp(fraction, -24) : exponent < 31 ? ldexp(fraction + 1024, exponent - 25) : fraction ? NAN : INFINITY;
    return (float)(half & 0x8000 ? -value : value);
}

static float element(const unsigned char *bytes, mgv_dtype dtype, size_t i) {
    uint32_t bits;
    float value;
    if (dtype == MGV_DTYPE_F32) {
        bytes += 4 * i;
        bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    } else {
        bits = (uint32_t)bytes[2 * i] | (uint32_t)bytes[2 * i + 1] << 8;
        if (dtype == MGV_DTYPE_F16) return half_to_float((uint16_t)bits);
        bits <<= 16;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int fail_label(const char *path, const char *rule) { return cli_fail(CLI_BAD_FILE, path, "not a labels file: %s", rule); }

static int take_embeddings(labels *l, const char *path, const unsigned char *bytes, mgv_dtype dtype) {
    l->embeddings = malloc((size_t)l->count * l->width * sizeof *l->embeddings);
    if (!l->embeddings) return cli_fail(CLI_MACHINE, path, "out of memory for %u labels", l->count);
    for (uint32_t i = 0; i < l->count; i++) {
        float *row = l->embeddings + (size_t)i * l->width;
        double square = 0;
        for (uint32_t k = 0; k < l->width; k++) {
            row[k] = element(bytes, dtype, (size_t)i * l->width + k);
            square += (double)row[k] * (double)row[k];
        }
        if (!isfinite(square) || square <= 0) return fail_label(path, "an embedding is zero or not finite");
        for (uint32_t k = 0; k < l->width; k++) row[k] = (float)((double)row[k] / sqrt(square));
    }
    return 0;
}

static int read_embeddings(labels *l, const char *path, mgv_safetensors *file, uint32_t width) {
    mgv_tensor_info tensor;
    mgv_error error;
    mgv_result result;
    unsigned char *bytes;
    uint32_t number;
    int status;
    if (mgv_safetensors_find(file, "embeddings", &number) != MGV_OK || mgv_safetensors_get_tensor(file, number, &tensor) != MGV_OK)
        return fail_label(path, "there is no tensor 'embeddings'");
    if (tensor.dtype != MGV_DTYPE_F32 && tensor.dtype != MGV_DTYPE_F16 && tensor.dtype != MGV_DTYPE_BF16)
        return fail_label(path, "'embeddings' must be F32, F16 or BF16");
    if (tensor.rank != 2 || tensor.shape[0] == 0 || tensor.bytes > MAX_LABEL_BYTES)
        return fail_label(path, "'embeddings' must be [labels, width], 256 MiB at most");
    if (tensor.shape[1] != width)
        return cli_fail(CLI_BAD_FILE, path, "labels of width %llu; the model's embeddings have %u",
                        (unsigned long long)tensor.shape[1], width);
    l->count = (uint32_t)tensor.shape[0];
    l->width = width;
    bytes = malloc((size_t)tensor.bytes);
    if (!bytes) return cli_fail(CLI_MACHINE, path, "out of memory for %u labels", l->count);
    result = mgv_safetensors_read(file, number, bytes, tensor.bytes, &error);
    status = result == MGV_OK ? take_embeddings(l, path, bytes, tensor.dtype) : cli_fail_library(path, result, &error);
    free(bytes);
    return status;
}

static const char *metadata(const mgv_safetensors *file, const char *wanted) {
    for (uint32_t i = 0; i < mgv_safetensors_metadata_count(file); i++) {
        const char *key, *value;
        if (mgv_safetensors_get_metadata(file, i, &key, &value) == MGV_OK && strcmp(key, wanted) == 0) return value;
    }
    return NULL;
}

static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

/* A code point as UTF-8; returns the end. */
static char *put_utf8(char *out, uint32_t code) {
    if (code < 0x80) *out++ = (char)code;
    else if (code < 0x800) *out++ = (char)(0xC0 | code >> 6);
    else if (code < 0x10000) *out++ = (char)(0xE0 | code >> 12);
    else *out++ = (char)(0xF0 | code >> 18);
    if (code >= 0x10000) *out++ = (char)(0x80 | (code >> 12 & 63));
    if (code >= 0x800) *out++ = (char)(0x80 | (code >> 6 & 63));
    if (code >= 0x80) *out++ = (char)(0x80 | (code & 63));
    return out;
}

/* Four hexadecimal digits; returns what follows them, or NULL. */
static const char *read_hex4(const char *at, uint32_t *code) {
    *code = 0;
    for (int i = 0; i < 4; i++, at++) {
        const char *digits = "0123456789abcdef", *digit;
        char c = *at >= 'A' && *at <= 'F' ? (char)(*at - 'A' + 'a') : *at;
        digit = c ? strchr(digits, c) : NULL;
        if (!digit) return NULL;
        *code = *code << 4 | (uint32_t)(digit - digits);
    }
    return at;
}

/* What follows a backslash in a JSON string, as UTF-8 at *out; returns what follows it, or NULL. */
static const char *read_escape(const char *at, char **out) {
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    uint32_t code, low;
    if (*at != 'u') {
        const char *letter = *at ? strchr(letters, *at) : NULL;
        if (!letter) return NULL;
        *(*out)++ = meanings[letter - letters];
        return at + 1;
    }
    at = read_hex4(at + 1, &code);
    if (!at || code == 0 || (code >= 0xDC00 && code < 0xE000)) return NULL;
    if (code >= 0xD800 && code < 0xDC00) { /* the first half of a pair */
        if (at[0] != '\\' || at[1] != 'u') return NULL;
        at = read_hex4(at + 2, &low);
        if (!at || low < 0xDC00 || low >= 0xE000) return NULL;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    *out = put_utf8(*out, code);
    return at;
}

/* A JSON string into *out, ended by a zero; it never grows. Returns what follows it, or NULL. */
static const char *read_string(const char *at, char **out) {
    if (*at++ != '"') return NULL;
    while (at && *at != '"') {
        if ((unsigned char)*at < 0x20) return NULL;
        if (*at == '\\') at = read_escape(at + 1, out);
        else *(*out)++ = *at++;
    }
    *(*out)++ = 0;
    return at ? at + 1 : NULL;
}

/* ["one", "two"]: as many strings as there are embeddings. */
static int read_list(labels *l, const char *at) {
    char *out = l->text;
    at = skip_space(at);
    if (*at++ != '[') return 0;
    for (uint32_t i = 0; i < l->count; i++) {
        if (i > 0 && *at++ != ',') return 0;
        l->names[i] = out;
        at = read_string(skip_space(at), &out);
        if (!at) return 0;
        at = skip_space(at);
    }
    return *at == ']' && *skip_space(at + 1) == 0;
}

static int read_names(labels *l, const char *path, const char *text) {
    if (!text) return fail_label(path, "its metadata has no 'names'");
    l->text = malloc(strlen(text) + 1);
    l->names = malloc(l->count * sizeof *l->names);
    if (!l->text || !l->names) return cli_fail(CLI_MACHINE, path, "out of memory for %u labels", l->count);
    if (!read_list(l, text))
        return cli_fail(CLI_BAD_FILE, path, "not a labels file: 'names' must be a JSON list of %u strings, one for each embedding",
                        l->count);
    return 0;
}

static int read_number(const mgv_safetensors *file, const char *path, const char *key, double *value) {
    const char *text = metadata(file, key);
    char *end;
    if (!text) return 0;
    *value = strtod(text, &end);
    if (end == text || *end || !isfinite(*value))
        return cli_fail(CLI_BAD_FILE, path, "not a labels file: '%s' in its metadata is no number", key);
    return 0;
}

static int read_labels(labels *l, const char *path, uint32_t width) {
    mgv_safetensors *file = NULL;
    mgv_safetensors_desc desc;
    mgv_error error;
    mgv_result result;
    int status;
    memset(&desc, 0, sizeof desc);
    desc.path = path;
    l->scale = 1;
    result = mgv_safetensors_open(&file, &desc, &error);
    if (result != MGV_OK) {
        status = cli_fail_library(path, result, &error);
        return status == CLI_USAGE ? CLI_BAD_FILE : status;
    }
    status = read_embeddings(l, path, file, width);
    if (!status) status = read_names(l, path, metadata(file, "names"));
    if (!status) status = read_number(file, path, "scale", &l->scale);
    if (!status) status = read_number(file, path, "bias", &l->bias);
    mgv_safetensors_close(file);
    return status;
}

/* ---- labels that are texts ---- */

/* The label in the template's place for it. */
static int add_prompt(const char *template, const char *label, cli_list *prompts) {
    const char *place = template ? strstr(template, "{}") : NULL;
    char *prompt;
    size_t room;
    int status;
    if (!place) return cli_list_add(prompts, label);
    room = strlen(template) + strlen(label) + 1;
    prompt = malloc(room);
    if (!prompt) return cli_fail(CLI_MACHINE, NULL, "out of memory for a label");
    snprintf(prompt, room, "%.*s%s%s", (int)(place - template), template, label, place + 2);
    status = cli_list_add(prompts, prompt);
    free(prompt);
    return status;
}

/* Names point into one text, as those of a file do. */
static int take_names(labels *l, const cli_list *texts) {
    size_t bytes = 0;
    char *at;
    for (size_t i = 0; i < texts->count; i++) bytes += strlen(texts->items[i]) + 1;
    l->text = at = malloc(bytes);
    l->names = malloc(texts->count * sizeof *l->names);
    if (!l->text || !l->names) return cli_fail(CLI_MACHINE, NULL, "out of memory for %zu labels", texts->count);
    for (size_t i = 0; i < texts->count; i++) {
        l->names[i] = at;
        at = stpcpy(at, texts->items[i]) + 1;
    }
    l->count = (uint32_t)texts->count;
    return 0;
}

static int read_texts(labels *l, label_options *o, const cli_session *session, uint32_t width) {
    const cli_text_options tower = cli_session_texts(session);
    cli_list prompts = {0};
    mgv_model_info info;
    int status = 0;
    if (o->file) status = cli_read_label_lines(o->file, &o->texts);
    if (!status) status = take_names(l, &o->texts);
    for (size_t i = 0; i < o->texts.count && !status; i++) status = add_prompt(o->template, o->texts.items[i], &prompts);
    if (!status) l->embeddings = cli_encode_text_list(&tower, &prompts, &info, &status);
    cli_list_free(&prompts);
    if (status) return status;
    if (info.text_width != width)
        return cli_fail(CLI_BAD_FILE, tower.model, "its texts have %u columns, and its pictures %u", info.text_width, width);
    l->width = width;
    l->scale = info.logit_scale != 0 ? exp(info.logit_scale) : 1;
    l->bias = info.logit_bias;
    l->softmax = info.family == MGV_FAMILY_CLIP;
    return 0;
}

/* ---- one picture ---- */

/* Scores become probabilities. */
static void finish_scores(const labels *l, double *score) {
    double most = score[0], sum = 0;
    if (!l->softmax) {
        for (uint32_t i = 0; i < l->count; i++) score[i] = 1 / (1 + exp(-score[i]));
        return;
    }
    for (uint32_t i = 1; i < l->count; i++) most = score[i] > most ? score[i] : most;
    for (uint32_t i = 0; i < l->count; i++) sum += score[i] = exp(score[i] - most);
    for (uint32_t i = 0; i < l->count; i++) score[i] /= sum;
}

static int print_labels(void *user, const char *name, const mgv_shape *shape, const float *rows) {
    ranking *r = user;
    const labels *l = r->labels;
    (void)shape;
    for (uint32_t i = 0; i < l->count; i++) {
        double cosine = 0;
        for (uint32_t k = 0; k < l->width; k++) cosine += (double)rows[k] * (double)l->embeddings[(size_t)i * l->width + k];
        r->probability[i] = l->scale * cosine + l->bias;
    }
    finish_scores(l, r->probability);
    cli_print_text(stdout, name);
    putchar('\n');
    for (uint32_t shown = 0; shown < r->k && shown < l->count; shown++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < l->count; i++)
            if (r->probability[i] > r->probability[best]) best = i;
        printf("  %8.4f  ", r->probability[best]);
        cli_print_text(stdout, l->names[best]);
        putchar('\n');
        r->probability[best] = -1; /* shown */
    }
    return 0;
}

/* ---- the command ---- */

static int are_texts(const label_options *o) {
    static const char end[] = ".safetensors";
    const size_t length = o->file ? strlen(o->file) : 0, ends = sizeof end - 1;
    return o->texts.count > 0 || length < ends || strcmp(o->file + length - ends, end) != 0;
}

/* CLI_GO_ON, or the exit code after saying what does not go together. */
static int check_labels(const cli_command *command, const label_options *o) {
    if (!o->file && !o->texts.count) return cli_usage(command, "--labels FILE or --label TEXT is missing");
    if (o->file && o->texts.count) return cli_usage(command, "there are --labels and --label: it is either or");
    if (o->template && !strstr(o->template, "{}")) return cli_usage(command, "--template has no {} for the label");
    if (o->template && !are_texts(o)) return cli_usage(command, "--template is for labels that are texts");
    return CLI_GO_ON;
}

static int classify(const cli_command *command, cli_session *session, label_options *from, uint32_t k, cli_list *pictures) {
    labels l;
    ranking r;
    mgv_output output;
    mgv_output_kind kind;
    uint32_t width = cli_compared_by(cli_session_info(session), &kind);
    int worst;
    if (!width) return cli_usage(command, "this model has no pooling head, and labels are compared with pooled embeddings");
    memset(&l, 0, sizeof l);
    memset(&r, 0, sizeof r);
    memset(&output, 0, sizeof output);
    output.kind = kind;
    output.normalize = 1;
    r.labels = &l;
    r.k = k;
    worst = are_texts(from) ? read_texts(&l, from, session, width) : read_labels(&l, from->file, width);
    if (!worst) {
        r.probability = malloc(l.count * sizeof *r.probability);
        if (!r.probability) worst = cli_fail(CLI_MACHINE, NULL, "out of memory for %u labels", l.count);
    }
    if (!worst) {
        worst = cli_session_encode(session, pictures, &output, print_labels, &r);
    }
    free(r.probability);
    free(l.embeddings);
    free(l.text);
    free(l.names);
    return worst;
}

static int parse_and_classify(const cli_command *command, int argc, char **argv, label_options *from, cli_list *names, cli_list *pictures) {
    cli_session_options o;
    cli_names how = {0, NULL, NULL};
    uint32_t k = 3;
    cli_session *session;
    int status, worst;
    memset(&o, 0, sizeof o);
    const cli_option options[] = {
        CLI_SESSION_OPTIONS(o),
        CLI_PRECISION_OPTION(o.precision),
        CLI_BATCH_OPTION(o),
        CLI_DEVICES_OPTION(o),
        CLI_MEMORY_OPTION(o),
        CLI_NAMES_OPTIONS(how),
        {"--labels", CLI_TEXT, &from->file, "FILE", "labels, a line each, or their embeddings (.safetensors): see below"},
        {"--label", CLI_TEXTS, &from->texts, "TEXT", "a label; may be given again"},
        {"--template", CLI_TEXT, &from->template, "TEXT", "what is made of a label, such as \"This is a photo of {}.\" ({})"},
        CLI_LOWER_CASE_OPTION(o.lower_case),
        {"-k", CLI_COUNT, &k, "N", "labels to print of each picture (3)"},
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    status = cli_parse(command, options, names, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!o.model) return cli_usage(command, "--model DIR is missing");
    status = check_labels(command, from);
    if (status != CLI_GO_ON) return status;
    if (are_texts(from)) o.tower = MGV_TOWER_BOTH;
    if (names->count == 0 && !how.files_from && !how.files0_from) return cli_usage(command, "there is no IMAGE");
    worst = cli_expand(names, &how, pictures);
    if (worst < CLI_MACHINE && pictures->count) {
        session = cli_session_open(&o, &status);
        if (session) status = classify(command, session, from, k, pictures);
        cli_session_close(session);
        if (status > worst) worst = status;
    }
    return worst;
}

static int run(const cli_command *command, int argc, char **argv) {
    cli_list names = {0}, pictures = {0};
    label_options from = {0};
    int status = parse_and_classify(command, argc, argv, &from, &names, &pictures);
    cli_list_free(&from.texts);
    cli_list_free(&names);
    cli_list_free(&pictures);
    return status;
}

const cli_command cli_classify = {
    "classify", "--model DIR --labels FILE IMAGE...", "which of the labels fit a picture",
    "Prints the best labels of each picture with their probabilities: of a SigLIP sigmoid(scale * cosine + bias), each label by itself, of a\n"
    "CLIP the softmax over the labels.\n\n"
    "Labels are texts, which the model's text tower reads; or a safetensors file of their embeddings: a tensor 'embeddings' [labels, width],\n"
    "and in its metadata names (a JSON list), scale and bias.\n",
    run};

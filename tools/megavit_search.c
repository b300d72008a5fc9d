/* megavit search: embeddings of pictures in one file (tools/index.h), and the nearest of them. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tools/index.h"

enum { DEFAULT_MATCHES = 5 };
#define DEFAULT_DUPLICATES 0.97

typedef struct search_options {
    cli_session_options session;
    const char *index;
    cli_list add, query, removed, texts;
    cli_names names;
    uint32_t k, wait_seconds;
    double threshold; /* below -1: not given */
    int prune, list, duplicates, json;
} search_options;

static int is_adding(const search_options *o) { return o->add.count || o->names.files_from || o->names.files0_from; }

/* ---- what an index is about ---- */

static uint32_t describe(const search_options *o, const mgv_model_info *info, index_about about[INDEX_ABOUT_MOST]) {
    mgv_output_kind kind;
    uint32_t count = 0;
    memset(about, 0, INDEX_ABOUT_MOST * sizeof *about);
#define ABOUT(name, what, ...) \
    about[count].key = name; \
    about[count].rule = what; \
    snprintf(about[count++].value, sizeof about->value, __VA_ARGS__)
    ABOUT("model", "the index was made with another model", "%016llx", (unsigned long long)info->hash);
    ABOUT("width", "the index holds embeddings of another width", "%u", cli_compared_by(info, &kind));
    ABOUT("resize", "the index was made with another --resize", "%s", o->session.resize == MGV_RESIZE_PILLOW ? "pillow" : "torchvision");
    ABOUT("alpha", "the index was made with another --alpha", "%s", o->session.alpha == MGV_ALPHA_WHITE ? "white" : "drop");
    ABOUT("orientation", "the index was made with another rule for pictures that lie on their side", "upright");
    about[count].agrees = cli_picture_decoders_agree;
    ABOUT("decoder", "the index was made by a program that decodes pictures with other libraries", "%s", "");
    cli_picture_decoders(about[count - 1].value, sizeof about->value);
    ABOUT("megavit", NULL, "%s", mgv_version());
#undef ABOUT
    return count;
}

/* ---- adding, taking out ---- */

static void print_changes(const search_options *o, const index_changes *changes, int64_t rows) {
    const struct {
        const char *what;
        uint64_t count;
    } parts[] = {{"added", changes->added}, {"renewed", changes->renewed}, {"moved", changes->moved}, {"removed", changes->removed},
                 {"unchanged", changes->unchanged}};
    const size_t count = sizeof parts / sizeof parts[0];
    const char *between = "";
    if (o->json) {
        putchar('{');
        for (size_t i = 0; i < count; i++) printf("\"%s\": %llu, ", parts[i].what, (unsigned long long)parts[i].count);
        printf("\"rows\": %lld}\n", (long long)rows);
        return;
    }
    cli_print_text(stdout, o->index);
    fputs(": ", stdout);
    for (size_t i = 0; i < count; i++) {
        if (!parts[i].count) continue;
        printf("%s%llu %s", between, (unsigned long long)parts[i].count, parts[i].what);
        between = ", ";
    }
    printf("%s; %lld row%s\n", *between ? "" : "nothing changed", (long long)rows, rows == 1 ? "" : "s");
}

static int count_rows(index_file *index, int64_t *rows) {
    int status = index->is_empty ? 0 : index_begin_reading(index);
    *rows = index->rows;
    if (!index->is_empty && !status) status = index_end(index);
    return status;
}

static int change(const search_options *o, index_file *index, const index_about *about, uint32_t about_count, cli_session *session,
                  cli_list *pictures, index_changes *changes) {
    int worst = 0, status = 0;
    int64_t rows;
    if (o->removed.count) worst = index_remove_names(index, &o->removed, changes);
    if (o->prune && worst < CLI_MACHINE) status = index_prune(index, changes);
    if (status > worst) worst = status;
    if (pictures->count && worst < CLI_MACHINE) status = index_add(index, about, about_count, session, pictures, changes);
    if (status > worst) worst = status;
    if (index->is_empty && !worst) worst = cli_fail(CLI_BAD_FILE, NULL, "there is no picture to add");
    if (index->is_empty || !index->database || index->failed) return worst;
    status = count_rows(index, &rows);
    if (!status) print_changes(o, changes, rows);
    return status > worst ? status : worst;
}

/* ---- showing ---- */

static int show_row(void *user, const index_row *row) {
    const search_options *o = user;
    if (!o->json) {
        cli_print_text(stdout, row->path);
        putchar('\n');
        return 0;
    }
    fputs("{\"file\": ", stdout);
    cli_json_string(stdout, row->path);
    printf(", \"size\": %lld, \"mtime\": %lld.%09lld, \"checksum\": \"%016llx\"}\n", (long long)row->size,
           (long long)(row->mtime / 1000000000), (long long)(row->mtime % 1000000000), (unsigned long long)row->checksum);
    return 0;
}

static int show_match(const search_options *o, index_file *index, const index_match *match, uint64_t place) {
    index_row row;
    int status = index_get(index, match->id, &row);
    if (status) return status;
    if (o->json) {
        printf("%s{\"similarity\": %.7g, \"file\": ", place ? ", " : "", match->similarity);
        cli_json_string(stdout, row.path);
        putchar('}');
    } else {
        printf("%4llu  %7.4f  ", (unsigned long long)place + 1, match->similarity);
        cli_print_text(stdout, row.path);
        putchar('\n');
    }
    return 0;
}

static int show_matches(const search_options *o, index_file *index, const char *name, const index_matches *matches) {
    int status = 0;
    if (o->json) {
        fputs("{\"query\": ", stdout);
        cli_json_string(stdout, name);
        printf(", \"rows\": %lld, \"nearest\": [", (long long)index->rows);
    } else {
        cli_print_text(stdout, name);
        printf(": nearest %llu of %lld\n", (unsigned long long)matches->count, (long long)index->rows);
    }
    for (uint64_t i = 0; !status && i < matches->count; i++) status = show_match(o, index, &matches->items[i], i);
    if (o->json) fputs("]}\n", stdout);
    return status;
}

/* ---- near-equal pictures ---- */

typedef struct member {
    uint32_t group, id;
} member;

static int compare_members(const void *a, const void *b) {
    const member *first = a, *second = b;
    if (first->group != second->group) return first->group < second->group ? -1 : 1;
    return first->id < second->id ? -1 : 1;
}

static double similarity_of(const float *a, const float *b, uint32_t width) {
    double product = 0, square_a = 0, square_b = 0;
    for (uint32_t i = 0; i < width; i++) {
        product += (double)a[i] * (double)b[i];
        square_a += (double)a[i] * (double)a[i];
        square_b += (double)b[i] * (double)b[i];
    }
    return square_a * square_b > 0 ? product / sqrt(square_a * square_b) : 0;
}

/* members: of one group; each with its similarity to the first. */
static int show_group(const search_options *o, index_file *index, const member *members, size_t count) {
    float *first = malloc(index->width * sizeof *first), *other = malloc(index->width * sizeof *other);
    int status = first && other ? index_get_embedding(index, members[0].id, first) : cli_fail(CLI_MACHINE, NULL, "out of memory");
    fputs(o->json ? "{\"group\": [" : "\n", stdout);
    for (size_t i = 0; !status && i < count; i++) {
        index_match match;
        match.id = members[i].id;
        status = index_get_embedding(index, match.id, other);
        match.similarity = similarity_of(first, other, index->width);
        if (!status) status = show_match(o, index, &match, i);
    }
    if (o->json) fputs("]}\n", stdout);
    free(first);
    free(other);
    return status;
}

/* group: each row's; those that stand alone are left out. */
static int show_groups(const search_options *o, index_file *index, const uint32_t *group, member *members, double threshold) {
    const size_t rows = (size_t)index->rows;
    size_t count = 0, groups = 0, kept = 0;
    int status = 0;
    for (size_t i = 0; i < rows; i++) {
        members[i].id = (uint32_t)i;
        members[i].group = group[i];
    }
    qsort(members, rows, sizeof *members, compare_members);
    for (size_t i = 0; i < rows; i += count) { /* groups of two and more move to the front */
        for (count = 1; i + count < rows && members[i + count].group == members[i].group; count++) continue;
        if (count == 1) continue;
        memmove(members + kept, members + i, count * sizeof *members);
        kept += count;
        groups++;
    }
    if (!o->json) {
        cli_print_text(stdout, o->index);
        printf(": %zu group%s of near-equal pictures (similarity from %.4g), %zu of %zu pictures\n", groups, groups == 1 ? "" : "s", threshold,
               kept, rows);
    }
    for (size_t i = 0; !status && i < kept; i += count) {
        for (count = 1; i + count < kept && members[i + count].group == members[i].group; count++) continue;
        status = show_group(o, index, members + i, count);
    }
    return status;
}

static int find_duplicates(const search_options *o, index_file *index, uint32_t threads) {
    const double threshold = o->threshold < -1 ? DEFAULT_DUPLICATES : o->threshold;
    const size_t rows = (size_t)index->rows;
    uint32_t *group = malloc((rows ? rows : 1) * sizeof *group);
    member *members = malloc((rows ? rows : 1) * sizeof *members);
    int status = group && members ? 0 : cli_fail(CLI_MACHINE, NULL, "out of memory for %zu rows", rows);
    if (!status) status = index_duplicates(index, threshold, threads, group);
    if (!status) status = show_groups(o, index, group, members, threshold);
    free(group);
    free(members);
    return status;
}

/* ---- queries ---- */

typedef struct query_list {
    cli_list names;
    float *rows; /* [names][width] */
    uint32_t width;
} query_list;

static int keep_query(void *user, const char *name, const mgv_shape *shape, const float *row) {
    query_list *q = user;
    float *rows = realloc(q->rows, (q->names.count + 1) * q->width * sizeof *rows);
    double square = 0;
    (void)shape;
    for (uint32_t i = 0; i < q->width; i++) square += (double)row[i] * (double)row[i];
    if (!rows) return cli_fail(CLI_MACHINE, NULL, "out of memory for %zu queries", q->names.count + 1);
    q->rows = rows;
    if (!isfinite(square)) return cli_fail(CLI_BAD_FILE, name, "its embedding is not finite: the model is not usable");
    memcpy(q->rows + q->names.count * q->width, row, q->width * sizeof *row);
    return cli_list_add(&q->names, name);
}

static int embed_queries(cli_session *session, cli_list *pictures, query_list *queries) {
    mgv_output output;
    int status;
    memset(&output, 0, sizeof output);
    cli_compared_by(cli_session_info(session), &output.kind);
    output.normalize = 1;
    status = cli_session_encode(session, pictures, &output, keep_query, queries);
    if (!status && !queries->names.count) status = cli_fail(CLI_BAD_FILE, NULL, "there is no picture to ask with");
    return status;
}

static int embed_text_queries(const search_options *o, const cli_session *session, query_list *queries) {
    const cli_text_options tower = cli_session_texts(session);
    mgv_model_info info;
    int status = 0;
    float *rows;
    rows = cli_encode_text_list(&tower, &o->texts, &info, &status);
    if (rows && info.text_width != queries->width)
        status = cli_fail(CLI_BAD_FILE, tower.model, "its texts have %u columns, and its pictures %u", info.text_width, queries->width);
    for (size_t i = 0; i < o->texts.count && !status; i++)
        status = keep_query(queries, o->texts.items[i], NULL, rows + i * info.text_width);
    free(rows);
    return status;
}

static int answer(const search_options *o, index_file *index, const query_list *queries, uint32_t threads) {
    const uint64_t most = o->k ? o->k : o->threshold < -1 ? DEFAULT_MATCHES : UINT64_MAX;
    index_matches *matches = calloc(queries->names.count ? queries->names.count : 1, sizeof *matches);
    int status = matches ? 0 : cli_fail(CLI_MACHINE, NULL, "out of memory for %zu queries", queries->names.count);
    if (!status)
        status = index_nearest(index, queries->rows, (uint32_t)queries->names.count, most, o->threshold < -1 ? -2 : o->threshold, threads, matches);
    for (size_t i = 0; matches && i < queries->names.count; i++) {
        if (!status) status = show_matches(o, index, queries->names.items[i], &matches[i]);
        free(matches[i].items);
    }
    free(matches);
    return status;
}

/* Everything that only reads, of one state of the index. */
static int show(const search_options *o, index_file *index, const query_list *queries, uint32_t threads) {
    int status = index_begin_reading(index), ended;
    if (status) return status;
    if (o->list) status = index_each(index, show_row, (void *)o);
    if (!status && o->duplicates) status = find_duplicates(o, index, threads);
    if (!status && queries->names.count) status = answer(o, index, queries, threads);
    ended = index_end(index);
    return status ? status : ended;
}

/* ---- the command ---- */

/* Opens the index and checks that it is the model's, if there is one; before anything is computed. */
static int open_index(const search_options *o, index_file *index, int writing, const index_about *about, uint32_t about_count) {
    int status = index_open(index, o->index, writing, o->wait_seconds);
    if (status) return status;
    if (index->is_empty && !is_adding(o))
        return access(o->index, F_OK) != 0 ? cli_fail(CLI_BAD_FILE, o->index, "cannot open the index: %s", strerror(errno))
                                           : cli_fail(CLI_BAD_FILE, o->index, "the index is empty: nothing was ever added to it");
    return index->is_empty ? 0 : index_check_about(index, about, about_count);
}

static int change_and_show(const search_options *o, cli_session *session, cli_list *pictures, cli_list *asked, int *signal_number) {
    const int writing = pictures->count || o->prune || o->removed.count;
    index_about about[INDEX_ABOUT_MOST];
    uint32_t about_count = session ? describe(o, cli_session_info(session), about) : 0;
    index_changes changes;
    index_file index;
    query_list queries;
    mgv_output_kind kind;
    int worst = open_index(o, &index, writing, about, about_count), status = 0;
    memset(&changes, 0, sizeof changes);
    memset(&queries, 0, sizeof queries);
    if (worst) {
        index_close(&index);
        return worst;
    }
    if (session) queries.width = cli_compared_by(cli_session_info(session), &kind);
    if (writing) worst = change(o, &index, about, about_count, session, pictures, &changes);
    *signal_number = changes.signal;
    if (worst < CLI_MACHINE && !changes.signal && index.database && !index.failed &&
        (o->list || o->duplicates || asked->count || o->texts.count)) {
        if (asked->count) status = embed_queries(session, asked, &queries);
        if (status > worst) worst = status;
        if (worst < CLI_MACHINE && o->texts.count) status = embed_text_queries(o, session, &queries);
        if (status > worst) worst = status;
        if (worst < CLI_MACHINE && (queries.names.count || o->list || o->duplicates)) status = show(o, &index, &queries, cli_thread_count(&o->session));
        if (status > worst) worst = status;
    }
    index_close(&index);
    cli_list_free(&queries.names);
    free(queries.rows);
    return worst;
}

static int asks(const search_options *o) { return o->query.count || o->texts.count; }

static int search(const cli_command *command, const search_options *o, cli_list *pictures, cli_list *asked) {
    int status = 0, signal_number = 0;
    cli_session *session = is_adding(o) || asks(o) ? cli_session_open(&o->session, &status) : NULL;
    if (status) return status;
    if (session && !cli_session_info(session)->pooled_width)
        status = cli_usage(command, "this model has no pooling head, and pictures are compared by their pooled embeddings");
    if (!status) status = change_and_show(o, session, pictures, asked, &signal_number);
    cli_session_close(session);
    if (!signal_number) return status;
    cli_fail(0, o->index, "interrupted: what was done is in the index, and the same --add goes on from there");
    fflush(stdout);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
    return status;
}

static int parse_and_search(const cli_command *command, int argc, char **argv, search_options *o, cli_list *pictures, cli_list *asked) {
    int status, worst;
    const cli_option options[] = {
        CLI_SESSION_OPTIONS(o->session),
        CLI_FAST_OPTION(o->session.precision),
        CLI_BATCH_OPTION(o->session),
        CLI_DEVICES_OPTION(o->session),
        CLI_MEMORY_OPTION(o->session),
        {"--index", CLI_TEXT, &o->index, "FILE", "the index, one SQLite file; --add makes it"},
        {"--add", CLI_NAMES, &o->add, "IMAGE...", "put in what is new or has changed"},
        CLI_NAMES_OPTIONS(o->names),
        {"--prune", CLI_FLAG, &o->prune, NULL, "take out the pictures whose files are gone"},
        {"--remove", CLI_NAMES, &o->removed, "NAME...", "take out these, or all below these directories"},
        {"--list", CLI_FLAG, &o->list, NULL, "print the files that are in it, a line each"},
        {"--duplicates", CLI_FLAG, &o->duplicates, NULL, "print groups of near-equal pictures"},
        {"--query", CLI_NAMES, &o->query, "IMAGE...", "print the pictures nearest to each of these"},
        {"--text", CLI_TEXTS, &o->texts, "TEXT", "print the pictures nearest to this text; may be given again"},
        CLI_LOWER_CASE_OPTION(o->session.lower_case),
        {"-k", CLI_COUNT, &o->k, "N", "how many (5; with --threshold all that reach it)"},
        {"--threshold", CLI_COSINE, &o->threshold, "S", "only what is at least so similar, -1 to 1 (--duplicates: 0.97)"},
        {"--json", CLI_FLAG, &o->json, NULL, "print JSON, one object a line"},
        {"--wait", CLI_COUNT, &o->wait_seconds, "SECONDS", "for another program that holds the index (60)"},
        {NULL, CLI_FLAG, NULL, NULL, NULL},
    };
    status = cli_parse(command, options, NULL, argc, argv);
    if (status != CLI_GO_ON) return status;
    if (!o->index) return cli_usage(command, "--index FILE is missing");
    if (!is_adding(o) && !asks(o) && !o->removed.count && !o->prune && !o->list && !o->duplicates)
        return cli_usage(command, "nothing to do: none of --add, --query, --text, --list, --duplicates, --prune, --remove");
    if (!o->session.model && (is_adding(o) || asks(o))) return cli_usage(command, "--model DIR is missing");
    if (o->texts.count) o->session.tower = MGV_TOWER_BOTH;
    worst = is_adding(o) ? cli_expand(&o->add, &o->names, pictures) : 0;
    if (worst < CLI_MACHINE && o->query.count) status = cli_expand(&o->query, NULL, asked);
    if (status > worst) worst = status;
    if (worst >= CLI_MACHINE) return worst;
    if (!pictures->count && !asked->count && !o->texts.count && !o->removed.count && !o->prune && !o->list && !o->duplicates) return worst;
    status = search(command, o, pictures, asked);
    return status > worst ? status : worst;
}

static int run(const cli_command *command, int argc, char **argv) {
    search_options o;
    cli_list pictures = {0}, asked = {0};
    int status;
    memset(&o, 0, sizeof o);
    o.threshold = -2;
    o.wait_seconds = 60;
    o.session.may_find_none = 1;
    status = parse_and_search(command, argc, argv, &o, &pictures, &asked);
    cli_list_free(&o.add);
    cli_list_free(&o.query);
    cli_list_free(&o.removed);
    cli_list_free(&o.texts);
    cli_list_free(&pictures);
    cli_list_free(&asked);
    return status;
}

const cli_command cli_search = {
    "search", "--index FILE [--model DIR] [--add IMAGE...] [--query IMAGE...] [--text TEXT] [options]",
    "keep embeddings in one file, find the nearest pictures",
    "IMAGE is a picture, a folder or - (names on standard input). --add, --query and --text need --model; --files-from is --add's.\n\n"
    "--add   A file whose size and time are those in the index is passed by; one with the bytes of another is taken over without being\n"
    "        embedded; what has changed is embedded anew. What is done is committed every two seconds: after Ctrl-C, or anything worse,\n"
    "        the same --add goes on from there. Paths are kept absolute and without symbolic links.\n"
    "--query Similarity is the cosine of embeddings: pooled, or embeds of a CLIP; --text reads words with the model's text\n"
    "        tower. Others may read while one adds; who finds the index in use waits.\n\n"
    "--duplicates: pictures are of one group if a chain of pictures, each so similar to the next, joins them; similarities are to the\n"
    "        first of the group.\n"
    "--json  --query: {\"query\", \"rows\", \"nearest\": [{\"similarity\", \"file\"}...]}; --duplicates: {\"group\": [...]}; --list:\n"
    "        {\"file\", \"size\", \"mtime\", \"checksum\"}; --add, --prune, --remove: {\"added\", \"renewed\", \"moved\", \"removed\", \"unchanged\", \"rows\"}.\n\n"
    "The index says which model, --resize, --alpha, decoder and rule for orientation it was made with; others are an error. Which release\n"
    "of megavit made it is only noted. FILE-wal and FILE-shm lie beside it while it is written; afterwards FILE is all of it.\n",
    run};

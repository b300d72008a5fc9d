/* Finding in an index (tools/index.h): every row's 8-bit code is looked at, and the few that its error leaves in question are compared by
   their floats. So the answer is that of the floats. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "tools/index.h"

/* What rounding adds to what the codes' errors bound: sums in fp32, lengths that are 1 to five digits. */
#define SLACK 2e-5

static int fail_memory(void) { return cli_fail(CLI_MACHINE, NULL, "out of memory for the index"); }

/* ---- codes ---- */

static void put_float(float value, unsigned char *bytes) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(bits >> (8 * i) & 0xFF);
}

static float get_float(const unsigned char *bytes) {
    uint32_t bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The length of what is left of values when the code is taken away. */
static double distance(const float *values, uint32_t width, const signed char *codes, float scale) {
    double square = 0;
    for (uint32_t i = 0; i < width; i++) {
        double off = (double)values[i] - (double)scale * codes[i];
        square += off * off;
    }
    return sqrt(square);
}

void index_encode(const float *values, uint32_t width, unsigned char *code) {
    signed char *codes = (signed char *)code + INDEX_CODE_HEAD;
    float most = 0, scale;
    for (uint32_t i = 0; i < width; i++)
        if (fabsf(values[i]) > most) most = fabsf(values[i]);
    scale = most / 127;
    for (uint32_t i = 0; i < width; i++) codes[i] = scale > 0 ? (signed char)lrintf(values[i] / scale) : 0;
    put_float(scale, code);
    put_float((float)(distance(values, width, codes, scale) * 1.000001 + 1e-9), code + 4);
}

/* Scale and error of a row, which a file may have made anything; 0: they are none. */
static int read_head(const unsigned char *code, float *scale, float *error) {
    *scale = get_float(code);
    *error = get_float(code + 4);
    return *scale >= 0 && *scale <= 1 && *error >= 0 && *error <= 1;
}

int index_code_holds(const float *values, uint32_t width, const unsigned char *code) {
    float scale, error;
    return read_head(code, &scale, &error) && distance(values, width, (const signed char *)code + INDEX_CODE_HEAD, scale) <= (double)error;
}

static int fail_head(index_file *index) {
    index->failed = 1;
    return cli_fail(CLI_BAD_FILE, index->name, "the index is damaged: the 8-bit copy of an embedding");
}

/* A query in as many bits as leave the sum of its products with codes in 32. */
typedef struct query_code {
    int16_t *values; /* [width] */
    double scale, error;
} query_code;

static void encode_query(const float *query, uint32_t width, query_code *code) {
    const double room = 2147483647.0 / 128 / width, limit = room < 32767 ? floor(room) : 32767;
    double most = 0, square = 0;
    for (uint32_t i = 0; i < width; i++)
        if (fabs((double)query[i]) > most) most = fabs((double)query[i]);
    code->scale = most / limit;
    for (uint32_t i = 0; i < width; i++) {
        double off;
        code->values[i] = code->scale > 0 ? (int16_t)lrint((double)query[i] / code->scale) : 0;
        off = (double)query[i] - code->scale * code->values[i];
        square += off * off;
    }
    code->error = sqrt(square);
}

static int32_t dot(const signed char *codes, const int16_t *query, uint32_t width) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < width; i++) sum += (int32_t)codes[i] * query[i];
    return sum;
}

/* ---- work for several threads ---- */

/* Runs work(user) on so many threads, this one among them; those that cannot be started are done without. */
static void run_threads(void *(*work)(void *), void *user, uint32_t threads) {
    pthread_t others[64];
    uint32_t started = 0;
    if (threads > 64) threads = 64;
    while (started + 1 < threads && pthread_create(&others[started], NULL, work, user) == 0) started++;
    work(user);
    while (started > 0) pthread_join(others[--started], NULL);
}

/* ---- the nearest rows ---- */

enum { QUERIES_AT_ONCE = 16, SCORE_BYTES_MOST = 64 * 1024 * 1024 };

typedef struct scan {
    index_file *index;
    query_code queries[QUERIES_AT_ONCE];
    uint32_t query_count;
    float *scores; /* [query_count][rows] */
    float *errors; /* [rows] */
    pthread_mutex_t lock; /* around what follows, and SQLite */
    sqlite3_blob *blob;
    int64_t next_block;
    int status;
} scan;

/* 0: a row of it is damaged. */
static int score_block(scan *s, int64_t block, const unsigned char *bytes, uint32_t rows) {
    const uint32_t width = s->index->width;
    for (uint32_t i = 0; i < rows; i++, bytes += width + INDEX_CODE_HEAD) {
        const int64_t id = block * INDEX_BLOCK_ROWS + i;
        float scale;
        if (!read_head(bytes, &scale, &s->errors[id])) return 0;
        for (uint32_t q = 0; q < s->query_count; q++)
            s->scores[q * s->index->rows + id] = (float)(s->queries[q].scale * (double)scale *
                                                         dot((const signed char *)bytes + INDEX_CODE_HEAD, s->queries[q].values, width));
    }
    return 1;
}

/* Takes the next block, alone, and scores it beside the others. */
static void *score_blocks(void *user) {
    scan *s = user;
    unsigned char *bytes = malloc((size_t)INDEX_BLOCK_ROWS * (s->index->width + INDEX_CODE_HEAD));
    int good = 1;
    for (;;) {
        int64_t block;
        uint32_t rows = 0;
        pthread_mutex_lock(&s->lock);
        if (!s->status && !bytes) s->status = fail_memory();
        if (!s->status && !good) s->status = fail_head(s->index);
        block = s->next_block;
        if (s->status || block * INDEX_BLOCK_ROWS >= s->index->rows) break;
        s->next_block++;
        s->status = index_read_block(s->index, &s->blob, block, bytes, &rows);
        if (s->status) break;
        pthread_mutex_unlock(&s->lock);
        good = score_block(s, block, bytes, rows);
    }
    pthread_mutex_unlock(&s->lock);
    free(bytes);
    return NULL;
}

/* The k-th largest of what the scores are at least: a heap whose top is the smallest of the k largest. */
static double surely_reached(const float *scores, const float *errors, int64_t rows, uint64_t k, float *heap) {
    uint64_t count = 0;
    for (int64_t i = 0; i < rows; i++) {
        float value = scores[i] - errors[i];
        uint64_t at;
        if (count < k) {
            for (at = count++; at > 0 && heap[(at - 1) / 2] > value; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
        } else {
            if (value <= heap[0]) continue;
            for (at = 0;;) {
                uint64_t child = 2 * at + 1;
                if (child + 1 < k && heap[child + 1] < heap[child]) child++;
                if (child >= k || heap[child] >= value) break;
                heap[at] = heap[child];
                at = child;
            }
        }
        heap[at] = value;
    }
    return (double)heap[0];
}

static int compare_matches(const void *a, const void *b) {
    const index_match *first = a, *second = b;
    if (first->similarity > second->similarity) return -1;
    if (first->similarity < second->similarity) return 1;
    return first->id < second->id ? -1 : 1;
}

/* The cosine with the row's own length. */
static int compare_floats(index_file *index, int64_t id, const float *query, float *values, double *similarity) {
    double product = 0, square = 0;
    int status = index_get_embedding(index, id, values);
    for (uint32_t i = 0; !status && i < index->width; i++) {
        product += (double)values[i] * (double)query[i];
        square += (double)values[i] * (double)values[i];
    }
    *similarity = square > 0 ? product / sqrt(square) : 0;
    return status;
}

/* Compares by their floats all rows that can be among the `most` best and reach the threshold. */
static int settle(scan *s, uint32_t q, const float *query, uint64_t most, double threshold, float *room, index_matches *matches) {
    const int64_t rows = s->index->rows;
    const float *scores = s->scores + (size_t)q * (size_t)rows;
    /* What a query's own error adds is the same for all rows: it counts twice where two of them are compared. */
    const double off = s->queries[q].error * 2 + SLACK;
    const uint64_t k = most < (uint64_t)rows ? most : (uint64_t)rows;
    double limit = surely_reached(scores, s->errors, rows, k, room) - 2 * off;
    uint64_t count = 0;
    int status = 0;
    if (limit < threshold - off) limit = threshold - off;
    for (int64_t i = 0; i < rows; i++) count += (double)scores[i] + (double)s->errors[i] >= limit;
    matches->items = malloc((size_t)(count ? count : 1) * sizeof *matches->items);
    if (!matches->items) return fail_memory();
    matches->count = 0;
    for (int64_t i = 0; !status && i < rows; i++) {
        index_match match;
        if ((double)scores[i] + (double)s->errors[i] < limit) continue;
        match.id = i;
        status = compare_floats(s->index, i, query, room, &match.similarity);
        if (match.similarity >= threshold - 1e-6) matches->items[matches->count++] = match;
    }
    qsort(matches->items, (size_t)matches->count, sizeof *matches->items, compare_matches);
    if (matches->count > most) matches->count = most;
    return status;
}

static int scan_some(scan *s, const float *queries, uint64_t most, double threshold, uint32_t threads, index_matches *matches) {
    const uint32_t width = s->index->width;
    const size_t rows = (size_t)s->index->rows;
    int16_t *codes = malloc((size_t)s->query_count * width * sizeof *codes);
    float *room = malloc((rows > width ? rows : width) * sizeof *room);
    int status = codes && room ? 0 : fail_memory();
    for (uint32_t q = 0; !status && q < s->query_count; q++) {
        s->queries[q].values = codes + (size_t)q * width;
        encode_query(queries + (size_t)q * width, width, &s->queries[q]);
    }
    s->next_block = 0;
    s->status = status;
    if (!status) run_threads(score_blocks, s, threads);
    status = s->status;
    sqlite3_blob_close(s->blob);
    s->blob = NULL;
    for (uint32_t q = 0; !status && q < s->query_count; q++)
        status = settle(s, q, queries + (size_t)q * width, most, threshold, room, &matches[q]);
    free(codes);
    free(room);
    return status;
}

int index_nearest(index_file *index, const float *queries, uint32_t count, uint64_t most, double threshold, uint32_t threads,
                  index_matches *matches) {
    const size_t rows = (size_t)index->rows;
    uint32_t at_once = QUERIES_AT_ONCE;
    scan s;
    int status;
    memset(matches, 0, count * sizeof *matches);
    if (rows == 0 || most == 0) return 0;
    while (at_once > 1 && at_once * rows * sizeof(float) > SCORE_BYTES_MOST) at_once /= 2;
    if (at_once > count) at_once = count;
    memset(&s, 0, sizeof s);
    s.index = index;
    s.scores = malloc(at_once * rows * sizeof *s.scores);
    s.errors = malloc(rows * sizeof *s.errors);
    status = s.scores && s.errors ? 0 : fail_memory();
    pthread_mutex_init(&s.lock, NULL);
    for (uint32_t first = 0; !status && first < count; first += s.query_count) {
        s.query_count = count - first < at_once ? count - first : at_once;
        status = scan_some(&s, queries + (size_t)first * index->width, most, threshold, threads, matches + first);
    }
    pthread_mutex_destroy(&s.lock);
    free(s.scores);
    free(s.errors);
    return status;
}

/* ---- near-equal pictures ---- */

enum { TILE = 64, ACROSS = 4, DOWN = 2 };

typedef struct pair_search {
    index_file *index;
    double threshold;
    uint32_t head;          /* columns whose products are summed first: what the others can add is bounded by their lengths */
    unsigned char *codes;   /* [rows][INDEX_CODE_HEAD + width] */
    float *scales, *errors; /* [rows] */
    float *tails;           /* [rows], the length of what lies beyond the head */
    pthread_mutex_t lock;   /* around what follows, and SQLite */
    uint32_t *group;        /* [rows] */
    int64_t next_tile;
    int status;
} pair_search;

typedef struct pair_worker {
    pair_search *search;
    uint32_t *group;  /* of what this thread has found */
    int16_t *a, *b;   /* [TILE][width] */
    float *x, *y;     /* [width] */
} pair_worker;

/* Groups are trees of ids whose root is the smallest. */
static uint32_t root_of(uint32_t *group, uint32_t id) {
    while (group[id] != id) id = group[id] = group[group[id]];
    return id;
}

static void join(uint32_t *group, uint32_t a, uint32_t b) {
    a = root_of(group, a);
    b = root_of(group, b);
    if (a < b) group[b] = a;
    else group[a] = b;
}

static uint32_t widen(const pair_search *s, int64_t tile, int16_t *out) {
    const uint32_t width = s->index->width;
    int64_t left = s->index->rows - tile * TILE;
    uint32_t rows = left < TILE ? (uint32_t)left : TILE;
    memset(out, 0, (size_t)TILE * width * sizeof *out);
    for (uint32_t row = 0; row < rows; row++) {
        const signed char *codes = (const signed char *)s->codes + (size_t)(tile * TILE + row) * (width + INDEX_CODE_HEAD) + INDEX_CODE_HEAD;
        for (uint32_t i = 0; i < width; i++) out[(size_t)row * width + i] = codes[i];
    }
    return rows;
}

/* Products of DOWN rows with ACROSS others, over columns [0, columns). */
static void dots(const int16_t *a, const int16_t *b, uint32_t width, uint32_t columns, int32_t sums[DOWN][ACROSS]) {
    int32_t s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
    const int16_t *a1 = a + width, *b1 = b + width, *b2 = b1 + width, *b3 = b2 + width;
    for (uint32_t i = 0; i < columns; i++) {
        s00 += (int32_t)a[i] * b[i];
        s01 += (int32_t)a[i] * b1[i];
        s02 += (int32_t)a[i] * b2[i];
        s03 += (int32_t)a[i] * b3[i];
        s10 += (int32_t)a1[i] * b[i];
        s11 += (int32_t)a1[i] * b1[i];
        s12 += (int32_t)a1[i] * b2[i];
        s13 += (int32_t)a1[i] * b3[i];
    }
    sums[0][0] = s00, sums[0][1] = s01, sums[0][2] = s02, sums[0][3] = s03;
    sums[1][0] = s10, sums[1][1] = s11, sums[1][2] = s12, sums[1][3] = s13;
}

static int32_t dot_wide(const int16_t *a, const int16_t *b, uint32_t columns) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < columns; i++) sum += (int32_t)a[i] * b[i];
    return sum;
}

/* Two rows whose codes alone do not settle it. */
static int compare_pair(pair_worker *w, uint32_t i, uint32_t j, int *similar) {
    pair_search *s = w->search;
    double similarity = 0, square = 0;
    int status;
    pthread_mutex_lock(&s->lock);
    status = s->status; /* another thread has said why */
    if (!status) status = index_get_embedding(s->index, i, w->x);
    if (!status) status = compare_floats(s->index, j, w->x, w->y, &similarity);
    s->status = status;
    pthread_mutex_unlock(&s->lock);
    for (uint32_t k = 0; !status && k < s->index->width; k++) square += (double)w->x[k] * (double)w->x[k];
    *similar = square > 0 && similarity / sqrt(square) >= s->threshold - 1e-6;
    return status;
}

/* A pair of which the head's product is known. */
static int look_at_pair(pair_worker *w, uint32_t i, uint32_t j, const int16_t *a, const int16_t *b, int32_t head) {
    const pair_search *s = w->search;
    const double scale = (double)s->scales[i] * (double)s->scales[j];
    const double off = (double)s->errors[i] + (double)s->errors[j] + (double)s->errors[i] * (double)s->errors[j] + SLACK;
    double score;
    int status = 0, similar = 1;
    if (scale * head + (double)s->tails[i] * (double)s->tails[j] + off < s->threshold) return 0;
    score = scale * (head + dot_wide(a + s->head, b + s->head, s->index->width - s->head));
    if (score + off < s->threshold || root_of(w->group, i) == root_of(w->group, j)) return 0;
    if (score - off < s->threshold) status = compare_pair(w, i, j, &similar);
    if (!status && similar) join(w->group, i, j);
    return status;
}

static int compare_tiles(pair_worker *w, int64_t first, uint32_t a_rows, int64_t second, uint32_t b_rows) {
    const uint32_t width = w->search->index->width;
    int32_t sums[DOWN][ACROSS];
    int status = 0;
    for (uint32_t y = 0; !status && y < a_rows; y += DOWN)
        for (uint32_t x = 0; !status && x < b_rows; x += ACROSS) {
            dots(w->a + (size_t)y * width, w->b + (size_t)x * width, width, w->search->head, sums);
            for (uint32_t k = 0; !status && k < DOWN * ACROSS; k++) {
                const uint32_t row = y + k / ACROSS, column = x + k % ACROSS;
                const uint32_t i = (uint32_t)(first * TILE) + row, j = (uint32_t)(second * TILE) + column;
                if (row >= a_rows || column >= b_rows || i >= j) continue;
                status = look_at_pair(w, i, j, w->a + (size_t)row * width, w->b + (size_t)column * width, sums[k / ACROSS][k % ACROSS]);
            }
        }
    return status;
}

/* 0: no memory. */
static int worker_open(pair_worker *w, pair_search *search) {
    const size_t width = search->index->width, rows = (size_t)search->index->rows;
    w->search = search;
    w->group = malloc(rows * sizeof *w->group);
    w->a = malloc(TILE * width * sizeof *w->a);
    w->b = malloc(TILE * width * sizeof *w->b);
    w->x = malloc(width * sizeof *w->x);
    w->y = malloc(width * sizeof *w->y);
    if (!w->group || !w->a || !w->b || !w->x || !w->y) return 0;
    for (size_t i = 0; i < rows; i++) w->group[i] = (uint32_t)i;
    return 1;
}

static void *compare_all(void *user) {
    pair_search *s = user;
    const int64_t tiles = (s->index->rows + TILE - 1) / TILE;
    pair_worker w;
    int good = worker_open(&w, s), status = 0;
    for (;;) {
        int64_t tile;
        uint32_t rows;
        pthread_mutex_lock(&s->lock);
        if (!s->status && !good) s->status = fail_memory();
        tile = s->next_tile++;
        if (s->status || tile >= tiles) break;
        pthread_mutex_unlock(&s->lock);
        rows = widen(s, tile, w.a);
        for (int64_t other = tile; !status && other < tiles; other++) status = compare_tiles(&w, tile, rows, other, widen(s, other, w.b));
    }
    for (int64_t i = 0; !s->status && i < s->index->rows; i++) join(s->group, (uint32_t)i, w.group[i]);
    pthread_mutex_unlock(&s->lock);
    free(w.group);
    free(w.a);
    free(w.b);
    free(w.x);
    free(w.y);
    return NULL;
}

/* All codes into memory, and what bounds the products of their ends. */
static int load_codes(pair_search *s) {
    const uint32_t width = s->index->width;
    const size_t stride = width + INDEX_CODE_HEAD;
    sqlite3_blob *blob = NULL;
    uint32_t rows;
    int status = 0;
    for (int64_t block = 0; !status && block * INDEX_BLOCK_ROWS < s->index->rows; block++)
        status = index_read_block(s->index, &blob, block, s->codes + (size_t)(block * INDEX_BLOCK_ROWS) * stride, &rows);
    sqlite3_blob_close(blob);
    for (int64_t row = 0; !status && row < s->index->rows; row++) {
        const unsigned char *code = s->codes + (size_t)row * stride;
        double square = 0;
        if (!read_head(code, &s->scales[row], &s->errors[row])) status = fail_head(s->index);
        for (uint32_t i = s->head; i < width; i++) {
            int value = ((const signed char *)code)[INDEX_CODE_HEAD + i];
            square += value * value;
        }
        s->tails[row] = (float)(sqrt(square) * (double)s->scales[row]);
    }
    return status;
}

int index_duplicates(index_file *index, double threshold, uint32_t threads, uint32_t *group) {
    const size_t rows = (size_t)index->rows;
    pair_search s;
    int status;
    for (size_t i = 0; i < rows; i++) group[i] = (uint32_t)i;
    if (rows == 0) return 0;
    memset(&s, 0, sizeof s);
    s.index = index;
    s.threshold = threshold;
    s.head = index->width < 96 ? index->width : index->width / 3 / 32 * 32;
    s.group = group;
    s.codes = malloc(rows * (index->width + INDEX_CODE_HEAD));
    s.scales = malloc(rows * sizeof *s.scales);
    s.errors = malloc(rows * sizeof *s.errors);
    s.tails = malloc(rows * sizeof *s.tails);
    status = s.codes && s.scales && s.errors && s.tails ? load_codes(&s) : fail_memory();
    pthread_mutex_init(&s.lock, NULL);
    s.status = status;
    if (!status) run_threads(compare_all, &s, threads);
    pthread_mutex_destroy(&s.lock);
    free(s.codes);
    free(s.scales);
    free(s.errors);
    free(s.tails);
    for (size_t i = 0; i < rows; i++) group[i] = root_of(group, (uint32_t)i);
    return s.status;
}

/* Times an index of random rows (tools/index.h):

       bench_index make FILE ROWS WIDTH     rows near to some hundred centres, as pictures of one library are
       bench_index query FILE COUNT         each of COUNT queries alone, in a process that has just begun
       bench_index exact FILE COUNT         the same queries against all floats: are the first ten equal?
       bench_index duplicates FILE */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include "tools/index.h"

enum { CENTRES = 300, FIRST = 10 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t state = 1;
static double uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}
/* About normal: the sum of four. */
static double normal(void) { return (uniform() + uniform() + uniform() + uniform() - 2) * 1.7320508; }

static void normalize(float *row, uint32_t width) {
    double square = 0;
    for (uint32_t i = 0; i < width; i++) square += (double)row[i] * (double)row[i];
    for (uint32_t i = 0; i < width; i++) row[i] = (float)((double)row[i] / sqrt(square));
}

/* Rows share a direction, belong to centres, and spread around them. */
static void make_row(float *row, const float *centres, uint32_t width) {
    const float *centre = centres + (size_t)(uniform() * CENTRES) * width;
    double spread = 0.3 + uniform();
    for (uint32_t i = 0; i < width; i++) row[i] = (float)(0.8 + (double)centre[i] + spread * normal());
    normalize(row, width);
}

static float *make_centres(uint32_t width) {
    float *centres = malloc((size_t)CENTRES * width * sizeof *centres);
    state = 1;
    for (size_t i = 0; centres && i < (size_t)CENTRES * width; i++) centres[i] = (float)normal();
    return centres;
}

static int make(const char *name, int64_t rows, uint32_t width) {
    index_about about = {"width", "", NULL, NULL};
    index_file index;
    float *centres = make_centres(width), *row = malloc(width * sizeof *row);
    double start = now();
    int status = index_open(&index, name, 1, 60);
    snprintf(about.value, sizeof about.value, "%u", width);
    if (!status && index.is_empty) status = index_create(&index, &about, 1);
    for (int64_t i = 0; !status && i < rows; i++) {
        char path[64];
        index_row picture = {0, path, 100000 + i % 5000000, 0, i * 7919};
        snprintf(path, sizeof path, "/photos/%04lld/%02lld/picture-%07lld.jpg", 2000 + (long long)i / 50000, (long long)i / 4000 % 12 + 1,
                 (long long)i);
        if (i % 10000 == 0) status = index_begin_writing(&index);
        make_row(row, centres, width);
        if (!status) status = index_put(&index, &picture, row);
        if (!status && (i % 10000 == 9999 || i + 1 == rows)) status = index_end(&index);
    }
    index_close(&index);
    printf("%lld rows of %u in %.1f s\n", (long long)rows, width, now() - start);
    free(centres);
    free(row);
    return status;
}

static float *make_queries(uint32_t count, uint32_t width) {
    float *centres = make_centres(width), *queries = malloc((size_t)count * width * sizeof *queries);
    state = 99;
    for (uint32_t i = 0; i < count; i++) make_row(queries + (size_t)i * width, centres, width);
    free(centres);
    return queries;
}

static int query(const char *name, uint32_t count) {
    index_file index;
    index_matches matches = {NULL, 0};
    struct rusage used;
    float *queries;
    int status = index_open(&index, name, 0, 60);
    if (status) return status;
    queries = make_queries(count, index.width);
    for (uint32_t i = 0; !status && i < count; i++) {
        double start = now();
        status = index_begin_reading(&index);
        if (!status) status = index_nearest(&index, queries + (size_t)i * index.width, 1, FIRST, -2, 2, &matches);
        if (!status) status = index_end(&index);
        printf("%.3f s, best %.4f\n", now() - start, matches.count ? matches.items[0].similarity : 0);
        free(matches.items);
    }
    index_close(&index);
    getrusage(RUSAGE_SELF, &used);
    printf("%ld MB at most\n", used.ru_maxrss / 1024);
    free(queries);
    return status;
}

/* The FIRST best rows of each query, all floats compared: best first, equal ones by id. */
static int compare_all(index_file *index, const float *queries, uint32_t count, index_match *best) {
    float *row = malloc(index->width * sizeof *row);
    int status = 0;
    for (size_t i = 0; i < (size_t)count * FIRST; i++) best[i].similarity = -3;
    for (int64_t id = 0; !status && id < index->rows; id++) {
        double square = 0;
        status = index_get_embedding(index, id, row);
        for (uint32_t i = 0; i < index->width; i++) square += (double)row[i] * (double)row[i];
        for (uint32_t q = 0; q < count; q++) {
            index_match *list = best + (size_t)q * FIRST;
            double sum = 0;
            int at = FIRST - 1;
            for (uint32_t i = 0; i < index->width; i++) sum += (double)row[i] * (double)queries[(size_t)q * index->width + i];
            sum /= sqrt(square);
            if (sum <= list[at].similarity) continue;
            for (; at > 0 && list[at - 1].similarity < sum; at--) list[at] = list[at - 1];
            list[at].id = id;
            list[at].similarity = sum;
        }
    }
    free(row);
    return status;
}

static int exact(const char *name, uint32_t count) {
    index_file index;
    index_matches *matches = calloc(count, sizeof *matches);
    index_match *best = malloc((size_t)count * FIRST * sizeof *best);
    float *queries;
    uint32_t equal = 0;
    double start;
    int status = index_open(&index, name, 0, 60);
    if (!status) status = index_begin_reading(&index);
    if (status) return status;
    queries = make_queries(count, index.width);
    start = now();
    status = index_nearest(&index, queries, count, FIRST, -2, 2, matches);
    printf("%.3f s a query, all at once\n", (now() - start) / count);
    if (!status) status = compare_all(&index, queries, count, best);
    for (uint32_t q = 0; !status && q < count; q++) {
        int same = matches[q].count == FIRST;
        for (int i = 0; same && i < FIRST; i++) same = matches[q].items[i].id == best[(size_t)q * FIRST + (size_t)i].id;
        equal += (uint32_t)same;
        free(matches[q].items);
    }
    printf("the first %d are those of the floats in %u of %u queries\n", FIRST, equal, count);
    index_close(&index);
    free(matches);
    free(best);
    free(queries);
    return status ? status : equal != count;
}

static int duplicates(const char *name) {
    index_file index;
    uint32_t *group, joined = 0;
    double start = now();
    int status = index_open(&index, name, 0, 60);
    if (!status) status = index_begin_reading(&index);
    if (status) return status;
    group = malloc((size_t)index.rows * sizeof *group);
    status = index_duplicates(&index, 0.97, 2, group);
    for (int64_t i = 0; !status && i < index.rows; i++) joined += group[i] != (uint32_t)i;
    printf("%u of %lld rows join others, %.1f s\n", joined, (long long)index.rows, now() - start);
    index_close(&index);
    free(group);
    return status;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "make") == 0) return make(argv[2], atoll(argv[3]), (uint32_t)atoi(argv[4]));
    if (argc == 4 && strcmp(argv[1], "query") == 0) return query(argv[2], (uint32_t)atoi(argv[3]));
    if (argc == 4 && strcmp(argv[1], "exact") == 0) return exact(argv[2], (uint32_t)atoi(argv[3]));
    if (argc == 3 && strcmp(argv[1], "duplicates") == 0) return duplicates(argv[2]);
    fprintf(stderr, "usage: bench_index make FILE ROWS WIDTH | query FILE COUNT | exact FILE COUNT | duplicates FILE\n");
    return 1;
}

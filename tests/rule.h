/* Numbers that C and the scripts make_*.py make alike, from a name or a seed; answers as text, their hashes and distances.
   Needs cmocka.h before it. */
#ifndef MGV_TESTS_RULE_H
#define MGV_TESTS_RULE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FNV1A_START 0xCBF29CE484222325u
static inline uint64_t fnv1a(uint64_t hash, uint32_t value) { return (hash ^ value) * 0x100000001B3u; }

static inline uint64_t rule_seed(const char *name) {
    uint64_t seed = FNV1A_START;
    for (; *name; name++) seed = fnv1a(seed, (uint8_t)*name);
    return seed;
}
/* Number i of a seed (splitmix64). */
static inline uint64_t rule_bits(uint64_t seed, size_t i) {
    uint64_t z = seed + ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
/* Of malloc. */
static inline uint8_t *rule_bytes(uint64_t seed, size_t bytes) {
    uint8_t *data = (uint8_t *)malloc(bytes);
    size_t i;
    for (i = 0; i < bytes; i++) data[i] = (uint8_t)(rule_bits(seed, i) >> 56);
    return data;
}

static inline uint64_t hash_floats(const float *values, size_t count) {
    uint64_t hash = FNV1A_START;
    size_t i;
    for (i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = fnv1a(hash, bits);
    }
    return hash;
}
static inline double relative_l2(const float *a, const float *b, size_t count) {
    double difference = 0, norm = 0;
    size_t i;
    for (i = 0; i < count; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(difference / norm);
}

/* Bytes of little-endian floats in hexadecimal; how many there were. */
static inline size_t read_floats(const char *hex, float *values, size_t most) {
    size_t count = 0;
    for (; *hex && *hex != '\n' && *hex != ' '; hex += 8, count++) {
        unsigned int byte[4];
        uint32_t bits;
        assert_true(count < most);
        assert_int_equal(sscanf(hex, "%2x%2x%2x%2x", &byte[0], &byte[1], &byte[2], &byte[3]), 4);
        bits = byte[0] | byte[1] << 8 | byte[2] << 16 | byte[3] << 24;
        memcpy(&values[count], &bits, sizeof bits);
    }
    return count;
}

#endif

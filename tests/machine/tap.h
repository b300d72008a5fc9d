/* What the model's test programs share: TAP, counts, options of a seed. */
#ifndef MACHINE_TAP_H
#define MACHINE_TAP_H

#include <stdio.h>
#include <string.h>

#include <chrono>

#include "machine.h"

inline int tests, failures;
inline unsigned arithmetic_runs, protocol_runs, faults_caught, faults_planted, faults_unchecked, faults_done_again, faults_caught_again;

inline void ok(bool passed, const std::string &name, const std::string &why = "") {
    tests++;
    if (!passed) failures++;
    printf("%sok %d - %s\n", passed ? "" : "not ", tests, name.c_str());
    if (!passed && !why.empty()) {
        std::string text = why;
        for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at++) text.replace(at, 1, "\n# "), at += 2;
        printf("# %s\n", text.c_str());
    }
    fflush(stdout);
}

inline std::string file_text(const char *path) {
    std::string text;
    if (FILE *file = fopen(path, "rb")) {
        char buffer[4096];
        for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) text.append(buffer, n);
        fclose(file);
    }
    return text;
}

inline machine::Options options_of(uint64_t seed, bool protocol) {
    machine::Options options;
    options.seed = seed;
    options.protocol = protocol;
    options.schedule = seed % 8 == 6 ? machine::Schedule::delayed : seed % 8 == 7 ? machine::Schedule::eager : machine::Schedule::random;
    return options;
}

/* A replay beside one of the same seed that has looked at every access: "", or where they differ. */
inline std::string compare_replays(const machine::Result &replay, const machine::Result &thorough) {
    if (replay.text() != thorough.text()) return "says\n" + replay.text() + "and when every access is looked at\n" + thorough.text();
    const bool same_order = replay.steps == thorough.steps && replay.last_random == thorough.last_random;
    return same_order || !replay.known ? "" : "the order is another one when every access is looked at\n";
}

/* The last line; faults_unchecked: those that were planted once more with their rule switched off, and then passed. */
inline int finish(const char *what = "machine model") {
    printf("1..%d\n", tests);
    printf("# %s: kernels run under %u arithmetic and %u protocol seeds; faults planted %u times, caught %u times", what, arithmetic_runs,
           protocol_runs, faults_planted, faults_caught);
    if (faults_unchecked) printf(", %u of them pass once their rule is not checked", faults_unchecked);
    if (faults_done_again) printf("; of %u recorded ones %u caught when they are done again", faults_done_again, faults_caught_again);
    printf("\n");
    return failures != 0;
}

#endif

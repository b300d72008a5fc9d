/* What the model's test programs share: TAP, counts, options of a seed. */
#ifndef MACHINE_TAP_H
#define MACHINE_TAP_H

#include <stdio.h>
#include <string.h>

#include <chrono>

#include "machine.h"

inline int tests, failures;
inline unsigned arithmetic_runs, protocol_runs, faults_caught, faults_planted;

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

inline machine::Options options_of(uint64_t seed, bool protocol) {
    machine::Options options;
    options.seed = seed;
    options.protocol = protocol;
    options.schedule = seed % 8 == 6 ? machine::Schedule::delayed : seed % 8 == 7 ? machine::Schedule::eager : machine::Schedule::random;
    return options;
}

inline int finish(void) {
    printf("1..%d\n", tests);
    printf("# machine model: kernels run under %u arithmetic and %u protocol seeds; %u of %u planted faults caught\n", arithmetic_runs, protocol_runs, faults_caught,
           faults_planted);
    return failures != 0;
}

#endif

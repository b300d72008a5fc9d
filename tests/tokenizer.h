/* Tokenizers whose files a test has in memory. After megavit.h. */
#ifndef MGV_TESTS_TOKENIZER_H
#define MGV_TESTS_TOKENIZER_H

enum { MOST_FILES = 3 };

/* name, text, name, text, …; allocator: NULL for malloc. */
static inline mgv_result open_with(mgv_tokenizer **tokenizer, const char *const *said, mgv_lower_case lower_case,
                                   const mgv_allocator *allocator, const mgv_logger *logger, mgv_error *error) {
    mgv_memory_file files[MOST_FILES];
    mgv_model_desc desc;
    uint32_t count = 0;
    memset(&desc, 0, sizeof desc);
    for (; count < MOST_FILES && said[2 * count] != NULL; count++) {
        files[count].name = said[2 * count];
        files[count].data = said[2 * count + 1];
        files[count].bytes = strlen(said[2 * count + 1]);
    }
    desc.memory_files = files;
    desc.memory_file_count = count;
    if (allocator) desc.allocator = *allocator;
    if (logger) desc.logger = *logger;
    *tokenizer = NULL;
    return mgv_tokenizer_open(tokenizer, &desc, lower_case, error);
}
static inline mgv_result open_said(mgv_tokenizer **tokenizer, const char *const *said, const mgv_allocator *allocator, mgv_error *error) {
    return open_with(tokenizer, said, MGV_LOWER_CASE_AUTO, allocator, NULL, error);
}

#define BPE(vocabulary, merges, more) "{\"model\":{\"type\":\"BPE\",\"vocab\":" vocabulary ",\"merges\":" merges "}" more "}"
#define ONE(more) BPE("{\"a\":0}", "[]", more)

#endif
